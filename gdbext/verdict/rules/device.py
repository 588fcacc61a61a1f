"""Threads that wait for their device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import patterns
from ..facts import Verdict
from ..words import describe, place_of
from .collectives import behind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..facts import ProcessState


def waiting(facts: Sequence[ProcessState]) -> Verdict | None:
    """Main threads that stand in a device's synchronisation: "collective" where some of the ranks have not come to it, else
    "kernel", which `examine` believes only after a second, longer look."""
    found = [(f, t) for f in facts for t in f.threads[:1] if t.does == "device" and not t.moved]
    if not found:
        return None
    inside = [f for f, _ in found]
    alike = [f for f in facts if f.role == inside[0].role]
    said = [f"{f.name} waits for its device: {place_of(t, patterns.DEVICE)}" for f, t in found[:8]]
    if len(found) < len(alike):
        others = [f.main for f in alike if f.main and f not in inside]
        if all(o.still for o in others):
            names = [f.name for f in inside]
            return Verdict("collective", [o.node for o in others], said[:4] + [describe(o) for o in others], names)
        return None
    late = behind(facts)
    if late and all(f in inside for f in late):
        return Verdict("collective", [f.main.node for f in late if f.main], said, [f.name for f in inside if f not in late])
    return Verdict("kernel", [], [*said, "it did not move; which kernel runs there cannot be seen without cuda-gdb"])
