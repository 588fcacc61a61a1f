"""Objects of the kinds that CPython's C code has, and what Python says of each; see py_cases."""

import array
import asyncio
import collections
import enum
import json
import math
import random
import sys
import types

from py_cases import add, has, tell

random.seed(7)


# ---- numbers
add("int small", *range(-6, 12))
EDGES = (8, 15, 16, 29, 30, 31, 32, 59, 60, 61, 62, 63, 64)
add("int word edges", *[s * (2**b + d) for b in EDGES for d in (-1, 0, 1) for s in (1, -1)])
add("int digits", *[s * 7**n for n in (20, 50, 100, 333, 1000, 4000) for s in (1, -1)])
add("int zeros inside", 1 << 90, 1 << 900, -(1 << 3000), (1 << 300) + 1)
add("bool", True, False)
add("float", 0.0, -0.0, 1.5, -2.25, 1e300, -1e-300, 5e-324, 1.7976931348623157e308, math.pi, 0.1 + 0.2, 1e16, 1e22, 123456789.0)
add("float special", float("nan"), -float("nan"), float("inf"), -float("inf"))
add("complex", 1j, 0j, -0.0j, 1 + 2j, complex("nan+infj"), complex(-0.0, -0.0), 1e-7 - 1e20j, complex(0, -2.5))
add("singletons", None, Ellipsis, NotImplemented)

# ---- text and bytes
add("str", "", "a", "ascii", "with 'quote'", 'with "quotes"', "both ' and \"")
add("str controls", "tab\tnew\nline\\back", "\x00\x01\x1b[31m\x7f", "x" * 500)
add("str latin-1", "é", "lätin", "\xa0\xad\xff", "\x80\x9f", "ÿ" * 100)
add("str ucs2", "Ω", "кириллица", "日本語", "\u200b\u2028\u202e\ufeff", "a\u0100" * 50, "\uffff", "\u0378")
add("str astral", "\U0001f600", "a\U0001f600b", "\U0010ffff", "\U000e0001", "\U0001d518" * 30)
add("str lone surrogates", "\ud800", "a\udcffb", "\udfff\ud800", "\U0001f600\ud83d", "\ud83d\ude00")
add("str interned", sys.intern("an_interned_name"), "".join(["not", "_", "interned"]))
add("bytes", b"", b"abc", b"\x00\xff'\"", bytes(range(256)), b"'", b'"')
add("bytearray", bytearray(), bytearray(b"abc'\x00\xff"), bytearray(1000))
shifted = bytearray(b"0123456789")
del shifted[:4]
add("bytearray from the front", shifted)


class StrKind(str):
    pass


class IntKind(int):
    pass


class FloatKind(float):
    pass


class BytesKind(bytes):
    pass


class ListKind(list):
    pass


class DictKind(dict):
    pass


class TupleKind(tuple):
    pass


class SetKind(set):
    pass


class FrozenKind(frozenset):
    pass


class DequeKind(collections.deque):
    pass


class OdKind(collections.OrderedDict):
    pass


class DdKind(collections.defaultdict):
    pass


class ByteaKind(bytearray):
    pass


named = DictKind(a=1)
named.attribute = 5
add("subclasses of str", StrKind("text"), StrKind(""), StrKind("日本"), StrKind("lätin"), StrKind("\U0001f600"))
add("subclasses of numbers", IntKind(5), IntKind(-(2**70)), FloatKind(2.5))
add(
    "subclasses of containers",
    BytesKind(b"raw"),
    ListKind([1, 2]),
    named,
    TupleKind((1,)),
    TupleKind(),
    SetKind({1}),
    SetKind(),
    FrozenKind({2}),
    FrozenKind(),
    DequeKind([1], maxlen=3),
    OdKind(a=1),
    DdKind(int, a=2),
    ByteaKind(b"x"),
)

# ---- sequences and their cycles
add("list", [], [1], [None] * 30, list(range(300)), [[], [[]], [[], [1, [2, [3]]]]], ["mixed", 1, 2.0, None, b"x", (1,), {2}])
add("tuple", (), (1,), (1, 2), ((), ((),)), tuple("abc"))
recursive = [1]
recursive.append(recursive)
add("list recursive", recursive)
pair = ([],)
pair[0].append(pair)
add("tuple recursive", pair)
loop = {}
loop["me"] = loop
loop["list"] = [loop]
add("dict recursive", loop)
two, three = [2], [3]
two.append(three)
three.append(two)
add("lists in each other", two, three)
twice = [5]
add("the same twice is no cycle", [twice, twice], {"a": twice, "b": twice})
add("range", range(0), range(5), range(1, 5), range(0, 10, 3), range(10, 0, -1), range(5, 5), range(-(10**30), 10**30, 10**29))
add("slice", slice(None), slice(1), slice(1, 2), slice(1, 2, 3), slice("a", [1], None))
add(
    "array",
    array.array("d", [1.5, -0.0]),
    array.array("b", [-1, 0, 1]),
    array.array("H", range(5)),
    array.array("q"),
    array.array("Q", [2**64 - 1]),
    array.array("f", [0.5]),
    array.array("i", [-5]),
    array.array("l", [7]),
    array.array("u", "wide Ω"),
)

