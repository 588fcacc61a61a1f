"""A torch tensor read out of memory: from its Python object, or from its c10::TensorImpl alone.

Every layout is proved on the tensor itself before it is believed: the vtable names a TensorImpl of a torch library, the impl
points back at its Python object, the references count, `numel_` is the product of the sizes, dtype and device are enumerators,
the storage is a StorageImpl. One that does not fit is refused by `LayoutError`. Offsets: layouts/torch.json; the meaning of the
fields: c10/core/TensorImpl.h, StorageImpl.h, DispatchKeySet.h, torch/csrc/autograd/variable.h of each release.
"""

import dataclasses
import struct
from typing import Optional, Tuple

from ..errors import FaultError, GdbextError, LayoutError
from ..render.text import escape
from . import dtypes, rtti
from . import layout as layouts

MAX_DIMS = 256
INLINE_DIMS = 5  # SizesAndStrides keeps this many in place (C10_SIZES_AND_STRIDES_MAX_INLINE_SIZE)
MAX_VALUES = 100_000  # elements decoded for one answer
GAP = 1024  # bytes: elements closer than this are read in one piece
TENSOR_BASES = ("torch._C.TensorBase", "torch._C._TensorBase")
_LAYOUT_NAMES = {
    "Sparse": "sparse_coo",
    "SparseCsr": "sparse_csr",
    "SparseCsc": "sparse_csc",
    "SparseBsr": "sparse_bsr",
    "SparseBsc": "sparse_bsc",
    "Mkldnn": "_mkldnn",
}
SPARSE = ("at::SparseTensorImpl", "at::SparseCsrTensorImpl")
# Tensors around another one, which is their first member (ATen/functorch/BatchedTensorImpl.h, TensorWrapper.h, ATen/FunctionalTensorWrapper.h:
# `Tensor value_; int64_t level_;`, then `int64_t bdim_` or `bool is_immutable_; std::shared_ptr<bool> is_alive_`), so it stands where TensorImpl ends; proved by being a TensorImpl.
WRAPPERS = ("at::functorch::BatchedTensorImpl", "at::functorch::TensorWrapper", "at::FunctionalTensorWrapper")
NESTED = "at::native::NestedTensorImpl"
MAX_COMPONENTS = 10_000
_PACKED = ("quint4x2", "quint2x4")  # several elements a byte
_DENSE = ("c10::TensorImpl", "at::QTensorImpl")


