"""Objects whose memory was overwritten with nonsense: `objects` are [label, address]. Nothing of them is used again. With the
argument `moving`, threads change objects all the time instead; the objects stay alive and are of the kinds said."""

import collections
import ctypes
import datetime
import decimal
import enum
import fractions
import functools
import gc
import itertools
import json
import pathlib
import sys
import threading
import time
import uuid
import weakref

broken, keep = [], []
WORD = 8
HEADER = object.__basicsize__
BAD = (0, 1, 0xBAD, 0x7F7F7F7F7F7F7F7F, 0xFFFFFFFFFFFFFFFF, 1 << 62)


class Plain:
    def __init__(self):
        self.a, self.b = [1], "b"


class Slots:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a, self.b = 1, 2


def text(kind):
    return {1: "latin é", 2: "Ω text", 4: "\U0001f600 text"}[kind] + str(len(keep))


MAKERS = {
    "list": lambda: [1, [2], "three"],
    "tuple": lambda: tuple([1, "two", (3,)]),
    "dict": lambda: {"a": 1, "b": [2]},
    "dict of ints": lambda: {i: i for i in range(20)},
    "set": lambda: {1, "two", (3,)},
    "deque": lambda: collections.deque(range(100)),
    "int": lambda: 10**50 + len(keep),
    "float": lambda: len(keep) + 0.5,
    "str 1": lambda: text(1),
    "str 2": lambda: text(2),
    "str 4": lambda: text(4),
    "ascii": lambda: "plain" + str(len(keep)),
    "bytes": lambda: b"raw%d" % len(keep),
    "bytearray": lambda: bytearray(b"growing"),
    "instance": Plain,
    "slots": Slots,
    "function": lambda: lambda a, b=1: a,
    "method": lambda: Plain().__init__,
    "exception": lambda: ValueError("text", 1),
    "range": lambda: range(10**20),
    "slice": lambda: slice(1, 2),
    "generator": lambda: (i for i in ()),
    "ordered": lambda: collections.OrderedDict(a=1, b=2),
    "default": lambda: collections.defaultdict(list, a=1),
    "class": lambda: type("Made", (Plain,), {"x": 1}),
    "cell": lambda: (lambda x: lambda: x)(5).__closure__[0],
    "complex": lambda: complex(len(keep), 1),
    "path": lambda: pathlib.Path("a", str(len(keep))),
    "Decimal": lambda: decimal.Decimal(f"{len(keep)}.5"),
    "Fraction": lambda: fractions.Fraction(1, len(keep) + 2),
    "UUID": lambda: uuid.UUID(int=len(keep)),
    "datetime": lambda: datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc),
    "time": lambda: datetime.time(1, 2, 3, 4),
    "timedelta": lambda: datetime.timedelta(len(keep)),
    "timezone": lambda: datetime.timezone(datetime.timedelta(hours=1), "name"),
    "view": lambda: {"a": len(keep)}.items(),
    "count": lambda: itertools.count(2, 3),
    "partial": lambda: functools.partial(int, "5", base=10),
    "memoryview": lambda: memoryview(b"abc"),
    "lock": threading.RLock,
    "flag": lambda: enum.Flag("Made", "A B")(3),
    "descriptor": lambda: Slots.__dict__["a"],
    "weakref": lambda: weakref.ref(Plain),
}


def poke(address, value):
    ctypes.c_uint64.from_address(address).value = value


def trash():
    for label, make in MAKERS.items():
        for word in range(1, 12):  # from the type on; the count of references stays
            for bad in BAD:
                obj = make()
                inline = isinstance(obj, (tuple, int, str, bytes))  # these hold their items in themselves
                size = sys.getsizeof(obj) - 16 * isinstance(obj, tuple) if inline else type(obj).__basicsize__
                if word * WORD + WORD > size:
                    break
                keep.append(obj)
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(obj))
                broken.append([f"{label} word {word} = {bad:#x}", id(obj)])
    for label, address in broken:
        where, _, value = label.rpartition(" = ")
        poke(address + int(where.rpartition(" ")[2]) * WORD, int(value, 16))
    # What lies behind a pointer.
    behind = {"dict keys": ("dict", 16), "list items": ("list", 8), "deque blocks": ("deque", 8), "set table": ("set", 24)}
    for label, (kind, at) in behind.items():
        for word in range(3 if label == "list items" else 6):
            for bad in BAD:
                obj = MAKERS[kind]()
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(obj))
                keep.append(obj)
                inner = ctypes.c_uint64.from_address(id(obj) + HEADER + at).value
                broken.append([f"{label} +{word} = {bad:#x}", id(obj)])
                poke(inner + word * WORD, bad)


def self_references():
    """A list that claims to hold itself a million times, a type that is its own base, an object that is its own type."""
    obj = [None] * 1000
    for i in range(1000):
        poke(ctypes.c_uint64.from_address(id(obj) + HEADER + 8).value + i * WORD, id(obj))
    broken.append(["list of itself", id(obj)])
    own = Plain()
    poke(id(own) + 8, id(own))
    broken.append(["its own type", id(own)])
    deep = last = []
    for _ in range(100000):
        last.append([])
        last = last[0]
    broken.append(["nested 100000 deep", id(deep)])
    keep.extend([obj, own, deep])


def moving():
    shared = {"list": [0] * 50, "dict": {}, "deque": collections.deque(range(100)), "set": set(), "instance": Plain()}

    def change(n):
        i = 0
        while True:
            i += 1
            shared["list"][:] = list(range(i % 2000))
            shared["dict"][f"key{i % 700}"] = [i]
            if i % 500 == 0:
                shared["dict"].clear()
            shared["deque"].append(i)
            shared["deque"].popleft()
            shared["set"].add(i)
            if len(shared["set"]) > 900:
                shared["set"].clear()
            setattr(shared["instance"], f"x{i % 40}", i)
            if i % 40 == 39:
                shared["instance"].__dict__.clear()
            recurse(i % 60)

    def recurse(n):
        text = "t" * n
        return recurse(n - 1) if n else text

    for n in range(2):
        threading.Thread(target=change, args=(n,), daemon=True).start()
    keep.append(shared)
    broken.extend([label, id(obj)] for label, obj in shared.items())


gc.disable()
if "moving" in sys.argv:
    moving()
else:
    trash()
    self_references()
sys.stdout.write(json.dumps({"version": list(sys.version_info[:3]), "objects": broken}) + "\n")
sys.stdout.flush()
time.sleep(3600)
