"""A subject for damage: a few threads with short stacks whose variables hold one of every kind that the readers follow."""

import array
import collections
import dataclasses
import enum
import json
import sys
import threading
import time


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Data:
    name: str
    inner: object = None


class Slots:
    __slots__ = ("one", "two")

    def __init__(self):
        self.one, self.two = [1, 2], "zwei"


class Plain:
    def __init__(self, depth=3):
        self.depth, self.more = depth, Plain(depth - 1) if depth else None


Point = collections.namedtuple("Point", "x y")
reached = threading.Barrier(4)


def kinds():
    loop = [1]
    loop.append(loop)
    return {
        "int": 10**60,
        "text": "ünï ☃",
        "bytes": b"raw\0",
        "float": 1.5,
        "tuple": (1, (2, None)),
        "set": {1, 2, 3},
        "loop": loop,
        "deque": collections.deque([1, 2], maxlen=9),
        "od": collections.OrderedDict(a=1, b=2),
        "dd": collections.defaultdict(list, k=[1]),
        "counter": collections.Counter("aab"),
        "point": Point(1, "y"),
        "enum": Colour.RED,
        "data": Data("d", Data("e")),
        "slots": Slots(),
        "plain": Plain(),
        "array": array.array("d", [1.0, 2.0]),
        "range": range(3, 9),
        "function": kinds,
        "type": Plain,
        "module": json,
        "exception": ValueError("one", 2),
        "complex": 1j,
        "slice": slice(1, None),
        "bytearray": bytearray(b"xyz"),
        "bool": True,
    }


def generator(held):
    yield wait(held)


def wait(held, key=None):
    try:
        raise KeyError("handled")
    except KeyError as error:
        why = error
        if reached.wait() == 0:
            print(json.dumps({"held": id(held)}), flush=True)
        time.sleep(3600)
        return why, key


def work(depth):
    held, cell = kinds(), Plain(1)

    def inner():
        names = list(held)
        return sorted([0], key=lambda _: (next(generator(held)), cell, names))

    return work(depth - 1) if depth else inner()


for depth in range(3):
    threading.Thread(target=work, args=(depth,), daemon=True).start()
sys.exit(work(2))
