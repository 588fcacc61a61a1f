"""Reads a torch tensor out of memory: from its Python object, or from its c10::TensorImpl alone.

Every layout is proved on the tensor itself before it is believed:

- The vtable names a TensorImpl of a torch library, and the impl points back at its Python object.
- Its reference count is not 0, and `numel_` is the product of the sizes.
- dtype and device are enumerators, and the storage is a StorageImpl.

A layout that does not fit is refused by `LayoutError`. Offsets: layouts/torch.json. Meaning of the fields: c10/core/TensorImpl.h,
StorageImpl.h, DispatchKeySet.h, torch/csrc/autograd/variable.h of each release.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

from .. import log
from ..errors import FaultError, GdbextError, LayoutError
from . import dtypes, rtti
from . import layout as layouts
from .layout import TorchLayout
from .tensor import Quantizer, Tensor

if TYPE_CHECKING:
    from ..access.base import Target
    from ..cpython.objects import Object
    from ..cpython.runtime import Runtime
    from ..cpython.types import TypeInfo

MAX_DIMS = 256
INLINE_DIMS = 5  # SizesAndStrides keeps this many in place (C10_SIZES_AND_STRIDES_MAX_INLINE_SIZE)
TENSOR_BASES = ("torch._C.TensorBase", "torch._C._TensorBase")
_LAYOUT_NAMES = {
    "Sparse": "sparse_coo",
    "SparseCsr": "sparse_csr",
    "SparseCsc": "sparse_csc",
    "SparseBsr": "sparse_bsr",
    "SparseBsc": "sparse_bsc",
    "Mkldnn": "_mkldnn",
}


class _Impl:
    """The bytes of one c10::TensorImpl and the data needed to read them. `refuse` makes the `LayoutError` that names it."""

    def __init__(self, target: Target, table: TorchLayout, address: int) -> None:
        self.target, self.table, self.address = target, table, address
        (self.kind, *bases), mapping = rtti.class_hierarchy(target, address)
        library = mapping.path.rsplit("/", 1)[-1]
        if "c10::TensorImpl" not in [self.kind] + bases:
            raise self.refuse(f"it is a {self.kind} of {library}")
        if self.kind.startswith(("c10::", "at::")) and not library.startswith(("libtorch", "libc10")):
            raise self.refuse(f"its vtable is in {library}, no library of torch")
        self.blob = target.read(address, table.size("TensorImpl"))

    def refuse(self, why: str) -> LayoutError:
        return LayoutError(f"no TensorImpl of torch {self.table.minor} at {self.address:#x}: {why}")

    def offset(self, *path: str) -> int:
        return self.table.offset("TensorImpl", *path)

    def number(self, code: str, *path: str) -> int:
        """The field at `path`, as struct's `code` reads it."""
        found: int = struct.unpack_from("<" + code, self.blob, self.offset(*path))[0]
        return found

    def bits(self, field: str) -> int:
        return self.table.bits("TensorImpl", field, self.blob)

    @property
    def undefined(self) -> bool:
        return self.kind == "c10::UndefinedTensorImpl"


def is_tensor(obj: Object) -> bool:
    """Whether an `Object` of the CPython room is a torch tensor, of whatever subclass."""
    return not set(TENSOR_BASES).isdisjoint(obj.mro_names())


def read_tensor(rt: Runtime, address: int) -> Tensor:
    """The `Tensor` of the Python object at `address`. `GdbextError` where it is no tensor, `LayoutError` where it is
    inconsistent."""
    obj = rt.object(address)
    if not is_tensor(obj):
        raise GdbextError(f"the {obj.type_name} at {address:#x} is no torch tensor")
    table = layouts.for_process(rt.target, rt)
    head = rt.layout["object.__size"] - 16  # the table is for an object head of 16 bytes
    at = address + table.offset("THPVariable", "cdata") + head
    impl = rt.target.u64(at)
    if not impl or impl % 8:
        raise LayoutError(
            f"the {obj.type_name} at {address:#x} has no TensorImpl at +{at - address} (torch {table.minor}): {impl:#x}"
        )
    tensor = read_tensor_impl(rt.target, table, impl, address)
    _describe_python(tensor, obj)
    return tensor


