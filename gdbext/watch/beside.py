"""What the history of a process has beside its threads, read as seldom as its cost allows: levels and tracebacks of its log,
collectives begun by each group, memory of GPUs as torch's allocator on the host counts it."""

from __future__ import annotations

import time
from typing import Any

from .. import log
from ..cpython.runtime import Runtime
from ..errors import GdbextError
from ..observe.logs import LEVELS, Tail, file_of
from ..torch import collectives, cuda_allocator
from .ring import Ring

EVERY = 5.0  # seconds between two readings, at least
SELDOM = 60.0  # the same where there is nothing to read
PART = 0.0003  # of a CPU, for each process
MOST_GROUPS = 32
LOG, TRACEBACK, COLLECTIVES, DEVICE = "log", "traceback", "collectives", "device"


class Beside:
    """Of one process. `logs`: of all that are followed, by file: several write to one, which is read once."""

    def __init__(self, pid: int, logs: dict[tuple[int, int], Tail]) -> None:
        self._pid, self._logs, self._due, self._file_due = pid, logs, 0.0, 0.0
        self._mine: tuple[int, int] | None = None  # the log that is read for this process

    def look(self, now: float, at: float, ring: Ring, rt: Runtime | None) -> None:
        """One look, where it is due. `rt`: None where the process has not run since, or cannot be read."""
        if now < self._due:
            return
        began = time.thread_time()
        self.read_log(now, at, ring)
        has = False
        if rt is not None:
            rt.target.invalidate()
            for what, read in ((COLLECTIVES, _collectives), (DEVICE, _device)):
                with log.passing_over(GdbextError, LookupError, ValueError, TypeError):
                    found = read(rt)
                    has = has or bool(found)
                    if found:
                        ring.note(at, what, found)
        self._due = now + max(EVERY if has or self._mine else SELDOM, (time.thread_time() - began) / PART)

    def read_log(self, now: float, at: float, ring: Ring) -> None:
        """What was logged meanwhile; also of a process that has just ended."""
        with log.passing_over(OSError):
            self._read_log(now, at, ring)

    def _read_log(self, now: float, at: float, ring: Ring) -> None:
        if self._mine is None and now >= self._file_due:
            self._file_due = now + SELDOM
            found = file_of(self._pid)
            if found is not None and found[1] not in self._logs:
                self._logs[found[1]], self._mine = Tail(found[0], self._pid), found[1]
        if self._mine is None:
            return
        try:
            said = self._logs[self._mine].look()
        except OSError:
            self.close()
            raise
        if said.levels or said.skipped:
            told = {name: said.levels[name] for name in LEVELS if name in said.levels}
            ring.note(at, LOG, {**told, **({"skipped": said.skipped} if said.skipped else {})}, True)
        for one in said.tracebacks:
            ring.note(at, TRACEBACK, {"error": one.error, "frames": list(one.frames)}, True)

    def close(self) -> None:
        """The log is another one's to read from now on."""
        if self._mine is not None:
            mine = self._logs.pop(self._mine, None)
            self._mine = None
            if mine is not None:
                mine.close()


def _collectives(rt: Runtime) -> dict[str, Any]:
    return {one.group: sum(one.begun.values()) for one in collectives.find(rt)[:MOST_GROUPS]}


def _device(rt: Runtime) -> dict[str, Any]:
    return {
        f"GPU {row['device']} {what}": row[f"{what}_bytes"]
        for row in cuda_allocator.read(rt.target, rt)
        for what in ("allocated", "reserved")
    }
