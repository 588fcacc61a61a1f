"""The records of `llm-layers`, as rows of JSON and as text."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import Any, Sequence

from ..render.fields import FLAG, NUMBER, REAL, TEXT, VALUE, Field, Fields, each
from ..render.text import Style, escape
from ..render.text import seconds as duration
from .tensors import number_text

SHOWN_HASH = 12
MAX_ALIKE = 8
NUMBERED = re.compile(r"\.\d+(?=[.\[]|$)")
HOW = {"concatenated": "side by side", "sum": "added up", "product": "multiplied"}


def _module(row: Any, style: Style) -> str:
    return style.name(escape(row["path"] or "(the model)")) + (f" call {row['call'] + 1}" if row["call"] else "")


def _odd(name: str) -> Any:
    return lambda row, style: style.bad(str(row[name])) if row[name] else ""


def _said(row: Any, style: Style) -> str:
    return escape(row["why"]) if row["why"] else "equal" if row["equal"] else style.bad("differs") if row["different"] else ""


def _hash(row: Any, style: Style) -> str:
    return row["hash"][:SHOWN_HASH] if row["hash"] is not None else escape(row.get("why") or "no tensor")


def _items(found: Any) -> str:
    return str(list(found))


_WHICH = (
    Field("path", str, "'': the model itself", head="module", draw=_module),
    Field("call", int, "of the module, from 0"),
    Field("type", str, head="type", spare=1),
    Field("output", str, "its place in the return value: '', `[0]`, `['x']`, `.x`", head="output", spare=5),
)
_OPTIONAL = ([int], None)
SHARD = Fields(*each(int, "dim copies"), Field("parts", [int]))
MODULE = Fields(
    Field("rank", (str, int, None)),
    *_WHICH,
    Field("shape", _OPTIONAL, "null, as all to `hash`: no tensor, or none that can be read", head="shape", cell=_items),
    Field("dtype", TEXT, head="dtype", spare=2),
    Field("nan", NUMBER, head="NaN", draw=_odd("nan")),
    Field("inf", NUMBER, head="inf", draw=_odd("inf")),
    Field("min", VALUE, head="min", cell=number_text),
    Field("max", VALUE, head="max", cell=number_text),
    Field("mean", VALUE, head="mean", cell=number_text, spare=4),
    Field("hash", TEXT, "SHA-256 of the elements in row-major order", head="hash", draw=_hash, spare=3),
    Field("shard", (SHARD, None), "how its layer's class cuts it over ranks"),
    Field("why", TEXT),
    Field("saved", (str, bool, None)),
)
RANK = Fields(
    *each(TEXT, "label"),
    *each(NUMBER, "pid"),
    *each(TEXT, "root"),
    *each(NUMBER, "step calls called modules"),
    *each(REAL, "seconds reading"),
    Field("files", [str]),
)
MADE = Fields(
    Field("side", str, "`a` or `b`"),
    Field("how", str, "`concatenated`, `sum` or `product`"),
    Field("outputs", [str]),
    Field("part", TEXT, "which of them holds `index`"),
)
ROW = Fields(
    *_WHICH,
    Field("rank", (str, int, None), "of ranks that were compared one by one"),
    Field("equal", FLAG, "every bit"),
    Field("different", FLAG, "beyond what the dtype explains"),
    Field("max_abs_diff", VALUE, head="differs by", cell=number_text),
    Field("relative", VALUE, head="relative", cell=number_text),
    Field("index", _OPTIONAL, head="at", cell=_items),
    Field("nan_different", NUMBER),
    Field("elements", NUMBER, "that differ"),
    Field("why", TEXT, head=" ", draw=_said),
    Field("made", (MADE, None), "where modules are cut differently: what was put together to be compared"),
    Field("compared", bool, "values, ranges or hashes were"),
    shape="row",
)
ANSWER = Fields(
    Field("modules", [MODULE], "a row for each tensor that a module returned, in the order of the returns"),
    Field("ranks", [RANK]),
    Field("first", (ROW, None), "of -compare: null: no difference"),
    Field("rows", [ROW], "of -compare"),
    *each([str], "only_a only_b", means="of -compare: outputs that one side has alone"),
    Field("compared", int, "of -compare: how many"),
    Field("not_compared", [Fields(*each(str, "path output why"))], "neither equal nor different"),
)


def name_of(row: dict[str, Any]) -> str:
    """ "layers.3.mlp", "layers.3.mlp (2nd call)", "layers.3.mlp[0]": the module and which of its tensors."""
    path = row["path"] or "(the model)"
    return str(path) + (f" call {row['call'] + 1}" if row["call"] else "") + str(row["output"])


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
    lines = [style.title(title), MODULE.table(rows, style)]
    first = next((row for row in rows if row["nan"]), None)
    if first is not None:
        lines.append(style.bad(f"first NaN: {escape(name_of(first))} ({first['type']})"))
    lines += [f"written: {escape(path)}" for path in rank["files"]]
    return "\n".join(lines)


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
        lines.append(ROW.table(shown, style))
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
    counts = Counter(NUMBERED.sub(".N", name) or "the model" for name in names)
    shown = [name + (f" ({count})" if count > 1 else "") for name, count in counts.items()]
    return ", ".join(shown[:MAX_ALIKE]) + (", …" if len(shown) > MAX_ALIKE else "")
