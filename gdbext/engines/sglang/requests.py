"""Where SGLang has its requests, process by process: tokenizer managers' `rid_to_state`, the scheduler's queues and batches, the
detokenizer's `decode_status`. Prompts are not read.

Sources: srt/managers/tokenizer_manager.py, multi_tokenizer_mixin.py, scheduler.py, detokenizer_manager.py,
srt/disaggregation/*.py, srt/constrained/grammar_manager.py.
"""

from __future__ import annotations

from typing import Callable, TypeVar

from ... import log
from ...access.retry import retry_reading
from ...cpython.frames import PyFrame
from ...cpython.objects import Object
from ...cpython.runtime import Runtime
from ...cpython.tasks import tasks, tasks_at
from ...errors import GdbextError, NotFoundError
from ...kvcache import waiting
from ...kvcache.model import Request
from ..columns import Records, lengths, strings
from ..keepers import keeper_in, loop_keeper
from ..objects import at, counted, has, in_frames, in_tasks, optional, path, sought
from ..sightings import DETOKENIZER, FRONTEND, INPUT, OUTPUT, QUEUE, RUNNING, Keeper, Look, Sighting
from . import hicache, transfers
from .kv import STEP_COUNTER, find_scheduler
from .kv_requests import requests_at
from .paths import MAX_REQUESTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..rank import Rank
T = TypeVar("T")

MANAGERS = {"TokenizerManager": "", "TokenizerWorker": "", "MultiTokenizerRouter": "", "Engine": "tokenizer_manager"}
SERVER = "sglang.srt.entrypoints.http_server"  # its module keeps the server's manager as _global_state
DETOKENIZERS = {"DetokenizerManager": ""}
PAUSED = "the engine, which is paused: /continue_generation lets it go on"
RELEASED = "the engine, whose memory is given away: /resume_memory_occupation lets it go on"
SERVES, READS = "generate_request", "acquire_reader"  # tokenizer_manager.py; utils/aio_rwlock.py
MOMENT = 0.5  # seconds for which one table or queue of a process that runs on is read again, until it holds together
MANY = 512  # tasks of one process that are searched
LOOPS = ("run_scheduler_process", "run_detokenizer_process")
ANSWERS = "handle_loop"  # the task of a tokenizer manager that takes answers in
ROUTER = "router_worker_obj"  # multi_tokenizer_mixin.py: the task that takes the tokenizer workers' requests in
RECEIVES = {"sock_recv"}  # io_struct.py: the detokenizer waits in it for the scheduler's messages
WORKS = {  # of the scheduler's loop, managers/scheduler.py: outside of them it has nothing to do
    "run_batch",
    "process_batch_result",
    "process_input_requests",
    "handle_generate_request",
    "handle_embedding_request",
    "get_next_batch_to_run",
}
HEALTH = "HEALTH_CHECK"  # constants.py: how ids of requests begin that /health sends, and whose answer it need not wait for
# (attribute of the scheduler, stage, the engine's word, what such a request waits for); of several, a request counts at the
# first that has it. A batch that is being computed is in cur_batch, which 0.5.23 calls cur_batch_for_debug.
PLACES = (
    ("running_batch.reqs", RUNNING, "running", ""),
    ("cur_batch.reqs", RUNNING, "running", ""),
    ("cur_batch_for_debug.reqs", RUNNING, "running", ""),
    ("last_batch.reqs", RUNNING, "running", ""),
    ("chunked_req", RUNNING, "chunked prefill", ""),
    ("waiting_queue", QUEUE, "waiting", ""),
    ("grammar_manager.grammar_queue", QUEUE, "grammar", waiting.GRAMMAR),
    ("grammar_queue", QUEUE, "grammar", waiting.GRAMMAR),
    ("disagg_prefill_bootstrap_queue.queue", QUEUE, "bootstrap", "transfer: the decode server's answer"),
    ("disagg_prefill_inflight_queue", OUTPUT, "inflight", "transfer: its KV on the way to the decode server"),
    ("disagg_decode_prealloc_queue.queue", QUEUE, "prealloc", "transfer: the prefill server's answer"),
    ("disagg_decode_transfer_queue.queue", QUEUE, "transfer", "transfer: its KV from the prefill server"),
)


def look(rt: Runtime, rank: Rank) -> Look:
    """The requests of one process. Parts that it does not have are not among `parts`."""
    found = Look(rank.label, rank.pid, rank.role, engine="sglang")
    parts = {
        "frontend": ("frontend", _front_end),
        "api-server": ("frontend", _front_end),
        "scheduler": ("scheduler", _scheduler),
        "detokenizer": ("detokenizer", _detokenizer),
    }
    name, read = parts.get(rank.role, ("", None))
    try:
        if read is not None and read(rt, found):
            found.parts = (name,)
    except GdbextError as e:
        found.notes.append(f"{found.label}: its {name} was not read: {e}")
    return found


