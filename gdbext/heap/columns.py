"""The walk of the heap with numpy, in columns: all objects of one type in one neighbourhood at once."""

from __future__ import annotations

from array import array
from typing import Any, Iterable, Iterator

from .. import log
from ..cpython import gc
from ..errors import GdbextError
from .marks import PAGE, TOP, Numbers, Places, Seen, blocks, distinct, give_back
from .model import Heap, ring_numbers, stretches
from .rings import Rings
from .shapes import HEAD, Shape, counted
from .words import FEW_SLOTS, SLOTS, Columns, Vector

MAX_WORDS = 1 << 19  # of objects' bodies that are gathered before they are examined
MANY = 3 << 20  # objects that leave less memory for windows
MAX_LENGTH = (1 << 31) - 1  # of a container; and bytes of an object, beyond which the column of sizes takes twice the memory


class VectorWalk:
    """Fills a `Heap` with arrays."""

    def __init__(self, heap: Heap) -> None:
        self.heap, self.np = heap, heap.numpy
        self.reader = Vector(heap.rt.target, heap.numpy)
        self.columns: dict[str, list[Any]] = {name: [] for name in ("addresses", "types", "sizes", "lengths")}
        self._none = self.np.zeros(0, dtype=self.np.int32)
        self._edges: list[Any] = []  # of the nodes being read: the node, and in the lower 32 bits its target
        self._later: list[tuple[Any, Any]] = []  # to nodes that were found after their referrers had been read
        self._counts: list[Any] = []  # of references, by node
        self._targets: list[Any] = []  # of all nodes, one after the other
        self.heap.numbers = Numbers(self.np)
        self._forms = self.np.zeros(0, dtype=self.np.int32)  # by number of a type
        self.seen = Seen(self.np)  # leaves, and addresses where no object is
        self._places: list[tuple[Places, Any]] = []  # of the tracked objects, and of the other nodes with their numbers

    # ---- nodes -------------------------------------------------------------------------------------------------------
    def tracked(self) -> range:
        """Lists the tracked objects; -> their nodes."""
        np, heap = self.np, self.heap
        found, types = self._lists() if heap.rt.target.is_stopped else self._changing_lists()
        heap.tracked = len(found)
        give_back()
        self.reader.slots = SLOTS if len(found) < MANY else FEW_SLOTS
        forms = self._form_numbers(types)  # metatypes are among these
        heap.strange = len(distinct(np, types[forms == 0]))
        del forms
        self._places = [(Places(np, found), None)]
        return self._add(found, types)

    def _lists(self) -> tuple[Any, Any]:
        """-> (addresses, numbers of types) of the objects in the lists of a stopped process, sorted."""
        np, heap = self.np, self.heap
        numbered = ring_numbers(heap.rt)
        rings = Rings(heap, self.reader, [head for _, head in numbered])
        chosen = np.zeros(len(rings.addresses), dtype=bool)
        apart: list[tuple[int, int]] = []
        for number, (generation, head) in enumerate(numbered):
            own = rings.ring(number)
            if own is None:
                apart.append((generation, head))
            else:
                heap.generations[generation] += len(own)
                chosen[own] = True
        found, types = rings.addresses[chosen], rings.types[chosen]
        del rings, chosen
        return self._sorted(*self._followed(apart, found, types)) if apart else (found, types)

    def _changing_lists(self) -> tuple[Any, Any]:
        """As `_lists`, for a running process."""
        np = self.np
        empty = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32)
        return self._sorted(*self._followed(ring_numbers(self.heap.rt), *empty))

    def _followed(self, numbered: list[tuple[int, int]], found: Any, types: Any) -> tuple[Any, Any]:
        """Adds the objects of lists that are followed one by one."""
        np, heap, windows = self.np, self.heap, gc.Windows(self.heap.rt.target)
        addresses, kinds = array("q"), array("q")
        for generation, head in numbered:
            begin = len(addresses)
            for some, of in stretches(heap, generation, head, windows):
                addresses.extend(some)
                kinds.extend(of)
            heap.generations[generation] += len(distinct(np, np.frombuffer(addresses[begin:], dtype="<i8")))
        return (
            np.concatenate([found, np.frombuffer(addresses, dtype="<i8")]),
            np.concatenate([types, heap.numbers.of(np.frombuffer(kinds, dtype="<i8"))]),
        )

    def _sorted(self, found: Any, types: Any) -> tuple[Any, Any]:
        """Each object once."""
        np = self.np
        order = np.argsort(found, kind="stable")
        order = order[np.diff(found[order], prepend=-1) != 0]
        return found[order], types[order]

    def _add(self, addresses: Any, types: Any) -> range:
        np = self.np
        first = sum(map(len, self.columns["addresses"]))
        for name, column in (("addresses", addresses), ("types", types)):
            self.columns[name].append(column)
        for name, empty, dtype in (("sizes", 0, np.int32), ("lengths", -1, np.int32)):
            self.columns[name].append(np.full(len(addresses), empty, dtype=dtype))
        return range(first, first + len(addresses))

    def follow(self, block: range) -> range:
        """Measures the nodes of `block`, the last ones added, and adds the objects that they hold; -> the new nodes."""
        np, addresses, held = self.np, self.columns["addresses"][-1], []
        for part in self._parts(addresses):
            self._edges, pending = [], []
            for sources, words in self._references(self._measured(block, part)):
                pending.append(self._resolve(sources, words))
            held.append(self._settle(pending))
            self._join(block.start + part.start, part.stop - part.start)
        self._counts.append(np.zeros(block.stop - sum(map(len, self._counts)), dtype=np.int32))  # of those not reached in time
        return self._new(held)

    def _join(self, first: int, count: int) -> None:
        """Adds to the graph the references of the `count` nodes from `first` on."""
        np = self.np
        edges, at = np.empty(sum(map(len, self._edges)), dtype=np.int64), 0
        while self._edges:
            some = self._edges.pop()
            edges[at : at + len(some)] = some
            at += len(some)
        edges.sort()
        counts = np.zeros(count, dtype=np.int32)
        for block in blocks(len(edges)):
            own = np.bincount((edges[block] >> 32) - first)
            counts[: len(own)] += own.astype(np.int32)
        self._counts.append(counts)
        self._targets.append(edges.astype(np.int32))

    def _measured(self, block: range, part: slice) -> Iterator[tuple[Any, Shape, Columns]]:
        """Yields (nodes, `Shape`, `Columns`) of the objects of one form in one part of `block`. Their sizes are noted before."""
        np = self.np
        addresses, types, sizes, lengths = (self.columns[name][-1] for name in ("addresses", "types", "sizes", "lengths"))
        for places, shape, c in self._groups(addresses, types, part):
            found, good = self._sizes(shape, c, not block.start)
            if sizes.dtype == np.int32 and found.max() > MAX_LENGTH:
                sizes = self.columns["sizes"][-1] = sizes.astype(np.int64)
            sizes[places] = found
            if not good.all():
                types[places[~good]] = self.heap.numbers.of(np.zeros(1, dtype=np.int64))[0]
                places, c = places[good], c.take(good)
            lengths[places] = np.minimum(shape.length(c), MAX_LENGTH)
            yield (block.start + places).astype(np.int32), shape, c

    def _sizes(self, shape: Shape, c: Columns, tracked: bool) -> tuple[Any, Any]:
        """-> (bytes of each object, which of them are objects). `Heap.keeps` decides about sizes larger than all memory."""
        sizes = shape.size(c)
        wrong = (sizes < 0) | (sizes > self.reader.total)
        count = int(wrong.sum())
        return self.np.where(wrong, 0, sizes), ~wrong if count and not self.heap.keeps(count, tracked) else wrong | True

    def _parts(self, addresses: Any) -> Iterator[slice]:
        """Neighbourhoods among sorted addresses of objects, as long as there is time."""
        for part in self.reader.batches(addresses):
            if self.heap.clock.late("reading objects", part.start, len(addresses)):
                self.heap.unread += len(addresses) - part.start
                return
            yield part

    def _groups(self, addresses: Any, types: Any, part: slice) -> Iterator[tuple[Any, Shape, Columns]]:
        """Yields (places in `addresses`, `Shape`, `Columns`) of the objects of one form in one neighbourhood."""
        np = self.np
        forms, at = self._form_numbers(types[part]), addresses[part]
        order = np.argsort(forms, kind="stable")
        ends = np.cumsum(np.bincount(forms, minlength=len(self.heap.forms) + 1)).tolist()
        for shape, start, end in zip(self.heap.forms, ends, ends[1:]):
            if start < end:
                mine = order[start:end]
                yield part.start + mine, shape, self.reader.columns(at.take(mine), shape.need, -HEAD)

    def _form_numbers(self, types: Any) -> Any:
        """1 + the number of the form of each type, 0 where it has none. 16 bits where they suffice: numpy sorts those in one
        go."""
        np = self.np
        new = self.heap.numbers.values[len(self._forms) :]
        if new:
            more = np.array([1 + self.heap.form(kind) if kind else 0 for kind in new], dtype=np.int32)
            self._forms = np.concatenate([self._forms, more])
        forms = self._forms.take(types)
        return forms.astype(np.uint16) if len(self.heap.forms) < 1 << 16 else forms

    def _references(self, groups: Iterable[tuple[Any, Shape, Columns]]) -> Iterator[tuple[Any, Any]]:
        """Yields (node of each word's owner, words that may be references). Many groups go together: an engine has thousands of
        types, most with a few objects."""
        np = self.np
        words: list[tuple[Any, Any]] = []
        tables: dict[tuple[int, tuple[int, ...], int], list[tuple[Any, Any, Any]]] = {}
        count = 0
        for nodes, shape, c in groups:
            mask = ~3 if shape.tagged else ~0
            found = [c.word(offset) & mask for offset in shape.body] + [word & mask for word in shape.pointers(c)]
            words += [(nodes, column) for column in found]
            count += len(nodes) * len(found)
            for table in shape.tables(c):
                some = np.flatnonzero(table.count > 0)
                if len(some):
                    parts = tables.setdefault((table.step, table.picks, mask), [])
                    parts.append((nodes[some], table.start[some], table.count[some]))
            if shape.kind == "deque":
                words += self._items(nodes, shape, c)
            if count > MAX_WORDS:
                yield tuple(np.concatenate(column) for column in zip(*words))
                words, count = [], 0
        if words:
            yield tuple(np.concatenate(column) for column in zip(*words))
        yield from self._contents(tables)

    def _contents(self, tables: dict[Any, Any]) -> Iterator[tuple[Any, Any]]:
        """Yields (owners, words) of the content of `tables`, which it empties."""
        np = self.np
        while tables:
            (step, picks, mask), parts = tables.popitem()
            nodes, starts, counts = (np.concatenate(column) for column in zip(*parts))
            for owners, found in self.reader.runs(starts, counts, step, picks):
                yield nodes.take(owners), found & mask

    def _items(self, nodes: Any, shape: Shape, c: Columns) -> Iterator[tuple[Any, Any]]:
        """The items of deques, whose blocks are chains."""
        np = self.np
        for i in np.flatnonzero(c.word(shape.var)).tolist():
            try:
                words = np.array(self.heap.rt.object(int(c.at[i])).element_addresses(), dtype=np.int64)
            except GdbextError as e:
                log.passed_over(e)
                continue  # damaged, or changed while it is read
            yield np.full(len(words), nodes[i], dtype=np.int32), words

    # ---- references --------------------------------------------------------------------------------------------------
    def _resolve(self, sources: Any, words: Any) -> tuple[Any, Any]:
        """Keeps the references to nodes; -> (sources, words) of those that may lead to other objects."""
        np = self.np
        good = np.flatnonzero((words & 7 == 0) & ((words - PAGE).view(np.uint64) < TOP - PAGE))
        sources, words = sources.take(good), words.take(good)
        for places, nodes in self._places:
            targets = places.find(words)
            hit, others = np.flatnonzero(targets >= 0), np.flatnonzero(targets < 0)
            found = targets.take(hit) if nodes is None else nodes.take(targets.take(hit))
            self._edges.append((sources.take(hit).astype(np.int64) << 32) | found)
            sources, words = sources.take(others), words.take(others)
        new = np.flatnonzero(~self.seen.of(words))
        sources, words = sources.take(new), words.take(new)
        there = np.flatnonzero(self.reader.mapped(words))
        return sources.take(there), words.take(there)

    def _settle(self, pending: list[tuple[Any, Any]]) -> tuple[Any, Any, Any]:
        """Counts the leaves to which `pending` refers; -> (sources, words, numbers of types) of the references to objects that
        hold others, sorted by words."""
        np, heap = self.np, self.heap
        sources, words = self._joined(pending, np.int64)
        order = np.argsort(words)
        sources, words = sources.take(order), words.take(order)
        starts = np.flatnonzero(np.diff(words, prepend=-1))
        unique = words.take(starts)
        first = np.minimum.reduceat(sources, starts) if len(starts) else sources
        holds, types = np.zeros(len(unique), dtype=bool), np.zeros(len(unique), dtype=np.int32)
        for part in self.reader.batches(unique):
            own = types[part] = self._object_types(unique[part])
            forms = self._form_numbers(own)
            leaf = np.array([False, *(shape.leaf for shape in heap.forms)]).take(forms)
            leaves = np.flatnonzero(leaf)
            self._count(first[part].take(leaves), unique[part].take(leaves), own.take(leaves))
            holds[part] = (forms > 0) & ~leaf
        self.seen.add(unique[~holds])
        length = np.diff(starts, append=len(words))
        keep = np.flatnonzero(np.repeat(holds, length))
        return sources.take(keep), words.take(keep), np.repeat(types[holds], length[holds])

    def _new(self, held: list[tuple[Any, Any, Any]]) -> range:
        """Adds the objects that `_settle` returned as nodes."""
        np = self.np
        sources, words = self._joined([part[:2] for part in held], np.int64)
        types = np.concatenate([self._none, *(part[2] for part in held)])
        order = np.argsort(words)
        words = words[order]
        starts = np.flatnonzero(np.diff(words, prepend=-1))
        block = self._add(words[starts], types[order[starts]])
        if not len(block):
            return block
        nodes = np.arange(block.start, block.stop, dtype=np.int32)
        self._later.append((sources[order], np.repeat(nodes, np.diff(starts, append=len(words)))))
        others = np.concatenate(self.columns["addresses"][1:])
        order = np.argsort(others)
        tracked = len(self.columns["addresses"][0])
        self._places[1:] = [(Places(np, others[order]), (tracked + order).astype(np.int32))]
        return block

    def _joined(self, pairs: list[tuple[Any, Any]], dtype: Any) -> tuple[Any, Any]:
        """Two columns in one piece each: nodes, and values of `dtype`."""
        none = self._none, self._none.astype(dtype)
        first, second = (self.np.concatenate(column) for column in zip(none, *pairs))
        return first, second

    def _count(self, sources: Any, words: Any, types: Any) -> None:
        np, heap = self.np, self.heap
        if not len(words):
            return
        sizes, good = np.zeros(len(words), dtype=np.int64), np.zeros(len(words), dtype=bool)
        for places, shape, c in self._groups(words, types, slice(0, len(words))):
            sizes[places], good[places] = self._sizes(shape, c, False)
        sources, types, sizes = sources[good], types[good], sizes[good]
        counts, total_bytes = np.bincount(types), np.bincount(types, sizes)
        for number in np.flatnonzero(counts).tolist():
            total = heap.leaves.setdefault(heap.numbers.values[number], [0, 0])
            total[0] += int(counts[number])
            total[1] += int(total_bytes[number])
        if len(sizes):
            heap.leaf_bytes.append((sources, sizes.astype(np.int32) if sizes.max() < 1 << 31 else sizes))

    def _object_types(self, words: Any) -> Any:
        """The number of the type of the object at each address; where no object is, the number of 0, which is no type."""
        np, L = self.np, self.heap.rt.layout
        head = self.reader.record(words, L["object.__size"])
        kinds = head.word(L["object.ob_type"])
        good = counted(self.heap.rt, head.word(0)) & (kinds & 7 == 0) & (kinds >= PAGE) & (kinds < TOP)
        kinds = np.where(good, kinds, 0)
        unique = distinct(np, kinds)
        meta = self.reader.record(unique, L["object.__size"]).word(L["object.ob_type"])
        types = np.where(np.isin(meta, np.array(self.heap.metatypes(), dtype=np.int64)), unique, 0)
        return self.heap.numbers.of(types).take(np.searchsorted(unique, kinds))

    def finish(self) -> None:
        """Puts the blocks together."""
        np, heap = self.np, self.heap
        del self.reader, self.seen, self._places
        give_back()
        for name, (column, *others) in self.columns.items():
            at, more = len(column), np.concatenate([column[:0], *others])
            if more.dtype == column.dtype:
                column.resize(at + len(more), refcheck=False)  # in place: one more column is much memory
                column[at:] = more
            else:
                column = np.concatenate([column, more])
            setattr(heap, name, column)
        self.columns.clear()
        heap.begin, heap.targets = self._graph(len(heap.addresses))

    def _graph(self, count: int) -> tuple[Any, Any]:
        """`Heap.begin` and `Heap.targets`."""
        np = self.np
        counts, targets = np.zeros(count + 1, dtype=np.int32), np.concatenate([self._none, *self._targets])
        np.concatenate([self._none, *self._counts], out=counts[1 : 1 + sum(map(len, self._counts))])
        begin = _begin(np, counts)
        sources, later = self._joined(self._later, np.int32)
        if len(sources):
            order = np.argsort(sources)  # neighbours that refer to nothing else have the same place
            sources, later = sources.take(order), later.take(order)
            targets = np.insert(targets, begin[sources + 1], later)
            np.add.at(counts, sources + 1, 1)
            begin = _begin(np, counts)
        give_back()
        return begin, targets


def _begin(np: Any, counts: Any) -> Any:
    """The place where each node's references begin, and the end of the last one's. `counts`: of each node, after a 0."""
    return np.cumsum(counts, dtype=np.int32 if counts.sum() < 1 << 31 else np.int64)
