"""Finds the tensor that an address, a Python object or a gdb.Value stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import log
from ..errors import FaultError, GdbextError, LayoutError
from ..render.text import escape
from . import layout as layouts
from . import tensor_impl as tensors
from .tensor import Tensor

if TYPE_CHECKING:
    from ..access.base import Target
    from ..cpython.objects import Object
    from ..cpython.runtime import Runtime


def at_address(target: Target, rt: Runtime | None, address: int) -> tuple[Tensor, str]:
    """The tensor whose Python object, TensorImpl or at::Tensor lies at `address`, and which of the three it is.

    `GdbextError` where it is none of them.
    """
    if rt is not None:
        try:
            is_object = tensors.is_tensor(rt.object(address))
        except (FaultError, LayoutError) as e:
            log.passed_over(e)
            is_object = False
        if is_object:
            return tensors.read_tensor(rt, address), "address of a Python object"
    table = layouts.for_process(target, rt)
    try:
        tensor, how = tensors.read_tensor_impl(target, table, address), "address of a TensorImpl"
    except (FaultError, LayoutError) as first:
        log.passed_over(first, f"{address:#x} as a TensorImpl")
        try:
            pointer = target.u64(address)
            tensor, how = tensors.read_tensor_impl(target, table, pointer), "address of an at::Tensor"
        except (FaultError, LayoutError):
            raise GdbextError(f"{address:#x} is neither a Python tensor nor an at::Tensor nor a TensorImpl: {first}") from None
    if rt is not None and tensor.address:
        try:  # the Python object knows the class's name
            tensor = tensors.read_tensor(rt, tensor.address)
        except GdbextError as e:
            log.passed_over(e)
    return tensor, how


def address_of(value: Any) -> int:
    """The address in a `gdb.Value`: the value of a number or a pointer, or the address of an object in memory. For an at::Tensor
    in a register or a function's result: its TensorImpl. `GdbextError` for anything else."""
    try:
        return int(value)
    except (RuntimeError, TypeError, ValueError):  # gdb.error is a RuntimeError: no scalar, then it is the object itself
        pass
    if value.address is not None:
        return int(value.address)
    try:
        return int(value["impl_"]["target_"])
    except (RuntimeError, TypeError, ValueError):
        raise GdbextError(f"a {value.type} is neither a tensor nor an address") from None


def where_to_look(text: str, value: Object) -> str:
    """Advice for `text`, a value that is no tensor: an element of the container, or pyprint."""
    try:
        if value.isa("list", "tuple") and value.len():
            return f"; take one of its {value.len()} elements: {text}[0]"
        if value.isa("dict"):
            keys = [repr(k.string(60)) for k, v in value.items()[:200] if tensors.is_tensor(v)][:3]
            if keys:
                return escape(f"; take one of its items, such as {text}[{keys[0]}]")
    except GdbextError as e:
        log.passed_over(e)
    return "; pyprint shows it"
