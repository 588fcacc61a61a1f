"""KV transfers between instances, from vLLM's connectors: the scheduler's and the worker's side of NIXL and Mooncake, alone or as
parts of a MultiConnector (distributed/kv_transfer/kv_connector/v1, kv_transfer_state.py; v1/core/sched/scheduler.py).

Both ends name a request alike. The name is `transfer_id` of `kv_transfer_params`, or the sender's engine id and its own id there.
The receiver has the latter two as `remote_engine_id` and `remote_request_id`.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import Any, Iterator

from ... import log
from ...cpython.objects import Object
from ...cpython.runtime import Runtime
from ...errors import GdbextError, NotFoundError
from ..objects import at, has, optional
from ..sightings import BYTES, COMPLETION, HANDSHAKE, KEPT, OUTPUT, Connector, Look, Sighting, Transfer
from . import offloading

CONNECTOR = "vllm.distributed.kv_transfer.kv_transfer_state"  # the module that keeps a worker's KV connector
MAX_TRANSFERS, MAX_PARTS = 1000, 16
ROLES = {"kv_producer": "prefill", "kv_consumer": "decode", "kv_both": "both"}
LEASES = ("_reqs_need_send", "_reqs_to_send")  # {request id: when its lease ends, by perf_counter}, of scheduler and worker


def parts_of(connector: Object) -> list[Object]:
    """A connector, or the parts of one that is made of several."""
    held = at(connector, "_connectors")
    return held.elements(MAX_PARTS) if held is not None and held.isa("list", "tuple") else [connector]


def of_scheduler(rt: Runtime, found: Look, scheduler: Object) -> None:
    """Fills in the data of the scheduler's connector: each request's transfers, and the identity of the instance."""
    connector = at(scheduler, "connector")
    if connector is None:
        return
    sides = [side for part in parts_of(connector) for side in [at(part, "connector_scheduler")] if side is not None]
    found.serves = _connector(scheduler, connector, sides)
    arrived = _names(at(scheduler, "finished_recving_kv_req_ids"))
    for side in sides:
        _leases(rt, side, found)
        offloading.of_scheduler(rt, found, side)
    concerned = (s for s in found.sightings if s.request is not None and (s.parked or s.stage == OUTPUT or not s.ended))
    for sighting in islice(concerned, MAX_TRANSFERS):
        waits = sighting.parked and sighting.waits_for.startswith("transfer")
        if waits:
            sighting.waits_for += f" ({connector.type_name})"
        if sighting.request is not None:
            sighting.request.transfer = waits or sighting.ended and sighting.stage == OUTPUT
        sighting.transfer = _transfer(rt, sighting, found.serves)
        if sighting.transfer is not None and waits and sighting.request_id in arrived:
            sighting.transfer.state = COMPLETION


def _connector(scheduler: Object, connector: Object, sides: list[Object]) -> Connector:
    config = at(scheduler, "vllm_config.kv_transfer_config")
    role = optional(config, "kv_role", "string", "") if config is not None else ""
    found = Connector(connector.type_name, ROLES.get(role, role))
    for side in sides:
        found.engine_id = found.engine_id or optional(side, "engine_id", "string", "")
        host, port = optional(side, "side_channel_host", "string", ""), optional(side, "side_channel_port")
        if host and port:
            found.address = found.address or f"{host}:{port}"
    if config is not None:
        found.engine_id = found.engine_id or optional(config, "engine_id", "string", "")
    return found


def params_of(rt: Runtime, sighting: Sighting) -> dict[str, Any]:
    """The plain values of a request's `kv_transfer_params` (v1/request.py); {} where it has none."""
    params = at(rt.object(sighting.request.address), "kv_transfer_params") if sighting.request is not None else None
    if params is None or not params.isa("dict"):
        return {}
    found: dict[str, Any] = {}
    for key, value in params.items(64):
        if not key.isa("str") or not hasattr(value, "isa"):
            continue
        if value.isa("str"):
            found[key.string(100)] = value.string(1000)
        elif value.isa("int", "bool"):
            found[key.string(100)] = value.integer()
    return found