# ---- dicts
add(
    "dict",
    {},
    {1: 2},
    {"a": 1},
    {"a": 1, "b": [1]},
    {i: i * i for i in range(100)},
    {f"k{i}": i for i in range(1000)},
    {(1, "t"): {"inner": {}}},
    {None: None, True: False, 1.5: "x"},
    {"a": 1, 2: "b"},
    {-1: -2, 2**70: 3},
    dict.fromkeys(range(70000)),
)
holes = {f"h{i}": i for i in range(40)}
for i in range(0, 40, 3):
    del holes[f"h{i}"]
add("dict with deletions", holes)
refilled = {i: i for i in range(20)}
for i in range(19):
    del refilled[i]
refilled["last"] = 1
add("dict refilled", refilled)
emptied = {i: i for i in range(200)}
emptied.clear()
add("dict cleared", emptied)
popped = {i: i for i in range(10)}
popped.popitem()
popped.pop(0)
add("dict popped", popped)
turned = {"a": 1, "b": 2}
turned[3] = 4
del turned["a"]
add("dict turned general", turned)


class Plain:
    def __init__(self, n=3):
        self.first = n
        self.second = "two"
        self.third = [n]


class Deleted(Plain):
    def __init__(self):
        super().__init__()
        del self.second
        self.later = "later"


class Unordered:
    """Its instances set their attributes in different orders: values in key order must still be told apart."""


plain, deleted, back, forth = Plain(), Deleted(), Unordered(), Unordered()
back.x, back.y = 1, 2
forth.y, forth.x = 3, 4
many = Unordered()
for i in range(60):
    setattr(many, f"attribute_{i}", i)
seen = Plain(9)
seen.__dict__  # makes the dict real
replaced = Plain(1)
replaced.__dict__ = {"whole": "new"}
grown = Plain(2)
grown.__dict__["more"] = 1
nonstring = Plain(4)
nonstring.__dict__[5] = "five"
add("dict of an instance", plain.__dict__, seen.__dict__, many.__dict__, replaced.__dict__, grown.__dict__, nonstring.__dict__)


fresh = [Plain(i) for i in range(40)]
has("plain", fresh[20], "first", "second", "third")
has("attribute deleted", deleted, "first", "third", "later")
has("order 1", back, "x", "y")
has("order 2", forth, "x", "y")
has("sixty attributes", many, "attribute_0", "attribute_29", "attribute_30", "attribute_59")
has("dict made real", seen, "first", "second", "third")
has("dict replaced", replaced, "whole")
has("dict grown", grown, "first", "more")
has("non-string key", nonstring, "first")


class Slots:
    __slots__ = ("zeta", "alpha", "unset")
    shared = "class value"

    def __init__(self):
        self.zeta, self.alpha = "z", ["a"]


class MoreSlots(Slots):
    __slots__ = ("beta", "__private")

    def __init__(self):
        super().__init__()
        self.beta = {"b": 1}
        self.__private = "hidden"


class SlotsAndDict(MoreSlots):
    def __init__(self):
        super().__init__()
        self.extra = "in the dict"


class WithProperty:
    limit = 10

    def __init__(self):
        self._value = "backing"

    @property
    def value(self):
        return self._value


class Child(WithProperty):
    pass


class WeakSlots:
    __slots__ = ("__weakref__", "__dict__", "slot")

    def __init__(self):
        self.slot, self.free = "s", "f"


class ListWithDict(list):
    __slots__ = ("own",)


class TupleWithDict(tuple):
    pass


class IntWithDict(int):
    pass


has("slots", Slots(), "zeta", "alpha", "shared")
has("slots inherited", MoreSlots(), "zeta", "alpha", "beta", "_MoreSlots__private")
has("slots and dict", SlotsAndDict(), "zeta", "beta", "extra")
has("property and class attribute", WithProperty(), "value", "_value", "limit")
has("inherited class attribute", Child(), "limit", "_value")
has("dict in a slot", WeakSlots(), "slot", "free")
held = ListWithDict([1])
held.own = "x"
has("list with a slot", held, "own")
for obj in (TupleWithDict((1, 2, 3)), TupleWithDict(), IntWithDict(2**100), IntWithDict(0), IntWithDict(-5)):
    obj.tag = "tagged"
    has(f"{type(obj).__name__} {obj!r}", obj, "tag")


def raised(error):
    try:
        raise error
    except BaseException as e:
        e.added = "attribute of an exception"
        return e