@dataclasses.dataclass
class Tensor:
    """What a tensor is. Addresses are ints (0: none); sizes and strides count elements, `storage_bytes` bytes.

    `shape` and `stride` are None where the tensor keeps them elsewhere (nested, symbolic); `notes`: what is not the whole truth.
    """

    target: object
    table: object  # the TorchLayout
    impl: int
    address: int = 0  # of the Python object
    type: str = ""  # the Python class's name, else the C++ class
    kind: str = ""  # the C++ class
    plain: bool = True  # exactly torch.Tensor or torch.nn.Parameter
    is_parameter: bool = False  # of torch.nn.Parameter's class
    counts_as_parameter: bool = False  # isinstance(t, Parameter) holds by the flag `_is_param`
    shape: Optional[Tuple[int, ...]] = None
    stride: Optional[Tuple[int, ...]] = None
    dtype: object = None  # a DType
    device: str = ""
    layout: str = "strided"
    storage_offset: int = 0
    numel: Optional[int] = 0  # None where the shape is
    storage: int = 0  # the StorageImpl
    storage_data: int = 0
    storage_bytes: Optional[int] = None
    requires_grad: Optional[bool] = False  # None: could not be told
    grad_fn: str = ""
    grad_fn_object: int = 0  # the Python object of a grad_fn that Python code defines
    is_conj: bool = False
    is_neg: bool = False
    is_zero: bool = False  # ZeroTensor: all zeros, without memory
    quantizer: object = None
    own_repr: bool = False  # its class has a __repr__ of its own
    parts_in: tuple = ()  # the attributes that hold tensors, of one whose values are in them
    notes: list = dataclasses.field(default_factory=list)

    @property
    def data_ptr(self):
        """The address of the first element, as tensor.data_ptr() says; 0 for no memory (and, as in torch, for no elements)."""
        return self.storage_data + self.storage_offset * self.dtype.itemsize if self.storage_data and self.numel else 0

    @property
    def unavailable(self):
        """Why the values cannot be read, in one clause; '' when they can be tried."""
        kind = self.device.partition(":")[0]
        if self.kind in WRAPPERS:
            return f"this {self.kind} is around another tensor, which has the values: pytensor {wrapped(self)[0].impl:#x}"
        if self.parts_in:
            return f"a {self.type} has its values in its attributes: look at its .{', .'.join(self.parts_in)}"
        if self.kind == NESTED:
            return "a nested tensor has no elements of its own; its components are in its repr"
        if self.shape is None:
            return f"the sizes of this {self.kind} are not in it"
        if kind == "meta" or self.is_zero or self.numel == 0:
            return ""
        if kind == "cuda" and self.target.device_memory is None:
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
        needed = (self.storage_offset + 1 + sum((n - 1) * s for n, s in zip(self.shape, self.stride))) * self.dtype.itemsize
        if not self.storage_data or (self.storage_bytes is not None and needed > self.storage_bytes):
            return (
                f"its storage holds {self.storage_bytes or 0} bytes at {self.storage_data:#x}, {needed} are needed: "
                f"the memory was given back (resize_(0) of FSDP, sleep mode) and nothing is left to show"
            )
        return ""

    # ---- elements --------------------------------------------------------------------------------------------------
    def values(self, indices):
        """The elements at `indices` (tuples, one int per dimension) as Python values, in order: what `.tolist()` gives.

        Conjugate and negative views are resolved, quantized elements dequantized. Only these elements are read, neighbours
        together. `GdbextError` where the values cannot be had.
        """
        if self.unavailable:
            raise GdbextError(f"tensor at {self.address or self.impl:#x}: {self.unavailable}")
        if self.kind in SPARSE:
            raise GdbextError(
                f"tensor at {self.address or self.impl:#x}: elements of a {self.layout} tensor are not looked up one by one"
            )
        if self.device.startswith("meta"):
            raise GdbextError(f"tensor at {self.address or self.impl:#x}: a meta tensor has no values")
        if len(indices) > MAX_VALUES:
            raise GdbextError(f"{len(indices)} elements are more than {MAX_VALUES} at once: take a part with -slice")
        size = self.dtype.itemsize
        if self.is_zero:
            return self.dtype.decode(bytes(size)) * len(indices)
        offsets = [(self.storage_offset + sum(i * s for i, s in zip(index, self.stride))) * size for index in indices]
        blobs = self._gather(sorted(set(offsets)), size)
        found = self.dtype.decode(b"".join(blobs[o] for o in offsets))
        if self.is_neg:
            found = [-v for v in found]
        if self.is_conj:
            found = [v.conjugate() for v in found]
        return self.quantizer.dequantize(found, indices) if self.quantizer else found

    def _gather(self, offsets, size):
        """{byte offset in the storage: its `size` bytes}; `offsets` are sorted."""
        runs = []
        for o in offsets:
            if o < 0 or (self.storage_bytes is not None and o + size > self.storage_bytes):
                raise LayoutError(
                    f"tensor at {self.address or self.impl:#x} reaches outside its storage of {self.storage_bytes} bytes"
                )
            if runs and o - runs[-1][1] <= GAP:
                runs[-1][1] = o + size
            else:
                runs.append([o, o + size])
        found, i = {}, 0
        read_many = self.target.read_many if not self.device.startswith("cuda") else self.target.read_device
        for (start, end), blob in zip(runs, read_many([(self.storage_data + a, b - a) for a, b in runs])):
            if blob is None:
                raise FaultError(self.storage_data + start, end - start, "the tensor's memory was freed, or the core left it out")
            while i < len(offsets) and offsets[i] < end:
                at = offsets[i] - start
                found[offsets[i]] = blob[at : at + size]
                i += 1
        return found

    # ---- slices ----------------------------------------------------------------------------------------------------
    def sliced(self, text):
        """The view that Python's `t[text]` makes, for ints, slices and `...`; `GdbextError` as torch would complain."""
        if self.shape is None or self.stride is None:
            raise GdbextError(
                f"tensor at {self.address or self.impl:#x}: {self.unavailable or 'it has no strides'}: it cannot be sliced"
            )
        words = [w.strip() for w in text.strip().strip("[]").split(",")]
        if words and words[-1] == "" and len(words) > 1:
            words.pop()
        if words.count("...") > 1 or len([w for w in words if w != "..."]) > len(self.shape):
            raise GdbextError(f"-slice {text}: too many indices for a tensor of {len(self.shape)} dimensions")
        if "..." in words:
            at = words.index("...")
            words[at : at + 1] = [":"] * (len(self.shape) - len(words) + 1)
        words += [":"] * (len(self.shape) - len(words))
        shape, stride, offset = [], [], self.storage_offset
        for dim, word in enumerate(words):
            n, step = self.shape[dim], self.stride[dim]
            numbers = [_number(p, text) for p in word.split(":")]
            if len(numbers) == 1:
                if numbers[0] is None:
                    raise GdbextError(f"-slice {text}: an index is missing")
                if not -n <= numbers[0] < n:
                    raise GdbextError(f"-slice {text}: index {numbers[0]} is out of bounds for dimension {dim} with size {n}")
                offset += (numbers[0] % n) * step
                continue
            if len(numbers) > 3 or (len(numbers) == 3 and numbers[2] is not None and numbers[2] <= 0):
                raise GdbextError(f"-slice {text}: torch takes start:stop:step with a step greater than zero")
            picked = range(n)[slice(*numbers)]
            shape.append(len(picked))
            stride.append(step * picked.step)
            offset += picked.start * step if len(picked) else min(picked.start, n) * step
        numel = 1
        for n in shape:
            numel *= n
        sub = dataclasses.replace(self, shape=tuple(shape), stride=tuple(stride), storage_offset=offset, numel=numel)
        sub.requires_grad, sub.grad_fn, sub.is_parameter, sub.counts_as_parameter = False, "", False, False
        if self.plain:
            sub.type = "Tensor"
        if self.quantizer:
            sub.quantizer = self.quantizer.sliced(words)
        return sub


