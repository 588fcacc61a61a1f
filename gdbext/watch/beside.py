"""What the history of a process has beside its threads, read as seldom as its cost allows: levels and tracebacks of its log,
collectives begun by each group, memory of GPUs as torch's allocator on the host counts it."""

from __future__ import annotations

import time
from typing import Any

from .. import log
from ..cpython.runtime import Runtime
from ..errors import GdbextError
from ..observe.log_reader import Key, Logs
from ..observe.logs import LEVELS
from ..torch import collectives, cuda_allocator
from .ring import Ring

EVERY = 5.0  # seconds between two readings, at least
SELDOM = 60.0  # the same where there is nothing to read
LATEST = 300.0  # the same at most, whatever a reading took
PART = 0.0003  # of a CPU, for each process
MOST_GROUPS = 32
LOG, TRACEBACK, COLLECTIVES, DEVICE = "log", "traceback", "collectives", "device"


class Beside:
    """Of one process. `logs`: of all that are followed. Of several that write to one, the first one reads it, and each at its
    end."""

    def __init__(self, pid: int, logs: Logs) -> None:
        self._pid, self._logs, self._due, self._file_due = pid, logs, 0.0, 0.0
        self._log: Key | None = None

    def look(self, now: float, at: float, ring: Ring, rt: Runtime | None) -> None:
        """One look, where it is due. `rt`: None where the process has not run since, or cannot be read."""
        if now < self._due:
            return
        began, before = time.thread_time(), self._logs.cpu
        if self._log is None and now >= self._file_due:
            self._file_due = now + SELDOM
            self._log = self._logs.join(self._pid)
        if self._log is not None and self._logs.users(self._log)[0] == self._pid:
            self.read_log(at, ring)
        has = False
        if rt is not None:
            rt.target.invalidate()
            for what, read in ((COLLECTIVES, _collectives), (DEVICE, _device)):
                with log.passing_over(GdbextError, LookupError, ValueError, TypeError):
                    found = read(rt)
                    has = has or bool(found)
                    if found:
                        ring.note(at, what, found)
        took = time.thread_time() - began + self._logs.cpu - before
        self._due = now + min(max(EVERY if has or self._log else SELDOM, took / PART), LATEST)

    def read_log(self, at: float, ring: Ring) -> None:
        """What was logged meanwhile; also of a process that has just ended."""
        if self._log is None:
            return
        try:
            said = self._logs.read(self._log)
        except OSError as e:
            log.passed_over(e)
            self.close()
            return
        if said is None:
            return
        if said.levels or said.skipped:
            told = {name: said.levels[name] for name in LEVELS if name in said.levels}
            ring.note(at, LOG, {**told, **({"skipped": said.skipped} if said.skipped else {})}, True)
        for one in said.tracebacks:
            ring.note(at, TRACEBACK, {"error": one.error, "frames": list(one.frames)}, True)

    def close(self) -> None:
        """The log is read for it no longer."""
        if self._log is not None:
            self._logs.leave(self._log, self._pid)
            self._log = None


def _collectives(rt: Runtime) -> dict[str, Any]:
    return {one.group: sum(one.begun.values()) for one in collectives.find(rt)[:MOST_GROUPS]}


def _device(rt: Runtime) -> dict[str, Any]:
    return {
        f"GPU {row['device']} {what}": row[f"{what}_bytes"]
        for row in cuda_allocator.read(rt.target, rt)
        for what in ("allocated", "reserved")
    }
