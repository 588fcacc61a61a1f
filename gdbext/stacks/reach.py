"""Reads the objects that expressions about a stack lead to, so that a small snapshot answers them.

Breadth first from the variables of all frames, then from the globals of their modules: attributes, items, the values of small
tensors, and the code of properties. Modules, functions and classes end the way: behind them lies everything that was imported.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from .. import log
from ..cpython.adapters import DAMAGED
from ..cpython.objects import Object, is_property
from ..cpython.reprs import NORMAL, SHORT, Repr
from ..cpython.value_attributes import attribute
from ..cpython.values import length
from ..errors import GdbextError
from ..torch import tensor_impl as tensors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..cpython.runtime import Runtime
    from .threads import ProcessView

OBJECTS = 20_000  # that are read of one process
ITEMS = 256  # of one container, from which the way goes on
NAMES = 4096  # of one module
STORAGE = 64 << 10  # bytes of a tensor's storage, up to which its values are read
ENDS = (
    *("module", "type", "function", "builtin_function_or_method", "method_descriptor", "wrapper_descriptor", "code"),
    *("getset_descriptor", "member_descriptor", "classmethod", "staticmethod", "property", "str", "int", "float", "bool"),
    *("bytes", "NoneType", "weakref", "weakref.ReferenceType", "weakref.CallableProxyType", "weakref.ProxyType"),
)


def read(view: ProcessView) -> None:
    """Reads up to `OBJECTS` objects of a process."""
    if view.rt is None:
        return
    seen: set[int] = set()
    types: set[int] = set()
    todo = collections.deque((one, NORMAL) for one in _variables(view))
    while todo and len(seen) < OBJECTS:
        value, limits = todo.popleft()
        if value.address in seen:
            continue
        seen.add(value.address)
        try:
            Repr(limits)(value)
            if value.type.address not in types:
                types.add(value.type.address)
                _properties(value)
            todo.extend((one, SHORT) for one in _behind(view.rt, value))
        except (GdbextError, *DAMAGED) as e:
            log.note(f"not read for a snapshot: the object at {value.address:#x}: {e}")


def _variables(view: ProcessView) -> Iterator[Object]:
    """The values of the variables of all frames, then those of their modules."""
    frames = [frame for thread in view.threads for frame in thread.python]
    modules: dict[int, Object] = {}
    for frame in frames:
        with log.passing_over(GdbextError):
            yield from (value for _, value in frame.locals() if value is not None)
            names = frame.globals()
            modules.setdefault(names.address, names)
    for names in modules.values():
        with log.passing_over(GdbextError):
            yield from (value for _, value in names.items(NAMES))


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
