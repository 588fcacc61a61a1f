"""A torch tensor's properties, its elements and its slices. `tensor_impl` reads it from memory, `tensor_kinds` its parts."""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Sequence

from .. import log
from ..errors import FaultError, GdbextError, LayoutError
from ..render.text import escape
from .dtypes import DType
from .layout import TorchLayout

if TYPE_CHECKING:
    from ..access.base import Target

MAX_VALUES = 100_000  # elements decoded for one answer
GAP = 1024  # bytes: elements closer than this are read in one piece
SPARSE = ("at::SparseTensorImpl", "at::SparseCsrTensorImpl")
# Tensors around another one, which is their first member (ATen/functorch/BatchedTensorImpl.h, TensorWrapper.h,
# ATen/FunctionalTensorWrapper.h: `Tensor value_; int64_t level_;`, then `int64_t bdim_` or `bool is_immutable_;
# std::shared_ptr<bool> is_alive_`), so it stands where TensorImpl ends; it is proved by being a TensorImpl.
WRAPPERS = ("at::functorch::BatchedTensorImpl", "at::functorch::TensorWrapper", "at::FunctionalTensorWrapper")
NESTED = "at::native::NestedTensorImpl"
_PACKED = ("quint4x2", "quint2x4")  # several elements a byte
DEVICE_FILES = re.compile(r"/dev/nvidia(-uvm|\d+)")  # mapped: managed memory, a device's own
_DENSE = ("c10::TensorImpl", "at::QTensorImpl")