def _number(word, text):
    try:
        return int(word, 0) if word.strip() else None
    except ValueError:
        raise GdbextError(f"-slice {text}: {word.strip()!r} is neither an integer, a slice nor ...") from None


@dataclasses.dataclass
class Quantizer:
    """An affine quantizer: value = (stored - zero point) * scale, in float32. One pair, or one per index of `axis`."""

    scheme: str
    scales: object
    zero_points: object
    axis: Optional[int] = None
    parts: object = None  # the Tensors of scales and zero points, where they are tensors
    pick: object = None  # index in `axis` of a slice -> channel

    def dequantize(self, stored, indices):
        if self.axis is None:
            return [_f32((v - self.zero_points) * _f32(self.scales)) for v in stored]
        if isinstance(self.pick, int):
            channels = [self.pick] * len(stored)
        else:
            channels = [self.pick[i[self.axis]] if self.pick is not None else i[self.axis] for i in indices]
        return [_f32((v - self.zero_points[c]) * _f32(self.scales[c])) for v, c in zip(stored, channels)]

    def sliced(self, words):
        if self.axis is None:
            return self
        kept = [d for d, w in enumerate(words) if ":" in w]
        numbers = [int(p, 0) if p.strip() else None for p in words[self.axis].split(":")]
        channels = range(len(self.scales)) if self.pick is None else self.pick
        if self.axis not in kept:
            return dataclasses.replace(self, pick=channels[numbers[0]])
        return dataclasses.replace(self, axis=kept.index(self.axis), pick=channels[slice(*numbers)])


def _f32(value):
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


# ---- reading -----------------------------------------------------------------------------------------------------------
def is_tensor(obj):
    """Whether an `Object` of the CPython room is a torch tensor, of whatever subclass."""
    return not set(TENSOR_BASES).isdisjoint(obj.mro_names())


def one_line(tensor):
    """ "Tensor[2, 3] float32 cpu": what stands for a `Tensor` inside other output."""
    shape = "?" if tensor.shape is None else ", ".join(map(str, tensor.shape))
    return escape(f"{tensor.type}[{shape}] {tensor.dtype.name} {tensor.device or 'no device'}")


