"""Python values read out of this very process's memory through /proc, against what Python itself says of them."""

import array
import collections
import dataclasses
import enum
import mmap
import os
import shutil
import sys
import types
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gdbext.access.proc import ProcTarget
from gdbext.cpython.expressions import evaluate, parsed
from gdbext.cpython.reprs import FULL, Limits, Repr
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import GdbextError, NotFoundError

pytestmark = pytest.mark.own_interpreter

if sys.version_info < (3, 9):
    pytest.skip("the process that is read is this one, and CPython 3.9 is the oldest that is read", allow_module_level=True)
ROUNDS = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def target():
    return ProcTarget(os.getpid())


def runtime(target):
    target.invalidate()
    return open_runtime(target)


def shown(target, value, limits=FULL):
    return Repr(limits)(runtime(target).object(id(value)))


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**4000), 2**4000)
    | st.floats()
    | st.text()
    | st.binary()
    | st.complex_numbers()
)
surrogates = st.text(st.characters(categories=["Cs", "L", "So"]))  # lone surrogates among them
keys = st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.floats(allow_nan=False)
values = st.recursive(
    scalars | surrogates,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.tuples(inner)
        | st.dictionaries(keys, inner)
        | st.sets(keys)
        | st.frozensets(keys)
        | st.lists(inner).map(collections.deque)
        | st.dictionaries(keys, inner).map(collections.OrderedDict)
        | st.binary().map(bytearray)
    ),
    max_leaves=30,
)


@ROUNDS
@given(value=values)
def test_repr_is_what_python_prints(target, value):
    assert shown(target, value) == repr(value)


@ROUNDS
@given(value=scalars)
def test_plain_values_come_back(target, value):
    got = runtime(target).object(id(value))
    if not isinstance(value, complex):
        plain = got.plain()
        assert type(plain) is type(value) and (plain == value or value != value)


@ROUNDS
@given(pairs=st.lists(st.tuples(keys, st.integers())), gone=st.data())
def test_dicts_after_deletions(target, pairs, gone):
    d = dict(pairs)
    for key in list(d):
        if gone.draw(st.booleans()):
            del d[key]
    for key, value in pairs[::2]:
        d[key] = value
    assert shown(target, d) == repr(d)
    got = runtime(target).object(id(d))
    for key, value in d.items():
        assert got.item(key).plain() == value


class Text(str):
    pass


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, types.MappingProxyType])
def test_an_entry_is_found_by_what_equals_its_key(target, kind):
    long = "k" * 5000
    held = kind({"a": 1, b"a": 2, Text("b"): 3, 97: 4, ("a",): 5, long: 6, "\xe4": 7, "": 8, None: 9, "c": 10})
    got = runtime(target).object(id(held))
    for key, value in held.items():
        assert got.item(key).plain() == value
    assert got.item("b").plain() == 3
    for key in ("d", long[1:], long + "k", long[:4096], b"c", 98, ("b",)):
        with pytest.raises(NotFoundError):
            got.item(key)


@ROUNDS
@given(left=st.integers(0, 300), right=st.integers(0, 300), size=st.integers(0, 400), longest=st.none() | st.integers(0, 50))
def test_deques_that_have_moved(target, left, right, size, longest):
    d = collections.deque(range(size), longest)
    d.extend(range(right))
    for _ in range(min(left, len(d))):
        d.popleft()
    d.extendleft(range(left))
    assert shown(target, d) == repr(d)
    got = runtime(target).object(id(d))
    assert got.len() == len(d) and [o.plain() for o in got.elements()] == list(d)


@dataclasses.dataclass
class Point:
    x: int = 1
    y: str = "two"
    hidden: int = dataclasses.field(default=3, repr=False)
    inner: object = None


class Color(enum.Enum):
    RED = 1
    BLUE = "blue"


Pair = collections.namedtuple("Pair", "left right")


class Base:
    __slots__ = ("zeta", "alpha")


class Slotted(Base):
    __slots__ = ("beta", "_hidden", "unset")

    def __init__(self):
        self.zeta, self.alpha, self.beta, self._hidden = 26, [1], None, "behind"

    @property
    def hidden(self):
        return self._hidden

    @property
    def computed(self):
        return 1 / 0


class Plain:
    shared = "of the class"

    def __init__(self, n):
        self.n, self.me = n, self
        self._backing = {"k": (n,)}

    @property
    def backing(self):
        return self._backing

    def method(self):
        return self.n


