"""One engine that is followed: its own counters, read as often as they are worth their cost."""

from __future__ import annotations

import math
import time
from typing import Any, Callable, Sequence

from .. import log
from ..engines.group import Engine
from ..requests.meter import EngineMeter, Reading
from .model import EngineLook, reason
from .progress import STALLED, Requests, Standing
from .rank import STARTS, Rank
from .ring import Ring

PART = 0.0008  # of a CPU, for each process: what readings of the schedulers' requests may take
ALL = 0.0004  # the same, of readings of all processes
CLOSER, WOKEN = 10.0, 2.0  # times as much while nothing moves; where an idle scheduler has run
SELDOM, SOON = 15.0, 2.0  # seconds between two readings of the schedulers at most; the same while nothing moves
RARELY = 60.0  # of all processes
KV_SHARE = 2000.0  # as `meter.SHARE`
UNKNOWN = 4  # readings in a row that show no scheduler, after which the main threads are judged instead


class _Paced:
    """A meter that is read as often as its cost allows. `part`: of a CPU."""

    def __init__(self, engine: Engine, part: float, clock: Callable[[], float], share: float) -> None:
        self.meter: Any = EngineMeter(engine, clock, share, rings=False)
        self.part, self.cost, self.at = part, 0.0, 0.0
        self.last: Reading | None = None
        self.why = ""  # the last reading failed

    def pause(self, times: float, most: float) -> float:
        """Seconds from the last reading to the next. `times`: as much as usual may be spent; `most`: seconds."""
        return min(self.cost / (self.part * times), most) if self.last is not None else 0.0

    def read(self, now: float) -> Reading | None:
        """A reading; None where there is none."""
        began, self.at = time.thread_time(), now
        try:
            found: Reading = self.meter.read()
        except Exception as e:  # memory that moves, or that nobody foresaw: the next one may go well
            log.passed_over(e)
            self.why = reason(e)
            return None
        finally:
            self.cost = time.thread_time() - began
        self.last, self.why = found, ""
        return found


