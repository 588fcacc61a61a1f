"""What a walk of the heap fills: a graph of objects, and the counts of those that hold nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..cpython import gc
from ..cpython.types import TYPE
from ..errors import FaultError, GdbextError, LayoutError
from .shapes import Shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..cpython.runtime import Runtime

GENERATIONS = 4  # three, and the frozen one


class Heap:
    """What a walk found. Nodes are the tracked objects, by address, then what they hold and is not tracked but holds references
    itself; leaves (texts, numbers) are counted alone.

    `addresses`, `types` (addresses of types), `sizes` (bytes), `lengths` (-1: no container), `leaf_bytes` (of leaves that a node
    holds first): by node; `tracked`: how many nodes the collector tracks; `generations`: objects in each, the frozen ones last;
    `sources`, `targets`: nodes of each reference; `leaves`: `{type: [count, bytes]}`; `torn`: objects whose size makes no sense;
    `numpy`: None where these are lists."""

    def __init__(self, rt: Runtime, numpy: Any) -> None:
        self.rt, self.numpy = rt, numpy
        self.addresses: Any = []
        self.types: Any = []
        self.sizes: Any = []
        self.lengths: Any = []
        self.leaf_bytes: Any = []
        self.sources: Any = []
        self.targets: Any = []
        self.tracked = self.torn = 0
        self.generations = [0] * GENERATIONS
        self.leaves: dict[int, list[int]] = {}
        self.shapes: dict[int, Shape | None] = {}
        self.partial: list[str] = []

    def shape(self, kind: int) -> Shape | None:
        """The `Shape` of a type, None where no type can be read."""
        if kind not in self.shapes:
            try:
                self.shapes[kind] = Shape(self.rt, self.rt.type(kind))
            except GdbextError:
                self.shapes[kind] = None
        return self.shapes[kind]

    def metatypes(self) -> list[int]:
        """The types whose instances are types."""
        return [kind for kind, shape in self.shapes.items() if shape is not None and shape.info.flags & TYPE]

    def name(self, kind: int) -> str:
        """A type's full name; builtins without their module, as Python prints them."""
        shape = self.shape(kind)
        try:
            name = shape.info.full_name if shape is not None else f"? {kind:#x}"
        except GdbextError:
            name = f"? {kind:#x}"
        return name[9:] if name.startswith("builtins.") else name


def stretches(heap: Heap, generation: int, head: int, windows: gc.Windows) -> Iterator[tuple[list[int], list[int]]]:
    """As `gc.stretches`; of a process that runs on, what could be read of its youngest objects where they come and go faster."""
    try:
        yield from gc.stretches(heap.rt, head, windows)
    except (LayoutError, FaultError):
        if generation or heap.rt.target.is_stopped:
            raise
        heap.partial.append("the youngest objects come and go faster than they can be read: some may be missing")


def ring_numbers(rt: Runtime) -> list[tuple[int, int]]:
    """[(generation, address of its list's head)] of all interpreters; the frozen one is generation 3."""
    return [(i % GENERATIONS, head) for i, head in enumerate(gc.rings(rt))]
