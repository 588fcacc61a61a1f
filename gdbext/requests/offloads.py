"""Requests that wait for KV from a tier below the device: who has their load now, and whether anybody has it.

Pure."""

from __future__ import annotations

from typing import Sequence

from ..engines import sightings
from ..engines.sightings import Look, Offload
from . import model
from .model import Tracked


def judge(tracked: Tracked, scheduler: Look, history: Sequence[Sequence[Look]]) -> None:
    """Adds who has a parked request's load. It is lost where all workers of its replica were read at all looks (`history`), none
    has it, and its scheduler, which has counted on meanwhile, still waits for a report on the same job."""
    name, offload = tracked.request_id, _of(tracked.request_id, scheduler)
    if offload is None:
        return
    if offload.since is not None:
        tracked.evidence.append(f"it has been put off for {offload.since:.0f} s")
    if offload.lost:
        tracked.verdict, tracked.holder = model.LOST, None
        tracked.evidence.append(f"nobody can bring it: {offload.lost}")
        return
    mine = [[one for one in looks if one.loads is not None and one.replica == scheduler.replica] for looks in history]
    if (
        offload.state != sightings.LOAD
        or offload.job is None
        or any(name in (one.loads or ()) for looks in mine for one in looks)
    ):
        return
    before = next((look for look in history[0] if look.pid == scheduler.pid), scheduler)
    known = _of(name, before)
    same = known is not None and known.job == offload.job and before.counters != scheduler.counters
    if same and all(len(looks) >= (offload.workers or 1) for looks in mine):
        tracked.verdict, tracked.holder = model.LOST, None
        tracked.evidence.append(f"no worker has the load any more (job {offload.job}), so none will report it: it never ends")


def _of(name: str, look: Look) -> Offload | None:
    return next((s.offload for s in look.sightings if s.request_id == name and s.offload is not None), None)
