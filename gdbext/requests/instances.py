"""Requests over several instances. The two ends of each KV transfer are joined by a key that is equal at both (`Transfer.key`).
The result is the one that must act: the end that is blocked, or an address that was not looked at.

Pure. A sender or receiver that polls does what it should, so neither is a culprit for that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Sequence

from ..engines import sightings
from ..engines.sightings import Look, Sighting, Transfer
from . import model
from .model import Place, Tracked

NEVER, LATE = "never", "late"  # the other end has no such request; its lease ended while the blocks were being read
LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")
UNANSWERED = ("", sightings.PAIRING, sightings.HANDSHAKE)  # states in which no byte has moved
TAKES_IN = ("frontend", "api-server", "coordinator")  # roles that have no part in a transfer


@dataclass
class Side:
    """One engine instance: its name, the last look at each of its processes, its requests. `earlier`: the first looks."""

    name: str
    looks: Sequence[Look]
    requests: Sequence[Tracked]
    earlier: Sequence[Look] = ()

    @property
    def whole(self) -> bool:
        """Whether each of its schedulers was read, so that a request which none of them has is not there."""
        schedulers = [look for look in self.looks if "scheduler" in look.parts]
        return bool(schedulers) and not any(look.notes for look in self.looks if look.role not in TAKES_IN)

    @property
    def role(self) -> str:
        """The part of its schedulers in transfers, '' where they do not say."""
        return next((look.serves.role for look in self.looks if look.serves is not None and look.serves.role), "")

    @property
    def taking_in(self) -> list[str]:
        """The requests that a front end has and no scheduler."""
        inside = {s.request_id for look in self.looks for s in look.sightings if s.stage != sightings.FRONTEND}
        fronts = (s for look in self.looks for s in look.sightings if s.stage == sightings.FRONTEND and not s.ended)
        return [s.request_id for s in fronts if s.request_id not in inside]


class _Index:
    """The ends of all transfers by key, and the instances by the names that others use for them."""

    def __init__(self, sides: Sequence[Side]) -> None:
        self.sides = sides
        self.ends: dict[tuple[bool, tuple[str, ...]], tuple[Side, Look, Sighting]] = {}
        self.named: dict[str, Side] = {}
        self.ports: dict[str, list[Side]] = {}
        for side in sides:
            for look in side.looks:
                if look.serves is not None:
                    for name in filter(None, (look.serves.engine_id, look.serves.address)):
                        self.named.setdefault(name, side)
                    self.ports.setdefault(look.serves.address.rpartition(":")[2], []).append(side)
                for sighting in look.sightings:
                    if sighting.transfer is not None:
                        self.ends.setdefault((sighting.transfer.sends, sighting.transfer.key), (side, look, sighting))

    def had(self, side: Side, transfer: Transfer) -> bool:
        """Whether the other end was there at an instance's first look. If so, it may have ended well since."""
        known = (s.transfer for look in side.earlier for s in look.sightings)
        return any(one is not None and one.key == transfer.key and one.sends != transfer.sends for one in known)

    def other_end(self, transfer: Transfer) -> tuple[Side, Look, Sighting] | None:
        return self.ends.get((not transfer.sends, transfer.key))

    def same_id(self, side: Side, tracked: Tracked, transfer: Transfer) -> tuple[Side, Tracked] | None:
        """The other end of a transfer, where that one does not know of it yet: the instance there has a request of the same id,
        which a router gives to both. Where this end knows no address, it is the one instance of another role that has one."""
        known = self.other_side(transfer)
        if known is None and (transfer.peer or transfer.address):
            return None
        others = [known] if known is not None else [one for one in self.sides if one.role != side.role or not one.role]
        ids = {tracked.request_id, tracked.external_id} - {""}
        found = [
            (one, t)
            for one in others
            for t in one.requests
            if one is not side and t.transfer is None and t.hops and ids & {t.request_id, t.external_id}
        ]
        return found[0] if len(found) == 1 else None

    def other_side(self, transfer: Transfer) -> Side | None:
        """The instance that should be at the other end, if it was looked at."""
        found = self.named.get(transfer.peer) or self.named.get(transfer.address)
        host, _, port = transfer.address.rpartition(":")
        if found is None and host in LOOPBACK and port:  # an instance that listens on all addresses names none
            same = {id(side): side for side in self.ports.get(port, ())}
            found = next(iter(same.values())) if len(same) == 1 else None
        return found


def hear(sides: Sequence[Side], listens: Callable[[int, str], str]) -> None:
    """Fills in what listens at the addresses of parked transfers, which only their own machine can see. `listens(pid, address)`:
    in words, the process that listens at an address which a process knows; empty where not known."""
    known: dict[tuple[int, str], str] = {}
    for side in sides:
        for tracked in side.requests:
            transfer, at = tracked.transfer, tracked.at
            if transfer is not None and transfer.address and at is not None and tracked.verdict == model.PARKED:
                key = at.pid, transfer.address
                transfer.heard = known[key] if key in known else known.setdefault(key, listens(*key))


