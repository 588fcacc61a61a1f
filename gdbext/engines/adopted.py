"""Whether an engine's process has lost its parent: the process that started it has ended, and another one has adopted it.

A live parent that is no engine's (a launcher, a fork server, a test's own program) is no loss. proc(5) does not say which process
is a subreaper (PR_SET_CHILD_SUBREAPER of prctl(2)). But a child of multiprocessing has its parent's pid in its memory, and a
session is left by setsid(2) alone.
"""

from __future__ import annotations

from typing import Callable

from .. import log
from ..access import namespaces
from ..access.proctable import Process, ProcTable
from ..cpython.runtime import Runtime
from ..errors import GdbextError
from .search import could_have_started, is_init


def lost_parent(process: Process, table: ProcTable, runtime_of: Callable[[int], Runtime] | None) -> str:
    """Why the process that started this one is gone; '' where its parent lives, or where nothing proves that it does not."""
    parent = table.parent(process)
    if parent is None or is_init(parent):
        return "its parent is gone"
    if parent.exits:
        return f"its parent {parent.pid} has ended"
    if could_have_started(parent, process) or parent.cmdline == process.cmdline:  # a fork of it
        return ""
    starter = _starter(process, runtime_of)
    if starter:
        here = namespaces.pid_here(process.pid, starter, table.root)
        found = table.get(here or 0)
        lives = here is None or found is not None and not found.exits and found.started <= process.started
        return "" if lives else f"its parent {starter} is gone, {parent.pid} ({parent.comm}) has adopted it"
    if parent.pid == 1 or process.session not in (process.pid, parent.session):
        return f"its parent is gone, {parent.pid} ({parent.comm}) has adopted it"
    return ""


def _starter(process: Process, runtime_of: Callable[[int], Runtime] | None) -> int:
    """The pid, in its own pid namespace, of the process that started a child of multiprocessing (CPython 3.8 on:
    `multiprocessing.process.parent_process`). 0 where the process is no such child, or its memory may not be read."""
    if runtime_of is None:
        return 0
    runtime = None
    try:
        runtime = runtime_of(process.pid)
        module = runtime.module("multiprocessing.process")
        parent = None if module is None else module.item("_parent_process")
        return 0 if parent is None or parent.is_none() else parent.attr("_pid").integer()
    except GdbextError as e:
        log.passed_over(e)
        return 0
    finally:
        close = getattr(getattr(runtime, "target", None), "close", None)
        if close:
            close()
