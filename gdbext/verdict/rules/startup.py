"""Processes that are still starting: they load, or set up the group of their ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...engines import registry
from ...stacks import tree
from .. import patterns
from ..facts import Verdict
from ..words import describe, place_of
from .collectives import groups, missing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..facts import Facts, ProcessState


def starting(facts: Facts) -> Verdict | None:
    """A group of ranks that is being set up, or an engine's own start."""
    return next(filter(None, map(_joining, groups(facts))), None) or _loading(facts)


def _joining(group: Sequence[ProcessState]) -> Verdict | None:
    """A group whose ranks wait at the store for others."""
    mains = {f.name: f.main for f in group if f.main is not None and not f.main.collective}
    waiting = {name: main for name, main in mains.items() if main.find(patterns.STORE, "python")}
    late = {name: main for name, main in mains.items() if name not in waiting}
    absent = missing(group)
    if not waiting or not late and not absent and all(main.still for main in waiting.values()):
        return None  # all are there and nothing moves: another rule may apply
    evidence = [
        f"{name} is setting up its process group: {place_of(main, patterns.STORE)}" for name, main in list(waiting.items())[:4]
    ]
    if absent and group[0].world:
        names = tree.rank_set([f"R{r}" for r in absent])
        evidence.append(f"{len(group)} of {group[0].world[1]} ranks are here; not among the processes read: {names}")
    evidence += [f"{name} has not come to it: {describe(main)}" for name, main in late.items()]
    found = Verdict("startup", [main.node for main in late.values()], evidence)
    found.not_asked = [f"R{r}" for r in absent]
    return found


def _loading(facts: Facts) -> Verdict | None:
    """An engine's processes that load, and those of the same roles that do not."""
    loading = [f for f in facts if f.main and (f.main.stands_in(registry.starts_in) or f.main.find(patterns.STORE, "python"))]
    if not loading or any(t.collective for f in facts for t in f.threads[:1]):
        return None
    roles = {f.role for f in loading}
    others = [f for f in facts if f.main and f not in loading and f.role in roles and f.role]
    mains = [f.main for f in loading if f.main]
    return Verdict(
        "startup",
        [f.main.node for f in others if f.main],
        [f"{t.node[0]} starts: {t.stands_in(registry.starts_in) or t.top}" for t in mains[:8]]
        + ["nothing of it moved" if all(t.still for t in mains) else "it is running"],
    )
