"""Statistics over a few elements, and their bytes for a file, in plain Python, without numpy."""

from __future__ import annotations

import itertools
import math
from typing import Any, Iterator, Sequence

from ..errors import GdbextError
from ..package import import_package
from .tensor import Tensor

SMALL = 1 << 12  # elements up to which they are decoded without numpy


def is_small(t: Tensor) -> bool:
    """Whether a tensor has so few elements, each in a place of its own."""
    return t.shape is not None and not t.layout.startswith("sparse_") and math.prod(t.shape) <= SMALL


def has_numpy(t: Tensor) -> bool:
    """`GdbextError` where it is missing, and the tensor is too large to do without."""
    try:
        import_package("numpy")
    except ImportError:
        if not is_small(t):
            raise GdbextError(f"{t.name}: more than {SMALL} elements: this Python needs numpy for them: gdbext install") from None
        return False
    return True


class Stored:
    """The stored elements of a small tensor for files.py, as an `arrays.Source` of one box: row-major."""

    is_row_major = True

    def __init__(self, t: Tensor) -> None:
        if t.is_conj or t.is_neg or t.quantizer:
            raise GdbextError(f"{t.name}: a conjugate, negative or quantized one: this Python needs numpy for it: gdbext install")
        self.shape, self.dtype, self.name = tuple(t.shape or ()), t.dtype, t.name
        self.numel = math.prod(self.shape)
        self.order = tuple(math.prod(self.shape[d + 1 :]) for d in range(len(self.shape)))
        self._bytes = b"".join(t.stored(list(itertools.product(*map(range, self.shape)))))

    def boxes(self) -> Iterator[Any]:
        """The whole."""
        yield ()

    def read(self, box: Any) -> Stored:
        """All elements, as an object with their bytes."""
        return self

    def transpose(self, dims: Sequence[int]) -> Stored:
        """The same object: its elements are in the order of its dimensions."""
        return self

    def tobytes(self) -> bytes:
        """Row by row."""
        return self._bytes


def elements(t: Tensor) -> list[Any]:
    """All elements of a small tensor, row by row."""
    if t.shape is None or not is_small(t):
        raise GdbextError(f"{t.name}: {t.numel} elements are more than are decoded without numpy ({SMALL})")
    return t.values(list(itertools.product(*map(range, t.shape))))


def statistics(values: list[Any], kind: str) -> dict[str, Any]:
    """{min, max, mean, std, nan, inf, zeros, count} as stats.py has them. `kind`: of the dtype ("float", "int", "bool",
    "complex")."""
    parts = [(v.real, v.imag) if isinstance(v, complex) else (v,) for v in values]
    nan = sum(any(map(math.isnan, part)) for part in parts)
    inf = sum(any(map(math.isinf, part)) for part in parts)
    counts = {"nan": nan, "inf": inf if kind == "complex" else sum(math.isinf(v) for v in values)}
    counts.update(zeros=sum(not v for v in values), count=len(values))
    if kind == "complex":
        return {**dict.fromkeys(("min", "max", "mean", "std")), **counts}
    finite = [int(v) if kind == "bool" else v for v in values if math.isfinite(v)]
    if not finite:
        return {**dict.fromkeys(("min", "max", "mean", "std"), math.nan), **counts}
    mean = math.fsum(finite) / len(finite)
    squares = math.fsum((v - mean) ** 2 for v in finite)
    std = math.sqrt(squares / (len(finite) - 1)) if len(finite) > 1 else math.nan
    return {"min": min(finite), "max": max(finite), "mean": mean, "std": std, **counts}


def infinities(values: list[Any]) -> tuple[bool, bool]:
    """Whether -inf and inf are among the values."""
    return -math.inf in values, math.inf in values
