"""Following an engine from its start (`gdb --args python serve.py`): every process that it starts stays attached to this gdb,
runs on, and gets the Python breakpoints.

Two of gdb's own breakpoints find new processes. They are set by name, so that gdb sets them again in every process. On
PyEval_EvalCode a new interpreter runs its first code; on PyOS_AfterFork_Child a forked one goes on. The pack sets the process's
Python breakpoints in stop(), and gdb does not stop there. A breakpoint's commands would not do: gdb 16 and later, and any gdb in
non-stop mode, run them in the selected thread only.

gdb must read the symbols of a child's libraries to find a name there, so auto-solib-add is on. The first process that imports
torch is stopped for that once: the symbols of one file are read once and shared."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import gdb

from .. import log
from ..access import ptrace
from ..access.cli_gdb import command, silently
from ..access.procfs import read_stat
from ..errors import GdbextError, NotFoundError
from . import pybreak
from .events import listen
from .gdb_state import say, setting
from .hw_breakpoints import READ_ERRORS, Process
from .quirks import vfork_stalls

# Every change of focus and every stop of gdb's all-stop mode holds all processes; non-stop holds the one thread that stopped.
SETTINGS = {
    "follow-fork-mode": "parent",
    "detach-on-fork": "off",
    "schedule-multiple": "on",
    "follow-exec-mode": "same",
    "auto-solib-add": "on",
}


class _State:
    on = False
    saved: dict[str, str | None] = {}
    starts: list[Start] = []
    known: dict[int, int] = {}  # inferior number -> pid whose breakpoints are set
    listening = False
    quitting = False
    non_stop = False
    watch: threading.Event | None = None  # ends the look for gdb's own stall


class Start(gdb.Breakpoint):
    """`symbol`: where each new process passes. Nothing stops there: its breakpoints are set while gdb asks whether to stop."""

    def __init__(self, symbol: str) -> None:
        super().__init__(function=symbol, internal=True)
        self.silent = True

    def stop(self) -> bool:
        inferior = gdb.selected_inferior()
        if _State.known.get(inferior.num) != inferior.pid:
            try:
                arrived(inferior)
            except READ_ERRORS as e:
                say(f"process {inferior.pid}: {e}")
        return False


def watch_starts() -> None:
    """Sets the two breakpoints where they are not set: for a pybreak before `run`, and for `llm-follow on`."""
    if not _State.starts:
        _State.starts = silently(lambda: [Start(name) for name in ("PyEval_EvalCode", "PyOS_AfterFork_Child")])
    if not _State.listening:
        _State.listening = True
        listen(exited=_on_exit, gdb_exiting=_on_quit)  # the second from gdb 12 on
        Process.when_gone.append(lambda process: _State.known.pop(process.inferior.num, None))


def unwatch() -> None:
    """Deletes the breakpoints that find new processes."""
    for breakpoint in _State.starts:
        if breakpoint.is_valid():
            breakpoint.delete()
    _State.starts = []


def _on_exit(event: Any) -> None:
    """gdb stops everything when one process ends; the others were to run on."""
    _State.known.pop(event.inferior.num, None)
    if (
        _State.on and not _State.non_stop and not _State.quitting and hasattr(gdb.events, "gdb_exiting") and os.isatty(0)
    ):  # a script goes on by itself
        gdb.post_event(_go_on_alone)


def _go_on_alone() -> None:
    if not gdb.selected_inferior().pid:  # gdb stays at the one that ended
        go_on()


def _on_quit(*_: Any) -> None:
    _State.quitting = True  # a function posted now would outlive gdb's Python


def go_on() -> bool:
    """Resumes the remaining processes after one has ended and gdb has stopped them all. Returns whether any remains."""
    time.sleep(0.1)  # a process that is ending cannot be stopped, and seems alive until it has ended
    live = []
    for inferior in gdb.inferiors():
        state = ptrace.status(inferior.pid) if inferior.pid else None
        if state is not None and state["state"] not in "ZX":
            live.append(inferior)
        elif inferior.pid:  # it ended while gdb dealt with another: gdb 13 cannot resume the rest before it has released it
            try:
                gdb.execute(command("detach inferiors {}", inferior.num), to_string=True)
            except gdb.error:
                continue
    if not live or any(t.is_running() for i in live for t in i.threads()):
        return bool(live)
    if gdb.selected_inferior() not in live:
        gdb.execute(command("inferior {}", live[0].num), to_string=True)
    gdb.execute("continue")
    return True


def on(non_stop: bool = False) -> bool:
    """Starts following; returns whether it was off before. `non_stop`: a thread that stops lets everything else run."""
    if _State.on:
        return False
    if non_stop and any(i.pid for i in gdb.inferiors()):
        raise GdbextError(
            "gdb cannot change between all-stop and non-stop while a process lives: llm-follow on -non-stop comes before run"
        )
    for name, value in {**SETTINGS, **({"non-stop": "on"} if non_stop else {})}.items():
        _State.saved[name] = setting(name)
        gdb.execute(command("set {} {}", name, value), to_string=True)
    _State.on = True
    unwatch()  # breakpoints set for an earlier pybreak work as in the other mode
    _State.non_stop = bool(gdb.parameter("non-stop"))
    for inferior in gdb.inferiors():
        if inferior.pid:
            _State.known[inferior.num] = inferior.pid
    watch_starts()
    if not _State.non_stop:
        _State.watch = vfork_stalls.watch(lambda: list(_State.known.values()))
    return True


def off() -> list[str]:
    """Stops following; returns the settings that could not be restored, in words. Processes that are followed already stay
    attached."""
    left = []
    for name, value in _State.saved.items():
        try:
            if value is not None:  # this gdb has the setting
                gdb.execute(command("set {} {}", name, value), to_string=True)
        except gdb.error as e:
            left.append(f"{name} is still {setting(name)}: {e}")
    _State.saved, _State.on, _State.non_stop = {}, False, bool(gdb.parameter("non-stop"))
    if _State.watch is not None:
        _State.watch.set()
    unwatch()
    return left


def is_on() -> bool:
    """Whether `llm-follow on` is in force."""
    return _State.on


def is_non_stop() -> bool:
    """Whether processes are followed in gdb's non-stop mode."""
    return _State.non_stop


