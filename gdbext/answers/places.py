"""Processes and threads as the JSON `place`, and as the words that name them in text."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterable, Tuple

from ..render.fields import NUMBER, REAL, Field, Fields
from ..render.text import ASLEEP, Style, escape, seconds, thread_text
from ..stacks.threads import ProcessView, ThreadView

Node = Tuple[str, int]  # (name of a process, tid)
Nodes = Dict[Node, Tuple[ProcessView, ThreadView]]
PLACE = Fields(  # of other machines' answers, and for docs
    Field("host", str),
    Field("label", str, must=True),
    Field("pid", NUMBER, must=True),
    Field("role", str),
    Field("ns_pid", int),
    Field("tid", NUMBER),
    Field("name", str),
    Field("task", str),
    Field("request", str),
    Field("program", str, "of a process that has no label of its own"),
    shape="place",
)
PAUSE = Fields(Field("pid", int, must=True), Field("seconds", REAL, must=True), Field("woken", int), shape="pause")


def place(view: ProcessView, thread: ThreadView | None = None) -> dict[str, Any]:
    """The JSON `place`."""
    data = {
        "host": getattr(view, "host", None) or os.uname().nodename,
        "label": view.name,
        "pid": view.pid,
        "role": role_of(view),
    }
    inner = getattr(view, "ns_pid", view.pid)
    if inner != view.pid:
        data["ns_pid"] = inner
    if thread is not None:
        data["tid"], data["name"] = thread.tid, escape(thread.name)
    return data


def named(view: ProcessView) -> str:
    """`TP0`, or for a process without a label its pid, also in its own pid namespace: `812 (ns 7)`."""
    inner = getattr(view, "ns_pid", view.pid)
    return view.name if inner == view.pid or view.name != str(view.pid) else f"{view.name} (ns {inner})"


def role_of(view: ProcessView) -> str:
    """The role of an engine's process; '' for any other."""
    return view.rank.role if view.rank is not None else getattr(view, "role", "")


def nodes_of(views: Iterable[ProcessView]) -> Nodes:
    """{node: (ProcessView, ThreadView)}"""
    return {(view.name, th.tid): (view, th) for view in views for th in view.threads}


def node_text(node: Node, nodes: Nodes) -> str:
    """`TP0 thread 4242 (MainThread)`; without the process where one is spoken of that has no label but its pid."""
    view, thread = nodes.get(node, (None, None))
    plain = node[0].isdecimal() and all(known[0].name == node[0] for known in nodes.values())
    label = "" if plain else escape(node[0])
    if thread is None and isinstance(node[1], str):
        return f"{label} {escape(node[1])}".strip()  # an asyncio task
    return thread_text(node[1], escape(thread.name) if thread is not None else "", label)


def name(place: dict[str, Any] | None, alone: bool = False) -> str:
    """`TP0 thread 4242 (worker)`, `TP0 task worker-3`; `alone`: without the process."""
    if place is None:
        return ""
    if place.get("request"):
        return f"request {place['request']}"
    label = "" if alone else f"{place['program']} ({place['pid']})" if place.get("program") else str(place["label"])
    if place.get("task"):
        return f"{label} task {place['task']}".strip()
    if not place.get("tid") or label and place["tid"] == place["pid"] and place.get("name") == place.get("program"):
        return label or str(place["label"])
    return thread_text(place["tid"], place.get("name") or "", label)


def woken_text(count: int) -> str:
    """A sentence about threads that slept and had to be stopped all the same."""
    return f"{count} sleeping thread{'s were' if count > 1 else ' was'} briefly interrupted (a system call may return EINTR)"


def closing(data: dict[str, Any], names: dict[int, str], style: Style) -> list[str]:
    """The last lines of an answer about several processes: which could not be read, and how long each was stopped."""
    lines, mends = [], set()
    for f in data["failed"]:
        why, _, mend = f["reason"].partition("; ")
        lines.append(style.bad(f"{escape(f['label']) or f['pid']}: not read: {escape(why if mend in mends else f['reason'])}"))
        mends.add(mend or None)
    stood = [p for p in data["pauses"] if p["seconds"]]
    if data["pauses"] and not stood:
        lines.append(style.dim(ASLEEP))
    elif data["pauses"] and "hosts" in data:  # pids of many machines
        most = max(p["seconds"] for p in stood)
        lines.append(
            style.dim(f"paused: {len(stood)} processes on {data['hosts']} machines, {seconds(most)} at most; all resumed")
        )
    elif data["pauses"]:
        some = ", ".join(f"{names.get(p['pid'], p['pid'])} {seconds(p['seconds'])}" for p in stood[:16])
        lines.append(style.dim(f"paused: {some}" + (", …" if len(stood) > 16 else "") + "; all resumed"))
    woken = sum(p.get("woken", 0) for p in data["pauses"])
    if woken:
        lines.append(style.dim(woken_text(woken)))
    return lines
