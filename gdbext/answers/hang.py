"""An examination of processes (`verdict.examine`) as the JSON of llm-hang, and as text."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Callable, Sequence

from ..engines import nccl_ras, shm_files
from ..errors import GdbextError
from ..render.text import escape
from ..requests.model import KEPT
from ..stacks import snapshots
from ..verdict import untraced
from ..verdict.chains import chain_of_request
from ..verdict.examine import Examination
from ..verdict.facts import Facts, ProcessState, Verdict
from ..verdict.kinds import MEANING
from . import requests
from .chains import chain_lines, chains_data
from .ends import ends_data, ends_lines
from .places import node_text, nodes_of, place

PARKED, STUCK = "parked", ("never-fits", "parked", "behind", "lost", "zombie", "thrash")
GOOD = ("busy", "idle")


def hang_data(found: Examination) -> dict[str, Any]:
    """The JSON fields; `GdbextError` where nothing at all could be read."""
    seen = found.seen
    told = found.untraced or any(map(_is_read, seen)) or any(f.state in ("Z", "X", "T", "t") for f in seen)
    if not told:
        raise GdbextError("; ".join(dict.fromkeys(s.why for s in seen if s.why)) or "no process could be read")
    culprit = _placer(seen)
    said = found.verdicts[0]
    stuck = [r for r in found.requests or () if r.verdict in STUCK]
    verdicts = [
        {
            "engine": v.engine,
            "group": [escape(name) for name in v.processes],
            "verdict": v.kind,
            "culprits": [culprit(n, v.children) for n in v.culprits],
            "evidence": [escape(e) for e in v.evidence],
            "victims": [escape(name) for name in v.victims],
            "not_asked": [escape(name) for name in v.not_asked],
            "not_asked_at": [{"rank": escape(name), "address": escape(host)} for name, host in v.hosts.items()],
            "if_it_lasts": _if_it_lasts(v.if_it_lasts, culprit),
        }
        for v in found.verdicts
    ]
    return {
        "verdict": said.kind,
        "culprits": verdicts[0]["culprits"],
        "evidence": verdicts[0]["evidence"],
        "victims": verdicts[0]["victims"],
        "not_asked": verdicts[0]["not_asked"],
        "not_asked_at": verdicts[0]["not_asked_at"],
        "if_it_lasts": verdicts[0]["if_it_lasts"],
        "meaning": MEANING[said.kind],
        "verdicts": verdicts,
        "chains": chains_data(found.chains, lambda node: culprit(node, {})),
        "progress": [
            {"label": escape(c.label), "pid": c.pid, "what": escape(c.what), "before": c.before, "after": c.after}
            for f in seen
            for c in f.counters
        ]
        + [requests.counter_data(c) for c in found.progress],
        "requests_open": sum(r.verdict != KEPT for r in found.requests) if found.requests is not None else None,
        "requests_stuck": sum(not (r.verdict == PARKED and r.paused) for r in stuck) if found.requests is not None else None,
        "requests": [requests.stuck_data(r) for r in stuck],
        "requests_kept": [requests.stuck_data(r) for r in found.requests or () if r.verdict == KEPT],
        "in_step": [
            {"label": escape(f.name), "pid": f.pid, **_without(dataclasses.asdict(f.in_step), "hosts")}
            for f in seen
            if f.in_step is not None
        ],
        "untraced": found.untraced,
        "ends": ends_data(s.view for s in seen if s.view),
        "ranks_read": sum(map(_is_read, seen)),
        "ranks_total": len(seen),
        "pauses": snapshots.pauses([s.snapshot for s in seen if s.snapshot is not None]),
        "failed": [{"label": s.name, "pid": s.pid, "reason": s.why} for s in seen if not _is_read(s)],
    }


def _without(data: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in data.items() if k != key}


def _if_it_lasts(v: Verdict | None, culprit: Callable[[Any, dict[str, int]], dict[str, Any]]) -> dict[str, Any] | None:
    if v is None:
        return None
    return {
        "verdict": v.kind,
        "culprits": [culprit(n, v.children) for n in v.culprits],
        "victims": [escape(name) for name in v.victims],
    }


def _placer(seen: Sequence[ProcessState]) -> Callable[[Any, dict[str, int]], dict[str, Any]]:
    """-> a function that gives the `place` of a node, from the processes that were examined and from {name: pid} of children that
    were not."""
    by_name = {s.name: s for s in seen}
    owners = {thread.node: s for s in seen for thread in s.threads}  # two jobs have processes of one name
    owners.update({task.node: s for s in seen for task in s.tasks})
    nodes = nodes_of([s.view for s in seen if s.view])

    def of(node: Any, children: dict[str, int]) -> dict[str, Any]:
        if node in nodes:
            return place(*nodes[node])
        s = owners.get(node) or by_name.get(node[0])
        if s is not None and s.node:
            return _place_there(s, node)
        data = {"host": os.uname().nodename, "label": escape(node[0]), "pid": s.pid if s is not None else children.get(node[0])}
        if s is not None and isinstance(node[1], str):
            data["task"] = escape(node[1].partition(" ")[2])
        return data

    return of


def request_chains(found: Examination, request_id: str) -> list[dict[str, Any]]:
    """The chain of one request as llm-hang has it, in a list; [] where none waits."""
    of = _placer(found.seen)
    waiting = [r for r in found.requests or () if r.request_id == request_id and r.verdict in STUCK]
    return chains_data([chain_of_request(Facts(found.seen), r) for r in waiting], lambda node: of(node, {}))


def _is_read(s: ProcessState) -> bool:
    """Whether a process was read, here or on its own machine."""
    return s.view is not None or bool(s.node) and not s.why


def _place_there(s: ProcessState, node: Any) -> dict[str, Any]:
    """The `place` of a thread or process of another machine."""
    data: dict[str, Any] = {"host": escape(s.node), "node": escape(s.node), "label": escape(s.name), "pid": s.pid, "role": s.role}
    thread = next((t for t in s.threads if t.node == node), None)
    if thread is not None:
        data["tid"], data["name"] = node[1], escape(thread.name)
    elif isinstance(node[1], str):
        data["task"] = escape(node[1].partition(" ")[2])
    return data


def hang_lines(data: dict[str, Any], style: Any, nodes: dict[Any, Any]) -> list[str]:
    """The verdicts as text, the gravest in full."""
    lines = _verdict_lines(data["verdicts"][0], style, nodes, len(data["verdicts"]) > 1)
    for other in data["verdicts"][1:]:
        lines += _verdict_lines(other, style, nodes, True)
    if data["verdict"] not in GOOD:
        lines += chain_lines(data["chains"], style, nodes)
    moved = [c for c in data["progress"] if c["before"] != c["after"]]
    if moved and data["verdict"] not in GOOD:
        lines.append(style.dim("moved meanwhile: " + "; ".join(f"{c['label']}: {c['what']}" for c in moved[:6])))
    lines += ends_lines(data["ends"], style, True)
    for one in data["untraced"]:
        told = untraced.lines(one) + shm_files.lines(one["rings"]) + (nccl_ras.lines(one["ras"]) if one["ras"] else [])
        lines += [escape(line) for line in told] + _http_lines(one["http"])
    return lines


def _http_lines(http: dict[str, Any] | None) -> list[str]:
    if http is None:
        return []
    counted = ", ".join(f"{escape(name)} {value:g}" for name, value in http["metrics"].items())
    said = f"  its HTTP server on port {http['port']}: /health {http['health']}"
    return [said + (f"; {counted}" if counted else "; /metrics counts no requests")]


def _verdict_lines(one: dict[str, Any], style: Any, nodes: dict[Any, Any], named: bool) -> list[str]:
    kind = one["verdict"]
    good = kind in GOOD
    who = f"{', '.join(one['group'][:8])}: " if named else ""
    lines = [who + style.title((style.good if good else style.bad)(kind)) + ": " + MEANING[kind]]
    culprits = [_culprit_text(c, nodes) for c in one["culprits"]]
    if culprits:
        word = "who" if good else "culprit" if len(culprits) == 1 else "culprits"
        lines.append(f"{word}: {style.name('; '.join(culprits))}")
    lines += ["  " + e for e in one["evidence"]]
    lasts = one["if_it_lasts"]
    if lasts is not None:
        blamed = "; ".join(_culprit_text(c, nodes) for c in lasts["culprits"])
        lines.append("if it lasts: " + style.title(lasts["verdict"]) + (f", culprit {style.name(blamed)}" if blamed else ""))
    if one["victims"]:
        lines.append("victims: " + ", ".join(one["victims"]))
    if one["not_asked"]:
        lines.append("not asked: " + ", ".join(one["not_asked"]))
    return lines


def _culprit_text(c: dict[str, Any], nodes: dict[Any, Any]) -> str:
    return _who_text(c, nodes) + (f" on {c['node']}" if c.get("node") else "")


def _who_text(c: dict[str, Any], nodes: dict[Any, Any]) -> str:
    if c.get("tid"):
        return str(node_text((c["label"], c["tid"]), nodes))
    if c.get("task"):
        return f"{c['label']} task {c['task']}"
    return str(c["label"]) + (f" (pid {c['pid']})" if c["pid"] and str(c["pid"]) != c["label"] else "")
