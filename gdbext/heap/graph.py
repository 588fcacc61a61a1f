"""The heap as a graph: the shortest way to each object from the roots, and the objects that hang on each object along these
ways."""

from __future__ import annotations

import bisect
from typing import Any, Iterable, Iterator, Sequence

from .marks import blocks, give_back
from .model import Heap

ROOT, UNREACHED = -1, -2
FEW = 48  # nodes of a level that are cheaper one by one


class Ways:
    """The breadth-first forest of a heap: `parents` by node (`ROOT`, `UNREACHED`), `levels`: the nodes at each distance."""

    def __init__(self, heap: Heap, roots: Iterable[int]) -> None:
        self.heap, self.np = heap, heap.numpy
        count = len(heap.addresses)
        self._begin, self._targets = heap.begin, heap.targets
        self.parents: Any = self.np.full(count, UNREACHED, dtype=self.np.int32)
        self._slots: Any = self.np.zeros(count, dtype=self.np.int32)
        level = []
        for root in roots:
            if self.parents[root] == UNREACHED:
                self.parents[root] = ROOT
                level.append(root)
        self.levels: list[Any] = []
        while len(level):
            self.levels.append(level)
            level = self._next(level)
        del self._slots
        give_back()

    def _next(self, level: Any) -> Any:
        if len(level) < FEW:
            return self._next_singly(level)
        np, level = self.np, self.np.asarray(level, dtype=self.np.int32)
        parts = [level[:0]]
        for sources, targets in self._edges(level):
            new = np.flatnonzero(self.parents.take(targets) == UNREACHED)
            targets, places = targets.take(new), np.arange(len(new), dtype=np.int32)
            self._slots[targets[::-1]] = places[::-1]  # of several that lead to the same one the first remains
            first = np.flatnonzero(self._slots.take(targets) == places)
            targets = targets.take(first)
            self.parents[targets] = sources.take(new.take(first))
            parts.append(targets)
        found = np.concatenate(parts)
        parts.clear()
        found.sort()
        return found

    def _edges(self, level: Any) -> Iterator[tuple[Any, Any]]:
        """Yields (sources, targets) of the references of some nodes, a part of them at once."""
        np, begin = self.np, self._begin
        for nodes in (level[block] for block in blocks(len(level))):
            start, ends = begin[nodes].astype(np.int64), np.cumsum(begin[nodes + 1] - begin[nodes], dtype=np.int64)
            start[1:] -= ends[:-1]
            for part in blocks(int(ends[-1])):
                own = slice(*np.searchsorted(ends, (part.start, part.stop - 1), side="right") + (0, 1))
                length = np.diff(np.minimum(ends[own], part.stop), prepend=part.start)
                places = np.repeat(start[own], length) + np.arange(part.start, part.stop)
                yield np.repeat(nodes[own], length), self._targets.take(places)

    def _next_singly(self, level: Any) -> list[int]:
        found, parents = [], self.parents
        for node in level if isinstance(level, list) else level.tolist():
            for target in self._targets[self._begin[node] : self._begin[node + 1]].tolist():
                if parents[target] == UNREACHED:
                    parents[target] = node
                    found.append(target)
        return found

    def chain(self, node: int) -> list[int]:
        """The nodes from a root to `node`; [] where no way leads there."""
        found = []
        at = int(node)
        while at >= 0:
            found.append(at)
            at = int(self.parents[at])
        return found[::-1] if at == ROOT else []

    def gather(self, weights: Sequence[int]) -> Any:
        """The sum of `weights` over each node and all nodes that hang on it. The sums overwrite an array of `weights`."""
        np = self.np
        total = np.asarray(weights)
        for level in reversed(self.levels[1:]):
            if len(level) < FEW:
                for node in level if isinstance(level, list) else level.tolist():
                    total[self.parents[node]] += total[node]
            else:
                for some in (level[block] for block in blocks(len(level))):
                    np.add.at(total, self.parents[some], total[some])
        return total

    def below(self, marked: Iterable[int]) -> Any:
        """A mask of the nodes that hang on one of `marked`; the marked ones themselves are not in it."""
        np = self.np
        under = np.zeros(len(self.parents), dtype=bool)
        stop = set(marked)
        if not stop:
            return under
        mark = np.zeros(len(self.parents), dtype=bool)
        for node in stop:
            mark[node] = True
        for level in self.levels[1:]:
            if len(level) < FEW:
                for node in level if isinstance(level, list) else level.tolist():
                    parent = self.parents[node]
                    under[node] = bool(under[parent] or mark[parent])
            else:
                parents = self.parents[level]
                under[level] = under[parents] | mark[parents]
        return under

    def holders(self, node: int) -> list[int]:
        """The nodes that refer to `node`."""
        places = self.np.flatnonzero(self._targets == node).tolist()
        return sorted({bisect.bisect_right(self._begin, place) - 1 for place in places})
