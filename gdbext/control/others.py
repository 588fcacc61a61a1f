"""The other processes that gdb has attached, while one is stepped. An engine is many processes, and a collective that one of them
steps over waits for all of them.

They are resumed with it. A process that is stopped at a breakpoint of its own keeps its place. Then none of the others runs,
because gdb resumes one process or all of them; the processes that stay stopped are reported."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Iterator

import gdb

from ..access import live_gdb
from ..access.background import background_thread
from . import attached_processes, kernel_events
from .events import listen
from .gdb_state import is_quiet

SECONDS = 2.0  # after which a step that has not ended reports the stopped processes
_held: set[int] = set()  # inferiors that are still where a breakpoint stopped them


def _on_stop(event: Any) -> None:
    if (isinstance(event, gdb.BreakpointEvent) or kernel_events.is_hit(event)) and not is_quiet():
        _held.add(gdb.selected_inferior().num)


def _on_continue(_: Any) -> None:
    if is_quiet():
        return
    if gdb.parameter("schedule-multiple"):
        _held.clear()
    else:
        _held.discard(gdb.selected_inferior().num)


listen(stop=_on_stop, cont=_on_continue)


def _standing() -> list[Any]:
    """The inferiors other than the selected one whose processes are stopped."""
    own = gdb.selected_inferior().num
    found = [i for i in gdb.inferiors() if i.pid and i.num != own and not any(t.is_running() for t in i.threads())]
    return [] if any(live_gdb.core_file(i) for i in found if i.num not in _attached()) else found


def _attached() -> set[int]:
    return {one.inferior for one in attached_processes.attached()}


@contextlib.contextmanager
def run_beside() -> Iterator[None]:
    """A `with` block in which `continue` resumes the other attached processes too, or reports after a while which ones are
    stopped."""
    others = _standing()
    held = [i for i in others if i.num in _held]
    if not others or gdb.parameter("non-stop") or gdb.parameter("schedule-multiple"):
        yield
    elif not held:
        attached_processes.schedule_together(True)
        try:
            yield
        finally:
            attached_processes.restore_schedule()
    else:
        ended = threading.Event()

        def say() -> None:
            if not ended.is_set():
                gdb.write(_said(held, others), gdb.STDERR)
                gdb.flush(gdb.STDERR)

        def wait() -> None:
            if not ended.wait(SECONDS):
                gdb.post_event(say)

        background_thread(wait)
        try:
            yield
        finally:
            ended.set()


def _said(held: list[Any], others: list[Any]) -> str:
    labels = {one.pid: one.label for one in attached_processes.attached()}
    names = ", ".join(labels.get(i.pid) or f"process {i.pid}" for i in others)
    at = ", ".join(labels.get(i.pid) or f"process {i.pid}" for i in held)
    verb = "are" if len(others) > 1 else "is"
    return (
        f"the step goes on; {names} {verb} stopped meanwhile ({at} at a breakpoint): "
        "if it waits for them, Ctrl-C, then llm-continue resumes all\n"
    )
