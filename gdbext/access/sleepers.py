"""Threads that sleep in the kernel, and are left asleep while their process is copied. A stop would end the calls of some of them
with EINTR (signal(7): epoll_wait, semop, sigtimedwait, recv with a time limit, ...).

For such a thread /proc gives the stack pointer, the program counter and the arguments of its call. They suffice where its stack
can be walked from them alone. The number of times that it got a CPU shows whether it slept all the while.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from .. import log
from ..errors import GdbextError
from . import ptrace
from .holder import Holder
from .proc import ProcTarget
from .procfs import read_or_empty
from .unwind import Unwinder

# CPU seconds for walking stacks before a stop, and more for each thread; a thread that is not reached in them is stopped. A walk
# takes 0.3 ms. The clock is no bound: on a machine at full load most threads would be stopped, which takes longer.
LEARN, EACH = 0.3, 0.001
# Calls that a stop ends with EINTR and that programs seldom ask again, by their numbers: semop, semtimedop, msgsnd, msgrcv,
# rt_sigtimedwait, io_getevents. Who sleeps in one is left asleep, also where its stack cannot be walked.
FRAGILE = {"x86-64": (65, 220, 69, 70, 128, 208), "aarch64": (193, 192, 189, 188, 137, 4)}
RESTLESS = 3  # copies that a waking sleeper may spoil; then every thread that can be is stopped


class Sleeper(NamedTuple):
    """`registers`: raw, 0 where they are not known; `mark`: changes when the thread gets a CPU."""

    registers: bytes
    mark: bytes
    state: str


class Sleepers:
    """The sleeping threads of one process. `holder`: what stops the process for us, None where nothing does: then all of them are
    left asleep. `woken`: how many sleeping threads were stopped at the last `now()`."""

    def __init__(self, live: ProcTarget, holder: Holder | None) -> None:
        self.holder = holder
        self._live, self._pid = live, live.pid
        self._whole: dict[int, tuple[bytes, bool]] = {}  # {tid: (its call, whether its stack can be walked)}
        self._restless: set[int] = set()
        self._spoilt = 0
        self.woken = 0

    def learn(self) -> None:
        """Finds the threads whose stacks can be walked, while the process runs."""
        tids = ptrace.tids(self._pid)
        limit = time.thread_time() + LEARN + EACH * len(tids)
        try:
            unwinder = Unwinder(self._live)
        except GdbextError as e:
            log.passed_over(e)
            return
        self._live.drop_pages()
        for tid in tids:
            call = _read(self._pid, tid, "syscall")
            if self._whole.get(tid, (b"",))[0] == call or time.thread_time() > limit:
                continue
            raw = ptrace.call_registers(call, self._live.arch)
            if raw is not None and ptrace.thread_state(self._pid, tid) == "S":
                self._whole[tid] = call, unwinder.is_whole(ptrace.known_registers(call, self._live.arch))

    def now(self) -> dict[int, Sleeper]:
        """{tid: sleeper} of the threads that need not be stopped, or cannot be: those in uninterruptible sleep, or held by
        another tracer."""
        found = {}
        self.woken = 0
        for tid in ptrace.tids(self._pid):
            state = ptrace.thread_state(self._pid, tid)
            if state not in ("SDt" if self.holder is not None else "SDtTI") or state == "t" and self._is_ours(tid):
                continue
            mark, call = _mark(self._pid, tid), _read(self._pid, tid, "syscall")
            raw = ptrace.call_registers(call, self._live.arch)
            if raw is None:
                continue
            restless = self._whole.get(tid) != (call, True) or self._spoilt >= RESTLESS
            restless = restless and not _is_fragile(call, self._live.arch) or tid in self._restless
            if state == "S" and restless and self.holder is not None:
                self.woken += 1
                continue
            found[tid] = Sleeper(raw, mark, state)
        return found

    def _is_ours(self, tid: int) -> bool:
        """Whether a thread came to our own stop too late, and is about to be released."""
        found = ptrace.status(self._pid, tid)
        return found is None or self.holder is not None and found["tracer"] == self.holder.pid

    def stirred(self, sleepers: dict[int, Sleeper]) -> set[int]:
        """Those that got a CPU since. From now on they are stopped."""
        found = {tid for tid, one in sleepers.items() if _mark(self._pid, tid) != one.mark}
        self._restless |= found
        self._spoilt += bool(found)
        return found


def _is_fragile(call: bytes, arch: str) -> bool:
    """Whether a stop may cost the program the call that a thread is in."""
    number = call.partition(b" ")[0]
    return number.isdigit() and int(number) in FRAGILE.get(arch, ())


def _mark(pid: int, tid: int) -> bytes:
    """How often a thread got a CPU, and for how long (schedstat); its context switches where the kernel does not say."""
    found = _read(pid, tid, "schedstat")
    if found.strip(b"0 \n"):
        return found
    return b"".join(line for line in _read(pid, tid, "status").splitlines() if b"ctxt_switches" in line)


def _read(pid: int, tid: int, name: str) -> bytes:
    return read_or_empty(pid, f"task/{tid}/{name}")