def read_tensor_impl(target: Target, table: TorchLayout, impl: int, python_object: int | None = None) -> Tensor:
    """The `Tensor` of the c10::TensorImpl at `impl`. `python_object`: the address that its `pyobj_` must hold; None: any.

    `LayoutError` where no TensorImpl of this release is there, or where it is inconsistent.
    """
    own = _Impl(target, table, impl)
    count_field = "combined_refcount_" if table.has("TensorImpl", "combined_refcount_") else "refcount_"
    if not own.number("I", count_field) and not own.undefined:
        raise own.refuse("nothing refers to it any more: it was freed")
    pyobj = own.number("Q", "pyobj_slot_", "PyObjectSlot", "pyobj_") & ~1  # up to 2.12 the low bit says which owns the other
    if python_object is not None and pyobj != python_object:
        raise own.refuse(f"its pyobj_ is {pyobj:#x}, not {python_object:#x}")
    numel = own.number("q", "numel_")
    shape, stride = _sizes(own)
    if shape is not None and math.prod(shape) != numel:
        raise own.refuse(f"numel_ {numel} is not the product of its sizes {list(shape)[:8]}")
    t = Tensor(target, table, impl, pyobj, kind=own.kind, type=own.kind, shape=shape, stride=stride, numel=numel)
    t.dtype = _dtype(own, t.notes)
    t.device = _device(own)
    t.storage_offset = own.number("q", "storage_offset_")
    if t.storage_offset < 0:
        raise own.refuse(f"storage_offset_ {t.storage_offset}")
    keys = own.number("Q", "key_set_")
    t.is_conj, t.is_neg, t.is_zero = (_has_key(table, keys, key) for key in ("Conjugate", "Negative", "ZeroTensor"))
    t.layout = _layout_name(t, keys)
    if shape is None:
        t.numel = None
        symbolic = own.bits("has_symbolic_sizes_strides_")
        t.notes.append("its sizes are symbolic" if symbolic else f"a {own.kind} keeps its sizes elsewhere")
    _storage(own, t)
    _autograd(t, own.number("Q", "autograd_meta_"))
    if own.kind == "at::QTensorImpl":
        t.quantizer = _quantizer(t)
    return t


def _has_key(table: TorchLayout, keys: int, key: str) -> bool:
    bit = table.key_bit(key)
    return bool(bit and keys & bit)


def _sizes(own: _Impl) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """-> (sizes, strides); None for those that the tensor's class computes instead of keeping them."""
    table = own.table
    base = own.offset("sizes_and_strides_")
    (ndim,) = struct.unpack_from("<Q", own.blob, table.offset("SizesAndStrides", "size_") + base)
    if ndim > MAX_DIMS:
        raise own.refuse(f"{ndim} dimensions")
    policy = own.bits("sizes_strides_policy_")
    if policy >= 2 or own.bits("has_symbolic_sizes_strides_"):
        return None, None
    if ndim <= INLINE_DIMS:
        at = base + table.offset("SizesAndStrides", "inlineStorage_")
        sizes = struct.unpack_from(f"<{ndim}q", own.blob, at)
        strides = struct.unpack_from(f"<{ndim}q", own.blob, at + 8 * INLINE_DIMS)
    else:
        (pointer,) = struct.unpack_from("<Q", own.blob, base + table.offset("SizesAndStrides", "outOfLineStorage_"))
        words = struct.unpack(f"<{2 * ndim}q", own.target.read(pointer, 16 * ndim))
        sizes, strides = words[:ndim], words[ndim:]
    if any(not 0 <= n < 1 << 62 for n in sizes):
        raise own.refuse(f"sizes {list(sizes)[:8]}")
    if policy >= 1:
        return tuple(sizes), None
    if any(abs(s) >= 1 << 62 for s in strides):
        raise own.refuse(f"strides {list(strides)[:8]}")
    return tuple(sizes), tuple(strides)


def _dtype(own: _Impl, notes: list[str]) -> dtypes.DType:
    code = own.number("H", "data_type_")
    scalar_type = own.table.name("ScalarType", code)
    if scalar_type is None or scalar_type == "NumOptions":
        raise own.refuse(f"dtype code {code} is none of torch {own.table.minor}'s")
    if scalar_type != "Undefined":
        return dtypes.from_scalar_type(scalar_type)
    if not own.undefined:
        notes.append("its dtype is not set")
    return dtypes.DType("undefined", 0, "raw")


def device_name(table: TorchLayout, kind: int, index: int) -> str | None:
    """ "cuda:0" for (1, 0); None for a number that is no device type."""
    name = table.name("DeviceType", kind)
    if name is None or name == "COMPILE_TIME_MAX_DEVICE_TYPES" or not -1 <= index < 4096:
        return None
    name = "privateuseone" if name == "PrivateUse1" else name.lower()
    return name if index < 0 else f"{name}:{index}"


def _device(own: _Impl) -> str:
    at = own.table.row["TensorImpl"]["device_opt_"]
    if own.blob[at["engaged"]] not in (0, 1):
        raise own.refuse(f"its device's flag is {own.blob[at['engaged']]}")
    if not own.blob[at["engaged"]]:
        return ""
    kind, index = struct.unpack_from("<bb", own.blob, at["type"])
    name = device_name(own.table, kind, index)
    if name is None:
        raise own.refuse(f"device type {kind}, index {index}")
    return name


