"""A picture of a tensor: a heat map with NaN and infinities marked, and a histogram. Needs numpy and matplotlib."""

from __future__ import annotations

import math
from typing import Any

from ..errors import GdbextError
from ..render import files
from .arrays import Source

SIDE = 800  # cells of the heat map in each direction, at most
MARKS = (("NaN", (1.0, 0.0, 1.0)), ("inf", (1.0, 0.0, 0.0)), ("-inf", (0.0, 0.6, 1.0)))


def cells(source: Source) -> tuple[Any, list[Any]]:
    """-> (values, marks): 2-D float64 array of at most `SIDE` cells each way, and per kind of `MARKS` a bool array of the same
    shape.

    Rows are all dimensions but the last, columns the last. A cell shows its first element. It is marked if any element in it is
    NaN or infinite, so a single one is visible in a tensor of any size. Complex numbers show their absolute values.
    """
    import numpy

    source, whole = source.distinct()[0], source
    shape = whole.shape or (1,)
    steps, rows = [1] * len(shape), math.prod(shape[:-1])
    steps[-1] = -(-shape[-1] // SIDE)
    for d in range(len(shape) - 1):
        steps[d] = min(shape[d], -(-rows // SIDE))
        rows = rows // max(shape[d], 1) * -(-shape[d] // steps[d])
    small = [-(-n // step) for n, step in zip(shape, steps)]
    own = [-(-n // step) for n, step in zip(source.shape or (1,), steps)]  # along a repeated dimension one cell, drawn everywhere
    values = numpy.zeros(own)
    marks: list[numpy.ndarray[Any, Any]] = [numpy.zeros(own, bool) for _ in MARKS]
    with numpy.errstate(all="ignore"):
        for box in source.boxes():
            part = source.numbers(box)
            if part.ndim > len(box):
                part = part[..., 0]  # float4: of the two values of a byte the first
            part = numpy.abs(part) if part.dtype.kind == "c" else part
            if not box:
                box, part = (slice(0, 1),), part.reshape(1)
            first = [-b.start % step for b, step in zip(box, steps)]
            picked = part[tuple(slice(f, None, step) for f, step in zip(first, steps))]
            at = [(b.start + f) // step for b, f, step in zip(box, first, steps)]
            values[tuple(slice(a, a + n) for a, n in zip(at, picked.shape))] = picked
            if part.dtype.kind == "f" and not numpy.isfinite(part).all():
                for mark, test in zip(marks, (numpy.isnan(part), part == math.inf, part == -math.inf)):
                    mark[tuple((p + b.start) // step for p, b, step in zip(numpy.nonzero(test), box, steps))] = True
    flat = (-1, small[-1])
    return numpy.broadcast_to(values, small).reshape(flat), [numpy.broadcast_to(m, small).reshape(flat) for m in marks]


def plot(source: Source, hist: dict[str, Any] | None, title: str, path: str, force: bool = False) -> None:
    """Writes the picture of a `Source`; the file's ending chooses the format. `hist`: of stats.histogram, None where there is
    none.

    `GdbextError` for a tensor without elements, and as `render.files.drawing` says.
    """
    if not source.numel:
        raise GdbextError(f"-plot {path}: a tensor without elements has no picture")
    with files.drawing(path, "-plot", (11, 5), force) as figure:
        heat_map, bars = figure.subplots(1, 2, width_ratios=(3, 2))
        _draw_values(figure, heat_map, source)
        heat_map.set_title(title)
        if hist and hist["counts"]:
            edges = hist["edges"]
            widths = [(b - a) or 1.0 for a, b in zip(edges, edges[1:])]
            bars.bar(edges[:-1], hist["counts"], widths, align="edge")
            bars.set_title("finite values")
        else:
            bars.axis("off")


def _draw_values(figure: Any, axis: Any, source: Source) -> None:
    """The heat map with its colour bar; NaN and infinities are painted over it."""
    import matplotlib
    import numpy

    values, marks = cells(source)
    finite = values[numpy.isfinite(values)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
    norm = matplotlib.colors.Normalize(low, high if high > low else low + 1)
    rgba = matplotlib.colormaps["viridis"](norm(numpy.where(numpy.isfinite(values), values, low)))
    for mark, (name, colour) in zip(marks, MARKS):
        if mark.any():
            rgba[mark, :3] = colour
            axis.plot([], [], "s", color=colour, label=name)
    axis.imshow(rgba, aspect="auto", interpolation="nearest")
    if any(m.any() for m in marks):
        axis.legend(loc="upper right")
    axis.set_xlabel("index" if len(source.shape) < 2 else "last dimension")
    if len(source.shape) < 2:
        axis.set_yticks([])  # one row
    else:
        axis.set_ylabel("row" if len(source.shape) == 2 else "row of all dimensions but the last")
    figure.colorbar(matplotlib.cm.ScalarMappable(norm, "viridis"), ax=axis)
