"""The answers about a heap: its types, its largest containers with their holders, one type's instances, the ways to an object."""

from __future__ import annotations

from typing import Any, Iterable, Sequence

from ..cpython import referrers
from ..cpython.frames import PyFrame
from ..cpython.runtime import Runtime
from ..errors import NotFoundError
from .graph import Ways
from .model import Clock, Heap
from .paths import Names, all_roots
from .walk import walk
from .weak import weak_references


class Sum:
    """One type. `count`, `bytes`: of its tracked objects. `held`, `held_bytes`: of untracked objects that tracked ones hold.
    `exact`: whether the bytes are those of `sys.getsizeof`."""

    __slots__ = ("name", "count", "bytes", "held", "held_bytes", "exact")

    def __init__(self, name: str) -> None:
        self.name, self.count, self.bytes, self.held, self.held_bytes, self.exact = name, 0, 0, 0, 0, True


class Container:
    """One container: `node`, `address`, `type`, `length`, `bytes` (its own) and `retained` (with all that hangs on it)."""

    __slots__ = ("node", "address", "type", "length", "bytes", "retained")

    def __init__(self, census: Census, node: int) -> None:
        heap = census.heap
        self.node, self.address = node, int(heap.addresses[node])
        self.type, self.length, self.bytes = heap.name(heap.kind(node)), int(heap.lengths[node]), int(heap.sizes[node])
        self.retained = int(census.retained[node])


class Census:
    """A heap with the ways to its objects. `frames`: [(PyFrame, whether it is selected)] whose variables are roots too."""

    def __init__(self, rt: Runtime, frames: Sequence[tuple[PyFrame, bool]], clock: Clock | None = None) -> None:
        self.heap: Heap = walk(rt, clock)
        self.names = Names(self.heap, all_roots(rt, frames, self.heap.partial))
        self.ways = Ways(self.heap, list(self.names.roots))
        self.retained = self.ways.gather(self.heap.weights())

    def types(self) -> list[Sum]:
        """`[Sum]` by bytes, the largest first; types of the same name count as one."""
        found: dict[str, Sum] = {}
        for kind, held, count, size in self._counts():
            if not kind:  # it turned out to be no object
                continue
            name, shape = self.heap.name(kind), self.heap.shape(kind)
            own = found.setdefault(name, Sum(name))
            if held:
                own.held, own.held_bytes = own.held + count, own.held_bytes + size
            else:
                own.count, own.bytes = own.count + count, own.bytes + size
            own.exact = own.exact and shape is not None and shape.exact
        return sorted(found.values(), key=lambda s: (-s.bytes - s.held_bytes, s.name))

    def _counts(self) -> Iterable[tuple[int, bool, int, int]]:
        """Yields (type, whether they are only held, count, bytes)."""
        heap, np = self.heap, self.heap.numpy
        for held, part in ((False, slice(0, heap.tracked)), (True, slice(heap.tracked, None))):
            counts, sizes = heap.counts(part)
            found = np.flatnonzero(counts).tolist()
            yield from ((heap.numbers.values[i], held, int(counts[i]), int(sizes[i])) for i in found)
        yield from ((kind, True, count, size) for kind, (count, size) in heap.leaves.items())

    def container_nodes(self) -> Any:
        """The nodes of all containers, an array."""
        return self.heap.numpy.flatnonzero(self.heap.lengths >= 0)

    def containers(self, limit: int) -> list[Container]:
        """The `limit` containers with the most bytes of their own."""
        heap = self.heap
        nodes = self.largest(self.container_nodes(), heap.sizes, limit)
        return [Container(self, node) for node in sorted(nodes, key=lambda n: (-int(heap.sizes[n]), int(heap.addresses[n])))]

    def largest(self, nodes: Any, weights: Any, limit: int) -> list[int]:
        """The `limit` of `nodes` with the largest weights; of equal ones those with the smallest addresses."""
        heap, np = self.heap, self.heap.numpy
        if len(nodes) > limit:
            own = weights[nodes]
            least = np.partition(own, len(own) - limit)[len(own) - limit]
            some, more = nodes[own == least], nodes[own > least]
            nodes = np.concatenate([more, some[np.argsort(heap.addresses[some])][: limit - len(more)]])
        return sorted(nodes.tolist(), key=lambda node: (-int(weights[node]), int(heap.addresses[node])))[:limit]

    def owner(self, node: int) -> referrers.Path | None:
        """The shortest way to a node; None where none leads there."""
        return self.names.path(self.ways, node)

    def instances(self, name: str) -> list[int]:
        """The nodes of a type's instances, the largest first. `name`: its full name or its last part; `NotFoundError`."""
        heap = self.heap
        kinds = {heap.numbers.values[i] for i in heap.numpy.unique(heap.types)}
        wanted = {k for k in kinds if name in (heap.name(k), heap.name(k).rpartition(".")[2])}
        if not wanted:
            leaf = any(name in (heap.name(k), heap.name(k).rpartition(".")[2]) for k in heap.leaves)
            why = "its objects hold nothing and are counted only" if leaf else "no object of it is found"
            raise NotFoundError(f"-type {name}: {why}")
        return sorted(heap.of_kinds(wanted), key=lambda node: (-int(self.retained[node]), node))

    def ways_to(self, address: int, limit: int) -> list[tuple[str, referrers.Path | None]]:
        """`[(type of the holder, path)]` of at most `limit` ways to the object at `address`, one for each holder, the shortest
        first. The path is None for a holder that no root reaches. `NotFoundError` where the heap has no such object."""
        node = self.names.node(address)
        if node < 0:
            raise NotFoundError(
                f"-path {address:#x}: no object that the collector tracks, nor one that refers to others, is there"
            )
        found: list[tuple[int, str, referrers.Path | None]] = []
        if node in self.names.roots:
            found.append((1, "root", self.names.write([node])))
        for holder in self.ways.holders(node):
            chain = self.ways.chain(holder)
            if node in chain:  # a cycle back to itself
                continue
            path = self.names.write([*chain, node]) if chain else None
            kind = self.heap.name(self.heap.kind(holder))
            found.append((len(chain) + 1 if chain else 1 << 30, kind, path))
        return [(kind, path) for _, kind, path in sorted(found, key=lambda f: f[0])[:limit]]

    def weakly(self, address: int, limit: int) -> list[tuple[str, referrers.Path | None]]:
        """`[(type, path)]` of at most `limit` weak references to the object at `address`. They do not hold it."""
        rt, found = self.heap.rt, []
        for reference in weak_references(rt, address, limit):
            node = self.names.node(reference)
            path = self.owner(node) if node >= 0 else None
            found.append((rt.object(reference).type.name, path))
        return found
