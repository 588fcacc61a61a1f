"""Single elements of tensors compared as torch compares them: a Python number is first rounded to the tensor's dtype."""

from __future__ import annotations

import operator
import struct
from typing import Any, Callable

from ..errors import GdbextError
from .dtypes import DType

_ROUNDED = {"float16": "<e", "float32": "<f"}


def rounded(value: float, name: str) -> float:
    """The number of dtype `name` that is nearest to `value`; `OverflowError` beyond its range. float64 has them all."""
    if value != value or name == "float64":
        return float(value)
    if name == "bfloat16":  # the upper half of a float32, rounded to even
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        bits += 0x7FFF + (bits >> 16 & 1)
        return float(struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0])
    return float(struct.unpack(_ROUNDED[name], struct.pack(_ROUNDED[name], value))[0])


class Scalar:
    """One element of a tensor: `value` as `.item()` gives it, of `dtype`. It compares; torch's arithmetic is not done here."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any, dtype: DType) -> None:
        self.value, self.dtype = value, dtype

    def __repr__(self) -> str:
        return f"tensor({self.value})"

    def __bool__(self) -> bool:
        return bool(self.value)

    def __eq__(self, other: object) -> bool:
        return self._compared(operator.eq, other)

    def __ne__(self, other: object) -> bool:
        return self._compared(operator.ne, other)

    def __lt__(self, other: object) -> bool:
        return self._compared(operator.lt, other)

    def __le__(self, other: object) -> bool:
        return self._compared(operator.le, other)

    def __gt__(self, other: object) -> bool:
        return self._compared(operator.gt, other)

    def __ge__(self, other: object) -> bool:
        return self._compared(operator.ge, other)

    def _compared(self, work: Callable[[Any, Any], Any], other: Any) -> bool:
        if isinstance(other, Scalar):
            if {self.dtype.kind, other.dtype.kind} == {"float", "int"}:
                name = (self if self.dtype.kind == "float" else other).dtype.name
                return bool(work(rounded(self.value, name), rounded(other.value, name)))
            return bool(work(self.value, other.value))
        if not isinstance(other, (bool, int, float, complex)):
            if work in (operator.eq, operator.ne):
                return work is operator.ne
            raise TypeError(f"a tensor has no order with a {type(other).__name__}")
        if isinstance(other, complex) or isinstance(self.value, complex):
            return bool(work(self.value, other))
        if self.dtype.kind == "float":
            if self.dtype.name != "float64" and self.dtype.name != "bfloat16" and self.dtype.name not in _ROUNDED:
                raise GdbextError(f"torch does not compare torch.{self.dtype.name} with numbers; .item() gives the number")
            return bool(work(self.value, rounded(other, self.dtype.name)))
        if isinstance(other, float):  # an integer tensor with a float: both in torch's default dtype
            return bool(work(rounded(self.value, "float32"), rounded(other, "float32")))
        return bool(work(self.value, other))
