"""Where vLLM V1 has its requests, process by process: a front end's output processor, the engine core's input thread and queue,
the scheduler's queues, a worker's batch.

Requests carry two ids since 0.12: the user's (`external_req_id`) and the engine's own, made from it. Prompts are not read.
Sources: vllm/v1/engine/output_processor.py, core.py, vllm/v1/core/sched/scheduler.py, vllm/v1/worker/gpu_input_batch.py,
gpu/states.py.
"""

from __future__ import annotations

from typing import Callable

from ... import log
from ...cpython.frames import PyFrame
from ...cpython.objects import Object
from ...cpython.runtime import PyThread, Runtime
from ...cpython.tasks import tasks_at
from ...errors import GdbextError, NotFoundError
from ...kvcache import waiting
from ...kvcache.model import Request
from ...observe.observer import thread_sample
from .. import shm_rings
from ..batches import read_in_batches
from ..columns import Records, floats, strings
from ..keepers import inside, keeper_in, loop_keeper
from ..objects import at, counted, has, in_frames, in_tasks, optional, thread_in
from ..sightings import FRONTEND, INPUT, OUTPUT, QUEUE, RUNNING, WORKER, Keeper, Look, Sighting
from ..spec import COMMUNICATORS
from . import kv_worker_v2, transfers, waves
from .kv import STEP_COUNTER, find_scheduler
from .kv_requests import REASONS, deferred_in, lead_of, queued, requests_at, waiting_in
from .paths import MAX_REQUESTS, WORKER_ROOTS, known

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..rank import Rank

CLIENTS = {  # objects that a frame or a task may hold -> the path from there to an output processor or its owner
    "AsyncLLM": "",
    "LLMEngine": "",
    "LLM": "llm_engine",
    "OutputProcessor": "",
}
CORES = {  # ... to the process that has an input queue
    "EngineCoreProc": "",
    "DPEngineCoreProc": "",
}
INPUT_THREAD, OUTPUT_THREAD, LOOP = "process_input_sockets", "process_output_sockets", "run_busy_loop"
TURNING = (INPUT_THREAD, OUTPUT_THREAD, LOOP, "worker_busy_loop")
RESTING = ("process_input_sockets", "process_output_sockets", "poll", "_poll", "get", "wait", "recv_multipart")
HANDLER = "output_handler"  # the task of AsyncLLM that takes answers in
MEETS, DEEP = ("torch/distributed/distributed_c10d.py", *COMMUNICATORS), 6  # files of a worker's innermost frames among ranks
PAUSED_ALL = 2  # v1/core/sched/interface.py, PauseState: 1 keeps new requests back, 2 all
PAUSED, SLEEPS = "the engine, which is paused: /resume lets it go on", "the engine, which sleeps: /wake_up lets it go on"
LAUNCHER = "wait_for_completion_or_failure"  # of `vllm serve` itself when its API servers are processes of their own
COMPILER = "_create_grammar"  # v1/structured_output/__init__.py


def look(rt: Runtime, rank: Rank) -> Look:
    """The requests of one process. Parts that it does not have are not among `parts`."""
    found = Look(rank.label, rank.pid, rank.role, engine="vllm")
    found.replica = getattr(rank, "ranks", {}).get("dp")
    if rank.role == "coordinator":
        found.in_step = waves.of_coordinator(rt)
        return found
    if rank.role in ("frontend", "api-server", "engine-core"):
        found.start = waves.awaited(rt) if rank.role != "engine-core" else None
        if found.start is not None:
            return found  # it serves nothing yet
        _part(found, "frontend", lambda: _front_end(rt, found))
    if rank.role in ("frontend", "engine-core"):
        _part(found, "scheduler", lambda: _scheduler(rt, found))
    if rank.role == "worker":
        _part(found, "worker", lambda: _worker(rt, found))
    elif "scheduler" in found.parts:
        _part(found, "worker", lambda: _batch(rt, found))
    return found


def _part(found: Look, name: str, read: Callable[[], object]) -> None:
    """Reads one part; a failure is a note."""
    try:
        if read():
            found.parts += (name,)
    except GdbextError as e:
        found.notes.append(f"{found.label}: its {name} was not read: {e}")


