"""KV on its way between the device and a tier below it (host memory, disk, a store), from vLLM's OffloadingConnector and
SimpleCPUOffloadConnector.

A load or a store is a job that each worker reports once. There is no deadline: a job that no worker reports keeps its request,
and all requests with the same chunks, for ever. Sources: distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py,
worker.py, v1/simple_kv_offload/manager.py."""

from __future__ import annotations

import time

from ... import log
from ...cpython.objects import Object
from ...cpython.runtime import Runtime
from ...errors import GdbextError
from ..objects import at, has, optional
from ..sightings import LOAD, LOOKUP, QUEUE, Look, Offload, Sighting

RECEIVING = "WAITING_FOR_REMOTE_KVS"
MAX_JOBS, MAX_REQUESTS, MAX_KEYS, KEY = 4096, 4096, 20_000, 256


class _Job:
    """A load, or a store, of the chunks with some `keys`, for a request; `pending` workers have not reported it."""

    def __init__(self, number: int, job: Object) -> None:
        self.number, self.request = number, optional(job, "req_id", "string", "")
        self.pending, self.stores = optional(job, "pending_count") or 0, bool(optional(job, "is_store", "boolean", False))
        self.keys = _bytes(at(job, "keys"))


def _bytes(held: Object | None) -> set[bytes]:
    if held is None or not held.isa("set", "list", "frozenset"):
        return set()
    return {one.raw_bytes(KEY) for one in held.elements(MAX_KEYS) if hasattr(one, "isa") and one.isa("bytes")}


def of_scheduler(rt: Runtime, found: Look, side: Object) -> None:
    """Fills in the requests that wait for an offload tier, by the scheduler's side of a connector."""
    try:
        if has(side, "_req_status") and has(side, "_jobs"):
            _offloading(rt, found, side)
        elif has(side, "_reqs_to_load"):
            _simple(found, side)
    except GdbextError as e:  # it changes while it is read
        log.passed_over(e)
        if rt.target.is_stopped:
            raise


def _offloading(rt: Runtime, found: Look, side: Object) -> None:
    jobs = [_Job(number.integer(), job) for number, job in side.attr("_jobs").items(MAX_JOBS)]
    config = at(side, "config")
    workers = (optional(config, "num_workers") or 1) if config is not None else 1
    states = {name.string(1000): state for name, state in side.attr("_req_status").items(MAX_REQUESTS)}
    for sighting in found.sightings:
        if sighting.request_id not in states or sighting.stage != QUEUE or sighting.ended:
            continue
        if sighting.state == RECEIVING:
            job = next((one for one in jobs if one.request == sighting.request_id and not one.stores), None)
            sighting.offload = Offload(LOAD, workers=workers)
            if job is None:
                sighting.waits_for = "offload: its load, of which no job is left"
                continue
            sighting.offload.job, sighting.offload.pending = job.number, job.pending
            sighting.waits_for = (
                f"offload: its load (job {job.number}), which {job.pending} of {workers} workers have not reported"
            )
        else:
            _lookup(rt, sighting, states[sighting.request_id], [one for one in jobs if one.request != sighting.request_id])


def _lookup(rt: Runtime, sighting: Sighting, state: Object, jobs: list[_Job]) -> None:
    """A request that the connector has put off: its chunks are on their way for another one, or the tier has not answered."""
    since = at(state, "deferred_lookup_start_time")
    if since is None or not since.isa("float"):
        return
    groups = at(state, "group_states")
    wanted: set[bytes] = set()
    for group in groups.elements(64) if groups is not None else ():
        wanted |= _bytes(at(group, "offload_keys"))
    sighting.offload = Offload(LOOKUP, since=time.monotonic() - since.floating() if rt.target.is_live else None)
    sighting.parked = True
    job = next((one for one in jobs if one.keys & wanted), None)
    if job is None:
        sighting.waits_for = "offload: the tier's answer whether it has its blocks"
        return
    sighting.offload.job, sighting.offload.pending, sighting.after = job.number, job.pending, (job.request,)
    what = "stored" if job.stores else "loaded"
    sighting.waits_for = f"offload: blocks that are being {what} for {job.request} (job {job.number}), without a time limit"


def _simple(found: Look, side: Object) -> None:
    for name, load in side.attr("_reqs_to_load").items(MAX_REQUESTS):
        sighting = next((s for s in found.sightings if s.request_id == name.string(1000) and s.state == RECEIVING), None)
        if sighting is not None:
            event = optional(load, "load_event")
            sighting.offload = Offload(LOAD, event)
            sighting.waits_for = "offload: its load, " + (f"event {event}" if event is not None else "which has not been issued")


def of_worker(found: Look, side: Object, name: str) -> None:
    """Fills in the loads that the worker's side of a connector has. `name`: the connector's class."""
    if not has(side, "_load_jobs"):
        return
    held = at(side, "_load_jobs")
    found.loads = {} if found.loads is None else found.loads
    for _, request in held.items(MAX_JOBS) if held is not None and held.isa("dict") else ():
        if request.isa("str"):
            found.loads[request.string(1000)] = found.transfers[request.string(1000)] = f"{name}.connector_worker._load_jobs"
