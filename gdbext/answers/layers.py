"""The records of `llm-layers`, as rows of JSON and as text."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import Any, Sequence

from ..render.text import Style, escape, table
from ..render.text import seconds as duration
from .tensors import number_text

HEAD = ["module", "type", "output", "shape", "dtype", "NaN", "inf", "min", "max", "mean", "hash"]
SPARE = ("type", "dtype", "hash", "mean", "output")  # a narrow terminal goes without them
SHOWN_HASH = 12
MAX_ALIKE = 8
NUMBER = re.compile(r"\.\d+(?=[.\[]|$)")
HOW = {"concatenated": "side by side", "sum": "added up", "product": "multiplied"}


def name_of(row: dict[str, Any]) -> str:
    """ "layers.3.mlp", "layers.3.mlp (2nd call)", "layers.3.mlp[0]": the module and which of its tensors."""
    path = row["path"] or "(the model)"
    return str(path) + (f" call {row['call'] + 1}" if row["call"] else "") + str(row["output"])


def cells(row: dict[str, Any], style: Style) -> list[str]:
    """A row of the table."""
    known = row["hash"] is not None
    numbers = [number_text(row[k]) if known and row[k] is not None else "" for k in ("min", "max", "mean")]
    counts = [style.bad(str(row[k])) if row[k] else "" for k in ("nan", "inf")]
    shape = "" if row["shape"] is None else str(list(row["shape"]))
    path = row["path"] or "(the model)"
    return [
        style.name(escape(path)) + (f" call {row['call'] + 1}" if row["call"] else ""),
        escape(row["type"]),
        escape(row["output"]),
        shape,
        row["dtype"] or "",
        *counts,
        *numbers,
        row["hash"][:SHOWN_HASH] if known else escape(row.get("why") or "no tensor"),
    ]


def rank_text(rank: dict[str, Any], rows: list[dict[str, Any]], style: Style) -> str:
    """One process's step."""
    head = f"{escape(rank['label'])}: " if rank["label"] else ""
    if not rank["calls"]:
        return f"{head}no module returned"
    title = (
        f"{head}step of {escape(rank['root'])}: {rank['calls']} calls of {rank['called']} of {rank['modules']} modules, "
        f"{len(rows)} outputs, in {duration(rank['seconds'])}; reading took {duration(rank['reading'] / max(1, rank['calls']))} "
        "of each call"
    )
    lines = [style.title(title), table([cells(row, style) for row in rows], HEAD, style, ("NaN", "inf"), SPARE)]
    first = next((row for row in rows if row["nan"]), None)
    if first is not None:
        lines.append(style.bad(f"first NaN: {escape(name_of(first))} ({first['type']})"))
    lines += [f"written: {escape(path)}" for path in rank["files"]]
    return "\n".join(lines)


DIFFERENCES = ["module", "type", "output", "differs by", "relative", "at", ""]


def comparison_text(found: dict[str, Any], every: bool, style: Style) -> str:
    """Two records side by side: the first difference, and the other differences."""
    rows, first = found["rows"], found["first"]
    other = [row for row in rows if row["compared"] and not row["equal"]]
    lines, left_out = [], found["not_compared"]
    if first is None and not found["compared"]:
        lines.append(style.bad(f"nothing was compared: none of {len(rows)} outputs can be"))
    elif first is None:
        explained = f"; {len(other)} differ in bits, within what their dtypes explain" if other else ", bit by bit"
        lines.append(f"no difference in {found['compared']} outputs{explained}")
    else:
        lines.append(style.bad(f"first difference: {escape(name_of(first))} ({escape(first['type'])}): {_how(first)}"))
        before = next((row for row in other if row is not first), None)
        if before is not None and rows.index(before) < rows.index(first):
            lines.append(f"before it: {escape(name_of(before))} differs within what its dtype explains ({_how(before)})")
    for why, group in itertools.groupby(sorted(left_out, key=lambda row: str(row["why"])), key=lambda row: str(row["why"])):
        paths = alike([row["path"] for row in group])
        lines.append(f"not compared: {escape(why.replace('not compared: ', ''))}: {escape(paths)}")
    shown = rows if every else other
    if shown:
        lines.append(table([_difference(row, style) for row in shown], DIFFERENCES, style, right=("differs by", "relative")))
    if first is not None:
        lines.append(f"{sum(row['different'] for row in rows)} of {found['compared']} outputs differ")
    return "\n".join(lines)


def _how(row: dict[str, Any]) -> str:
    parts = [] if row.get("rank") is None else [f"on rank {row['rank']}"]
    if row["max_abs_diff"] is not None:
        parts.append(f"by up to {number_text(row['max_abs_diff'])}")
    if row["relative"] is not None:
        parts.append(f"relatively {number_text(row['relative'])}")
    if row["index"] is not None:
        parts.append(f"most at {list(row['index'])}")
    if row.get("nan_different"):
        parts.append(f"{row['nan_different']} NaN against numbers")
    if row["why"]:
        parts.append(escape(row["why"]))
    return ", ".join(parts) + _made(row)


def _made(row: dict[str, Any]) -> str:
    """ " (against q_proj, k_proj, v_proj side by side; the most in k_proj)": the parts that were combined for the comparison."""
    made = row["made"]
    if made is None:
        return ""
    above = row["path"].rpartition(".")[0] + "."
    *short, part = (escape(n[len(above) :] if n.startswith(above) else n) for n in [*made["outputs"], made["part"] or ""])
    most = f"; the most in {part}" if part else ""
    return f" (against {', '.join(short)} {HOW[made['how']]}{most})"


def alike(names: Sequence[str]) -> str:
    """ "layers.N.mlp.act_fn (4), lm_head": paths that differ in their numbers alone, together."""
    counts = Counter(NUMBER.sub(".N", name) or "the model" for name in names)
    shown = [name + (f" ({count})" if count > 1 else "") for name, count in counts.items()]
    return ", ".join(shown[:MAX_ALIKE]) + (", …" if len(shown) > MAX_ALIKE else "")


def _difference(row: dict[str, Any], style: Style) -> list[str]:
    return [
        style.name(escape(row["path"] or "(the model)")) + (f" call {row['call'] + 1}" if row["call"] else ""),
        escape(row["type"]),
        escape(row["output"]),
        "" if row["max_abs_diff"] is None else number_text(row["max_abs_diff"]),
        "" if row["relative"] is None else number_text(row["relative"]),
        "" if row["index"] is None else str(list(row["index"])),
        escape(row["why"]) if row["why"] else "equal" if row["equal"] else style.bad("differs") if row["different"] else "",
    ]
