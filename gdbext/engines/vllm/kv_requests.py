"""The requests of a vLLM V1 scheduler, from memory, and what each one waits for (vllm/v1/core/sched/scheduler.py,
vllm/v1/request.py)."""

from __future__ import annotations

from typing import Iterable

from ... import log
from ...cpython.objects import Object
from ...cpython.runtime import Runtime
from ...errors import GdbextError, NotFoundError
from ...kvcache import waiting
from ...kvcache.model import Cache, Request, Sent
from .. import absences
from ..columns import Records, floats, lengths, strings
from ..objects import at, first_integer, has, numbers_until, optional, tokens
from .paths import FIRST_TOKENS, MAX_REQUESTS, WAITING

REASONS = {  # status -> the object that a request of that status waits for
    "WAITING_FOR_REMOTE_KVS": "transfer: KV blocks from another process",
    "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR": waiting.GRAMMAR,
    "WAITING_FOR_FSM": waiting.GRAMMAR,
    "WAITING_FOR_STREAMING_REQ": "input: the client's next part",
}


def requests_of(rt: Runtime, scheduler: Object, content: bool) -> dict[str, Request]:
    """{request id: Request} of everything the scheduler lists, running first, then as they wait."""
    if not rt.target.is_stopped:
        rt.target.invalidate()  # requests come and go: earlier reads are outdated by now
    places, order = {}, []
    waiting, elsewhere = waiting_in(scheduler)
    for place, addresses in (("running", queued(scheduler.attr("running"))), ("waiting", waiting)):
        for address in addresses:
            if address not in places:
                places[address] = place
                order.append(address)
    deferred, lead = deferred_in(scheduler), lead_of(scheduler)
    for _, address in scheduler.attr("requests").dict_entries(MAX_REQUESTS):
        if address not in places:
            places[address] = ""
            order.append(address)
    found = {}
    for address, request in zip(order, requests_at(rt, order)):
        if content:
            obj = rt.object(address)
            held = (("prompt_token_ids", at(obj, "prompt_token_ids")), ("output_token_ids", at(obj, "_output_token_ids")))
            request.content = tokens(rt, held)
        request.transfer = request.status == "WAITING_FOR_REMOTE_KVS" or request.status.startswith("FINISHED")
        request.lead = lead
        request.queue = places[address] or ("finished" if request.status.startswith("FINISHED") else elsewhere)
        if address in deferred:
            request.queue = "deferred"
        found[request.request_id] = request
    return found


def waiting_in(scheduler: Object) -> tuple[list[int], str]:
    """(addresses of the requests that wait, the queue of one that is in none: "other", or "" where a queue is not there)"""
    queues = [name for name in WAITING if has(scheduler, name)]
    lost = any(name not in queues and not absences.holds_default(scheduler, name) for name in WAITING)
    return [address for name in queues for address in queued(scheduler.attr(name))], "" if lost else "other"


def deferred_in(scheduler: Object) -> set[int]:
    """Addresses of the requests that the scheduler puts off, in releases that do."""
    if not has(scheduler, "deferred_waiting"):
        return set()
    return set(scheduler.attr("deferred_waiting").element_addresses(MAX_REQUESTS))


def lead_of(scheduler: Object) -> int | None:
    """How many tokens a step may compute for a request before it has them; None where a release does not say so."""
    return first_integer(scheduler, (("0.9.0", "num_spec_tokens"), ("0.8.5", "num_lookahead_tokens")))


def queued(queue: Object) -> list[int]:
    """Addresses of the requests of a queue in its order: a deque or list, or a priority queue's heap of requests or (…,
    request)."""
    if queue.isa("collections.deque", "list"):
        return queue.element_addresses(MAX_REQUESTS)
    heap = queue.attr("_heap").elements(MAX_REQUESTS)
    ranked = []
    for entry in heap:
        request = [entry, *entry.elements(8)][-1] if entry.isa("tuple") else entry
        ranked.append((optional(request, "priority") or 0, optional(request, "arrival_time", "floating") or 0.0, request.address))
    return [address for _, _, address in sorted(ranked)]


