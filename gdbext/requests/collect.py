"""The processes that have each request of an engine: looks at all its processes, brought together.

There are two looks, a second or so apart, without stopping anything. There is one look where a process is stopped or is a core.
"""

from __future__ import annotations

import time
from typing import Callable, Sequence

from .. import log
from ..access.base import Target
from ..access.ptrace import stopped_by
from ..access.retry import agreeing, retry_reading
from ..access.snapshot import apart
from ..cpython.runtime import Runtime, open_runtime
from ..engines import absences, exchanges, registry
from ..engines.batches import uncollected
from ..engines.listeners import who_listens
from ..engines.objects import at_once
from ..engines.sightings import IN_SCHEDULER, QUEUE, RUNNING, Look, Sighting
from ..engines.spec import EngineSpec
from ..errors import ContradictionError, GdbextError, NotFoundError
from . import instances
from . import join as joining
from .instances import Side
from .model import BEHIND, KEPT, LOST, NEVER_FITS, PARKED, STUCK, ZOMBIE, Counter, Tracked, meant

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..engines.group import Engine
    from ..engines.rank import Rank

BETWEEN = 1.0  # seconds between two samples
LONGER = 3.0  # times as long, for a step that is only slow
READ = 3.0  # seconds for one process: what cannot be read by then is reported
OF_ONE = (NEVER_FITS, BEHIND, PARKED, KEPT)  # verdicts that rest on the scheduler's state alone
SCHEDULES = ("engine-core", "scheduler")  # roles that have a scheduler; one look at running frames misses it now and then


class Custody:
    """The requests of one running engine.

    * `requests`: `[Tracked]` in the order of the schedulers' queues
    * `progress`: the counters of its processes, at both looks
    * `looks`: the last look at each process
    * `partial`: why that is not everything
    * `name`: of the instance
    * `earlier`: the first looks
    * `of`: the engine, None for the knowledge of one process alone
    """

    def __init__(
        self, engine: str, looks: list[Look], requests: list[Tracked], progress: list[Counter], partial: list[str]
    ) -> None:
        self.engine, self.looks, self.requests, self.progress, self.partial = engine, looks, requests, progress, partial
        self.name, self.earlier = engine, looks[:0]
        self.of: Engine | None = None

    @property
    def side(self) -> Side:
        """This engine's side, with which the other instances' requests are compared."""
        return Side(self.name, self.looks, self.requests, self.earlier)

    @property
    def stuck(self) -> list[Tracked]:
        """The requests that do not move and are not served next."""
        return [r for r in self.requests if r.verdict in STUCK]


def collect(engine: Engine, between: float = BETWEEN, sleep: Callable[[float], None] = time.sleep) -> Custody:
    """The `Custody` of an engine. `between`: seconds between two samples, 0 for one look only."""
    return collect_all([engine], between, sleep)[0]


def collect_all(
    engines: Sequence[Engine],
    between: float = BETWEEN,
    sleep: Callable[[float], None] = time.sleep,
    wanted: str = "",
    alone: bool = False,
) -> list[Custody]:
    """One `Custody` for each of several engines. All first looks come before any second one. So a request that one engine lacked
    at its first look, and for which another waits at its last, was missing all the time.

    `wanted`: the id of the one request that is asked about. Engines that do not have it at the first look are not read again and
    get no `Custody`. `alone`: other machines are asked too, so something that the instances here lack may be there."""
    firsts = [_First(engine) for engine in engines]
    if wanted and len(firsts) > 1:
        firsts = _who_have(wanted, firsts)
    two = [bool(between) and _runs(one.engine) for one in firsts]
    if any(two):
        sleep(between)
    found = []
    for one, again in zip(firsts, two):
        engine, first, partial = one.engine, one.looks, one.partial
        if again:
            last, requests, more = compared(engine, first, between, sleep, time.monotonic() - one.ended, wanted=wanted)
            held = Custody(engine.name, last, requests, joining.progress(last, first), list(dict.fromkeys(partial + more)))
            held.earlier = first
        else:
            partial.append("one sample: what moves is not known")
            held = Custody(engine.name, first, joining.join(first), [], partial)
        held.name, held.of = engine.instance, engine
        found.append(held)
    sides = [held.side for held in found]
    instances.hear(sides, who_listens)
    if not alone:
        instances.relate(sides)
    return found


