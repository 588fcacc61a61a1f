"""Processes that are still starting: they load, or set up the group of their ranks."""

from __future__ import annotations

from typing import Iterable, Sequence

from ...engines import registry
from ..facts import Facts, ProcessState, Verdict
from ..words import describe
from . import in_step
from .absent import missing, nodes_of
from .collectives import groups

SHOWN = 32


def starting(facts: Facts) -> Verdict | None:
    """A group of ranks that is being set up, or an engine's own start."""
    return next(filter(None, map(_joining, groups(facts))), None) or _loading(facts)


def _joining(group: Sequence[ProcessState]) -> Verdict | None:
    """A group whose ranks wait at the store for others."""
    mains = {f.name: f.main for f in group if f.main is not None and not f.main.collective}
    waiting = {name: main for name, main in mains.items() if main.at_store}
    late = {name: main for name, main in mains.items() if name not in waiting}
    absent = missing(group)
    if not waiting or not late and not absent and all(main.still for main in waiting.values()):
        return None  # all are there and nothing moves: another rule may apply
    evidence = [f"{name} is setting up its process group: {main.at_store}" for name, main in list(waiting.items())[:4]]
    if absent and group[0].world:
        evidence += absent_lines(group, absent)
    evidence += [f"{name} has not come to it: {describe(main)}" for name, main in late.items()]
    found = Verdict("startup", [main.node for main in late.values()], evidence)
    found.not_asked = [f"R{r}" for r in absent]
    return found


def _loading(facts: Facts) -> Verdict | None:
    """An engine's processes that load, and those of the same roles that do not; a server that waits for engine cores."""
    cores, unread = _cores(facts)
    loading = [f for f in facts if f.main and (f.main.stands_in(registry.starts_in) or f.main.at_store)]
    if not loading and not cores or any(t.collective for f in facts for t in f.threads[:1]):
        return None
    roles = {f.role for f in loading}
    others = [f for f in facts if f.main and f not in loading and f.role in roles and f.role]
    mains = [f.main for f in loading if f.main]
    evidence = [*cores, *(f"{t.node[0]} starts: {t.stands_in(registry.starts_in) or t.top}" for t in mains[:8])]
    evidence.append("it is at work" if any(not t.still for t in mains) else "nothing of it moved")
    found = Verdict("startup", [f.main.node for f in others if f.main], evidence)
    found.not_asked = unread
    return found


def absent_lines(group: Sequence[ProcessState], absent: Sequence[int]) -> list[str]:
    """Who is here of a group of ranks, who is missing, and the nodes of which none was asked."""
    size = next(f.world[1] for f in group if f.world)
    said = [f"{len(group)} of {size} ranks are here; missing: {numbers(absent)} (not among the processes read)"]
    stores = {f.job.partition(" ")[0] for f in group if f.job}
    return [*said, *nodes_of(group, absent), *(f"they meet at the store {store}" for store in stores)]


def numbers(ranks: Iterable[int]) -> str:
    """Ranks as text, at most SHOWN of them."""
    known = list(ranks)
    return ", ".join(map(str, known[:SHOWN])) + (f" and {len(known) - SHOWN} more" if len(known) > SHOWN else "")


def _cores(facts: Facts) -> tuple[list[str], list[str]]:
    """-> (evidence of a server that waits for engine cores which have not reported, those of them that were not read)."""
    evidence: list[str] = []
    absent: list[int] = []
    for f in facts:
        gone = [*f.start.here, *f.start.elsewhere] if f.start is not None else []
        if f.start is None or f.start.size < 2 or not gone:
            continue
        said = f"{f.name} waits for data-parallel engine cores: {f.start.size - len(gone)} of {f.start.size} are here"
        said += f"; missing: {numbers(sorted(gone))}"
        said += f"; {numbers(f.start.starting)} still start{'s' * (len(f.start.starting) == 1)}" if f.start.starting else ""
        evidence.append(said)
        if f.start.here:
            evidence.append(f"{numbers(f.start.here)}: to be started on its own machine")
        if f.start.elsewhere:
            evidence.append(f"{numbers(f.start.elsewhere)}: to be started on another machine (--headless there)")
        absent += gone
    there = {f.replica for f in facts if f.role == in_step.CORE}
    return evidence, [f"DP{rank}" for rank in dict.fromkeys(absent) if rank not in there]
