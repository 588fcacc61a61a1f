"""vLLM V1's KV cache out of memory: scheduler side (BlockPool, managers, requests) and worker side (block tables, tensors of each layer).

Where things hang, by release, is the data below (vllm/v1/core/block_pool.py, kv_cache_utils.py,
kv_cache_manager.py, single_type_kv_cache_manager.py, sched/scheduler.py, worker/block_table.py). What an object has decides; the release
says since when.
"""

import re
import struct
import time
from itertools import compress

from ...cpython.thirdparty import numpy_objects
from ...errors import FaultError, GdbextError, LayoutError, NotFoundError
from ...kvcache.addresses import order_of, strided_layer
from ...kvcache.model import DANGLING, HEAD, NONE, TAIL, Cache, Group, Pool, Request, Table, Worker
from ...torch.tensor_impl import is_tensor, read_tensor
from ..columns import Columns, Places, Records, integers
from . import kv_v0

# what -> ((first release, path), ...), the newest first
PATHS = {
    "manager": (("0.6.6", "kv_cache_manager"),),
    "pool": (("0.9.2", "coordinator.block_pool"), ("0.8.5", "block_pool")),
    "managers": (("0.9.2", "coordinator.single_type_managers"),),
    "blocks": (("0.8.5", "blocks"), ("0.6.6", "block_pool")),
    "head": (("0.10.0", "fake_free_list_head"), ("0.6.6", "free_list_head")),
    "tail": (("0.10.0", "fake_free_list_tail"), ("0.6.6", "free_list_tail")),
    "hash map": (("0.11.2", "cached_block_hash_to_block._cache"), ("0.6.6", "cached_block_hash_to_block")),
    "config": (("0.9.2", "kv_cache_config"),),
    "table array": (("0.11.2", "block_table.np"), ("0.8.5", "block_table_np")),
    "table tensor": (("0.11.2", "block_table.cpu"), ("0.8.5", "block_table_cpu")),
    "slot tensor": (("0.11.2", "slot_mapping.gpu"), ("0.9.2", "slot_mapping")),
    "request ids": (("0.8.5", "_req_ids"), ("0.6.6", "req_ids")),
}
# objects that a frame may hold -> the path from there to the scheduler; of several, with | between, the first that is there (V1 | V0)
ROOTS = {
    "EngineCoreProc": "scheduler",
    "DPEngineCoreProc": "scheduler",
    "EngineCore": "scheduler",
    "EngineCoreActor": "scheduler",
    "DPMoEEngineCoreActor": "scheduler",
    "InprocClient": "engine_core.scheduler",
    "LLMEngine": "engine_core.engine_core.scheduler|scheduler",
    "LLM": "llm_engine.engine_core.engine_core.scheduler|llm_engine.scheduler",
    "MQLLMEngine": "engine.scheduler",
    "_AsyncLLMEngine": "scheduler",
    "Scheduler": "",
    "AsyncScheduler": "",
}
WORKER_ROOTS = {  # frame's self -> path to the model runner
    "WorkerProc": "worker.worker.model_runner",
    "EngineCoreProc": "model_executor.driver_worker.worker.model_runner",
    "DPEngineCoreProc": "model_executor.driver_worker.worker.model_runner",
    "EngineCore": "model_executor.driver_worker.worker.model_runner",
    "GPUModelRunner": "",
    "CPUModelRunner": "",
    "LLM": "llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner",
    "LLMEngine": "engine_core.engine_core.model_executor.driver_worker.worker.model_runner",
}
WAITING = ("waiting", "kv_holding_waiting", "skipped_waiting")  # queues of the scheduler that a release may have
KINDS = {
    "FullAttentionSpec": "full",
    "MLAAttentionSpec": "mla",
    "SlidingWindowSpec": "sliding-window",
    "SlidingWindowMLASpec": "sliding-window",
    "ChunkedLocalAttentionSpec": "chunked",
    "MambaSpec": "mamba",
    "CrossAttentionSpec": "cross",
    "SinkFullAttentionSpec": "full",
    "RSWASpec": "full",
    "EncoderOnlyAttentionSpec": "other",
}
SPEC_FIELDS = ("num_kv_heads", "head_size", "head_size_v", "sliding_window", "attention_chunk_size")
UPDATING = (
    "block_pool.py",
    "kv_cache_utils.py",
    "single_type_kv_cache_manager.py",
    "specialized_manager.py",
    "kv_cache_coordinator.py",
)
READING = {
    "get_num_free_blocks",
    "get_cached_block",
    "get_usage",
    "get_all_free_blocks",
    "iter_blocks_after",
    "find_longest_cache_hit",
    "get_one_block",
    "contain",
    "block_hash",
    "get_blocks",
    "get_num_common_prefix_blocks",
    "get_num_blocks_to_allocate",
    "request_block_hasher",
    "hash_block_tokens",
}
CPU_TRANSPOSED = ("vec",)  # ISAs of the CPU backend that store K element by element (proved by marks, facts section 2)
MAX_REQUESTS = 100_000
MAX_TOKENS_SHOWN = 4096


