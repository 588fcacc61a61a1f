"""The Python heap of a process: every object that the collector tracks, and what those hold that it does not track.

Begins with the collector's lists (cpython/gc.py). Of each object the words are read where references can lie; a word is taken for
a reference when an object stands there: a tracked one, or one with a count of references whose type is a type. So types of C
code that are not known by name are followed too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..cpython import gc
from ..package import import_package
from .columns import VectorWalk
from .model import Clock, Heap

if TYPE_CHECKING:
    from ..cpython.runtime import Runtime

MAX_ROUNDS = 60  # tuples that nothing tracks, each in the next one


def walk(rt: Runtime, clock: Clock | None = None) -> Heap:
    """The `Heap` of a process, as far as `clock` leaves time: what is missing is in `partial`. `LayoutError`, `FaultError` where
    the collector's lists do not hold together."""
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
