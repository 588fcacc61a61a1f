"""torch.nn.Module from outside: the tree of a model's modules, the modules that a compiler took over, and the tensors in a
module's return value.

Source: torch/nn/modules/module.py: `_modules` is a dict, `_compiled_call_impl` is set by `Module.compile`.
"""

from __future__ import annotations

from typing import Any, Iterator, Sequence

from .. import log
from ..cpython.frames import Code
from ..cpython.objects import Object
from ..cpython.runtime import Runtime
from ..cpython.types import DICT, LIST, TUPLE
from ..errors import GdbextError, NotFoundError
from .tensor_impl import is_tensor

MODULE = "torch.nn.modules.module"
CALL = "_wrapped_call_impl"  # torch 2.1 and later: `__call__` of every module
MAX_MODULES = 100_000
MAX_OUTPUTS = 64  # tensors of one return value
MAX_DEPTH = 3  # containers in containers of a return value
COMPILED = "OptimizedModule"  # torch.compile of a module makes one (torch/_dynamo/eval_frame.py)


class Node:
    """A module of a tree: `path` as named_modules() gives it ("" for the root), `kind` (its class's name), `children`."""

    __slots__ = ("address", "path", "kind", "children", "shared")

    def __init__(self, address: int, path: str, kind: str, children: int) -> None:
        self.address, self.path, self.kind, self.children = address, path, kind, children
        self.shared = False  # it has several paths, of which `path` is the first


def call_code(rt: Runtime) -> Code:
    """The `Code` of `Module._wrapped_call_impl`. `NotFoundError` where the process has no torch.nn, or one without it."""
    contents = rt.module(MODULE)
    if contents is None:
        raise NotFoundError(f"{rt.target.describe()} has not imported torch.nn: it has no modules")
    held = rt.type(contents.item("Module").address).lookup(CALL)
    if held is None:
        raise NotFoundError(f"this torch's Module has no {CALL} (torch 2.1 and later have it): its calls cannot be told apart")
    return rt.code(rt.target.u64(held + rt.layout["func.func_code"]))


def is_module(obj: Object) -> bool:
    """Whether an object is a torch.nn.Module, of whatever subclass."""
    return any(base.name == "Module" and base.module == MODULE for base in obj.type.bases())


def children(module: Object) -> list[tuple[str, Object]]:
    """`[(name, module)]` of a module's `_modules`, those that are None left out."""
    own = dict(module.instance_entries())
    held = module.rt.object(own["_modules"]) if "_modules" in own else None
    if held is None or not held.type.flags & DICT:
        return []
    return [(key.string(1000), value) for key, value in held.items() if not value.is_none()]


def tree(root: Object) -> dict[int, Node]:
    """{address: `Node`} of a module and all below it, in the order of named_modules(); a shared one has its first path."""
    found: dict[int, Node] = {}
    waiting = [("", root)]
    while waiting and len(found) < MAX_MODULES:
        path, module = waiting.pop()
        if module.address in found:
            found[module.address].shared = True
            continue
        below = children(module)
        found[module.address] = Node(module.address, path, module.type_name, len(below))
        waiting += [(f"{path}.{name}" if path else name, child) for name, child in reversed(below)]
    return found


def compiled(rt: Runtime, nodes: dict[int, Node], marks: Sequence[str] = ()) -> list[str]:
    """Paths of the modules whose calls a compiler took over; calls below them need not pass through Python. `marks`: names of
    attributes that an engine's own decorators set, and that are False where they compile."""
    found = []
    for node in nodes.values():
        own = dict(rt.object(node.address).instance_entries())
        called = own.get("_compiled_call_impl")
        taken = called is not None and not rt.object(called).is_none()
        if taken or node.kind == COMPILED or any(_is_false(rt, own[mark]) for mark in marks if mark in own):
            found.append(node.path)
    return found


def _is_false(rt: Runtime, address: int) -> bool:
    obj = rt.object(address)
    return obj.isa("bool") and not obj.boolean()


def tensors_in(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Object]]:
    """Yields `(place, tensor)` of a return value: `("", it)` for a tensor, `("[0]", …)`, `("['x']", …)`, `(".x", …)` for those
    in tuples, lists, dicts and objects, `MAX_DEPTH` deep."""
    if not isinstance(value, Object):
        return
    if is_tensor(value):
        yield name, value
        return
    if depth >= MAX_DEPTH or value.is_none() or is_module(value):
        return
    inner: list[tuple[str, Any]] = []
    flags = value.type.flags
    if flags & (TUPLE | LIST):
        inner = [(f"[{i}]", item) for i, item in enumerate(value.elements(MAX_OUTPUTS))]
    elif flags & DICT:
        inner = [(f"[{_key(key)}]", item) for key, item in value.items()[:MAX_OUTPUTS]]
    elif value.type.is_heap:
        inner = [(f".{key}", item) for key, item in value.fields()[:MAX_OUTPUTS]]
    for place, item in inner:
        yield from tensors_in(item, name + place, depth + 1)


def _key(key: Object) -> str:
    try:
        return repr(key.string(200))
    except GdbextError as e:
        log.passed_over(e)
        return key.type_name
