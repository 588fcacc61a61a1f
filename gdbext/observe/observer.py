"""Takes samples of running processes: one loop for all of them, nothing is stopped."""

from __future__ import annotations

import time
from typing import Callable, Iterable, Sequence

from .. import log
from ..access.proc import process_clock
from ..cpython.frames import PyFrame
from ..cpython.runtime import PyThread, Runtime
from ..errors import FaultError, GdbextError
from . import effects, gil_samples, system_calls
from .clocks import Clock, clock_of, clocks
from .loop import Collector, rounds
from .stack_keys import FrameKey, stack_key
from .window import ThreadSample, ThreadWindow, Window

SAMPLES = 6  # of a window
GIL_SAMPLES = 2  # of the GIL, with each of them
GIL_INTERVAL = 0.005  # seconds
SEEN_OFTEN = 2  # samples after which the effect of a thread that has not advanced is read
MAX_THREADS = 64  # of those that ran: so many stacks of a process are compared from sample to sample


def repeatedly(sample: Sequence[Callable[[], None]], seconds: float) -> None:
    """Calls each of `sample` `SAMPLES` times, spread over the given seconds."""
    began = time.monotonic()
    for _ in rounds(seconds / SAMPLES, count=SAMPLES):
        for one in sample:
            one()
    time.sleep(max(0.0, began + seconds - time.monotonic()))


def stack_of(rt: Runtime, thread: PyThread) -> tuple[FrameKey, ...]:
    """The key of a thread's Python stack, read once until the target's epoch ends. So the observer of the process and a reader of
    its requests get the same sample of it."""
    found: tuple[FrameKey, ...] = rt.target.cached(("stack key", thread.address), lambda: stack_key(rt.frames(thread)))
    return found


def thread_sample(rt: Runtime, thread: PyThread, depth: int | None = None) -> ThreadSample:
    """One sample of a thread, now. `depth`: how many of its innermost frames count. It has no clock where the process is stopped,
    or is a core, and no stack where a core lacks a part of it."""
    target = rt.target
    live = target.is_live and not target.is_stopped and target.pid and thread.tid
    try:
        stack = stack_of(rt, thread)[:depth]
    except FaultError as e:
        if target.is_live:
            raise
        log.passed_over(e)
        stack = None
    return ThreadSample(thread.tid, clock_of(target.pid, thread.tid) if live and target.pid else None, stack)


class Observer(Collector):
    """Samples one process. `rt`: None where it runs no readable Python; `window`: the samples so far."""

    def __init__(self, pid: int, rt: Runtime | None) -> None:
        self.pid, self.rt, self.window = pid, rt, Window()
        self._began = time.monotonic()
        self._start = self._ran = process_clock(pid)
        self._first = self._last = clocks(pid)
        self.window.begin(self._first)
        self._gil: gil_samples.Samples | None = None  # None: not since the last sample
        self.sampled = False

    def sample(self, anew: bool = False) -> None:
        """Takes a sample. If no thread has run since the last one, nothing is read: the process can have changed only in memory
        that it shares. `anew`: reads in any case, so that what is read next belongs to this moment."""
        rt, first = self.rt, not self.sampled
        if rt is None:
            return
        self.sampled = True
        main = self.window.threads.get(self.pid)
        if first or anew or not self.stands_since(self._ran):
            self._ran = self._start if first else process_clock(self.pid)
            now = self._first if first else clocks(self.pid, whole=False)  # a thread that has not run since is where it was
            self._stacks(rt, {tid for tid, c in now.items() if tid == self.pid or c.state == "R" or c.mark != self._mark(tid)})
            self._last, self._gil = now, None
            self.window.waited = self.window.waited or system_calls.waits_for_others(self.pid, rt.target.arch)
        elif main is not None and main.stacks:
            main.stacks.append(main.stacks[-1])

    def sample_gil(self) -> None:
        """Samples the GIL at the time of a sample. It takes some time, so it comes after everything that is to belong to the
        sample's moment."""
        if self.rt is None:
            return
        if self._gil is None:
            self._gil = _gil(self.rt)
        if self._gil is not None:
            self.window.gil = self._gil if self.window.gil is None else self.window.gil + self._gil

    def end(self) -> None:
        """Takes the last clocks."""
        self.window.end(clocks(self.pid), time.monotonic() - self._began)

    def resume(self, stacks: Iterable[tuple[int, Sequence[PyFrame]]]) -> None:
        """Goes on after a pause for a copy, whose `stacks` are [(tid, frames)]. The pause woke threads that slept; these wake-ups
        do not count."""
        for tid, clock in clocks(self.pid).items():
            thread = self.window.threads.get(tid)
            if thread is not None and thread.before is not None and thread.after is not None:
                thread.before.sleeps += clock.sleeps - thread.after.sleeps
        for tid, frames in stacks:
            thread = self.window.threads.setdefault(tid, ThreadWindow())
            if frames and not thread.stacks:
                with log.passing_over(GdbextError):  # the copy may lack a page of them
                    thread.stacks.append(stack_key(frames))

    @property
    def stands(self) -> bool:
        """Whether no thread has run since the first clocks."""
        return self.stands_since(self._start)

    def stands_since(self, ran: int | None) -> bool:
        """Whether no thread has run since the process's clock was at `ran`. That clock does not show a thread that is on a CPU
        the whole time and has not been counted yet."""
        on_a_cpu = any(c.state == "R" for c in self._first.values())
        return ran is not None and process_clock(self.pid) == ran and not on_a_cpu

    def _mark(self, tid: int) -> tuple[float, int] | None:
        known: Clock | None = self._last.get(tid)
        return known.mark if known is not None else None

    def _stacks(self, rt: Runtime, active: set[int]) -> None:
        rt.target.invalidate()
        try:
            pythons = rt.threads()
        except GdbextError as e:
            log.passed_over(e)
            return
        for py in [py for py in pythons if py.tid in active][:MAX_THREADS]:
            thread = self.window.threads.setdefault(py.tid, ThreadWindow())
            try:
                frames = rt.frames(py)
                thread.stacks.append(stack_of(rt, py))
            except GdbextError as e:
                log.passed_over(e)
                thread.stacks.append(("torn", time.monotonic()))  # it changed while it was read: it moves
                continue
            if len(thread.stacks) > SEEN_OFTEN and not thread.advanced:
                effect = effects.of_thread(rt, self.pid, py.tid, frames, thread.stacks)
                if effect is not None:
                    thread.effects.append(effect)


def _gil(rt: Runtime) -> gil_samples.Samples | None:
    try:
        return gil_samples.sample(rt, GIL_SAMPLES, GIL_INTERVAL)
    except GdbextError as e:
        log.passed_over(e)
        return None
