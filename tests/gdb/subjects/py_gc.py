"""Containers of every kind, some put away by gc.freeze(); says their addresses and which path leads to each."""

import collections
import gc
import json
import sys


class Thing:
    pass


class Slotted:
    __slots__ = ("inner", "__weakref__")


Pair = collections.namedtuple("Pair", "left right")
frozen = [Thing() for _ in range(300)]
gc.collect()
gc.freeze()
old = [Thing() for _ in range(2000)]
gc.collect()
young = [Thing() for _ in range(50)]
box = Thing()
box.deep = {"k": [0, (1, Thing())], 7: Slotted(), ("a", 1): collections.deque([None, Thing()])}
box.deep[7].inner = Thing()
box.pair = Pair(Thing(), 2)
box.loop = box


def wait():
    here = {"local": Thing()}
    paths = {
        "__main__:box": id(box),
        "__main__:box.deep['k'][1][1]": id(box.deep["k"][1][1]),
        "__main__:box.deep[7].inner": id(box.deep[7].inner),
        "__main__:box.deep[('a', 1)][1]": id(box.deep["a", 1][1]),
        "__main__:box.pair[0]": id(box.pair.left),
        "here['local']": id(here["local"]),
    }
    print(json.dumps({"things": [id(o) for o in frozen + old + young + [box]], "paths": paths}), flush=True)
    sys.stdin.read()


wait()
