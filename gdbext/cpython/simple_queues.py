"""The items of a queue of C code, whose row of `primitives.table` has a ring.

Source: Modules/_queuemodule.c: `simplequeueobject` has a list and a position before 3.13, a ring of pointers from 3.13 on.
"""

from __future__ import annotations

from ..errors import GdbextError
from ..primitives.table import RINGS
from .objects import Object

MAX_ITEMS = 4096  # of a queue


def items(queue: Object) -> list[Object]:
    """The items of a queue of C code, the first one first."""
    if queue.type.builtin_name not in RINGS:
        raise GdbextError(f"{queue.type_name}: no queue of C code")
    rt = queue.rt
    at = queue.address + (32 if rt.layout.free_threaded else 16)
    if rt.minor.ring_queues:
        _, get, pointers, room, count = rt.target.words(at + 8, 5)
        if not 0 <= count <= room or count > MAX_ITEMS or room and get >= room:
            raise GdbextError("the ring of a queue does not hold together: it changed meanwhile, or this CPython's differs")
        words = rt.target.words(pointers, room) if count else []
        return [rt.object(words[(get + i) % room]) for i in range(count)]
    _, _, things, first = rt.target.words(at, 4)
    return list(rt.object(things).elements(MAX_ITEMS)[first:])