def relate(sides: Sequence[Side]) -> None:
    """Adds to the requests of each transfer the facts about its other end."""
    index = _Index(sides)
    for side in sides:
        for tracked in side.requests:
            transfer = tracked.transfer
            if transfer is None or tracked.verdict not in (model.PARKED, model.KEPT):
                continue
            found, same = index.other_end(transfer), None
            if found is None and transfer.state != sightings.COMPLETION:
                same = index.same_id(side, tracked, transfer)
            if same is not None:
                same[1].partner = side.name, tracked.request_id
                found = same[0], *(same[1].sighting(*sightings.IN_SCHEDULER) or same[1].hops[0])
            if found is not None:
                _joined(tracked, transfer, *found)
            elif transfer.sends and transfer.state == sightings.KEPT:
                tracked.evidence.append("no instance that was asked has a request that reads them")
            elif transfer.state == sightings.COMPLETION:
                _consumed(tracked)
            elif (other := index.other_side(transfer)) is not None:
                _missing(tracked, transfer, other, side.whole and not index.had(other, transfer))
            elif transfer.sends:
                tracked.evidence.append("no instance that was asked has its other end")
            elif transfer.address or transfer.peer:
                _not_asked(tracked, transfer)


def _joined(tracked: Tracked, transfer: Transfer, other: Side, look: Look, end: Sighting) -> None:
    """Joins a request with the other end of its transfer, which was looked at."""
    tracked.partner = other.name, end.request_id
    if transfer.state == sightings.KEPT:
        tracked.evidence.append(f"its reader is {end.request_id} of {other.name}, which is {end.state} at {look.label}")
        return
    if transfer.state == sightings.COMPLETION:
        _consumed(tracked)
        return
    does = "keeps its blocks" if end.ended else f"is {end.state}"
    tracked.evidence.append(f"the other end is {end.request_id} of {other.name}, which {does} at {look.label}")
    until = end.transfer.until if end.transfer is not None else None
    if until is not None and until < 0 and transfer.state == sightings.BYTES:
        transfer.state = LATE
        tracked.evidence.append("the lease on these blocks has ended while they are read: what comes may be another request's")
    who = _standing(other, look)
    if tracked.holder is not None:  # this end is blocked itself
        return
    if who is not None:
        tracked.holder = who[0]
        tracked.evidence.append(who[1])
    elif transfer.state:
        tracked.evidence.append(f"it waits for its {transfer.state}; nothing of {other.name} was seen to be stuck")


def _standing(side: Side, scheduler: Look | None) -> tuple[Place, str] | None:
    """The blocked process of an instance, in the same replica as the scheduler that has the request; any process of it, a front
    end too, where no scheduler has it."""
    if scheduler is None:
        mine = list(side.looks)
    else:
        mine = [one for one in side.looks if one.role not in TAKES_IN and None in (one.replica, scheduler.replica)]
        mine += [one for one in side.looks if one.role not in TAKES_IN and one not in mine and one.replica == scheduler.replica]
    for look in mine:
        if look.stopped:
            return Place(look.label, look.pid), f"{look.label} of {side.name} is stopped by {look.stopped}"
    for look in mine:
        if look.broken:
            return Place(look.label, look.pid), f"{look.label} of {side.name}: {look.broken}"
    for look in mine:
        for stage, where in look.stood.items():
            keeper = look.keepers[stage]
            place = Place(look.label, look.pid, keeper.tid or None, keeper.name)
            return place, f"{look.label} of {side.name} is in {where}"
    return None


def _not_asked(tracked: Tracked, transfer: Transfer) -> None:
    """Notes that the instance at the other end was not looked at: the process at its address must act."""
    if tracked.holder is not None:
        return
    who = " at ".join(filter(None, (transfer.peer, transfer.address)))
    line = f"its {'reader' if transfer.sends else 'sender'}, {who}, was not asked: it must act"
    tracked.evidence.append(f"{line}; {transfer.heard}" if transfer.heard else line)


def _missing(tracked: Tracked, transfer: Transfer, other: Side, sure: bool) -> None:
    """Notes that the instance at the other end was looked at and has no such request. `sure`: nor had it at the first look. A
    request that stands before a blocked process, or in a front end, is not in a scheduler's queues yet."""
    who = _standing(other, None)
    if who is not None and transfer.state in UNANSWERED:
        tracked.evidence.append(f"no queue of {other.name} has such a request, which it cannot take in: {who[1]}")
        tracked.holder = tracked.holder or who[0]
    elif other.taking_in and transfer.state in UNANSWERED:
        ids = ", ".join(other.taking_in[:4])
        tracked.evidence.append(
            f"{other.name} has requests that no scheduler has taken in yet ({ids}): whether this can still come is not known"
        )
    elif not other.whole or not sure:
        why = "was not read whole" if not other.whole else "had the request a moment ago"
        tracked.evidence.append(f"{other.name}, at the other end, {why}: whether this can still come is not known")
    elif transfer.state in UNANSWERED:
        transfer.state = NEVER
        tracked.evidence.append(f"{other.name} has no such request: what it waits for will never come")
    elif transfer.state == sightings.BYTES:
        tracked.evidence.append(f"{other.name} has released the blocks: they were read to the end, or their lease has ended")


def _consumed(tracked: Tracked) -> None:
    tracked.evidence.append("its KV has come; its own scheduler has not taken note of that yet")
    tracked.holder = tracked.at