def _front_end(rt: Runtime, found: Look) -> bool:
    """The requests whose answers are awaited at a tokenizer manager. The router of several tokenizer workers has none; it hands
    theirs to the scheduler."""
    manager = _manager(rt)
    if manager is None:
        return False
    states = at(manager, "rid_to_state")
    router = at(manager, "_loop") if states is None else None
    if router is not None:
        found.keepers[INPUT] = loop_keeper(rt, ROUTER, router.address)
    if states is None:
        return False
    found.sightings = _at_one_moment(rt, lambda: _awaited(rt, states))
    _kept_back(rt, manager, [sighting for sighting in found.sightings if sighting.undelivered])
    loop = at(manager, "event_loop")
    if loop is not None:  # none before the first request
        one = loop_keeper(rt, ANSWERS, loop.address)
        found.keepers[FRONTEND] = one
        found.keepers[OUTPUT] = one if _listens(rt, manager) else Keeper(ANSWERS, None, kind="task")
    return True


def _awaited(rt: Runtime, states: Object) -> list[Sighting]:
    """The requests of a tokenizer manager's `rid_to_state`."""
    entries = states.ordered_entries(MAX_REQUESTS)
    records, none = Records(rt, [state for _, state in entries]), [0] * len(entries)
    answered = records.integers("finished", 0)
    sent = records.integers("dispatched", 1) if records.has("dispatched") else [1] * len(entries)
    tokens = lengths(rt, records.column("output_ids")) if records.has("output_ids") else none
    counted = records.integers("last_completion_tokens", 0) if records.has("last_completion_tokens") else none
    found = []
    for i, name in enumerate(strings(rt, [key for key, _ in entries], 1000)):
        state = "answered, not read yet" if answered[i] else "awaited"
        sighting = Sighting(name, FRONTEND, state, ended=bool(answered[i]), undelivered=not sent[i])
        sighting.progress, sighting.tokens = (tokens[i], counted[i]), tokens[i]
        found.append(sighting)
    return found


def _kept_back(rt: Runtime, manager: Object, held: list[Sighting]) -> None:
    """Fills in what requests wait for that a manager has not handed to the scheduler: the end of a pause, the lock of the
    weights, or what their own task does."""
    if not held:
        return
    paused, lock = optional(manager, "is_pause", "boolean", False), at(manager, "model_update_lock")
    places = {} if paused else _places_of_tasks(rt)
    for sighting in held:
        function, place = places.get(sighting.request_id, ("", ""))
        if paused:
            sighting.pause(PAUSED)
        elif function == READS and lock is not None:
            writes = optional(lock, "_writer_active", "boolean", False)
            sighting.waits_for = f"model_update_lock, which an update of the weights {'has' if writes else 'waits for, too'}"
        elif place:
            sighting.waits_for = f"its task, which is in {place}"


def _places_of_tasks(rt: Runtime) -> dict[str, tuple[str, str]]:
    """{request id: (function, place)} of the innermost frame, asyncio's aside, of each suspended task that serves requests."""
    found: dict[str, tuple[str, str]] = {}
    for task in tasks(rt)[0]:
        frame = next((f for f in task.frames if f.function.rpartition(".")[2] == SERVES), None)
        inner = next((f for f in task.frames if "/asyncio/" not in f.file), None)
        if frame is None or inner is None:
            continue
        place = f"{inner.function} ({inner.file.rpartition('/')[2]}:{inner.line})"
        with log.passing_over(GdbextError):
            obj = dict(frame.locals()).get("obj")
            asked = at(obj, "rid") if obj is not None else None
            for name in () if asked is None else asked.elements(MAX_REQUESTS) if asked.isa("list") else [asked]:
                found[name.string(1000)] = inner.function.rpartition(".")[2], place
    return found


def _at_one_moment(rt: Runtime, read: Callable[[], T]) -> T:
    """The result of `read` for memory that changes meanwhile: read anew, and again until it is consistent."""

    def anew() -> T:
        rt.target.drop_pages()
        return read()

    return retry_reading(rt.target, anew, MOMENT, before_retry=lambda: None)


def _listens(rt: Runtime, manager: Object) -> bool:
    """Whether the task that takes answers in still exists. A task that cannot be read counts as that one."""
    held = at(manager, "asyncio_tasks")
    if held is None:
        return True
    found = tasks_at(rt, held.element_addresses(MANY))
    return any(t.error or any(f.function.rpartition(".")[2] == ANSWERS for f in t.frames) for t in found) or not found


def _manager(rt: Runtime) -> Object | None:
    """The tokenizer manager of a process: the server's, or one that a frame or a task holds."""
    module = rt.module(SERVER)
    try:
        found = at(module.item("_global_state"), "tokenizer_manager") if module is not None else None
    except GdbextError as e:
        log.passed_over(e)
        found = None
    return found or in_frames(rt, MANAGERS) or in_tasks(rt, MANAGERS)