def read_tensor(rt, address):
    """The `Tensor` of the Python object at `address`. `GdbextError` when it is none, `LayoutError` when it does not add up."""
    obj = rt.object(address)
    if not is_tensor(obj):
        raise GdbextError(f"the {obj.type_name} at {address:#x} is no torch tensor")
    table = layouts.for_process(rt.target, rt)
    at = (
        address + table.offset("THPVariable", "cdata") + rt.layout["object.__size"] - 16
    )  # the table is for a 16-byte object head
    impl = rt.target.u64(at)
    if not impl or impl % 8:
        raise LayoutError(
            f"the {obj.type_name} at {address:#x} has no TensorImpl at +{at - address} (torch {table.minor}): {impl:#x}"
        )
    tensor = read_tensor_impl(rt.target, table, impl, address)
    _describe_python(tensor, obj)
    return tensor


def read_tensor_impl(target, table, impl, python_object=None):
    """The `Tensor` of the c10::TensorImpl at `impl`. `python_object`: the address its `pyobj_` must hold, None: do not care."""

    def off(*path):
        return table.offset("TensorImpl", *path)

    def refuse(why):
        return LayoutError(f"no TensorImpl of torch {table.minor} at {impl:#x}: {why}")

    (kind, *bases), mapping = rtti.lineage(target, impl)
    library = mapping.path.rsplit("/", 1)[-1]
    if "c10::TensorImpl" not in [kind] + bases:
        raise refuse(f"it is a {kind} of {library}")
    if kind.startswith(("c10::", "at::")) and not library.startswith(("libtorch", "libc10")):
        raise refuse(f"its vtable is in {library}, no library of torch")
    blob = target.read(impl, table.size("TensorImpl"))

    def u64(at):
        return struct.unpack_from("<Q", blob, at)[0]

    def i64(at):
        return struct.unpack_from("<q", blob, at)[0]

    count_field = "combined_refcount_" if table.has("TensorImpl", "combined_refcount_") else "refcount_"
    (references,) = struct.unpack_from("<I", blob, off(count_field))
    undefined = kind == "c10::UndefinedTensorImpl"
    if not references and not undefined:
        raise refuse("nothing refers to it any more: it was freed")
    pyobj = u64(off("pyobj_slot_", "PyObjectSlot", "pyobj_")) & ~1  # up to 2.12 the low bit says who owns whom
    if python_object is not None and pyobj != python_object:
        raise refuse(f"its pyobj_ is {pyobj:#x}, not {python_object:#x}")
    policy = table.bits("TensorImpl", "sizes_strides_policy_", blob)
    symbolic = table.bits("TensorImpl", "has_symbolic_sizes_strides_", blob)
    numel = i64(off("numel_"))
    shape, stride = _sizes(target, table, blob, policy, symbolic, refuse)
    if shape is not None:
        product = 1
        for n in shape:
            product *= n
        if product != numel:
            raise refuse(f"numel_ {numel} is not the product of its sizes {list(shape)[:8]}")
    (code,) = struct.unpack_from("<H", blob, off("data_type_"))
    scalar_type = table.name("ScalarType", code)
    if scalar_type is None:
        raise refuse(f"dtype code {code} is none of torch {table.minor}'s")
    t = Tensor(target, table, impl, pyobj, kind=kind, type=kind, shape=shape, stride=stride, numel=numel)
    t.dtype = dtypes.DType("undefined", 0, "raw") if scalar_type == "Undefined" else dtypes.from_scalar_type(scalar_type)
    if scalar_type == "Undefined" and not undefined:
        t.notes.append("its dtype is not set")
    t.device = _device(table, blob, table.row["TensorImpl"]["device_opt_"], refuse)
    t.storage_offset = i64(off("storage_offset_"))
    if t.storage_offset < 0:
        raise refuse(f"storage_offset_ {t.storage_offset}")
    keys = u64(off("key_set_"))
    for field, key in (("is_conj", "Conjugate"), ("is_neg", "Negative"), ("is_zero", "ZeroTensor")):
        bit = table.key_bit(key)
        setattr(t, field, bool(bit and keys & bit))
    t.layout = _layout_name(target, table, t, keys)
    if shape is None:
        t.numel = None
        t.notes.append("its sizes are symbolic" if symbolic else f"a {kind} keeps its sizes elsewhere")
    _storage(target, table, t, u64(off("storage_")), refuse)
    _autograd(target, table, t, u64(off("autograd_meta_")))
    if kind == "at::QTensorImpl":
        t.quantizer = _quantizer(target, table, t)
    return t


