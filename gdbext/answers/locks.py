"""Edges of the wait-for graph as the JSON `edge`, and as text."""

from __future__ import annotations

from typing import Any

from ..render.jsonline import Address
from ..render.text import Style, escape
from ..stacks.waits import Edge
from .places import Nodes, node_text, place


def edge_data(edge: Edge, nodes: Nodes) -> dict[str, Any]:
    """The JSON `edge`, with what is known of the owner."""

    def at(node: Any) -> Any:
        if node in nodes:
            return place(*nodes[node])
        view = next(view for view, _ in nodes.values() if view.name == node[0])
        return {**place(view), "task": escape(str(node[1]).partition(" ")[2])}

    return {
        "waiter": at(edge.waiter),
        "lock": escape(edge.lock),
        "owner": at(edge.owner) if edge.owner in nodes or isinstance((edge.owner or (0, 0))[1], str) else None,
        "kind": edge.kind,
        "address": Address(edge.address) if edge.address else None,
        "how": edge.how,
        "where": escape(edge.where),
        "note": escape(edge.note),
        "candidates": [at(c) for c in edge.candidates],
        "orphan": edge.orphan,
    }


def edge_lines(edges: list[Edge], nodes: Nodes, style: Style) -> list[str]:
    """Two lines for each edge: who waits for what, and who has it, or may have it."""
    lines = []
    for e in edges:
        lines.append(
            f"{style.name(node_text(e.waiter, nodes))}  waits for {escape(e.lock)}"
            + (f" in {escape(e.where)}" if e.where else "")
        )
        if e.owner is not None:
            how = {"with": ", inside its with: ", "between acquire and release": ", by its source: "}.get(e.how, "")
            lines.append(
                f"  held by {style.name(node_text(e.owner, nodes))}{how}{escape(e.note)}"
                if e.kind != "Thread"
                else f"  that is {node_text(e.owner, nodes)}"
            )
        elif e.note:
            lines.append("  " + (style.bad(escape(e.note)) if e.orphan else escape(e.note)))
        if e.candidates:
            word = "can reach it" if e.kind in ("Queue", "Event", "Condition", "Barrier", "Future") else "one of"
            some = ", ".join(node_text(c, nodes) for c in e.candidates[:6])
            lines.append(f"  {word}: {some}" + (", …" if len(e.candidates) > 6 else ""))
    return lines
