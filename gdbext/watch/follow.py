"""The processes that are followed: those that a WHAT means now, as they come and go."""

from __future__ import annotations

import collections
import select
import time
from typing import Callable, NamedTuple, Sequence

from .. import log
from ..access.procfs import state_of
from ..engines.group import engines_of
from ..engines.processes import ProcessRef, ranks_of
from ..engines.targets import Targets
from . import model
from .ends import End
from .engine import EngineWatch
from .rank import GONE, Rank, Shared

SOONEST, SELDOM = 5.0, 60.0  # seconds between two searches of the machine
PART = 0.001  # of a CPU, that searches may take
AFTERMATH = 30.0  # seconds after a death in which the others of the engine end because of it
GRACE = 3.0  # seconds in which the rest of an engine ends too, where nothing is wrong
SETTLE = 0.3  # seconds in which those that end because of a first death are waited for, to see the order
TICK = 1e-6  # seconds between two ends that are seen at once
KEPT_DEAD = 16  # histories of processes that have ended

Resolve = Callable[[], Sequence[ProcessRef]]
Tell = Callable[..., None]  # (kind, data as keywords)


class Dead(NamedTuple):
    """A process that has ended: `at`, seconds since the epoch; `first`: it was seen to be the first of its engine; `seen`: when
    that was seen, by the monotonic clock."""

    rank: Rank
    end: End
    at: float
    first: bool
    engine: str
    seen: float = 0.0


