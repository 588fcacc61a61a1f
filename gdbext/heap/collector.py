"""The state of CPython's garbage collector, from its structures, and the likely cost of a full collection.

Modules/gcmodule.c, Python/gc.c and pycore_gc.h of each minor: `enabled`, `collecting`, three generations with threshold and
count, and how much each has collected so far; since 3.15 also how long that took. No structure says when the current collection
began (3.15 has it in a local variable of C). `Sightings` give the least time that it has taken.
"""

from __future__ import annotations

import time

from .. import log
from ..cpython import gc
from ..cpython.runtime import Runtime
from ..errors import FaultError
from .model import Heap

# Seconds for each object that a full collection visits: objects that lie together in the caches, and objects all over a memory
# of tens of gigabytes (74.8 million objects in 70 s were reported of an engine).
COST = (0.05e-6, 1.0e-6)


class Generation:
    """One generation.

    `count` since its last collection; its `threshold`; `objects` in its list. `collections`: how often it was collected;
    `collected`: how many objects. `seconds`: the time of all its collections; `last`: of the last one (None where the interpreter
    does not tell).
    """

    def __init__(self, count: int, threshold: int, objects: int) -> None:
        self.count, self.threshold, self.objects = count, threshold, objects
        self.collections: int | None = None
        self.collected: int | None = None
        self.seconds: float | None = None
        self.last: float | None = None


class Collector:
    """The collector's state.

    - `enabled`; `collecting` (now).
    - `tid` of the thread that collects and `generation` that it collects; each None where it is unknown.
    - `generations`; `frozen` objects.
    - `pause`: the least and most seconds that a full collection may take.
    """

    def __init__(self, rt: Runtime, heap: Heap) -> None:
        L, t = rt.layout, rt.target
        interp = rt.interpreters()[0]
        self.enabled = t.i32(interp + L["interp.gc.enabled"]) != 0
        self.collecting = gc.collecting(rt)
        self.tid = _collecting_thread(rt) if self.collecting else None
        self.generations = []
        for i in range(3):
            at = gc.generation(rt, interp, i)
            count, threshold = t.i32(at + L["gcgen.count"]), t.i32(at + L["gcgen.threshold"])
            self.generations.append(Generation(count, threshold, heap.generations[i]))
            _take_stats(rt, interp, i, self.generations[i])
        self.generation = None
        if self.collecting and not gc.incremental(rt):
            self.generation = collected_now([g.count for g in self.generations])
        self.frozen = heap.generations[3]
        visited = sum(heap.generations[:3])
        self.pause = visited * COST[0], visited * COST[1]


class Sightings:
    """Samples of a running process, to tell how long it has been collecting garbage."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, tuple[int, ...]]] = []

    def look(self, rt: Runtime) -> None:
        """Notes whether and which collection is under way."""
        rt.target.drop_pages()
        mark = under_way(rt)
        if mark is not None:
            self._seen.append((time.monotonic(), mark))

    def seconds(self, rt: Runtime) -> float | None:
        """How long the current collection of `rt`, the process or a copy of it, was seen to run; None unless two samples saw
        it."""
        mark = under_way(rt)
        times = [at for at, seen in self._seen if seen == mark]
        return max(times) - min(times) if len(times) > 1 else None


def under_way(rt: Runtime) -> tuple[int, ...] | None:
    """A mark of the collection that is under way, None where none is. It tells this collection from earlier and later ones.

    The mark holds how many collections have ended, and the counts of the elder generations, which change where a collection
    begins. (If the program requests two collections in a row, the last instants of the first, its callbacks, look like the
    second.)
    """
    if not gc.collecting(rt):
        return None
    found = []
    for interp in rt.interpreters():
        for i in range(3):
            stats = Generation(0, 0, 0)
            _take_stats(rt, interp, i, stats)
            found += [-1 if stats.collections is None else stats.collections]
            found += [rt.target.i32(gc.generation(rt, interp, i) + rt.layout["gcgen.count"])] if i else []
    return tuple(found)


def collected_now(counts: list[int]) -> int | None:
    """The generation that is being collected. The collection has set the counts up to its own to 0, and raised the next one's.
    None before it has done that, or where objects were made since."""
    first = next((i for i, count in enumerate(counts) if count), len(counts))
    return first - 1 if first else None


def _take_stats(rt: Runtime, interp: int, number: int, generation: Generation) -> None:
    L, t = rt.layout, rt.target
    at = interp + L["interp.gc.generation_stats"]
    if "gcstats.young" in L:  # 3.15: the last ones of each, all of them sums over those before
        try:
            ring, key = t.u64(at) + L["gcstats.young"], "gcyoung"
            if number:
                ring, key = t.u64(at) + L["gcstats.old"] + (number - 1) * L["gcold.__size"], "gcold"
            at = ring + L[f"{key}.items"] + t.u8(ring + L[f"{key}.index"]) * L["gcstat.__size"]
            if at >= ring + L[f"{key}.index"]:
                return
            began, ended = t.i64(at + L["gcstat.ts_start"]), t.i64(at + L["gcstat.ts_stop"])
            generation.seconds, generation.last = t.f64(at + L["gcstat.duration"]), (ended - began) / 1e9
        except FaultError as e:
            log.passed_over(e)
            return
    else:
        at += number * L["gcstat.__size"]
    generation.collections, generation.collected = t.i64(at + L["gcstat.collections"]), t.i64(at + L["gcstat.collected"])


def _collecting_thread(rt: Runtime) -> int | None:
    """The tid of the thread that holds the interpreter's lock: only that thread can be collecting."""
    state, holder = rt.gil(rt.interpreters()[0])
    return next((th.tid for th in rt.states() if th.address == holder), None) if state == "held" else None