def _sizes(target, table, blob, policy, symbolic, refuse):
    base = table.offset("TensorImpl", "sizes_and_strides_")
    (ndim,) = struct.unpack_from("<Q", blob, table.offset("SizesAndStrides", "size_") + base)
    if ndim > MAX_DIMS:
        raise refuse(f"{ndim} dimensions")
    if policy >= 2 or symbolic:
        return None, None
    if ndim <= INLINE_DIMS:
        at = base + table.offset("SizesAndStrides", "inlineStorage_")
        sizes = struct.unpack_from(f"<{ndim}q", blob, at)
        strides = struct.unpack_from(f"<{ndim}q", blob, at + 8 * INLINE_DIMS)
    else:
        (pointer,) = struct.unpack_from("<Q", blob, base + table.offset("SizesAndStrides", "outOfLineStorage_"))
        words = struct.unpack(f"<{2 * ndim}q", target.read(pointer, 16 * ndim))
        sizes, strides = words[:ndim], words[ndim:]
    if any(not 0 <= n < 1 << 62 for n in sizes):
        raise refuse(f"sizes {list(sizes)[:8]}")
    if policy >= 1:
        return tuple(sizes), None
    if any(abs(s) >= 1 << 62 for s in strides):
        raise refuse(f"strides {list(strides)[:8]}")
    return tuple(sizes), tuple(strides)


def device_name(table, kind, index):
    """ "cuda:0" for (1, 0); None for a number that is no device type."""
    name = table.name("DeviceType", kind)
    if name is None or name == "COMPILE_TIME_MAX_DEVICE_TYPES" or not -1 <= index < 4096:
        return None
    name = "privateuseone" if name == "PrivateUse1" else name.lower()
    return name if index < 0 else f"{name}:{index}"


def _device(table, blob, at, refuse):
    if blob[at["engaged"]] not in (0, 1):
        raise refuse(f"its device's flag is {blob[at['engaged']]}")
    if not blob[at["engaged"]]:
        return ""
    kind, index = struct.unpack_from("<bb", blob, at["type"])
    name = device_name(table, kind, index)
    if name is None:
        raise refuse(f"device type {kind}, index {index}")
    return name


def _layout_name(target, table, t, keys):
    if t.kind == "at::SparseTensorImpl":
        return "sparse_coo"
    if t.kind == "at::SparseCsrTensorImpl":
        name = table.name("Layout", target.u8(t.impl + table.offset("SparseCsrTensorImpl", "layout_")))
        return _LAYOUT_NAMES.get(name, (name or "?").lower())
    bit = table.key_bit("MkldnnCPU")
    if bit and keys & bit:
        return "_mkldnn"
    return "strided"


def _storage(target, table, t, pointer, refuse):
    """Storage address, data pointer and size; a null storage is what sparse, batched and undefined tensors have."""
    t.storage = pointer
    if not pointer:
        return
    try:
        t.storage_data, t.storage_bytes, _ = read_storage(target, table, pointer)
    except (FaultError, LayoutError) as e:
        raise refuse(f"its storage: {e}") from None
    if t.storage_bytes is None:
        t.notes.append("its storage's size is symbolic")


def read_storage(target, table, address):
    """-> (data pointer, bytes or None where that is symbolic, device) of the c10::StorageImpl at `address`; `LayoutError` when it is none."""
    try:
        kinds, _ = rtti.lineage(target, address)
    except (FaultError, LayoutError):
        raise LayoutError(f"no StorageImpl at {address:#x}: freed, or this is no tensor") from None
    if "c10::StorageImpl" not in kinds:
        raise LayoutError(f"no StorageImpl at {address:#x}: it is a {kinds[0]}")
    pointer = address + table.offset("StorageImpl", "data_ptr_")
    data = target.u64(pointer + table.offset("DataPtr", "ptr_", "UniqueVoidPtr", "data_"))
    size = target.i64(address + table.offset("StorageImpl", "size_bytes_"))
    kind, index = struct.unpack("<bb", target.read(pointer + table.offset("DataPtr", "device_"), 2))
    return data, size if size >= 0 else None, device_name(table, kind, index) or "no device"


