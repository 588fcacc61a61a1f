"""How much an engine does, from its memory: requests, tokens a second, blocks, and the request that has waited longest. It is
read again and again without stopping the engine."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable, NamedTuple, Sequence

from .. import log
from ..access.background import background_thread
from ..access.retry import retry_reading
from ..cpython.runtime import open_runtime
from ..engines import kv_view, shm_rings
from ..engines.group import Engine
from ..engines.sightings import IN_SCHEDULER, RUNNING, STAGES, Look, Sighting
from ..engines.spec import SCHEDULERS
from ..errors import ContradictionError, GdbextError
from .collect import looks_at
from .join import marks

READ = 0.5  # seconds for the blocks of one running scheduler
SHARE = 20  # of the blocks
MOST_AGES = 32


class Aged(NamedTuple):
    """An open request: seconds since it came (None where the engine does not say) and without progress, who has it in which
    state: the process that it has come farthest in."""

    request: str
    age: float | None
    stood: float
    at: str
    state: str


@dataclass
class Reading:
    """One engine at one time.

    * `running`, `waiting`: requests in the schedulers; None where no scheduler was read
    * `tokens_per_second`: given out since the last reading, None at the first
    * `steps`: {pid: steps a second} by the engine's own counters
    * `step_rate`: the highest of `steps`; where there are none, the rate of the fastest request
    * `blocks`, `free`: of its KV cache, None where not read
    * `oldest`: (request, seconds without progress) of the one that has not moved for the longest time
    * `partial`: why it is not complete
    * `counted`: {(pid, what): number}: the processes' own counters, such as steps, and for each ring in shared memory the number
      of messages that its slowest reader has not read
    * `whole`: every process was read; `moved`: since the last reading a scheduler has worked on a request
    * `owed`: {request: its marks} of the open ones for which somebody waits, and which their user has not paused
    * `tokens`, `preempted`: given out, and requests preempted, since the last reading
    * `ages`: the `MOST_AGES` oldest of the open ones; [] where rings are not read either"""

    engine: str
    labels: list[str]
    running: int | None = None
    waiting: int | None = None
    tokens_per_second: float | None = None
    step_rate: float | None = None
    steps: dict[int, float] = field(default_factory=dict)
    blocks: int | None = None
    free: int | None = None
    oldest: tuple[str, float] | None = None
    partial: list[str] = field(default_factory=list)
    counted: dict[tuple[int, str], int] = field(default_factory=dict)
    whole: bool = True
    moved: bool = False
    owed: dict[str, Any] = field(default_factory=dict)
    tokens: int = 0
    preempted: int = 0
    ages: list[Aged] = field(default_factory=list)


class EngineMeter:
    """Reads one engine. `share`: after its blocks are read, they are not read again for so many times as long; `rings`: the rings
    in shared memory too."""

    def __init__(
        self, engine: Engine, clock: Callable[[], float] = time.monotonic, share: float = SHARE, rings: bool = True
    ) -> None:
        self._engine, self._clock, self._share, self._with_rings = engine, clock, share, rings
        self._at: float | None = None
        self._tokens: dict[str, int] = {}  # of each request, at the reading before
        self._counters: dict[tuple[int, str], int] = {}
        self._preempted: dict[str, int] = {}
        self._served: dict[int, list[tuple[object, ...]]] = {}
        self._known: dict[str, tuple[Any, float]] = {}  # request: (its marks, since when)
        self._blocks: tuple[int | None, int | None] = (None, None)
        self._blocks_due = 0.0

    def read(self) -> Reading:
        """A `Reading`; values that cannot be read are missing in it."""
        looks, partial = looks_at(self._engine)
        now = self._clock()
        found = Reading(self._engine.name, self._engine.labels(), partial=[p for p in partial if p != "unstopped"])
        tokens, counters = _tokens(looks), {(look.pid, what): n for look in looks for what, n in look.counters.items()}
        copies = {rank.pid for ranks in self._engine.replicas() for rank in ranks[1:]}
        seen_there = [s for look in looks if look.pid not in copies for s in look.sightings if s.stage in IN_SCHEDULER]
        if seen_there or any("scheduler" in look.parts for look in looks):
            found.running = sum(s.stage == RUNNING for s in seen_there if not s.ended)
            found.waiting = sum(s.stage != RUNNING for s in seen_there if not s.ended)
        if self._at is not None and now > self._at:
            self._rates(found, tokens, counters, now - self._at)
        self._moves(found, looks, counters)
        self._at, self._tokens, self._counters = now, tokens, counters
        found.counted = {**counters, **(self._rings() if self._with_rings else {})}
        seen = marks(looks)
        found.whole = not any(look.notes for look in looks)
        found.owed = {name: seen[name] for name in _owed(looks) if name in seen}
        self._known = {
            name: self._known[name] if name in self._known and self._known[name][0] == mark else (mark, now)
            for name, mark in seen.items()
        }
        if self._known:
            name, (_, since) = min(self._known.items(), key=lambda item: item[1][1])
            found.oldest = name, now - since
        if self._with_rings:
            found.ages = self._ages(looks, found.owed, now)
        if now >= self._blocks_due:
            self._blocks = self._read_blocks(found.partial)
            self._blocks_due = now + self._share * (self._clock() - now)
        found.blocks, found.free = self._blocks
        return found

    def _ages(self, looks: Sequence[Look], owed: dict[str, Any], now: float) -> list[Aged]:
        ages: dict[str, float] = {}
        last: dict[str, tuple[int, str, Sighting]] = {}
        for look in looks:
            for one in look.sightings:
                name = one.request_id
                if name not in owed or one.ended:
                    continue
                if one.age is not None:
                    ages[name] = max(ages.get(name, 0.0), one.age)
                place = STAGES.index(one.stage) if one.stage in STAGES else -1
                if name not in last or place > last[name][0]:
                    last[name] = place, look.label, one
        found = [
            Aged(name, ages.get(name), now - self._known[name][1] if name in self._known else 0.0, label, one.state)
            for name, (_, label, one) in last.items()
        ]
        return sorted(found, key=lambda one: (-(one.age or 0.0), -one.stood))[:MOST_AGES]

    def _rates(self, found: Reading, tokens: dict[str, int], counters: dict[tuple[int, str], int], passed: float) -> None:
        grown = {name: n - self._tokens.get(name, 0) for name, n in tokens.items()}
        found.tokens = sum(n for n in grown.values() if n > 0)
        found.tokens_per_second = found.tokens / passed
        for key, value in counters.items():
            if key in self._counters:
                found.steps[key[0]] = max(found.steps.get(key[0], 0.0), (value - self._counters[key]) / passed)
        fastest = max((n for name, n in grown.items() if name in self._tokens), default=0) / passed
        if fastest > 0:  # a counter that stands while answers grow counts something else
            found.steps = {pid: rate for pid, rate in found.steps.items() if rate > 0}
        found.step_rate = max(found.steps.values(), default=fastest)

    def _moves(self, found: Reading, looks: list[Look], counters: dict[tuple[int, str], int]) -> None:
        """What has moved since the last reading. A process that could not be read keeps what it had."""
        served, preempted = dict(self._served), dict(self._preempted)
        for look in looks:
            inside = [s for s in look.sightings if s.stage in IN_SCHEDULER]
            if look.parts:
                served[look.pid] = sorted((s.request_id, s.stage == RUNNING, s.progress) for s in inside if not s.ended)
            for s in inside:
                count = s.request.preemptions if s.request is not None else None
                if count is not None:
                    found.preempted += max(0, count - preempted.get(s.request_id, count))
                    preempted[s.request_id] = count
        before = self._served
        found.moved = any(before[pid] != now and _got_on(before[pid], now) for pid, now in served.items() if pid in before)
        found.moved = found.moved or any(n > self._counters.get(key, n) for key, n in counters.items())
        here = {s.request_id for look in looks for s in look.sightings}
        self._served, self._preempted = served, {name: n for name, n in preempted.items() if name in here}

    def _rings(self) -> dict[tuple[int, str], int]:
        """The unread messages in the rings that the schedulers hold. Rings that cannot be read are left out."""
        found = {}
        for rank in self._engine.with_role(*SCHEDULERS):
            try:
                target = self._engine.target(rank)
                rings = retry_reading(target, lambda: shm_rings.find(open_runtime(target)), READ)
            except GdbextError as e:
                log.passed_over(e)
                continue
            for ring in rings:
                found[rank.pid, f"unread in ring {ring.held or ring.name}"] = max(ring.unread, default=0)
        return found

    def _read_blocks(self, partial: list[str]) -> tuple[int | None, int | None]:
        blocks = free = None
        for rank, *_ in self._engine.replicas():
            try:
                target = self._engine.target(rank)
                cache = retry_reading(target, lambda: kv_view.View(target, self._engine).cache(), READ)
            except ContradictionError as e:
                log.passed_over(e)  # what it had at the last reading was true then
                return self._blocks
            except GdbextError as e:
                partial.append(f"{rank.label}: blocks not read: {e}")
                continue
            for pool in cache.pools[:1]:
                if pool.num_free is not None or pool.free_ids is not None:
                    blocks = (blocks or 0) + pool.size
                    free = (free or 0) + (pool.num_free if pool.num_free is not None else len(pool.free_ids or ()))
        return blocks, free


def _owed(looks: list[Look]) -> dict[str, None]:
    """The open requests for whose answer somebody waits and which their user has not paused."""
    sightings = [s for look in looks for s in look.sightings]
    not_owed = {s.request_id for s in sightings if s.paused or s.unowned}
    return dict.fromkeys(s.request_id for s in sightings if not s.ended and s.request_id not in not_owed)


def _got_on(before: list[tuple[Any, ...]], now: list[tuple[Any, ...]]) -> bool:
    """Whether a scheduler did something with what it had: a request that has only come is no progress."""
    known = {name: (runs, progress) for name, runs, progress in before}
    left = known.keys() - {name for name, *_ in now}
    return bool(left) or any(known[name] != (runs, progress) for name, runs, progress in now if name in known)


class Beside:
    """`with Beside(engines) as beside:` reads engines in its own thread while the block does something else. Each engine is read
    about once a second, less often where that takes long. `readings`: [(seconds on the monotonic clock, engine, Reading)];
    `notes`: why an engine was not read any further."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.readings: list[tuple[float, Engine, Reading]] = []
        self.notes: list[str] = []
        self._meters = [(engine, EngineMeter(engine)) for engine in engines if engine.spec is not None]
        self._over = threading.Event()

    def __enter__(self) -> Beside:
        if self._meters:
            self._switch = sys.getswitchinterval()
            sys.setswitchinterval(0.0005)  # the other thread looks a hundred times a second
            try:
                self._thread = background_thread(self._run)
            except GdbextError as e:
                self.notes.append(f"no engine's counters were read: {e}")
                self._meters = []
        return self

    def __exit__(self, *_: object) -> None:
        if self._meters:
            self._over.set()
            self._thread.join()
            sys.setswitchinterval(self._switch)

    def _run(self) -> None:
        wait = 0.0
        while not self._over.wait(wait):
            began = time.thread_time()
            for one in list(self._meters):
                try:
                    found = one[1].read()
                    self.readings.append((time.monotonic(), one[0], found))
                except GdbextError as e:
                    self._meters.remove(one)
                    self.notes.append(f"{one[0].name}: its counters end early: {e}")
            first, wait = not wait, max(1.0, SHARE * (time.thread_time() - began))
            if first:  # the first reading finds the objects that later ones only read
                wait = 1.0


def counters(reading: Reading) -> dict[str, float]:
    """The numbers of a reading by name, without those that are not known."""
    known = {
        "requests running": reading.running,
        "requests waiting": reading.waiting,
        "tokens a second": reading.tokens_per_second,
        "steps a second": reading.step_rate,
        "free blocks": reading.free,
        "seconds without progress": reading.oldest[1] if reading.oldest is not None else None,
    }
    return {name: float(value) for name, value in known.items() if value is not None}


def _tokens(looks: list[Look]) -> dict[str, int]:
    """{request: tokens of its answer so far}, by the scheduler."""
    found: dict[str, int] = {}
    for look in looks:
        for sighting in look.sightings:
            if sighting.stage in IN_SCHEDULER:
                count = sighting.request.output_tokens if sighting.request is not None else sighting.tokens
                if count is not None:
                    found[sighting.request_id] = max(found.get(sighting.request_id, 0), count)
    return found
