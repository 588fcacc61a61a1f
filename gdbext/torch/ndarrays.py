"""numpy arrays as tensors: `pytensor` reads, slices, compares and saves an array of the process as it does a tensor.

Elements of a number type that torch has too become a tensor's, in any byte order and at any strides. Other elements (text, dates,
objects, structures) are shown as numpy prints them. Each field of a structure is an array of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Sequence

from ..cpython.libraries import numpy_objects
from ..cpython.objects import Object
from ..cpython.reprs import FULL, Repr
from ..cpython.runtime import Runtime
from ..errors import GdbextError
from . import dtypes
from .arrays import Box, stored_dtype
from .tensor import MAX_VALUES, Tensor

SPAN = 1 << 22  # bytes: a part that lies in no more is read at once
_NAMES = {"longlong": "int64", "ulonglong": "uint64"}


@dataclass
class ArrayTensor(Tensor):
    """A numpy array of the process, or a part of one: `held`, the adapter of the array, knows its elements."""

    held: Any = None
    library: ClassVar[str] = "numpy"

    @property
    def array(self) -> numpy_objects.Array:
        found: numpy_objects.Array = self.held.array
        return found

    @property
    def dtype_name(self) -> str:
        return self.array.dtype

    @property
    def name(self) -> str:
        return f"numpy array at {self.array.data:#x}"

    @property
    def unavailable(self) -> str:
        if self.dtype.kind != "raw":
            return ""
        fields = ", ".join(repr(name) for name, _, _ in self.array.kind.fields[:8])
        more = f": take one of its fields, [{fields}]" if fields else ""
        return f"its elements are {self.array.dtype}, no numbers that this can be done with{more}"

    def values(self, indices: Sequence[tuple[int, ...]]) -> list[Any]:
        """As of a `Tensor`."""
        if self.unavailable:
            raise GdbextError(f"{self.name}: {self.unavailable}")
        if len(indices) > MAX_VALUES:
            raise GdbextError(f"{len(indices)} elements are more than {MAX_VALUES} at once: take a part with -slice")
        return [self.array.part(index).elements(self.held.rt) for index in indices]

    def indexed(self, keys: Sequence[Any], shown: str = "") -> Tensor:
        """As of a `Tensor`; steps may be negative, as numpy has them."""
        return of_adapter(numpy_objects.ArrayAdapter(self.held.held, self.array.part(tuple(keys))))

    def read_part(self, box: Box) -> Any:
        """The elements of a box, in torch's format of their dtype."""
        return _read(self.held.rt, self.array.part(tuple(box))).astype(stored_dtype(self.dtype))

    def text(self) -> str:
        """The text that numpy prints; without numpy a description, and few values."""
        return Repr(FULL)(self.held)


def _read(rt: Runtime, array: numpy_objects.Array) -> Any:
    """The elements of an array as numpy has them. One that lies far apart is read in halves."""
    import numpy

    reach = [(n - 1) * step for n, step in zip(array.shape, array.strides)]
    spec = array.kind.spec or f"<u{array.kind.size}"  # of a type that numpy lacks its bits
    if not array.size:
        return numpy.empty(array.shape, spec)
    low, high = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + array.kind.size
    if high - low > SPAN and array.size > 1:
        d = max(range(len(reach)), key=lambda d: abs(reach[d]))
        middle, before = array.shape[d] // 2, (slice(None),) * d
        halves = [array.part((*before, part)) for part in (slice(0, middle), slice(middle, None))]
        return numpy.concatenate([_read(rt, half) for half in halves], d)
    blob = rt.target.read(array.data + low, high - low)
    return numpy.ndarray(array.shape, spec, blob, -low, array.strides)


def of_object(obj: Object) -> ArrayTensor:
    """Of an ndarray of the process."""
    return of_adapter(numpy_objects.ArrayAdapter(obj))


def of_adapter(held: numpy_objects.ArrayAdapter) -> ArrayTensor:
    """Of an array, or of a part of one, that an expression gave."""
    array, owner = held.array, held.held
    kind, size = array.kind, array.kind.size
    name = numpy_objects.DTYPES[kind.number][0] if array.code is not None else ""
    name = array.dtype if kind.decode is not None and array.dtype in (*dtypes.TABLES, "bfloat16") else name
    dtype = dtypes.DTYPES[_NAMES.get(name, name)] if name else dtypes.DType(array.dtype, size, "raw")
    whole = size and all(step % size == 0 for step in array.strides)
    found = ArrayTensor(
        held.rt.target,
        None,  # type: ignore[arg-type]  # torch's layouts say nothing of it
        0,
        owner.address,
        type=owner.type.name,
        kind="numpy.ndarray",
        plain=owner.type.full_name == "numpy.ndarray",
        shape=array.shape,
        stride=tuple(step // size for step in array.strides) if whole else None,
        dtype=dtype,
        device="cpu",
        numel=math.prod(array.shape),
        storage_data=array.data,
        storage_bytes=None,
        held=held,
    )
    found.own_repr, found.reader = not found.plain, found.read_part
    return found
