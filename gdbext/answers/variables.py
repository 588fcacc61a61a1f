"""Variables and attributes as the JSON `locals`, and their lines of text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import AbstractSet, Any

from .. import log
from ..access.base import Target
from ..access.retry import settled
from ..cpython import objects, reprs
from ..cpython.frames import PyFrame
from ..cpython.objects import Object
from ..cpython.reprs import Limits
from ..errors import GdbextError
from ..observe import clocks
from ..render.jsonline import Address
from ..render.text import Style, escape
from .shapes import LOCAL

MAX_FIELDS = 200
CHANGED = "<changed while it was read>"
RAN = "<not shown: its thread ran on while it was read>"
_OBJECT, _WORD = re.compile(r"<[^<>'\"]* at 0x[0-9a-f]+>"), re.compile(r"-?[\w.]+|'[\w./:@-]*'")
_PLAIN = ("int", "float", "bool", "NoneType")  # any of their values is as good as another


def variables_of(frame: PyFrame, private: AbstractSet[str], limits: Limits | None = None) -> list[dict[str, Any]]:
    """The variables of a `PyFrame`, as by `variables`.

    In a running process two readings, each from the frames on, have to agree on them. `NotFoundError` where the frame has ended
    by then. Two readings may still agree on another object's memory if a thread makes and drops lists all the time. So with
    `private` a thread that ran during the read shows only values that cannot be content."""
    if frame.rt.target.is_stopped:
        return variables(frame.locals(), private, limits)

    ran: list[bool] = []

    def read() -> list[dict[str, Any]]:
        before = _asleep(frame)
        found = variables(frame.locals_now(), private, limits)
        if private and (before is None or _asleep(frame) != before):
            found = [row if _says_little(row["text"]) else {**row, "text": RAN} for row in found]
            ran.append(any(row["text"] == RAN for row in found))
        return found

    rows = settled_rows(frame.rt.target, read)
    frame.rt.target.unsettled = frame.rt.target.unsettled or ran[-1:] == [True]
    return rows


def _asleep(frame: PyFrame) -> Any:
    """A value that stays the same as long as the frame's thread sleeps; None where it does not sleep now."""
    pid, tid = frame.rt.target.pid, frame.tid
    clock = clocks.clock_of(pid, tid) if pid is not None and tid is not None else None
    return clock.mark if clock is not None and clock.state in ("S", "D", "I", "T", "t") else None


def _says_little(text: str) -> bool:
    """Whether a text is a number or a word, or names objects without their content."""
    return bool(_WORD.fullmatch(text)) or not re.search(r"[\d'\"]", _OBJECT.sub("", text))


def settled_rows(target: Target, read: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The rows that `read` gives (`variables`, `fields_of`), with `CHANGED` for those on which no two readings agree. Where the
    last two readings do not agree on all rows, these are of different moments, and the target is `unsettled`."""
    agreed, last = settled(target, lambda: {row["name"]: row for row in read()})
    target.unsettled = target.unsettled or agreed != last
    return [agreed.get(name) or (row if row["type"] in _PLAIN else {**row, "text": CHANGED}) for name, row in last.items()]


def variables(
    found: list[tuple[str, Object | None]], private: AbstractSet[str], limits: Limits | None = None
) -> list[dict[str, Any]]:
    """`[(name, Object or None)]` -> the JSON `locals`; a variable that is not set is left out, private content only
    counted."""
    shown = []
    for name, value in found:
        if value is None:
            continue
        try:
            kind = value.type_name
        except GdbextError as e:
            log.passed_over(e)
            kind = "?"
        text = escape(reprs.Repr(limits or reprs.SHORT, private).named(name, value))
        shown.append(LOCAL.of(name=escape(name), type=escape(kind), address=Address(value.address), text=text))
    return shown


def fields_of(value: Object, private: AbstractSet[str], limits: Limits) -> list[dict[str, Any]]:
    """The instance's attributes as the JSON `locals`."""
    found = []
    for name, field in value.fields()[:MAX_FIELDS]:
        if isinstance(field, objects.Object):
            kind, address = "?", Address(field.address)
            try:
                kind = field.type_name
            except GdbextError as e:
                log.passed_over(e)
        else:
            kind, address = type(field).__name__, None
        text = escape(reprs.Repr(limits, private).named(name, field))
        found.append(LOCAL.of(name=escape(name), type=escape(kind), address=address, text=text))
    return found


def frame_variable_lines(frame: dict[str, Any], style: Style) -> list[str]:
    """Text of the `locals` of a JSON `frame`, or why there are none."""
    if "locals_error" in frame:
        return ["      " + style.dim(f"(no variables: {escape(frame['locals_error'])})")]
    return variable_lines(frame["locals"], style)


def variable_lines(found: list[dict[str, Any]], style: Style, indent: str = "      ", where: str = "") -> list[str]:
    """Text of `variables`; a module's own `__machinery__` stays out (JSON has it). `where`: whose they are, in words."""
    found = [v for v in found if not (v["name"].startswith("__") and v["name"].endswith("__"))]
    lines = [f"{indent}{style.value(v['name'])} = {v['text']}" for v in found]
    return lines or [indent + style.dim(f"(no variables{where})")]
