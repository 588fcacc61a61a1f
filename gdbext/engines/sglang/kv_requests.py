"""The requests of an SGLang scheduler, from memory, and what each one waits for (srt/managers/schedule_batch.py,
scheduler.py)."""

from __future__ import annotations

import array
from typing import Dict, List, Sequence, Tuple

from ... import log
from ...cpython.objects import Object
from ...cpython.runtime import Runtime
from ...errors import FaultError, GdbextError, LayoutError, NotFoundError
from ...kvcache import waiting
from ...kvcache.model import Cache, Pool, Request
from ...torch.tensor import Tensor
from ...torch.tensor_impl import is_tensor, read_tensor
from .. import absences
from ..columns import Records, integers, lengths, strings
from ..objects import Places, address_of_none, first_integer, first_present, is_set, length, numbers, path, tokens
from .paths import BATCHES, FIELDS, GROUP_MAMBA, GROUP_SWA, MAX_REQUESTS, STATES, TRACKED

Owners = Dict[str, Tuple[List[int], Records]]  # {path: (positions of those that have an object there, these objects)}


def requests_of(
    rt: Runtime,
    scheduler: Object,
    pools: dict[str, Pool],
    page: int,
    mapping: list[int] | None,
    content: bool,
    listed: list[Request] | None = None,
) -> list[Request]:
    """The requests that a scheduler lists, running ones first, with their slots. Request times are monotonic or missing, by
    release, so ages are not given. `listed`: they were read before."""
    rows = scheduler.attr("req_to_token_pool").attr("req_to_token")
    table = read_tensor(rt, rows.address)
    if table.shape is None or len(table.shape) != 2 or table.dtype.name != "int32":
        raise LayoutError(f"req_to_token is a {table.dtype.name} tensor of shape {table.shape}")
    requests = _listed(rt, scheduler) if listed is None else listed
    holders = requests if listed is None else _with_rows(rt, listed)
    own = dict.fromkeys(pools, 0)
    for request in holders:
        if request.row is not None:
            _hold(rt, request, table, page)
        if mapping and request.slots is not None:
            _window(request, mapping, page, own)
    for request in _with_states(rt, holders) if "mamba" in pools else ():
        request.blocks[GROUP_MAMBA] = _states(rt, rt.object(request.address))
        own["mamba"] += len(request.blocks[GROUP_MAMBA])
    for request in requests:
        if request.computed_tokens is None:
            request.computed_tokens = request.allocated or 0
        if content:
            obj = rt.object(request.address)
            held = (("prompt_token_ids", obj.attr("origin_input_ids")), ("output_token_ids", obj.attr("output_ids")))
            request.content = tokens(rt, held)
    if "mamba" in pools:
        pools["mamba"].counters["own"] = own["mamba"]
    if "swa" in pools and mapping and all(r.private is not None for r in holders if r.slots is not None):
        pools["swa"].counters["own"] = own["swa"]
    if table.doubt:
        pools["full"].notes.append("req_to_token is on the device: which slots a request holds is not known here")
    return requests


def _listed(rt: Runtime, scheduler: Object) -> list[Request]:
    """The requests of a scheduler's batches and queues."""
    found: dict[int, Request] = {}

    def add(addresses: Sequence[int], queue: str) -> None:
        fresh = [address for address in dict.fromkeys(addresses) if address not in found]
        for address, request in zip(fresh, requests_at(rt, fresh)):
            found[address] = request
            request.queue, request.status = queue, request.status or queue
            if queue == "running" and request.status == "finished" and request.row is None:
                request.queue = "finished"  # in last_batch, its row given back: it has ended

    for queue, name in BATCHES:
        try:
            batch = scheduler.attr(name)
            if not batch.is_none():
                add(batch.attr("reqs").element_addresses(MAX_REQUESTS), queue)
        except (NotFoundError, AttributeError) as e:
            log.passed_over(e)
            continue
    try:
        chunked = scheduler.attr("chunked_req")
        if not chunked.is_none():
            add([chunked.address], "running")
    except NotFoundError as e:
        log.passed_over(e)
    add(scheduler.attr("waiting_queue").element_addresses(MAX_REQUESTS), "waiting")
    for name in ("grammar_queue", "grammar_manager.grammar_queue"):
        try:
            add(path(scheduler, name).element_addresses(MAX_REQUESTS), "grammar")
        except GdbextError as e:
            log.passed_over(e)
            continue
    return list(found.values())