class Followed:
    """`resolve()` says which processes are meant now; None where these can only end (pids). `after`, `limit`, `counter`: as for
    `Rank`. `tell(kind, data)`: an event."""

    def __init__(
        self, found: Sequence[ProcessRef], resolve: Resolve | None, tell: Tell, after: float, limit: int, counter: str | None
    ) -> None:
        self.ranks: dict[int, Rank] = {}
        self.engines: list[EngineWatch] = []
        self.dead: collections.deque[Dead] = collections.deque(maxlen=KEPT_DEAD)
        self.shared, self.targets = Shared(), Targets()
        self._resolve, self._tell, self._how = resolve, tell, (after, limit, counter)
        self._due = time.monotonic() + SOONEST
        self._missed: set[int] = set()  # by the last search
        self._failed = ""  # why that failed
        self._unmade = False  # an engine could not be made: the next search tries again
        self._unseen: collections.deque[tuple[str, str]] = collections.deque(maxlen=64)  # engine, why its requests are not seen
        self._left: collections.deque[tuple[str, str, int]] = collections.deque(maxlen=64)  # engine, label, pid of what has ended
        self._ends = select.epoll()  # of processes: the kernel keeps their order
        self.take(found, True)

    @property
    def over(self) -> bool:
        """Nothing is left, and nothing can come."""
        return self._resolve is None and not self.ranks

    def refs(self) -> list[ProcessRef]:
        """What is followed now."""
        return [rank.ref for rank in self.ranks.values()]

    def wait(self, seconds: float) -> None:
        """Waits so long, or until shortly after a death."""
        end = time.monotonic() + seconds
        while self.note_ends(max(0.0, end - time.monotonic())):
            end = min(end, time.monotonic() + SETTLE)

    def note_ends(self, seconds: float = 0.0) -> bool:
        """Sets `dying` of those that have ended since it was asked last, in their order, also where nobody looked meanwhile. It
        waits so long for one. Whether there was one."""
        ended, now = self._ends.poll(seconds), time.monotonic()
        by_file = {rank.life.file: rank for rank in self.ranks.values() if ended}
        for number, (file, _) in enumerate(ended):
            rank = by_file.get(file)
            if rank is not None:
                rank.dying = rank.dying or now + number * TICK
        return bool(ended)

    def search(self, now: float) -> None:
        """Asks anew which processes are meant, where that is due."""
        if self._resolve is None or now < self._due:
            return
        began = time.thread_time()
        try:
            found = list(self._resolve())
            known = {one.pid for one in found}
            missing = {pid for pid in self.ranks if pid not in known}
            self.take([*found, *(self.ranks[pid].ref for pid in missing - self._missed)])  # at the second time it is believed
            self._missed, self._failed = missing, ""
        except Exception as e:  # whatever it is: what is followed stays
            log.passed_over(e)
            if model.reason(e) != self._failed:
                self._tell(model.LOST, label="", pid=None, why=f"what is meant cannot be asked: {model.reason(e)}")
            self._failed = model.reason(e)
        cost = time.thread_time() - began
        self._due = now + (min(max(cost / PART, SOONEST), SELDOM) if self.ranks else 2 * SOONEST)

    def take(self, found: Sequence[ProcessRef], first: bool = False) -> None:
        """`found` are the processes that are meant from now on. `first`: the watch begins with them."""
        here = {one.pid: one for one in found if one.pid is not None}
        for rank in [rank for pid, rank in self.ranks.items() if pid not in here and not rank.over]:  # else its look says how
            pid = rank.pid
            del self.ranks[pid]
            self._tell(model.LEFT, label=rank.label, pid=pid, engine=engine_of(rank.ref), why="is meant no longer", signal="")
            rank.close()
        changed = False
        for pid, one in here.items():
            known = self.ranks.get(pid)
            if known.over if known is not None else not first and state_of(pid) in GONE:
                continue
            if known is not None:
                changed = changed or (known.ref.rank is None) != (one.rank is None) or known.label != one.name
                known.ref, known.label = one, one.name
                known.role = one.rank.role if one.rank is not None else ""
                continue
            self.ranks[pid], changed = Rank(one, self.shared, *self._how), True
            if self.ranks[pid].life.file >= 0:
                self._ends.register(self.ranks[pid].life.file, select.EPOLLIN | select.EPOLLONESHOT)
            before = next((p for e, label, p in reversed(self._left) if (e, label) == (engine_of(one), one.name)), None)
            self._tell(model.CAME, label=one.name, pid=pid, engine=engine_of(one), instead_of=before, at_first=first)
        if changed or self._unmade or {p for e in self.engines for p in pids_of(e)} - self.ranks.keys():
            self._regroup()

    def _regroup(self) -> None:
        """Makes the engines of the processes that there are; what is known of an engine stays."""
        before = self.engines
        after, limit, _ = self._how
        self.engines, self._unmade = [], False
        for engine in engines_of(ranks_of(self.refs()), self.targets.of):
            if engine.spec is None:
                continue
            pids = {rank.pid for rank in engine.ranks}
            same = next((e for e in before if pids_of(e) & pids), None)  # names change with the engines beside it
            same = same or next((e for e in before if e.name == engine.instance), None)
            if same is not None and (pids_of(same), same.name, same.labels) == (pids, engine.instance, engine.labels()):
                self.engines.append(same)
                continue
            try:
                made = EngineWatch(engine, after, limit)
            except Exception as e:  # of processes that are just ending: the others are watched all the same
                log.passed_over(e)
                self._unmade = True
                if (engine.instance, model.reason(e)) not in self._unseen:
                    self._unseen.append((engine.instance, model.reason(e)))
                    self._tell(model.LOST, label=engine.instance, pid=None, why=f"its requests are not seen: {model.reason(e)}")
                continue
            if same is not None:
                made.take_over(same, bool(pids_of(same) & pids))
            self.engines.append(made)

    def ended(self, rank: Rank, at: float) -> Dead:
        """A process that has ended is followed no longer; its history is kept a while."""
        engine = engine_of(rank.ref)
        now = time.monotonic()  # no clock that can be set
        others = [one.rank for one in self.dead if one.engine == engine and now - one.seen < AFTERMATH]
        others = [one for one in others if one.dying >= rank.came]  # not of the engine in whose place this one came
        others += [one for one in self.ranks.values() if engine_of(one.ref) == engine and one.dying and one is not rank]
        first = not engine or all(one.dying > rank.dying for one in others)
        found = Dead(rank, rank.end or End(), at, first, engine, now)
        self.dead.append(found)
        self.ranks.pop(rank.pid, None)
        self._left.append((engine, rank.label, rank.pid))
        rank.beside.read_log(at, rank.ring)  # what it wrote last tells most
        rank.close()
        self._regroup()
        self.targets.rest()
        self._due = min(self._due, time.monotonic() + SOONEST)
        return found

    def engine_with(self, pid: int) -> EngineWatch | None:
        """The engine that a process belongs to."""
        return next((engine for engine in self.engines if pid in pids_of(engine)), None)

    def of_engine(self, engine: EngineWatch) -> list[Rank]:
        """Its processes that are followed."""
        return [self.ranks[pid] for pid in pids_of(engine) if pid in self.ranks]

    def bound_stacks(self) -> None:
        """Begins the tree of stacks anew where it has become large."""
        if self.shared.full:
            self.shared.clear()
            for rank in self.ranks.values():
                rank.forget_stacks()

    def close(self) -> None:
        """Ends it all."""
        for rank in self.ranks.values():
            rank.close()
        self._ends.close()
        self.shared.logs.close()


def engine_of(ref: ProcessRef) -> str:
    """The name of the instance that a process belongs to, "" of no engine's."""
    rank = ref.rank
    if rank is None:
        return ""
    return rank.instance.name if rank.instance is not None else rank.engine


def serves_alone(ref: ProcessRef) -> bool:
    """Whether it belongs to an instance that no other one has a part in."""
    where = ref.rank.instance if ref.rank is not None else None
    return where is not None and not where.role and where.dp_rank is None and where.spread is None


def pids_of(engine: EngineWatch) -> set[int]:
    """The pids of its processes."""
    return {rank.pid for rank in engine.engine.ranks}