# ---- front end -------------------------------------------------------------------------------------------------------------
def _front_end(rt: Runtime, found: Look) -> bool:
    """The requests whose answers are awaited here. `NotFoundError` where a process that should have some has none: it is read
    while it runs."""
    client = in_frames(rt, CLIENTS) or in_tasks(rt, CLIENTS)
    if client is None:
        if found.role == "api-server" and thread_in(rt, LAUNCHER) is None:
            raise NotFoundError("no output processor in its frames and tasks")
        return False
    processor = client if client.type_name == "OutputProcessor" else client.attr("output_processor")
    given = {}
    if client.type_name == "AsyncLLM":
        resources = at(client, "engine_core.resources")
        if resources is not None and optional(resources, "engine_dead", "boolean", False):
            found.broken = "its engine core has died"
        found.keepers[FRONTEND], found.keepers[OUTPUT] = _output_handler(rt, client)
        sent = at(client, "engine_core.reqs_in_flight")  # data parallel: the engine that it was sent to
        pairs = sent.items(MAX_REQUESTS) if sent is not None else []
        given = {name.string(1000): int.from_bytes(number.raw_bytes(8), "little") for name, number in pairs}
    states = processor.attr("request_states")
    rt.target.drop_pages()
    listed = states.dict_entries(MAX_REQUESTS)
    for sighting in read_in_batches(rt, listed, lambda: states.dict_entries(MAX_REQUESTS), lambda some: _awaited(rt, some)):
        sighting.replica = given.get(sighting.request_id)
        found.sightings.append(sighting)
    return True


def _awaited(rt: Runtime, entries: list[tuple[int, int]]) -> list[Sighting]:
    """The requests of an output processor's `request_states`, thousands in one go. `entries`: addresses of ids and states."""
    states = Records(rt, [state for _, state in entries])
    if entries and (states.type.name != "RequestState" or states.foreign):
        raise NotFoundError("its requests change while they are read")  # the memory of their table is another dict's by now
    stats, queues, externals = (_members(rt, states, name) for name in ("stats", "queue", "external_req_id"))
    prefills = states.integers("is_prefilling", 0) if states.has("is_prefilling") else []
    generated = stats.integers("num_generation_tokens", 0) if stats.has("num_generation_tokens") else []
    arrivals = floats(rt, stats.column("arrival_time")) if stats.has("arrival_time") else []
    outputs = queues.column("output") if queues.has("output") else []
    empty = {address for address in set(outputs) if rt.object(address).is_none()}
    users = strings(rt, externals.addresses, 1000)
    now, found = rt.target.now(), []
    for i, name in enumerate(strings(rt, [key for key, _ in entries], 1000)):
        unread = bool(outputs) and outputs[i] not in empty
        sighting = Sighting(name, FRONTEND, "answered, not read yet" if unread else "awaited")
        sighting.external_id = users[i] if users else ""
        sighting.progress = (generated[i] if generated else 0, bool(prefills and prefills[i]))
        if now is not None and arrivals and 0 < arrivals[i] <= now + 3600:
            sighting.age = max(0.0, now - arrivals[i])
        found.append(sighting)
    return found


def _members(rt: Runtime, states: Records, name: str) -> Records:
    """The values of a member of all objects; none where a release lacks it, or where it is None in some."""
    held = Records(rt, states.column(name) if states.has(name) else [])
    kinds = {rt.object(held.addresses[i]).type_name for i in held.foreign} | ({held.type.name} if held.addresses else set())
    if len(kinds) > 1 and "NoneType" not in kinds:
        raise NotFoundError("its requests change while they are read")
    return held if len(kinds) == 1 and "NoneType" not in kinds else Records(rt, [])


def _output_handler(rt: Runtime, client: Object) -> tuple[Keeper, Keeper]:
    """The event loop of AsyncLLM, and its task that takes answers in: it has ended, or is in the same state as its loop."""
    task = at(client, HANDLER)
    known = tasks_at(rt, [task.address])[0] if task is not None else None
    found = loop_keeper(rt, HANDLER, known.loop if known is not None else 0)
    ended = known is not None and known.error is None and known.state in ("done", "cancelled")
    return found, Keeper(HANDLER, None, kind="task") if ended else found


# ---- engine core -----------------------------------------------------------------------------------------------------------
def _scheduler(rt: Runtime, found: Look) -> bool:
    """The scheduler's queues, and the stages before and behind them."""
    scheduler = find_scheduler(rt)
    if scheduler is None or at(scheduler, "block_manager") is not None:
        return False
    main = thread_in(rt, LOOP)
    if main is not None:
        found.keepers[QUEUE] = found.keepers[RUNNING] = _worker_at(rt, main)
    total, block_size = _capacity(scheduler)
    running = scheduler.attr("running").element_addresses(MAX_REQUESTS)
    waiting, elsewhere = waiting_in(scheduler)
    rest = [a for _, a in scheduler.attr("requests").dict_entries(MAX_REQUESTS)]
    deferred = deferred_in(scheduler)
    stages: dict[int, str] = {}
    for stage, addresses in ((RUNNING, running), (QUEUE, waiting), ("", rest)):
        for address in addresses:
            stages.setdefault(address, stage)

    def members() -> set[int]:
        return {a for _, a in scheduler.attr("requests").dict_entries(MAX_REQUESTS)}

    lead = lead_of(scheduler)
    for request in read_in_batches(rt, list(stages), members, lambda some: requests_at(rt, some)):
        request.lead = lead
        _scheduled(found, request, stages[request.address], total, block_size, elsewhere)
        if request.address in deferred:
            request.queue = "deferred"
    core = in_frames(rt, CORES)
    _paused(found, scheduler, core)
    _parked(rt, found)
    _short(found, scheduler, block_size)
    transfers.of_scheduler(rt, found, scheduler)
    transfers.of_worker(rt, found)
    found.counters.update(counted(rt, scheduler, {"scheduler steps": STEP_COUNTER}))
    if core is not None:
        found.in_step = waves.of_core(core)
        _around(rt, found, core)
    return True


