"""The processes that `llm-attach` has attached: which they are, how long each has been stopped, and the guard that
watches them."""

from __future__ import annotations

import functools
import os
import re
import time
from typing import Any, Callable

import gdb

from ..access import guard as guards
from ..access import libraries, ptrace
from ..access.cli_gdb import command
from ..errors import GdbextError
from .events import listen
from .gdb_state import is_quiet, remove_inferior, select, setting
from .quirks import fork_events
from .quirks.loader_breakpoints import LoaderBreakpoints
from .quirks.stuck_open import OpensEnd


def _unattended() -> bool:
    """Whether nobody is at gdb's prompt, who could let it go on where a signal stops it."""
    with open("/proc/self/cmdline", "rb") as f:
        words = f.read().split(b"\0")
    return not os.isatty(0) or any(re.match(rb"--?batch(-silent)?$", word) for word in words)


UNATTENDED = _unattended()


class AttachedProcess:
    """A process that we attached.

    `start`: its start time, which with the pid identifies it for good. `pause`: seconds from the stop until the attach was done.
    `ran`: the user has resumed it since. `added`: we made its inferior."""

    def __init__(self, pid: int, label: str, was_stopped: bool) -> None:
        self.pid, self.label, self.was_stopped = pid, label, was_stopped
        self.start = ptrace.start_time(pid)
        self.inferior = 0  # its number in gdb, from 1 on; 0 before it has one
        self.added = self.ran = False
        self.since: float | None = None  # of time.monotonic, while it is stopped
        self.past = self.pause = 0.0
        self.libraries = libraries.Loaded()

    def standstill(self) -> float:
        """Seconds that the process has been stopped so far, all stops together."""
        return self.past + (time.monotonic() - self.since if self.since is not None else 0.0)

    def stopped(self) -> None:
        """Notes that the process is stopped from now on."""
        if self.since is None:
            self.since = time.monotonic()

    def let_go(self) -> None:
        """Notes that the process runs from now on."""
        if self.since is not None:
            self.past += time.monotonic() - self.since
            self.since = None

    def resumed(self) -> None:
        """Notes that the user resumed the process."""
        self.let_go()
        self.ran = True


class _State:
    attached: dict[int, AttachedProcess] = {}  # by pid, in the order of attaching
    guard = guards.Guard()
    guard_error = ""
    opens = OpensEnd()
    loader: Any = None
    watched: set[int] = set()  # pids that the guard knows of although gdb attached them by itself
    saved: dict[str, str] = {}  # settings that stay changed while something is held
    core: str | None = None  # the user's answer to whether a gdb that fails leaves a core
    schedule: str | None = None  # the user's schedule-multiple while processes run
    background = False  # they run behind the prompt: the stop gives it back
    ends = False  # gdb is about to detach from all processes and to exit


# ---- which -----------------------------------------------------------------------------------------------------------
def attached() -> list[AttachedProcess]:
    """All of them, in the order of attaching. Processes that have ended are dropped."""
    for one in list(_State.attached.values()):
        inferior = inferior_of(one)
        if inferior is None or inferior.pid != one.pid:
            drop(one)
    return list(_State.attached.values())


def numbers() -> set[int | None]:
    """gdb's numbers of the attached processes' inferiors."""
    return {one.inferior for one in _State.attached.values()}


def inferior_of(one: AttachedProcess) -> gdb.Inferior | None:
    """Its gdb.Inferior, or None when that is gone."""
    return next((i for i in gdb.inferiors() if i.num == one.inferior), None)


def hold(one: AttachedProcess) -> None:
    """Adds a process that is about to be attached. It counts as stopped from now on, and its exit or resumption is noticed."""
    one.stopped()
    _State.attached[one.pid] = one


def still_held(one: AttachedProcess) -> None:
    """Puts a process back whose detach failed: the guard goes on watching it."""
    _State.attached.setdefault(one.pid, one)


def drop(one: AttachedProcess) -> None:
    """Removes a process that is detached or gone, and its inferior where llm-attach made that."""
    _State.attached.pop(one.pid, None)
    _tell(lambda guard: guard.free(one.pid))
    inferior = inferior_of(one)
    if inferior is None or inferior.pid:
        return
    if one.added:
        remove_inferior(one.inferior)
    else:
        current = gdb.selected_inferior().num
        select(one.inferior)
        gdb.execute("file", to_string=True)  # it was empty before
        select(current)


# ---- the guard -------------------------------------------------------------------------------------------------------
def guard_error() -> str:
    """Why no guard runs, or ''."""
    return _State.guard_error


def confined() -> str:
    """A warning, in a line, about the end of gdb's container: it would end the guard too. '' where it would not."""
    group = "" if _State.guard_error else _State.guard.confined
    if not group or "/user.slice/" in group:
        return ""
    return (
        f"the guard is in gdb's own control group ({group}) and may not leave it: where that is ended as a whole (its container "
        "is removed), nothing lets these processes go: llm-detach first, and do not leave pybreak or pylog armed"
    )


def start_guard() -> None:
    """Starts the guard where none runs; where that fails, `guard_error` gives the reason."""
    listen(cont=_on_continue, stop=_on_stop, exited=_on_exit, gdb_exiting=_on_gdb_exiting)
    try:
        _State.guard.start()
        before, _State.guard_error = _State.guard_error, ""
        if before:  # a new one: it knows no process yet
            for one in _State.attached.values():
                own(one)
    except GdbextError as e:
        _State.guard_error = str(e)


