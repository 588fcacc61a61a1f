"""Where and by how much two tensors differ, in one pass and in bounded memory. Needs numpy."""

from __future__ import annotations

import math
from typing import Any

from .arrays import Box, Source
from .dtypes import DType


def compare(a: Source, b: Source) -> dict[str, Any]:
    """-> {equal, different, first_index, max_abs_diff, max_rel_diff, max_abs_index, values, ulps, nan_different, reason,
    compared}.

    The comparison is by value, whatever the dtypes. NaN equals NaN here, because nothing changed; 0.0 equals -0.0.

    - `different`: how many elements; None for different shapes, and then `reason` says so.
    - `first_index`: of the first difference in row-major order, with its two `values`.
    - `max_rel_diff`: |a - b| / |b| over the differences where b is not zero.
    - `nan_different`: how many NaNs stand against a number. They count as different, but take no part in the maxima.
    - `ulps`: the most representable values between two that differ, where both sides are floats of one dtype.
    - `compared`: how many elements were compared; `equal` is None where there are none.
    """
    import numpy

    if a.shape != b.shape:
        reason = f"the shapes differ: {list(a.shape)} against {list(b.shape)}"
        return {**_Differences(a, b).found, "equal": False, **dict.fromkeys(_UNKNOWN), "reason": reason, "compared": 0}
    count = math.prod(a.shape)
    repeated = a.repeated
    a, times = a.distinct(b.repeated)  # elements that both repeat are compared once
    b, _ = b.distinct(repeated)
    total = _Differences(a, b)
    with numpy.errstate(all="ignore"):
        for box in a.boxes():
            total.add(box)
    found = {**total.result(times), "compared": count}
    if not count:
        found.update(equal=None, reason="they have no elements: nothing was compared")
    return found


_UNKNOWN = ("different", "max_abs_diff", "max_rel_diff")  # of shapes that differ


class _Differences:
    """The differences in the boxes that were compared so far."""

    def __init__(self, a: Source, b: Source) -> None:
        self.a, self.b = a, b
        self.exact = a.is_stored and b.is_stored and a.dtype.name == b.dtype.name and a.dtype.kind == "float"
        self.most, self.relative, self.ulps = -1, -1.0, -1
        same = a.dtype.name == b.dtype.name
        self.found: dict[str, Any] = {
            "equal": True,
            "different": 0,
            "first_index": None,
            "max_abs_diff": 0.0,
            "max_rel_diff": 0.0,
            "max_abs_index": None,
            "values": None,
            "ulps": None,
            "nan_different": 0,
            "reason": None if same else f"the dtypes differ: torch.{a.dtype.name} against torch.{b.dtype.name}",
        }

    def add(self, box: Box) -> None:
        """Compares one box."""
        import numpy

        a, b, found = self.a, self.b, self.found
        x, y = numpy.atleast_1d(a.numbers(box)), numpy.atleast_1d(b.numbers(box))
        different = x != y
        if not different.any():
            return
        different &= (x == x) | (y == y)  # not both NaN
        places = numpy.nonzero(different)
        if not len(places[0]):
            return

        def index(at: int) -> list[int]:
            own = [int(p[at]) for p in places] if a.shape else []
            return [i + (box[d].start if d < len(box) else 0) for d, i in enumerate(own)]

        x, y = x[different], y[different]
        found["different"] += x.size
        if found["first_index"] is None or index(0) < found["first_index"]:
            found["first_index"], found["values"] = index(0), [_plain(x[0]), _plain(y[0])]
        numbers = numpy.nonzero((x == x) & (y == y))[0]
        found["nan_different"] += x.size - numbers.size
        if not numbers.size:
            return
        x, y = x[numbers], y[numbers]
        distance = _distance(x, y)
        if distance.max() > self.most:
            self.most = distance.max().item()
            found["max_abs_index"] = index(numbers[distance.argmax()])
        size = numpy.abs(y.astype(numpy.complex128 if y.dtype.kind == "c" else numpy.float64))
        ratio = distance[size > 0] / size[size > 0]
        if ratio.size:
            self.relative = max(self.relative, float(numpy.where(numpy.isnan(ratio), math.inf, ratio).max()))
        finite = numbers[numpy.isfinite(x) & numpy.isfinite(y)] if self.exact else ()
        if len(finite):
            left, right = (_stored(s, box)[different][finite] for s in (a, b))
            self.ulps = max(self.ulps, _ulps(left, right, a.dtype))

    def result(self, times: int) -> dict[str, Any]:
        """The whole result; each difference stands for `times` of them."""
        found = self.found
        if found["different"]:
            found["equal"] = False
            found["different"], found["nan_different"] = found["different"] * times, found["nan_different"] * times
            found["max_abs_diff"] = self.most if self.most >= 0 else math.nan
            found["max_rel_diff"] = self.relative if self.relative >= 0 else math.inf if self.most >= 0 else math.nan
            found["ulps"] = self.ulps if self.ulps >= 0 else None
        return found


def _stored(source: Source, box: Box) -> Any:
    import numpy

    found = numpy.atleast_1d(source.read(box))
    if source.dtype.name == "float4_e2m1fn_x2":  # two values a byte: their halves as bytes whose top bit is the sign
        return numpy.stack([(found & 7) | (found & 8) << 4, (found >> 4 & 7) | (found & 128)], -1)
    return found


def _plain(value: Any) -> Any:
    """A JSON-able element."""
    value = value.item()
    return str(value) if isinstance(value, complex) else value


def _distance(x: Any, y: Any) -> Any:
    """|x - y|, exact for integers of one signedness (as unsigned ones), else in float64."""
    import numpy

    kinds = x.dtype.kind + y.dtype.kind
    if kinds in ("ii", "uu", "bb"):
        whole = numpy.int64 if kinds == "ii" else numpy.uint64
        x, y = x.astype(whole), y.astype(whole)
        return numpy.maximum(x, y).view(numpy.uint64) - numpy.minimum(x, y).view(numpy.uint64)
    wide = numpy.complex128 if "c" in kinds else numpy.float64
    return numpy.abs(x.astype(wide) - y.astype(wide))


def _ulps(x: Any, y: Any, dtype: DType) -> int:
    """The most steps between two stored floats: these formats order by sign and magnitude (float8_e8m0fnu has no sign)."""
    import numpy

    bits = 8 * dtype.itemsize
    unsigned = numpy.dtype(f"u{dtype.itemsize}")
    x, y = (v.view(unsigned).astype(numpy.uint64) for v in (x, y))
    if dtype.name == "float8_e8m0fnu":
        return int((numpy.maximum(x, y) - numpy.minimum(x, y)).max())
    mask = numpy.uint64((1 << bits - 1) - 1)
    same = (x > mask) == (y > mask)
    x, y = x & mask, y & mask
    return int(numpy.where(same, numpy.maximum(x, y) - numpy.minimum(x, y), x + y).max())
