"""Breakpoints as text: those just set, and the list of all."""

from __future__ import annotations

from typing import Any

from ..render.fields import NUMBER, REAL, TEXT, Field, Fields, each
from ..render.text import Style, escape
from .shapes import SELECTED

BREAKPOINT = Fields(  # as `PyBreakpoint.data` gives it; of llm-break also those at kernels
    Field("number", NUMBER, head="number"),
    Field("command", str, head="kind"),
    Field("file", TEXT, head="where", draw=lambda row, style: _place(row, style)),
    *each(NUMBER, "line"),
    *each(TEXT, "function"),
    Field("pending", bool, "its place is not there yet"),
    Field("hits", int, head="hits"),
    *each(TEXT, "condition"),
    Field("count", int, "stops from this pass on"),
    Field("places", int, "debug registers of each process"),
    Field("also", [str], "further places of the name, FILE:LINE"),
    Field("processes", [NUMBER], "pids"),
    Field("uncaught", bool, "of pycatch"),
    Field("modules", [str], "of pytrace -calls"),
    Field("tid", NUMBER, "of pytrace -calls"),
    Field("kernel", TEXT, "of llm-break"),
    Field("kernels", [str], "of llm-break: those that it stops at"),
    Field("where", str, "of llm-break: on the host or the device, and through what"),
    *each(TEXT, "address library", means="of llm-break"),
    shape="breakpoint",
)
EVENT = Fields(
    Field("time", REAL, "seconds after the epoch"),
    *each(NUMBER, "number pid tid"),
    *each(str, "label file"),
    *each(NUMBER, "line"),
    *each(str, "function text"),
    Field("seconds", REAL, "of a return of pytrace: since its call"),
    Field("name", str, "of llm-save"),
    Field("saved", str, "of llm-save: the file; '': nothing could be written"),
)
SET = Fields(
    Field("breakpoints", [BREAKPOINT], "those that were set; without operand all"),
    Field("deleted", [NUMBER], "with -delete: their numbers"),
    Field("events", [EVENT], "of pylog, pytrace, llm-save: as they come, one object each; without operand those so far"),
)
STEPPED = Fields(
    Field("frame", (SELECTED, None), "where it stopped; null: the step did not end"),
    Field("tid", NUMBER),
    Field("returned", TEXT, "of pyfinish: the value, where it is known"),
)


def registers_text(data: dict[str, Any]) -> str:
    """How many debug registers of each process a breakpoint takes."""
    return f"{data['places']} debug register{'s' if data['places'] != 1 else ''}"


def _place(row: Any, style: Style) -> str:
    return place_text(row, style) + ("  pending" if row["pending"] else "")


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
    return BREAKPOINT.table(found, style)