@dataclass
class Tensor:
    """The properties of a tensor. Addresses are ints (0: none). Sizes and strides count elements, `storage_bytes` bytes.

    `shape` and `stride` are None where the tensor keeps them elsewhere (nested, symbolic). `notes`: reasons why the answer is
    incomplete.
    """

    target: Target
    table: TorchLayout
    impl: int
    address: int = 0  # of the Python object
    type: str = ""  # the Python class's name, else the C++ class
    kind: str = ""  # the C++ class
    plain: bool = True  # exactly torch.Tensor or torch.nn.Parameter
    is_parameter: bool = False  # of torch.nn.Parameter's class
    counts_as_parameter: bool = False  # isinstance(t, Parameter) holds by the flag `_is_param`
    shape: tuple[int, ...] | None = None
    stride: tuple[int, ...] | None = None
    dtype: DType = None  # type: ignore[assignment]  # read_tensor_impl sets it at once
    device: str = ""
    layout: str = "strided"
    storage_offset: int = 0
    numel: int | None = 0  # None where the shape is
    storage: int = 0  # the StorageImpl
    storage_data: int = 0
    storage_bytes: int | None = None
    requires_grad: bool | None = False  # None: could not be told
    grad_fn: str = ""
    tangent: int = 0  # the TensorImpl of its forward-mode gradient (torch.autograd.forward_ad)
    grad_fn_object: int = 0  # the Python object of a grad_fn that Python code defines
    is_conj: bool = False
    is_neg: bool = False
    is_zero: bool = False  # ZeroTensor: all zeros, without memory
    quantizer: Quantizer | None = None
    own_repr: bool = False  # its class has a __repr__ of its own
    parts_in: tuple[str, ...] = ()  # the attributes that hold tensors, of one whose values are in them
    reader: Any = None  # of another library's array: gives the stored elements of a box (arrays.py)
    notes: list[str] = field(default_factory=list)
    library: ClassVar[str] = "torch"  # whose object it is

    @property
    def name(self) -> str:
        """Its name in messages: its address in the process."""
        return f"tensor at {self.address or self.impl:#x}"

    def one_line(self) -> str:
        """ "Tensor[2, 3] float32 cpu": the text for the tensor inside other output, escaped."""
        shape = "?" if self.shape is None else ", ".join(map(str, self.shape))
        return escape(f"{self.type}[{shape}] {self.dtype_name} {self.device or 'no device'}")

    @property
    def dtype_name(self) -> str:
        """The dtype as its library calls it."""
        return self.dtype.name

    @property
    def data_ptr(self) -> int:
        """The address of the first element, as tensor.data_ptr() says; 0 for no memory (and, as in torch, for no elements)."""
        return self.storage_data + self.storage_offset * self.dtype.itemsize if self.storage_data and self.numel else 0

    @property
    def unavailable(self) -> str:
        """Why the values cannot be read, in one clause; '' when they can be tried."""
        kind = self.device.partition(":")[0]
        if self.kind in WRAPPERS:
            return f"this {self.kind} is around another tensor, which has the values: pytensor {self._wrapped_impl():#x}"
        if self.parts_in:
            return f"a {self.type} has its values in its attributes: look at its .{', .'.join(self.parts_in)}"
        if self.kind == NESTED:
            return "a nested tensor has no elements of its own; its components are in its repr"
        if self.shape is None:
            return f"the sizes of this {self.kind} are not in it"
        if self.numel and not self.dtype.itemsize:
            return "its dtype is not set, so its bytes have no known meaning"
        if kind == "meta" or self.is_zero or self.numel == 0:
            return ""
        if self.on_device and self.target.device_memory is None:
            return (
                f"the values are in the memory of {self.device}, which gdb cannot read: attach with cuda-gdb and read there, "
                f"for example: x/16bx (@global char*) {self.data_ptr:#x}"
            )
        if kind not in ("cpu", "cuda"):
            return f"the values are in the memory of {self.device}, which gdb cannot read"
        if self.kind in SPARSE:
            return ""
        if self.dtype.name in _PACKED and self.quantizer:
            return f"torch.{self.dtype.name} packs several elements into a byte, which is not decoded here"
        if self.kind not in _DENSE or self.stride is None or self.layout != "strided":
            return f"a {self.layout} {self.kind} keeps its values in parts that are not decoded here"
        return self._out_of_storage()

    @property
    def on_device(self) -> bool:
        """Whether its values are in the memory of a CUDA device."""
        return self.device.startswith("cuda") and not self.in_host_memory

    @property
    def unfinished(self) -> str:
        """Why its memory need not hold what the program computed, in one clause: it is in a GPU, whose work has not ended or may
        not have. '' for other memory, and where no GPU is visible."""
        memory = self.target.device_memory if self.numel and self.on_device else None
        return "" if memory is None else memory.unfinished

    @property
    def doubt(self) -> str:
        """Why no conclusion can rest on its values: `unavailable` or `unfinished`; '' where neither holds."""
        return self.unavailable or self.unfinished

    @property
    def in_host_memory(self) -> bool:
        """Whether the storage of a CUDA device's tensor is pinned host memory (UVA: torch.from_blob of cudaHostGetDevicePointer).

        One address space has one memory at an address, so memory that is mapped here for reading is the host's. Exceptions are
        memory that CUDA moves between both (managed memory), and the windows into a device.
        """
        if not self.device.startswith("cuda") or not self.storage_data or not self.storage_bytes:
            return False
        at, end = self.storage_data, self.storage_data + self.storage_bytes
        while at < end:
            mapping = self.target.mapping_at(at)
            if mapping is None or not mapping.perms.startswith("r") or DEVICE_FILES.match(mapping.path):
                return False
            at = mapping.end
        return True

    def _wrapped_impl(self) -> int:
        return self.target.u64(self.impl + self.table.size("TensorImpl"))  # tensor_kinds.wrapped

    def reach(self) -> tuple[int, int]:
        """The bytes of its storage in which its elements lie: (first, one after the last). `GdbextError` without sizes or
        strides."""
        if self.shape is None or self.stride is None:
            raise GdbextError(f"{self.name}: it has no sizes or no strides of its own")
        steps = [(n - 1) * s for n, s in zip(self.shape, self.stride)]
        low = self.storage_offset + sum(s for s in steps if s < 0)
        high = self.storage_offset + sum(s for s in steps if s > 0) + 1
        return low * self.dtype.itemsize, high * self.dtype.itemsize

    def _out_of_storage(self) -> str:
        """Why the storage does not hold the elements; '' where it does."""
        low, high = self.reach()
        if not self.storage_data or self.storage_bytes == 0:
            return (
                f"its storage holds {self.storage_bytes or 0} bytes at {self.storage_data:#x}, {high} are needed: "
                f"the memory was given back (resize_(0) of FSDP, sleep mode) and nothing is left to show"
            )
        if low < 0 or (self.storage_bytes is not None and high > self.storage_bytes):
            return (
                f"it reaches outside its storage: its elements lie at bytes {low} to {high} of {self.storage_bytes}: "
                f"its sizes or strides are damaged, or the storage was made smaller"
            )
        return ""

    # ---- elements --------------------------------------------------------------------------------------------------
    def values(self, indices: Sequence[tuple[int, ...]]) -> list[Any]:
        """The elements at `indices` (tuples, one int per dimension) as Python values, in order, as `.tolist()` gives them.

        Conjugate and negative views are resolved, quantized elements dequantized. Only these elements are read, neighbours
        together. `GdbextError` where the values cannot be had.
        """
        found = self.dtype.decode(b"".join(self.stored(indices)))
        if self.is_neg:
            found = [-v for v in found]
        if self.is_conj:
            found = [v.conjugate() for v in found]
        return self.quantizer.dequantize(found, indices) if self.quantizer else found

    def stored(self, indices: Sequence[tuple[int, ...]]) -> list[bytes]:
        """As `values`, the bytes that each element is stored as."""
        if self.unavailable:
            raise GdbextError(f"{self.name}: {self.unavailable}")
        if self.kind in SPARSE:
            raise GdbextError(f"{self.name}: elements of a {self.layout} tensor are not looked up one by one")
        if self.device.startswith("meta"):
            raise GdbextError(f"{self.name}: a meta tensor has no values")
        if len(indices) > MAX_VALUES:
            raise GdbextError(f"{len(indices)} elements are more than {MAX_VALUES} at once: take a part with -slice")
        size = self.dtype.itemsize
        if self.is_zero:
            return [bytes(size)] * len(indices)
        stride = self.stride or ()
        offsets = [(self.storage_offset + sum(i * s for i, s in zip(index, stride))) * size for index in indices]
        blobs = self._gather(sorted(set(offsets)), size)
        return [blobs[o] for o in offsets]

    def _gather(self, offsets: Sequence[int], size: int) -> dict[int, bytes]:
        """{byte offset in the storage: its `size` bytes}; `offsets` are sorted."""
        runs: list[list[int]] = []
        for o in offsets:
            if o < 0 or (self.storage_bytes is not None and o + size > self.storage_bytes):
                raise LayoutError(f"{self.name} reaches outside its storage of {self.storage_bytes} bytes")
            if runs and o - runs[-1][1] <= GAP:
                runs[-1][1] = o + size
            else:
                runs.append([o, o + size])
        found, i = {}, 0
        for (start, end), blob in zip(runs, self.read_ranges([(self.storage_data + a, b - a) for a, b in runs])):
            if blob is None:
                raise FaultError(self.storage_data + start, end - start, "the tensor's memory was freed, or the core left it out")
            while i < len(offsets) and offsets[i] < end:
                at = offsets[i] - start
                found[offsets[i]] = blob[at : at + size]
                i += 1
        return found

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes | None]:
        """As `Target.read_many`, in the memory of its storage: the host's or a device's."""
        if self.on_device:
            return self.target.read_device(ranges)
        return host_ranges(self.target, ranges)

    def read_bytes(self, start: int, size: int) -> bytes:
        """`size` bytes from byte `start` on, counted from its first element. `FaultError` where they cannot be read."""
        (found,) = self.read_ranges([(self.data_ptr + start, size)])
        if found is None:
            raise FaultError(self.data_ptr + start, size)
        return bytes(found)

    # ---- slices ----------------------------------------------------------------------------------------------------
    def sliced(self, text: str) -> Tensor:
        """The view that Python's `t[text]` makes, for ints, slices and `...`; `GdbextError` as torch would complain."""
        words = [w.strip() for w in text.strip().strip("[]").split(",")]
        if words and words[-1] == "" and len(words) > 1:
            words.pop()
        return self.indexed([_key(word, text) for word in words], f"-slice {text}")

    def indexed(self, keys: Sequence[Any], shown: str = "") -> Tensor:
        """The view that `t[keys]` makes; `keys`: ints, slices and at most one Ellipsis. `shown`: the index in messages.

        `GdbextError` as torch would complain.
        """
        if self.shape is None or self.stride is None:
            raise GdbextError(f"{self.name}: {self.unavailable or 'it has no strides'}: it cannot be sliced")
        shown = shown or f"[{', '.join(map(_shown_key, keys))}]"
        full, own = slice(None), list(keys)
        if own.count(Ellipsis) > 1 or len([k for k in own if k is not Ellipsis]) > len(self.shape):
            raise GdbextError(f"{shown}: too many indices for a tensor of {len(self.shape)} dimensions")
        if Ellipsis in own:
            at = own.index(Ellipsis)
            own[at : at + 1] = [full] * (len(self.shape) - len(own) + 1)
        own += [full] * (len(self.shape) - len(own))
        shape, stride, offset = [], [], self.storage_offset
        for dim, key in enumerate(own):
            n, step = self.shape[dim], self.stride[dim]
            if not isinstance(key, slice):
                if not -n <= key < n:
                    raise GdbextError(f"{shown}: index {key} is out of bounds for dimension {dim} with size {n}")
                offset += (key % n) * step
                continue
            if key.step is not None and key.step <= 0:
                raise GdbextError(f"{shown}: torch takes start:stop:step with a step greater than zero")
            picked = range(n)[key]
            shape.append(len(picked))
            stride.append(step * picked.step)
            offset += picked.start * step if len(picked) else min(picked.start, n) * step
        sub = replace(self, shape=tuple(shape), stride=tuple(stride), storage_offset=offset, numel=math.prod(shape))
        sub.requires_grad, sub.grad_fn, sub.is_parameter, sub.counts_as_parameter = False, "", False, False
        if sub.tangent:
            sub.tangent = 0
            sub.notes = [*sub.notes, "its tangent, a part of the whole tensor's, is not shown"]
        if self.plain:
            sub.type = "Tensor"
        if self.quantizer:
            sub.quantizer = self.quantizer.indexed(own)
        return sub


