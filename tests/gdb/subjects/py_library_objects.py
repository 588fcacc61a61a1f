"""Records, enums and objects of the standard library, and what Python says of each; see py_cases."""

import argparse
import calendar
import collections
import concurrent.futures
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import itertools
import logging
import pathlib
import re
import signal
import sys
import threading
import time
import uuid
import weakref

from py_cases import add, has, tell


class Plain:
    def __init__(self, n=3):
        self.first = n


class Color(enum.Enum):
    RED = 1
    BLUE = "blue"


class Number(enum.IntEnum):
    ONE = 1


class Bits(enum.IntFlag):
    A = 1
    B = 2


class Marks(enum.Flag):
    X = 1
    Y = 2


@dataclasses.dataclass
class Point:
    x: int
    y: list = dataclasses.field(default_factory=list)
    secret: str = dataclasses.field(default="s", repr=False)


@dataclasses.dataclass(frozen=True)
class Frozen:
    name: str
    inner: object = None


@dataclasses.dataclass
class Derived(Point):
    z: float = 0.5


@dataclasses.dataclass
class Node:
    next: object = None


class Outer:
    @dataclasses.dataclass
    class Inner:
        a: int = 1


@dataclasses.dataclass
class SlotData:
    __slots__ = ("a", "b")
    a: int
    b: str


Named = collections.namedtuple("Named", "a b")


class NamedMore(Named):
    pass


ring = Node()
ring.next = Node(ring)
add("enum", Color.RED, Color.BLUE, Number.ONE, Bits.A, Marks.X)
add("signals", signal.SIGTERM)
if sys.version_info >= (3, 11):  # before, each such class has a __repr__ of its own
    add("members made names of their module", re.I, re.I | re.M, re.RegexFlag(0), calendar.MONDAY)
add("flags combined", Bits(0), Bits.A | Bits.B, Marks.X | Marks.Y, Marks(0))
add(
    "dataclass",
    Point(1),
    Point(1, [2]),
    Frozen("n", Frozen("m")),
    Derived(1, z=2.5),
    Node(),
    ring,
    Outer.Inner(),
    SlotData(1, "b"),
)
if sys.version_info >= (3, 10):
    made = dataclasses.make_dataclass("Slotted", [("a", int), ("b", list)], slots=True)
    add("dataclass with slots", made(1, [2]))
add("namedtuple", Named(1, [2]), Named("x", Named(1, 2)), NamedMore(3, 4))
add("struct sequence", sys.version_info[:3], sys.flags, time.gmtime(0))


add("classes of enums", Color, Bits, Marks, Number, Outer.Inner, Named)


class Wide(enum.Flag):
    ONE = 1
    TWO = 2
    FOUR = 4
    SIX = 6
    NONE = 0


class Word(str, enum.Enum):
    HIGH = "high"


add("flags of many names", *(Wide(n) for n in range(8)), Word.HIGH)
add("flags of int", *(Bits(n) for n in range(4)))


# ---- paths, numbers, times
class Folder(type(pathlib.Path())):
    pass


paths = ["", ".", "a", "a/b", "/", "/a//b/", "a/../b", "//net/x", "é/日本", "with 'quote'"]
add("path", *(pathlib.Path(p) for p in paths), *(pathlib.PurePosixPath(p) for p in paths), pathlib.Path("a", "b", "/c", "d"))
add("windows path", *(pathlib.PureWindowsPath(p) for p in ("c:/a", "c:a", "//host/share/x", "a\\b")), Folder("x/y"))
joined, shown = pathlib.Path("/base") / "sub" / "file.txt", pathlib.Path("shown")
str(shown), shown.parts, shown.name
add("path joined", joined, joined.parent, joined.with_suffix(".gz"), shown)
decimal.getcontext().prec = 100
add(
    "Decimal",
    *(
        decimal.Decimal(t)
        for t in "0 -0 1 -1.50 1E+30 1E-30 123456789012345678901234567890.5 Infinity -Infinity NaN -NaN".split()
    ),
)
add("Decimal more", *(decimal.Decimal(t) for t in ("sNaN", "NaN123", "0E-10", "1e500", "9" * 57)), decimal.Decimal(2) ** 300)
add("Decimal found", decimal.Decimal(1) / 3, decimal.Decimal(2).sqrt(), decimal.Decimal(10) ** 19, decimal.Decimal(10) ** 38)
add("Fraction", fractions.Fraction(1, 3), fractions.Fraction(-7), fractions.Fraction(2**80, 3**50))
add("UUID", uuid.UUID(int=0), uuid.UUID("12345678-1234-5678-1234-567812345678"), uuid.UUID(int=2**128 - 1))


class Day(datetime.date):
    pass


class Moment(datetime.datetime):
    pass


class East(datetime.tzinfo):
    def utcoffset(self, when):
        return datetime.timedelta(hours=1)