def _layout_name(t: Tensor, keys: int) -> str:
    if t.kind == "at::SparseTensorImpl":
        return "sparse_coo"
    if t.kind == "at::SparseCsrTensorImpl":
        name = t.table.name("Layout", t.target.u8(t.impl + t.table.offset("SparseCsrTensorImpl", "layout_"))) or "?"
        return _LAYOUT_NAMES.get(name, name.lower())
    return "_mkldnn" if _has_key(t.table, keys, "MkldnnCPU") else "strided"


def _storage(own: _Impl, t: Tensor) -> None:
    """Storage address, data pointer and size. Sparse, batched and undefined tensors have a null storage."""
    t.storage = own.number("Q", "storage_")
    if not t.storage:
        return
    try:
        t.storage_data, t.storage_bytes, _ = read_storage(own.target, own.table, t.storage)
    except (FaultError, LayoutError) as e:
        raise own.refuse(f"its storage: {e}") from None
    if t.storage_bytes is None:
        t.notes.append("its storage's size is symbolic")


def read_storage(target: Target, table: TorchLayout, address: int) -> tuple[int, int | None, str]:
    """-> (data pointer, bytes or None where that is symbolic, device) of the c10::StorageImpl at `address`.

    `LayoutError` where no StorageImpl is there.
    """
    try:
        kinds, _ = rtti.class_hierarchy(target, address)
    except (FaultError, LayoutError):
        raise LayoutError(f"no StorageImpl at {address:#x}: freed, or this is no tensor") from None
    if "c10::StorageImpl" not in kinds:
        raise LayoutError(f"no StorageImpl at {address:#x}: it is a {kinds[0]}")
    pointer = address + table.offset("StorageImpl", "data_ptr_")
    data = target.u64(pointer + table.offset("DataPtr", "ptr_", "UniqueVoidPtr", "data_"))
    size = target.i64(address + table.offset("StorageImpl", "size_bytes_"))
    kind, index = struct.unpack("<bb", target.read(pointer + table.offset("DataPtr", "device_"), 2))
    return data, size if size >= 0 else None, device_name(table, kind, index) or "no device"


def _autograd(t: Tensor, meta: int) -> None:
    """requires_grad, and Python's name of grad_fn: the C++ class of the node, or the class of a node of Python code."""
    if not meta:
        return
    target, table = t.target, t.table
    try:
        kinds, _ = rtti.class_hierarchy(target, meta)
        if "torch::autograd::AutogradMeta" not in kinds:
            raise LayoutError(f"a {kinds[0]}")
        flag = target.u8(meta + table.offset("AutogradMeta", "requires_grad_"))
        node = target.u64(meta + table.offset("AutogradMeta", "grad_fn_"))
        if flag > 1 or node % 8:
            raise LayoutError(f"requires_grad_ is {flag}, grad_fn_ {node:#x}")
        nodes = rtti.class_hierarchy(target, node)[0] if node else []
        if node and "torch::autograd::Node" not in nodes:
            raise LayoutError(f"its grad_fn_ is a {nodes[0]}")
    except (FaultError, LayoutError) as e:
        t.notes.append(
            f"requires_grad is not known: its AutogradMeta at {meta:#x} does not have torch {table.minor}'s layout ({e})"
        )
        t.requires_grad = None
        return
    t.requires_grad = bool(flag or node)
    t.tangent = _tangent(t, target.u64(meta + table.offset("AutogradMeta", "fw_grad_")))
    if not node:
        return
    t.grad_fn = nodes[0].rsplit("::", 1)[-1]
    if nodes[0] == "torch::autograd::PyNode":  # a node of Python code: its class has the name
        at = ("PyNode", "obj") if table.has("PyNode", "obj") else ("PyNode", "pyobj_slot_", "PyObjectSlot", "pyobj_")
        t.grad_fn_object = target.u64(node + table.offset(*at)) & ~1


def _tangent(t: Tensor, gradient: int) -> int:
    """The TensorImpl that a ForwardGrad keeps for level 0, the only level; 0 where it keeps none.

    torch/csrc/autograd/forward_grad.h: after enable_shared_from_this a libstdc++ unordered_map from levels to tensors (buckets,
    their count, first node, count). A node has: next, level, tensor.
    """
    if not gradient:
        return 0
    try:
        first, count = t.target.u64(gradient + 32), t.target.u64(gradient + 40)
        if not count:
            return 0
        following, level, impl = t.target.words(first, 3)
        if count != 1 or following or level:
            raise LayoutError(f"{count} levels, the first {level}")
        return int(impl)
    except (FaultError, LayoutError) as e:
        t.notes.append(f"it has a tangent that cannot be read ({e})")
        return 0