class Custom(ValueError):
    pass


for error in (
    ValueError(),
    ValueError("one"),
    KeyError("key", 2),
    OSError(2, "gone", "file"),
    Custom("mine"),
    StopIteration(5),
    UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"),
    SystemExit(3),
    AssertionError([1]),
    SyntaxError("bad", ("f.py", 1, 2, "text")),
):
    has(f"exception {type(error).__name__}", raised(error), "added")

# ---- sets, deques, other containers
add("set", set(), {1}, {5, 3, 1}, set(range(100)), {"only"}, {(1, 2)}, frozenset(), frozenset({1}), frozenset("a"), {None})
thinned = set(range(50))
thinned -= set(range(5, 50))
add("set with deletions", thinned, {-1}, {2**70})
add(
    "deque",
    collections.deque(),
    collections.deque([1]),
    collections.deque(range(200)),
    collections.deque(range(5), maxlen=5),
    collections.deque(maxlen=0),
    collections.deque("abc", 2),
)
wrapped = collections.deque(range(64))
wrapped.rotate(31)
for i in range(300):
    wrapped.append(i)
    wrapped.popleft()
leftward = collections.deque()
for i in range(150):
    leftward.appendleft(i)
add("deque wrapped", wrapped, leftward)
self_deque = collections.deque([1])
self_deque.append(self_deque)
add("deque recursive", self_deque)
od = collections.OrderedDict([("z", 1), ("a", 2), ("m", [3])])
od.move_to_end("z")
od.move_to_end("m", last=False)
od_holes = collections.OrderedDict((i, i) for i in range(20))
for i in range(0, 20, 2):
    del od_holes[i]
od_self = collections.OrderedDict()
od_self["me"] = od_self
add("OrderedDict", od, collections.OrderedDict(), od_holes, od_self)
add("defaultdict", collections.defaultdict(list, a=[1]), collections.defaultdict(None), collections.defaultdict(int))
add("Counter", collections.Counter("abracadabra"), collections.Counter())
add("mappingproxy", types.MappingProxyType({"a": 1}), types.MappingProxyType({}))
add("namespace", types.SimpleNamespace(a=1, b="x"), types.SimpleNamespace())


# ---- code
def function(a, b=2, *args, c, **kwargs):
    """A function."""
    yield a


def closing(captured):
    later = lambda: (captured, unset)  # noqa: E731
    if captured:
        return later, later.__closure__
    unset = 1


async def coroutine():
    pass


async def asyncgen():
    yield 1


class Callers:
    def method(self):
        pass

    @classmethod
    def for_class(cls):
        pass

    @staticmethod
    def plain():
        pass

    def __repr__(self):
        raise RuntimeError("never call me")


add("function", function, lambda: 0, closing, coroutine, Callers.method, Callers.plain)
add("cells", *closing([1])[1])
add("bound methods", plain.__init__, Plain(1).__init__, Callers.for_class, [].append, {}.get, "".join)
add("builtins", len, print, sys.getrefcount, math.sin, dict.fromkeys, object.__new__)
add("descriptors", str.join, int.__add__, (5).__add__, Slots.__dict__["zeta"], types.FunctionType.__dict__["__code__"])
add("modules", sys, json, math, types.ModuleType("made_up"), types.ModuleType("named", "doc"))
add("classes", int, type, Plain, Custom, collections.deque, types.FunctionType, asyncio.Task)
add("generators", function(1, c=2), (i for i in ()))
pending = coroutine()
add("coroutines", pending, asyncgen())
add("code", function.__code__, closing([1])[0].__code__)
add("object", object(), iter([1]), iter(()), enumerate([]), zip(), staticmethod, property())

numpy, arrays = None, []
try:
    import numpy
except ImportError:
    pass
if numpy:
    for kind in "bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split():
        add(f"numpy {kind}", getattr(numpy, kind)(1), getattr(numpy, kind)(0))
    add("numpy floats", numpy.float32(0.1), numpy.float64(0.1), numpy.float16(0.1), numpy.float64("nan"), numpy.float32("inf"))
    add("numpy text", numpy.str_("text"), numpy.bytes_(b"raw"))
    arrays = [
        numpy.arange(5),
        numpy.array([1.5, 2.5]),
        numpy.zeros((2, 3), dtype="int64"),
        numpy.array([True, False]),
        numpy.array([]),
        numpy.array(7),
        numpy.arange(3, dtype="int32"),
        numpy.arange(10)[::2],
        numpy.zeros((2, 0, 3), dtype="float16"),
    ]


# An own __repr__ of Python code cannot be run by a reader: what object.__repr__ says is expected of those.
class Loud(enum.Enum):
    ONE = 1

    def __repr__(self):
        return self.name.lower() + "!"


opaque = [Callers(), [Callers()], {"k": Callers()}, Loud.ONE]

tell(opaque, arrays)
