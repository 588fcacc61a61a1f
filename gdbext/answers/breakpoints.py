"""Breakpoints as text: those just set, and the list of all."""

from __future__ import annotations

from typing import Any

from ..render.text import Style, escape, table


def registers_text(data: dict[str, Any]) -> str:
    """How many debug registers of each process a breakpoint takes."""
    return f"{data['places']} debug register{'s' if data['places'] != 1 else ''}"


def place_text(data: dict[str, Any], style: Style) -> str:
    """Where a Python breakpoint is, with its condition. `data`: as `PyBreakpoint.data` gives it."""
    where = f"{style.path(data['file'])}:{data['line']}" if data["file"] or data["line"] else data["function"]
    text = style.file(where) + (f"  {style.name(data['function'])}" if data["file"] and data["function"] else "")
    if data["condition"]:
        text += f"  if {escape(data['condition'])}"
    if data["count"] > 1:
        text += f"  from pass {data['count']} on"
    return text


def set_text(data: dict[str, Any], style: Style) -> str:
    """A breakpoint that was set, in one line."""
    also = [place for place in data.get("also", ()) if place != f"{data['file']}:{data['line']}"]
    more = (
        f"  and {', '.join(style.file(style.path(place)) for place in also[:3])}"
        + (f" and {len(also) - 3} more" if len(also) > 3 else "")
        if also
        else ""
    )
    head = f"{data['command']} {data['number']}: {place_text(data, style)}{more}  "
    return head + ("pending: set when its module is imported" if data["pending"] else f"({registers_text(data)})")


def list_text(found: list[dict[str, Any]], style: Style) -> str:
    """The Python breakpoints that are set, as a table."""
    if not found:
        return "no Python breakpoints; help pybreak shows how to set one"
    rows = [
        [str(d["number"]), d["command"], place_text(d, style) + ("  pending" if d["pending"] else ""), str(d["hits"])]
        for d in found
    ]
    return table(rows, ["number", "kind", "where", "hits"], style)
