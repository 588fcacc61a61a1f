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
    from ..facts import Facts


def starting(facts: Facts) -> Verdict | None:
    """A group of ranks that is being set up, or an engine's own start."""
    for group in groups(facts):
        waiting = [f for f in group if f.main and f.main.find(patterns.STORE, "python") and not f.main.collective]
        if not waiting:
            continue
        late = [f for f in group if f not in waiting and f.main and not f.main.collective]
        absent = missing(group)
        evidence = [
            f"{f.name} is setting up its process group: {place_of(f.main, patterns.STORE)}" for f in waiting[:4] if f.main
        ]
        if absent and group[0].world:
            names = tree.rank_set([f"R{r}" for r in absent])
            evidence.append(f"{len(group)} of {group[0].world[1]} ranks are here; not among the processes read: {names}")
        evidence += [f"{f.name} has not come to it: {describe(f.main)}" for f in late]
        if not late and not absent and all(f.main.still for f in waiting if f.main):
            continue  # all are there and nothing moves: another rule may apply
        found = Verdict("startup", [f.main.node for f in late if f.main], evidence)
        found.not_asked = [f"R{r}" for r in absent]
        return found
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
        + ["it is at work" if any(not t.still for t in mains) else "nothing of it moved"],
    )
