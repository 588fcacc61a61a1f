"""The targets of a kernel launch's arguments: tensors, the KV cache, strings, mappings."""

from __future__ import annotations

import os
from typing import Any, Callable

from .. import log
from ..access.base import Target
from ..cpython.runtime import Runtime
from ..errors import FaultError, GdbextError, LayoutError, NotFoundError
from ..render.jsonline import Address
from ..render.text import escape
from ..torch import layout as torch_layouts
from ..torch import repr as reprs
from ..torch import tensor_impl as tensors
from ..torch.tensor import Tensor
from .launch import Argument

MAX_TENSORS = 4096  # of the thread's Python variables, searched for the target of an argument
MAX_FRAMES = 64
TEXT = 80  # bytes of a string that are shown


class TensorVariables:
    """The tensors in the Python variables of one thread, by the memory they cover; they are searched at the first use.

    `rt`, `tid`: of the Python thread; `rt` None where the process runs no Python."""

    def __init__(self, target: Target, rt: Runtime | None, tid: int | None) -> None:
        self.target, self.rt, self.tid = target, rt, tid
        self._found: list[tuple[Tensor, str, str]] | None = None
        self.table: Any = None  # torch's layout

    def found(self) -> list[tuple[Tensor, str, str]]:
        """[(tensor, variable's name, function)]"""
        if self._found is None:
            self._found = []
            rt = self.rt
            if rt is None or self.tid is None:
                return self._found
            try:
                thread = rt.thread(self.tid)
                frames = rt.frames(thread) if thread is not None else []
            except GdbextError as e:
                log.passed_over(e)
                return self._found
            for frame in frames[:MAX_FRAMES]:
                for name, value in frame.locals():
                    if value is None or len(self._found) >= MAX_TENSORS:
                        continue
                    try:
                        if tensors.is_tensor(value):
                            self._found.append((tensors.read_tensor(rt, value.address), name, frame.function))
                    except GdbextError as e:
                        log.passed_over(e)
                        continue
        return self._found

    def holder(self, address: int) -> tuple[Tensor, str, str] | None:
        """(tensor, name, function) of a tensor that an address lies in, preferably one that begins there; None without any."""
        inside = None
        for tensor, name, function in self.found():
            start, length = tensor.storage_data or 0, tensor.storage_bytes or 0
            if tensor.data_ptr == address:
                return tensor, name, function
            if start <= address < start + length and inside is None:
                inside = tensor, name, function
        return inside

    def text(self, impl: int) -> str:
        """The values of a tensor as torch prints them, or the reason why they cannot be read."""
        try:
            text: str = reprs.tensor_repr(self.tensor(impl), reprs.process_options(self.rt, self.table))
        except GdbextError as e:
            return str(e)
        return text

    def tensor(self, impl: int) -> Tensor:
        """The at::Tensor with this TensorImpl."""
        if self.table is None:
            self.table = torch_layouts.for_process(self.target, self.rt)
        found: Tensor = tensors.read_tensor_impl(self.target, self.table, impl)
        return found


def describe(argument: Argument, find: Callable[[int], Any], variables: TensorVariables) -> dict[str, Any] | None:
    """The target of a pointer: {kind, text, …}; None where it is unknown. `find`: address -> its place in the KV cache,
    or None."""
    target = variables.target
    kind = argument.type.replace(" const", "").replace(" ", "")
    try:
        if kind in ("at::Tensor&", "at::Tensor*", "at::Tensor&&"):
            return tensor_at(target.u64(argument.value), find, variables)
        if kind == "std::optional<at::Tensor>&":
            if not target.u8(argument.value + 8):
                return {"kind": "none", "text": "no tensor (std::nullopt)"}
            return tensor_at(target.u64(argument.value), find, variables)
        if kind.startswith("std::__cxx11::basic_string<char") and kind.endswith("&"):
            data, length = target.words(argument.value, 2)
            text = escape(target.read(data, min(length, TEXT)).decode("utf-8", "replace"))
            return {"kind": "string", "text": f'"{text}"' + ("..." if length > TEXT else ""), "length": length}
    except (FaultError, LayoutError, NotFoundError) as e:
        return {"kind": "unreadable", "text": escape(str(e))}
    kv = find(argument.value)
    if kv is not None:
        return {"kind": "kv", "text": kv_text(kv), "kv": kv}
    holder = variables.holder(argument.value)
    if holder is not None:
        tensor, name, function = holder
        fields = tensor_data(tensor)
        inside = argument.value - (tensor.storage_data or 0)
        where = "" if tensor.data_ptr == argument.value else f", {inside} bytes into its storage"
        fields["text"] += f", local {escape(name)} of {escape(function)}{where}"
        return {**fields, "variable": escape(name), "function": escape(function)}
    mapping = None
    try:
        mapping = target.mapping_at(argument.value)
    except GdbextError as e:
        log.passed_over(e)
        return None
    if mapping is None:
        return {"kind": "unmapped", "text": "nothing that the CPU has mapped (GPU memory?)"}
    if mapping.perms.startswith("-"):
        return {"kind": "reserved", "text": "reserved address space (GPU memory?)"}
    return {"kind": "mapping", "text": f"in {escape(os.path.basename(mapping.path)) or 'anonymous memory'}"}


def kv_text(kv: dict[str, Any]) -> str:
    """A place in the KV cache in words."""
    place = ", ".join(f"{k} {kv[k]}" for k in ("block", "slot", "head") if kv.get(k) is not None)
    return f"KV cache, {kv['rank']} layer {kv['layer']}, {kv['part']}, {place}"


def tensor_at(impl: int, find: Callable[[int], Any], variables: TensorVariables) -> dict[str, Any]:
    """An at::Tensor in words: its kind, the variable that holds the same one, and the layer of the KV cache in which it
    begins."""
    tensor = variables.tensor(impl)
    data = tensor_data(tensor)
    holder = next((h for h in variables.found() if h[0].impl == impl), None)
    if holder is not None:
        data["variable"], data["function"] = escape(holder[1]), escape(holder[2])
        data["text"] += f", local {data['variable']} of {data['function']}"
    kv = find(tensor.data_ptr) if tensor.data_ptr else None
    if kv is not None:
        data["kv"] = kv
        data["text"] += ", " + kv_text(kv)
    return data


def tensor_data(tensor: Tensor) -> dict[str, Any]:
    """A tensor as JSON fields."""
    shape = list(tensor.shape) if tensor.shape is not None else "?"  # of a nested one
    kind = f"{shape} {tensor.dtype.name}" + ("" if tensor.device == "cpu" else f" on {tensor.device}")
    return {
        "kind": "tensor",
        "text": kind,
        "shape": tensor.shape,
        "stride": tensor.stride,
        "dtype": "torch." + tensor.dtype.name,
        "device": tensor.device,
        "data_ptr": Address(tensor.data_ptr),
        "impl": Address(tensor.impl),
    }