class _First:
    """The first look at each process of an engine; `ended`: when."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.looks, self.partial = looks_at(engine)
        self.ended = time.monotonic()


def _who_have(wanted: str, firsts: list[_First]) -> list[_First]:
    """The engines that have a request. All of them where none has it, since it may be about to arrive, and where it waits for
    another instance's transfer."""
    tracked = [(one, request) for one in firsts for request in joining.join(one.looks)]
    found = meant(wanted, [(one.engine.instance, request) for one, request in tracked])
    if not found or any(request.transfer is not None for request in found):
        return firsts
    ids = {id(request) for request in found}
    having = {id(one) for one, request in tracked if id(request) in ids}
    return [one for one in firsts if id(one) in having]


def compared(
    engine: Engine,
    first: list[Look],
    between: float,
    sleep: Callable[[float], None] = time.sleep,
    since: float | None = None,
    last: list[Look] | None = None,
    wanted: str = "",
) -> tuple[list[Look], list[Tracked], list[str]]:
    """-> (the last look at each process, the requests as they are since `first`, why that is not everything).

    A third look follows after the same time, if a request seems to be blocked by a process or two looks do not show whether it
    is. A fourth follows after `LONGER` times as long where only the time can show it. `since`: seconds since `first`, where more
    than `between`. `last`: the second look, if taken already. `wanted`: the id of the one request for which this is done."""
    partial: list[str] = []
    if last is None:
        last, partial = looks_at(engine)
    requests = joining.join(last, first)
    others: list[list[Look]] = []
    gone = max(since or 0.0, between)
    for due in (2 * between, (2 + LONGER) * between):
        named = meant(wanted, [(engine.instance, r) for r in requests]) if wanted else []
        if any(_is_open(r, bool(others)) for r in named or requests):
            pause = max(due - gone, between / 2)
            sleep(pause)
            gone += pause
            others.append(last)
            last, partial = looks_at(engine)
            requests = joining.join(last, first, others)
    return last, requests, partial


def _is_open(tracked: Tracked, again: bool) -> bool:
    """Whether another look may change a request's verdict. `again`: there were three looks already."""
    if tracked.verdict in (BEHIND, LOST, ZOMBIE):
        return not (tracked.sure and again)
    return not tracked.verdict and not tracked.moved and not again


def collect_one(target: Target) -> Custody:
    """The requests that one process knows by itself, a core's for example: one look."""
    return collect_files([target])[0]


def collect_files(targets: Sequence[Target]) -> list[Custody]:
    """One `Custody` per engine for cores, or a process without siblings: one look at each. The files need not be of one moment,
    so of several only the verdicts are kept that a scheduler's own state gives: what one lacks another may have had.
    `NotFoundError` where no process has loaded an engine."""
    looks: dict[str, list[Look]] = {}
    others = []
    for target in targets:
        rt = open_runtime(target)
        spec = registry.spec_of_runtime(rt)
        if spec is None:
            others.append(target.describe())
            continue
        look = Look(target.label or str(target.pid or 0), target.pid or 0, "")
        for role in ("engine-core", "scheduler", "frontend", "worker", "detokenizer"):
            one = _look_at(spec, target, _Role(look.label, look.pid, role))
            if one.parts:
                look = one
                break
            look.notes += [note for note in one.notes if note not in look.notes]
        looks.setdefault(spec.name, []).append(look)
    if not looks:
        raise NotFoundError(
            f"{', '.join(others)} has loaded none of {', '.join(registry.packages())}: it has no requests (llm-ranks names the "
            "engines' processes)"
        )
    found = []
    for name, mine in looks.items():
        partial = ["one sample: what moves is not known"]
        partial += ["its siblings are not here: only what this process knows"] if len(mine) == 1 else []
        partial += apart(targets)
        partial += [f"{other} has loaded no engine: it has no requests" for other in others]
        requests = joining.join(mine)
        for tracked in requests if len(mine) > 1 else ():
            if tracked.verdict not in OF_ONE:
                tracked.verdict = ""
        held = Custody(name, mine, requests, [], partial + [note for look in mine for note in (*look.notes, *look.absent)])
        instances.relate([held.side])
        found.append(held)
    return found


