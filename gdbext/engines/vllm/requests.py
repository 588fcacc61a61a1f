"""Where vLLM V1 has its requests, process by process: a front end's output processor, the engine core's input thread and queue,
the scheduler's queues, a worker's batch (vllm/v1/engine/output_processor.py, core.py, vllm/v1/core/sched/scheduler.py,
vllm/v1/worker/gpu_input_batch.py).

Requests carry two ids since 0.12: the user's (`external_req_id`) and the engine's own, made from it. Prompts are not read.
"""

from __future__ import annotations

import time

from ...errors import GdbextError
from ...kvcache.model import Request
from ..objects import at, has, in_frames, in_tasks, optional, thread_in
from ..sightings import FRONTEND, INPUT, OUTPUT, QUEUE, RUNNING, WORKER, Keeper, Look, Sighting
from .kv import find_scheduler, version
from .kv_requests import REASONS, queued, requests_at
from .paths import MAX_REQUESTS, WAITING, WORKER_ROOTS, known

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

    from ...cpython.objects import Object
    from ...cpython.runtime import Runtime
    from ..rank import Rank

PROCESSORS = {  # objects that a frame or a task may hold -> the path from there to the output processor
    "AsyncLLM": "output_processor",
    "LLMEngine": "output_processor",
    "LLM": "llm_engine.output_processor",
    "OutputProcessor": "",
}
CORES = {  # ... to the process that has an input queue
    "EngineCoreProc": "",
    "DPEngineCoreProc": "",
}
INPUT_THREAD, OUTPUT_THREAD, LOOP = "process_input_sockets", "process_output_sockets", "run_busy_loop"
RESTING = ("process_input_sockets", "process_output_sockets", "poll", "_poll", "get", "wait", "recv_multipart")
RUNS = "RUNNING"


def look(rt: Runtime, rank: Rank) -> Look:
    """What one process says of its requests. Parts that it does not have are not among `parts`."""
    found = Look(rank.label, rank.pid, rank.role, engine="vllm", version=version(rt))
    if rank.role in ("frontend", "api-server", "engine-core"):
        _part(found, "frontend", lambda: _front_end(rt, found))
    if rank.role in ("frontend", "engine-core"):
        _part(found, "scheduler", lambda: _scheduler(rt, found))
    if rank.role == "worker":
        _part(found, "worker", lambda: _worker(rt, found))
    return found


def _part(found: Look, name: str, read: object) -> None:
    """Reads one part; what cannot be read is a note."""
    try:
        if read():  # type: ignore[operator]
            found.parts += (name,)
    except GdbextError as e:
        found.notes.append(f"{found.label}: its {name} was not read: {e}")


# ---- front end -------------------------------------------------------------------------------------------------------------
def _front_end(rt: Runtime, found: Look) -> bool:
    """The requests whose answer somebody awaits here."""
    processor = in_frames(rt, PROCESSORS) or in_tasks(rt, PROCESSORS)
    if processor is None:
        return False
    now = time.time() if rt.target.is_live else None
    for key, state in processor.attr("request_states").items(MAX_REQUESTS):
        stats = at(state, "stats")
        generated = optional(stats, "num_generation_tokens", default=0) if stats is not None else 0
        arrival = optional(stats, "arrival_time", "floating") if stats is not None else None
        queue = at(state, "queue")
        unread = queue is not None and at(queue, "output") is not None
        sighting = Sighting(key.string(1000), FRONTEND, "answered, not read yet" if unread else "awaited")
        sighting.external_id = optional(state, "external_req_id", "string", "") or ""
        sighting.progress = (generated, optional(state, "is_prefilling", "boolean", False))
        if now is not None and arrival and 0 < arrival <= now + 3600:
            sighting.age = max(0.0, now - arrival)
        found.sightings.append(sighting)
    return True


# ---- engine core -----------------------------------------------------------------------------------------------------------
def _scheduler(rt: Runtime, found: Look) -> bool:
    """The scheduler's queues, and what stands before and behind them."""
    scheduler = find_scheduler(rt)
    if scheduler is None or at(scheduler, "block_manager") is not None:
        return False
    main = thread_in(rt, LOOP)
    if main is not None:
        found.keepers[QUEUE] = found.keepers[RUNNING] = Keeper("main", main.tid)
    total, block_size = _capacity(scheduler)
    running = scheduler.attr("running").element_addresses(MAX_REQUESTS)
    waiting = [a for name in WAITING if has(scheduler, name) for a in queued(rt, scheduler.attr(name))]
    rest = [a for _, a in scheduler.attr("requests").dict_entries(MAX_REQUESTS)]
    listed, stages = [], {}
    for stage, addresses in ((RUNNING, running), (QUEUE, waiting), ("", rest)):
        for address in addresses:
            if address not in stages:
                stages[address] = stage
                listed.append(address)
    for address, request in zip(listed, requests_at(rt, listed)):
        _scheduled(found, request, stages[address], total, block_size)
    found.counters["scheduler steps"] = optional(scheduler, "current_step", default=0)
    core = in_frames(rt, CORES)
    if core is not None:
        _around(rt, found, core)
    return True


