"""Block tables of workers against those of a scheduler on another machine.

Each machine sends several states of its schedulers and workers, and the time over which it read them. A difference is a fault
only if each state of the one differs so from each state of the other, and if the two were read over a time that they have in
common. Then one pair of states has the scheduler read first, and one the worker, and what stands still stood at one moment.
Which scheduler a worker belongs to is known by what no other job has,
the address of its store or its own id, and by the data-parallel rank; never by a size."""

from __future__ import annotations

from dataclasses import dataclass, field

from .invariants import LeftOut, Report, check_workers
from .model import Cache, Worker
from .suspects import Suspects

MOST_COMPARED = 16_000_000  # blocks of one comparison

TABLES = "block tables"
SHOWN = 16  # ranks that are named


@dataclass
class Member:
    """One process of an engine.

    * `label`, `node`, `engine`: its names
    * `keys`: what the processes of its job have in common with no other
    * `rank` of `size` in that job, `dp` of `dp_size` replicas; None, and 0 replicas, where that is not known. Of a
      scheduler that holds no part of the model `size` is the number of its workers
    * `began`, `ended`: seconds on the time that all machines have in common: its first state was read before `began`, its last
      one after `ended`; None where that is not known
    * `caches`: its states as a scheduler; `workers`: as a worker, none where its scheduler is on its own machine
    * `schedules`: it has a scheduler that was asked for
    * `why`: why it has no states"""

    label: str
    node: str
    engine: str
    keys: frozenset[str] = frozenset()
    rank: int | None = None
    size: int | None = None
    dp: int | None = None
    dp_size: int = 1
    began: float | None = None
    ended: float | None = None
    caches: list[Cache] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    schedules: bool = False
    why: str = ""

    def name(self) -> str:
        """With its machine."""
        return f"{self.node}:{self.label}"


@dataclass
class Comparison:
    """A worker with the scheduler of another machine: what was found, or why they were not compared."""

    worker: Member
    scheduler: Member | None
    report: Report | None = None
    why: str = ""


def compared(members: list[Member]) -> list[Comparison]:
    """Each worker whose scheduler is on another machine, with it. Where each rank has a scheduler (SGLang), it is that of the
    lowest rank."""
    schedulers = [one for one in members if one.schedules]
    found = []
    for worker in filter(_works, members):
        own = _scheduler_of(worker, schedulers)
        if isinstance(own, str):
            found.append(Comparison(worker, None, None, own))
        elif own.node != worker.node:
            found.append(_compare(worker, own))
    return found


def missing(members: list[Member]) -> list[tuple[Member, str]]:
    """`(a scheduler, the ranks of its job that no machine sent)` of those that lack any."""
    found = []
    schedulers = [one for one in members if one.schedules]
    for scheduler in schedulers:
        workers = [one for one in members if _works(one) and _scheduler_of(one, schedulers) is scheduler]
        sizes = {one.size // one.dp_size if one.size and one.dp_size and one.size % one.dp_size == 0 else 0 for one in workers}
        size = (None if _works(scheduler) else scheduler.size) or (max(sizes) if len(sizes) == 1 else 0)
        if len(workers) >= size:
            continue
        ranks = {one.rank for one in workers}
        plain = None not in ranks and all(one.dp_size == 1 for one in workers)
        lacking = [str(rank) for rank in range(size) if rank not in ranks][:SHOWN] if plain else []
        found.append((scheduler, f"{'rank ' + ', '.join(lacking) if lacking else f'{size - len(workers)} ranks'} of {size}"))
    return found


def _works(one: Member) -> bool:
    """Whether it holds a part of the model."""
    return not one.schedules or bool(one.workers)


def _scheduler_of(worker: Member, schedulers: list[Member]) -> Member | str:
    """The one scheduler that a worker belongs to, or why it is not known."""
    if worker.schedules and not worker.keys:
        return worker
    found = [one for one in schedulers if worker.keys & one.keys and one.engine == worker.engine]
    if worker.dp_size != 1:
        found = [one for one in found if one.dp == worker.dp]
    if not worker.keys:
        return "nothing says which job it is of"
    if not found:
        return "its scheduler is not among the processes that were read"
    if worker.schedules or all(one.rank is not None and one.workers for one in found):
        return min(found, key=lambda one: (one.rank if one.rank is not None else -1, one.node))
    if len(found) > 1:
        return "it may be of " + " or of ".join(sorted(one.name() for one in found))
    return found[0]


def _compare(worker: Member, scheduler: Member) -> Comparison:
    why = next((f"{one.name()}: {one.why or 'it was not read'}" for one in (scheduler, worker) if not _states(one)), "")
    why = why or _apart(worker, scheduler) or _too_large(worker, scheduler)
    if why:
        return Comparison(worker, scheduler, None, why)
    pairs = [(cache, state) for state in worker.workers for cache in scheduler.caches]
    suspects: Suspects | None = None
    shown: dict[object, set[int]] = {}
    for number, (cache, state) in enumerate(pairs):
        report = check_workers(cache, [state])
        for v in report.violations + report.transient:
            shown.setdefault(v.key, set()).add(id(state))
        if suspects is None:
            suspects = Suspects(report)
        else:
            suspects.look(report, False)
        if not suspects.now and (report.ranks or number + 1 == len(pairs)):
            break
    if suspects is not None:
        suspects.judge(report, number)
        once = [
            v for v in report.violations if len(shown[v.key]) < min(2, len(worker.workers))
        ]  # no other state was judged by it
        report.violations, report.changed = [v for v in report.violations if v not in once], report.changed + once
    return Comparison(worker, scheduler, report)


def _states(one: Member) -> bool:
    return bool(one.caches or one.workers)


def _apart(worker: Member, scheduler: Member) -> str:
    """Why no moment is known at which both stood as they were read, or ''."""
    bounds = (worker.began, worker.ended, scheduler.began, scheduler.ended)
    if None in bounds:
        return "it is not known when its machine began to read"
    began, ended = max(worker.began or 0.0, scheduler.began or 0.0), min(worker.ended or 0.0, scheduler.ended or 0.0)
    return "" if began <= ended else f"it was not read while {scheduler.name()} was: ask again"


def _too_large(worker: Member, scheduler: Member) -> str:
    """Why there is too much to compare, or ''."""
    sizes = {group.id: group.block_size for group in scheduler.caches[0].groups}
    most = max((sizes.get(table.group, 0) // max(1, table.block_size) for table in worker.workers[0].tables), default=1)
    blocks = sum(len(ids) for request in scheduler.caches[0].requests for ids in request.blocks.values())
    return "" if max(1, most) * blocks <= MOST_COMPARED else f"more than {MOST_COMPARED} blocks would have to be compared"


def left_out(one: Comparison) -> LeftOut:
    """A worker that was not compared."""
    return LeftOut(one.worker.label, TABLES, one.why)
