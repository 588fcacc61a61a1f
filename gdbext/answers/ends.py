"""How processes ended or end, as JSON and as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..access.base import Target
from ..cpython.content import counted, hides_message
from ..cpython.runtime import Runtime
from ..engines import sensitive_names as privacy
from ..render.jsonline import Address
from ..render.text import Style, escape
from ..stacks import ending
from ..stacks.threads import ProcessView, ThreadView
from .shapes import END, THROWN


def ends_data(views: Iterable[ProcessView]) -> list[dict[str, Any]]:
    """The JSON field `ends` of several processes; those that neither ended nor are ending are left out."""
    found = [end_data(view.target, view.rt, view.threads, view.name) for view in views if isinstance(view, ProcessView)]
    return [one for one in found if one is not None]


def end_data(target: Target, rt: Runtime | None, views: Sequence[ThreadView], label: str = "") -> dict[str, Any] | None:
    """An entry of `ends`, None of a process that neither ended nor ends."""
    found = ending.read(target, rt, views)
    if found is None:
        return None
    death, thrown = found.death, found.thrown
    message = said(thrown.message, rt) if thrown is not None and thrown.message is not None else None
    text = escape(found.text)
    if thrown is not None:
        text += f", for a C++ exception that nothing caught: {escape(thrown.type)}" + (f": {message}" if message else "")
    return END.of(
        label=escape(label or target.label),
        pid=target.pid,
        kind=found.kind,
        tid=death.tid if death is not None else found.thread.tid if found.thread is not None else None,
        signal=death.signal if death is not None else None,
        address=Address(death.address) if death is not None and death.address is not None else None,
        sender=death.sender if death is not None else None,
        user=death.user if death is not None else None,
        waits_for=[{"tid": th.tid, "name": escape(th.name), "at": escape(str(th.top or ""))} for th in found.waits_for],
        exception=THROWN.of(type=escape(thrown.type), message=message) if thrown is not None else None,
        text=text,
    )


def said(message: str, rt: Runtime | None) -> str:
    """An exception's message; of an engine only those that quote no user's data."""
    private = privacy.names_for(rt) if rt is not None else frozenset()
    return counted(message) if hides_message(private, message) else escape(message)


def ends_lines(ends: Sequence[dict[str, Any]], style: Style, named: bool) -> list[str]:
    """A line for each of `ends`; `named`: with the process's label before it."""
    return [(f"{one['label'] or one['pid']}: " if named else "") + style.bad(one["text"]) for one in ends]
