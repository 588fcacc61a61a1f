"""Requests that a server has taken and the engine does not know yet: its open HTTP and RPC exchanges.

Pure."""

from __future__ import annotations

from typing import Sequence

from ..engines import sightings
from ..engines.sightings import Exchange, Look, Sighting
from . import model
from .model import Place, Tracked


def taken(found: Sequence[Tracked], earlier: Sequence[Look] | None) -> list[Tracked]:
    """`found`, whose exchanges are judged. Left out are those that not both of two looks saw: one that has just come, or is just
    about to become a request of the engine."""
    before = {s.request_id for look in earlier or () for s in look.sightings if s.stage == sightings.HTTP}
    kept = [t for t in found if t.exchange is None or earlier is None or t.request_id in before]
    for tracked in kept:
        if tracked.exchange is not None:
            _judge(tracked, tracked.exchange, *tracked.hops[0])
    return kept


def _judge(tracked: Tracked, exchange: Exchange, look: Look, sighting: Sighting) -> None:
    """Fills in place and evidence of an exchange. That nothing of it moved between two looks is no proof that it is stuck."""
    tid, place = exchange.pool[0] if len(exchange.pool) == 1 else (sighting.tid, exchange.place)
    tracked.at = Place(look.label, look.pid, tid, exchange.task)
    tracked.waits_for, tracked.verdict = sighting.waits_for, model.MOVING if tracked.moved else ""
    who = f"task {exchange.task}" if exchange.task else f"thread {sighting.tid}"
    waits = f", which waits for {sighting.waits_for}" if sighting.waits_for else ""
    tracked.evidence.append(
        f"{look.label} has not given it to the engine: {who} of {exchange.server} has it in {exchange.place}{waits}"
    )
    if exchange.task and exchange.pool:
        at = "; ".join(f"thread {tid} stands in {place}" for tid, place in exchange.pool)
        one = "the one thread of a pool that has work" if len(exchange.pool) == 1 else "the threads of pools that have work"
        tracked.evidence.append(f"{one}: {at}")
