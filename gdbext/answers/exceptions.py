"""Exceptions as JSON, and as Python's own traceback words them."""

from __future__ import annotations

from typing import AbstractSet, Any

from .. import log
from ..access.base import Target
from ..cpython.content import counted, hides_message
from ..cpython.exceptions import Raised, TraceFrame
from ..errors import GdbextError, NotFoundError
from ..render.fields import NUMBER, TEXT, Field, Fields, each
from ..render.jsonline import Address
from ..render.text import Style, beneath, escape
from .frames import python_frame
from .shapes import FRAME
from .variables import frame_variable_lines

CAUSE = "The above exception was the direct cause of the following exception:"
CONTEXT = "During handling of the above exception, another exception occurred:"

EXCEPTION = Fields(
    Field("type", str),
    Field("message", TEXT, "null: its text is up to its own `__str__`; in an engine one that may quote a user is counted"),
    Field("args", str),
    Field("address", TEXT),
    Field("frames", [FRAME], "innermost first"),
    Field("suppress_context", bool),
    Field("notes", [str]),
    Field("again", bool, "it stands above already"),
    shape="exception",
)
EXCEPTION.add(*each((EXCEPTION, None), "cause context"), Field("members", [EXCEPTION], "of a group"))
IN_FLIGHT = Fields(
    Field("tid", NUMBER, "null: of no thread"),
    Field("name", str, "of the thread"),
    Field(
        "state", str, "`raised` (on its way up), `handled` (an except, finally or `__exit__` runs) or `unhandled` (the last one)"
    ),
    *EXCEPTION,
)


def frame_entry(frame: TraceFrame, level: int, private: AbstractSet[str] | None) -> dict[str, Any]:
    """A `TraceFrame` as the JSON `frame`."""
    names = {"function": escape(frame.qualname), "name": escape(frame.function), "file": escape(frame.file)}
    data = FRAME.of(level=level, kind="python", **names, line=frame.line, library=None, locals=[])
    if private is not None:
        try:
            held = python_frame(frame.python_frame(level), private)
            data.update({k: held[k] for k in ("locals", "locals_error", "reliable") if k in held})
        except GdbextError as e:
            data["locals_error"], data["reliable"] = str(e), False
    return data


def exception_data(found: Raised, private: AbstractSet[str] = frozenset(), with_locals: bool = False) -> dict[str, Any]:
    """A `Raised` as JSON fields. Causes and contexts nest; the depth is bounded by `exceptions.MAX_EXCEPTIONS`."""
    shown = frozenset(private) if with_locals else None
    hide = hides_message(private, found.message)

    def said(text: str) -> str:
        return counted(text) if hide and text else escape(text, keep="\n")

    def linked(other: Raised | None) -> dict[str, Any] | None:
        return exception_data(other, private, with_locals) if other is not None else None

    return EXCEPTION.of(
        type=escape(found.type),
        message=None if found.message is None else said(found.message),
        args=f"({said(found.args)})" if hide and found.args not in ("", "()") else escape(found.args),
        address=Address(found.address) if found.address else None,
        frames=[frame_entry(f, i, shown) for i, f in enumerate(found.frames)],
        cause=linked(found.cause),
        context=linked(found.context),
        suppress_context=found.suppress_context,
        notes=[said(n) for n in found.notes],
        members=[exception_data(m, private, with_locals) for m in found.members],
        again=found.again,
    )


def cut_reasons(found: Raised) -> list[str]:
    """Reasons for `partial`: the parts left out of an exception and of the exceptions linked to it."""
    reasons = [f"{found.type}: {r}" for r in found.cut]
    for other in [found.cause, found.context] + found.members:
        reasons += cut_reasons(other) if other is not None else []
    return reasons


class Source:
    """Lines of source files as this machine has them; '' for missing ones."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.files: dict[str, list[str]] = {}

    def line(self, path: str, number: int | None) -> str:
        if path not in self.files:
            try:
                self.files[path] = self.target.source_lines(path)
            except NotFoundError as e:
                log.passed_over(e)
                self.files[path] = []
        lines = self.files[path]
        return lines[number - 1].strip() if number and 0 < number <= len(lines) else ""


def exception_lines(data: dict[str, Any], style: Style, source: Source, with_locals: bool = False) -> list[str]:
    """An exception in the words of Python's own traceback: its cause or context first, most recent call last."""
    lines, other = [], None
    if data["cause"] is not None:
        other, joint = data["cause"], CAUSE
    elif data["context"] is not None and not data["suppress_context"]:
        other, joint = data["context"], CONTEXT
    if other is not None:
        lines += exception_lines(other, style, source, with_locals) + ["", joint, ""]
    if data["frames"]:
        lines.append("Traceback (most recent call last):")
    last, times = None, 0
    for frame in reversed(data["frames"]):
        place = (frame["file"], frame["line"], frame["name"])
        times = times + 1 if place == last and not with_locals else 1
        last = place
        if times > 3:
            continue
        if times == 3:
            again = _repeats(data["frames"], frame, place)
        file = style.source(frame["file"], style.path(frame["file"]))
        lines.append(f'  File "{file}", line {frame["line"] or "?"}, in {style.name(frame["name"])}')
        text = source.line(frame["file"], frame["line"])
        if text:
            lines.append("    " + escape(text))
        if with_locals:
            lines += frame_variable_lines(frame, style)
        if times == 3 and again:
            lines.append(f"  [Previous line repeated {again} more time{'s' if again > 1 else ''}]")
    if data["message"] is None:
        shown = data["type"] + data["args"] + style.dim("  (its text is up to its own __str__)")
    else:
        shown = data["type"] + (f": {data['message']}" if data["message"] else "")
    said, _, more = shown.partition("\n")
    lines.append(style.bad(said) + (style.dim("  (shown above)") if data["again"] else ""))
    for text in [more] * bool(more) + data["notes"]:  # a message must not look like a line of ours
        lines.append(style.bad(beneath(text, "    ")))
    for number, member in enumerate(data["members"], 1):
        lines.append(f"  +---------------- {number} ----------------")
        lines += ["  | " + line for line in exception_lines(member, style, source, with_locals)]
    if data["members"]:
        lines.append("  +------------------------------------")
    return lines


def _repeats(frames: Any, frame: Any, place: Any) -> Any:
    """How many more equal entries follow the third of a run."""
    count, i = 0, next(i for i, f in enumerate(frames) if f is frame) - 1
    while i >= 0 and (frames[i]["file"], frames[i]["line"], frames[i]["name"]) == place:
        count, i = count + 1, i - 1
    return count
