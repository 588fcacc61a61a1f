"""CPU clocks and states of processes and threads, seen without stopping anything.

Source: proc(5), Documentation/scheduler/sched-stats.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import log
from ..access.procfs import read_proc, read_schedstat, read_stat, status_field, task_ids
from ..errors import GdbextError

if TYPE_CHECKING:
    from ..access.proctable import Process, ProcTable


_EVERYBODYS = ("SIGINT", "SIGSEGV", "SIGFPE", "SIGABRT", "SIGBUS", "SIGILL")


@dataclass
class Clock:
    """A thread's clock. `run`: seconds on a CPU; `queued`: seconds that it waited for one; `state`; `sleeps`: how often it went
    to sleep of itself ("" and -1 where these two were not read). `exact`: `run` counts nanoseconds, not ticks. `faults`: how many
    pages of memory it was given, -1 as before."""

    run: float
    queued: float
    state: str = ""
    sleeps: int = -1
    exact: bool = True
    faults: int = -1

    @property
    def mark(self) -> tuple[float, int]:
        """A value that is equal in two samples if the thread did nothing between them."""
        return self.run, 0 if self.exact else self.sleeps


def clocks(pid: int, whole: bool = True) -> dict[int, Clock]:
    """{tid: Clock}; {} where the process is gone. If not `whole`, states and sleeps are left out where the rest shows which
    threads ran. That saves one file per thread."""
    try:
        tids = task_ids(pid)
    except GdbextError as e:
        log.passed_over(e)
        return {}
    found = {tid: clock_of(pid, tid, whole) for tid in tids}
    return {tid: clock for tid, clock in found.items() if clock is not None}


def clock_of(pid: int, tid: int, whole: bool = True) -> Clock | None:
    """The `Clock` of one thread, as `clocks`; None where it has ended."""
    try:
        found = Clock(0.0, 0.0)
        try:
            clock = read_schedstat(pid, tid)
            found.run, found.queued = clock.ran / 1e9, clock.queued / 1e9
        except GdbextError as e:  # this kernel's other clock has ticks only
            log.passed_over(e)
            found.run, found.exact = read_stat(pid, tid).cpu, False
        if whole or not found.exact:
            status = read_proc(pid, f"task/{tid}/status")
            found.state = status_field(status, b"State")[:1].decode()
            found.sleeps = int(status_field(status, b"voluntary_ctxt_switches") or 0)
            found.faults = read_stat(pid, tid).faults
        return found
    except (GdbextError, ValueError) as e:
        log.passed_over(e)
        return None


def handled_signals(pid: int) -> list[str]:
    """Names of the signals for which a process has its own handler, without those that every Python, every glibc and faulthandler
    handle."""
    try:
        caught = int(status_field(read_proc(pid, "status"), b"SigCgt") or b"0", 16)
    except (GdbextError, ValueError) as e:
        log.passed_over(e)
        return []
    return [s.name for s in signal.Signals if caught >> (s - 1) & 1 and s.name not in _EVERYBODYS]


def descendants(table: ProcTable, pid: int, limit: int = 4096) -> list[int]:
    """The pids of its children, their children and so on."""
    found: list[int] = []
    todo = [pid]
    while todo and len(found) < limit:
        for child in table.children.get(todo.pop(), ()):
            if child.pid not in found:
                found.append(child.pid)
                todo.append(child.pid)
    return found


def hidden_kin(table: ProcTable, pid: int) -> list[int]:
    """The pids of its descendants, and of its parent's, whose descriptors may not be listed: each may have inherited
    what it has."""
    process = table.processes.get(pid)
    parent = process.ppid if process is not None and process.ppid > 1 else pid
    kin = dict.fromkeys([*descendants(table, pid), *([parent] if parent != pid else []), *descendants(table, parent)])
    alive = [one for one in kin if one != pid and table.processes[one].state != "Z"]
    return [one for one in alive if not os.access(f"/proc/{one}/fd", os.R_OK)]


def ancestors(table: ProcTable, pid: int) -> set[int]:
    """The pids of its parent, the parent's parent and so on."""
    found: set[int] = set()
    process = table.processes.get(pid)
    while process is not None and process.ppid and process.ppid not in found:
        found.add(process.ppid)
        process = table.processes.get(process.ppid)
    return found


def askers(table: ProcTable) -> set[int]:
    """The pids of this process, of the gdbext that started it, and of their helpers. A gdb, or a test, may have started what is
    asked about too."""
    found, process = {os.getpid()}, table.processes.get(os.getpid())
    while process is not None and process.ppid in table.processes and _is_gdbext(table.processes[process.ppid]):
        process = table.processes[process.ppid]
        found.add(process.pid)
    below = (table.processes[pid] for one in list(found) for pid in descendants(table, one))
    return found | {one.pid for one in below if _is_gdbext(one)}


def _is_gdbext(process: Process) -> bool:
    return any(b"gdbext" in word.rpartition(b"/")[2] for word in process.cmdline.split(b"\0")[:6])


def ended_children(table: ProcTable, pid: int) -> list[tuple[int, str]]:
    """[(pid, what)] of ended children that the process has not waited for (zombies)."""
    return [
        (child.pid, f"{child.comm}, {how_ended(child.exit_status or 0)}")
        for child in table.children.get(pid, ())
        if child.state == "Z"
    ]


WELL = "exit status 0"


def how_it_ended(pid: int) -> str:
    """As `how_ended`, of a process that its parent has not reaped; '' where that may not be seen."""
    with log.passing_over(GdbextError, OSError):
        if os.geteuid() in (0, os.stat(f"/proc/{pid}").st_uid):  # the kernel shows others a zero
            return how_ended(read_stat(pid).exit_status)
    return ""


def how_ended(status: int) -> str:
    """The status of a process that has ended (wait(2)), in words."""
    number = status & 0x7F
    if not number:
        return f"exit status {status >> 8}"
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"killed by signal {number}"
