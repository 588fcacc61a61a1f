"""RTP-LLM's KV cache by its debug information: block pool, reference counters, streams (rtp_llm/cpp/cache, engine_base).

Written from the source only, and tried on a stand-in with the same type and member names: RTP-LLM itself could not be built. Each
name is data below, so that a difference is one line to fix. There are two forms: KVCacheManager with a BlockPool (2026 on), and
the older CacheManager, which keeps free blocks and counters itself. The caller gives the view of an object (`field`, `items`,
`integer`).
"""

from __future__ import annotations

from typing import Any, Sequence

from ... import log
from ...errors import GdbextError, LayoutError, NotFoundError
from ...kvcache.model import Cache, Group, Pool, Request
from ..native_objects import first, middle_of

# name -> paths from the object whose method runs; the first that exists counts
MANAGER = ("resource_context_.cache_manager", "cache_manager_", "")
POOL = ("allocator_.block_pool_", "block_pool_", "")  # from the KVCacheManager
SCHEDULER = ("scheduler_", "")
QUEUES = (("running", "running_streams_"), ("waiting", "waiting_streams_"))
STREAM_ID = ("generate_input_.request_id", "stream_id_")
STREAM_BATCH = ("stream_cache_resource_.batch_kv_cache_resource_", "stream_cache_resource_.batch_resource_")
BLOCK_LISTS = "batch_resource"  # vector<KVCacheResource> of BatchKVCacheResource
GROUPS = "group_block_ids"  # vector<shared_ptr<BlockIds>> of a KVCacheResource
BLOCKS = "block_indices"  # vector<int32> of BlockIds
FREE = ("free_block_ids_", "free_blocks_index_")  # std::set<int>: BlockPool; CacheManager
SIZE = ("config_.block_num", "config_.block_nums", "block_ref_counter_.total_block_nums_")
TOKENS = ("config_.seq_size_per_block", "seq_size_per_block_")
REQUESTS = ("request_ref_counter_", "query_ref_counter_")  # BlockRefCounter: references of streams
CACHED = ("block_cache_ref_counter_",)
CONNECTOR = ("connector_ref_counter_",)
ALL = ("block_ref_counter_",)  # of the older CacheManager: every reference
COUNTS, BUSY = "ref_counter", "busy_block_num_"
UPDATING = (
    "BlockPool",
    "BlockRefCounter",
    "BlockCache",
    "SharedBlockCache",
    "CacheManager",
    "KVCacheAllocator",
)  # whose methods change it ...
MAX_STREAMS = 100_000
NULL_BLOCK = -1


def read(found: Any) -> Cache:
    """`Cache` from `(class, this, inner)` of a frame. `GdbextError` names the member that is not where this release's facts
    have it."""
    name, this, inner = found
    middle = middle_of(inner, UPDATING)
    manager = _manager(name, this)
    holder = first(manager, POOL[:2]) or manager
    free = first(holder, FREE)
    if free is None:
        raise LayoutError(
            f"a {holder.type_name} has none of {', '.join(FREE)}: its member names are the data of engines/rtp_llm/kv.py"
        )
    pool, busy = _pool(manager, holder, free)
    requests = _streams(this)
    tokens = first(holder, TOKENS) or first(manager, TOKENS)
    size = tokens.integer() if tokens is not None else 1
    pool.block_size = size
    groups = sorted({g for r in requests for g in r.blocks}) or [0]
    cache = Cache("rtp-llm", "", [pool], [Group(g, "other", size) for g in groups], requests, middle, queues=False)
    cache.notes.append("read by debug information, with member names taken from RTP-LLM's source")
    if busy is not None:
        cache.counters["busy_block_num"] = busy
    return cache


def _manager(name: str, this: Any) -> Any:
    for path in MANAGER:
        try:
            found = this.field(path) if path else this.object()
        except NotFoundError as e:
            log.passed_over(e)
            continue
        if found is not None and (first(found, POOL[:2]) is not None or first(found, FREE) is not None):
            return found
    raise NotFoundError(f"the {name} of this frame leads to no KVCacheManager or CacheManager")


def _counter(holder: Any, paths: Sequence[str]) -> tuple[dict[int, int], int | None]:
    """{block: references} of a BlockRefCounter and its busy count, or ({}, None)."""
    counter = first(holder, paths)
    if counter is None:
        return {}, None
    counts = {k.integer(): v.integer() for k, v in counter.field(COUNTS).items()}
    busy = counter.field(BUSY)
    return counts, busy.integer() if busy is not None else None


def _pool(manager: Any, holder: Any, free: Any) -> tuple[Pool, int | None]:
    size = first(holder, SIZE) or first(manager, SIZE)
    requests, busy = _counter(holder, REQUESTS)
    cached, _ = _counter(holder, CACHED)
    connector, _ = _counter(holder, CONNECTOR)
    every, every_busy = _counter(holder, ALL)
    ids = sorted(i.integer() for i in free.items())
    if size is None:
        raise LayoutError(f"a {holder.type_name} has none of {', '.join(SIZE)}")
    count = size.integer()
    if not 0 <= count <= 1 << 28:
        raise LayoutError(f"a {holder.type_name} claims {count} blocks")
    pool = Pool("pool", count, count, 0, free_ids=ids, num_free=len(ids))
    pool.pins = {}
    counts = (
        dict(every)
        if every
        else {b: requests.get(b, 0) + cached.get(b, 0) + connector.get(b, 0) for b in {*requests, *cached, *connector}}
    )
    for b, n in counts.items():
        pinned = n - requests.get(b, 0)
        if pinned > 0:
            pool.pins[b] = pinned
    pool.ref_cnt = [counts.get(i, 0) for i in range(count)]
    pool.cached_ids = sorted(b for b, n in cached.items() if n > 0 and 0 <= b < count)
    told = every_busy if every else busy
    if told is not None:
        pool.counters["busy"] = told
        pool.counters["referenced"] = sum(n > 0 for n in (every or requests).values())
    return pool, told


def _streams(this: Any) -> list[Request]:
    found: list[Request] = []
    try:
        scheduler = first(this, SCHEDULER)
    except GdbextError as e:
        log.passed_over(e)
        return found
    for queue, member in QUEUES:
        try:
            streams = scheduler.field(member)
        except NotFoundError as e:
            log.passed_over(e)
            continue
        for one in streams.items(MAX_STREAMS):
            stream = one.object()
            if stream is not None:
                found += _stream(stream, queue)
    return found


def _stream(stream: Any, queue: str) -> list[Request]:
    """The requests of a GenerateStream: one, or one for each of its sequences where there are several (they share blocks)."""
    told = first(stream, STREAM_ID)
    name = str(told.integer()) if told is not None else f"stream {stream.address:#x}"
    batch = first(stream, STREAM_BATCH)
    resources = batch.field(BLOCK_LISTS).items(MAX_STREAMS) if batch is not None else []
    found = []
    for number, resource in enumerate(resources):
        request = Request(name if len(resources) == 1 else f"{name}/{number}", queue, queue, address=stream.address)
        for group, ids in enumerate(resource.field(GROUPS).items(1000)):
            held = ids.object()
            blocks = [i.integer() for i in held.field(BLOCKS).items()] if held is not None else []
            if blocks:
                request.blocks[group] = [b for b in blocks if b != NULL_BLOCK]
        found.append(request)
    return found or [Request(name, queue, queue, address=stream.address)]