def _autograd(target, table, t, meta):
    """requires_grad, and the name that Python gives grad_fn: for C++ nodes the class, for those of Python code its class."""
    if not meta:
        return
    try:
        kinds, _ = rtti.lineage(target, meta)
        if "torch::autograd::AutogradMeta" not in kinds:
            raise LayoutError(f"a {kinds[0]}")
        flag = target.u8(meta + table.offset("AutogradMeta", "requires_grad_"))
        node = target.u64(meta + table.offset("AutogradMeta", "grad_fn_"))
        if flag > 1 or node % 8:
            raise LayoutError(f"requires_grad_ is {flag}, grad_fn_ {node:#x}")
        nodes = rtti.lineage(target, node)[0] if node else []
        if node and "torch::autograd::Node" not in nodes:
            raise LayoutError(f"its grad_fn_ is a {nodes[0]}")
    except (FaultError, LayoutError) as e:
        t.notes.append(
            f"requires_grad is not known: its AutogradMeta at {meta:#x} does not have torch {table.minor}'s layout ({e})"
        )
        t.requires_grad = None
        return
    t.requires_grad = bool(flag or node)
    if not node:
        return
    t.grad_fn = nodes[0].rsplit("::", 1)[-1]
    if nodes[0] == "torch::autograd::PyNode":  # a node of Python code: its class has the name
        at = ("PyNode", "obj") if table.has("PyNode", "obj") else ("PyNode", "pyobj_slot_", "PyObjectSlot", "pyobj_")
        t.grad_fn_object = target.u64(node + table.offset(*at)) & ~1


def _quantizer(target, table, t):
    pointer = target.u64(t.impl + table.offset("QTensorImpl", "quantizer_"))
    kind = rtti.lineage(target, pointer)[0][0]
    if kind == "at::PerTensorAffineQuantizer":
        at = [pointer + table.offset("PerTensorAffineQuantizer", f) for f in ("scale_", "zero_point_")]
        return Quantizer("per_tensor_affine", target.f64(at[0]), target.i64(at[1]))
    if kind in ("at::PerChannelAffineQuantizer", "at::PerChannelAffineFloatQParamsQuantizer"):
        parts = [
            inner(t, target.u64(pointer + table.offset("PerChannelAffineQuantizer", f))) for f in ("scales_", "zero_points_")
        ]
        found = [part.values([(i,) for i in range(part.shape[0])]) for part in parts]
        axis = target.i64(pointer + table.offset("PerChannelAffineQuantizer", "axis_"))
        if t.shape is None or not 0 <= axis < len(t.shape) or len(found[0]) != t.shape[axis]:
            raise LayoutError(f"the quantizer at {pointer:#x} has {len(found[0])} scales for axis {axis} of {t.shape}")
        scheme = "per_channel_affine" if kind == "at::PerChannelAffineQuantizer" else "per_channel_affine_float_qparams"
        return Quantizer(scheme, found[0], found[1], axis, parts)
    t.notes.append(f"its quantizer is a {kind}, which is not decoded here")
    return None


def inner(tensor, impl):
    """A tensor that is a part of `tensor` (indices, values, scales); it must be a plain dense one, so that nesting ends."""
    part = read_tensor_impl(tensor.target, tensor.table, impl)
    if part.kind != "c10::TensorImpl" or not part.shape:
        raise LayoutError(f"a part of the {tensor.kind} at {tensor.impl:#x} is a {part.kind} of shape {part.shape}")
    return part


def wrapped(tensor):
    """-> (the `Tensor` that one of `WRAPPERS` is around, its level (-2: its functorch transform has ended), its batch dimension or None)."""
    target, at = tensor.target, tensor.impl + tensor.table.size("TensorImpl")
    value = read_tensor_impl(target, tensor.table, target.u64(at))
    level = target.i64(at + 8)
    bdim = target.i64(at + 16) if tensor.kind.endswith("BatchedTensorImpl") else None
    if tensor.kind == "at::functorch::TensorWrapper" and not target.u8(target.u64(at + 24)):  # after a bool, is_alive_
        level = -2
    if not -3 < level < 1 << 20 or (bdim is not None and not 0 <= bdim < MAX_DIMS):
        raise LayoutError(f"the {tensor.kind} at {tensor.impl:#x} has level {level}, batch dimension {bdim}")
    return value, level, bdim