def host_ranges(target: Target, ranges: Sequence[tuple[int, int]]) -> list[bytes | None]:
    """As `Target.read_many`; one range alone is not cut into pages."""
    if len(ranges) != 1:
        found: list[bytes | None] = target.read_many(ranges)
        return found
    try:
        return [target.read(*ranges[0])]
    except FaultError as e:
        log.passed_over(e)
        return [None]


def _key(word: str, text: str) -> Any:
    """An index of -slice: an int, a slice or Ellipsis."""
    if word == "...":
        return Ellipsis
    numbers = [_number(part, text) for part in word.split(":")]
    if len(numbers) == 1:
        if numbers[0] is None:
            raise GdbextError(f"-slice {text}: an index is missing")
        return numbers[0]
    if len(numbers) > 3:
        raise GdbextError(f"-slice {text}: torch takes start:stop:step with a step greater than zero")
    return slice(*numbers)


def _shown_key(key: Any) -> str:
    if not isinstance(key, slice):
        return "..." if key is Ellipsis else str(key)
    parts = [key.start, key.stop] + ([key.step] if key.step is not None else [])
    return ":".join("" if part is None else str(part) for part in parts)


def _number(word: str, text: str) -> int | None:
    try:
        return int(word, 0) if word.strip() else None
    except ValueError:
        raise GdbextError(f"-slice {text}: {word.strip()!r} is neither an integer, a slice nor ...") from None