def path(obj, text):
    """The Object at a dotted path; `NotFoundError`."""
    for name in filter(None, text.split(".")):
        obj = obj.attr(name)
    return obj


def known(obj, what):
    """The first of `PATHS[what]` that is there, None when none is."""
    for _, text in PATHS[what]:
        try:
            found = path(obj, text)
        except (NotFoundError, AttributeError):
            continue
        if hasattr(found, "is_none") and not found.is_none():
            return found
    return None


def optional(obj, name, convert="integer", default=None):
    """A plain attribute, or `default` where it is not there, is None or another type."""
    try:
        value = obj.attr(name)
        if not hasattr(value, "attr"):
            return value
        return default if value.is_none() else getattr(value, convert)()
    except (NotFoundError, GdbextError):
        return default


def version(rt):
    """The release as the process says, '' when it does not."""
    return rt.release(("vllm.version", "vllm._version", "vllm"))


# ---- finding -----------------------------------------------------------------------------------------------------------
def settled_frames(rt):
    """Every thread's frames; those of a thread that runs on while it is read, and cannot be had, are left out."""
    for thread in rt.threads()[:256]:
        try:
            yield rt.frames(thread)
        except GdbextError:
            if rt.target.is_stopped:
                raise


def _in_frames(rt, roots):
    """The object that `roots` leads to from a variable of any frame, the outermost frames first; None."""
    for frames in settled_frames(rt):
        for frame in reversed(frames):
            try:
                held = frame.locals()
            except GdbextError:
                continue
            for _, value in held:
                try:  # inner frames of a running thread hold anything
                    if not hasattr(value, "type") or value.type_name not in roots:
                        continue
                    found = _led_to(value, roots[value.type_name])
                except GdbextError:
                    continue
                if found is not None:
                    return found
    return None


def _led_to(value, places):
    """The object at the first of the places that is there; a list's first element (V0 keeps a scheduler per pipeline stage); None."""
    for place in places.split("|"):
        try:
            found = path(value, place)
        except (NotFoundError, AttributeError):
            continue
        if hasattr(found, "is_none") and not found.is_none():
            return found.item(0) if found.isa("list") else found
    return None


def find_scheduler(rt):
    """The Scheduler of the process, or None: an EngineCore's in the frame of its loop, else any that a frame holds."""
    return rt.target.cached("vllm scheduler", lambda: _in_frames(rt, ROOTS))


def find_runner(rt):
    """The model runner of the process, or None."""
    return rt.target.cached("vllm runner", lambda: _in_frames(rt, WORKER_ROOTS))


def mid_update(rt):
    """'' or where a thread stands inside the functions that change pool and tables."""
    for frames in settled_frames(rt):
        for frame in frames:
            folder, _, name = frame.file.rpartition("/")
            function = frame.function.rpartition(".")[2]
            if name in UPDATING and folder.endswith("/v1/core") and function not in READING and not function.startswith("__"):
                return f"{frame.function} ({name}:{frame.line})"
    return ""