def _with_rows(rt: Runtime, listed: list[Request]) -> list[Request]:
    """Those of some requests that had a row of the table and still have one. The row is read again and filled in: the old one may
    belong to another request now."""
    held = [request for request in listed if request.row is not None]
    try:
        fresh = requests_at(rt, [request.address for request in held])
    except GdbextError as e:
        log.passed_over(e)
        fresh = [one for request in held for one in _still_there(rt, request)]
    rows = {now.request_id: now for now in fresh}
    for request in held:
        now = rows.get(request.request_id)
        request.row, request.allocated = (now.row, now.allocated) if now is not None else (None, None)
    return [request for request in held if request.row is not None]


def _still_there(rt: Runtime, request: Request) -> list[Request]:
    try:
        return requests_at(rt, [request.address])
    except GdbextError as e:
        log.passed_over(e)
        return []


def _window(request: Request, mapping: list[int], page: int, own: dict[str, int]) -> None:
    """The sliding-window pages of a request's tokens: 0 for a token without one."""
    slots = (request.slots or [])[::page]
    if any(not 0 <= s < len(mapping) for s in slots):
        raise LayoutError(f"{request.request_id} holds slots beyond the mapping of {len(mapping)}")
    request.blocks[GROUP_SWA] = [mapping[s] // page for s in slots]
    own["swa"] += page * sum(1 for b in request.blocks[GROUP_SWA][(request.private or 0) // page :] if b)


def _with_states(rt: Runtime, requests: list[Request]) -> list[Request]:
    """The requests that hold any Mamba state."""
    owners: Owners = {}
    records = Records(rt, [request.address for request in requests])
    some = [_pointers(rt, records, places, owners) for places in (STATES, TRACKED)]
    return [request for request, *held in zip(requests, *some) if any(held)]


def _states(rt: Runtime, obj: Object) -> list[int]:
    """Mamba states of a request: its own, and those for tracking."""
    found = []
    for places in (STATES, TRACKED):
        held = first_present(obj, places)
        if held is not None and is_tensor(held):
            tensor = read_tensor(rt, held.address)
            scalar = not tensor.shape and not tensor.doubt
            found += [int.from_bytes(tensor.read_bytes(0, 8), "little")] if scalar else numbers(rt, held) or []
    return [n for n in found if n >= 0]


def requests_at(rt: Runtime, addresses: Sequence[int]) -> list[Request]:
    """The Reqs at some addresses, thousands in one go: names and counts, no tokens. `status`: finished, retracted, or '' where
    its queue is its status."""
    if not addresses:
        return []
    records, none = Records(rt, addresses), address_of_none(rt)
    prompts, outputs = (_lengths(rt, records.column(name)) for name in ("origin_input_ids", "output_ids"))
    reasons = records.column("finished_reason")
    retracted, retractions = (absences.numbers(records, name, 0) for name in ("is_retracted", "retraction_count"))
    owners: Owners = {}
    rows, allocated, committed = (_integers(rt, records, FIELDS[key], owners) for key in ("row", "allocated", "committed"))
    found = []
    for i, name in enumerate(strings(rt, records.column("rid"), 1000)):
        status = "finished" if reasons[i] not in (0, none) else "retracted" if retracted[i] else ""
        preempted = None if None in (retracted[i], retractions[i]) else retractions[i] or retracted[i]
        request = Request(name, status, address=addresses[i], preemptions=preempted)
        request.prompt_tokens, request.output_tokens = prompts[i], outputs[i]
        request.row, request.allocated, request.computed_tokens = rows[i], allocated[i], committed[i]
        found.append(request)
    return found


def _lengths(rt: Runtime, pointers: list[int]) -> list[int | None]:
    """How many numbers each of some tensors, lists, tuples or arrays holds; None where it is not set."""
    held = [p for p in pointers if p]
    if held and is_tensor(rt.object(held[0])):
        return [length(rt, rt.object(p)) if p else None for p in pointers]
    known = iter(lengths(rt, held))
    return [next(known) if p else None for p in pointers]


def _integers(rt: Runtime, records: Records, places: Places, owners: Owners) -> list[int | None]:
    """As `first_integer`, of many objects."""
    pointers = _pointers(rt, records, places, owners)
    held = [p for p in pointers if p]
    try:
        values: list[int | None] = list(integers(rt, held))
    except FaultError:
        raise
    except GdbextError as e:  # some are numbers of another kind
        log.passed_over(e)
        values = [_integer(rt.object(p)) for p in held]
    known = iter(values)
    return [next(known) if p else None for p in pointers]


def _integer(obj: Object) -> int | None:
    try:
        return int(obj.integer())
    except GdbextError as e:
        log.passed_over(e)
        return None


def _pointers(rt: Runtime, records: Records, places: Places, owners: Owners) -> list[int]:
    """As `first_present`, of many objects: addresses, 0 for none. `owners`: the owners of members of the objects, filled here."""
    found, none = [0] * len(records.addresses), address_of_none(rt)
    for _, text in places:
        owner, _, name = text.rpartition(".")
        if owner not in owners:
            held = records.column(owner) if owner and records.has(owner) else [] if owner else records.addresses
            set_in = [i for i, p in enumerate(held) if p not in (0, none)]
            owners[owner] = set_in, Records(rt, [held[i] for i in set_in]) if owner else records
        set_in, holders = owners[owner]
        if holders.has(name):
            for i, pointer in zip(set_in, holders.column(name)):
                if pointer != none:
                    found[i] = found[i] or pointer
    return found


def _hold(rt: Runtime, request: Request, table: Tensor, page: int) -> None:
    """Fills in the tokens and slots of a request that has a row of the table."""
    obj = rt.object(request.address)
    if request.allocated is None:  # before 0.5.6: all of it but the token just sampled
        request.allocated = (request.prompt_tokens or 0) + max(0, (request.output_tokens or 0) - 1)
    request.private = first_integer(obj, FIELDS["protected"])
    if request.private is None and is_set(obj, "prefix_indices"):  # before 0.5.6: whole pages of the prefix
        request.private = length(rt, obj.attr("prefix_indices")) // page * page
    if request.allocated and not table.doubt:
        shape, row = table.shape or (0, 0), request.row
        if row is None or not 0 <= row < shape[0] or request.allocated > shape[1]:
            raise LayoutError(
                f"{request.request_id} claims row {row} with {request.allocated} tokens of a table of {list(shape)}"
            )
        slots = array.array("i")
        slots.frombytes(table.read_bytes(row * (table.stride or (0,))[0] * 4, 4 * request.allocated))
        request.slots = slots.tolist()
        request.blocks[0] = request.slots if page == 1 else list(dict.fromkeys(s // page for s in request.slots))


def explain_waits(cache: Cache) -> None:
    """Fills each waiting request's `blocked_by` in."""
    pool = cache.pools[0]

    def head_waits(request: Request) -> str:
        count, limit = len(waiting.running(cache)), cache.limits.get("max_running_requests")
        need = (request.prompt_tokens or 0) + (request.output_tokens or 0)
        cached = pool.counters.get("evictable") or pool.counters.get("cached", 0) * pool.block_size
        free = pool.counters.get("available", 0) + cached
        if (limit and count >= limit) or (cache.rows and not cache.rows["free"]):
            return f"request slots: {count} run, {limit} may"
        if need > free:
            held = {r.request_id: len(r.slots or ()) for r in waiting.running(cache)}
            return waiting.shortage(f"{need} tokens", f"{free} free or evictable", held)
        return waiting.NEXT_STEP

    waiting.explain(cache, ("waiting",), {"grammar": waiting.GRAMMAR}, head_waits)
