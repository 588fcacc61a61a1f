"""One process that is followed: a sampler that is opened once, its history, its end."""

from __future__ import annotations

import struct
import time
from typing import Any

from .. import log
from ..access.proc import ProcTarget, process_clock
from ..access.procfs import cpu_of, read_stat, resident_bytes, state_of
from ..cpython import reprs, resolution
from ..engines.processes import ProcessRef
from ..errors import GdbextError
from ..heap.counters import Growth
from ..observe.clocks import clock_of
from ..observe.log_reader import Logs
from ..observe.observer import thread_sample
from ..observe.thread_files import Files
from ..timeline.recording import DROPPED, STATES, Frame, Recording
from ..timeline.sampler import ProcessSampler
from ..timeline.step_counter import STEPS, StepCounter
from .beside import Beside
from .ends import End, Life
from .model import RankLook, reason
from .progress import Standing
from .ring import Ring

TORN = (GdbextError, OSError, ValueError, LookupError, ArithmeticError, RecursionError, struct.error)  # of memory that moves
RETRY = 5.0  # seconds after which a process that could not be read is tried again
STARTS = 30.0  # seconds in which a process may be starting
GONE = ("", "Z", "X")
MAX_THREADS = 256  # of a process, whose stacks are kept
MAX_NODES = 40_000  # of the tree of stacks, before it is begun anew: about 12 MiB


class Shared:
    """What all processes that are followed have together: open files of /proc, and the tree of their present stacks."""

    def __init__(self) -> None:
        self.files, self.rec = Files(), Recording(1.0, time.time())
        self.logs = Logs()
        self._texts: dict[Frame, str] = {}

    @property
    def full(self) -> bool:
        """Whether the tree is to be cleared."""
        return self.rec.tree.full or len(self.rec.tree.parents) > MAX_NODES

    def clear(self) -> None:
        """Forgets the stacks; each sampler must `forget` too."""
        self.rec.tree.clear()
        self._texts.clear()

    def frames(self, node: int) -> list[str]:
        """A stack as text, outermost first."""
        return [self._text(frame) for frame in self.rec.tree.stack(node)] if node != DROPPED else []

    def _text(self, frame: Frame) -> str:
        found = self._texts.get(frame)
        if found is None:
            found = self._texts[frame] = f"{frame.function} ({frame.where})"
        return found


class _Sampler(ProcessSampler):
    """Of single looks: nothing is kept that a later look could complete."""

    keeps_aside = False

    def _count(self, now: float, at: float) -> None:
        """The watch counts itself."""