# ---- the scheduler's side ----------------------------------------------------------------------------------------------
def read(rt, root=None, content=False):
    """`Cache` from a Scheduler, a KVCacheManager or a BlockPool (default: the process's scheduler). `GdbextError` when there is none."""
    root = root or find_scheduler(rt)
    if root is None:
        raise NotFoundError(f"{rt.target.describe()}: no vLLM V1 scheduler in its frames: is it the engine core? see llm-ranks")
    if kv_v0.is_scheduler(root):
        return kv_v0.read(rt, root, version(rt), kv_v0.mid_update(rt, settled_frames), content)
    scheduler = manager = pool = None
    if known(root, "manager") is not None:
        scheduler, manager = root, known(root, "manager")
    elif known(root, "managers") is not None or _has(root, "req_to_blocks") or _has(root, "coordinator"):
        manager = root
    elif known(root, "head") is None and _has(root, "free_block_queue"):
        pool = root
    else:
        raise GdbextError(f"the {root.type_name} at {root.address:#x} is no Scheduler, KVCacheManager or BlockPool of vLLM V1")
    pools, groups, owned = _managers(rt, manager, pool)
    requests = _requests(rt, scheduler, content) if scheduler is not None else {}
    for group, tables in owned.items():
        _, index = pools[next(g.pool for g in groups if g.id == group)]
        for request_id, blocks in tables:
            request = requests.get(request_id)
            if request is None:
                request = requests[request_id] = Request(request_id, known=scheduler is None)
            request.blocks[group] = index.of(blocks, DANGLING)
    cache = Cache(
        "vllm", version(rt), [p for p, _ in pools], groups, list(requests.values()), mid_update(rt), queues=scheduler is not None
    )
    _pins(cache, scheduler, manager, pools)
    if scheduler is not None:
        _limits(cache, scheduler)
        _waits(cache)
    _stats(cache, manager)
    for g in groups:
        if g.kind == "mamba":
            cache.pools[g.pool].may_pin = cache.pools[g.pool].may_pin or "mamba states"
    return cache


def _has(obj, name):
    try:
        obj.attr(name)
    except GdbextError:
        return False
    return True


def _managers(rt, manager, lone_pool):
    """-> ([(Pool, {address: id})], [Group], {group id: [(request id, [block addresses])]})"""
    if manager is None:
        return [read_pool(rt, lone_pool)], [Group(0, "full", optional(lone_pool, "hash_block_size") or 0)], {}
    single = known(manager, "managers")
    config = known(manager, "config")
    if single is None:  # before 0.9.2 the manager keeps one table itself; before 0.8.5 it is the pool as well
        holder = known(manager, "pool")
        holder = manager if holder is None or holder.isa("list") else holder
        pool = read_pool(rt, holder)
        pool[0].block_size = optional(manager, "block_size") or 0
        return [pool], [Group(0, "full", pool[0].block_size)], {0: _req_to_blocks(manager)}
    pools, at, groups, owned = [], {}, [], {}
    for number, one in enumerate(single.elements(1000)):
        holder = path(one, "block_pool")
        if holder.address not in at:
            at[holder.address] = len(pools)
            pools.append(read_pool(rt, holder, f"pool {len(pools)}"))
        group_id = optional(one, "kv_cache_group_id", default=number)
        groups.append(_group(one, group_id, at[holder.address], config))
        owned[group_id] = _req_to_blocks(one)
    if len(pools) == 1:
        pools[0][0].name = "pool"
    if not pools:  # a model without attention
        pools.append(read_pool(rt, path(manager, "coordinator.block_pool")))
    for g in groups:
        pools[g.pool][0].block_size = g.block_size
    return pools, groups, owned


def _group(one, group_id, pool, config):
    kind = other = ""
    spec = {}
    try:
        described = one.attr("kv_cache_spec")
        other = described.type_name
        kind = KINDS.get(other, "other")
        spec = {"class": other, **{n: v for n in SPEC_FIELDS for v in [optional(described, n)] if v is not None}}
    except GdbextError:
        kind = "full"
    layers = []
    try:
        layers = (
            [n.string(300) for n in config.attr("kv_cache_groups").item(group_id).attr("layer_names").elements(10_000)]
            if config
            else []
        )
    except GdbextError:
        pass  # the names are a courtesy
    return Group(group_id, kind, optional(one, "block_size") or 0, pool, layers, spec)


def _req_to_blocks(owner):
    return [(key.string(1000), value.element_addresses()) for key, value in owner.attr("req_to_blocks").items(MAX_REQUESTS)]


