"""The first place where two records of a step differ by more than the dtype explains.

A row of one side may be in several records, one for each rank. Then the ranks' pieces are concatenated as the row's `shard` says.
Without `shard`, they are concatenated along the one dimension in which a piece is smaller by that factor. Needs numpy.

A dtype explains the differences of another order of additions or another kernel. There are two limits. The root mean square of
the differences, relative to that of the values, may be `TOLERANCE`. A single difference, relative to the largest value, may be
`PEAK` times that.

A module's output cannot be nearer than its input. So the largest accepted difference of the modules before it is added to the
limit. Thus two programs of many layers may each round in their own way. A program that was changed in one place is still measured
as strictly as before.

Where values were not saved, the ranges are compared by the same measure; hashes tell only whether all bits are equal.
"""

from __future__ import annotations

import math
import re
from typing import Any, Callable, Sequence

from ..errors import GdbextError
from . import arrays, layer_pairs
from .compare import compare
from .dtypes import DTYPES
from .layer_pairs import Pieces, Row, Side

TOLERANCE = {
    "float64": 1e-12,
    "complex128": 1e-12,
    "float32": 1e-5,
    "complex64": 1e-5,
    "float16": 2e-3,
    "bfloat16": 8e-3,
    "float8_e4m3fn": 6e-2,
    "float8_e5m2": 1e-1,
}
PEAK = 16
SUMMANDS = re.compile("RowParallel")  # layers whose ranks may leave their sum to the layer behind
MAX_WHOLE = 1 << 30  # bytes of the pieces of one output that are put together in memory


def compare_sides(a: Side, b: Side, tolerance: float | None = None) -> dict[str, Any]:
    """-> {first, rows, only_a, only_b, compared, not_compared}. `tolerance`: replaces the dtypes' own.

    - `rows`: for each output of both sides, in the order of `a`, {path, call, output, type, equal (every bit), different (beyond
      the tolerance), max_abs_diff, index, relative, why, made, compared}.
    - `first`: the first row that is different, or None.
    - `compared`: of a row, whether its values, ranges or hashes were compared; of all, how many rows.
    - `not_compared`: [{path, output, why}] of the other rows.
    - `made`: None or {side, how, outputs, part}: the outputs that were put together to be compared (`layer_pairs.Pair`), and the
      one that holds `index`.
    """
    pairing = layer_pairs.Pairing(a, b)
    rows, carried = [], 0.0

    def limit(dtype: str) -> float:
        own = TOLERANCE.get(dtype, 0.0)
        return tolerance if tolerance is not None else own and own + carried

    only_a, only_b = pairing.only_a, pairing.only_b
    for (path, call, output), *pieces, made in pairing.pairs:
        left, right = layer_pairs.aligned(*map(_once, pieces))
        if _are_unlike(left, right):
            only_a, only_b = [*only_a, path + output], [*only_b, path + output]
            continue
        found = _compare_rows(left, right, limit)
        if not found["different"]:
            carried = max(carried, found["relative"] or 0.0)
        if made is not None:
            made = {**made, "part": _part(made, pieces["ab".index(made["side"])], found["index"])}
        rows.append({"path": path, "call": call, "output": output, "type": left[0][1]["type"], **found, "made": made})
    first = next((row for row in rows if row["different"]), None)
    left_out = [{name: row[name] for name in ("path", "output", "why")} for row in rows if not row["compared"]]
    counts = {"compared": len(rows) - len(left_out), "not_compared": left_out}
    return {"first": first, "rows": rows, "only_a": only_a, "only_b": only_b, **counts}


def _are_unlike(left: Pieces, right: Pieces) -> bool:
    """Whether two modules of one path differ in class and in the kind of their output: tables of cosines against rotated
    queries."""
    (_, x), (_, y) = left[0], right[0]
    if x["type"] == y["type"] or None in (x["shape"], y["shape"]):
        return False
    alone = len(left) == len(right) == 1 and not x.get("shard") and not y.get("shard")
    return len(x["shape"]) != len(y["shape"]) or alone and x["shape"][-1:] != y["shape"][-1:]