def _scheduled(found: Look, request: Request, stage: str, total: Optional[int], block_size: int) -> None:
    """Adds a request of the scheduler's."""
    ended = request.status.startswith("FINISHED")
    if ended and not stage:
        stage = OUTPUT  # its blocks may still be sent to another process
    request.queue = "running" if stage == RUNNING else "finished" if ended else "waiting"
    sighting = Sighting(request.request_id, stage or QUEUE, request.status, request=request, age=request.age, ended=ended)
    sighting.progress = (request.computed_tokens or 0, request.output_tokens or 0, request.preemptions)
    reason = REASONS.get(request.status)
    if reason:
        sighting.waits_for, sighting.parked = reason, not reason.startswith("input")
    tokens = (request.prompt_tokens or 0) + (request.output_tokens or 0)
    if total is not None and block_size and -(-tokens // block_size) > total and not ended:
        sighting.never_fits = True
        sighting.waits_for = f"{-(-tokens // block_size)} blocks for its {tokens} tokens, where there are {total} in all"
    found.sightings.append(sighting)


def _capacity(scheduler: Object) -> Tuple[Optional[int], int]:
    """(blocks that one request could have at most, tokens of a block); (None, 0) for models whose layers do not all keep every
    token."""
    manager = known(scheduler, "manager")
    single = known(manager, "managers") if manager is not None else None
    if manager is None:
        return None, 0
    kinds = [one.attr("kv_cache_spec").type_name for one in single.elements(100)] if single is not None else []
    if any(kind not in ("FullAttentionSpec", "MLAAttentionSpec") for kind in kinds):
        return None, 0
    pool = known(manager, "pool") or manager
    count = optional(pool, "num_gpu_blocks")
    size = optional(single.item(0), "block_size") if single is not None and single.len() else optional(manager, "block_size")
    return (count - 1 if count else None), size or 0


def _around(rt: Runtime, found: Look, core: Object) -> None:
    """What waits in the core's queues, and its threads that fill and empty them."""
    for stage, function in ((INPUT, INPUT_THREAD), (OUTPUT, OUTPUT_THREAD)):
        found.keepers[stage] = _keeper(rt, function)
    for stage, name in ((INPUT, "input_queue"), (OUTPUT, "output_queue")):
        items = at(core, f"{name}.queue")
        for item in items.elements(MAX_REQUESTS) if items is not None else ():
            for request_id, external in _ids_of(item):
                found.sightings.append(Sighting(request_id, stage, name.replace("_", " "), external))
    thread = thread_in(rt, INPUT_THREAD)
    frame = next((f for f in rt.frames(thread) if f.function.rpartition(".")[2] == INPUT_THREAD), None) if thread else None
    held = dict(frame.locals()).get("req") if frame is not None and found.keepers[INPUT].stands else None
    if thread is not None and held is not None and at(held, "request_id") is not None:
        request_id = held.attr("request_id").string(1000)
        if not any(s.request_id == request_id and s.stage != FRONTEND for s in found.sightings):
            external = optional(held, "external_req_id", "string", "") or ""
            found.sightings.append(Sighting(request_id, INPUT, "in the hands of its input thread", external, tid=thread.tid))


def _keeper(rt: Runtime, function: str) -> Keeper:
    """The thread that runs a function, and where it stands when it does not rest."""
    thread = thread_in(rt, function)
    if thread is None:
        return Keeper(function, None)
    frames = [f for f in rt.frames(thread) if "/threading.py" not in f.file]
    inner = frames[0] if frames else None
    rests = inner is None or inner.function.rpartition(".")[2] in RESTING
    return Keeper(
        function, thread.tid, "" if rests or inner is None else f"{inner.function} ({inner.file.rpartition('/')[2]}:{inner.line})"
    )


def _ids_of(item: Object) -> List[Tuple[str, str]]:
    """[(request id, user's id)] of an item of a core's queue: (type, (Request, …)), or (client, EngineCoreOutputs)."""
    found = []
    try:
        value = item.item(1)
        if value.isa("tuple") and value.len():
            value = value.item(0)
        outputs = at(value, "outputs")
        for one in outputs.elements(MAX_REQUESTS) if outputs is not None else [value]:
            if at(one, "request_id") is not None:
                found.append((one.attr("request_id").string(1000), optional(one, "external_req_id", "string", "") or ""))
    except GdbextError:
        return found
    return found


# ---- worker ----------------------------------------------------------------------------------------------------------------
def _worker(rt: Runtime, found: Look) -> bool:
    """The requests of a worker's batch."""
    runner = in_frames(rt, WORKER_ROOTS)
    batch = at(runner, "input_batch") if runner is not None else None
    ids = known(batch, "request ids") if batch is not None else None
    if ids is None:
        return False
    names = [one.string(1000) for one in ids.elements(MAX_REQUESTS) if not one.is_none()]
    found.sightings += [Sighting(name, WORKER, "in the batch") for name in names]
    return True