class OwnRepr:
    def __repr__(self):
        return "never run"


recursive = [1]
recursive.append(recursive)
looped = {}
looped["self"] = looped

KNOWN = [
    Point(inner=Point(5)),
    Point(inner=[Point()]),
    Color.RED,
    Color.BLUE,
    [Color.RED],
    Pair(1, Pair(2, "x")),
    recursive,
    looped,
    Plain,
    Point,
    int,
    collections.OrderedDict,
    Ellipsis,
    NotImplemented,
    range(3),
    range(1, 10, 3),
    slice(1, None, 2),
    array.array("i", [1, -2]),
    array.array("d", [1.5]),
    array.array("b"),
    collections.defaultdict(list, a=[1]),
    collections.defaultdict(None, {1: 2}),
    collections.Counter("abca"),
    types.MappingProxyType({"a": 1}),
    ValueError("x", 1),
    KeyError("k"),
    OSError(2, "no"),
    len,
    os.path.join,
    [].append,
    os,
    types.SimpleNamespace(a=1),
    Slotted(),
    Plain(3),
    b"\x00\xff",
    "\ud800",
    "\x1b[31m",
    "é",
    "漢字",
    "😀",
    10**5000 // 7**3000,
    -0.0,
    float("inf"),
    1e-320,
    (),
    frozenset(),
    set(),
    {1.5: None},
    Plain(1).method,
    (x for x in ()),
    compile("1", "<f>", "eval"),
]


@pytest.mark.parametrize("value", KNOWN, ids=lambda v: type(v).__name__)
def test_known_types_print_as_python_prints_them(target, value):
    if isinstance(value, OSError):
        pytest.skip("OSError's repr depends on errno: shown by its args")
    assert shown(target, value) == repr(value)


def test_a_repr_of_python_code_is_not_run_and_said(target):
    value, printer = OwnRepr(), Repr()
    text = printer(runtime(target).object(id(value)))
    assert text == object.__repr__(value) and printer.opaque


def test_attributes(target):
    plain, slotted = Plain(7), Slotted()
    rt = runtime(target)
    p, s = rt.object(id(plain)), rt.object(id(slotted))
    assert p.attr("n").plain() == 7 and p.attr("me").address == id(plain) and p.attr("shared").plain() == "of the class"
    assert p.attr("backing").address == id(plain._backing)
    assert {n for n, _ in p.fields()} == {"n", "me", "_backing"}
    assert s.attr("zeta").plain() == 26 and s.attr("alpha").address == id(slotted.alpha) and s.attr("hidden").plain() == "behind"
    assert {n for n, _ in s.fields()} == {"zeta", "alpha", "beta", "_hidden"}
    with pytest.raises(NotFoundError, match="not set"):
        s.attr("unset")
    with pytest.raises(NotFoundError, match="did you mean zeta"):
        s.attr("zetta")
    with pytest.raises(GdbextError, match="property"):
        s.attr("computed")


def test_bounds_hold_and_are_said(target):
    long = [list(range(1000))] * 3
    printer = Repr(Limits(items=5, string=10, depth=2, total=200))
    text = printer(runtime(target).object(id(long)))
    assert text == "[[0, 1, 2, 3, 4, ...], [0, 1, 2, 3, 4, ...], [0, 1, 2, 3, 4, ...]]" and printer.truncated
    printer = Repr(Limits(items=5, string=10, depth=2, total=200))
    word = "abcdefghijklmnop"
    assert printer(runtime(target).object(id(word))) == "'abcdefghij'..." and printer.truncated


class FakeFrame:
    """A FAKE frame: names from a dict, for expressions without a stopped process."""

    level, line, function = 0, 1, "fake"

    def __init__(self, rt, names):
        self.rt, self.stack = rt, [self]
        self._names = [(n, rt.object(id(v))) for n, v in names.items()]

    def locals(self):
        return self._names

    def globals(self):
        return self.rt.module("builtins")

    builtins = globals


SAMPLE = {
    "p": Plain(5),
    "d": {"k": [1, 2, {"z": 9}], 3: "three", (1, 2): "pair", None: 0},
    "xs": [10, 20, 30, 40],
    "text": "héllo",
    "t": (1, "a", 2.5),
    "s": Slotted(),
    "big": 10**30,
    "flag": True,
    "empty": [],
    "none": None,
    "color": Color.RED,
    "pair": Pair(1, 2),
    "points": [Point(i, str(i)) for i in range(6)],
    "deque": collections.deque([5, 6]),
    "sets": {1, 2, 3},
    "nums": array.array("q", range(-3, 50)),
}