def read_pool(rt, holder, name="pool"):
    """-> (`Pool`, `Places` of its blocks, with negative marks for None and the queue's ends) of a BlockPool, or of a KVCacheManager of 0.6.6 that is one itself."""
    blocks = known(holder, "blocks")
    if blocks is None or not blocks.isa("list"):
        raise GdbextError(f"the {holder.type_name} at {holder.address:#x} has no list of blocks")
    addresses = blocks.element_addresses()
    pool = Pool(
        name, optional(holder, "num_gpu_blocks", default=len(addresses)), len(addresses), optional(holder, "hash_block_size") or 0
    )
    pool.counters["enable_caching"] = bool(optional(holder, "enable_caching", default=0))
    records = Records(rt, addresses)
    pool.foreign = records.foreign
    queue = path(holder, "free_block_queue") if addresses else None
    index = Places(addresses, _marks(rt, queue) if addresses else {})
    if index.different != len(addresses):
        pool.notes.append("a block stands in the pool's list more than once")
    try:
        null = index.get(holder.attr("null_block").address, DANGLING)
        pool.reserved = (null,) if null >= 0 else ()
    except GdbextError:
        pool.reserved = ()
    if addresses:
        pool.ids = records.integers("block_id", -1)
        pool.ref_cnt = records.integers("ref_cnt", 0)
        if records.has("is_null"):
            pool.null_ids = list(compress(range(pool.count), records.integers("is_null", 0)))
        _links(pool, queue, records, index)
        _hash_map(rt, pool, holder, records, index)
    else:
        pool.reserved, pool.ref_cnt, pool.prev, pool.next = (), [], [], []
    return pool, index


def _marks(rt, queue):
    """{address: mark} of what a link may be instead of a block."""
    marks = {_none(rt): NONE, 0: NONE}
    if _name(queue, "head").startswith("fake"):
        marks.update({queue.attr(_name(queue, "head")).address: HEAD, queue.attr(_name(queue, "tail")).address: TAIL})
    return marks


def _links(pool, queue, records, index):
    pool.num_free = optional(queue, "num_free_blocks")
    head, tail = queue.attr(_name(queue, "head")), queue.attr(_name(queue, "tail"))
    pool.prev, pool.next = (index.of(records.column(name), DANGLING) for name in ("prev_free_block", "next_free_block"))
    if _name(queue, "head").startswith("fake"):
        pool.head_next = index.get(head.attr("next_free_block").address, DANGLING)
        pool.tail_prev = index.get(tail.attr("prev_free_block").address, DANGLING)
        return
    # ends that are None are told as the ends of later releases, so that one walk serves both
    first, last = index.get(head.address, DANGLING), index.get(tail.address, DANGLING)
    pool.head_next = TAIL if first == NONE else first
    pool.tail_prev = HEAD if last == NONE else last
    if first >= 0 and pool.prev[first] == NONE:
        pool.prev[first] = HEAD
    if last >= 0 and pool.next[last] == NONE:
        pool.next[last] = TAIL


def _name(queue, what):
    for _, name in PATHS[what]:
        if _has(queue, name):
            return name
    raise LayoutError(f"the {queue.type_name} at {queue.address:#x} has neither of {', '.join(n for _, n in PATHS[what])}")


def _none(rt):
    """The address of None."""

    def find():
        address = rt.library.symbol("_Py_NoneStruct")  # exported by every CPython
        if address is None or not rt.object(address).is_none():
            raise LayoutError(f"{rt.target.describe()}: None is not where {rt.library.path} says")
        return address

    return rt.target.cached("address of None", find)


def _hash_map(rt, pool, holder, records, index):
    found = known(holder, "hash map")
    pool.has_hash_map = found is not None
    entries = found.dict_entries() if found is not None else []
    keys, column, extra, none = [k for k, _ in entries], records.column("_block_hash"), [], _none(rt)
    blocks = index.of([v for _, v in entries], DANGLING)
    pool.hash_map = list(zip(keys, zip(blocks)))
    pool.hash_text = lambda token: _hash_text(rt, token)
    if _has(holder, "cached_block_hashes_by_block"):
        for block, names in holder.attr("cached_block_hashes_by_block").items():
            extra.append((block.integer(max_digits=2), names.element_addresses(100_000)))
    lone = min(blocks, default=0) >= 0
    if lone and not extra and column.count(none) == pool.count - len(keys) and list(map(column.__getitem__, blocks)) == keys:
        pool.hashes = [
            0
        ] * pool.count  # each entry leads to a block that carries this very object, and no other block carries any
        for block, key in zip(blocks, keys):
            pool.hashes[block] = key
        return
    canonical = {**dict(zip(keys, keys)), none: 0, 0: 0}
    strangers = set(column).difference(canonical)
    strangers.update(p for _, names in extra for p in names if p not in canonical)
    if strangers:  # equal hashes may be different objects: then their content decides
        by_content = dict(zip(_contents(rt, keys), keys))
        strangers = sorted(strangers)
        for pointer, content in zip(strangers, _contents(rt, strangers)):
            canonical[pointer] = by_content.setdefault(content, pointer)
    pool.hashes = list(map(canonical.__getitem__, column))
    pool.extra_hashes = {b: {canonical[p] for p in names} for b, names in extra}
    for at in () if lone else [i for i, block in enumerate(blocks) if block < 0]:  # no block: a dict of several
        key, value = entries[at]
        inner = rt.object(value)
        pool.hash_map[at] = (key, index.of([v for _, v in inner.dict_entries()], DANGLING) if inner.isa("dict") else [DANGLING])


