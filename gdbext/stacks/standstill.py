"""Whether the main thread of a running process makes progress, read through /proc without stopping it, for llm-watch."""

from __future__ import annotations

import time
from typing import Any

from .. import log
from ..access.proc import ProcTarget
from ..access.procfs import state_of
from ..cpython import reprs, resolution
from ..cpython.runtime import open_runtime
from ..errors import GdbextError
from ..observe.clocks import clock_of
from ..observe.observer import thread_sample
from ..render.text import seconds


class MainThreadWatch:
    """One process: since when its main thread is in the same place. The time for which it waited for a CPU does not count.
    `counter`: a Python expression of the main thread that changes with progress, or None; `progressed`: something changed at the
    last sample."""

    def __init__(self, one: Any, counter: str | None) -> None:
        self.pid, self.name, self.counter = one.pid, one.name, counter
        self.mark: Any = None
        self.since, self.progressed = self._time(), False

    def look(self, after: float) -> str:
        """Samples the process; returns why a closer look is due, '' where there is progress or it may still come. `after`:
        seconds without progress before a look is due."""
        state = state_of(self.pid)
        self.progressed = False
        if state in ("", "Z", "X"):
            return f"{self.name} has ended"
        now = self._time()
        mark = self._mark(state)
        if mark != self.mark:
            self.progressed, self.mark, self.since = self.mark is not None, mark, now
        stood = now - self.since
        if stood < after:
            return ""
        self.since = now
        return f"{self.name} " + ("is stopped" if state in ("T", "t") else f"has been in the same place for {seconds(stood)}")

    def _time(self) -> float:
        """Seconds that go by, but for those in which the main thread waits for a CPU."""
        clock = clock_of(self.pid, self.pid, whole=False)
        return time.monotonic() - (clock.queued if clock is not None else 0.0)

    def _mark(self, state: str) -> Any:
        """A value that changes with progress: that of the counter, else the main thread's Python stack."""
        try:
            target = ProcTarget(self.pid)
            try:
                rt = open_runtime(target)
                main = rt.threads()[0]
                if self.counter:
                    value = resolution.resolve(rt, self.counter, rt.frames(main), outward=True).value
                    return repr(value) if not hasattr(value, "address") else reprs.Repr(reprs.SHORT)(value)
                return (state in ("T", "t"), thread_sample(rt, main).stack)
            finally:
                target.close()
        except (GdbextError, IndexError) as e:
            log.passed_over(e)
            return ("torn", time.monotonic())  # it changed while it was read
