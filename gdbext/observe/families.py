"""Processes that are not sampled, over the same time: what each did together with all its descendants. A program that waits for
what it started (a shell, make, nvcc) does nothing itself while its descendants work.

Source: proc(5): of a process, cutime and cstime are the times of the descendants that it has waited for.
"""

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass, field
from typing import Callable, Collection, Iterable

from .. import log
from ..access.proc import ProcTarget
from ..access.procfs import read_stat, state_of, task_ids, uptime
from ..access.proctable import ProcTable
from ..errors import GdbextError
from . import system_calls
from .clocks import askers, clocks, descendants, how_ended
from .window import RUNS, SOON, STILL

MAX_CHILDREN, SEVERAL = 64, 2  # children of a process that are looked at; that have failed, one after the other
MAX_READ = 256  # processes whose threads are read


@dataclass
class Outsider:
    """A process that was not sampled, with its descendants, and with what writes the pipe that one of them reads.

    * `ran`: seconds of CPU that they used
    * `changed`: one of them began or ended, or a thread of it went to sleep of itself
    * `wants`: one is ready to run, or in a short wait of the kernel (state D)
    * `sleeps`: seconds of the shortest sleep in which one of them is, 0: none sleeps
    * `stopped`: [(pid, program)] of those that are stopped, without what somebody at a terminal has put aside
    * `lived`: seconds of CPU a second of those that were there all the time; None: as `ran`
    * `came`: the same of those that came and went, one after the other
    """

    pid: int
    program: str = ""
    ran: float = 0.0
    changed: bool = False
    wants: bool = False
    sleeps: float = 0.0
    stopped: list[tuple[int, str]] = field(default_factory=list)
    lived: float | None = None
    came: float = 0.0

    @property
    def name(self) -> str:
        return f"process {self.pid}" + (f" ({self.program})" if self.program else "")

    @property
    def computes(self) -> bool:
        """Whether those that were there all the time used a CPU for longer than a program does that only asks now and then; on a
        full machine, as long as they had one. Those that come and go, a compiler for each file, have to run all the time."""
        lived = self.ran if self.lived is None else self.lived
        return not self.stopped and (
            lived > RUNS / 3 or lived > STILL and self.wants or self.came > RUNS / (2 if self.wants else 1)
        )

    @property
    def at_work(self) -> str:
        """Why it may go on, in words; '' where nothing says so."""
        if self.ran > STILL:
            return f"which is at work: with what it started or reads from it used {self.ran:.2f} s of CPU meanwhile"
        if self.changed:
            return "which is at work: it, or what it started, woke or changed meanwhile"
        if self.wants:
            return "which wants a CPU or a disk and hardly gets it"
        return f"which sleeps, for {self.sleeps:.3g} s only" if 0 < self.sleeps <= SOON else ""