def _transfer(rt: Runtime, sighting: Sighting, serves: Connector) -> Transfer | None:
    """A request's transfer, by its parameters; None where it has none. A request that is aborted while its KV is received still
    has one: its blocks are written to until that has ended."""
    params = params_of(rt, sighting)
    named, engine, request = (params.get(name) for name in ("transfer_id", "remote_engine_id", "remote_request_id"))
    key = ("transfer", str(named)) if named is not None else ()
    if sighting.ended and (params.get("do_remote_decode") or named is not None and engine is None):
        return Transfer(key or ("request", serves.engine_id, sighting.request_id), True, KEPT)
    if key and params.get("do_remote_decode"):
        return Transfer(key, True)  # it is computed here; its reader waits for that already
    if params.get("do_remote_decode") or engine is None and named is None:
        return None  # as above; its reader is asked only when that has ended
    if not key and request is None:
        return None
    host, port = params.get("remote_host"), params.get("remote_port")
    address = f"{host}:{port}" if host is not None and port is not None else str(params.get("remote_bootstrap_addr", ""))
    return Transfer(key or ("request", str(engine), str(request)), False, "", str(engine or ""), address)


def _names(held: Object | None) -> set[str]:
    """The strings of a set, dict or list."""
    if held is None or not held.isa("set", "dict", "list", "collections.deque"):
        return set()
    members = [k for k, _ in held.items(MAX_TRANSFERS)] if held.isa("dict") else held.elements(MAX_TRANSFERS)
    return {one.string(1000) for one in members if hasattr(one, "isa") and one.isa("str")}


def _leases(rt: Runtime, side: Object, found: Look) -> None:
    """Seconds until each lease ends: perf_counter is one clock for all processes of a machine."""
    now = time.perf_counter()
    for name in LEASES if rt.target.is_live else ():
        held = at(side, name)
        for key, value in held.items(MAX_TRANSFERS) if held is not None and held.isa("dict") else ():
            if key.isa("str") and value.isa("float"):
                found.leases[key.string(1000)] = value.floating() - now


def of_worker(rt: Runtime, found: Look) -> None:
    """Fills in the requests that the worker's side of a KV connector holds in a set, list or dict, its own or that of one of its
    objects. For requests whose KV it receives it also fills in what they wait for."""
    module = rt.module(CONNECTOR)
    try:
        agent = module.item("_KV_CONNECTOR_AGENT") if module is not None else None
    except NotFoundError as e:  # a release that keeps it elsewhere
        log.passed_over(e)
        return
    if agent is None or agent.is_none():
        return
    for part in parts_of(agent):
        for prefix, holder in _holders(part):
            for name, held in holder.fields():
                if hasattr(held, "isa"):
                    found.transfers.update(dict.fromkeys(_names(held), f"{part.type_name}.{prefix}{name}"))
        side = at(part, "connector_worker")
        if side is not None:
            _leases(rt, side, found)
            _receiving(side, found)
            offloading.of_worker(found, side, part.type_name)


def _holders(part: Object) -> Iterator[tuple[str, Object]]:
    yield "", part
    for name, one in part.fields():
        if name.startswith("connector_") and name != "connector_scheduler" and hasattr(one, "fields") and one.type.is_heap:
            yield f"{name}.", one


def _receiving(side: Object, found: Look) -> None:
    """NIXL: a request with metadata and no handle of a posted read waits for the handshake."""
    if not has(side, "_recving_metadata"):
        return
    try:
        for name in _names(at(side, "_recving_metadata")):
            found.receiving[name] = HANDSHAKE
        posted = at(side, "_recving_transfers")
        for key, handles in posted.items(MAX_TRANSFERS) if posted is not None else ():
            if key.isa("str") and handles.len():
                found.receiving[key.string(1000)] = BYTES
    except GdbextError as e:  # it changes while it is read
        log.passed_over(e)
        if found.label and side.rt.target.is_stopped:
            raise
