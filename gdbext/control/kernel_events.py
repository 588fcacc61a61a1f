"""Events of the kernel's (access/perf_breakpoints.py) in the role of gdb's hardware breakpoints, for places that may be passed
often: pybreak, pylog, pytrace, llm-save, llm-layers.

gdb stops a thread at the event's signal; the condition of a `catch signal`, a function here, reads; gdb drops the signal. A gdb
that is killed leaves no register armed, and no trap that ends the process.
"""

from __future__ import annotations

import errno
import os
import re
import resource
from typing import Any, Callable

import gdb

from .. import log
from ..access import perf_breakpoints, ptrace
from ..access.cli_gdb import command
from ..errors import GdbextError
from .events import listen
from .gdb_state import FRONT_END, handling
from .spots import Spot

NAME = perf_breakpoints.SIGNAL.name
FUNCTION = "_gdbext_passed"
QUOTED = re.compile(r"[^ !#-\[\]-~]")  # what a string of gdb's may not hold as it is
_events: dict[int, tuple[Event, int]] = {}  # descriptor: (event, the thread that it is of)
_catches: list[gdb.Breakpoint] = []  # those that are set
_handled: list[str] = []  # how gdb treated the signal before


class Event:
    """One place in the memory of a process, in each of its threads; the words of a gdb.Breakpoint that others use. `reached()`
    says whether to stop, `number` is that of the `Catch` which asks. OSError where it cannot be had."""

    def __init__(self, pid: int, spot: Spot, number: int, reached: Callable[[], bool]) -> None:
        self.pid, self.spot, self.number, self.reached = pid, spot, number, reached
        self.descriptors: dict[int, int] = {}  # by thread
        self._enabled = True
        tids = ptrace.tids(pid)
        if len(_events) + len(tids) > resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2:
            raise OSError(errno.EMFILE, "gdb needs descriptors too")
        try:
            for tid in tids:
                self.add(tid)
        except BaseException:
            self.delete()
            raise

    def add(self, tid: int) -> None:
        """A thread more."""
        if tid in self.descriptors:
            return
        try:
            found = perf_breakpoints.open_at(tid, *self.spot)
        except ProcessLookupError as e:
            log.passed_over(e)  # it has ended
            return
        if not self._enabled:
            perf_breakpoints.enable(found, False)
        self.descriptors[tid] = found
        _events[found] = self, tid

    def is_valid(self) -> bool:
        return bool(self.descriptors)

    @property
    def enabled(self) -> bool:
        return self._enabled and self.is_valid()

    @enabled.setter
    def enabled(self, yes: bool) -> None:
        if yes != self._enabled:
            self._enabled = yes
            for descriptor in self.descriptors.values():
                perf_breakpoints.enable(descriptor, yes)

    def delete(self) -> None:
        for descriptor in self.descriptors.values():
            _events.pop(descriptor, None)
            os.close(descriptor)
        self.descriptors = {}


def can_be(number: int, pid: int, tids: list[int]) -> bool:
    """Whether they may be used at a breakpoint of gdb's list, in a process whose `tids` run Python."""
    caught = any(one.is_valid() and one.number == number for one in _catches)
    return caught and perf_breakpoints.leaves_signal_alone(pid, tids)


def is_hit(event: Any) -> bool:
    """Whether a stop that gdb reports is one at an event. gdb reports a `catch signal` as a signal."""
    return bool(_events) and getattr(event, "stop_signal", "") == NAME


def catch(text: str) -> gdb.Breakpoint | None:
    """A `catch signal` in gdb's list, under a name, at which events may be; None where this gdb or machine has none. A front end
    would show it as the user's."""
    if ptrace.MACHINE not in perf_breakpoints.OPEN or FRONT_END or not hasattr(gdb, "BP_CATCHPOINT"):
        return None
    known = {b.number for b in gdb.breakpoints()}
    gdb.execute(command("catch signal {}", NAME), to_string=True)
    made = next((b for b in gdb.breakpoints() if b.number not in known), None)
    if made is None:
        raise GdbextError("gdb does not list its catchpoint")
    made.condition, made.silent = f'${FUNCTION}({made.number}, "{QUOTED.sub(r"?", text)}")', True
    if not _handled:
        _handled.append(handling(NAME))
        gdb.execute(command("handle {} nostop noprint nopass", NAME), to_string=True)
        listen(new_thread=_on_new_thread)
    _catches.append(made)
    return made


def sweep() -> None:
    """Gives gdb's way with the signal back once none is left. It must not run inside stop() or an event."""
    _catches[:] = [one for one in _catches if one.is_valid()]
    if _handled and not _catches:
        gdb.execute(command("handle {} {}", NAME, _handled.pop()), to_string=True)


def _on_new_thread(event: Any) -> None:
    """A new thread has no event yet, and has not run yet."""
    pid, tid = event.inferior_thread.ptid[:2]
    for one in {id(one): one for one, _ in _events.values() if one.pid == pid}.values():
        with log.passing_over(OSError):
            one.add(tid)


class _Passed(gdb.Function):
    """The condition of a `catch signal`: its number, and a text for who lists it."""

    def invoke(self, *words: Any) -> int:
        tid = gdb.selected_thread().ptid[1]
        try:
            one, of = _events.get(perf_breakpoints.hit(tid), (None, 0))
        except OSError as e:
            log.passed_over(e)  # it has been killed
            return 0
        return int(one is not None and of == tid and one.number == int(words[0]) and one.reached())


_Passed(FUNCTION)
