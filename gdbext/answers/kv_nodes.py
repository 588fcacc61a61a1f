"""llm-kv check over several machines: whether the caches of all of them are sound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..render.text import escape
from . import each_node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..render.text import Style

_NUMBER, _TEXT = (int, None), (str, None)
FAULT = {"rule": str, "block": _NUMBER, "request_id": _TEXT, "detail": str, "rank": _TEXT, "more": int}
ANSWER = {  # what is read of an answer of `llm-kv check -json`
    "ok": (bool, None),
    "blocks": int,
    "engine": str,
    "version": str,
    "compared": [{"label": str}],
    "not_compared": [{"label": str, "what": str, "why": str}],
    "violations": [FAULT],
    "passing": [FAULT],
    "changed": [FAULT],
    "mid_update": bool,
    "ranks": (dict, list, int, bool, str, None),
    "partial?": [str],
}
LISTS = ("violations", "passing", "changed", "compared", "not_compared")


def merged(answers: Sequence[tuple[str, Any]], failed: list[dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """-> (one answer, `node` in each place; why that is not all). `ok`: False: one cache is not sound; None: one was not told,
    or not read; True: all are sound. A damaged answer is named in `failed`; `GdbextError` where none is left."""
    data: dict[str, Any] = {name: [] for name in LISTS}
    partial, nodes = [], []
    for name, node, answer in each_node.sound(answers, ANSWER, failed):
        for part in LISTS:
            data[part] += [{**one, "node": node} for one in answer[part]]
        partial += [f"{name}: {escape(reason)}" for reason in answer.get("partial", ())]
        about = {key: answer[key] for key in ("ok", "blocks", "engine", "version", "mid_update")}
        nodes.append({"node": escape(name), **about})
    partial += [f"{f['label']}: {f['reason']}" for f in failed]
    said, blocks = [one["ok"] for one in nodes], sum(one["blocks"] for one in nodes)
    ok = False if False in said else None if failed or None in said else True
    mid = any(one["mid_update"] for one in nodes)
    return {"ok": ok, "blocks": blocks, "mid_update": mid, **data, "nodes": nodes, "failed": failed}, partial


def lines(data: dict[str, Any], style: Style) -> list[str]:
    """For people."""
    said = []
    for one in data["nodes"]:
        faults = [v for v in data["violations"] if v["node"] == (one["node"].partition(":")[2] or one["node"])]
        count = sum(1 + v["more"] for v in faults)
        how = (
            style.bad(f"{count} faults")
            if faults
            else style.good("sound")
            if one["ok"]
            else style.bad("no fault found, not told")
        )
        said.append(
            f"{style.title(one['node'])}  {escape(one['engine'])} {escape(one['version'])}: {one['blocks']} blocks: {how}"
        )
        said += [
            f"  {style.bad(escape(v['rule']))}: {escape(v['detail'])}" + (f" (+{v['more']} more)" if v["more"] else "")
            for v in faults
        ]
    said += [
        style.bad(f"{one['node']}: not compared: {escape(one['label'])}: {escape(one['what'])}: {escape(one['why'])}")
        for one in data["not_compared"]
    ]
    return said + [style.bad(f"{escape(str(f['label']))}: not read: {escape(f['reason'])}") for f in data["failed"]]
