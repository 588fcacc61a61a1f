"""The block tables of this machine for a comparison on another one (kvcache/over_nodes.py): of the scheduler that was asked for,
and of the workers here, several times over one time."""

from __future__ import annotations

import time
from typing import Any, Callable, Iterable

from .. import log
from ..access.base import Target
from ..access.retry import retry_reading
from ..cpython.runtime import Runtime, open_runtime
from ..errors import GdbextError
from ..kvcache import exchange
from ..observe.loop import rounds
from ..observe.system_calls import in_network
from ..torch import collectives
from . import kv_view
from .group import Engine
from .processes import ProcessRef
from .rank import Rank
from .registry import SPECS

SCHEMA = "llm-kv-tables/2"
READINGS, INTERVAL = 6, 0.4  # of each process
TEXT = 500  # characters of a reason


class Member:
    """One process whose tables are read. `schedules`: it has the scheduler that was asked for; `works`: its own tables are wanted
    too, since its scheduler may be on another machine."""

    def __init__(self, rank: Rank, target: Callable[[ProcessRef], Target], schedules: bool, works: bool) -> None:
        self.rank, self._open, self._schedules, self._works = rank, target, schedules, works
        self.caches: list[Any] = []
        self.workers: list[Any] = []
        self.began: float | None = None
        self.ended = 0.0
        self.why = ""
        self.about: dict[str, int | None] = {"rank": None, "size": None, "dp": None, "dp_size": 0}
        self.keys: list[str] = []

    def _target(self) -> Target:
        return self._open(ProcessRef.of_rank(self.rank))

    def meet(self) -> None:
        """Finds out which job it is of."""
        try:
            target = self._target()
            retry_reading(target, lambda: self._meet(open_runtime(target)))
        except GdbextError as e:
            self.why = str(e)

    def _meet(self, rt: Runtime) -> None:
        spec = SPECS[self.rank.engine]
        memory = spec.ranks_in_memory(rt, self.rank)
        ranks, sizes = (memory.ranks, memory.sizes) if memory is not None else (self.rank.ranks, self.rank.sizes)
        job_of = getattr(spec.kv, "job_of", None)
        keys, workers = job_of(rt) if job_of is not None else ([], None)
        size = workers if self.rank.role == "engine-core" else sizes.get("world")
        self.about = {"rank": ranks.get("world"), "size": size, "dp": ranks.get("dp")}
        self.about["dp_size"] = sizes.get("dp", 0 if "dp" in ranks else 1)
        self.keys = [in_network(one, self.rank.pid) for one in (collectives.store_of(rt), *keys) if one]

    def read(self, since: float) -> None:
        """Reads it once more. `since`: when this machine was told to begin."""
        before, states = time.monotonic() - since, []
        try:
            if self._schedules:
                states.append((self.caches, exchange.cache_data(kv_view.View(self._target()).cache(as_read=True), self._works)))
            if self._works:
                view = kv_view.View(self._target())
                found = view.workers()
                if not found:
                    raise GdbextError("; ".join(why for _, why in view.missed))
                states.append((self.workers, exchange.worker_data(found[0])))
        except GdbextError as e:
            log.passed_over(e)
            self.why = str(e)
            return
        for kept, state in states:
            if state not in kept:
                kept.append(state)
        if states:
            self.began = time.monotonic() - since if self.began is None else self.began
            self.ended = before

    def data(self) -> dict[str, Any]:
        """As JSON."""
        most = exchange.ids_in([*self.caches, *self.workers])
        if most > exchange.MOST_IDS:
            self.caches, self.workers = [], []
            self.why = f"{most} blocks are more than the {exchange.MOST_IDS} that are sent"
        return {
            "label": self.rank.label,
            "pid": self.rank.pid,
            "engine": self.rank.engine,
            "schedules": self._schedules,
            "began": self.began,
            "ended": self.ended if self.began is not None else None,
            "caches": self.caches,
            "workers": self.workers,
            "keys": self.keys,
            "why": "" if self.began is not None and (self.caches or self.workers) else self.why[:TEXT],
            **self.about,
        }


def members_of(engines: Iterable[Engine], scheduler: Rank | None, open_target: Callable[[ProcessRef], Target]) -> list[Member]:
    """The processes of engines whose tables are sent. A worker whose engine core is here is compared here."""
    found = [Member(scheduler, open_target, True, scheduler.role == "scheduler")] if scheduler is not None else []
    for engine in engines:
        spec = engine.spec
        if spec is None or not spec.kv_module:
            continue
        for rank in engine.with_role("worker", "scheduler"):
            if scheduler is None or rank.pid != scheduler.pid:
                here = scheduler is not None and rank.role == "worker" and rank in engine.shards_for(scheduler)
                found.append(Member(rank, open_target, False, not here))
    return found


def meet(members: list[Member]) -> None:
    """Finds out which job each is of. An engine core is of the one that its workers are of."""
    for one in members:
        one.meet()
    for core in (one for one in members if one.rank.role == "engine-core"):
        for one in members:
            if one.rank.ppid == core.rank.pid:
                core.keys += [key for key in one.keys if key not in core.keys]


def read(members: list[Member], since: float) -> None:
    """Reads all of them several times. `since`: when this machine was told to begin, on the monotonic clock."""
    for _ in rounds(INTERVAL, count=READINGS):
        for one in members:
            one.read(since)


def is_alone(scheduler: Rank, engines: Iterable[Engine], open_target: Callable[[ProcessRef], Target]) -> bool:
    """Whether all workers of a scheduler are on other machines."""
    own = next((engine for engine in engines if scheduler in engine.ranks), None)
    if own is None or own.shards_for(scheduler) != [scheduler] or scheduler.role == "scheduler":
        return False
    return not kv_view.View(open_target(ProcessRef.of_rank(scheduler))).workers()


def facts_data(members: list[Member], host: str, version: str) -> dict[str, Any]:
    """As JSON, for another machine."""
    return {"schema": SCHEMA, "version": version, "host": host, "members": [one.data() for one in members]}
