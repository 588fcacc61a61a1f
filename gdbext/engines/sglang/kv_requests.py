"""The requests of an SGLang scheduler out of memory, and what each one waits for (srt/managers/schedule_batch.py,
scheduler.py)."""

from __future__ import annotations

import array

from ...errors import GdbextError, LayoutError, NotFoundError
from ...kvcache import waiting
from ...kvcache.model import Request
from ...torch.tensor_impl import is_tensor, read_tensor
from ..objects import first_integer, first_present, is_set, length, numbers, optional, path, tokens
from .paths import BATCHES, FIELDS, GROUP_MAMBA, GROUP_SWA, MAX_REQUESTS, STATES, TRACKED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence

    from ...cpython.objects import Object
    from ...cpython.runtime import Runtime
    from ...kvcache.model import Cache, Pool
    from ...torch.tensor import Tensor


def requests_of(
    rt: Runtime, scheduler: Object, pools: Dict[str, Pool], page: int, mapping: Optional[List[int]], content: bool
) -> List[Request]:
    """The requests that a scheduler lists, those that run first. Request times are monotonic or missing, by release: ages are
    not told."""
    rows = scheduler.attr("req_to_token_pool").attr("req_to_token")
    table = read_tensor(rt, rows.address)
    if table.shape is None or len(table.shape) != 2 or table.dtype.name != "int32":
        raise LayoutError(f"req_to_token is a {table.dtype.name} tensor of shape {table.shape}")
    own = dict.fromkeys(pools, 0)
    found: Dict[int, Request] = {}

    def add(addresses: Sequence[int], queue: str) -> None:
        for address in addresses:
            if address in found:
                continue
            request = found[address] = _request(rt, rt.object(address), queue, table, page, content)
            if mapping and request.slots is not None:
                _window(request, mapping, page, own)
            if "mamba" in pools:
                request.blocks[GROUP_MAMBA] = _states(rt, rt.object(address))
                own["mamba"] += len(request.blocks[GROUP_MAMBA])

    for queue, name in BATCHES:
        try:
            batch = scheduler.attr(name)
            if not batch.is_none():
                add(batch.attr("reqs").element_addresses(MAX_REQUESTS), queue)
        except (NotFoundError, AttributeError):
            continue
    try:
        chunked = scheduler.attr("chunked_req")
        if not chunked.is_none():
            add([chunked.address], "running")
    except NotFoundError:
        pass
    add(scheduler.attr("waiting_queue").element_addresses(MAX_REQUESTS), "waiting")
    for name in ("grammar_queue", "grammar_manager.grammar_queue"):
        try:
            add(path(scheduler, name).element_addresses(MAX_REQUESTS), "grammar")
        except GdbextError:
            continue
    for what in ("swa", "mamba"):
        if what in pools and (mapping or what == "mamba"):
            pools[what].counters["own"] = own[what]
    if table.unavailable:
        pools["full"].notes.append("req_to_token is on the device: which slots a request holds is not known here")
    requests = list(found.values())
    for request in requests:  # in last_batch, its row given back: it has ended
        if request.queue == "running" and request.status == "finished" and request.row is None:
            request.queue = "finished"
    return requests


def _window(request: Request, mapping: List[int], page: int, own: Dict[str, int]) -> None:
    """The sliding-window pages of a request's tokens: 0 where it has none any more."""
    slots = request.slots[::page]
    if any(not 0 <= s < len(mapping) for s in slots):
        raise LayoutError(f"{request.request_id} holds slots beyond the mapping of {len(mapping)}")
    request.blocks[GROUP_SWA] = [mapping[s] // page for s in slots]
    own["swa"] += page * sum(1 for b in request.blocks[GROUP_SWA][(request.private or 0) // page :] if b)


def _states(rt: Runtime, obj: Object) -> List[int]:
    """Mamba states of a request: its own, and those in which it keeps track."""
    found = []
    for places in (STATES, TRACKED):
        held = first_present(obj, places)
        if held is not None and is_tensor(held):
            tensor = read_tensor(rt, held.address)
            found += (numbers(rt, held) or []) if tensor.shape else [int.from_bytes(rt.target.read(tensor.data_ptr, 8), "little")]
    return [n for n in found if n >= 0]


def _request(rt: Runtime, obj: Object, queue: str, table: Tensor, page: int, content: bool) -> Request:
    request = Request(obj.attr("rid").string(1000), queue=queue, address=obj.address)
    request.row = first_integer(obj, FIELDS["row"])
    prompt, output = obj.attr("origin_input_ids"), obj.attr("output_ids")
    request.prompt_tokens, request.output_tokens = length(rt, prompt), length(rt, output)
    request.allocated = first_integer(obj, FIELDS["allocated"])
    committed = first_integer(obj, FIELDS["committed"])
    if request.row is not None and request.allocated is None:  # before 0.5.6: all of it but the token just sampled
        request.allocated = request.prompt_tokens + max(0, request.output_tokens - 1)
    request.computed_tokens = committed if committed is not None else request.allocated or 0
    request.private = first_integer(obj, FIELDS["protected"])
    if (
        request.private is None and request.row is not None and is_set(obj, "prefix_indices")
    ):  # before 0.5.6: whole pages of the prefix
        request.private = length(rt, obj.attr("prefix_indices")) // page * page
    finished = is_set(obj, "finished_reason")
    retracted = bool(optional(obj, "is_retracted", default=0))
    request.status = "finished" if finished else "retracted" if retracted else queue
    request.preemptions = optional(obj, "retraction_count", default=0) or int(retracted)
    if request.row is not None and request.allocated and not table.unavailable:
        if not 0 <= request.row < table.shape[0] or request.allocated > table.shape[1]:
            raise LayoutError(
                f"{request.request_id} claims row {request.row} with {request.allocated} tokens of a table of {list(table.shape)}"
            )
        slots = array.array("i")
        at = table.data_ptr + request.row * table.stride[0] * 4
        slots.frombytes(rt.target.read(at, 4 * request.allocated))
        request.slots = slots.tolist()
        request.blocks[0] = request.slots if page == 1 else list(dict.fromkeys(s // page for s in request.slots))
    if content:
        request.content = tokens(rt, (("prompt_token_ids", prompt), ("output_token_ids", output)))
    return request


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
