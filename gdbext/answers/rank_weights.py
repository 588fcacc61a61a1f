"""Comparison of the weights that all ranks of an engine should have alike: as JSON and as text."""

from __future__ import annotations

import itertools
from typing import Any

from ..engines import rank_weights as weights
from ..render.text import Style, escape, table
from .layers import alike
from .tensor_list import SHOWN


def compared_data(held: list[Any], left_out: list[dict[str, str]]) -> tuple[dict[str, Any], list[str]]:
    """-> (the fields of pytensors -ranks, reasons for `partial`)

    `held`: [(label, weights of one process)]; `left_out`: the ranks that could not be read, each with its reason."""
    rows, hidden = weights.different(held), weights.unseen(held)
    compared, partial, not_compared = weights.compared(held), [], list(left_out)
    labels = [label for label, _ in held if any(label in one for one in compared.values())]
    for label in (label for label, _ in held if label not in labels):
        why = "no other rank was read" if len(held) < 2 else "no tensor of it can be read that another rank has too"
        partial.append(f"not compared: {escape(label)}: {why}")
        not_compared.append({"label": escape(label), "why": why})
    for why, group in itertools.groupby(sorted(hidden, key=lambda row: str(row["why"])), key=lambda row: str(row["why"])):
        named = alike([row["path"] for row in group])
        partial.append(f"not compared: {escape(named)}: {escape(why)}")
    count = len(compared)
    data = {"ok": not rows if count else None, "ranks": labels, "compared": count, "not_compared": not_compared}
    return {**data, "different": rows, "unseen": hidden}, partial


def compared_text(data: dict[str, Any], every: bool, style: Style) -> str:
    """The differences; the first SHOWN without `every`."""
    count, rows = data["compared"], data["different"]
    if not count:
        return style.bad("nothing was compared: no parameter or buffer could be read on two ranks")
    if not rows:
        return f"{count} parameters and buffers are the same on {', '.join(map(escape, data['ranks']))}"
    head = [style.bad(f"{len(rows)} of {count} parameters and buffers differ, the first: {_odd(rows[0])}")]
    cells = [
        [style.name(escape(row["path"])), r["label"], str(list(r["shape"])), r["dtype"], *map(_number, (r["min"], r["max"]))]
        + [_number(r["mean"]), r["hash"][:12]]
        for row in (rows if every else rows[:SHOWN])
        for r in row["ranks"]
    ]
    return "\n".join(head + [table(cells, ["path", "rank", "shape", "dtype", "min", "max", "mean", "hash"], style)])


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _odd(row: dict[str, Any]) -> str:
    return f"{escape(row['path'])} on {', '.join(map(escape, row['odd']))}"
