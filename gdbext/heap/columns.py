"""The walk of the heap with numpy: objects of one type and neighbourhood at once, in columns."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from ..cpython import gc
from ..errors import GdbextError
from .model import ring_numbers, stretches
from .shapes import HEAD, counted
from .words import PAGE, TOP, Vector, distinct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .model import Heap
    from .shapes import Shape
    from .words import Columns

MAX_WORDS = 1 << 20  # of objects' bodies that are gathered before they are looked at
MAX_PENDING = 1 << 21  # references to objects that the collector does not track, before these are looked at


class VectorWalk:
    """Fills a `Heap` with arrays."""

    def __init__(self, heap: Heap) -> None:
        self.heap, self.np = heap, heap.numpy
        self.reader = Vector(heap.rt.target, heap.numpy)
        self.blocks: list[tuple[int, Any]] = []  # (first node, sorted addresses)
        self.columns: dict[str, list[Any]] = {name: [] for name in ("addresses", "types", "sizes", "lengths", "leaf_bytes")}
        self.edges: list[tuple[Any, Any]] = []
        self.known = self.np.zeros(0, dtype=self.np.int64)  # addresses that are leaves, or no objects, sorted

    # ---- nodes -------------------------------------------------------------------------------------------------------
    def tracked(self) -> range:
        """Lists the tracked objects; -> their nodes."""
        np, heap, windows = self.np, self.heap, gc.Windows(self.heap.rt.target)
        addresses, kinds = array("q"), array("q")
        for generation, head in ring_numbers(heap.rt):
            begin = len(addresses)
            for some, of in stretches(heap, generation, head, windows):
                addresses.extend(some)
                kinds.extend(of)
            own = len(addresses) - begin
            heap.generations[generation] += (
                own if heap.rt.target.is_stopped else len(distinct(np, np.frombuffer(addresses[begin:], dtype="<i8")))
            )
        windows.clear()
        found, types = np.frombuffer(addresses, dtype="<i8"), np.frombuffer(kinds, dtype="<i8")
        order = np.argsort(found, kind="stable")
        order = order[np.diff(found[order], prepend=-1) != 0]
        heap.tracked = len(order)
        for kind in distinct(np, types).tolist():
            heap.shape(kind)  # metatypes are among these
        return self._add(found[order], types[order])

    def _add(self, addresses: Any, types: Any) -> range:
        np = self.np
        first = sum(len(a) for _, a in self.blocks)
        self.blocks.append((first, addresses))
        for name, column in (("addresses", addresses), ("types", types)):
            self.columns[name].append(column)
        for name, empty in (("sizes", 0), ("lengths", -1), ("leaf_bytes", 0)):
            self.columns[name].append(np.full(len(addresses), empty, dtype=np.int64))
        return range(first, first + len(addresses))

    def follow(self, block: range) -> range:
        """Measures the nodes of `block`, the last ones added, and adds what they hold; -> the nodes that are new."""
        addresses, types = self.columns["addresses"][-1], self.columns["types"][-1]
        pending, count = [(self.known[:0], self.known[:0])], 0
        for sources, words in self._references(self._measured(block, addresses, types)):
            pending.append(self._resolve(sources, words))
            count += len(pending[-1][0])
            if count > MAX_PENDING:
                pending, count = [self._settle(pending)[:2]], 0
        return self._new(*self._settle(pending))

    def _measured(self, block: range, addresses: Any, types: Any) -> Iterator[tuple[Any, Shape, Columns]]:
        """Yields (nodes, `Shape`, `Columns`) of the objects of one type in one neighbourhood, once their sizes are noted."""
        sizes, lengths = self.columns["sizes"][-1], self.columns["lengths"][-1]
        for places, shape, c in self._groups(addresses, types):
            sizes[places], lengths[places] = self._sizes(shape, c), shape.length(c)
            yield block.start + places, shape, c

    def _sizes(self, shape: Shape, c: Columns) -> Any:
        """Bytes of each object; 0 of one that says it takes more than there is memory: it changed while it was read."""
        sizes = shape.size(c)
        wrong = (sizes < 0) | (sizes > self.reader.total)
        self.heap.torn += int(wrong.sum())
        return self.np.where(wrong, 0, sizes)

    def _groups(self, addresses: Any, types: Any) -> Iterator[tuple[Any, Shape, Columns]]:
        """Yields (places in `addresses`, `Shape`, `Columns`) of the objects of one type in one neighbourhood."""
        np = self.np
        for part in self.reader.batches(addresses):
            kinds, inverse = np.unique(types[part], return_inverse=True)
            shapes = [self.heap.shape(kind) for kind in kinds.tolist()]
            at = addresses[part]
            order = np.argsort(inverse, kind="stable")
            ends = np.cumsum(np.bincount(inverse, minlength=len(kinds))).tolist()
            for shape, start, end in zip(shapes, [0, *ends], ends):
                if shape is not None:
                    mine = np.sort(order[start:end])
                    yield part.start + mine, shape, self.reader.columns(at[mine], shape.need, -HEAD)

    def _references(self, groups: Iterable[tuple[Any, Shape, Columns]]) -> Iterator[tuple[Any, Any]]:
        """Yields (node of each word's owner, words that may be references), of many groups at once: an engine has thousands of
        types, most with a few objects."""
        words: list[tuple[Any, Any]] = []
        tables: dict[tuple[int, tuple[int, ...], int], list[tuple[Any, Any, Any]]] = {}
        count = 0
        for nodes, shape, c in groups:
            mask = ~3 if shape.tagged else ~0
            words += [(nodes, c.word(offset) & mask) for offset in range(*shape.body, 8)]
            for table in shape.tables(c):
                key = table.step, table.picks, mask
                tables.setdefault(key, []).append((nodes, table.start, table.count * table.step))
            if shape.kind == "deque":
                words += self._items(nodes, shape, c)
            count += len(nodes) * (1 + len(range(*shape.body, 8)))
            if count > MAX_WORDS:
                yield from self._gathered(words, tables)
                words, tables, count = [], {}, 0
        yield from self._gathered(words, tables)

    def _gathered(self, words: list[Any], tables: dict[Any, Any]) -> Iterator[tuple[Any, Any]]:
        np = self.np
        if words:
            yield tuple(np.concatenate(column) for column in zip(*words))
        for (step, picks, mask), parts in tables.items():
            nodes, starts, counts = (np.concatenate(column) for column in zip(*parts))
            for owners, inside, found in self.reader.runs(starts, counts):
                keep = slice(None) if step == 1 else np.isin(inside % step, picks)
                yield nodes[owners[keep]], found[keep] & mask

    def _items(self, nodes: Any, shape: Shape, c: Columns) -> Iterator[tuple[Any, Any]]:
        """What deques hold: their blocks are chains."""
        np = self.np
        for i in np.flatnonzero(c.word(shape.var)).tolist():
            try:
                words = np.array(self.heap.rt.object(int(c.at[i])).element_addresses(), dtype=np.int64)
            except GdbextError:
                continue  # damaged, or changed while it is read
            yield np.full(len(words), nodes[i]), words

    # ---- references --------------------------------------------------------------------------------------------------
    def _lookup(self, words: Any) -> Any:
        """The nodes at these addresses, -1 where none is."""
        np = self.np
        nodes = np.full(len(words), -1, dtype=np.int64)
        for first, addresses in self.blocks:
            if len(addresses):
                place = np.minimum(np.searchsorted(addresses, words), len(addresses) - 1)
                hit = addresses[place] == words
                nodes[hit] = first + place[hit]
        return nodes

    def _resolve(self, sources: Any, words: Any) -> tuple[Any, Any]:
        """Keeps the references to nodes; -> (sources, words) of the others, each word once."""
        np = self.np
        good = (words & 7 == 0) & (words >= PAGE) & (words < TOP)
        sources, words = sources[good], words[good]
        unique, inverse = np.unique(words, return_inverse=True)
        targets = self._lookup(unique)[inverse]
        hit = targets >= 0
        if hit.any():
            self.edges.append((sources[hit].astype(np.int32), targets[hit].astype(np.int32)))
        away = ~hit & self.reader.mapped(unique)[inverse]
        sources, words = sources[away], words[away]
        if len(self.known) and len(words):
            place = np.minimum(np.searchsorted(self.known, words), len(self.known) - 1)
            new = self.known[place] != words
            sources, words = sources[new], words[new]
        return sources, words

    def _settle(self, pending: list[tuple[Any, Any]]) -> tuple[Any, Any, Any]:
        """Counts the leaves among what `pending` refers to; -> (sources, words, types) of the references to objects that hold
        others."""
        np, heap = self.np, self.heap
        sources, words = np.concatenate([s for s, _ in pending]), np.concatenate([w for _, w in pending])
        unique, first, inverse = np.unique(words, return_index=True, return_inverse=True)
        kinds = self._object_types(unique)
        leaf = np.zeros(len(unique), dtype=bool)
        for kind in distinct(np, kinds).tolist():
            shape = heap.shape(kind) if kind else None
            if shape is None:
                kinds[kinds == kind] = 0
            elif shape.leaf:
                leaf |= kinds == kind
        self._count(sources[first[leaf]], unique[leaf], kinds[leaf])
        self.known = distinct(np, np.concatenate([self.known, unique[leaf | (kinds == 0)]]))
        keep = ((kinds != 0) & ~leaf)[inverse]
        return sources[keep], words[keep], kinds[inverse][keep]

    def _new(self, sources: Any, words: Any, kinds: Any) -> range:
        """Adds the objects at `words` as nodes."""
        np = self.np
        unique, first, inverse = np.unique(words, return_index=True, return_inverse=True)
        block = self._add(unique, kinds[first])
        if len(block):
            self.edges.append((sources.astype(np.int32), (block.start + inverse).astype(np.int32)))
        return block

    def _count(self, sources: Any, words: Any, kinds: Any) -> None:
        np, heap = self.np, self.heap
        sizes = np.zeros(len(words), dtype=np.int64)
        for places, shape, c in self._groups(words, kinds):
            own = sizes[places] = self._sizes(shape, c)
            total = heap.leaves.setdefault(shape.info.address, [0, 0])
            total[0] += len(places)
            total[1] += int(own.sum())
        for (first, addresses), column in zip(self.blocks, self.columns["leaf_bytes"]):
            here = (sources >= first) & (sources < first + len(addresses))
            np.add.at(column, sources[here] - first, sizes[here])

    def _object_types(self, words: Any) -> Any:
        """The type of the object at each address, 0 where none is."""
        np, L = self.np, self.heap.rt.layout
        head = self.reader.record(words, L["object.__size"])
        kinds = head.word(L["object.ob_type"])
        good = counted(self.heap.rt, head.word(0)) & (kinds & 7 == 0) & (kinds >= PAGE) & (kinds < TOP)
        unique, inverse = np.unique(np.where(good, kinds, 0), return_inverse=True)
        meta = self.reader.record(unique, L["object.__size"]).word(L["object.ob_type"])
        return np.where(np.isin(meta, np.array(self.heap.metatypes(), dtype=np.int64)), unique, 0)[inverse]

    def finish(self) -> None:
        """Puts the blocks together."""
        np, heap = self.np, self.heap
        for name, parts in self.columns.items():
            setattr(heap, name, np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64))
            parts.clear()
        empty = np.zeros(0, dtype=np.int32)
        heap.sources = np.concatenate([empty, *(s for s, _ in self.edges)])
        heap.targets = np.concatenate([empty, *(t for _, t in self.edges)])
        self.edges.clear()
