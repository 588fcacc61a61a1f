"""The state of CPython's garbage collector, as its structures say it, and what a full collection is likely to cost.

Modules/gcmodule.c, Python/gc.c and pycore_gc.h of each minor: `enabled`, `collecting`, three generations of threshold and count,
and until 3.14 what each has collected so far. How long a collection took is kept by none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..cpython import gc

if TYPE_CHECKING:
    from ..cpython.runtime import Runtime
    from .model import Heap

# Seconds for each object that a full collection visits: objects that lie together in the caches, and objects all over a memory
# of tens of gigabytes (74.8 million objects in 70 s were reported of an engine).
COST = (0.05e-6, 1.0e-6)


class Generation:
    """`count` since its last collection, its `threshold`, `objects` in its list, and how often it was collected (None where
    the interpreter does not tell)."""

    def __init__(self, count: int, threshold: int, objects: int, collections: int | None, collected: int | None) -> None:
        self.count, self.threshold, self.objects = count, threshold, objects
        self.collections, self.collected = collections, collected


class Collector:
    """`enabled`, `collecting` (now), `tid` of the thread that collects, `generations`, `frozen` objects, and `pause`: the least
    and most seconds that a full collection may take."""

    def __init__(self, rt: Runtime, heap: Heap) -> None:
        L, t = rt.layout, rt.target
        interp = rt.interpreters()[0]
        self.enabled = t.i32(interp + L["interp.gc.enabled"]) != 0
        self.collecting = gc.collecting(rt)
        self.tid = _collecting_thread(rt) if self.collecting else None
        self.generations = []
        inline = L["interp.gc.collecting"] - L["interp.gc.generation_stats"] == 72  # three of three words, no pointer to them
        for i in range(3):
            at = gc.generation(rt, interp, i)
            stats = interp + L["interp.gc.generation_stats"] + 24 * i
            told = (t.i64(stats), t.i64(stats + 8)) if inline else (None, None)
            count, threshold = t.i32(at + L["gcgen.count"]), t.i32(at + L["gcgen.threshold"])
            self.generations.append(Generation(count, threshold, heap.generations[i], *told))
        self.frozen = heap.generations[3]
        visited = sum(heap.generations[:3])
        self.pause = visited * COST[0], visited * COST[1]


def _collecting_thread(rt: Runtime) -> int | None:
    """The tid of the thread that holds the interpreter's lock: only it can be collecting."""
    state, holder = rt.gil(rt.interpreters()[0])
    return next((th.tid for th in rt.threads() if th.address == holder), None) if state == "held" else None
