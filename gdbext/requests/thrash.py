"""Requests that are preempted over and over while none gives a token."""

from __future__ import annotations

from typing import Sequence

from ..engines.sightings import Look, Sighting
from .model import MOVING, THRASH, Tracked

MANY_PREEMPTIONS = 3  # between two looks


def mark(found: Sequence[Tracked], earlier: dict[str, list[tuple[Look, Sighting]]]) -> None:
    """Marks requests that were preempted over and over between the looks, while no request of the engine gave a token or ended:
    to compute the same again is no progress."""
    before = {name: Tracked(name, hops).request for name, hops in earlier.items()}
    now = {tracked.request_id: tracked.request for tracked in found}
    pairs = [(then, now.get(name)) for name, then in before.items() if then is not None]
    if any(after is None or (after.output_tokens or 0) != (then.output_tokens or 0) for then, after in pairs):
        return
    for tracked in found:
        then, after = before.get(tracked.request_id), tracked.request
        if then is None or after is None or tracked.verdict != MOVING or None in (then.preemptions, after.preemptions):
            continue
        times = (after.preemptions or 0) - (then.preemptions or 0)
        if times >= MANY_PREEMPTIONS:
            tracked.verdict, tracked.holder, tracked.sure = THRASH, tracked.at, False
            tracked.evidence.append(
                f"preempted {times} times between two samples ({after.preemptions} in all), and no request produced a token"
            )
