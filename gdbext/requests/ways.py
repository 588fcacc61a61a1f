"""The way of one request over instances, from the router to the instance that answers: the facts of both ends of its transfer, as
one row.

Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Sequence

from ..engines import sightings
from ..engines.sightings import Transfer
from . import instances
from .instances import Side
from .model import Place, Tracked

ROUTER, TRANSFER = "router", "transfer"
SENDER, READER = "prefill", "decode"  # where an instance does not say what it is
_NO_SENDER = {instances.NEVER: "it has no such request", sightings.BYTES: "not asked, or it has released the blocks"}


@dataclass
class Stop:
    """One stop on a request's way. `part`: "router", "transfer", or the role of the instance. `instance`: its name; its engine id
    or address where it was not looked at. `request_id`: the request's id there. `state`: in words; `at`: the process."""

    part: str
    instance: str = ""
    request_id: str = ""
    state: str = ""
    at: Place | None = None


def way(tracked: Tracked, side: Side, sides: Iterable[Side], routers: Sequence[dict[str, Any]] = ()) -> list[Stop]:
    """The stops of a request of `side`, the sender before the reader; [] where the request stays in its instance. `routers`: as
    `engines.routers.of_table` finds them."""
    known = {one.name: one for one in sides}
    other = known.get(tracked.partner[0]) if tracked.partner is not None else None
    partner = next((t for t in other.requests if t.request_id == tracked.partner[1]), None) if other and tracked.partner else None
    transfer = tracked.transfer
    if transfer is None:  # this end does not know of it yet
        if partner is None or other is None or partner.transfer is None:
            return []
        return way(partner, other, list(known.values()), routers)
    own = _stop(tracked, side, transfer.sends)
    if partner is not None and other is not None:
        far = _stop(partner, other, not transfer.sends)
    elif tracked.partner is not None:
        far = Stop(READER if transfer.sends else SENDER, tracked.partner[0], tracked.partner[1])
    else:
        far = _unseen(transfer)
    ends = [own, far] if transfer.sends else [far, own]
    return [_router(routers, ends), ends[0], _between(tracked, partner), ends[1]]


def _stop(tracked: Tracked, side: Side, sends: bool) -> Stop:
    roles = (look.serves.role for look in side.looks if look.serves is not None)
    hop = next((s for _, s in tracked.hops if s.transfer is not None), tracked.hops[0][1] if tracked.hops else None)
    role = next((role for role in roles if role in (SENDER, READER)), SENDER if sends else READER)
    return Stop(role, side.name, tracked.request_id, hop.state if hop is not None else "", tracked.at)


def _unseen(transfer: Transfer) -> Stop:
    """The stop at an end that no looked-at instance has."""
    who = " at ".join(filter(None, (transfer.peer, transfer.address)))
    if transfer.sends:
        return Stop(READER, who, "", "no request here reads them")
    return Stop(SENDER, who, "", _NO_SENDER.get(transfer.state, "not asked"))


def _between(tracked: Tracked, partner: Tracked | None) -> Stop:
    """The transfer. Its state is the reader's, which knows what it waits for; its lease is the sender's."""
    ends = [t.transfer for t in (tracked, partner) if t is not None and t.transfer is not None]
    state = next((t.state for t in ends if not t.sends and t.state), "") or next((t.state for t in ends if t.state), "")
    until = next((t.until for t in ends if t.until is not None), None)
    words = {sightings.BYTES: "posted, not done", sightings.COMPLETION: "done, not taken note of"}.get(state, "")
    words = f"{state} ({words})" if words else state
    return Stop(TRANSFER, state=words + (f", blocks kept for {until:.0f} s more" if until is not None else ""))


def _router(routers: Sequence[dict[str, Any]], ends: Sequence[Stop]) -> Stop:
    """The router: one with connections to an instance on the way. Its tables are not read."""
    names = {end.instance for end in ends}
    for one in routers:
        there = {name: count for name, count in one["connections"].items() if name in names}
        if there:
            said = ", ".join(f"{n} connection{'s' * (n != 1)} to {name}" for name, n in there.items())
            return Stop(ROUTER, f"{one['router']} (pid {one['pid']})", "", said)
    return Stop(ROUTER, state="not known: no router that is recognized here has connections to them")