class Families:
    """The processes of the machine, at the beginning of a window. `sampled`: pids of those that others look at. Those
    that ask belong to no family."""

    def __init__(self, table: ProcTable, sampled: Iterable[int]) -> None:
        self.sampled, self.first, self.began = set(sampled), table, time.monotonic()
        self._asking: tuple[ProcTable | None, set[int]] = (None, set())  # of the table that was looked at last
        below = dict.fromkeys(pid for one in self.sampled for pid in self.below(table, one) if pid not in self.sampled)
        self.turns = {pid: _turns(pid) for pid in list(below)[:MAX_READ]}

    def below(self, table: ProcTable, pid: int) -> list[int]:
        """Its descendants, without the processes that ask."""
        if self._asking[0] is not table:
            self._asking = table, askers(table)
        return [one for one in descendants(table, pid) if one not in self._asking[1]]

    def seen(self, table: ProcTable, pids: Iterable[int]) -> dict[int, Outsider]:
        """{pid: `Outsider`} of those of `pids` that are there and not sampled. `table`: all, at the end of the window."""
        asked = [pid for pid in dict.fromkeys(pids) if pid not in self.sampled and pid in table.processes]
        writers = self._writers(table) if asked else {}
        families = {pid: self._with_feeders(table, [pid, *self.below(table, pid)], writers) for pid in asked}
        others = [one for one in dict.fromkeys(sum(families.values(), [])) if one not in self.sampled and _alive(table, one)]
        ends = {one: _Member(table, one, self.turns.get(one)) for one in others[:MAX_READ]}
        return {pid: self._outsider(table, pid, family, ends) for pid, family in families.items()}

    def _with_feeders(self, table: ProcTable, family: list[int], writers: dict[str, list[int]]) -> list[int]:
        """A family, and those of `writers` that feed what one of it reads: a pipeline waits for its first program."""
        for one in family:  # which grows
            more = [two for other in writers.get(_pipe(one, 0), ()) for two in [other, *self.below(table, other)]]
            family += [two for two in dict.fromkeys(more) if two not in family]
        return family

    def _writers(self, table: ProcTable) -> dict[str, list[int]]:
        """{a pipe: the programs below a sampled process whose output it is}"""
        found: dict[str, list[int]] = {}
        for pid in dict.fromkeys([one for sampled in self.sampled for one in self.below(table, sampled)][:MAX_READ]):
            for pipe in {_pipe(pid, 1), _pipe(pid, 2)} - {""}:
                found.setdefault(pipe, []).append(pid)
        return found

    def spent(self, table: ProcTable, pid: int) -> dict[int, float]:
        """{pid: `ran`} of the descendants of a process that were there at the beginning and are there still."""
        there = [one for one in descendants(self.first, pid) if _alive(table, one)]
        return {one: self.ran(table, one) for one in there[:MAX_READ]}

    def ran(self, table: ProcTable, pid: int) -> float:
        """Seconds of CPU that a process and its descendants used since the beginning, also those that have come and gone."""
        return self._used(table, pid)[0]

    def _used(self, table: ProcTable, pid: int) -> tuple[float, float]:
        """(`ran`, that of those that were there at the beginning and are there still)"""
        before = _spent(self.first, [pid, *self.below(self.first, pid)])
        now = _spent(table, [pid, *self.below(table, pid)])
        both = sum(now[one][0] - before[one][0] for one in now.keys() & before.keys())
        whole = sum(map(sum, now.values())) - sum(map(sum, before.values())) if pid in before else sum(map(sum, now.values()))
        return max(both, whole, 0.0), both

    def _outsider(self, table: ProcTable, pid: int, family: Collection[int], ends: dict[int, _Member]) -> Outsider:
        known = [ends[one] for one in family if one in ends]
        own = {pid, *self.below(table, pid)}
        fed = [one for one in family if one not in own]
        then = {pid, *self.below(self.first, pid)} if pid in self.first.processes else set()
        others = (then ^ own) - self.sampled
        feeders = sum(_spent_between(self.first, table, fed))
        ran, lived = self._used(table, pid)
        seconds = max(time.monotonic() - self.began, 1.0)
        return Outsider(
            pid,
            table.processes[pid].comm,
            ran + feeders,
            bool(others) or any(one.woke for one in known),
            any(one.wants for one in known),
            min((one.sleeps for one in known if one.sleeps), default=0.0),
            [(one.pid, one.program) for one in known if one.stopped and not aside(one.pid)],
            (lived + feeders) / seconds,
            (ran - lived) / seconds,
        )


class _Member:
    """One process of a family at the end of the window. `before`: how often its threads had gone to sleep at the beginning."""

    def __init__(self, table: ProcTable, pid: int, before: dict[int, int] | None) -> None:
        process, now = table.processes[pid], clocks(pid)
        self.pid, self.program = pid, process.comm
        states = {clock.state for clock in now.values()}
        self.stopped = process.state in ("T", "t")
        self.woke = before is not None and any(clock.sleeps != before.get(tid) for tid, clock in now.items())
        self.wants = bool(states & {"R", "D"})
        self.sleeps = _sleep(pid) if not self.stopped else 0.0