def _scheduled(found: Look, request: Request, stage: str, total: int | None, block_size: int, elsewhere: str) -> None:
    """Adds a request of the scheduler's. `elsewhere`: the queue of one that is in none."""
    ended = request.status.startswith("FINISHED")
    if ended and not stage:
        stage = OUTPUT  # its blocks may still be sent to another process
    request.queue = "running" if stage == RUNNING else "finished" if ended else "waiting" if stage else elsewhere
    sighting = Sighting(request.request_id, stage or QUEUE, request.status, request=request, age=request.age, ended=ended)
    sighting.progress = (request.computed_tokens or 0, request.output_tokens or 0, request.preemptions or 0)
    reason = REASONS.get(request.status)
    if reason:
        sighting.waits_for, sighting.parked = reason, not reason.startswith("input")
    tokens = (request.prompt_tokens or 0) + (request.output_tokens or 0)
    if total is not None and block_size and -(-tokens // block_size) > total and not ended:
        sighting.never_fits = True
        sighting.waits_for = f"{-(-tokens // block_size)} blocks for its {tokens} tokens, where there are {total} in all"
    found.sightings.append(sighting)


def _paused(found: Look, scheduler: Object, core: Object | None) -> None:
    """Parks the requests that the engine's user keeps from being scheduled: by a pause, or a sleep."""
    state = optional(scheduler, "_pause_state", default=0)
    if not state:
        return
    executor = at(core, "model_executor") if core is not None else None
    asleep = executor is not None and _sleeps(executor)
    holding = scheduler.attr("kv_holding_waiting") if has(scheduler, "kv_holding_waiting") else None
    go_on = set(queued(holding)) if holding is not None else set()  # with blocks already: a pause of new requests lets them end
    for sighting in found.sightings:
        mine = sighting.stage == QUEUE and sighting.request is not None and sighting.request.address not in go_on
        if not sighting.ended and (mine or sighting.stage in (QUEUE, RUNNING) and state == PAUSED_ALL):
            sighting.pause(SLEEPS if asleep else PAUSED)


def _sleeps(executor: Object) -> bool:
    """Whether an executor's workers have given their memory away: a flag of it, or the tags that are asleep."""
    tags = at(executor, "sleeping_tags")
    return bool(optional(executor, "is_sleeping", "boolean", False) or tags is not None and tags.isa("set") and tags.len())


def _capacity(scheduler: Object) -> tuple[int | None, int]:
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
    """The requests that wait in the core's queues, and its threads that fill and empty them."""
    for stage, function in ((INPUT, INPUT_THREAD), (OUTPUT, OUTPUT_THREAD)):
        found.keepers[stage] = keeper_in(rt, function, function, _rests, _turns)
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
            found.sightings.append(Sighting(request_id, INPUT, "held by its input thread", external, tid=thread.tid))


def _short(found: Look, scheduler: Object, block_size: int) -> None:
    """Fills in the blocks that the first request of the queue waits for, if it waits for blocks."""
    head = next((s for s in found.sightings if s.stage == QUEUE and not s.ended and not s.parked and not s.waits_for), None)
    manager = known(scheduler, "manager") if head is not None and block_size else None
    pool = (known(manager, "pool") or manager) if manager is not None else None
    queue = at(pool, "free_block_queue") if pool is not None else None
    free = optional(queue, "num_free_blocks") if queue is not None else None
    total = optional(pool, "num_gpu_blocks") if pool is not None else None
    if head is None or head.request is None or free is None or total is not None and not 0 <= free <= total:
        return
    tokens = (head.request.prompt_tokens or 0) + (head.request.output_tokens or 0)
    wanted = -(-min(tokens, optional(scheduler, "max_num_scheduled_tokens") or tokens) // block_size)
    if wanted > free:
        held = {s.request_id: -(-s.progress[0] // block_size) for s in found.sightings if s.stage == RUNNING or s.ended}
        head.waits_for = waiting.shortage(f"{wanted}", f"{free} free", held)
        for sighting in found.sightings:
            if sighting.stage == QUEUE and sighting.parked:
                sighting.holds = _held(manager, sighting.request_id)


def _held(manager: Object | None, request_id: str) -> int:
    """The number of blocks that a request has in the tables of all groups."""
    single = known(manager, "managers") if manager is not None else None
    owners = single.elements(100) if single is not None else [manager] if manager is not None else []
    count = 0
    for owner in owners:
        with log.passing_over(NotFoundError):  # it has none
            count += owner.attr("req_to_blocks").item(request_id).len()
    return count


def _parked(rt: Runtime, found: Look) -> None:
    """Fills in the thread that parked requests wait for: one that compiles a grammar."""
    parked = [s for s in found.sightings if s.parked]
    if any(s.waits_for == waiting.GRAMMAR for s in parked):
        compiling = _compilers(rt)
        for s in (s for s in parked if s.waits_for == waiting.GRAMMAR):
            s.keeper = compiling.get(s.request_id)
            if s.keeper is None and compiling:
                s.after = tuple(compiling)
                s.waits_for = f"grammar: it waits for a compiling thread; they compile those of {', '.join(compiling)}"


def _compilers(rt: Runtime) -> dict[str, Keeper]:
    """{request id: the thread that compiles its grammar}"""
    found = {}
    for thread in rt.threads():
        frames = rt.frames(thread)
        frame = next((f for f in frames if f.function.rpartition(".")[2] == COMPILER), None)
        request = dict(frame.locals()).get("request") if frame is not None else None
        if request is not None and at(request, "request_id") is not None:
            found[request.attr("request_id").string(1000)] = Keeper(COMPILER, thread.tid, _where(frames[0]))
    return found


def _worker_at(rt: Runtime, thread: PyThread) -> Keeper:
    """The main thread of a core or a worker: its place, and whether it works, is idle or waits for another process."""
    frames = rt.frames(thread)
    if not frames or frames[0].function.rpartition(".")[2] in RESTING and "/threading.py" in frames[0].file:
        return Keeper("main", thread.tid)
    ring = shm_rings.awaited(frames)
    if ring is not None:
        unread = ring.reader is not None and ring.unread[ring.reader]
        return Keeper("main", thread.tid, _where(frames[0]), ring="" if unread else ring.name)
    sample = thread_sample(rt, thread, inside(frames, _turns))
    meets = any(frame.file.endswith(MEETS) for frame in frames[:DEEP])
    return Keeper("main", thread.tid, _where(frames[0]), sample=sample, meets=meets)


def _turns(frame: PyFrame) -> bool:
    """Whether a frame is the main loop of a thread of a core or a worker."""
    return frame.function.rpartition(".")[2] in TURNING


def _where(frame: PyFrame) -> str:
    return f"{frame.function} ({frame.file.rpartition('/')[2]}:{frame.line})"


def _rests(frames: list[PyFrame]) -> bool:
    """Whether a thread that fills or empties a queue waits for more."""
    inner = next((f for f in frames if "/threading.py" not in f.file), None)
    return inner is None or inner.function.rpartition(".")[2] in RESTING


def _ids_of(item: Object) -> list[tuple[str, str]]:
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
    except GdbextError as e:
        log.passed_over(e)
        return found
    return found


# ---- worker ----------------------------------------------------------------------------------------------------------------
def _worker(rt: Runtime, found: Look) -> bool:
    """The requests of a worker's batch, its place, and the process that it answers."""
    transfers.of_worker(rt, found)
    found.rings = tuple(ring.name for ring in shm_rings.find(rt) if ring.reader is None)
    main = thread_in(rt, "worker_busy_loop")
    if main is not None:
        found.keepers[WORKER] = _worker_at(rt, main)
    return _batch(rt, found)


def _batch(rt: Runtime, found: Look) -> bool:
    """The requests in the batch of the process's model runner, if it has one: with one rank the scheduler's process has it."""
    runner = in_frames(rt, WORKER_ROOTS)
    if runner is not None and kv_worker_v2.is_v2(runner):
        rows = kv_worker_v2.rows_of(runner)
        found.sightings += [Sighting(name, WORKER, f"in the batch, row {row}") for name, row in rows.items()]
        return True
    batch = at(runner, "input_batch") if runner is not None else None
    ids = known(batch, "request ids") if batch is not None else None
    if ids is None:
        return False
    names = [one.string(1000) for one in ids.elements(MAX_REQUESTS) if not one.is_none()]
    found.sightings += [Sighting(name, WORKER, "in the batch") for name in names]
    return True