EXPRESSIONS = [
    "p.n",
    "p.me.me.n + 1",
    "d['k'][-1]['z']",
    'd["k"][0]',
    "d[3]",
    "d[(1, 2)]",
    "d[None]",
    "xs[2]",
    "xs[-1]",
    "xs[1:3]",
    "xs[::-1]",
    "len(xs)",
    "len(text)",
    "text[1]",
    "text[1:]",
    "t",
    "t[1]",
    "s.zeta == 26",
    "big + 1",
    "big > 5 and flag",
    "not empty",
    "none is None",
    "xs is not None",
    "10 in xs",
    "11 not in xs",
    "'k' in d",
    "'h' in text",
    "any(x.x == 3 for x in points)",
    "all(x.x < 6 for x in points)",
    "[x.y for x in points if x.x % 2]",
    "any(q.x == 2 and q.y == '2' for q in points)",
    "xs == [10, 20, 30, 40]",
    "(1, 'a')",
    "-p.n",
    "p.n if flag else 0",
    "pair.left",
    "pair == (1, 2)",
    "deque[1]",
    "2 in sets",
    "max(xs)",
    "min(xs)",
    "sum(xs)",
    "1 < p.n <= 5",
    "p.n / 2",
    "p.n // 2",
    "p.n ** 2",
    "p.n % 3",
    "p.n & 4 | 1",
    "~p.n",
    "d == d",
    "len(d['k']) == 3 or missing",
    "empty or xs[0]",
    "'a' + 'b'",
    "points[0].y",
    "[(a, b) for a, b in [(1, 2), (3, 4)]]",
    "any(k == 3 for k in d)",
    "p.shared",
    "flag is True",
    "len(nums) == 53 and nums[0] == -3",
    "nums[-1]",
    "nums[1:4][2]",
    "nums[::-20][1]",
    "41 in nums",
    "sum(nums)",
    "any(n > 48 for n in nums)",
]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions_give_what_python_gives(target, text):
    rt = runtime(target)
    got = evaluate(rt, text, FakeFrame(rt, SAMPLE))
    assert Repr(FULL)(got) == repr(eval(text, {**SAMPLE, "missing": None}))


REFUSED = {
    "p.method()": "would run code",
    "zork": "no name zork",
    "p.zork": "no attribute zork",
    "d['nope']": "no key",
    "xs[9]": "outside",
    "xs[": "cannot parse",
    "": "no expression",
    "lambda: 1": "Lambda",
    "f'{p}'": "JoinedStr",
    "p + 1": "no plain value",
    "len(p)": "no length",
    "1/0": "ZeroDivision",
    "__import__('os')": "would run code",
    "9**999999": "too large",
    "'a'*10**9": "only numbers",
    "nosuch.module:x": "no module nosuch.module",
    "os:nosuch": "no global nosuch",
    "0x1000000": "cannot read",
    "$py": "holds nothing",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_answered_is_refused_in_one_line(target, text):
    rt = runtime(target)
    with pytest.raises(GdbextError, match=REFUSED[text]) as failure:
        evaluate(rt, text, FakeFrame(rt, SAMPLE))
    assert "\n" not in str(failure.value)


def test_addresses_modules_and_the_last_result(target):
    rt = runtime(target)
    value = [1, 2]
    assert evaluate(rt, hex(id(value))).address == id(value)
    assert evaluate(rt, f"{id(value):#x}[1]").plain() == 2
    assert evaluate(rt, "os:sep").plain() == os.sep and evaluate(rt, "os.path:sep").plain() == os.sep
    assert evaluate(rt, "$py[0]", last=rt.object(id(value))).plain() == 1
    assert evaluate(rt, "0x10 + 1") == 17


def test_a_library_mapped_to_be_read_is_not_the_one_that_runs(target, tmp_path):
    copy = tmp_path / "libpython3.0.so"
    shutil.copy(runtime(target).library.file, copy)
    with open(copy, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ):
        assert runtime(target).library.path != str(copy)
        assert shown(target, [1, "two"]) == "[1, 'two']"


def test_code_that_python_warns_of_prints_no_warning():
    """Found by fuzzing: a line about <unknown>:1 on the terminal."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parsed("1if x else 2") is not None