def _tell(what: Callable[[Any], None]) -> None:
    """Sends the guard a message. A guard that has died (the kernel's OOM killer may end any process) is noted in the log, and
    stops nothing else: all attached processes must still be released."""
    if not _State.guard_error:
        try:
            what(_State.guard)
        except GdbextError as e:
            _State.guard_error = str(e)


def own(one: AttachedProcess) -> None:
    """Reports a process to the guard before gdb attaches to it."""
    _tell(lambda guard: guard.own(one.pid, one.was_stopped))
    _tell_of_gdb(False)


def opens_end() -> None:
    """From now on, until no process is attached, gdb does not wait for a FIFO or pipe that a process names as one of its
    libraries."""
    _State.opens.start()


def loader_breakpoints_out() -> None:
    """From now on, until no process is attached, gdb has no breakpoints in the dynamic loader that no command needs, and leaves
    children alone. Not inside stop()."""
    if _State.loader is None:
        _State.loader = LoaderBreakpoints(lambda: set(_State.attached))
    if _State.loader.start():
        fork_events.start(_State.loader.update)


def guard_process(pid: int) -> None:
    """Reports to the guard a process that gdb itself attached. If gdb is killed, its debug registers are cleared and it
    runs on."""
    if pid not in _State.attached:
        start_guard()
        _tell(lambda guard: guard.own(pid, False))
        _tell_of_gdb(False)
        if not _State.guard_error:
            _State.watched.add(pid)


def unguard_process(pid: int) -> None:
    """Reports to the guard that a process is gone or detached."""
    if pid in _State.watched and not gdb_ends():
        _State.watched.discard(pid)
        _tell(lambda guard: guard.free(pid))
        _end_guard()


def protected(pid: int) -> None:
    """Reports to the guard that a process is in a group-stop that is to last."""
    if pid in _State.attached or pid in _State.watched:
        _tell(lambda guard: guard.protected(pid))


def gdb_ends() -> bool:
    """Whether gdb is about to exit, and the guard will put in order what it holds."""
    return _State.ends and not _State.guard_error


def _on_gdb_exiting(_: Any) -> None:
    _State.ends = True


def _tell_of_gdb(runs: bool) -> None:
    _tell(lambda guard: guard.gdb_is(runs, UNATTENDED))


def armed(pid: int, yes: bool = True) -> None:
    """Reports to the guard whether debug registers of a process are set."""
    if pid in _State.attached or pid in _State.watched:
        _tell(lambda guard: guard.armed(pid, yes))


def _end_guard() -> None:
    if not _State.attached and not _State.watched:
        _State.guard.end()


# ---- settings that stay changed while something is held ---------------------------------------------------------------
def save_setting(name: str, value: str) -> None:
    """Changes a setting of gdb's until the last process is detached."""
    if name not in _State.saved:
        _State.saved[name] = setting(name) or ""
        gdb.execute(command("set {} {}", name, value), to_string=True)


def leave_no_core() -> None:
    """Until the last process is detached, a gdb that crashes writes no core of itself into the current folder: the core would
    hold the memory that gdb has read. gdb 13.1 crashes now and then when SIGTERM ends it while processes run."""
    if _State.core is None:
        said = re.search(r'"(\w+)"', gdb.execute("maintenance show internal-error corefile", to_string=True))
        _State.core = said[1] if said is not None else ""
        gdb.execute("maintenance set internal-error corefile no", to_string=True)


def give_back() -> None:
    """Restores gdb's settings and ends the guard, once no process is attached any more."""
    if _State.attached:
        return
    _State.opens.end()
    if _State.loader is not None:
        _State.loader.end()
    restore_schedule()
    for name, value in _State.saved.items():
        gdb.execute(command("set {} {}", name, value), to_string=True)
    _State.saved = {}
    if _State.core:
        gdb.execute(command("maintenance set internal-error corefile {}", _State.core), to_string=True)
    _State.core = None
    _end_guard()


def schedule_together(together: bool) -> None:
    """Sets whether gdb resumes one inferior or all of them, until `restore_schedule`."""
    if _State.schedule is None:
        _State.schedule = setting("schedule-multiple")
    gdb.execute("set schedule-multiple on" if together else "set schedule-multiple off", to_string=True)
    _State.background = False


def in_background() -> None:
    """Has the next stop restore schedule-multiple: the processes run in the background."""
    _State.background = True


def restore_schedule() -> None:
    """Restores schedule-multiple as the user had it."""
    if _State.schedule is not None:
        value, _State.schedule = _State.schedule, None
        gdb.execute(command("set schedule-multiple {}", value), to_string=True)


# ---- which processes are stopped -------------------------------------------------------------------------------------
def _on_continue(_: Any) -> None:
    _tell_of_gdb(True)
    if is_quiet():
        return
    together = bool(gdb.parameter("schedule-multiple"))
    current = gdb.selected_inferior().num
    for one in _State.attached.values():
        if together or one.inferior == current:
            if one.since is not None and one.was_stopped and not one.ran:
                _tell(functools.partial(guards.Guard.resumed, pid=one.pid))
            one.resumed()


def _on_stop(_: Any) -> None:
    _tell_of_gdb(False)
    if is_quiet():
        return
    for one in _State.attached.values():
        one.stopped()
    if _State.schedule is not None and _State.background:
        # in the foreground `resume` does it: a posted function that never runs crashes gdb 13 at its end
        gdb.post_event(restore_schedule)


def _on_exit(event: Any) -> None:
    # Comes at a detach too. Its inferior may not be touched here; the next command that lists the held processes drops it.
    one = next((p for p in _State.attached.values() if p.inferior == event.inferior.num), None)
    if one is not None:
        one.let_go()