def _contents(rt, addresses):
    """Something hashable for each hash object, equal for equal ones: bytes of one length are compared as words."""
    if not addresses:
        return []
    L = rt.layout
    first = rt.object(addresses[0])
    if first.isa("bytes"):
        length, at = first.len(), L["bytes.ob_sval"]
        if 0 < length <= 256 and at % 8 == 0:
            columns = Columns(rt.target, addresses, at + (length + 7 & -8))
            if set(columns.words(L["varobj.ob_size"])) == {length} and set(columns.words(L["object.ob_type"])) == {
                first.type.address
            }:
                words = [columns.words(at + i) for i in range(0, length, 8)]
                if length % 8:
                    mask = (1 << 8 * (length % 8)) - 1
                    words[-1] = [w & mask for w in words[-1]]
                return list(zip(*words))
    return [rt.object(a).plain() for a in addresses]


def _hash_text(rt, token):
    """A hash for people: hex of its first bytes, or the repr of what older releases keep."""
    if not token:
        return "none"
    try:
        value = rt.object(token).plain()
    except GdbextError as e:
        return f"unreadable ({e})"
    while isinstance(value, tuple) and value:  # BlockHash and BlockHashWithGroupId of older releases: the hash leads
        value = value[0]
    if isinstance(value, bytes):
        return value[:8].hex() + ("…" if len(value) > 8 else "")
    return f"{value & (1 << 64) - 1:x}" if isinstance(value, int) else "?"


# ---- requests ----------------------------------------------------------------------------------------------------------
def _requests(rt, scheduler, content):
    """{request id: Request} of everything the scheduler lists, running first, then as they wait."""
    places, order = {}, []
    running = scheduler.attr("running")
    for name, queue in [("running", running)] + [(n, scheduler.attr(n)) for n in WAITING if _has(scheduler, n)]:
        for address in _queue(rt, queue):
            if address not in places:
                places[address] = "running" if name == "running" else "waiting"
                order.append(address)
    deferred = set()
    if _has(scheduler, "deferred_waiting"):
        deferred = set(scheduler.attr("deferred_waiting").element_addresses(MAX_REQUESTS))
    now = time.time() if rt.target.is_live else None
    for _, address in scheduler.attr("requests").dict_entries(MAX_REQUESTS):
        if address not in places:
            places[address] = ""
            order.append(address)
    found = {}
    for address in order:
        request = _request(rt.object(address), now, content)
        request.queue = places[address] or ("finished" if request.status.startswith("FINISHED") else "other")
        if address in deferred:
            request.queue = "deferred"
        found[request.request_id] = request
    return found


def _queue(rt, queue):
    """Addresses of the requests of a queue in its order: a deque or list, or a priority queue's heap of requests or (…, request)."""
    if queue.isa("collections.deque", "list"):
        return queue.element_addresses(MAX_REQUESTS)
    heap = queue.attr("_heap").elements(MAX_REQUESTS)
    ranked = []
    for entry in heap:
        request = entry.elements(8)[-1] if entry.isa("tuple") else entry
        ranked.append(
            (optional(request, "priority", default=0), optional(request, "arrival_time", "floating", 0.0), request.address)
        )
    return [address for _, _, address in sorted(ranked)]


