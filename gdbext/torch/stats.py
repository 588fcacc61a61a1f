"""Statistics, histogram and search for NaN over tensors of any size, in one pass each and in bounded memory.

They cover the finite values, in float64. Mean and variance of the pieces are joined by the rule of Chan, Golub and LeVeque,
"Updating formulae and a pairwise algorithm for computing sample variances" (1979). Elements that a stride of 0 repeats are read
once, but counted as often as they appear. Needs numpy, but none of its products: a BLAS would start a thread per processor inside
gdb.
"""

from __future__ import annotations

import math
from typing import Any, Iterator

from ..errors import GdbextError
from .arrays import Source

MAX_BINS = 1000
# For floats stored in 8 and 16 bits: (mask, largest pattern under it that is no NaN).
_LAST_NUMBER = {
    "bfloat16": (0x7FFF, 0x7F80),
    "float16": (0x7FFF, 0x7C00),
    "float8_e5m2": (0x7F, 0x7C),
    "float8_e4m3fn": (0x7F, 0x7E),
    "float8_e8m0fnu": (0xFF, 0xFE),
}


def statistics(source: Source, sample: int | None = None) -> tuple[dict[str, Any], bool]:
    """-> ({min, max, mean, std, nan, inf, zeros, count}, sampled) of a `Source`.

    `count`: the elements looked at. `std` divides by n-1. min and max of integers and bools are ints; min, max, mean and std
    are NaN where no value is finite, and None for complex tensors. `sample`: look at about so many elements, in pieces spread
    evenly; `sampled` says whether that left any out.
    """
    import numpy

    source, times = source.distinct()
    total = _Moments()
    nan = inf = zeros = count = 0
    is_complex = source.dtype.kind == "complex"
    with numpy.errstate(all="ignore"):
        for values in _pieces(source, sample):
            count += values.size
            zeros += values.size - int(numpy.count_nonzero(values))
            if is_complex:
                bad = int(numpy.count_nonzero(numpy.isnan(values)))
                nan, inf = nan + bad, inf + int(numpy.count_nonzero(numpy.isinf(values)))
                continue
            low, high = values.min(), values.max()
            if values.dtype.kind == "f" and not (math.isfinite(low) and math.isfinite(high)):
                finite = numpy.isfinite(values)
                bad = int(numpy.count_nonzero(numpy.isnan(values)))
                nan, inf = nan + bad, inf + values.size - int(numpy.count_nonzero(finite)) - bad
                values = values[finite]
                if not values.size:
                    continue
                low, high = values.min(), values.max()
            total.add(values, low.item(), high.item())
    found: dict[str, float | None] = {"min": total.low, "max": total.high, "mean": total.mean, "std": total.std(times)}
    if is_complex:
        found = dict.fromkeys(found)
    counts = {"nan": nan, "inf": inf, "zeros": zeros, "count": count}
    return {**found, **{name: n * times for name, n in counts.items()}}, count < source.numel


def _pieces(source: Source, sample: int | None) -> Iterator[Any]:
    """The elements as flat arrays: all, or about `sample` in pieces spread evenly."""
    boxes = source.boxes()
    if sample is not None and sample < source.numel:
        if sample < 1:
            raise GdbextError(f"-sample {sample}: at least one element must be read")
        every = list(boxes)
        wanted = min(len(every), max(8, -(-sample * len(every) // source.numel)))
        picked, each = [every[i * len(every) // wanted] for i in range(wanted)], max(1, sample // wanted)
        return (source.numbers(box).ravel("K")[:each] for box in picked)
    return (source.numbers(box).ravel("K") for box in boxes)


class _Moments:
    """count, mean and sum of squared deviations, piece by piece."""

    def __init__(self) -> None:
        self.count, self.average, self.squares = 0, 0.0, 0.0
        self.low = self.high = math.nan

    def add(self, values: Any, low: float, high: float) -> None:
        """Adds a piece whose least and largest value are known."""
        import numpy

        if values.dtype.kind == "b":
            low, high = int(low), int(high)
        self.low = low if not self.count else min(self.low, low)
        self.high = high if not self.count else max(self.high, high)
        wide = values.astype(numpy.float64)
        mean = float(wide.mean())
        wide -= mean
        wide *= wide
        squares = float(wide.sum())
        n, m = self.count, values.size
        delta = mean - self.average
        self.squares += squares + (delta * delta * n * m / (n + m) if n else 0.0)
        self.average += delta * m / (n + m)
        self.count = n + m

    @property
    def mean(self) -> float:
        """NaN where nothing was added."""
        return self.average if self.count else math.nan

    def std(self, times: int = 1) -> float:
        """The standard deviation over n-1 of the added values, each `times` times; NaN for less than two values."""
        count = self.count * times
        return math.sqrt(self.squares * times / (count - 1)) if count > 1 else math.nan


def histogram(source: Source, low: float, high: float, bins: int = 20, sample: int | None = None) -> dict[str, list[Any]]:
    """-> {edges: [bins + 1 floats], counts: [bins ints]} of the finite values, `low` and `high` being the least and the
    largest."""
    import numpy

    if source.dtype.kind == "complex":
        raise GdbextError("a complex tensor has no order, so no histogram")
    if not 0 < bins <= MAX_BINS:
        raise GdbextError(f"{bins} bins: give 1 to {MAX_BINS}")
    if not (math.isfinite(low) and math.isfinite(high)):
        return {"edges": [], "counts": []}
    source, times = source.distinct()
    low, high = float(low), float(high)
    counts: numpy.ndarray[Any, Any] = numpy.zeros(bins, numpy.int64)
    width = high / bins - low / bins  # no overflow at float64's ends
    with numpy.errstate(all="ignore"):
        for values in _pieces(source, sample):
            wide = values.astype(numpy.float64)
            wide = wide[numpy.isfinite(wide)]
            if not width:
                at = numpy.zeros(wide.size, numpy.int64)
            elif math.isfinite(high - low):
                at = ((wide - low) / width).astype(numpy.int64)
            else:
                at = (wide / width - low / width).astype(numpy.int64)
            counts += numpy.bincount(numpy.clip(at, 0, bins - 1), minlength=bins)
    edges = [low + width * i for i in range(bins)] + [high]
    return {"edges": edges, "counts": [n * times for n in counts.tolist()]}


def infinities(source: Source) -> tuple[bool, bool]:
    """Whether -inf and whether inf is among the elements."""
    below = above = False
    for box in source.distinct()[0].boxes():
        values = source.numbers(box)
        below, above = below or bool((values == -math.inf).any()), above or bool((values == math.inf).any())
    return below, above


def has_nan(source: Source) -> bool:
    """Whether any element is NaN; at the speed of reading."""
    import numpy

    if source.dtype.kind not in ("float", "complex"):
        return False
    source, _ = source.distinct()
    mask, last = _LAST_NUMBER.get(source.dtype.name, (0, 0))
    for box in source.boxes():
        stored = source.read(box)
        if mask:
            bits = stored.view(numpy.uint16) if source.dtype.itemsize == 2 else stored
            if int((bits & bits.dtype.type(mask)).max()) > last:
                return True
        elif numpy.isnan(source.numbers(box) if stored.dtype.kind == "u" else stored).any():
            return True
    return False
