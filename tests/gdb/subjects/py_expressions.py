"""Random expressions over a frame's variables, and what Python itself makes of each: {"version", "expressions": [[text, repr of
the value, or null where Python raises, name of what it raises]]}. Then it sleeps in the frame that has the variables.

Arguments: the seed, how many expressions.
"""

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import json
import pathlib
import random
import sys
import time
import typing
import warnings

warnings.simplefilter("ignore")
rng = random.Random(int(sys.argv[1]))
COUNT = int(sys.argv[2])


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


class Bits(enum.IntFlag):
    A = 1
    B = 2


Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Point:
    x: int
    y: typing.Any = None


@dataclasses.dataclass(eq=False)
class Lonely:
    x: int


class Plain:
    shared = "class value"

    def __init__(self, n, text=None):
        self.n, self.text, self._hidden, self.me = n, text, [n], None

    @property
    def hidden(self):
        return self._hidden

    @property
    def inner(self):
        return self.me.n

    @property
    def doubled(self):
        return self.n * 2

    @property
    def _n(self):
        return not shared

    def method(self):
        return self.n

    @classmethod
    def made(cls):
        return cls

    @staticmethod
    def free():
        return 1


shared = 0


class Slots:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a, self.b = 1, "b"


class Equal:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return True

    __hash__ = None


class Sized:
    def __len__(self):
        return 0


class Shouting(dict):
    def __getitem__(self, key):
        return "shout"


class Words(str):
    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


def main():
    i, j, big, zero, minus = 7, 3, 2**70, 0, -5
    f, g, nan, inf = 2.5, -0.1, float("nan"), float("inf")
    yes, no, nothing, dots = True, False, None, Ellipsis
    text, other, empty, wide = "héllo world", "abc", "", "日本\U0001f600x"
    raw, more = b"abc\xff", bytearray(b"bc")
    xs, ys, deep = [3, 1, 2], [1.5, "a", None, True], [[1, 2], [3, [4, nan]], (5,)]
    nans = [nan, 1.0]
    pair, named, single = (1, "two"), Pair(1, [2]), (nan,)
    table = {"a": 1, "b": [1, 2], 3: "three", (1, 2): None, None: 0, 1.5: {"z": 9}}
    ordered = collections.OrderedDict(one=1, two=2, three=3)
    ordered.move_to_end("one")
    default, counter = collections.defaultdict(None, k=[1]), collections.Counter("abca")
    group, frozen, names = {1, 2, 3}, frozenset({"a", "b"}), {"a": {1}}
    queue, numbers = collections.deque([1, 2, 3], 5), array.array("i", [1, -2, 3])
    short, steps = range(5), range(10, 0, -3)
    red, blue, high, bits = Color.RED, Color.BLUE, Level.HIGH, Bits.A | Bits.B
    p, q, r = Point(1), Point(1), Point(2, [1])
    alone, twin = Lonely(1), Lonely(1)
    plain, dim, slots = Plain(5, "some text"), Plain(6), Slots()
    plain.me, dim.me = dim, plain
    points = [Point(n, str(n)) for n in range(6)]
    equal, sized, shouting, words = Equal(1), Sized(), Shouting(a=1), Words("abc")
    price, third = decimal.Decimal("1.50"), fractions.Fraction(1, 3)
    day, moment, span = datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2, 3, 4), datetime.timedelta(1, 2)
    path, cut, view = pathlib.PurePosixPath("/a/b.txt"), slice(1, 3), table.keys()
    error = ValueError("x", 1)
    own = dict(locals())
    told = []
    for expression in dict.fromkeys(FIXED.strip().replace("\n", "|").split("|") + [grow(4, own) for _ in range(COUNT)]):
        try:
            value = eval(expression, globals(), own)
            told.append([expression, text_of(value), ""])
        except RecursionError:
            continue
        except Exception as e:
            told.append([expression, None, type(e).__name__])
    del expression, own
    print(json.dumps({"version": list(sys.version_info[:2]), "expressions": told}), flush=True)
    time.sleep(3600)