class Rank:
    """`ref`: what was asked for; `standing`: of its main thread; `stopped`: of the process. `dying`: when it was first
    seen on its way out, 0.0 before; `end`: how it ended, None before."""

    def __init__(self, ref: ProcessRef, shared: Shared, after: float, limit: int, counter: str | None = None) -> None:
        assert ref.pid is not None
        self.ref, self.pid, self._shared, self._counter = ref, ref.pid, shared, counter
        self.label, self.role = ref.name, ref.rank.role if ref.rank is not None else ""
        self.ring, self.life, self.growth = Ring(limit), Life(self.pid), Growth(self.pid)
        self.beside = Beside(self.pid, shared.logs)
        self.standing, self.stopped = Standing(after), Standing(after)
        self.end: End | None = None
        self.sampler: ProcessSampler | None = None
        self.unread, self._tried, self.came, self.complained = "", -RETRY, time.monotonic(), False
        self.stepped = self.ran = self.moved = False
        self.steps: int | None = None
        self.state, self.held, self.dying = "", 0.0, 0.0
        self._clock: int | None = None
        self._started = start_of(self.pid)
        self._cpu, self._queued, self._at = cpu_of(self.pid), self._main_queued(), time.monotonic()
        self._mark: Any = None
        self._node = DROPPED  # of its main thread
        self._places: dict[int, tuple[int, int, int]] = {}  # {tid: what the ring has of it}

    @property
    def parent(self) -> int:
        """The pid of the process of its engine that has started it, 0 where that is not known."""
        return self.ref.rank.ppid if self.ref.rank is not None else 0

    @property
    def schedules(self) -> bool:
        """Whether it may have the engine's scheduler, whose steps are counted."""
        return self.role in ("engine-core", "scheduler")

    @property
    def over(self) -> bool:
        """It has ended, whoever has its pid now."""
        return has_ended(self.pid, self._started)

    def complaint(self, now: float) -> str:
        """Why it is not read, once, where that lasts: a process that is just starting has no interpreter yet."""
        if not self.unread or self.complained or self.dying or now - self.came < STARTS:
            return ""
        self.complained = True
        return self.unread

    def look(self, now: float, at: float, deep: bool) -> RankLook | None:
        """One look. `now`: on the monotonic clock, `at`: seconds since the epoch; `deep`: its main thread's variables count too.
        None where it has ended: `end` says how."""
        self.state = state_of(self.pid) if start_of(self.pid) == self._started else ""
        if not self.dying and (self.state in GONE or self._exits()):
            self.dying = time.monotonic()
        if self.state in GONE:
            self.end = self.life.end()
            return None
        self.life.look(now)
        clock, before = process_clock(self.pid), self._clock
        self._clock, self.ran = clock, clock is None or clock != before
        try:
            self._sample(now, at)
            self._progress(deep)
            self.beside.look(now, at, self.ring, self.sampler.rt if self.sampler is not None and self.ran else None)
        except Exception as e:  # memory that moves is foreseen; whatever else it is, the watch goes on
            log.passed_over(e)
            self.unread = self.unread if isinstance(e, TORN) else reason(e)
        found = RankLook(self.label, self.pid, self.role, state=self.state, stood=round(self.standing.stood, 3), steps=self.steps)
        passed, cpu, queued = max(now - self._at, 1e-6), cpu_of(self.pid), self._main_queued()
        self.held = max(0.0, queued - self._queued)
        found.cpu, found.queued = round(max(0.0, cpu - self._cpu) / passed, 3), round(self.held / passed, 3)
        self._at, self._cpu, self._queued, found.rss = now, cpu, queued, resident_bytes(self.pid)
        with log.passing_over(GdbextError, ValueError):
            self.growth.look(now)
        found.grows = self.growth.grows
        if self.sampler is not None:
            threads = self.sampler.present()
            main = self._shared.frames(threads[0].node) if threads else []
            found.place = main[-1] if main else ""
            holder = self.sampler.holder()
            found.gil = next((t.track.name or str(t.track.tid) for t in threads if t.track.tid == holder), "") if holder else ""
        self.ring.row(at, found.cpu, found.queued, found.rss, found.steps, found.gil, found.growing)
        found.box = self.ring.bytes
        return found

    def _exits(self) -> bool:
        """Whether its main thread is on its way out: with many threads and little CPU a process takes seconds to end."""
        try:
            stat = read_stat(self.pid, self.pid)
        except (GdbextError, OSError) as e:
            log.passed_over(e)
            return True
        return stat.exits or stat.state in ("Z", "X")

    def _main_queued(self) -> float:
        clock = clock_of(self.pid, self.pid, whole=False)
        return clock.queued if clock is not None else 0.0

    def _sample(self, now: float, at: float) -> None:
        self.stepped = False
        sampler = self.sampler
        if sampler is not None and not sampler.alive:
            self._close_sampler()  # it runs another program
            sampler = None
        if sampler is None:
            if now - self._tried < RETRY:
                return
            self._tried = now
            sampler = self._open()
            if sampler is None:
                return
        sampler.restart()  # one look at a time: what is kept is in the ring
        with log.passing_over(GdbextError):
            sampler.look(now)
        self.stepped = STEPS in sampler.track.counters
        if not sampler.alive:
            return
        threads = sampler.present()
        for thread in threads[:MAX_THREADS]:
            tid, place = thread.track.tid, (id(thread), thread.node, thread.state)
            if thread.node != DROPPED and self._places.get(tid) != place:
                self._places[tid] = place
                self.ring.thread(at, tid, thread.track.name, STATES[thread.state], self._shared.frames(thread.node))
        gone = set(self.ring.alive) - {thread.track.tid for thread in threads}
        if gone:
            self.ring.gone(at, sorted(gone))
            self._places = {tid: place for tid, place in self._places.items() if tid not in gone}

    def _open(self) -> ProcessSampler | None:
        target = ProcTarget(self.pid, self.label)
        try:
            sampler = _Sampler(target, self.label, self._shared.rec, self._shared.files)
            if self.schedules:
                sampler.steps = StepCounter(sampler.rt, sampler.bulk)
        except (GdbextError, OSError) as e:
            target.close()
            self.unread = str(e)
            return None
        self.sampler, self.unread = sampler, ""
        return sampler

    def _progress(self, deep: bool) -> None:
        """Sets `moved`: whether its main thread is elsewhere than at the last look, by its variables where its lines are the
        same."""
        sampler, before = self.sampler, self._mark
        self.moved = False
        if sampler is None or not sampler.alive:
            return
        threads = sampler.present()
        node = threads[0].node if threads else DROPPED
        if not self._counter and node != self._node and DROPPED not in (node, self._node):
            self._mark, self.moved = None, True
        elif deep or self._counter:
            self._mark = self._deep(sampler)
            self.moved = before is not None and self._mark != before
        self._node = node

    def _deep(self, sampler: ProcessSampler) -> Any:
        """What changes when the main thread gets on: the counter that was named, else its frames with their variables."""
        if not self.ran and not self._counter and self._mark is not None:
            return self._mark
        rt = sampler.rt
        rt.target.invalidate()
        try:
            main = rt.threads()[0]
            if not self._counter:
                return thread_sample(rt, main).stack
            value = resolution.resolve(rt, self._counter, rt.frames(main), outward=True).value
            return repr(value) if not hasattr(value, "address") else reprs.Repr(reprs.SHORT)(value)
        except (GdbextError, IndexError) as e:
            log.passed_over(e)
            return ("torn", time.monotonic())  # it changed while it was read

    def forget_stacks(self) -> None:
        """After the tree was cleared."""
        if self.sampler is not None:
            self.sampler.forget()
        self._node, self._places = DROPPED, {}

    def _close_sampler(self) -> None:
        sampler, self.sampler = self.sampler, None
        if sampler is not None:
            if sampler.track in self._shared.rec.processes:
                self._shared.rec.processes.remove(sampler.track)
            sampler.finish(0.0)

    def close(self) -> None:
        """It is followed no longer; its history stays."""
        self._close_sampler()
        self.beside.close()
        self.life.close()


def start_of(pid: int) -> int | None:
    """When a process was started, in the kernel's ticks: another one may get its pid. None where it is gone."""
    try:
        return read_stat(pid).started
    except (GdbextError, OSError) as e:
        log.passed_over(e)
        return None


def has_ended(pid: int, started: int | None) -> bool:
    """Whether the process that had this pid and was started then has ended."""
    return state_of(pid) in GONE or start_of(pid) != started
