"""Edges of the wait-for graph as the JSON `edge`, and as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..render.fields import FAILURES, JOIN, SUM, TEXT, Field, Fields, objects
from ..render.jsonline import Address
from ..render.text import Style, escape, thread_text
from ..stacks.waits import Edge
from ..verdict.chains import chains_of
from ..verdict.facts import LOCKS, Facts, ProcessState
from . import each_node
from .chains import CHAIN, chains_data
from .places import PAUSE, PLACE, Nodes, node_text, place

SHOWN = 6  # threads of one line, and places
FEW = 8  # waits that are told one by one, whatever they are for
UNTOLD = Fields(*PLACE, Field("function", str, "in native code", must=True))
EDGE = Fields(
    Field("waiter", PLACE, must=True),
    Field("lock", str, must=True),
    Field("owner", (PLACE, None), must=True),
    Field("kind", str, must=True),
    Field("address", TEXT, read=lambda e: Address(e.address) if e.address else None),
    Field("how", str, "how the owner is known"),
    Field("where", str, must=True),
    Field("note", str, must=True),
    Field("candidates", [PLACE], "possible owners", must=True),
    Field("orphan", bool, "its owner has ended", must=True),
)


def edge_data(edge: Edge, nodes: Nodes) -> dict[str, Any]:
    """The JSON `edge`, with the known facts about the owner."""

    def at(node: Any) -> Any:
        if node in nodes:
            return place(*nodes[node])
        view = next(view for view, _ in nodes.values() if view.name == node[0])
        return {**place(view), "task": escape(str(node[1]).partition(" ")[2])}

    owner = at(edge.owner) if edge.owner in nodes or isinstance((edge.owner or (0, 0))[1], str) else None
    ends = {"waiter": at(edge.waiter), "owner": owner, "candidates": [at(c) for c in edge.candidates]}
    return {**EDGE.data(edge), **ends}


def lock_chains(states: list[ProcessState], nodes: Nodes) -> list[dict[str, Any]]:
    """The JSON of `chains`, as llm-hang's: each wait to its end, as far as one look at the processes tells it."""

    def at(node: Any) -> dict[str, Any]:
        if node in nodes:
            return place(*nodes[node])
        view = next((view for view, _ in nodes.values() if view.name == node[0]), None)
        if view is None:
            return {"label": escape(str(node[0])), "pid": None}
        return {**place(view), "task": escape(str(node[1]).partition(" ")[2])} if node[1] else place(view)

    return chains_data([chain for chain in chains_of(Facts(states)) if chain.waits_for and not chain.rests], at)


def _parted(edges: list[Edge]) -> tuple[list[Edge], list[list[Edge]]]:
    """-> (waits for locks, and all others that have an owner or lack one that should be there; the rest by place: tasks and
    threads that wait for an event, a queue, a result)"""
    told, rest = [], {}  # type: ignore[var-annotated]
    for e in edges:
        if e.kind in LOCKS or e.owner is not None or e.orphan:
            told.append(e)
        else:
            rest.setdefault((e.kind, e.where), []).append(e)
    groups = sorted(rest.values(), key=len, reverse=True)
    return (told, groups) if len(edges) > FEW else (edges, [])


def edge_lines(edges: list[Edge], nodes: Nodes, style: Style) -> list[str]:
    """Two lines for each edge: the thread and the lock that it waits for, and the lock's owner or possible owners. Of many, those
    that are no locks' and have no known end are a line for each place."""
    lines = []
    told, groups = _parted(edges)
    for e in told:
        lines.append(
            f"{style.name(node_text(e.waiter, nodes))}  waits for {escape(e.lock)}"
            + (f" in {escape(e.where)}" if e.where else "")
        )
        if e.owner is not None:
            how = {"with": ", inside its with: ", "between acquire and release": ", by its source: "}.get(e.how, "")
            lines.append(
                f"  held by {style.name(node_text(e.owner, nodes))}{how}{'' if how or not e.note else ': '}{escape(e.note)}"
                if e.kind != "Thread"
                else f"  that is {node_text(e.owner, nodes)}"
            )
        elif e.note:
            lines.append("  " + (style.bad(escape(e.note)) if e.orphan else escape(e.note)))
        if e.candidates:
            word = "can reach it" if e.kind not in LOCKS else "one of"
            some = ", ".join(node_text(c, nodes) for c in e.candidates[:6])
            lines.append(f"  {word}: {some}" + (", …" if len(e.candidates) > 6 else ""))
    for group in groups[:SHOWN]:
        one, waiters = group[0], list(dict.fromkeys(node_text(e.waiter, nodes) for e in group))
        names = style.name(", ".join(waiters[:SHOWN]) + (", …" if len(waiters) > SHOWN else ""))
        where = f" in {escape(one.where)}" if one.where else ""
        alike = f"{len(waiters)} wait, each for its {one.kind}{where}: {names}"
        lines.append(f"{names}  waits for {escape(one.lock)}{where}" if len(waiters) == 1 else alike)
    left = sum(map(len, groups[SHOWN:]))
    if left:
        lines.append(style.dim(f"{left} more wait for what is no lock: -json has them"))
    return lines


