"""Instances of subclasses of built-in types, with attributes and without. Prints {name: {attribute: repr}}."""

import collections
import json
import time


class L(list):
    pass


class D(dict):
    pass


class S(str):
    pass


class N(int):
    pass


class T(tuple):
    pass


class F(frozenset):
    pass


class E(ValueError):
    pass


class Shown(list):
    def __repr__(self):
        return "all of it"


class Slotted(dict):
    __slots__ = ("extra",)


Pair = collections.namedtuple("Pair", "left right")
V = {"L": L([1]), "D": D(a=1), "S": S("text"), "N": N(7), "T": T((1, 2)), "F": F({3}), "E": E("wrong"), "Slotted": Slotted(b=2)}
for value in V.values():
    value.extra = {"of": type(value).__name__}
truth = {name: {"extra": repr(value.extra)} for name, value in V.items()}
more = {"plain": L([1]), "pair": Pair(1, 2), "list": [1], "error": ValueError("x")}
V.update(more)
truth.update({name: {} for name in more})
print(json.dumps(truth), flush=True)
time.sleep(3600)
