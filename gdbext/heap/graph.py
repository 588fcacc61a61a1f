"""The heap as a graph: the shortest way to each object from the roots, and what hangs on each object along these ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .model import Heap

ROOT, UNREACHED = -1, -2
FEW = 48  # nodes of a level that are cheaper one by one


class Ways:
    """The breadth-first forest of a heap: `parents` by node (`ROOT`, `UNREACHED`), `levels`: the nodes at each distance."""

    def __init__(self, heap: Heap, roots: Iterable[int]) -> None:
        self.heap, self.np = heap, heap.numpy
        count = len(heap.addresses)
        self._begin: Any
        if self.np is None:
            self.parents: Any = [UNREACHED] * count
            self._lists: list[list[int]] = [[] for _ in range(count)]
            for source, target in zip(heap.sources, heap.targets):
                self._lists[source].append(target)
        else:
            np = self.np
            self.parents = np.full(count, UNREACHED, dtype=np.int64)
            self._begin = np.concatenate([[0], np.cumsum(np.bincount(heap.sources, minlength=count))])
            self._targets = heap.targets[np.argsort(heap.sources, kind="stable")]
        level = []
        for root in roots:
            if self.parents[root] == UNREACHED:
                self.parents[root] = ROOT
                level.append(root)
        self.levels: list[Any] = []
        while len(level):
            self.levels.append(level)
            level = self._next(level)
        self._lists = []

    def _next(self, level: Any) -> Any:
        if self.np is None or len(level) < FEW:
            return self._next_singly(level)
        np, begin = self.np, self._begin
        level = np.asarray(level)
        start, length = begin[level], begin[level + 1] - begin[level]
        total = int(length.sum())
        index = np.arange(total) + np.repeat(start - (np.cumsum(length) - length), length)
        targets = self._targets[index]
        new = self.parents[targets] == UNREACHED
        found, first = np.unique(targets[new], return_index=True)
        self.parents[found] = np.repeat(level, length)[new][first]
        return found

    def _next_singly(self, level: Any) -> list[int]:
        found, parents = [], self.parents
        for node in level if isinstance(level, list) else level.tolist():
            targets = self._lists[node] if self.np is None else self._targets[self._begin[node] : self._begin[node + 1]].tolist()
            for target in targets:
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
        """The sum of `weights` over each node and all that hangs on it."""
        np = self.np
        total = list(weights) if np is None else np.array(weights)
        for level in reversed(self.levels[1:]):
            if np is None or len(level) < FEW:
                for node in level if isinstance(level, list) else level.tolist():
                    total[self.parents[node]] += total[node]
            else:
                np.add.at(total, self.parents[level], total[level])
        return total

    def below(self, marked: Iterable[int]) -> Any:
        """Which nodes hang on one of `marked`, these themselves not."""
        np = self.np
        under = [False] * len(self.parents) if np is None else np.zeros(len(self.parents), dtype=bool)
        stop = set(marked)
        if not stop:
            return under
        mark: Any = [False] * len(self.parents) if np is None else np.zeros(len(self.parents), dtype=bool)
        for node in stop:
            mark[node] = True
        for level in self.levels[1:]:
            if np is None or len(level) < FEW:
                for node in level if isinstance(level, list) else level.tolist():
                    parent = self.parents[node]
                    under[node] = bool(under[parent] or mark[parent])
            else:
                parents = self.parents[level]
                under[level] = under[parents] | mark[parents]
        return under

    def holders(self, node: int) -> list[int]:
        """The nodes that refer to `node`."""
        heap = self.heap
        if self.np is None:
            return sorted({s for s, t in zip(heap.sources, heap.targets) if t == node})
        return sorted(set(heap.sources[heap.targets == node].tolist()))
