"""llm-top over several machines: one frame of each, as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..render.text import escape, seconds, short_path, size, table
from . import each_node
from .top import requests_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..render.text import Style

_NUMBER, _TEXT, _REAL = (int, None), (str, None), (int, float, None)
RANK = {"label": str, "pid": int, "state": str, "function": _TEXT, "file": _TEXT, "line": _NUMBER, "part": _REAL, "gil": _REAL}
RANK_MORE = {"cpu": _REAL, "rss": _NUMBER, "steps_per_second": _REAL}
ENGINE = {"engine": str, "labels": [str], "running": _NUMBER, "waiting": _NUMBER, "tokens_per_second": _REAL, "kv_use": _REAL}
ANSWER = {  # what is read of an answer of `llm-top -once -json`
    "ranks": [{**RANK, **RANK_MORE}],
    "engines": [ENGINE],
    "requests": [{"engine": str, "request_id": str, "without_progress": _REAL}],
    "failed": [{"label": _TEXT, "pid": _NUMBER, "reason": str}],
    "partial?": [str],
}
LISTS = ("ranks", "engines", "requests")
KEYS = ("cpu", "rss", "gil")  # the orders that a merged frame is put in anew


def merged(answers: Sequence[tuple[str, Any]], failed: list[dict[str, Any]], sort: str) -> tuple[dict[str, Any], list[str]]:
    """-> (one frame of all machines, `node` in each place; why that is not all). A damaged answer is named in `failed`;
    `GdbextError` where none is left."""
    data: dict[str, Any] = {name: [] for name in LISTS}
    partial, nodes = [], []
    for name, node, answer in each_node.sound(answers, ANSWER, failed):
        for part in LISTS:
            data[part] += [{**one, "node": node} for one in answer[part]]
        failed += [{**one, "node": node} for one in answer["failed"]]
        partial += [f"{name}: {escape(reason)}" for reason in answer.get("partial", ())]
        nodes.append({"node": escape(name), "processes": len(answer["ranks"])})
    if sort in KEYS:
        data["ranks"].sort(key=lambda one: -(one[sort] or 0))
    partial += [f"{f['label']}: {f['reason']}" for f in failed if "node" not in f]
    return {**data, "nodes": nodes, "failed": failed}, partial


def lines(data: dict[str, Any], style: Style) -> list[str]:
    """For people."""
    said = []
    for one in data["engines"]:
        words = [requests_text(one["running"], one["waiting"])]
        words += [f"{one['tokens_per_second']:.0f} tokens/s"] if one["tokens_per_second"] is not None else []
        words += [f"KV {100 * one['kv_use']:.0f} %"] if one["kv_use"] is not None else []
        old = next((r for r in data["requests"] if (r["node"], r["engine"]) == (one["node"], one["engine"])), None)
        words += [f"oldest: {escape(old['request_id'])}, {seconds(old['without_progress'] or 0.0)}"] if old is not None else []
        said.append(style.title(f"{one['node']} {escape(one['engine'])}") + "  " + "  ".join(words))
    rows = [
        [
            one["node"],
            style.name(escape(one["label"])),
            str(one["pid"]),
            escape(one["state"]),
            f"{escape(one['function'])} ({escape(short_path(one['file'] or ''))}:{one['line']})" if one["function"] else "",
            f"{100 * (one['part'] or 0):.0f} %",
            f"{100 * (one['gil'] or 0):.0f} %",
            f"{one['cpu'] or 0:.2f}",
            size(one["rss"]) if one["rss"] else "",
            f"{one['steps_per_second']:.1f}" if one["steps_per_second"] is not None else "",
        ]
        for one in data["ranks"]
    ]
    head = ["node", "label", "pid", "state", "in", "part", "GIL", "CPU", "RSS", "steps/s"]
    said.append(table(rows, head, style, ("pid", "part", "GIL", "CPU", "RSS", "steps/s"), ("GIL", "steps/s", "RSS", "part")))
    return said + [style.bad(f"{escape(str(f['label']))}: not read: {escape(f['reason'])}") for f in data["failed"]]