def untold_lines(untold: Sequence[dict[str, Any]], style: Style) -> list[str]:
    """One line for each native function in which threads wait for what cannot be told; `untold`: as in the JSON."""
    by_function: dict[str, list[str]] = {}
    for one in untold:
        node = f"{one['node']}:" if one.get("node") else ""
        by_function.setdefault(one["function"], []).append(
            style.name(node + thread_text(one["tid"], one["name"], escape(one["label"])))
        )
    lines = []
    for function, who in by_function.items():
        many = "1 thread waits" if len(who) == 1 else f"{len(who)} threads wait"
        more = ", …" if len(who) > SHOWN else ""
        lines.append(f"{many} in native code for what cannot be told: {function}: {', '.join(who[:SHOWN])}{more}")
    return lines


# ---- over several machines -------------------------------------------------------------------------------------------------
CYCLE = Fields(Field("edges", [EDGE], must=True), Field("sentence", str, must=True))
ANSWER = Fields(
    Field("edges", [EDGE], must=True, merge=JOIN),
    Field("cycles", [CYCLE], must=True, merge=JOIN),
    Field("chains", [CHAIN], "as `llm-hang` has them, as far as one look tells; without pools' workers at rest", merge=JOIN),
    Field("untold", [UNTOLD], "threads that wait in native code for what cannot be told", merge=JOIN),
    Field("asleep", int, "native threads that sleep in a futex, for what is not known", merge=SUM),
    Field("ranks_read", int, must=True, merge=SUM),
    Field("ranks_total", int, must=True, merge=SUM),
    Field("pauses", [PAUSE], must=True, merge=JOIN),
    Field("failed", [each_node.FAILED], must=True, merge=FAILURES),
    Field("hosts", int, "over several machines: how many"),
)


def merged_edges(answers: Sequence[tuple[str, Any]], failed: list[dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """-> (the JSON of llm-locks of several machines, `node` in each place; why that is not all). An answer that is damaged is
    named in `failed`; `GdbextError` where none is left."""
    names = {each_node.place_of(name): name for name, _ in answers}

    def take(node: str, answer: Any) -> None:
        for at in objects(answer, ANSWER, (PLACE, UNTOLD)):
            at.update(node=node, host=escape(names[node]))
        for at in answer.get("untold", ()):
            at.update(name=escape(at.get("name", "?")), function=escape(at["function"]))
        for cycle in answer["cycles"]:
            cycle["sentence"] = f"{node}: {escape(cycle['sentence'])}"
        for one in answer["failed"]:
            one["label"] = f"{names[node]}: {one['label'] or one['pid']}"

    found, partial = each_node.merged(ANSWER, answers, failed, lambda answer: {"processes": answer["ranks_read"]}, take)
    return {**found, "hosts": len(found["nodes"])}, partial


def merged_lines(data: dict[str, Any], style: Style) -> list[str]:
    """As `edge_lines`, of several machines' edges as JSON."""

    def at(one: dict[str, Any]) -> str:
        thread = escape(one["task"]) if one.get("task") else f"{one.get('tid', '?')} {escape(one.get('name', '?'))}"
        return style.name(f"{one['node']}:{escape(one['label'])} {thread}")

    lines = []
    for e in data["edges"]:
        lines.append(f"{at(e['waiter'])}  waits for {escape(e['lock'])}" + (f" in {escape(e['where'])}" if e["where"] else ""))
        if e["owner"] is not None:
            lines.append(f"  held by {at(e['owner'])}" + (f": {escape(e['note'])}" if e["note"] else ""))
        elif e["note"]:
            lines.append("  " + (style.bad(escape(e["note"])) if e["orphan"] else escape(e["note"])))
        if e["candidates"]:
            more = ", …" if len(e["candidates"]) > 6 else ""
            lines.append(f"  one of: {', '.join(map(at, e['candidates'][:6]))}{more}")
    return lines
