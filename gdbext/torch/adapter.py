"""The answers of torch's own objects in Python expressions and reprs, from memory: tensors, their sizes, dtypes and devices, and
the children of modules.

An operation gives the result of torch under torch.no_grad(): `t[0]` a view, `t.max()` a tensor without dimensions, `t.shape` a
torch.Size. Only comparisons of single elements differ: they give a bool, where torch makes a tensor of it.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any, Callable, Sequence

from ..cpython.adapters import Adapter
from ..cpython.objects import Object
from ..cpython.types import DICT
from ..errors import GdbextError
from . import arrays, dtypes, small, stats
from . import layout as layouts
from . import repr as reprs
from .dtypes import DType
from .scalars import Scalar, rounded
from .small import SMALL
from .tensor import Tensor
from .tensor_impl import MAX_DIMS, device_name, read_tensor

if TYPE_CHECKING:
    from ..cpython.reprs import Repr

MAX_REDUCED = 1 << 28  # elements that one min(), mean() or any() looks at


class Size(Adapter):
    """A torch.Size: a tuple that prints its name."""

    type_name, reprs = "torch.Size", None

    def __init__(self, sizes: Sequence[int], obj: Object | None = None) -> None:
        super().__init__(obj)
        self.sizes = tuple(sizes)

    @classmethod
    def of_object(cls, obj: Object) -> Size:
        """Of a torch.Size of the process, which is a tuple of ints."""
        return cls([member.integer() for member in obj.elements(MAX_DIMS)], obj)

    def text(self, printer: Repr, depth: int) -> str:
        return f"torch.Size({list(self.sizes)})"

    def length(self) -> int:
        return len(self.sizes)

    def item(self, key: Any) -> Any:
        found = self.sizes[key]
        return Size(found) if isinstance(key, slice) else found

    def members(self, limit: int) -> list[int]:
        return list(self.sizes[:limit])

    def plain(self) -> tuple[int, ...]:
        return self.sizes

    def truth(self) -> bool:
        return bool(self.sizes)

    def call(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return math.prod(self.sizes) if name == "numel" and not args and not kwargs else NotImplemented


class _Word:
    """The key by which dtypes and devices are compared: equal only to one of the same kind and text."""

    def __init__(self, kind: str, text: str) -> None:
        self.key = kind, text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Word) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return self.key[1]


class Dtype(Adapter):
    """A torch.dtype, of the process or of a tensor that was read."""

    type_name, reprs = "torch.dtype", None

    def __init__(self, dtype: DType, obj: Object | None = None) -> None:
        super().__init__(obj)
        self.dtype = dtype

    @classmethod
    def of_object(cls, obj: Object) -> Adapter:
        """From a THPDtype (torch/csrc/Dtype.h): after the object's head a ScalarType, one byte."""
        table = layouts.for_process(obj.rt.target, obj.rt)
        code = obj.rt.target.u8(obj.address + obj.rt.layout["object.__size"])
        name = table.name("ScalarType", code)
        return cls(dtypes.from_scalar_type(name), obj) if name else Adapter(obj)

    def text(self, printer: Repr, depth: int) -> str:
        return "torch." + self.dtype.name

    def attribute(self, name: str) -> Any:
        if name == "itemsize":
            return self.dtype.itemsize
        if name == "is_floating_point":
            return self.dtype.kind == "float"
        return self.dtype.kind == "complex" if name == "is_complex" else NotImplemented

    def plain(self) -> _Word:
        return _Word("dtype", "torch." + self.dtype.name)


class Device(Adapter):
    """A torch.device, of the process or of a tensor that was read. `name`: "cuda:0"."""

    type_name, reprs = "torch.device", None

    def __init__(self, name: str, obj: Object | None = None) -> None:
        super().__init__(obj)
        self.kind, _, index = name.partition(":")
        self.index = int(index) if index else None

    @classmethod
    def of_object(cls, obj: Object) -> Adapter:
        """From a THPDevice (torch/csrc/Device.h): after the object's head a c10::Device, the type and the index, a byte each."""
        table = layouts.for_process(obj.rt.target, obj.rt)
        kind, index = struct.unpack("<bb", obj.rt.target.read(obj.address + obj.rt.layout["object.__size"], 2))
        name = device_name(table, kind, index)
        return cls(name, obj) if name else Adapter(obj)

    def text(self, printer: Repr, depth: int) -> str:
        return f"device(type='{self.kind}'" + (f", index={self.index})" if self.index is not None else ")")

    def attribute(self, name: str) -> Any:
        return {"type": self.kind, "index": self.index}.get(name, NotImplemented)

    def plain(self) -> _Word:
        return _Word("device", self.kind + (f":{self.index}" if self.index is not None else ""))


