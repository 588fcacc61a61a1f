"""Ways through the heap as text: an expression of this pack, where attributes and items lead along the way.

A step may have no expression (a member of a set, a field of a C type). Then the expression begins anew with the object's address,
and the shown path names the type of that object.
"""

from __future__ import annotations

from typing import Iterator, Sequence

from .. import log
from ..cpython import referrers
from ..cpython.frames import PyFrame
from ..cpython.libraries import numpy_objects
from ..cpython.objects import Object
from ..cpython.runtime import Runtime
from ..cpython.types import DICT, LIST, MEMBER_OBJECT, TUPLE, TYPE
from ..errors import FaultError, GdbextError
from . import exits
from .graph import Ways
from .marks import TOP
from .model import Heap

MAX_STEPS = 40  # of a path that is written out; a longer one is a chain
NAMESPACE = ""  # the step from an object to the dict of its attributes
FIELDS = {
    "function": {
        "func_closure": ".__closure__",
        "func_defaults": ".__defaults__",
        "func_kwdefaults": ".__kwdefaults__",
        "func_globals": ".__globals__",
        "func_dict": NAMESPACE,
    },
}


def all_roots(rt: Runtime, frames: Sequence[tuple[PyFrame, bool]], partial: list[str]) -> list[referrers.Root]:
    """The roots of all ways: every module's globals, `__main__`'s first, then the variables of `frames`: [(PyFrame,
    selected)], then what the interpreter holds for its end and for signals. `partial` gets what could not be read of these."""
    roots: list[referrers.Root] = list(referrers.module_roots(rt))
    for name, module in rt.modules().items():
        contents = rt.module_dict(module)
        if contents is not None:
            roots.append(referrers.Root(f"({contents.address:#x})", contents.address, shown=f"{name}.__dict__"))
    return roots + referrers.frame_roots(frames) + exits.roots(rt, partial)


class Names:
    """Writes the ways of a heap: `path(node)`."""

    def __init__(self, heap: Heap, roots: list[referrers.Root]) -> None:
        self.heap, self.rt = heap, heap.rt
        self.roots: dict[int, referrers.Root] = {}
        index = self._index([root.address for root in roots])
        for root, node in zip(roots, index):
            if node >= 0:
                self.roots.setdefault(node, root)
        self._steps: dict[tuple[int, int], str | None] = {}

    def _index(self, addresses: list[int]) -> list[int]:
        wanted = {a for a in addresses if a < TOP}
        found: dict[int, int] = {}
        np, known, tracked = self.heap.numpy, self.heap.addresses, self.heap.tracked
        asked = np.array(sorted(wanted), dtype=np.int64)
        for first, part, order in ((0, known[:tracked], None), (tracked, known[tracked:], np.argsort(known[tracked:]))):
            place = np.searchsorted(part, asked, sorter=order)
            inside = place < len(part)
            nodes = place[inside] if order is None else order[place[inside]]
            same = part[nodes] == asked[inside]
            found.update(zip(asked[inside][same].tolist(), (first + nodes[same]).tolist()))
        return [found.get(a, -1) for a in addresses]

    def node(self, address: int) -> int:
        """The node at an address, -1 where none is."""
        return self._index([address])[0]

    def path(self, ways: Ways, node: int) -> referrers.Path | None:
        """The way to a node as text; None where none leads there."""
        return self.write(ways.chain(node))

    def write(self, chain: list[int]) -> referrers.Path | None:
        """A chain of nodes that begins at a root, as text."""
        root = self.roots.get(chain[0]) if chain else None
        if root is None:
            return None
        namespace = False
        text = root.text or f"({root.address:#x})"
        shown = root.shown or text
        if len(chain) > MAX_STEPS:
            chain = [*chain[: MAX_STEPS // 2], *chain[-2:]]
        for parent, child in zip(chain, chain[1:]):
            step = self._step(parent, child)
            if step is None:
                text, namespace = f"({int(self.heap.addresses[child]):#x})", False
                shown += f".<{self.heap.name(self.heap.kind(child)).rpartition('.')[2]}>"
                continue
            if step == NAMESPACE:
                namespace = True
                continue
            if namespace:
                attribute = step[2:-2] if step[:2] in ("['", '["') and step[2:-2].isidentifier() else None
                step = f".{attribute}" if attribute else ".__dict__" + step
            namespace = False
            text, shown = text + step, shown + step
        if namespace:
            text, shown = text + ".__dict__", shown + ".__dict__"
        return referrers.Path(text, shown or text, root.note)

    def _step(self, parent: int, child: int) -> str | None:
        key = (parent, child)
        if key not in self._steps:
            try:
                self._steps[key] = _step(
                    self.rt, self.rt.object(int(self.heap.addresses[parent])), int(self.heap.addresses[child])
                )
            except GdbextError as e:
                log.passed_over(e)
                self._steps[key] = None
        return self._steps[key]


def _step(rt: Runtime, obj: Object, child: int) -> str | None:
    """The step from an object to another that it refers to: `.name`, `[3]`, `['k']`. `NAMESPACE` for the dict of its attributes;
    None where no expression leads there."""
    info = obj.type
    if info.flags & DICT:
        key = next((k for k, v in obj.dict_entries() if v == child), 0)
        text = referrers.key_text(rt, key) if key else None
        return None if text is None else f"[{text}]"
    at = next((i for i, value in _elements(obj) if value == child), None)
    if at is not None:
        return f"[{at}]"
    if info.builtin_name == "module":
        return NAMESPACE if rt.target.u64(obj.address + rt.layout["module.md_dict"]) == child else None
    if info.flags & TYPE:
        return NAMESPACE if rt.type(obj.address).dict_address == child else None
    if info.builtin_name == "cell":
        return ".cell_contents"
    for field, step in FIELDS.get(info.builtin_name, {}).items():
        if rt.target.u64(obj.address + rt.layout[f"func.{field}"]) == child:
            return step
    return _attribute(rt, obj, child)


def _elements(obj: Object) -> Iterator[tuple[object, int]]:
    """(place, address) of each element of a sequence and of an array of objects."""
    info = obj.type
    if info.flags & (LIST | TUPLE) or "collections.deque" in info.builtin_bases():
        yield from enumerate(obj.element_addresses())
    if "numpy.ndarray" in info.builtin_bases():
        yield from ((", ".join(map(str, index)), value) for index, value in numpy_objects.objects(obj))


def _attribute(rt: Runtime, obj: Object, child: int) -> str | None:
    if not obj.type.is_heap:
        return None
    try:
        if rt.dialect.dict_pointer(rt, obj) == child:
            return NAMESPACE
    except FaultError as e:
        log.passed_over(e)
    for name, value in rt.dialect.instance_entries(rt, obj):
        if value == child and name.isidentifier():
            return f".{name}"
    for name, (offset, kind) in obj.type.slots.items():
        if kind in MEMBER_OBJECT and name.isidentifier() and rt.target.u64(obj.address + offset) == child:
            return f".{name}"
    return None