def _scheduler(rt: Runtime, found: Look) -> bool:
    """The scheduler's queues and batches. Ranks of one tensor-parallel group have the same requests."""
    scheduler = sought(rt, find_scheduler)
    if scheduler is None:
        return False
    found.counters.update(counted(rt, scheduler, {"forward passes": STEP_COUNTER}))
    main = keeper_in(rt, "main", LOOPS[0], _schedules_nothing)
    main.turns = found.counters.get("forward passes")
    found.keepers.update(dict.fromkeys((INPUT, QUEUE, RUNNING), main))
    paused = _paused(scheduler)
    found.bypassed = (DETOKENIZER,) if optional(scheduler, "skip_tokenizer_init", "boolean", False) else ()
    total = optional(scheduler, "max_total_num_tokens")
    members: dict[str, list[int]] = {}
    known: dict[int, Request] = {}
    # requests go from the queues to the batches, and back when they are retracted: so none is missed on its way
    for text in [*(text for text, *_ in reversed(PLACES)), *(text for text, stage, *_ in PLACES if stage == QUEUE)]:
        members.setdefault(text, []).extend(_held(rt, scheduler, text, known))
    seen: set[int] = set()
    for text, stage, state, reason in PLACES:
        for address in members[text]:
            if address in seen:
                continue
            seen.add(address)
            request = known[address]
            ended = request.status == "finished"
            if ended and text == "last_batch.reqs":
                continue  # it ended in the last step
            _scheduled(found, request, ended, stage, state, reason or paused, total)
    transfers.fill(rt, found, scheduler)
    hicache.fill(rt, found, scheduler)
    return True


def _paused(scheduler: Object) -> str:
    """What requests wait for where the engine's user keeps the scheduler from its work; '' where it may work."""
    if optional(scheduler, "_engine_paused", "boolean", False):
        return PAUSED
    given_away = at(scheduler, "weight_updater.offload_tags")
    return RELEASED if given_away is not None and given_away.isa("set") and given_away.len() else ""


def _held(rt: Runtime, scheduler: Object, text: str, known: dict[int, Request]) -> list[int]:
    """The addresses of the Reqs in one of the scheduler's queues or batches, none where it has no such queue. Reqs that are not
    in `known` are read at the same moment and added to it, by address."""

    def read() -> list[int]:
        name, _, rest = text.partition(".")
        owner = scheduler.attr(name)
        if owner.is_none():
            return []
        addresses = path(owner, rest).element_addresses(MAX_REQUESTS) if text != "chunked_req" else [owner.address]
        addresses = list(dict.fromkeys(_requests_in(rt, addresses)))
        fresh = [a for a in addresses if a not in known]
        known.update(zip(fresh, requests_at(rt, fresh)))
        return addresses

    if not has(scheduler, text.partition(".")[0]):
        return []
    try:
        return _at_one_moment(rt, read)
    except NotFoundError as e:  # of a release that keeps it elsewhere
        log.passed_over(e)
        return []


def _schedules_nothing(frames: list[PyFrame]) -> bool:
    return not any(f.function.rpartition(".")[2] in WORKS for f in frames)


def _requests_in(rt: Runtime, addresses: list[int]) -> list[int]:
    """The Reqs of a queue: its members, or their `req` (disaggregation's queues)."""
    if addresses and at(rt.object(addresses[0]), "req") is not None:
        return [rt.object(a).attr("req").address for a in addresses]
    return addresses


def _scheduled(found: Look, request: Request, ended: bool, stage: str, state: str, reason: str, total: int | None) -> None:
    """Adds a request of the scheduler's."""
    request.queue = "finished" if ended else "running" if stage == RUNNING else state
    request.status = request.status or state
    sighting = Sighting(request.request_id, stage, request.status, request=request, ended=ended)
    sighting.progress = (request.computed_tokens or 0, request.output_tokens or 0, request.preemptions or 0)
    sighting.unowned = request.request_id.startswith(HEALTH)
    if reason in (PAUSED, RELEASED):
        sighting.pause(reason)
    elif reason:
        sighting.waits_for, sighting.parked = reason, True
    tokens = (request.prompt_tokens or 0) + (request.output_tokens or 0)
    if total and tokens > total and not ended:
        sighting.never_fits = True
        sighting.waits_for = f"room for its {tokens} tokens, where there is room for {total} in all"
    found.sightings.append(sighting)


def _detokenizer(rt: Runtime, found: Look) -> bool:
    """The requests whose text is being made."""
    manager = in_frames(rt, DETOKENIZERS)
    states = at(manager, "decode_status") if manager is not None else None
    if states is None:
        return False
    found.keepers[DETOKENIZER] = keeper_in(
        rt, "main", LOOPS[1], lambda frames: any(f.function.rpartition(".")[2] in RECEIVES for f in frames)
    )
    found.sightings = _at_one_moment(rt, lambda: _decoded(rt, states))
    return True


def _decoded(rt: Runtime, states: Object) -> list[Sighting]:
    """The requests of a detokenizer's `decode_status`."""
    entries = states.ordered_entries(MAX_REQUESTS)
    records = Records(rt, [state for _, state in entries])
    counts = lengths(rt, records.column("decode_ids")) if records.has("decode_ids") else [0] * len(entries)
    names = strings(rt, [key for key, _ in entries], 1000)
    return [Sighting(name, DETOKENIZER, "its text is made", progress=(n,), ended=True) for name, n in zip(names, counts)]