@dataclass
class Quantizer:
    """An affine quantizer: value = (stored - zero point) * scale, in float32. One pair, or one per index of `axis`."""

    scheme: str
    scales: Any
    zero_points: Any
    axis: int | None = None
    parts: Any = None  # the Tensors of scales and zero points, where they are tensors
    pick: Any = None  # index in `axis` of a slice -> channel

    def dequantize(self, stored: list[int], indices: Sequence[tuple[int, ...]]) -> list[float]:
        """The values of the `stored` ints; `indices`: their places in the tensor."""
        if self.axis is None:
            return [_f32((v - self.zero_points) * _f32(self.scales)) for v in stored]
        if isinstance(self.pick, int):
            channels = [self.pick] * len(stored)
        else:
            channels = [self.pick[i[self.axis]] if self.pick is not None else i[self.axis] for i in indices]
        return [_f32((v - self.zero_points[c]) * _f32(self.scales[c])) for v, c in zip(stored, channels)]

    def indexed(self, keys: Sequence[Any]) -> Quantizer:
        """The quantizer of the view that `keys`, an int or a slice per dimension, make."""
        if self.axis is None:
            return self
        key = keys[self.axis]
        channels = range(len(self.scales)) if self.pick is None else self.pick
        if not isinstance(key, slice):
            return replace(self, pick=channels[key])
        axis = sum(isinstance(k, slice) for k in keys[: self.axis])
        return replace(self, axis=axis, pick=channels[key])


def _f32(value: float) -> float:
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return rounded