def _request(obj, now, content):
    request = Request(obj.attr("request_id").string(1000), address=obj.address)
    try:
        request.status = obj.attr("status").attr("_name_").string(60)
    except GdbextError:
        request.status = "?"
    request.prompt_tokens = optional(obj, "num_prompt_tokens")
    request.computed_tokens = optional(obj, "num_computed_tokens")
    request.output_tokens = optional(obj, "_output_token_ids", "len")
    request.preemptions = optional(obj, "num_preemptions", default=0)
    arrival = optional(obj, "arrival_time", "floating")
    if now is not None and arrival and 0 < arrival <= now + 3600:
        request.age = max(0.0, now - arrival)
    request.transfer = request.status in ("WAITING_FOR_REMOTE_KVS",) or request.status.startswith("FINISHED")
    if content:
        request.content = {}
        for key, name in (("prompt_token_ids", "prompt_token_ids"), ("output_token_ids", "_output_token_ids")):
            try:
                tokens = obj.attr(name).element_addresses(MAX_TOKENS_SHOWN)
                request.content[key] = integers(obj.rt, tokens)
            except GdbextError:
                request.content[key] = None
    return request


def _limits(cache, scheduler):
    for name in ("max_num_running_reqs", "max_num_active_reqs", "max_num_scheduled_tokens", "max_model_len"):
        value = optional(scheduler, name)
        if value is not None:
            cache.limits[name] = value
    try:
        watermark = optional(scheduler.attr("kv_cache_manager"), "watermark_blocks", default=0)
        cache.limits["watermark_blocks"] = watermark
    except GdbextError:
        pass


_WAITS = {
    "WAITING_FOR_REMOTE_KVS": "transfer: KV blocks from another process",
    "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR": "grammar: it is being compiled",
    "WAITING_FOR_FSM": "grammar: it is being compiled",
    "WAITING_FOR_STREAMING_REQ": "input: the client's next part",
}


def _waits(cache):
    """Fills `blocked_by` in: what the head of the queue waits for and who holds it; the others wait for the head."""
    running = [r for r in cache.requests if r.queue == "running"]
    waiting = [r for r in cache.requests if r.queue in ("waiting", "deferred")]
    head = None
    for request in waiting:
        if request.status in _WAITS:
            request.blocked_by = _WAITS[request.status]
        elif head is not None:
            request.blocked_by = f"queue: behind {head.request_id}"
        else:
            head = request
            request.blocked_by = _head_waits(cache, request, running)


