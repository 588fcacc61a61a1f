"""The picture of a KV cache in a file: one panel for each pool, one cell for each block."""

from __future__ import annotations

import math
from typing import Any, Mapping, Sequence

from ..render import files
from . import picture

ROW = 64  # blocks up to which a pool is one row


def plot(path: str, maps: Sequence[Mapping[str, Any]], force: bool = False) -> None:
    """Write a picture of `maps` (`pool`, `cells`, `legend` of each). The file's ending chooses the format. `GdbextError` for an
    unknown ending, and where the file exists and `force` is not given."""
    import matplotlib
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    with files.drawing(path, "-plot", (11, 4 * len(maps)), force) as figure:
        for axis, m in zip(figure.subplots(len(maps), 1, squeeze=False)[:, 0], maps):
            cells = m["cells"]
            width = max(1, math.ceil(math.sqrt(len(cells))) * 2) if len(cells) > ROW else max(1, len(cells))
            kinds = sorted(set(cells))
            colours = [picture.COLOURS.get(k) or matplotlib.colormaps["tab20"](ord(k) % 20) for k in kinds]
            codes = [kinds.index(c) for c in cells] + [len(kinds)] * (-len(cells) % width)
            rows = [codes[i : i + width] for i in range(0, len(codes), width)] or [[0]]
            shades = ListedColormap([*colours, "white"])
            axis.imshow(rows, aspect="auto", interpolation="nearest", cmap=shades, vmin=0, vmax=len(kinds))
            axis.set_title(f"{m['pool']}: {len(cells)} blocks, {width} a row")
            axis.set_yticks([])
            names = {**picture.MEANINGS, **m["legend"]}
            axis.legend(
                [Patch(facecolor=c, edgecolor="grey") for c in colours],
                [names.get(k, "another request") for k in kinds],
                loc="center left",
                bbox_to_anchor=(1, 0.5),
                fontsize="small",
            )
