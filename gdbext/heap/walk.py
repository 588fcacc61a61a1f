"""The Python heap of a process: every object that the collector tracks, and the untracked objects that those hold.

The walk begins with the collector's lists (cpython/gc.py). It reads the words of each object at which references can lie. A word
is a reference if an object lies there: a tracked one, or one with a reference count whose type is a type. So unknown types of C
code are followed too.
"""

from __future__ import annotations

from ..cpython import gc
from ..cpython.runtime import Runtime
from ..package import import_package
from .columns import VectorWalk
from .model import Clock, Heap

MAX_ROUNDS = 60  # tuples that nothing tracks, each in the next one


def walk(rt: Runtime, clock: Clock | None = None) -> Heap:
    """The `Heap` of a process, as far as `clock` leaves time; `partial` says what is missing. `LayoutError`, `FaultError` where
    the collector's lists are inconsistent."""
    heap = Heap(rt, import_package("numpy"), clock)
    if gc.collecting(rt):
        heap.partial.append(
            "a garbage collection is under way: what it has set aside at this moment is left out, or counted as not tracked"
        )
    work = VectorWalk(heap)
    block = work.tracked()
    if heap.strange:
        heap.partial.append(f"objects of {heap.strange} types that cannot be read are left out")
    for _ in range(MAX_ROUNDS):
        if not len(block) or heap.unread:
            break
        block = work.follow(block)
    work.finish()
    if heap.unread:
        heap.partial.append(
            f"{heap.unread} objects were not read in {heap.clock.seconds:g} s (-deadline): what they hold is missing"
        )
    if heap.torn:
        why = "are no objects, or damaged" if rt.target.is_stopped else "changed while they were read"
        heap.partial.append(f"{heap.torn} objects {why}: their sizes are not counted")
    return heap