def aside(pid: int) -> bool:
    """Whether a process is a job in the background of a terminal: who has stopped it there goes on with it there."""
    with log.passing_over(GdbextError):
        stat = read_stat(pid)
        return stat.terminal != 0 and stat.foreground != stat.group
    return False


def _alive(table: ProcTable, pid: int) -> bool:
    return pid in table.processes and table.processes[pid].state not in ("Z", "X")


def _turns(pid: int) -> dict[int, int]:
    """{tid: how often it went to sleep of itself}"""
    return {tid: clock.sleeps for tid, clock in clocks(pid).items()}


def _sleep(pid: int) -> float:
    """The seconds of the sleep in which a process's main thread is, 0 where it is in none."""
    try:
        return system_calls.sleep_of(ProcTarget(pid))
    except (GdbextError, OSError, ValueError, struct.error) as e:
        log.passed_over(e)
        return 0.0


def _pipe(pid: int, descriptor: int) -> str:
    """The pipe that a process has at a descriptor, '' for anything else."""
    try:
        link = os.readlink(f"/proc/{pid}/fd/{descriptor}")
    except OSError as e:
        log.passed_over(e)
        return ""
    return link if link.startswith("pipe:") else ""


def _spent_between(first: ProcTable, last: ProcTable, pids: Iterable[int]) -> list[float]:
    """Seconds of CPU that each of some processes used, those that were there at both times."""
    before, now = _spent(first, pids), _spent(last, pids)
    return [now[one][0] - before[one][0] for one in now.keys() & before.keys()]


def _spent(table: ProcTable, pids: Iterable[int]) -> dict[int, tuple[float, float]]:
    """{pid: (seconds of CPU of its own, of the descendants that it has waited for)}"""
    found = [table.processes[pid] for pid in pids if pid in table.processes]
    return {one.pid: (one.cpu, one.reaped) for one in found}


class Births:
    """The children of a process that begin and end while it is looked at: workers that fail at once and are started again."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.known: set[int] = set()
        self.born: dict[int, tuple[float, int | None]] = {}  # {pid: (its age when it was seen last, how it ended)}

    def look(self, first: bool = False) -> None:
        """Takes a sample."""
        with log.passing_over(GdbextError):  # a child belongs to the thread that has forked it
            tids = task_ids(self.pid)[:MAX_CHILDREN]
            pids = [pid for tid in tids for pid in system_calls.children_of(self.pid, tid)]
            self._look(pids[:MAX_CHILDREN], first)

    def _look(self, pids: Collection[int], first: bool) -> None:
        self.known.update(pids if first else ())
        for pid in pids:
            if pid in self.known:
                continue
            with log.passing_over(GdbextError):
                stat = read_stat(pid)
                age = uptime() - stat.started / os.sysconf("SC_CLK_TCK")
                self.born[pid] = age, stat.exit_status if stat.state == "Z" else self.born.get(pid, (0.0, None))[1]

    def failed(self, statuses: Callable[[], Collection[int]]) -> str:
        """In words, that one after the other failed; '' where they did not. `statuses()`: as its memory has them, of those that
        it has asked about."""
        gone = {pid: one for pid, one in self.born.items() if one[1] is not None or state_of(pid) in ("", "Z", "X")}
        codes = {status for _, status in gone.values() if status is not None}
        codes = codes or set(statuses() if len(gone) >= SEVERAL else ())
        if len(gone) < SEVERAL or not codes or 0 in codes:
            return ""
        age, how = max(age for age, _ in gone.values()), " or ".join(sorted({how_ended(code) for code in codes}))
        many = f"{len(gone)} came and went meanwhile, {how}, {age:.2f} s old at most"
        return f"children of it end at once and are started again: {many}"