def _part(made: Row, pieces: Pieces, index: Any) -> str | None:
    """The one of several concatenated outputs that holds an index."""
    record = pieces[0][0]
    if made["how"] != "concatenated" or not index or not isinstance(record, layer_pairs.Made):
        return None
    end = 0
    for name, row in zip(made["outputs"], record.parts):
        end += row["shape"][-1]
        if index[-1] < end:
            return str(name)
    return None


def _result(equal: bool, different: bool, why: str = "", diff: float | None = None, index: Any = None) -> Row:
    found = {"equal": equal, "different": different, "max_abs_diff": diff, "index": index, "relative": None, "why": why}
    return {**found, "compared": True}


def _left_out(why: str) -> Row:
    """The row of an output that cannot be compared: neither equal nor different."""
    return {**_result(False, False, why), "compared": False}


def _compare_rows(left: Pieces, right: Pieces, limit_of: Callable[[str], float]) -> Row:
    """Compares the pieces of one output. A side's pieces that are the same on all its ranks count once. `limit_of`: the tolerance
    of a dtype at this output."""
    left, right = _once(left), _once(right)
    early = _without_values(left, right)
    if early is not None:
        return early
    rows = [row for _, row in left + right]
    limit = limit_of(_coarser([row["dtype"] for row in rows]))
    if len(left) == len(right) and all(_same(x, y) for (_, x), (_, y) in zip(left, right)):
        return _result(True, False)
    if len(left) > 1 and len(left) == len(right) and all(x["shape"] == y["shape"] for (_, x), (_, y) in zip(left, right)):
        return _worst([_compare_rows([x], [y], limit_of) for x, y in zip(left, right)])  # rank by rank
    if 1 in (len(left), len(right)) and len(rows) > 2 and all(_whole(row, rows[0]) for row in rows):
        pairs = [([x], [y]) for x in left for y in right]  # each rank has the whole, and they are not the same
        return _added_up(left, right, limit) or _worst([_compare_rows(x, y, limit_of) for x, y in pairs])
    try:
        shapes = [_whole_shape(side, other) for side, other in ((left, right), (right, left))]
    except GdbextError as e:
        return _result(False, True, str(e))
    if shapes[0] != shapes[1]:
        return _result(False, True, f"the shapes differ: {shapes[0]} against {shapes[1]}")
    a, b = _values(left, right), _values(right, left)
    return _by_range(left, right, limit) if a is None or b is None else _by_values(a, b, limit)


def _without_values(left: Pieces, right: Pieces) -> Row | None:
    """The row of an output of which one side has no values to compare; None where both have."""
    if len(left) == len(right) == 1 and left[0][0].label != right[0][0].label and left[0][1].get("shard"):
        return _left_out("each rank has its own part")
    rows = [row for _, row in left + right]
    if all(row["hash"] is None for row in rows):
        why = next((row["why"] for row in rows if row.get("why")), "")
        return _left_out("neither could be read" + (f": {why}" if why else ""))
    if any(row["hash"] is None for row in rows):
        bad = next(row for row in rows if row["hash"] is None)
        return _result(False, True, f"one of them has no values: {bad.get('why') or 'no tensor'}")
    return _left_out("they have no elements") if all(0 in row["shape"] for row in rows) else None


def _added_up(left: Pieces, right: Pieces, limit: float) -> Row | None:
    """Compares the sum of the ranks' outputs with the other side's output; None where they differ.

    A row-parallel layer may leave that sum to the layer behind it (SGLang's norms do). Only values can show this.
    """
    sides = [_sum(side) if len(side) > 1 else side[0][0].values(side[0][1]) for side in (left, right)]
    if sides[0] is None or sides[1] is None:
        summands = any(SUMMANDS.search(str(row["type"])) for _, row in left + right)
        return _left_out("not compared: the ranks' sum, and values were not saved") if summands else None
    found = _by_values(sides[0], sides[1], limit)
    return None if found["different"] else {**found, "why": "the ranks' outputs added up"}


