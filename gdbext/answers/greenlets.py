"""Greenlets as JSON and as text."""

from __future__ import annotations

from typing import AbstractSet, Any

from ..cpython.greenlets import Greenlet
from ..render.fields import LEFT_OUT, NUMBER, Field, Fields
from ..render.jsonline import Address
from ..render.text import Style
from .frames import frame_text, python_frame
from .shapes import FRAME
from .variables import frame_variable_lines

_WITHOUT_STACK = (("new", "never started"), ("ended", "ended"))

GREENLET = Fields(
    Field("address", str, read=lambda g: Address(g.address)),
    Field("type", str, "its class; `Hub`: gevent's loop", read=lambda g: g.type_name),
    Field("state", str, "`running` (its frames are its thread's), `suspended`, `new` (never started), `ended` or `unknown`"),
    Field("main", bool, "its thread's first", read=lambda g: g.is_main),
    Field("tid", NUMBER),
    Field("frames", [FRAME], read=lambda g: []),
    Field("error", str, "why it is unknown", read=lambda g: g.error or LEFT_OUT),
)


def greenlet_data(greenlet: Greenlet, private: AbstractSet[str] | None = None) -> dict[str, Any]:
    """A `Greenlet` as JSON fields; `private` as for `python_frame`."""
    data = GREENLET.data(greenlet)
    return {**data, "frames": [python_frame(frame, private) for frame in greenlet.frames]}


def greenlet_lines(greenlets: list[dict[str, Any]], style: Style, with_locals: bool) -> list[str]:
    """The lines for `greenlet_data`: greenlets with the same frames together, and the number of those without a stack."""
    alike: dict[Any, list[dict[str, Any]]] = {}
    for one in greenlets:
        if one["state"] not in dict(_WITHOUT_STACK):
            stack = tuple((f["function"], f["file"], f["line"]) for f in one["frames"])
            same = stack if stack and not with_locals else one["address"]
            alike.setdefault((one["type"], one["state"], one["main"], one["tid"], same), []).append(one)
    lines = []
    for members in alike.values():
        lines += _lines(members, style, with_locals)
    counts = [(sum(one["state"] == state for one in greenlets), words) for state, words in _WITHOUT_STACK]
    rest = ", ".join(f"{count} {words}" for count, words in counts if count)
    return lines + ([style.dim(f"(greenlets without a stack: {rest})")] if rest else [])


def _lines(alike: list[dict[str, Any]], style: Style, with_locals: bool) -> list[str]:
    one = alike[0]
    head = f"Greenlet {one['address']:#x}" if len(alike) == 1 else f"{len(alike)} greenlets alike"
    notes = [one["type"], *(["the thread's main one"] if one["main"] else []), one["state"]]
    notes += [f"thread {one['tid']}"] if one["tid"] else []
    lines = [style.title(head) + f" ({', '.join(notes)})"]
    for frame in one["frames"]:
        lines.append(frame_text(frame, style))
        if with_locals:
            lines += frame_variable_lines(frame, style)
    if not one["frames"]:
        why = "its frames are its thread's" if one["state"] == "running" else one.get("error") or "no Python frame"
        lines.append(style.dim(f"({why})"))
    return lines