class _Value(Adapter):
    """A tensor without dimensions, as torch would return it from a reduction. `of`: the tensor that was reduced."""

    type_name = "Tensor"

    def __init__(self, value: Any, dtype: DType, of: Tensor) -> None:
        super().__init__(None)
        self.value, self.dtype, self.of = value, dtype, of

    def text(self, printer: Repr, depth: int) -> str:
        text: str = reprs.scalar_repr(self.value, self.dtype, self.of.device, reprs.options_in(self.of.target))
        return text

    def attribute(self, name: str) -> Any:
        known = {"shape": Size(()), "dtype": Dtype(self.dtype), "device": Device(self.of.device), "ndim": 0}
        return known.get(name, NotImplemented)

    def call(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if args or kwargs or name not in ("item", "tolist", "numel", "dim"):
            return NotImplemented
        return {"numel": 1, "dim": 0}.get(name, self.value)

    def has_integers(self) -> bool:
        return bool(self.dtype.kind == "int")

    def plain(self) -> Scalar:
        return Scalar(self.value, self.dtype)

    def truth(self) -> bool:
        return bool(self.value)


class _Mask(Adapter):
    """`t.isnan()` and its like: a condition on each element, which only `any()` and `all()` can use."""

    type_name = "Tensor"

    def __init__(self, tensor: Tensor, test: str) -> None:
        super().__init__(None)
        self.of, self.test = tensor, test

    def text(self, printer: Repr, depth: int) -> str:
        raise GdbextError(f".{self.test}() of every element is not made here: .{self.test}().any() and .all() are answered")

    def call(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if args or kwargs or name not in ("any", "all"):
            return NotImplemented
        found = _reduced(self.of)
        holding = {"isnan": found["nan"], "isinf": found["inf"]}.get(self.test, found["count"] - found["nan"] - found["inf"])
        answer = holding > 0 if name == "any" else holding == found["count"]
        return _Value(answer, dtypes.DTYPES["bool"], self.of)


class TensorAdapter(Adapter):
    """A tensor of the process, or a view of one that an expression makes."""

    type_name, reprs = "Tensor", None

    def __init__(self, obj: Object | None, view: Tensor | None = None) -> None:
        super().__init__(obj)
        self._tensor = view

    @property
    def tensor(self) -> Tensor:
        """The tensor, read when it is first asked for."""
        if self._tensor is None:
            self._tensor = read_tensor(self.own.rt, self.own.address)
        return self._tensor

    def text(self, printer: Repr, depth: int) -> str:
        if self.object is None and not depth and not self.tensor.unavailable:
            text: str = reprs.tensor_repr(self.tensor, reprs.options_in(self.tensor.target))
            printer.multiline = printer.multiline or "\n" in text
            return text
        return self.tensor.one_line()

    def attribute(self, name: str) -> Any:
        read = _ATTRIBUTES.get(name)
        if read is None or self._is_overridden(name):
            return NotImplemented
        return read(self.tensor)

    def _is_overridden(self, name: str) -> bool:
        """Whether a class between this tensor's and torch's own defines `name`, and that class is not torch's."""
        definer = self.object.type.python_definer(name) if self.object is not None else None
        return definer is not None and definer.module.partition(".")[0] != "torch"

    def length(self) -> int:
        shape = _shape(self.tensor)
        if not shape:
            raise TypeError("len() of a 0-d tensor")
        return shape[0]

    def item(self, key: Any) -> Any:
        if self._is_overridden("__getitem__"):
            return NotImplemented
        keys = list(key) if isinstance(key, tuple) else [key]
        if any(type(k) is not int and not isinstance(k, slice) and k is not Ellipsis for k in keys):
            raise GdbextError("a tensor is indexed by integers, slices and ... here")
        return TensorAdapter(None, self.tensor.indexed(keys))

    def members(self, limit: int) -> list[TensorAdapter]:
        return [TensorAdapter(None, self.tensor.indexed([i])) for i in range(min(self.length(), limit))]

    def plain(self) -> Any:
        if self.tensor.numel != 1:
            return NotImplemented
        return Scalar(_item(self.tensor), self.tensor.dtype)

    def truth(self) -> bool:
        if self.tensor.numel != 1:
            raise TypeError("the truth value of a tensor with more than one value, or none, is ambiguous: any() and all() tell")
        return bool(_item(self.tensor))

    def has_integers(self) -> bool:
        return bool(self.tensor.dtype.kind == "int")

    def call(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if kwargs or name not in _METHODS or len(args) > (1 if name in ("size", "stride") else 0) or self._is_overridden(name):
            return NotImplemented
        return _METHODS[name](self.tensor, *args)


def _shape(t: Tensor) -> tuple[int, ...]:
    if t.shape is None:
        raise GdbextError(f"{t.name}: {t.unavailable or 'its sizes are not in it'}")
    return t.shape


def _numel(t: Tensor) -> int:
    return math.prod(_shape(t))


def _stride(t: Tensor, *dim: int) -> Any:
    if t.stride is None:
        raise GdbextError(f"{t.name}: it has no strides")
    return t.stride[dim[0]] if dim else t.stride


def _item(t: Tensor) -> Any:
    if _numel(t) != 1:
        raise GdbextError(f"{t.name}: a tensor with {t.numel} elements cannot be converted to a number")
    (value,) = t.values([(0,) * len(_shape(t))])
    return value


def _tolist(t: Tensor) -> Any:
    def level(prefix: tuple[int, ...]) -> Any:
        if len(prefix) == len(shape):
            return next(flat)
        return [level((*prefix, i)) for i in range(shape[len(prefix)])]

    shape = _shape(t)
    indices: list[tuple[int, ...]] = [()]
    if _numel(t) > SMALL:
        raise GdbextError(f"{t.name}: {t.numel} elements are more than tolist() gives here ({SMALL}): take a slice")
    for n in shape:
        indices = [(*index, i) for index in indices for i in range(n)]
    flat = iter(t.values(indices))
    return level(())


def _is_contiguous(t: Tensor) -> bool:
    step = 1
    for n, own in reversed(list(zip(_shape(t), _stride(t)))):
        if n == 0:
            return True
        if n != 1 and own != step:
            return False
        step *= n
    return True


def _reduced(t: Tensor) -> dict[str, Any]:
    """The counts, and the min, max and mean of the finite elements, as in pytensor -stats."""
    if not small.has_numpy(t):
        return small.statistics(small.elements(t), t.dtype.kind)
    source = arrays.of_tensor(t)
    if source.distinct()[0].numel > MAX_REDUCED:
        raise GdbextError(f"{t.name}: {t.numel} elements are more than gdbext reads ({MAX_REDUCED}): take a slice")
    found: dict[str, Any] = stats.statistics(source)[0]
    return found


def _infinities(t: Tensor) -> tuple[bool, bool]:
    """Whether it contains -inf, and whether inf."""
    if not small.has_numpy(t):
        return small.infinities(small.elements(t))
    return stats.infinities(arrays.of_tensor(t))


def _extreme(name: str) -> Callable[[Tensor], Any]:
    def reduce(t: Tensor) -> _Value:
        if t.dtype.kind not in ("float", "int", "bool") or t.dtype.itemsize < 2 and t.dtype.kind == "float":
            raise GdbextError(f"torch has no {name}() for torch.{t.dtype.name}")
        if not _numel(t):
            raise GdbextError(f"{name}() of a tensor without elements")
        found = _reduced(t)
        if found["nan"]:
            value = math.nan
        elif found["inf"]:
            value = _with_infinities(t, name, found)
        else:
            value = found[name]
        return _Value(bool(value) if t.dtype.kind == "bool" else value, t.dtype, t)

    return reduce


def _with_infinities(t: Tensor, name: str, found: dict[str, Any]) -> float:
    """min() or max() where some elements are infinite. The statistics cover only the finite ones."""
    signs = _infinities(t)
    if name == "max":
        return math.inf if signs[1] else found["max"] if found["count"] > found["inf"] else -math.inf
    return -math.inf if signs[0] else found["min"] if found["count"] > found["inf"] else math.inf


def _mean(t: Tensor) -> _Value:
    if t.dtype.kind != "float" or t.dtype.itemsize < 2:
        raise GdbextError(f"torch has no mean() for torch.{t.dtype.name}")
    found = _reduced(t) if _numel(t) else {"nan": 1}
    if found["nan"]:
        return _Value(math.nan, t.dtype, t)
    if found["inf"]:
        below, above = _infinities(t)
        return _Value(math.nan if below and above else math.inf if above else -math.inf, t.dtype, t)
    return _Value(rounded(found["mean"], t.dtype.name), t.dtype, t)


def _any(t: Tensor) -> _Value:
    found = _reduced(t) if _numel(t) else {"count": 0, "zeros": 0}
    return _Value(found["zeros"] < found["count"], dtypes.DTYPES["bool"], t)


def _all(t: Tensor) -> _Value:
    found = _reduced(t) if _numel(t) else {"zeros": 0}
    return _Value(found["zeros"] == 0, dtypes.DTYPES["bool"], t)


def _size(t: Tensor, *dim: int) -> Any:
    return _shape(t)[dim[0]] if dim else Size(_shape(t))


def _mask(test: str) -> Callable[[Tensor], _Mask]:
    return lambda t: _Mask(t, test)


_ATTRIBUTES: dict[str, Callable[[Tensor], Any]] = {
    "shape": lambda t: Size(_shape(t)),
    "dtype": lambda t: Dtype(t.dtype),
    "device": lambda t: Device(t.device),
    "ndim": lambda t: len(_shape(t)),
    "itemsize": lambda t: t.dtype.itemsize,
    "nbytes": lambda t: _numel(t) * t.dtype.itemsize,
    "requires_grad": lambda t: t.requires_grad if t.requires_grad is not None else NotImplemented,
    "is_cuda": lambda t: t.device.partition(":")[0] == "cuda",
    "is_cpu": lambda t: t.device.partition(":")[0] == "cpu",
    "is_meta": lambda t: t.device.partition(":")[0] == "meta",
}
_METHODS: dict[str, Callable[..., Any]] = {
    "numel": _numel,
    "nelement": _numel,
    "size": _size,
    "stride": _stride,
    "dim": lambda t: len(_shape(t)),
    "item": _item,
    "tolist": _tolist,
    "data_ptr": lambda t: t.data_ptr,
    "element_size": lambda t: t.dtype.itemsize,
    "storage_offset": lambda t: t.storage_offset,
    "is_contiguous": _is_contiguous,
    "is_floating_point": lambda t: t.dtype.kind == "float",
    "min": _extreme("min"),
    "max": _extreme("max"),
    "mean": _mean,
    "any": _any,
    "all": _all,
    "isnan": _mask("isnan"),
    "isinf": _mask("isinf"),
    "isfinite": _mask("isfinite"),
}


class ModuleAdapter(Adapter):
    """A torch.nn.Module: its `__getattr__` looks in three dicts."""

    tables = ("_parameters", "_buffers", "_modules")

    def missing_attribute(self, name: str) -> Any:
        obj = self.own
        own = dict(obj.instance_entries())
        for table in self.tables:
            if table in own and obj.rt.object(own[table]).type.flags & DICT:
                held = next((v for k, v in obj.rt.object(own[table]).items() if k.equals(name)), None)
                if held is not None:
                    return held
        return NotImplemented


class ContainerAdapter(ModuleAdapter):
    """torch.nn.Sequential, ModuleList and ModuleDict: their items are those of `_modules`, in its order or by its keys
    (torch/nn/modules/container.py). A subclass that overrides the method gets no answer."""

    NAMES = tuple("torch.nn.modules.container." + name for name in ("Sequential", "ModuleList", "ModuleDict"))

    def _held(self, method: str) -> list[tuple[str, Object]] | None:
        obj = self.own
        owner, own = next((base for base in obj.type.bases() if method in base.namespace), None), dict(obj.instance_entries())
        if owner is None or owner.full_name not in self.NAMES or "_modules" not in own:
            return None
        return [(key.string(1000), module) for key, module in obj.rt.object(own["_modules"]).items()]

    def item(self, key: Any) -> Any:
        held = self._held("__getitem__")
        if held is None or isinstance(key, bool):
            return NotImplemented
        if isinstance(key, str):
            return next((module for name, module in held if name == key), NotImplemented)
        return held[key][1] if isinstance(key, int) else NotImplemented

    def length(self) -> Any:
        held = self._held("__len__")
        return NotImplemented if held is None else len(held)

    def members(self, limit: int) -> Any:
        held = self._held("__iter__")
        by_name = any(base.full_name == self.NAMES[2] for base in self.object.type.bases()) if self.object is not None else True
        return NotImplemented if held is None or by_name else [module for _, module in held[:limit]]