def _quantizer(t: Tensor) -> Quantizer | None:
    target, table = t.target, t.table
    pointer = target.u64(t.impl + table.offset("QTensorImpl", "quantizer_"))
    kind = rtti.class_hierarchy(target, pointer)[0][0]
    if kind == "at::PerTensorAffineQuantizer":
        at = [pointer + table.offset("PerTensorAffineQuantizer", f) for f in ("scale_", "zero_point_")]
        return Quantizer("per_tensor_affine", target.f64(at[0]), target.i64(at[1]))
    if kind in ("at::PerChannelAffineQuantizer", "at::PerChannelAffineFloatQParamsQuantizer"):
        parts = [
            inner(t, target.u64(pointer + table.offset("PerChannelAffineQuantizer", f))) for f in ("scales_", "zero_points_")
        ]
        found = [part.values([(i,) for i in range(part.numel or 0)]) for part in parts]
        axis = target.i64(pointer + table.offset("PerChannelAffineQuantizer", "axis_"))
        if t.shape is None or not 0 <= axis < len(t.shape) or len(found[0]) != t.shape[axis]:
            raise LayoutError(f"the quantizer at {pointer:#x} has {len(found[0])} scales for axis {axis} of {t.shape}")
        scheme = "per_channel_affine" if kind == "at::PerChannelAffineQuantizer" else "per_channel_affine_float_qparams"
        return Quantizer(scheme, found[0], found[1], axis, parts)
    t.notes.append(f"its quantizer is a {kind}, which is not decoded here")
    return None


def inner(tensor: Tensor, impl: int) -> Tensor:
    """A tensor that is a part of `tensor` (indices, values, scales). It must be a plain dense one, so that nesting ends."""
    part = read_tensor_impl(tensor.target, tensor.table, impl)
    if part.kind != "c10::TensorImpl" or not part.shape:
        raise LayoutError(f"a part of the {tensor.kind} at {tensor.impl:#x} is a {part.kind} of shape {part.shape}")
    return part


def _describe_python(t: Tensor, obj: Object) -> None:
    """Sets the class, whether it is a parameter, and the properties that only Python attributes tell."""
    info = obj.type
    t.address, t.type = obj.address, info.name
    names, t.own_repr = t.target.cached(
        ("tensor class", info.address), lambda: ([(b.module, b.name) for b in info.bases()], _own_repr(info))
    )
    t.plain = names[0] in (("torch", "Tensor"), ("torch.nn.parameter", "Parameter"))
    t.is_parameter = ("torch.nn.parameter", "Parameter") in names
    t.counts_as_parameter = t.is_parameter or (not t.plain and is_flagged_parameter(obj))
    if t.grad_fn_object:
        try:
            t.grad_fn = obj.rt.object(t.grad_fn_object).type_name
        except GdbextError as e:
            t.notes.append(f"the name of its grad_fn cannot be read ({e})")
    fake = ("torch._subclasses.fake_tensor", "FakeTensor") in names
    if fake:
        _fake_device(t, obj)
    elif not t.plain and (t.shape is None or (t.numel and not t.storage_data)) and t.kind == "c10::TensorImpl":
        t.parts_in = _tensor_attributes(obj)


def _tensor_attributes(obj: Object) -> tuple[str, ...]:
    """Names of the attributes that are tensors. A wrapper subclass, a jagged nested tensor or a DTensor keeps its values
    there."""
    found = []
    for name, value in obj.fields():
        try:
            if is_tensor(value):
                found.append(name)
        except (GdbextError, AttributeError) as e:
            log.passed_over(e)
            continue  # a plain value, or damage that does not matter here
    return tuple(found[:8])


def _own_repr(info: TypeInfo) -> bool:
    """Whether a class between this one and torch's own defines __repr__. Then only its code knows the text."""
    for base in info.bases():
        if base.module.partition(".")[0] == "torch":
            return False
        if "__repr__" in base.namespace:
            return True
    return False


def is_flagged_parameter(obj: Object) -> bool:
    """Whether a tensor counts as a Parameter by its attribute `_is_param` alone, as subclasses do."""
    try:
        flagged: bool = obj.attr("_is_param").boolean()
        return flagged
    except (GdbextError, AttributeError) as e:
        log.passed_over(e)
        return False


def _fake_device(t: Tensor, obj: Object) -> None:
    """A FakeTensor's impl says meta. Its attribute, a torch.device, says which device it represents: c10::Device after the
    head."""
    try:
        device = obj.attr("fake_device")
        kind, index = struct.unpack("<bb", t.target.read(device.address + obj.rt.layout["object.__size"], 2))
        t.device = device_name(t.table, kind, index) or t.device
    except GdbextError as e:
        log.passed_over(e)
        t.notes.append("its device cannot be read")
