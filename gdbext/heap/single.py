"""The walk of the heap without numpy: one object after the other, by the standard library."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from .. import log
from ..errors import GdbextError
from .marks import PAGE, TOP
from .model import ring_numbers, stretches
from .shapes import HEAD, counted
from .words import MAX_TABLE, Scalar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Heap
    from .shapes import Shape
    from .words import Columns

STEP = 1 << 14  # words of a table that are read at once


class ScalarWalk:
    """Fills a `Heap` with lists."""

    def __init__(self, heap: Heap) -> None:
        self.heap, self.reader = heap, Scalar(heap.rt.target)
        self.index: dict[int, int] = {}  # node by address
        self.seen: set[int] = set()  # addresses that are leaves, or no objects

    def tracked(self) -> range:
        """Lists the tracked objects; -> their nodes."""
        heap, found = self.heap, []
        for generation, head in ring_numbers(heap.rt):
            begin = len(found)
            for addresses, kinds in stretches(heap, generation, head, self.reader.windows):
                found += zip(addresses, kinds)
            heap.generations[generation] += len({address for address, _ in found[begin:]})
        for address, kind in sorted(found):
            if address not in self.index and heap.shape(kind) is not None:
                self._add(address, kind)
        heap.strange = sum(heap.shape(kind) is None for kind in {kind for _, kind in found})
        heap.tracked = len(heap.addresses)
        return range(heap.tracked)

    def _add(self, address: int, kind: int) -> int:
        heap = self.heap
        node = self.index[address] = len(heap.addresses)
        heap.addresses.append(address)
        heap.types.append(kind)
        heap.sizes.append(0)
        heap.lengths.append(-1)
        heap.leaf_bytes.append(0)
        return node

    def follow(self, block: range) -> range:
        """Measures the nodes of `block` and adds what they hold; -> the nodes that are new."""
        heap, first = self.heap, len(self.heap.addresses)
        metatypes = set(heap.metatypes())
        for node in block:
            if not node & 1023 and heap.clock.late("reading objects", node, len(heap.addresses)):
                heap.unread += block.stop - node
                break
            shape = heap.shape(heap.types[node])
            assert shape is not None
            c = self.reader.record(heap.addresses[node], shape.need, -HEAD)
            size = self._size(shape, c, not block.start)
            if size is None:
                heap.types[node] = 0
            else:
                heap.sizes[node], heap.lengths[node] = size, int(shape.length(c))
                self._reach_all(node, set(self._references(shape, c)), metatypes)
            heap.begin.append(len(heap.targets))
        return range(first, len(heap.addresses))

    def _size(self, shape: Shape, c: Columns, tracked: bool) -> int | None:
        """Bytes of an object; of one that says it takes more than there is memory 0, or None: `Heap.keeps`."""
        size = int(shape.size(c))
        if 0 <= size <= self.reader.total:
            return size
        return 0 if self.heap.keeps(1, tracked) else None

    def _references(self, shape: Shape, c: Columns) -> Iterator[int]:
        mask = ~3 if shape.tagged else ~0
        for offset in range(*shape.body, 8):
            yield c.word(offset) & mask
        for word in shape.pointers(c):
            yield word & mask
        for table in shape.tables(c):
            total = table.count * table.step
            if not 0 < table.count < MAX_TABLE or table.start & 7:
                continue
            words = itertools.chain.from_iterable(
                self.reader.words(table.start + 8 * at, min(STEP, total - at)) for at in range(0, total, STEP)
            )
            for i, word in enumerate(words):
                if i % table.step in table.picks:
                    yield word & mask
        if shape.kind == "deque":
            try:
                yield from self.heap.rt.object(c.at).element_addresses()
            except GdbextError as e:
                log.passed_over(e)  # damaged, or changed while it is read

    def _reach_all(self, node: int, words: set[int], metatypes: set[int]) -> None:
        for word in words:
            if word & 7 == 0 and PAGE <= word < TOP and word not in self.seen:
                self._reach(node, word, metatypes)

    def _reach(self, node: int, address: int, metatypes: set[int]) -> None:
        heap, target = self.heap, self.index.get(address)
        if target is None:
            kind = self._object(address, metatypes)
            shape = heap.shape(kind) if kind else None
            if shape is None:
                self.seen.add(address)
                return
            if shape.leaf:
                self.seen.add(address)
                size = self._size(shape, self.reader.record(address, shape.need, -HEAD), False)
                if size is None:
                    return
                total = heap.leaves.setdefault(kind, [0, 0])
                total[0] += 1
                total[1] += size
                heap.leaf_bytes[node] += size
                return
            target = self._add(address, kind)
        heap.targets.append(target)

    def _object(self, address: int, metatypes: set[int]) -> int:
        """The type of the object at `address`, 0 where none is."""
        L = self.heap.rt.layout
        head = self.reader.record(address, L["object.__size"])
        kind = head.word(L["object.ob_type"])
        if not counted(self.heap.rt, head.word(0)) or kind & 7 or not PAGE <= kind < TOP:
            return 0
        meta = self.reader.record(kind, L["object.__size"]).word(L["object.ob_type"])
        return kind if meta in metatypes else 0

    def finish(self) -> None:
        """Nodes that there was no time for refer to nothing."""
        heap = self.heap
        heap.begin += [len(heap.targets)] * (len(heap.addresses) + 1 - len(heap.begin))
