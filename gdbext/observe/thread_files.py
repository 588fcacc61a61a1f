"""The clock and the system call of a thread that is sampled many times a second: its files of /proc stay open.

/proc/PID/task/TID/schedstat (Documentation/scheduler/sched-stats.rst) counts its time on a CPU, its waits for one, and how often
it got one. If these are unchanged, the thread did not run.
"""

from __future__ import annotations

import os

from .. import log
from ..access.procfs import parse_schedstat, read_proc, read_stat
from ..errors import GdbextError, NotFoundError

TICK = 0.0105  # seconds: a kernel with 100 ticks a second has counted by then
MOSTLY = 0.5  # part of the time
MAX_FILES = 600  # of /proc that stay open, of all processes


class Files:
    """The descriptors of /proc that are kept open, counted over all processes."""

    def __init__(self) -> None:
        self.left = MAX_FILES

    def open(self, path: str) -> int:
        """A descriptor that stays open; -1 where the limit is reached or the file cannot be opened."""
        if self.left <= 0:
            return -1
        try:
            found = os.open(path, os.O_RDONLY)
        except OSError:
            return -1
        self.left -= 1
        return found

    def close(self, descriptor: int) -> None:
        """Closes a descriptor that `open` gave."""
        if descriptor >= 0:
            os.close(descriptor)
            self.left += 1


class KeptThread:
    """One thread. `clock`: the text of the last clock that was taken in; `cpu`: seconds that it ran since the first."""

    def __init__(self, pid: int, tid: int, files: Files) -> None:
        self._pid, self._tid, self._files = pid, tid, files
        folder = f"/proc/{pid}/task/{tid}"
        self._clock_file, self._call_file = files.open(f"{folder}/schedstat"), files.open(f"{folder}/syscall")
        self.has_clock = self._clock_file >= 0 or os.path.exists(f"{folder}/schedstat")
        self.clock, self.cpu = b"", 0.0
        self._first_run, self._last = -1, (0, 0, 0.0)  # when it ran last: run, delayed, at

    def read_clock(self) -> bytes:
        """The text of its clock; "" where this kernel keeps none. `NotFoundError` where the thread has ended."""
        if not self.has_clock:
            read_stat(self._pid, self._tid)  # it has not ended
            return b""
        if self._clock_file < 0:
            return read_proc(self._pid, f"task/{self._tid}/schedstat")
        try:
            return os.pread(self._clock_file, 100, 0)
        except OSError:
            raise NotFoundError("the thread has ended") from None

    def read_call(self) -> bytes:
        """The text of its system call; "" where the kernel does not tell."""
        try:
            if self._call_file < 0:
                return read_proc(self._pid, f"task/{self._tid}/syscall")
            return os.pread(self._call_file, 200, 0)
        except (OSError, GdbextError) as e:
            log.passed_over(e)
            return b""

    def ran(self, clock: bytes, now: float, was_ready: bool) -> bool:
        """Takes in its clock. -> whether a thread that is ready to run now is on a CPU, as far as the clock shows. The kernel
        counts a running thread's time at each tick, but a wait for a CPU only when it is over. `was_ready`: it was ready to run
        at the sample before."""
        if not clock:
            return True
        run, delayed, _ = parse_schedstat(clock)
        if self._first_run < 0:
            self._first_run, self._last = run, (run, delayed, now)
        spent, waited, passed = run - self._last[0], delayed - self._last[1], now - self._last[2]
        self.clock, self.cpu = clock, (run - self._first_run) / 1e9
        if not spent and passed < TICK:
            return True
        if spent:
            self._last = run, delayed, now
        return not (was_ready and not spent or waited > MOSTLY * passed * 1e9)

    def close(self) -> None:
        """Closes its files."""
        self._files.close(self._clock_file)
        self._files.close(self._call_file)
        self._clock_file = self._call_file = -1
