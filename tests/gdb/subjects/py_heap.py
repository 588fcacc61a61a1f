"""A heap of every kind of object, made by a seed, partly frozen; a copy of the process (fork) counts what the collector knows."""

import array
import asyncio
import collections
import decimal
import enum
import gc
import json
import os
import random
import sys
import types
import weakref

for name in sys.argv[2:]:
    __import__(name)


class Plain:
    pass


class Few:
    def __init__(self, x):
        self.x = x


class Slotted:
    __slots__ = ("a", "b", "__weakref__")


class Sub(list):
    pass


class Text(str):
    pass


class Number(int):
    pass


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Meta(type):
    pass


class Table(dict):
    pass


Pair = collections.namedtuple("Pair", "left right")
rng = random.Random(int(sys.argv[1]))


def instance(cls, count):
    made = cls()
    for i in range(count):
        setattr(made, f"attribute{i}", i * 1.5)
    return made


def slotted(value):
    made = Slotted()
    made.a = value
    return made


def closure(value):
    def inner():
        return value

    return inner


def generator(value):
    yield value


async def coroutine(value):
    await asyncio.sleep(value)


def failed(value):
    here = [value]
    try:
        raise KeyError(here)
    except KeyError as e:
        return e


def grown(kind, count):
    made = kind()
    for i in range(count):
        made.append(i + 1000.25)
    return made


def tables(count):
    made = {i: i for i in range(count)}
    for i in range(0, count, 3):
        del made[i]
    return made


MAKERS = [
    lambda n: grown(list, n),
    lambda n: grown(Sub, n),
    lambda n: grown(collections.deque, n),
    lambda n: tuple(range(1000, 1000 + n)),
    lambda n: tuple([object()] * n),
    lambda n: {f"key{i}": [] for i in range(n)},
    lambda n: {(i, "x"): i for i in range(n)},
    tables,
    lambda n: Table(a=n, b=[n]),
    lambda n: set(range(n)),
    lambda n: frozenset(map(str, range(n))),
    lambda n: collections.OrderedDict((str(i), i) for i in range(n)),
    lambda n: collections.defaultdict(list, {i: [i] for i in range(n)}),
    lambda n: collections.Counter("a" * n),
    lambda n: instance(Plain, n % 50),
    lambda n: Few(n),
    lambda n: slotted([n]),
    lambda n: Text("t" * n),
    lambda n: Number(1 << n),
    lambda n: Pair(n, [n]),
    lambda n: closure([n]),
    lambda n: generator(n),
    lambda n: [coroutine(n)],
    lambda n: type("Made", (Plain,), {"x": [n]}),
    lambda n: Meta("Made2", (), {}),
    lambda n: types.SimpleNamespace(a=n),
    lambda n: [array.array("i", range(n)), bytearray(n), bytes(n), memoryview(bytearray(n))],
    lambda n: ["é" * n, "€" * n, "\U0001f600" * n, "a" * n, 1 << (40 * n), -n, n + 0.5, complex(n, 1)],
    lambda n: decimal.Decimal(n),
    lambda n: ValueError([n]),
    failed,
    lambda n: weakref.ref(Plain.__dict__["__weakref__"].__objclass__),
    lambda n: [range(n), slice(n, n), iter([n]), iter({n: n}), {n: n}.keys(), types.MethodType(closure(n), n)],
]
keep = []
ballast = []
for _ in range(400):
    made = rng.choice(MAKERS)(rng.choice((0, 1, 2, 5, 6, 11, 30, 63, 64, 65, 200, 1000)))
    (keep if rng.random() < 0.7 else rng.choice([keep, ballast])).append(made)
numpy = sys.modules.get("numpy")
if numpy is not None:
    keep += [numpy.arange(n, dtype=d).reshape(1, n)[:, ::1] for n in (0, 3, 700) for d in ("f4", "i8", "c16")]
    keep += [numpy.zeros((n, 3, 2)) for n in (0, 1, 50)] + [numpy.zeros(())]
torch = sys.modules.get("torch")
if torch is not None:
    keep += [torch.zeros(n, 2) for n in (0, 3, 700)] + [torch.nn.Linear(3, 4)]
gc.collect()
gc.freeze()
old = [[i] for i in range(500)]
gc.collect()
young = [Few([i]) for i in range(100)]
gc.disable()
sizes, counts, key, value, o = {}, {}, None, None, None  # everything that the copy fills is there before it begins


def name(t):
    module = t.__module__
    return t.__qualname__ if module == "builtins" else f"{module}.{t.__qualname__}"


def tally(objects):
    counts, sizes, names = {}, {}, {}
    for o in objects:
        t = type(o)
        if t not in names:
            names[t] = name(t)
        counts[names[t]] = counts.get(names[t], 0) + 1
        sizes[names[t]] = sizes.get(names[t], 0) + sys.getsizeof(o)
    return counts, sizes


def held(objects):
    """What tracked objects hold and the collector does not track, directly or by such."""
    known = {id(o) for o in objects}
    found, queue = [], list(objects)
    while queue:
        for o in gc.get_referents(queue.pop()):
            if id(o) not in known:
                known.add(id(o))
                found.append(o)
                queue.append(o)
    return found


sys.stdout.flush()
if os.fork() == 0:
    o = gc.get_objects
    print(json.dumps({"generations": [len(o(0)), len(o(1)), len(o(2)), gc.get_freeze_count()]}), flush=True)
    os._exit(0)
os.wait()
if os.fork() == 0:
    gc.unfreeze()
    o = gc.get_objects()
    counts, sizes = tally(o)
    said = {
        "counts": counts,
        "sizes": sizes,
        "held": tally(held(o)),
        "arrays": [(id(o), sys.getsizeof(o)) for o in keep if type(o).__module__ == "numpy"],
        "thresholds": gc.get_threshold(),
        "stats": gc.get_stats(),
        "lists": {name: (id(o), len(o)) for name, o in (("keep", keep), ("old", old), ("young", young))},
    }
    print(json.dumps(said), flush=True)
    os._exit(0)
os.read(0, 1)