def _sum(side: Pieces) -> arrays.Source | None:
    """The sum of the ranks' values, None where they were not saved."""
    sources = [source for source in (record.values(row) for record, row in side) if source is not None]
    if len(sources) < len(side) or sum(s.numel * s.dtype.itemsize for s in sources) > MAX_WHOLE:
        return None
    total = sum(s.numbers(tuple(slice(0, n) for n in s.shape)).astype("float64") for s in sources)
    return arrays.Source(total.shape, DTYPES["float64"], sources[0].name, lambda box: total[box])


def _same(x: Row, y: Row) -> bool:
    return all(x[name] == y[name] for name in ("hash", "shape", "dtype"))


def _whole(row: Row, first: Row) -> bool:
    """Whether a rank has a whole output, of the shape in another row."""
    return not row.get("shard") and bool(row["shape"] == first["shape"])


def _once(side: Pieces) -> Pieces:
    """One piece for a whole output that is the same on every rank."""
    first = side[0][1]
    if len(side) > 1 and not first.get("shard") and all(_same(first, row) for _, row in side):
        return side[:1]
    return side


def _coarser(names: Sequence[str]) -> str:
    return max(names, key=lambda name: TOLERANCE.get(name, 0.0))


def _worst(found: list[Row]) -> Row:
    bad = [row for row in found if row["different"]] or [row for row in found if not row["equal"]] or found
    return {**bad[0], "rank": found.index(bad[0])}


# ---- pieces of several ranks -------------------------------------------------------------------------------------------
def _cut(side: Pieces, other: Pieces) -> dict[str, Any] | None:
    """How the pieces of a side are cut: {dim, parts, copies}; None for a side of one piece. `GdbextError` where that is
    unknown."""
    if len(side) == 1:
        return None
    row = side[0][1]
    shape, dims = row["shape"], len(row["shape"])
    if any(len(r["shape"]) != dims for _, r in side):
        raise GdbextError("the ranks' pieces have different numbers of dimensions")
    if row.get("shard") and sum(row["shard"]["parts"]) == shape[row["shard"]["dim"]]:
        shard: dict[str, Any] = row["shard"]
        return shard
    whole = other[0][1]["shape"]
    if len(other) == 1 and len(whole) == dims:
        larger = [d for d in range(dims) if whole[d] != shape[d]]
        if len(larger) == 1 and sum(r["shape"][larger[0]] for _, r in side) == whole[larger[0]]:
            return {"dim": larger[0] - dims, "parts": [shape[larger[0]]], "copies": 1}
    if not row.get("shard") and all(r["shape"] == shape for _, r in side):
        labels = " and ".join(record.label for record, r in side if not _same(r, row))
        raise GdbextError(f"the ranks differ among themselves: {side[0][0].label} and {labels}")
    raise GdbextError("how the ranks' pieces belong together is not known")


def _whole_shape(side: Pieces, other: Pieces) -> list[int]:
    cut = _cut(side, other)
    shape = list(side[0][1]["shape"])
    if cut is not None:
        first, *rest = cut["parts"]
        pieces = [r["shape"][cut["dim"]] for _, r in side]
        shape[cut["dim"]] = sum(pieces) if cut["copies"] == 1 else len(side) * first + len(side) // cut["copies"] * sum(rest)
    return shape


def _values(side: Pieces, other: Pieces) -> arrays.Source | None:
    """The values of a side as one `Source`; None where they were not saved."""
    import numpy

    sources = [record.values(row) for record, row in side]
    if any(source is None for source in sources):
        return None
    if len(sources) == 1:
        return sources[0]
    if sum(s.numel * s.dtype.itemsize for s in sources if s is not None) > MAX_WHOLE:
        return None
    cut = _cut(side, other)
    assert cut is not None
    pieces = [s.read(tuple(slice(0, n) for n in s.shape)) for s in sources if s is not None]
    ends, made = numpy.cumsum(cut["parts"][:-1]), []
    split = [numpy.split(piece, ends, cut["dim"]) if len(cut["parts"]) > 1 else [piece] for piece in pieces]
    for number in range(len(cut["parts"])):
        every = cut["copies"] if number else 1
        made += [parts[number] for parts in split[::every]]
    whole = numpy.concatenate(made, cut["dim"])
    first = sources[0]
    assert first is not None
    return arrays.Source(whole.shape, first.dtype, first.name, lambda box: whole[box])


