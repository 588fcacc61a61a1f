"""Who must act where nothing of a scheduler moves: its own thread, or one of the workers for whose answer it waits.

Pure."""

from __future__ import annotations

from typing import Sequence

from ..engines import sightings
from ..engines.sightings import Keeper, Look, Sighting
from . import model
from .model import Place, Tracked


def blamed(keeper: Keeper | None, place: Place, workers: Sequence[Look]) -> tuple[Place | None, str]:
    """-> (who must act, why). `keeper`: the scheduler's thread, which is at `place`; `workers`: the processes of its replica.

    A thread that waits for its workers' answer need not act, nor a worker that waits for other ranks: the one worker that stands
    elsewhere must. None where there is no such worker, or several."""
    if keeper is None:
        return place, "that process must act"
    if keeper.ring and any(keeper.ring in one.rings for one in workers):
        known = [(one, one.keepers[sightings.WORKER]) for one in workers if sightings.WORKER in one.keepers]
        stand = [(one, own) for one, own in known if own.stands and not own.ring]
        late = [(one, own) for one, own in stand if not own.meets]
        said = "; ".join(f"{one.label} stands in {own.stands}" for one, own in (late or stand)[:4])
        if len(late) == 1:
            one, own = late[0]
            return Place(one.label, one.pid, own.tid or None, own.name), f"it waits for its workers' answer: {said}, and must act"
        if stand:
            return None, f"it waits for its workers' answer: {said}" + (", for other ranks" if not late else "")
    where = f", which is in {keeper.stands}" if keeper.stands else ""
    return place, f"its thread {keeper.name}{where} must act"


def comes_later(look: Look, sighting: Sighting) -> bool:
    """Whether a process comes into play only once a request has what it waits for at its scheduler: the one that makes its text;
    of a parked request the front end too."""
    if sighting.ended:
        return False
    return look.role == sightings.DETOKENIZER or sighting.parked and look.parts == (sightings.FRONTEND,)


def is_bypassed(look: Look, looks: Sequence[Look]) -> bool:
    """Whether no request of the engine passes a process."""
    return any(look.role in one.bypassed for one in looks)


def judge_undelivered(tracked: Tracked, look: Look, stands: bool) -> None:
    """Judges a request that its front end has not handed to the engine. `stands`: its event loop stands, and must act; else what
    the request's own task waits for must come."""
    keeper, why = look.keepers.get(sightings.FRONTEND), f"{look.label} has not sent it to the engine yet"
    if keeper is None or stands:
        tracked.verdict, tracked.holder = model.BEHIND, tracked.at
        why += f": its event loop is in {keeper.stands}" if keeper is not None and keeper.stands else ""
    else:
        tracked.verdict, tracked.sure = model.PARKED if tracked.waits_for else model.BEHIND, False
        why += ", and its event loop rests" + (f": it waits for {tracked.waits_for}" if tracked.waits_for else "")
    tracked.evidence.append(why)