def requests_at(rt: Runtime, addresses: list[int]) -> list[Request]:
    """The scheduler's requests at some addresses, thousands in one go: names, status and counts, no tokens."""
    if not addresses:
        return []
    records = Records(rt, addresses)
    if records.foreign and not rt.target.is_stopped:
        raise NotFoundError("its requests change while they are read")
    now = rt.target.now()
    prompt, computed, preempted = (
        absences.numbers(records, name, 0) for name in ("num_prompt_tokens", "num_computed_tokens", "num_preemptions")
    )
    pending = absences.numbers(records, "num_output_placeholders", None)
    drafts = lengths(rt, records.column("spec_token_ids")) if records.has("spec_token_ids") else [None] * len(addresses)
    names, states, outputs = (records.column(name) for name in ("request_id", "status", "_output_token_ids"))
    told = now is not None and records.has("arrival_time")  # a release may lack it
    came = floats(rt, records.column("arrival_time")) if told else [0.0] * len(addresses)
    words = {state: optional(rt.object(state), "_name_", "string") or "?" for state in set(states)}
    found = []
    for i, (name, count) in enumerate(zip(strings(rt, names, 1000), lengths(rt, outputs))):
        request = Request(name, words[states[i]], address=addresses[i])
        request.prompt_tokens, request.computed_tokens, request.preemptions = prompt[i], computed[i], preempted[i]
        request.output_tokens, request.in_flight, request.draft_tokens = count, pending[i], drafts[i]
        if now is not None and 0 < came[i] <= now + 3600:
            request.age = max(0.0, now - came[i])
        found.append(request)
    return found


def sent(rt: Runtime, names: Iterable[str], request: Request) -> Sent:
    """What the scheduler sends a worker of a request. `names`: of the sampling parameters that are wanted. Nothing where the
    request has ended meanwhile."""
    try:
        held = rt.object(request.address)
        found = Sent(numbers_until(rt, held.attr("_all_token_ids"), FIRST_TOKENS))
        parameters = at(held, "sampling_params")
        values = dict(parameters.fields()) if parameters is not None else {}
        for name in (name for name in names if name in values):
            plain = values[name].plain() if hasattr(values[name], "plain") else values[name]
            if plain is None or isinstance(plain, (int, float)):
                found.sampling[name] = plain
    except GdbextError as e:
        log.passed_over(e)
        return Sent()
    return found


def explain_waits(cache: Cache) -> None:
    """Fills each waiting request's `blocked_by` in."""
    waiting.explain(cache, ("waiting", "deferred"), REASONS, lambda request: _head_waits(cache, request))


def _head_waits(cache: Cache, request: Request) -> str:
    """What the first request of the queue waits for: a slot, blocks of some group, the step's budget of tokens."""
    count = len(waiting.running(cache))
    slots = cache.limits.get("max_num_active_reqs") or cache.limits.get("max_num_running_reqs")
    if slots and count >= slots:
        return waiting.slots_are_taken(slots)
    if request.prompt_tokens is None or request.computed_tokens is None:
        return ""
    tokens = request.prompt_tokens + (request.output_tokens or 0) - request.computed_tokens
    budget = cache.limits.get("max_num_scheduled_tokens") or tokens
    for group in cache.groups:
        if group.kind == "mamba" or not group.block_size:
            continue
        held = len(request.blocks.get(group.id, ()))
        wanted = -(-(request.computed_tokens + min(tokens, budget)) // group.block_size) - held
        counted, reserve = cache.pools[group.pool].num_free, cache.limits.get("watermark_blocks", 0)
        free = sum(cache.pools[group.pool].free_bits()) if counted is None else counted
        if reserve is None and wanted <= free:
            return ""  # how many are kept back is not known
        reserve = reserve or 0
        if wanted > free - reserve:
            there = f"{free} free" + (f", {reserve} kept back" if reserve else "")
            return waiting.shortage(f"{wanted} of group {group.id}", there, waiting.held_of_group(cache, group.id))
    if count and count >= budget:
        return f"token budget: {count} running requests use the {budget} tokens of a step"
    return waiting.NEXT_STEP