# ---- how far apart -----------------------------------------------------------------------------------------------------
def difference(a: arrays.Source, b: arrays.Source) -> Row:
    """The difference of two tensors of one shape, judged by what their dtypes explain: a row of `compare_sides`."""
    return _by_values(a, b, TOLERANCE.get(_coarser([a.dtype.name, b.dtype.name]), 0.0))


def _by_values(a: arrays.Source, b: arrays.Source, limit: float) -> Row:
    import numpy

    found = compare(a, b)
    if found["equal"]:
        return _result(True, False, "equal values" if a.dtype.name != b.dtype.name else "")
    squares = differences = 0.0
    largest = 0.0
    with numpy.errstate(all="ignore"):
        for box in a.boxes():
            x, y = (numpy.asarray(s.numbers(box)) for s in (a, b))
            wide = numpy.complex128 if "c" in x.dtype.kind + y.dtype.kind else numpy.float64
            x, y = x.astype(wide), y.astype(wide)
            fine = numpy.isfinite(x) & numpy.isfinite(y)
            x, y = x[fine], y[fine]
            if x.size:
                squares += float((numpy.abs(y) ** 2).sum())
                differences += float((numpy.abs(x - y) ** 2).sum())
                largest = max(largest, float(numpy.abs(y).max()), float(numpy.abs(x).max()))
    relative = math.sqrt(differences / squares) if squares else math.inf if differences else 0.0
    worst = found["max_abs_diff"]
    beyond = bool(found["nan_different"]) or relative > limit or not worst <= PEAK * limit * largest
    index = found["max_abs_index"] if found["max_abs_index"] is not None else found["first_index"]
    return {
        **_result(False, beyond, "" if beyond else "within what the dtype explains", worst, index),
        "relative": relative,
        "elements": found["different"],
        "nan_different": found["nan_different"],
    }


def _by_range(left: Pieces, right: Pieces, limit: float) -> Row:
    """Compares outputs whose values were not saved: counts of NaN and infinities, and ranges."""
    x, y = _summed(left), _summed(right)
    twice = len(left) != len(right) and any((row.get("shard") or {}).get("copies", 1) > 1 for _, row in left + right)
    for name in ("nan", "inf"):
        if bool(x[name]) != bool(y[name]) or x[name] != y[name] and not twice:
            return _result(False, True, f"{x[name]} against {y[name]} {'NaN' if name == 'nan' else 'infinities'}")
    if x["min"] is None or y["min"] is None:
        if any(isinstance(record, layer_pairs.Made) for record, _ in left + right):
            return _left_out("not compared: values were not saved")
        return _result(False, True, "the hashes differ")
    largest = max(abs(v) for side in (x, y) for v in (side["min"], side["max"]))
    names = ("min", "max") if twice else ("min", "max", "mean")  # a part that two ranks share counts twice in their mean
    gap = max(abs(x[name] - y[name]) for name in names)
    beyond = gap > limit * largest if limit else True
    why = "by range: values were not saved" if beyond else "other bits, the same range: values were not saved"
    return {**_result(False, beyond, why, gap), "relative": gap / largest if largest else 0.0}


def _summed(side: Pieces) -> Row:
    rows = [row for _, row in side]
    numbers = [{name: float(row[name]) for name in ("min", "max", "mean")} for row in rows if row["min"] is not None]
    found: Row = {name: sum(row[name] or 0 for row in rows) for name in ("nan", "inf")}
    fine = [n for n in numbers if not math.isnan(n["min"])]
    if not fine:
        return {**found, "min": None, "max": None, "mean": None}
    mean = sum(n["mean"] for n in fine) / len(fine)
    return {**found, "min": min(n["min"] for n in fine), "max": max(n["max"] for n in fine), "mean": mean}