def text_of(value):
    """The repr; members of a set by their text, since a set has no order."""
    return f"{type(value).__name__}: {sorted(map(repr, value))}" if isinstance(value, (set, frozenset)) else repr(value)


FIXED = """
plain.hidden|plain.inner|plain.doubled|plain._n|plain.method|plain.made|plain.free|Plain.method|Plain.made|Plain.free
Plain.shared|plain.__class__|plain.__dict__|type(plain)|type(None)|type(nothing)|type(1) is int|type(xs) is list
type(...)|type("a")|type(1.5)|error.args|error.args[0]|error.__cause__|error.__traceback__|error.__context__
len(error.args)|error.with_traceback|named[0:1]|named[:]|named.left|pair[::-1]|len(short)|short[2]|short[1:3]
list(steps)|steps[-1]|3 in short|2.0 in short|len(steps)|short == range(5)|nan == nan|nan in [nan]|nan in nans
nans == nans|single == single|deep == deep|nans[0] == nans[0]|nan is nan|[nan] == [nan]|(nan,) < (nan,)
(nan,) <= (nan,)|nans.index(nan)|nans.count(nan)|1 in yes|table[1.5]|table[True]|table[None]|table[(1, 2)]
table["nope"]|table.get("a")|table.get("nope")|table.get("nope", 5)|table.keys()|table.values()|table.items()
list(table)|list(ordered)|ordered.keys()|list(ordered.items())|ordered == {"one": 1, "two": 2, "three": 3}
default["k"]|default["nope"]|counter["a"]|counter["nope"]|len(counter)|counter.get("z")|3 in group|"a" in frozen
[1] in group|sum(xs)|sum([0.1] * 10)|sum([0.1, 0.2, 0.3])|sum(ys[:1])|min(xs)|max(text)|sum(n.x for n in points)
max(p.x for p in points)|any(x.x == 3 for x in points)|all(x.x < 6 for x in points)|[x.y for x in points if x.x % 2]
{x.x for x in points}|{x.x: x.y for x in points}|sorted(xs)|sorted(n.y for n in points)|list(zip(xs, "abc"))
list(enumerate(xs))|list(reversed(xs))|p == q|p == r|p is q|alone == twin|alone == alone|p != q|plain == dim
plain == plain|equal == 1|1 == equal|equal in xs|sized or 1|bool(sized)|len(sized)|not sized|shouting["a"]
shouting.get("a")|len(shouting)|words == "zzz"|"zzz" == words|words in ["abc"]|red == blue|red is Color.RED|red == 1
high == 5|high > 3|high + 1|bits & 1|bits | 4|Color.RED|list(Color)|len(table)|red.value|red.name|high.value|bits == 3
bool(bits)|isinstance(i, int)|isinstance(yes, (str, int))|isinstance(p, Point)|isinstance(plain, Point)
isinstance(red, Color)|isinstance(i, float)|hasattr(plain, "n")|hasattr(plain, "zork")|getattr(plain, "n")
getattr(plain, "zork", 5)|dir(plain)|dir(slots)|dir(Plain)|dir(table)|dir(p)|vars(plain)|vars(p)|vars(dim)["n"]
price + 1|price == 1.5|third * 3|day.year|moment.hour|span.days|moment - span|moment > moment - span|day == day
path.name|path.parent|path.suffix|path == path|path.parent.name|moment.isoformat()|span.total_seconds()
price.is_zero()|cut.start|f.real|i.imag|big.bit_length()|text.startswith("h")|text.upper()|text.split()
other.endswith(("b", "c"))|text[1:4]|wide[2]|wide[::-1]|raw[3]|raw[1:]|more[0]|more[:1]|"ell" in text|"" in empty
text in xs|raw + b"x"|text + other|xs + ys|pair + (3,)|len(wide)|numbers[1]|numbers[::2]|-2 in numbers|queue[1]
queue[-1]|2 in queue|list(queue)|queue.maxlen|len(queue)|1 < i <= 7|1 < i < 3|i < j < zero|i == 7 != j|not nothing
nothing is None|nothing == None|plain.text == None|"a" in plain.text|"a" in dim.text|dim.text < "b"
dim.text is None or "a" in dim.text|slots.a|slots.b|slots.zork|names["a"] == {1}|group == {3, 2, 1}
group <= {1, 2, 3, 4}|group & {1}|frozen | {"c"}|group - {1}|i if yes else 1 / 0|(i, j)|[i, [j]]|{"k": i}|{i, j}|-i|~i
+yes|-yes|i ** j|i << j|big >> 3|i // -2|i % -2|-7 // 2|-7 % 3|f // 1|f % -2|i / zero|i % zero|zero ** -1|1 << -1
"a" * 3|"%s" % i|xs * 2|abs(minus)|abs(-2.5)|hex(255)|lambda: 1|f"{i}"|iter(xs)|plain.method()|hash(i)|p.zork|zork
points[2].y|points[-1].x|points[99]|deep[1][1][0]|deep[1][1][9]|view|len(view)|"a" in view|list(view)|1 in view
Plain.__name__|Plain.__mro__|Plain.__doc__|Plain.__bases__|type(plain).__name__|main.__name__|main.__code__
plain.method.__func__
"""

