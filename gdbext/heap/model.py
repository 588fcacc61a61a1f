"""The result of a walk of the heap: a graph of objects, and the counts of objects that hold nothing."""

from __future__ import annotations

import time
from typing import Any, Callable, Collection, Iterator

from .. import log
from ..cpython import gc
from ..cpython.runtime import Runtime
from ..cpython.types import TYPE
from ..errors import FaultError, GdbextError, LayoutError
from .marks import blocks
from .shapes import Shape

TELL_EVERY = 5.0  # seconds
GENERATIONS = 4  # three, and the frozen one


class Clock:
    """How long a look may take, in seconds. `say`: called with a line of text that tells the progress."""

    def __init__(self, seconds: float | None = None, say: Callable[[str], None] | None = None) -> None:
        self._began = self._told = time.monotonic()
        self._end = None if seconds is None else self._began + seconds
        self.seconds, self._say = seconds, say

    def late(self, doing: str = "", done: int = 0, of: int = 0) -> bool:
        """Whether the time is over; reports the progress now and then."""
        now = time.monotonic()
        if doing and self._say is not None and now - self._told >= TELL_EVERY:
            self._told = now
            self._say(f"{doing}: {done:,}{f' of {of:,}' if of else ''} after {now - self._began:.0f} s")
        return self._end is not None and now >= self._end


class Heap:
    """The result of a walk. The nodes are the tracked objects, by address, then untracked objects that those hold and that hold
    references themselves. Leaves (texts, numbers) are only counted.

    By node:
    - `addresses`, `types` (their `numbers`), `sizes` (bytes), `lengths` (-1: no container).
    - `leaf_bytes`: of the leaves that this node holds first, as pairs of nodes and bytes.
    - `targets` from `begin[i]` to `begin[i + 1]`: the nodes to which node `i` refers.

    In all:
    - `tracked`: how many nodes the collector tracks; `generations`: objects in each, the frozen ones last.
    - `leaves`: `{type: [count, bytes]}`.
    - `torn`: objects with impossible sizes; `unread`: objects for which there was no time.
    - `strange`: types of tracked objects that cannot be read.
    """

    def __init__(self, rt: Runtime, numpy: Any, clock: Clock | None = None) -> None:
        self.rt, self.numpy, self.clock = rt, numpy, clock or Clock()
        self.unread = self.strange = 0
        self.addresses: Any = []
        self.types: Any = []
        self.sizes: Any = []
        self.lengths: Any = []
        self.leaf_bytes: Any = []
        self.begin: Any = [0]
        self.targets: Any = []
        self.numbers: Any = None  # of types
        self.tracked = self.torn = 0
        self.generations = [0] * GENERATIONS
        self.leaves: dict[int, list[int]] = {}
        self.shapes: dict[int, Shape | None] = {}
        self.forms: list[Shape] = []
        self._forms: dict[tuple[object, ...], int] = {}
        self.partial: list[str] = []

    def shape(self, kind: int) -> Shape | None:
        """The `Shape` of a type, None where no type can be read."""
        if kind not in self.shapes:
            try:
                self.shapes[kind] = Shape(self.rt, self.rt.type(kind))
            except GdbextError as e:
                log.passed_over(e)
                self.shapes[kind] = None
        return self.shapes[kind]

    def form(self, kind: int) -> int:
        """The number, in `forms`, of the first `Shape` that treats this type's objects alike. There are thousands of classes but
        dozens of forms. -1 where no type can be read."""
        shape = self.shape(kind)
        if shape is None:
            return -1
        number = self._forms.setdefault(shape.form, len(self.forms))
        if number == len(self.forms):
            self.forms.append(shape)
        return number

    def keeps(self, count: int, tracked: bool) -> bool:
        """Whether `count` objects whose size exceeds all memory stay, without a size.

        Tracked ones stay, and so do all in a running process: they may have changed during the read. An untracked one in a
        stopped process is no object, but two words of C code that look like the beginning of one (msgspec keeps flags beside a
        type).
        """
        stays = tracked or not self.rt.target.is_stopped
        self.torn += count * stays
        return stays

    def counts(self, part: slice) -> tuple[Any, Any]:
        """How many of these nodes are of each type of `numbers`, and their bytes."""
        np, types, sizes = self.numpy, self.types[part], self.sizes[part]
        counts, total = np.zeros(len(self.numbers.values), dtype=np.int64), np.zeros(len(self.numbers.values))
        for block in blocks(len(types)):
            own = types[block]
            counts += np.bincount(own, minlength=len(counts))
            total += np.bincount(own, sizes[block], minlength=len(total))
        return counts, total

    def weights(self) -> Any:
        """The bytes of each node, with those of the leaves that it holds first."""
        np = self.numpy
        found = self.sizes.astype(np.int64)
        for nodes, sizes in self.leaf_bytes:
            least = int(nodes.min())
            own = np.bincount(nodes - least, sizes)
            found[least : least + len(own)] += own.astype(np.int64)
        return found

    def kind(self, node: int) -> int:
        """The address of a node's type."""
        return int(self.numbers.values[self.types[node]])

    def of_kinds(self, kinds: Collection[int]) -> list[int]:
        """The nodes of these types, given by address."""
        wanted = self.numpy.array([kind in kinds for kind in self.numbers.values], dtype=bool)
        found: list[int] = self.numpy.flatnonzero(wanted[self.types]).tolist()
        return found

    def metatypes(self) -> list[int]:
        """The types whose instances are types."""
        return [kind for kind, shape in self.shapes.items() if shape is not None and shape.info.flags & TYPE]

    def name(self, kind: int) -> str:
        """A type's full name; builtins without their module, as Python prints them."""
        shape = self.shape(kind)
        try:
            name = shape.info.full_name if shape is not None else f"? {kind:#x}"
        except GdbextError as e:
            log.passed_over(e)
            name = f"? {kind:#x}"
        return name[9:] if name.startswith("builtins.") else name


def stretches(heap: Heap, generation: int, head: int, windows: gc.Windows) -> Iterator[tuple[list[int], list[int]]]:
    """As `gc.stretches`. In a running process the youngest objects may come and go faster than they can be read; then only the
    readable ones are yielded."""
    count = 0
    try:
        for found in gc.stretches(heap.rt, head, windows):
            yield found
            count += len(found[0])
            if heap.clock.late("listing objects", count):
                heap.partial.append(f"not all objects could be listed in {heap.clock.seconds:g} s (-deadline)")
                return
    except (LayoutError, FaultError) as e:
        log.passed_over(e)
        if generation or heap.rt.target.is_stopped:
            raise
        heap.partial.append("the youngest objects come and go faster than they can be read: some may be missing")


def ring_numbers(rt: Runtime) -> list[tuple[int, int]]:
    """[(generation, address of its list's head)] of all interpreters; the frozen one is generation 3."""
    return [(i % GENERATIONS, head) for i, head in enumerate(gc.rings(rt))]
