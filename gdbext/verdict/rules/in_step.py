"""Data-parallel ranks that go in step: engine cores whose replicas run a step, a dummy one too, for each step of another, and who
has not come for its own reasons.

A worker at rest waits for its core, a core at rest for the word of the coordinator that a wave has begun."""

from __future__ import annotations

from typing import Any, Iterable

from ...engines import registry, shm_rings
from ..facts import Facts, ProcessState
from .rings import rests

MOST = 1 << 16
CORE, COORDINATOR = "engine-core", "coordinator"


def goes(f: ProcessState) -> bool:
    """Whether a process is an engine core that goes in step with others."""
    return f.role == CORE and f.in_step is not None and f.in_step.rank is not None


def place_of(f: ProcessState) -> tuple[int, int] | None:
    """(rank, size) of a process among those with which it meets, None where not known."""
    if f.world is None and goes(f) and f.in_step is not None and f.in_step.rank is not None:
        return f.in_step.rank, f.in_step.size
    return f.world


def meet(f: ProcessState, other: ProcessState) -> bool:
    """Whether two ranks of one engine may wait for each other: not those of replicas that are independent."""
    return not (f.alone and other.alone and f.replica != other.replica)


def not_there(facts: Facts) -> list[int]:
    """Ranks that go in step with those of an engine here and whose cores were not looked at; [] where none go in step."""
    known = {f.in_step.rank: f.in_step.size for f in facts if f.in_step is not None and goes(f)}
    size = next(iter(known.values()), 0)
    return [rank for rank in range(min(size, MOST)) if rank not in known] if len(set(known.values())) == 1 else []


def lines(facts: Facts) -> list[str]:
    """How far each process is, as evidence, where they differ or one of them goes round."""
    known = [(f, f.in_step) for f in facts if f.in_step is not None]
    if not any(map(goes, facts)) or not any(one.runs for _, one in known):
        return []
    return ["ranks that go in step: " + "; ".join(f"{f.name} {one.words()}" for f, one in known)]


def responsible(facts: Facts, late: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Those that have to come, for ranks that have not: the core for a worker that waits for its next step, the coordinator for a
    core that it has not woken. Left out are cores that wait for their workers' answers, which other rules know more about."""
    cores = [f for f in facts if f.role == CORE and f.main is not None]
    found: dict[str, tuple[Any, Any]] = {}
    for f, t in late:
        core = next((c for c in cores if c.replica == f.replica and c.family == f.family), None) if f.role == "worker" else None
        if core is not None and any(map(goes, cores)) and t.stands_in(shm_rings.waits_in):
            f, t = core, core.main
        if goes(f):
            if t.stands_in(registry.waits_for_answer_in) or t.stands_in(shm_rings.waits_in):
                continue
            f, t = _waker(facts, f) if rests(f) and not f.in_step.runs else (f, t)
        found.setdefault(f.name, (f, t))
    return list(found.values())


def _waker(facts: Facts, core: ProcessState) -> Any:
    """The coordinator of a core at rest, if it stands somewhere else than where it waits for messages; else the core."""
    for f in facts:
        if f.role == COORDINATOR and f.main is not None and f.main.still and not rests(f) and f.family == core.family:
            return f, f.main
    return core, core.main
