"""Reads the objects that expressions about a stack lead to, so that a small snapshot answers them.

Breadth first from the variables of all frames, then from the globals of their modules and of the engine's: attributes, items, the
values of small tensors, and the code of properties. Modules, functions and classes end the way: behind them lies everything that
was imported.
"""

from __future__ import annotations

import collections
from typing import Iterable, Iterator

from .. import log
from ..cpython.adapters import DAMAGED
from ..cpython.frames import PyFrame
from ..cpython.objects import Object, is_property
from ..cpython.reprs import NORMAL, SHORT, Repr
from ..cpython.runtime import Runtime
from ..cpython.value_attributes import attribute
from ..cpython.values import length
from ..engines import registry
from ..errors import GdbextError
from ..torch import tensor_impl as tensors
from .threads import ProcessView

OBJECTS, MORE = 16_000, 4_000  # that are read of one process
ITEMS = 256  # of one container, from which the way goes on
NAMES = 4096  # of one module
STORAGE = 64 << 10  # bytes of a tensor's storage, up to which its values are read
STATE = ("__main__", "sys", "os", "threading", "asyncio", "logging", "multiprocessing", "signal", "gc")
ENDS = (
    *("module", "type", "function", "builtin_function_or_method", "method_descriptor", "wrapper_descriptor", "code"),
    *("getset_descriptor", "member_descriptor", "classmethod", "staticmethod", "property", "str", "int", "float", "bool"),
    *("bytes", "NoneType", "weakref", "weakref.ReferenceType", "weakref.CallableProxyType", "weakref.ProxyType"),
)


def read(view: ProcessView) -> None:
    """Reads up to `OBJECTS` objects of a process for its frames, and up to `MORE` for the modules."""
    if view.rt is None:
        return
    seen: set[int] = set()
    types: set[int] = set()
    frames = [frame for thread in view.threads for frame in thread.python]
    _breadth_first(view.rt, _variables(frames), OBJECTS, seen, types)
    _breadth_first(view.rt, _globals(view.rt, frames), len(seen) + MORE, seen, types)


def _breadth_first(rt: Runtime, roots: Iterable[Object], most: int, seen: set[int], types: set[int]) -> None:
    """Reads objects until `most` are `seen`; of the first of each of the `types` its properties too."""
    todo = collections.deque((one, NORMAL) for one in roots)
    while todo and len(seen) < most:
        value, limits = todo.popleft()
        if value.address in seen:
            continue
        seen.add(value.address)
        try:
            Repr(limits)(value)
            if value.type.address not in types:
                types.add(value.type.address)
                _properties(value)
            todo.extend((one, SHORT) for one in _behind(rt, value))
        except (GdbextError, *DAMAGED) as e:
            log.note(f"not read for a snapshot: the object at {value.address:#x}: {e}")


def _variables(frames: Iterable[PyFrame]) -> Iterator[Object]:
    for frame in frames:
        with log.passing_over(GdbextError):
            yield from (value for _, value in frame.locals() if value is not None)


def _globals(rt: Runtime, frames: Iterable[PyFrame]) -> Iterator[Object]:
    """The variables of the modules that frames are of, of an engine's, of `torch.distributed`, and of those with a program's own
    state."""
    modules: dict[int, Object] = {}
    packages = (*registry.packages(), "torch.distributed", *STATE)
    with log.passing_over(GdbextError):
        modules = {names.address: names for names in (frame.globals() for frame in frames)}
        for name, module in rt.modules().items():
            if any(name == package or name.startswith(package + ".") for package in packages):
                names = rt.module_dict(module)
                if names is not None:
                    modules.setdefault(names.address, names)
    for names in modules.values():
        with log.passing_over(GdbextError):
            yield from (value for _, value in names.items(NAMES) if not value.isa(*ENDS))


def _behind(rt: Runtime, value: Object) -> Iterable[Object]:
    """The objects to which one object leads."""
    if value.isa(*ENDS):
        return
    if tensors.is_tensor(value):
        _tensor(rt, value)
        return
    for _, one in value.fields():
        if isinstance(one, Object):
            yield one
    if value.isa("dict"):
        for key, one in value.items(ITEMS):
            yield key
            yield one
    elif value.isa("list", "tuple", "set", "frozenset", "collections.deque"):
        yield from value.elements(ITEMS)


def _tensor(rt: Runtime, value: Object) -> None:
    tensor = tensors.read_tensor(rt, value.address)
    if tensor.device == "cpu" and tensor.storage_data and 0 < (tensor.storage_bytes or 0) <= STORAGE:
        rt.target.read_partial(tensor.storage_data, tensor.storage_bytes or 0)


def _properties(value: Object) -> None:
    """Reads what the attributes and the length of one object of each class are made of."""
    for base in value.type.bases():
        if not base.is_python:
            continue
        for name, address in base.namespace.items():
            with log.passing_over(GdbextError, *DAMAGED):
                if name == "__len__":
                    length(value)
                elif is_property(value.rt.object(address)):
                    attribute(value, name)