class _Role:
    """The attributes of a `Rank` that a reader uses, for a process without one: a core."""

    def __init__(self, label: str, pid: int, role: str) -> None:
        self.label, self.pid, self.role = label, pid, role


def _runs(engine: Engine) -> bool:
    """Whether all of its processes run while they are read. Those that have ended meanwhile do not count."""
    for rank in engine.alive():
        try:
            if engine.target(rank).is_stopped:
                return False
        except GdbextError as e:
            log.passed_over(e)
            continue
    return True


def looks_at(engine: Engine) -> tuple[list[Look], list[str]]:
    """A look at each process of the engine, and why those are not all."""
    found, running, partial = [], [], []
    for rank in engine.alive():
        if engine.spec is None or rank.role == "coordinator" and not engine.spec.goes_in_step:
            continue
        try:
            target = engine.target(rank)
            look = _look_at(engine.spec, target, rank, rank.role in SCHEDULES)
        except GdbextError as e:
            look = Look(rank.label, rank.pid, rank.role, notes=[f"{rank.label}: {e}"])
        else:
            if not target.is_stopped:
                running.append(look)
                partial += [] if "unstopped" in partial else ["unstopped"]
        if look.torn:
            partial.append(look.torn_note)
        found.append(look)
        partial += [*look.notes, *look.absent]
    stops = stopped_by([look.pid for look in running])
    for look in (look for look in running if look.pid in stops):
        look.stopped = stops[look.pid]
        partial.append(f"{look.label} (pid {look.pid}) is stopped by {look.stopped}: nothing moves there meanwhile")
    return found, partial


def _look_at(spec: EngineSpec, target: Target, rank: Rank | _Role, schedules: bool = False) -> Look:
    """A look at one process by the engine's own reader, or by that of its KV cache where it has none. `schedules`: it has a
    scheduler, so a look without one is repeated."""

    def read() -> Look:
        rt = open_runtime(target)
        with absences.watching(rt, spec) as absent:
            found: Look = spec.requests.look(rt, rank) if spec.requests is not None else _of_cache(spec, rt, rank)
        found.absent = [f"{found.label}: {note}" for note in absent.notes()]
        with log.passing_over(GdbextError):  # what it serves goes on meanwhile
            found.sightings += at_once(rt, lambda: exchanges.look(rt, found, spec))
        if found.notes and not target.is_stopped:
            raise GdbextError("; ".join(found.notes))
        if schedules and not found.parts and not target.is_stopped:
            raise NotFoundError(f"{found.label}: no frame of it holds the scheduler just now: ask again")
        last.append(found)
        return found

    def torn(found: Look) -> list[str]:
        return [s.request_id for s in found.sightings if s.request is not None and s.request.excess]

    last: list[Look] = []
    try:
        with uncollected():
            return agreeing(target, lambda: retry_reading(target, read, READ), torn)
    except ContradictionError as e:
        log.passed_over(e)
        last[-1].torn = torn(last[-1])
        for sighting in last[-1].sightings:
            if sighting.request is not None and sighting.request_id in last[-1].torn:
                sighting.request.forget_counts()
        return last[-1]
    except GdbextError as e:
        return Look(rank.label, rank.pid, rank.role, notes=[str(e)])


def _of_cache(spec: EngineSpec, rt: Runtime, rank: Rank | _Role) -> Look:
    """The requests that the reader of an engine's KV cache finds."""
    found = Look(rank.label, rank.pid, rank.role, engine=spec.name)
    reader = spec.kv if not spec.kv_classes else None
    scheduler = reader.find_scheduler(rt) if reader is not None else None
    if reader is None or scheduler is None:
        return found
    cache = reader.read(rt, scheduler)
    found.parts, found.limits = ("scheduler",), cache.limits
    for request in cache.requests:
        stage = RUNNING if request.queue == "running" else QUEUE
        sighting = Sighting(request.request_id, stage, request.status, request=request, ended=request.queue == "finished")
        sighting.progress = (request.computed_tokens or 0, request.output_tokens or 0)
        sighting.waits_for, sighting.age = request.blocked_by, request.age
        found.sightings.append(sighting)
    return found


def scheduled(tracked: Sequence[Tracked]) -> list[Tracked]:
    """The requests that a scheduler has."""
    return [t for t in tracked if t.sighting(*IN_SCHEDULER) is not None]