def components(tensor):
    """The `Tensor`s that a strided nested tensor consists of: views of its one storage (ATen/NestedTensorImpl.h)."""
    table, target = tensor.table, tensor.target
    sizes, strides, offsets = (
        read_tensor_impl(target, table, target.u64(tensor.impl + table.offset("NestedTensorImpl", field)))
        for field in ("nested_sizes_", "nested_strides_", "storage_offsets_")
    )
    if sizes.shape is None or offsets.shape is None or len(sizes.shape) != 2 and sizes.numel:
        raise LayoutError(f"the nested tensor at {tensor.impl:#x} has sizes of shape {sizes.shape}")
    count, dims = (offsets.numel, sizes.shape[1] if len(sizes.shape) == 2 else 0)
    if count > MAX_COMPONENTS:
        raise GdbextError(f"the nested tensor at {tensor.impl:#x} has {count} components, more than {MAX_COMPONENTS}")
    if (dims and sizes.shape[0] != count) or strides.shape != sizes.shape:
        raise LayoutError(f"the nested tensor at {tensor.impl:#x} has {count} offsets for sizes of shape {sizes.shape}")
    grid = [(i, d) for i in range(count) for d in range(dims)]
    lengths, steps, starts = sizes.values(grid), strides.values(grid), offsets.values([(i,) for i in range(count)])
    found = []
    for i in range(count):
        shape, stride = tuple(lengths[i * dims : (i + 1) * dims]), tuple(steps[i * dims : (i + 1) * dims])
        numel = 1
        for n in shape:
            if not 0 <= n < 1 << 62:
                raise LayoutError(f"a component of the nested tensor at {tensor.impl:#x} has the size {n}")
            numel *= n
        found.append(
            dataclasses.replace(
                tensor,
                kind="c10::TensorImpl",
                plain=True,
                address=0,
                shape=shape,
                stride=stride,
                storage_offset=starts[i],
                numel=numel,
                requires_grad=False,
                grad_fn="",
                is_parameter=False,
                notes=[],
                parts_in=(),
            )
        )
    return found


def sparse_parts(tensor):
    """The parts of a sparse tensor in the order that torch prints them: [(name, Tensor)], the last one "values"."""
    table, target = tensor.table, tensor.target
    if tensor.layout == "sparse_coo":
        struct, names = "SparseTensorImpl", (("indices", "indices_"), ("values", "values_"))
    elif tensor.layout in ("sparse_csr", "sparse_bsr"):
        struct, names = (
            "SparseCsrTensorImpl",
            (("crow_indices", "crow_indices_"), ("col_indices", "col_indices_"), ("values", "values_")),
        )
    else:
        struct, names = (
            "SparseCsrTensorImpl",
            (("ccol_indices", "crow_indices_"), ("row_indices", "col_indices_"), ("values", "values_")),
        )
    return [(name, inner(tensor, target.u64(tensor.impl + table.offset(struct, field)))) for name, field in names]


def _describe_python(t, obj):
    """Class, parameter-ness and what only Python attributes tell."""
    info = obj.type
    t.address, t.type = obj.address, info.name
    names = [(b.module, b.name) for b in info.bases()]
    t.own_repr = _own_repr(info)
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


def _tensor_attributes(obj):
    """Names of the attributes that are tensors: where a wrapper subclass, a jagged nested tensor or a DTensor keeps its values."""
    found = []
    for name, value in obj.fields():
        try:
            if is_tensor(value):
                found.append(name)
        except (GdbextError, AttributeError):
            continue  # a plain value, or damage beside the point
    return tuple(found[:8])


def _own_repr(info):
    """Whether a class between this one and torch's own defines __repr__: only its code knows then."""
    for base in info.bases():
        if base.module.partition(".")[0] == "torch":
            return False
        if "__repr__" in base.namespace:
            return True
    return False


def is_flagged_parameter(obj):
    """Whether a tensor counts as a Parameter by its attribute `_is_param` alone, as subclasses do."""
    try:
        return obj.attr("_is_param").boolean()
    except (GdbextError, AttributeError):
        return False


def _fake_device(t, obj):
    """A FakeTensor's impl says meta; the device it stands for is a torch.device in its attribute: c10::Device after the head."""
    try:
        device = obj.attr("fake_device")
        kind, index = struct.unpack("<bb", t.target.read(device.address + obj.rt.layout["object.__size"], 2))
        t.device = device_name(t.table, kind, index) or t.device
    except GdbextError:
        t.notes.append("the device it stands for cannot be read")