def arrived(inferior: Any) -> None:
    """Handles a new process with an interpreter: sets the waiting breakpoints in it."""
    try:
        process = Process.of(inferior)
    except GdbextError as e:
        log.passed_over(e)
        return  # too early: its next code stops here again
    _State.known[inferior.num] = inferior.pid
    for point in pybreak.listed():
        try:
            point.start_in(process)
        except GdbextError as e:
            say(f"{point.title}: process {inferior.pid}: {e}")
    try:
        pybreak.watch_imports()
        process.renew_registers()
    except GdbextError as e:
        say(f"process {inferior.pid}: {e}")


def processes(labels: dict[int, str], rank: str = "") -> list[Process]:
    """The processes for a Python breakpoint: every live inferior, or the one that `rank` (a label or pid) names.

    Without a live inferior, or while following, the breakpoint also reaches each process that starts, and one that this gdb has
    started and that does not run Python yet."""
    found = [i for i in gdb.inferiors() if i.pid]
    if not found or _State.on:
        watch_starts()
    if rank and found and not _State.on:
        found = [i for i in found if rank in (labels.get(i.pid), str(i.pid), str(i.num))]
        if not found:
            raise GdbextError(f"{rank} is not attached: see llm-attach")
    there = []
    for inferior in found:
        try:
            there.append(Process.of(inferior, labels.get(inferior.pid, "")))
        except NotFoundError as e:
            log.passed_over(e)
            if not _is_child(inferior.pid):
                raise
            watch_starts()
    return there


def _is_child(pid: int) -> bool:
    """Whether this gdb started a process itself, instead of attaching to it."""
    try:
        return read_stat(pid).parent == os.getpid()
    except GdbextError as e:
        log.passed_over(e)
        return False


def blind() -> str:
    """Why the start of a process cannot be noticed; '' where it can, or where no breakpoint needs it."""
    if not _State.starts or gdb.parameter("auto-solib-add") or not any(b.is_valid() and b.pending for b in _State.starts):
        return ""
    return (
        "gdb does not see where Python begins in a process that starts: set auto-solib-add on before run, or sharedlibrary "
        "libpython once that is loaded"
    )


def followed() -> list[tuple[int, int, str]]:
    """`[(inferior number, pid, "running" | "stopped")]` that have arrived."""
    found = [i for i in gdb.inferiors() if i.pid and _State.known.get(i.num) == i.pid]
    return [(i.num, i.pid, "running" if all(t.is_running() for t in i.threads()) else "stopped") for i in found]
