"""Statistics over a few elements, in plain Python: no numpy is needed for them."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from ..errors import GdbextError

if TYPE_CHECKING:
    from .tensor import Tensor

SMALL = 1 << 12  # elements up to which they are decoded without numpy


def is_small(t: Tensor) -> bool:
    """Whether a tensor has so few elements, each in a place of its own."""
    return t.shape is not None and not t.layout.startswith("sparse_") and math.prod(t.shape) <= SMALL


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