def _head_waits(cache, request, running):
    slots = cache.limits.get("max_num_active_reqs") or cache.limits.get("max_num_running_reqs")
    if slots and len(running) >= slots:
        return f"request slots: all {slots} are running"
    tokens = (request.prompt_tokens or 0) + (request.output_tokens or 0) - (request.computed_tokens or 0)
    budget = cache.limits.get("max_num_scheduled_tokens") or tokens
    for group in cache.groups:
        if group.kind == "mamba" or not group.block_size:
            continue
        held = len(request.blocks.get(group.id, ()))
        wanted = -(-((request.computed_tokens or 0) + min(tokens, budget)) // group.block_size) - held
        free = cache.pools[group.pool].num_free or 0
        reserve = cache.limits.get("watermark_blocks", 0)
        if wanted > free - reserve:
            holders = sorted(((len(r.blocks.get(group.id, ())), r.request_id) for r in running), reverse=True)[:3]
            who = ", ".join(f"{name} holds {count}" for count, name in holders if count)
            return (
                f"blocks: needs {wanted} of group {group.id}, {free} free"
                + (f", {reserve} kept back" if reserve else "")
                + (f"; {who}" if who else "")
            )
    busy = sum(1 for r in running)
    if busy and busy >= budget:
        return f"token budget: {busy} running requests use the {budget} tokens of a step"
    return "the next step"


def _pins(cache, scheduler, manager, pools):
    """What may hold references beside tables: named, or counted where the engine keeps a list of it."""
    why = ""
    if manager is None:
        why = "requests were not read"
    elif scheduler is None:
        why = ""
    elif _set(scheduler, "connector"):
        why = "a KV connector"
    elif _set(scheduler, "ec_connector"):
        why = "an encoder connector"
    for pool, _ in pools:
        pool.may_pin = why
    if scheduler is None or not _has(scheduler, "deferred_frees"):
        return
    for entry in scheduler.attr("deferred_frees").elements(100_000):
        for address in entry.item(1).element_addresses():
            for pool, index in pools:
                block = index.get(address, DANGLING)
                if block >= 0:
                    pool.pins[block] = pool.pins.get(block, 0) + 1


def _set(obj, name):
    try:
        return not obj.attr(name).is_none()
    except GdbextError:
        return False


def _stats(cache, manager):
    """Hit counters since the engine last reported them."""
    try:
        stats = manager.attr("prefix_cache_stats") if manager is not None else None
    except GdbextError:
        stats = None
    if stats is None or not hasattr(stats, "attr") or stats.is_none():
        return
    cache.counters["prefix_cache"] = {n: optional(stats, n, default=0) for n in ("requests", "queries", "hits")}


# ---- the workers' side -------------------------------------------------------------------------------------------------
def read_worker(rt, label, num_blocks=None):
    """`Worker`: block tables and layers of the process's model runner. `NotFoundError` when it has none."""
    runner = find_runner(rt)
    if runner is None:
        v0 = rt.target.cached("vllm V0 worker", lambda: _in_frames(rt, kv_v0.WORKERS))
        if kv_v0.is_worker(v0):
            return _v0_worker(rt, v0, label)
        raise NotFoundError(f"{rt.target.describe()}: no vLLM model runner in its frames")
    worker = Worker(label, target=rt.target)
    groups = _config_groups(runner)
    _layers(rt, runner, worker, groups, num_blocks)
    _worker_tables(runner, worker)
    return worker


def _v0_worker(rt, v0, label):
    worker = Worker(label, target=rt.target)
    worker.notes.append("V0 engine: a worker's block tables live for one step only and are not read")
    for index, pool, obj, spec in kv_v0.cache_tensors(v0):
        tensor = read_tensor(rt, obj.address)
        layer = (
            layer_of(index, ("gpu", "cpu")[pool], pool, tensor, spec, None, "")
            if tensor.storage_data and tensor.shape and tensor.numel
            else None
        )
        if layer is not None:
            worker.layers.append(layer)
        elif tensor.numel:
            worker.notes.append(
                f"layer {index}: " + (tensor.unavailable or f"shape {list(tensor.shape or ())} is no layout that is known")
            )
    return worker


def _config_groups(runner):
    """[(layer names, spec fields)] of the runner's own KV cache configuration; [] before 0.9."""
    try:
        found = []
        for group in runner.attr("kv_cache_config").attr("kv_cache_groups").elements(1000):
            spec = group.attr("kv_cache_spec")
            names = [n.string(300) for n in group.attr("layer_names").elements(10_000)]
            found.append(
                (
                    names,
                    {
                        "class": spec.type_name,
                        "block_size": optional(spec, "block_size"),
                        **{n: optional(spec, n) for n in SPEC_FIELDS},
                    },
                )
            )
        return found
    except GdbextError:
        return []


def _layer_number(name):
    found = re.findall(r"(?:^|\.)(\d+)(?=\.|$)", name)
    return int(found[0]) if found else -1


def _layers(rt, runner, worker, groups, num_blocks):
    caches = runner.attr("kv_caches").elements(10_000)
    names = sorted(((_layer_number(n), n, g) for g, (layers, _) in enumerate(groups) for n in layers), key=lambda t: (t[0], t[1]))
    if len(names) != len(caches):
        names = [(i, "", 0) for i in range(len(caches))]
        if groups:
            worker.notes.append(
                f"{len(caches)} KV tensors for {sum(len(layers) for layers, _ in groups)} layers: named by their order"
            )
    if num_blocks is None:
        try:
            num_blocks = runner.attr("kv_cache_config").attr("num_blocks").integer()
        except GdbextError:
            pass
    isa = _cpu_isa(runner)
    for index, ((_, name, group), obj) in enumerate(zip(names, caches)):
        spec = groups[group][1] if groups else {}
        if not is_tensor(obj):
            worker.notes.append(f"layer {index} keeps a {obj.type_name}, no tensor: its addresses are not told")
            continue
        tensor = read_tensor(rt, obj.address)
        if tensor.shape is None or tensor.stride is None or not tensor.storage_data:
            worker.notes.append(f"layer {index}: {tensor.unavailable}")
            continue
        layer = layer_of(index, name, group, tensor, spec, num_blocks, isa)
        if layer is None:
            worker.notes.append(
                f"layer {index}: shape {list(tensor.shape)} is no layout that is known for {num_blocks} blocks of {spec.get('block_size')}"
            )
            continue
        worker.layers.append(layer)
    try:
        worker.layout = path(runner, "kv_cache_config").attr("kv_cache_layout").string(20)
    except (GdbextError, AttributeError):
        pass


def layer_of(index, name, group, tensor, spec, num_blocks, isa=""):
    """`addresses.Layer` of a layer's tensor (facts section 2), or None for a shape that is not known."""
    cpu = tensor.device.startswith("cpu")
    order = order_of(
        tensor.shape,
        num_blocks,
        spec.get("block_size"),
        spec.get("num_kv_heads"),
        spec.get("head_size"),
        "2 B H N D" if cpu else "",
    )
    if not order:
        return None
    base = tensor.storage_data + tensor.storage_offset * tensor.dtype.itemsize
    slab = cpu and order == "B H N C"
    layer = strided_layer(
        index,
        name,
        group,
        base,
        tensor.dtype.itemsize,
        tensor.shape,
        tensor.stride,
        order,
        head_size=spec.get("head_size"),
        slab=slab,
        transposed=slab and isa in CPU_TRANSPOSED,
        blocks=num_blocks,
        device=tensor.device,
        dtype=tensor.dtype.name,
    )
    for part in layer.parts:
        part.tensor = tensor
    if slab and isa not in CPU_TRANSPOSED:
        layer.note = f"the CPU kernels of {isa or 'an unknown ISA'} may order K inside a block in their own way: slot and element of K are not proved"
    return layer


def _cpu_isa(runner):
    """The ISA that the CPU attention backend wrote into the layers, ''."""
    try:
        layers = path(runner, "compilation_config.static_forward_context")
    except GdbextError:
        try:
            layers = path(runner, "vllm_config.compilation_config.static_forward_context")
        except GdbextError:
            return ""
    for _, layer in layers.items(8):
        value = optional(layer, "isa", "string")
        if value:
            return value
    return ""


def _worker_tables(runner, worker):
    try:
        batch = runner.attr("input_batch")
        ids = known(batch, "request ids")
        rows = [None if o.is_none() else o.string(1000) for o in ids.elements(MAX_REQUESTS)]
        holder = batch.attr("block_table")
        tables = holder.attr("block_tables").elements(1000) if _has(holder, "block_tables") else [holder]
    except (GdbextError, AttributeError) as e:
        worker.notes.append(f"its block tables were not read: {e}")
        return
    for number, table in enumerate(tables):
        try:
            worker.tables.append(_worker_table(table, number, rows))
        except GdbextError as e:
            worker.notes.append(f"the block table of group {number} was not read: {e}")


def _worker_table(table, number, request_ids):
    counts = numpy_objects.values(table.attr("num_blocks_per_row"), 1 << 20)
    array = known(table, "table array")
    if array is not None and numpy_objects.is_array(array):
        a = numpy_objects.read_array(array)
        if len(a.shape) != 2 or a.dtype != "int32":
            raise LayoutError(f"a block table of shape {a.shape} and type {a.dtype}")
        data, width, step, item = a.data, a.shape[1], a.strides[0], a.strides[1]
    else:
        tensor = read_tensor(table.rt, known(table, "table tensor").address)
        if tensor.unavailable:
            raise GdbextError(tensor.unavailable)
        data, width, step, item = tensor.data_ptr, tensor.shape[1], tensor.stride[0] * 4, tensor.stride[1] * 4
    if item != 4:
        raise LayoutError(f"a block table with {item} bytes between its columns")
    found = []
    for row, request_id in enumerate(request_ids[: len(counts)]):
        count = counts[row]
        if request_id is None:
            continue
        if not 0 <= count <= width:
            raise LayoutError(f"row {row} claims {count} blocks of {width}")
        found.append((request_id, list(struct.unpack(f"<{count}i", table.rt.target.read(data + row * step, 4 * count)))))
    return Table(number, optional(table, "block_size") or 0, found, _slot_mapping(table))


def _slot_mapping(table):
    """Slots of the last step's tokens; [] where they lie on a device, or the buffer was never padded (then its end is not known)."""
    try:
        obj = known(table, "slot tensor")
        if obj is None or not is_tensor(obj):
            return []
        tensor = read_tensor(table.rt, obj.address)
        if (
            tensor.unavailable
            or len(tensor.shape) != 1
            or tensor.dtype.itemsize != 8
            or tensor.stride != (1,)
            or not tensor.numel
        ):
            return []
        slots = list(struct.unpack(f"<{tensor.numel}q", table.rt.target.read(tensor.data_ptr, 8 * tensor.numel)))
    except (FaultError, LayoutError):
        return []
    if slots[-1] != -1:
        return []
    while slots and slots[-1] == -1:
        slots.pop()
    return slots
