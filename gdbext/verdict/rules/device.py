"""Threads that wait for their device."""

from __future__ import annotations

from typing import Sequence

from .. import patterns
from ..facts import Facts, ProcessState, ThreadState, Verdict
from ..words import describe, place_of
from .collectives import behind, counters

NOT_SEEN = "it did not move; which kernel runs there cannot be seen without cuda-gdb"


def waiting(facts: Facts) -> Verdict | None:
    """Main threads that wait in a device's synchronisation. "collective" where some of the ranks have not come to it; else
    "kernel", which `examine` believes only after a second, longer window. Where no main thread waits there: threads that fetch
    results for a main thread that waits for more work."""
    found = [(f, t) for f in facts for t in f.threads[:1] if t.does == "device" and not t.moved]
    if not found:
        return _fetching(facts)
    inside = [f for f, _ in found]
    alike = [f for f in facts if f.role == inside[0].role]
    if len(found) < len(alike):
        others = [f.main for f in alike if f.main and f not in inside]
        if all(o.still for o in others):
            names = [f.name for f in inside]
            return Verdict("collective", [o.node for o in others], _said(found)[:4] + [describe(o) for o in others], names)
        return None
    late = behind(facts)
    if late and all(f in inside for f in late):
        names = [f.name for f in inside if f not in late]
        return Verdict("collective", [f.main.node for f in late if f.main], _said(found), names)
    return _kernel(found, alike)


def _fetching(facts: Facts) -> Verdict | None:
    """Helper threads that wait for a device while their process's main thread waits for something else. Example: in vLLM's
    scheduling ahead, a thread fetches each step's result. Often one rank alone fetches, so a rank that does not wait there is a
    culprit only if it has begun fewer collectives."""
    found = [(f, t) for f in facts if f.main and f.main.still for t in f.threads[1:] if _fetches(t)]
    if not found:
        return None
    inside = list(dict.fromkeys(f for f, _ in found))
    alike = [f for f in facts if f.role == inside[0].role]
    names = {f.name for f in inside}
    late: dict[str, ProcessState] = {}
    for _, _, begun in counters(alike):
        most = max((n for name, n in begun.items() if name in names), default=0)
        late.update({f.name: f for f in alike if f.main and f.main.still and f not in inside and begun.get(f.name, most) < most})
    if late:
        seen = _said(found)[:4] + [describe(f.main) for f in late.values() if f.main]
        return Verdict("collective", [f.main.node for f in late.values() if f.main], seen, sorted(names))
    return _kernel(found, alike)


def _fetches(t: ThreadState) -> bool:
    return t.python and not t.moved and t.does == "device"


def _said(found: Sequence[tuple[ProcessState, ThreadState]]) -> list[str]:
    return [f"{f.name} waits for its device: {place_of(t, patterns.DEVICE)}" for f, t in found[:8]]


def _kernel(found: Sequence[tuple[ProcessState, ThreadState]], alike: Sequence[ProcessState]) -> Verdict:
    """A "kernel" verdict. A lone rank's device is the slow one; of several ranks any may delay the others, so none is named."""
    culprits = [found[0][1].node] if len(alike) == 1 else []
    return Verdict("kernel", culprits, [*_said(found), NOT_SEEN])