BINARY = [
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "&",
    "|",
    "^",
    "<<",
    ">>",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "is",
    "is not",
    "in",
    "not in",
    "and",
    "or",
]
ATTRIBUTES = [
    "n",
    "x",
    "y",
    "left",
    "text",
    "hidden",
    "value",
    "name",
    "me",
    "shared",
    "real",
    "start",
    "args",
    "year",
    "zork",
    "a",
]
CALLS = ["len", "abs", "bool", "list", "tuple", "sorted", "min", "max", "sum", "any", "all", "type", "set"]
METHODS = [
    "upper()",
    "split()",
    "strip()",
    "keys()",
    "get('a')",
    "get('zork', 1)",
    "count(1)",
    "index(2)",
    "startswith('a')",
    "items()",
]
LITERALS = [
    "0",
    "1",
    "-1",
    "2",
    "1.5",
    "'a'",
    "'abc'",
    "b'a'",
    "None",
    "True",
    "[1, 2]",
    "(1, 'two')",
    "{'a': 1}",
    "{1, 2}",
    "[]",
    "''",
]


def grow(depth, own):
    """A random expression."""

    def part():
        return grow(depth - 1, own)

    choice = rng.random()
    if not depth or choice < 0.18:
        return rng.choice(list(own)) if rng.random() < 0.75 else rng.choice(LITERALS)
    if choice < 0.5:
        return f"({part()} {rng.choice(BINARY)} {part()})"
    if choice < 0.6:
        return (
            f"{rng.choice(list(own))}[{rng.choice([part(), '0', '-1', '1:', ':2', '::-1', '::2', '1', chr(39) + 'a' + chr(39)])}]"
        )
    if choice < 0.7:
        return f"{rng.choice(list(own))}.{rng.choice(ATTRIBUTES)}"
    if choice < 0.78:
        return f"{rng.choice(CALLS)}({part()})"
    if choice < 0.82:
        return f"{rng.choice(list(own))}.{rng.choice(METHODS)}"
    if choice < 0.88:
        return f"({rng.choice(['-', '~', 'not '])}{part()})"
    if choice < 0.92:
        return f"({part()} if {part()} else {part()})"
    if choice < 0.95:
        return f"({part()} {rng.choice(BINARY[11:17])} {part()} {rng.choice(BINARY[11:17])} {part()})"
    if choice < 0.975:
        return f"[{part()}, {part()}]"
    call, element = rng.choice(["any", "all", "list", "sorted", "sum"]), rng.choice(["v", "not v", "(v, 1)", "v == 1"])
    return f"{call}({element} for v in {part()})"


if __name__ == "__main__":
    main()