utc, zone = datetime.timezone.utc, datetime.timezone(datetime.timedelta(hours=-5, minutes=30))
named_zone = datetime.timezone(datetime.timedelta(hours=2), "MESZ")
D = datetime.datetime
add("date", datetime.date(2026, 11, 22), datetime.date.min, datetime.date.max, Day(2000, 2, 29))
add("datetime", D(2026, 1, 2), D(2026, 1, 2, 3, 4, 5), D(2026, 1, 2, 3, 4, 5, 6), D(2026, 1, 2, 0, 0, 0, 7), D.min, D.max)
add("datetime with zone", D(2026, 1, 2, tzinfo=utc), D(2026, 1, 2, 3, fold=1, tzinfo=zone), Moment(2026, 5, 6, tzinfo=named_zone))
add("datetime with a class's zone", D(2026, 1, 2, tzinfo=East()))
add(
    "time",
    datetime.time(),
    datetime.time(1, 2),
    datetime.time(1, 2, 3),
    datetime.time(1, 2, 3, 4),
    datetime.time(5, fold=1, tzinfo=utc),
)
add("timedelta", *(datetime.timedelta(*a) for a in ((), (1,), (-1,), (0, 5), (0, 0, 7), (3, 4, 5), (-3, 4, 5), (999999999,))))
add("timezone", utc, zone, named_zone, datetime.timezone(datetime.timedelta(0), "Z"), datetime.timezone(datetime.timedelta(0)))
has(
    "attributes of a date",
    D(2026, 1, 2, 3, 4, 5, 6, tzinfo=zone),
    "year",
    "month",
    "day",
    "hour",
    "second",
    "microsecond",
    "tzinfo",
)
has("attributes of a timedelta", datetime.timedelta(3, 4, 5), "days", "seconds", "microseconds")
has("attributes of a path", pathlib.PurePosixPath("/a/b.c"), "name", "suffix", "stem", "parts", "parent", "root")
has("attributes of a fraction", fractions.Fraction(3, 4), "numerator", "denominator")
has("attributes of a uuid", uuid.UUID(int=5), "int", "hex", "version")


# ---- views, iterators, callables
class Counting(itertools.count):
    pass


class Part(functools.partial):
    pass


ordered = collections.OrderedDict(a=1, b=2, c=3)
ordered.move_to_end("a")
table = {"a": 1, (1, 2): [None]}
add("dict views", table.keys(), table.values(), table.items(), {}.keys(), {}.items())
add("OrderedDict views", ordered.keys(), ordered.values(), ordered.items())
used = itertools.count(5)
next(used)
add("count", itertools.count(), used, itertools.count(2, 3), itertools.count(0.5), itertools.count(2**70), itertools.count(1, -1))
add(
    "count more",
    itertools.count(2**63 - 2),
    itertools.count(1, 2**70),
    Counting(3),
    itertools.repeat("x"),
    itertools.repeat([1], 4),
)
add("partial", functools.partial(print, 1, sep=""), functools.partial(int), functools.partial(Plain, n=[2]), Part(int, "5"))
one, dead_target, plain = Plain(), Plain(), Plain(1)


def function():
    pass


class Named2:
    __name__ = "spoken"


spoken = Named2()
dead = weakref.ref(dead_target)
del dead_target
add("weakref", weakref.ref(plain), weakref.ref(Plain), weakref.ref(function), weakref.ref({1}), dead, weakref.ref(spoken))
view = memoryview(bytearray(b"xyz"))
released = memoryview(b"abc")
released.release()
add("memoryview", view, view[1:], released)
held, reentrant, twice = threading.Lock(), threading.RLock(), threading.RLock()
held.acquire()
twice.acquire()
twice.acquire()
add("lock", threading.Lock(), held, reentrant, twice)
add("descriptors of classes", function.__get__(plain), Plain.__init__, plain.__init__, plain.__init_subclass__, str.maketrans)
add("staticmethod", staticmethod(function), classmethod(function), property(function).fget)


# ---- addresses, wrappers, expressions, getters, loggers, threads
class Settings(collections.UserDict):
    pass


add("UserDict", collections.UserDict(a=1, b=[2]), collections.UserDict(), Settings({1: "x"}))
add("UserList", collections.UserList([1, "b"]), collections.UserList(), collections.UserString("text"))
patterns = [re.compile(p, f) for p, f in (("a+", 0), ("a.b", re.I), (r"\d", re.I | re.M | re.S | re.X), ("x", re.A), ("'", 0))]
add("pattern", *patterns, re.compile(b"ab"), re.compile(b"x", re.L | re.I), re.compile("y", re.U), re.compile("z" * 300))
searched = "one two 33 é"
add("match", re.search("t(w)o", searched), re.match("", searched), re.search(b"b+", b"abbb"), re.search("é", searched))
logging.addLevelName(35, "NOTICE")
loud, odd, quiet = logging.getLogger("a.loud"), logging.getLogger("a.odd"), logging.getLogger("a.loud.quiet")
loud.setLevel(35), odd.setLevel(7)
add("logger", loud, odd, quiet, logging.getLogger(), logging.LoggerAdapter(loud, {}))
add("handler", logging.NullHandler(), logging.Handler(30), logging.FileHandler("/tmp/never.log", delay=True))
add("arguments", argparse.Namespace(), argparse.Namespace(model="m", tp=2, names=["a"]))


class Worker(threading.Thread):
    pass


stay, gone = Worker(target=time.sleep, args=(3600,), name="stays", daemon=True), threading.Thread(target=int, name="gone")
stay.start(), gone.start(), gone.join()
add("thread", threading.Thread(name="new"), stay, gone, threading.main_thread())
raised, returned, cancelled = (concurrent.futures.Future() for _ in range(3))
raised.set_exception(KeyError("k")), returned.set_result([1]), cancelled.cancel()
add("future", concurrent.futures.Future(), raised, returned, cancelled)
happened = threading.Event()
happened.set()
add("event", threading.Event(), happened, threading.Condition(), threading.Condition(threading.Lock()))
add("semaphore", threading.Semaphore(3), threading.BoundedSemaphore(2))

tell()
