"""One engine that is followed: its own counters, read as often as they are worth their cost."""

from __future__ import annotations

import math
import time
from typing import Any, Callable, Sequence

from .. import log
from ..engines.group import Engine
from ..requests.meter import EngineMeter, Reading
from .model import EngineLook, reason
from .progress import Requests, Standing
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
    """`standing`: of the whole engine, by its schedulers. Of single requests, while it goes on: `scheduled`, of those that its
    schedulers have, whose steps may be empty; `requests`, of the others, by readings of all of its processes.
    `owed`: a scheduler has open requests, None where that is not seen. `verdict`: of the last examination."""

    def __init__(self, engine: Engine, after: float, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.engine, self.name, self.labels = engine, engine.instance, engine.labels()
        self.standing, self.ring, self.verdict = Standing(after), Ring(limit), ""
        self.requests, self.scheduled = Requests(self.standing.patience), Requests(self.standing.patience)
        first = [ranks[0] for ranks in engine.replicas()]
        count = max(1, len(engine.ranks))
        self._core = _Paced(engine.only(first) if first else engine, PART * count, clock, KV_SHARE)
        self._all = _Paced(engine, ALL * count, clock, math.inf)
        self.owed: bool | None = None
        self.tokens = self.steps = self.preempted = self.open = 0
        self.moved_requests, self._failed, self._complained = 0, 0, False
        self._passed = self._passed_inside = 0.0  # since the readings of all processes, and of the schedulers
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
            self.scheduled = before.scheduled
            self._complained = before._complained
        else:
            self.standing.patience = self.requests.patience = self.scheduled.patience = before.standing.patience

    def look(
        self, now: float, at: float, passed: float, ranks: Sequence[Rank]
    ) -> tuple[str, list[tuple[str, Requests]], EngineLook]:
        """One look. `ranks`: its processes, looked at already; `passed`: the seconds that count.
        -> (what the engine's standing says, what those of its requests do, the numbers)"""
        moved, of_requests = any(rank.stepped for rank in ranks), []
        self._passed += passed
        self._passed_inside += passed
        ran = any(rank.ran for rank in ranks)
        if now - self._core.at >= (self._pause(moved, ranks) if ran else SELDOM):
            found = self._core.read(now)
            if self._take(found):
                of_requests.append((self.scheduled.look(self._passed_inside, self._marks), self.scheduled))
                self._passed_inside = 0.0
            moved = moved or found is not None and found.moved
        if now - self._all.at >= (self._in_time(self._all, self.requests, RARELY) if ran else RARELY):
            found = self._all.read(now)
            if found is not None and found.whole:
                self.open = len(found.owed)
                outside = {name: mark for name, mark in found.owed.items() if name not in self._marks}
                of_requests.append((self.requests.look(self._passed, outside), self.requests))
                self._passed = 0.0
        return self.standing.look(passed, None if self.blind else self.owed, moved), of_requests, self._numbers(at)

    def _pause(self, stepped: bool, ranks: Sequence[Rank]) -> float:
        """Seconds from one reading of the schedulers to the next."""
        if not stepped and self.owed is not False:
            return self._core.pause(CLOSER, SOON)
        woken = not stepped and any(rank.ran for rank in ranks if rank.schedules)
        return self._core.pause(WOKEN, SELDOM) if woken else self._in_time(self._core, self.scheduled, SELDOM)

    @staticmethod
    def _in_time(paced: _Paced, requests: Requests, most: float) -> float:
        """Seconds from one reading to the next: what it costs, but twice within the limit, and when a request would have stood so
        long."""
        due = min(requests.patience.limit / 2, requests.left)
        return min(paced.pause(1.0, most), max(paced.pause(CLOSER, most), due))

    def _take(self, found: Reading | None) -> bool:
        """Takes in what the schedulers have. Whether that was seen."""
        if found is None or not found.whole or found.running is None:
            self._failed += 1
            return False
        self._failed, self.owed = 0, bool(found.owed)
        self.tokens += found.tokens
        self.preempted += found.preempted
        grown = [n - self._counts[key] for key, n in found.counted.items() if key in self._counts]
        self.steps += max([0, *grown])
        self._counts = dict(found.counted)
        self.moved_requests = sum(self._marks.get(name, mark) != mark for name, mark in found.owed.items())
        self._marks = found.owed
        return True

    def _numbers(self, at: float) -> EngineLook:
        found, last = EngineLook(self.name, list(self.labels)), self._core.last
        found.tokens, found.steps, found.preemptions = self.tokens, self.steps, self.preempted
        found.owed, found.stood = bool(self.owed), round(self.standing.stood if self.owed else 0.0, 3)
        found.limit, found.verdict = self.standing.patience.limit, self.verdict
        if last is not None:
            found.running, found.waiting = last.running, last.waiting
            stood = last.oldest[1] if last.oldest is not None else 0.0
            found.oldest = round(max(stood, self.requests.oldest, self.scheduled.oldest), 3)
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