class EngineWatch:
    """`standing`: of the whole engine, by its schedulers; `requests`: of single ones, while it goes on, by all of its processes.
    `owed`: a scheduler has open requests, None where that is not seen. `verdict`: of the last examination."""

    def __init__(self, engine: Engine, after: float, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.engine, self.name, self.labels = engine, engine.instance, engine.labels()
        self.standing, self.ring, self.verdict = Standing(after), Ring(limit), ""
        self.requests = Requests(self.standing.patience)
        first = [ranks[0] for ranks in engine.replicas()]
        count = max(1, len(engine.ranks))
        self._core = _Paced(engine.only(first) if first else engine, PART * count, clock, KV_SHARE)
        self._all = _Paced(engine, ALL * count, clock, math.inf)
        self.owed: bool | None = None
        self.tokens = self.steps = self.preempted = self.open = 0
        self.moved_requests, self._passed, self._failed, self._complained = 0, 0.0, 0, False
        self._blind_at = 0.0
        shards = [engine.shards_for(rank) for rank in first] or [engine.ranks]
        self._replicas = [{rank.pid for rank in ranks} for ranks in shards]
        self._marks: dict[str, Any] = {}
        self._counts: dict[tuple[int, str], int] = {}

    @property
    def blind(self) -> bool:
        """Whether its requests cannot be seen, so that its main threads are judged as any program's."""
        return self._failed >= UNKNOWN

    @property
    def inside(self) -> int:
        """How many open requests its schedulers have."""
        return len(self._marks)

    def complaint(self, now: float) -> str:
        """Why its requests are not seen, once, where that lasts: an engine that is just starting has none yet."""
        self._blind_at = self._blind_at or now if self.blind else 0.0
        if not self._core.why or self._complained or not self.blind or now - self._blind_at < STARTS:
            return ""
        self._complained = True
        return self._core.why

    def take_over(self, before: EngineWatch, same: bool) -> None:
        """What is known of the engine of this name. `same`: some of its processes are; else it was started anew, and what stood
        stands no longer."""
        self.ring, self.tokens, self.steps, self.preempted = before.ring, before.tokens, before.steps, before.preempted
        if same:
            self.standing, self.requests, self.verdict = before.standing, before.requests, before.verdict
            self._complained = before._complained
        else:
            self.standing.patience = self.requests.patience = before.standing.patience

    def look(self, now: float, at: float, passed: float, ranks: Sequence[Rank]) -> tuple[str, str, EngineLook]:
        """One look. `ranks`: its processes, looked at already; `passed`: the seconds that count.
        -> (what the engine's standing says, what its requests' does, the numbers)"""
        moved, of_requests = any(rank.stepped for rank in ranks), ""
        self._passed += passed
        ran = any(rank.ran for rank in ranks)
        if now - self._core.at >= (self._pause(moved, ranks) if ran else SELDOM):
            found = self._core.read(now)
            self._take(found)
            moved = moved or found is not None and found.moved
        if now - self._all.at >= (self._rarely() if ran else RARELY):
            found = self._all.read(now)
            if found is not None and found.whole:
                self.open = len(found.owed)
                of_requests = self.requests.look(self._passed, found.owed)
                self._passed = 0.0
        said = self.standing.look(passed, None if self.blind else self.owed, moved)
        return said, "" if said == STALLED else of_requests, self._numbers(at)

    def _pause(self, stepped: bool, ranks: Sequence[Rank]) -> float:
        """Seconds from one reading of the schedulers to the next."""
        if not stepped and self.owed is not False:
            return self._core.pause(CLOSER, SOON)
        woken = not stepped and any(rank.ran for rank in ranks if rank.schedules)
        return self._core.pause(WOKEN if woken else 1.0, SELDOM)

    def _rarely(self) -> float:
        """Seconds from one reading of all processes to the next: what it costs, but twice within the limit, and when a request
        would have stood for as long as that."""
        limit = self.requests.patience.limit
        floor = self._all.pause(CLOSER, RARELY)
        return min(self._all.pause(1.0, RARELY), max(floor, min(limit / 2, self.requests.left)))

    def _take(self, found: Reading | None) -> None:
        """Takes in what the schedulers have."""
        if found is None or not found.whole or found.running is None:
            self._failed += 1
            return
        self._failed, self.owed = 0, bool(found.owed)
        self.tokens += found.tokens
        self.preempted += found.preempted
        grown = [n - self._counts[key] for key, n in found.counted.items() if key in self._counts]
        self.steps += max([0, *grown])
        self._counts = dict(found.counted)
        self.moved_requests = sum(self._marks.get(name, mark) != mark for name, mark in found.owed.items())
        self._marks = found.owed

    def _numbers(self, at: float) -> EngineLook:
        found, last = EngineLook(self.name, list(self.labels)), self._core.last
        found.tokens, found.steps, found.preemptions = self.tokens, self.steps, self.preempted
        found.owed, found.stood = bool(self.owed), round(self.standing.stood if self.owed else 0.0, 3)
        found.limit, found.verdict = self.standing.patience.limit, self.verdict
        if last is not None:
            found.running, found.waiting = last.running, last.waiting
            found.oldest = round(max(last.oldest[1] if last.oldest is not None else 0.0, self.requests.oldest), 3)
            if last.blocks and last.free is not None:
                found.kv_use = round(1.0 - last.free / last.blocks, 4)
        self.ring.row(
            at, found.running, found.waiting, found.tokens, found.steps, found.kv_use, found.preemptions,
            len(self._marks), self.moved_requests, found.stood,
        )  # fmt: skip
        return found

    def steps_of(self, pid: int) -> int | None:
        """The count of a process's own steps at the last reading."""
        return next((n for (of, _), n in self._counts.items() if of == pid), None)

    def lag(self, ranks: Sequence[Rank]) -> dict[int, int]:
        """{pid: how many steps it is behind the first} of ranks that count the same steps: those of one replica."""
        found = {}
        for pids in self._replicas:
            known = {rank.pid: rank.steps for rank in ranks if rank.pid in pids and rank.steps is not None}
            most = max(known.values(), default=0)
            found.update({pid: most - steps for pid, steps in known.items()} if len(known) > 1 else {})
        return found
