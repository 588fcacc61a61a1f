"""llm-kv check over several machines: whether the caches of all of them are sound."""

from __future__ import annotations

from typing import Any, Sequence

from .. import __version__
from ..engines.kv_facts import SCHEMA
from ..errors import GdbextError
from ..kvcache import exchange, over_nodes
from ..kvcache.over_nodes import Member
from ..render.fields import NUMBER, REAL
from ..render.jsonline import expect
from ..render.text import Style, escape
from . import each_node
from . import kv as shapes
from .kv_text import compared_line

MEMBER = {  # one process of the facts of a machine (engines/kv_facts.py)
    "label": str,
    "engine": str,
    "schedules": bool,
    "keys": [str],
    "why": str,
    "dp_size": int,
    **dict.fromkeys(("rank", "size", "dp"), NUMBER),
    **dict.fromkeys(("began", "ended"), REAL),
}
FACTS = {"schema": str, "version": str, "members": [{**MEMBER, "caches": list, "workers": list}]}


def merged(
    answers: Sequence[tuple[str, Any]], failed: list[dict[str, Any]], ranks: bool = False, deep: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """-> (one answer, `node` in each place; why that is not all). `ok`: False: one cache is not sound; None: one was not told,
    or not read; True: all are sound. `ranks`: workers were to be compared with the schedulers of other machines. `deep`: the
    blocks' values were to be read; each machine reads those of the workers whose scheduler it has. A damaged answer is named in
    `failed`; `GdbextError` where none is left."""
    members: list[Member] = []

    def take(node: str, answer: Any) -> None:
        members.extend(_members(node, answer) if ranks else ())

    def about(answer: Any) -> dict[str, Any]:
        own = [one["label"] for one in answer["compared"] if one.get("tables")]
        said = {key: answer[key] for key in ("ok", "blocks", "engine", "version", "mid_update")}
        return {**said, "looked_at": answer.get("looked_at"), "ranks": own}

    data, partial = each_node.merged(shapes.ANSWER, answers, failed, about, take)
    nodes = data["nodes"]
    for one in nodes:
        one["processes"] = sum(member.node == each_node.place_of(one["node"]) for member in members)
    by_node = {each_node.place_of(one["node"]): one for one in nodes}
    partial += _over_nodes(members, data, by_node)
    partial += _values_unread(members, data) if deep else []
    said = [one["ok"] for one in nodes]
    told = not failed and None not in said and (not ranks or any(one["ranks"] for one in nodes))
    ok = False if False in said else True if told else None
    mid = any(one["mid_update"] for one in nodes)
    return {**data, "ok": ok, "mid_update": mid, "ranks": [label for one in nodes for label in one["ranks"]]}, partial


def _members(node: str, answer: Any) -> list[Member]:
    """The processes of a machine's facts; `GdbextError` or ValueError where these are damaged."""
    facts, moments = answer.get("facts"), answer.get("moments") or {}
    if not isinstance(facts, dict):
        raise GdbextError("it sent no tables: another release of gdbext")
    if facts.get("schema") != SCHEMA or facts.get("version") != __version__:
        said = f"{facts.get('schema')} of {facts.get('version')}"
        raise GdbextError(f"its tables are {said[:80]}, not {SCHEMA} of {__version__}: another release of gdbext")
    expect(facts, FACTS, "its facts")
    told, way = moments.get("told"), moments.get("way")
    found = []
    for one in facts["members"]:
        member = Member(one["label"], node, one["engine"], frozenset(one["keys"]), schedules=one["schedules"], why=one["why"])
        member.rank, member.size, member.dp, member.dp_size = (one[key] for key in ("rank", "size", "dp", "dp_size"))
        if told is not None and way is not None and one["began"] is not None and one["ended"] is not None:
            member.began, member.ended = told + way + one["began"], told + one["ended"]
        member.caches, member.workers = exchange.caches_of(one["caches"]), exchange.workers_of(one["workers"], one["label"])
        found.append(member)
    return found


def _over_nodes(members: list[Member], data: dict[str, Any], by_node: dict[str, dict[str, Any]]) -> list[str]:
    """Takes in what workers and the schedulers of other machines say. -> why that is not all"""
    partial = []
    told: dict[str, list[bool | None]] = {}
    for one in over_nodes.compared(members):
        where, node, report = {"node": one.worker.node}, by_node[one.worker.node], one.report
        if report is None:
            data["not_compared"].append({**shapes.UNSEEN.data(over_nodes.left_out(one)), **where})
            partial.append(f"{node['node']}: not compared: {escape(one.worker.label)}: {over_nodes.TABLES}: {escape(one.why)}")
            continue
        for part, found in (("violations", report.violations), ("passing", report.transient), ("changed", report.changed)):
            data[part] += [{**shapes.FAULT.data(v), **where} for v in found]
        data["compared"] += [{**line, **where} for line in shapes.compared_data(report)]
        for left in map(shapes.UNSEEN.data, report.not_compared):
            data["not_compared"].append({**left, **where})
            partial.append(f"{node['node']}: not compared: {left['label']}: {left['what']}: {left['why']}")
        if report.changed:
            partial.append(f"{node['node']}: {len(report.changed)} differences changed while they were read: ask again")
        node["ranks"] += map(escape, report.ranks)
        if report.violations or report.changed or report.ranks:
            told.setdefault(one.worker.node, []).append(False if report.violations else None if report.changed else True)
    for place, said in told.items():
        node = by_node[place]
        said += [node["ok"]] if node["blocks"] else []  # one without a cache is as its workers are
        node["ok"] = False if False in said else None if None in said else True
    for scheduler, which in over_nodes.missing(members):
        left = {"label": which, "what": over_nodes.TABLES, "why": "no machine that was asked has it"}
        data["not_compared"].append({**left, "node": scheduler.node})
        partial.append(f"not compared: {which} of {escape(scheduler.name())}: {left['why']}")
    return partial


def _values_unread(members: list[Member], data: dict[str, Any]) -> list[str]:
    """Names the workers whose scheduler is on another machine: it alone knows which of their blocks are computed."""
    partial = []
    for one in over_nodes.compared(members):
        left = {
            "label": escape(one.worker.label),
            "what": "blocks' values",
            "why": "which are computed is known to its scheduler alone",
        }
        left["why"] += ", on another machine" if one.scheduler is not None else ", which was not read"
        data["not_compared"].append({**left, "node": one.worker.node})
        partial.append(f"not compared: {escape(one.worker.name())}: {left['what']}: {left['why']}")
    return partial


def lines(data: dict[str, Any], style: Style) -> list[str]:
    """For people."""
    said = []
    for one in data["nodes"]:
        place = each_node.place_of(one["node"])
        faults = [v for v in data["violations"] if v["node"] == place]
        count = sum(1 + v["more"] for v in faults)
        how = (
            style.bad(f"{count} faults")
            if faults
            else style.good("sound")
            if one["ok"]
            else style.bad("no fault found, not told")
        )
        what = f"{one['blocks']} blocks" if one["blocks"] or not one["processes"] else "no scheduler, workers alone"
        said.append(
            f"{style.title(one['node'])}  {' '.join(filter(None, map(escape, (one['engine'], one['version']))))}: {what}: {how}"
        )
        said += ["  " + compared_line(rank) for rank in data["compared"] if rank["node"] == place and "rows" in rank]
        said += [
            f"  {style.bad(escape(v['rule']))}: {escape(v['detail'])}" + (f" (+{v['more']} more)" if v["more"] else "")
            for v in faults
        ]
    said += [
        style.bad(f"{one['node']}: not compared: {escape(one['label'])}: {escape(one['what'])}: {escape(one['why'])}")
        for one in data["not_compared"]
    ]
    return said + [style.bad(f"{escape(str(f['label']))}: not read: {escape(f['reason'])}") for f in data["failed"]]
