"""vLLM V0's KV cache out of memory (0.6.0 to 0.10.2): block managers, allocators and evictor, sequences and their block tables.

Two forms: BlockSpaceManagerV1 (0.6.0 to 0.6.2: allocators of PhysicalTokenBlock objects, vllm/core/block_manager_v1.py), and
the one of CpuGpuBlockAllocator (V2 in 0.6.0, SelfAttnBlockSpaceManager later; vllm/core/block/*.py), whose naive and
prefix-caching allocators keep ids and counts. Tables belong to sequences: one of several of a request is named
REQUEST/SEQUENCE.

A worker keeps the memory in CacheEngine objects (vllm/worker/cache_engine.py): a tensor per layer for the device's blocks and
one for the host's. Its block tables live for one step only, in that step's inputs: they are not read.
"""

from __future__ import annotations

import time

from ... import log
from ...errors import GdbextError, LayoutError, NotFoundError
from ...kvcache import waiting
from ...kvcache.model import Cache, Group, Pool, Request, Worker
from ...torch.tensor_impl import read_tensor
from ..columns import integers
from ..objects import at, first_present, length, tokens, updating
from .kv_worker import layer_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable

    from ...cpython.objects import Object
    from ...cpython.runtime import Runtime


# what -> ((first release, path), ...), the newest first
PATHS = {
    "arrival": (("0.6.0", "metrics.arrival_time"),),
    "prompt": (("0.6.0", "data._prompt_token_ids"),),
    "output": (("0.6.0", "data._output_token_ids"),),
    "computed": (("0.6.0", "data._num_computed_tokens"),),
}
_DRIVER = "model_executor.driver_worker.worker|{0}model_executor.driver_worker"
WORKERS = {  # objects that a frame may hold -> the path from there to the Worker
    "Worker": "",
    "CPUWorker": "",
    "WorkerWrapperBase": "worker",
    "WorkerWrapper": "worker",
    "LLMEngine": _DRIVER.format(""),
    "_AsyncLLMEngine": _DRIVER.format(""),
    "LLM": "llm_engine." + _DRIVER.format("llm_engine."),
    "MQLLMEngine": "engine." + _DRIVER.format("engine."),
}
CACHES = (("gpu_cache", 0), ("cpu_cache", 1))  # lists of tensors, one per layer -> the pool whose blocks they hold
QUEUES = (("running", "running"), ("waiting", "waiting"), ("swapped", "swapped"))
UPDATING = (
    "block_manager.py",
    "block_manager_v1.py",
    "block_manager_v2.py",
    "block_table.py",
    "common.py",
    "cpu_gpu_block_allocator.py",
    "naive_block.py",
    "prefix_caching_block.py",
    "evictor.py",
    "evictor_v1.py",
    "evictor_v2.py",
)
FOLDERS = ("/vllm/core", "/vllm/core/block")
READING = {
    "can_allocate",
    "can_append_slots",
    "can_append_slot",
    "get_num_free_gpu_blocks",
    "get_num_free_blocks",
    "get_num_free_cpu_blocks",
    "get_block_table",
    "get_prefix_cache_hit_rate",
    "can_swap_in",
    "can_swap_out",
}
MAX_SEQUENCES = 100_000
MAX_BLOCKS = 1 << 26


def is_scheduler(root: Object) -> bool:
    """Whether an object is V0's scheduler: it has a block manager, which V1's has not."""
    return at(root, "block_manager") is not None


def read(rt: Runtime, scheduler: Object, version: str, content: bool) -> Cache:
    """`Cache` of a V0 Scheduler: pools "gpu" and, where there are any, "cpu" blocks."""
    manager = scheduler.attr("block_manager")
    names, requests = _requests(rt, scheduler, content)
    tables = {key.integer(): table for key, table in manager.attr("block_tables").items(MAX_SEQUENCES)}
    if at(manager, "block_allocator") is not None:
        pools = _pools(rt, manager.attr("block_allocator"))
    else:
        pools = _old_pools(rt, manager, tables.values())
    for seq, table in tables.items():
        name = names.get(seq, f"sequence {seq}")
        request = requests.get(name)
        if request is None:
            request = requests[name] = Request(name, known=False)
        ids = _table_ids(rt, table)
        number = next((n for n, (_, base, size) in enumerate(pools) if ids and base <= ids[0] < base + size), 0)
        request.blocks[number] = [i - pools[number][1] for i in ids]
    for key, table in _items(manager, "cross_block_tables"):
        name = f"{key.string(1000)} (encoder)"
        requests[name] = Request(name, queue="running", blocks={0: _table_ids(rt, table)})
    size = manager.attr("block_size").integer()
    groups = [Group(n, "full", size, n) for n in range(len(pools))]
    for pool, _, _ in pools:
        pool.block_size = size
    cache = Cache(
        "vllm", version, [p for p, _, _ in pools], groups, list(requests.values()), updating(rt, FOLDERS, READING, UPDATING)
    )
    cache.notes.append("V0 engine: block tables belong to sequences")
    _waits(cache, at(manager, "watermark_blocks"), scheduler)
    return cache


def _items(obj: Object, name: str) -> list[tuple[Object, Object]]:
    found = at(obj, name)
    return [] if found is None else found.items(MAX_SEQUENCES)


def _table_ids(rt: Runtime, table: Object) -> list[int]:
    """Block ids of a BlockTable (a list of PhysicalTokenBlocks before 0.6, an object with its ids beside it since)."""
    held = at(table, "_block_ids")
    if held is None:  # BlockTable of CpuGpuBlockAllocator: a BlockList inside
        held = table.attr("_blocks").attr("_block_ids")
    return integers(rt, held.element_addresses(MAX_BLOCKS))


def is_worker(obj: Object | None) -> bool:
    """Whether an object is V0's worker: it has cache engines."""
    return obj is not None and at(obj, "cache_engine") is not None


def cache_tensors(worker: Object) -> list[tuple[int, int, Object, dict[str, int]]]:
    """[(layer, pool, the tensor's Object, spec)] of a worker's first cache engine (there is one per virtual engine)."""
    engines = worker.attr("cache_engine")
    engine = engines.item(0) if engines.isa("list") else engines
    spec = {
        name: found.integer()
        for name in ("block_size", "head_size", "num_kv_heads", "num_heads")
        for found in [at(engine, name)]
        if found is not None
    }
    spec.setdefault("num_kv_heads", spec.pop("num_heads", None))  # CPUCacheEngine's name for them
    found = []
    for name, pool in CACHES:
        held = at(engine, name)
        if held is not None:
            found += [(layer, pool, obj, spec) for layer, obj in enumerate(held.elements(10_000))]
    if found and not any(pool == 0 for _, pool, _, _ in found):  # CPUCacheEngine: what its allocator calls the device's blocks
        found = [(layer, 0, obj, spec) for layer, _, obj, spec in found]
    return found


def read_worker(rt: Runtime, obj: Object, label: str) -> Worker:
    """`Worker`: the layers' memory of a V0 worker."""
    worker = Worker(label, target=rt.target)
    worker.unread.append(("block tables", "V0 engine: they live for one step only and are not read"))
    for index, pool, held, spec in cache_tensors(obj):
        tensor = read_tensor(rt, held.address)
        there = tensor.storage_data and tensor.shape and tensor.numel
        layer = layer_of(index, ("gpu", "cpu")[pool], pool, tensor, spec) if there else None
        if layer is not None:
            worker.layers.append(layer)
        elif tensor.numel:
            worker.notes.append(
                f"layer {index}: " + (tensor.unavailable or f"shape {list(tensor.shape or ())} is no layout that is known")
            )
    return worker


# ---- pools by ids and counts -------------------------------------------------------------------------------------------
def _pools(rt: Runtime, allocator: Object) -> list[tuple[Pool, int, int]]:
    """[(Pool, first id, size)] of a CpuGpuBlockAllocator, the device's first."""
    found = {}
    for device, one in allocator.attr("_allocators").items(8):
        found[device.attr("_name_").string(20).lower()] = one
    null = at(allocator, "_null_block")
    reserved = None
    if null is not None:
        block = at(null, "_proxy")
        reserved = _block_id(block) if block is not None else None
    pools = []
    for name in ("gpu", "cpu"):
        if name in found:
            pool, base = _pool(rt, found[name], name)
            if pool.size or name == "gpu":
                if reserved is not None and name == "gpu":
                    pool.reserved = (reserved - base,)
                pools.append((pool, base, pool.size))
    if not pools:
        raise LayoutError(f"the {allocator.type_name} at {allocator.address:#x} has no allocator of a device")
    return pools


def _block_id(block: Object | None) -> int | None:
    for _ in range(4):  # a prefix-caching block wraps a naive one
        found = at(block, "_block_id")
        if found is not None:
            return found.integer()
        block = at(block, "_block")
        if block is None:
            break
    return None


def _pool(rt: Runtime, one: Object, name: str) -> tuple[Pool, int]:
    """(Pool, first id) of a NaiveBlockAllocator or a PrefixCachingBlockAllocator."""
    caching = at(one, "_hashless_allocator")
    naive = one if caching is None else caching
    counts = {k.integer(): v for k, v in naive.attr("_refcounter").attr("_refcounts").items(MAX_BLOCKS)}
    base, size = (min(counts), len(counts)) if counts else (0, 0)
    if counts and max(counts) - base + 1 != size:
        raise LayoutError(f"the {name} allocator counts {size} blocks between {base} and {max(counts)}")
    pool = Pool(name, size, size, 0, reserved=())
    pool.ref_cnt = [counts[base + i].integer() for i in range(size)]
    free = integers(rt, naive.attr("_free_block_indices").element_addresses(MAX_BLOCKS))
    if caching is not None:
        _prefixes(rt, pool, one, base, free)
    pool.free_ids = [i - base for i in free]
    pool.num_free = len(free)
    return pool, base


def _prefixes(rt: Runtime, pool: Pool, allocator: Object, base: int, free: list[int]) -> None:
    """The prefix map, and what the evictor holds: blocks that are free and still cached, appended to `free`."""
    carried = {}
    for key, kept in allocator.attr("evictor").attr("free_table").items(MAX_BLOCKS):
        block = key.integer()
        free.append(block)
        carried[block - base] = kept.attr("content_hash").integer(max_digits=8)
    pool.has_hash_map, pool.hashes = True, [0] * pool.size
    for key, value in allocator.attr("_cached_blocks").items(MAX_BLOCKS):
        token, block = _token(key.integer(max_digits=8)), value.integer() - base
        pool.hash_map.append((token, [block]))
        if pool.valid(block) and block not in carried:
            pool.hashes[block] = token
    for block, content in carried.items():
        if pool.valid(block):
            pool.hashes[block] = _token(content)
    pool.hash_text = lambda token: f"{token & (1 << 64) - 1:x}" if token else "none"


def _token(content: int) -> int:
    return content or -1  # 0 says: no hash


# ---- pools of PhysicalTokenBlocks (BlockSpaceManagerV1, 0.6.0 to 0.6.2) ------------------------------------------------------
def _old_pools(rt: Runtime, manager: Object, tables: Iterable[Object]) -> list[tuple[Pool, int, int]]:
    """[(Pool, 0, size)]: the device's blocks, and the host's where there are any. A block is in a table, free, cached, or not
    made yet."""
    devices = {"gpu": [], "cpu": []}
    for table in tables:
        for block in table.attr("_blocks").elements(MAX_BLOCKS):
            devices[block.attr("device").attr("_name_").string(20).lower()].append(block)
    pools = []
    for name in ("gpu", "cpu"):
        allocator = manager.attr(name + "_allocator")
        size = allocator.attr("num_blocks").integer()
        if not size and name == "cpu":
            continue
        pool = Pool(name, size, size, 0, reserved=())
        pool.ref_cnt = [0] * size
        free, blocks = [], devices[name]
        if at(allocator, "free_blocks") is not None:
            held = allocator.attr("free_blocks").elements(MAX_BLOCKS)
            free = [b.attr("block_number").integer() for b in held]
            blocks = blocks + held
        else:
            pool.has_hash_map, pool.hashes = True, [0] * size
            kept = [b for _, b in allocator.attr("evictor").attr("free_table").items(MAX_BLOCKS)]
            free = [b.attr("block_number").integer() for b in kept] + list(
                range(allocator.attr("current_num_blocks").integer(), size)
            )
            named = allocator.attr("cached_blocks").items(MAX_BLOCKS)
            for block in [*blocks, *kept, *(b for _, b in named)]:
                pool.hashes[_number(block, size)] = _token(block.attr("block_hash").integer(max_digits=8))
            for key, block in named:
                pool.hash_map.append((_token(key.integer(max_digits=8)), [block.attr("block_number").integer()]))
            for block in kept:  # out of the map while they wait to be evicted
                number = block.attr("block_number").integer()
                pool.hash_map.append((pool.hashes[number], [number]))
            blocks = [*blocks, *kept, *(b for _, b in named)]
            pool.hash_text = lambda token: f"{token & (1 << 64) - 1:x}"
        for block in blocks:
            pool.ref_cnt[_number(block, size)] = block.attr("ref_count").integer()
        pool.free_ids, pool.num_free = free, len(free)
        pools.append((pool, 0, size))
    return pools


def _number(block: Object, size: int) -> int:
    number = block.attr("block_number").integer()
    if not 0 <= number < size:
        raise LayoutError(f"the block at {block.address:#x} carries the number {number} of {size}")
    return number


# ---- requests ----------------------------------------------------------------------------------------------------------
def _requests(rt: Runtime, scheduler: Object, content: bool) -> tuple[dict[int, str], dict[str, Request]]:
    """({sequence id: name}, {name: Request}) of the groups in the scheduler's queues."""
    names, found = {}, {}
    now = time.time() if rt.target.is_live else None
    for queue, name in QUEUES:
        for group in scheduler.attr(name).elements(MAX_SEQUENCES):
            request_id = group.attr("request_id").string(1000)
            seqs = group.attr("seqs").elements(1000)
            for seq in seqs:
                number = seq.attr("seq_id").integer()
                names[number] = request_id if len(seqs) == 1 else f"{request_id}/{number}"
                request = _sequence(rt, seq, names[number], content)
                request.queue = queue
                arrival = first_present(group, PATHS["arrival"])
                if now is not None and arrival is not None and 0 < arrival.floating() <= now + 3600:
                    request.age = max(0.0, now - arrival.floating())
                found[request.request_id] = request
    return names, found


def _sequence(rt: Runtime, seq: Object, name: str, content: bool) -> Request:
    request = Request(name, address=seq.address)
    try:
        request.status = seq.attr("status").attr("_name_").string(60)
    except GdbextError as e:
        log.passed_over(e)
        request.status = "?"
    prompt, output, computed = (first_present(seq, PATHS[what]) for what in ("prompt", "output", "computed"))
    if prompt is None or output is None:
        raise NotFoundError(f"sequence {name} keeps its tokens where no release that is known does")
    request.prompt_tokens, request.output_tokens = length(rt, prompt), length(rt, output)
    request.computed_tokens = computed.integer() if computed is not None else None
    if content:
        request.content = tokens(rt, (("prompt_token_ids", prompt), ("output_token_ids", output)))
    return request


def _waits(cache: Cache, watermark: Object | None, scheduler: Object) -> None:
    """Fills each waiting sequence's `blocked_by` in."""
    pool, limit = cache.pools[0], at(scheduler, "scheduler_config.max_num_seqs")
    slots = limit.integer() if limit is not None else None
    reserve = watermark.integer() if watermark is not None else 0
    cache.limits.update({k: v for k, v in (("max_num_running_reqs", slots), ("watermark_blocks", reserve)) if v is not None})

    def head_waits(request: Request) -> str:
        wanted = -(-((request.prompt_tokens or 0) + (request.output_tokens or 0)) // (pool.block_size or 1))
        if slots and len(waiting.running(cache)) >= slots:
            return waiting.slots_are_taken(slots)
        if wanted > (pool.num_free or 0) - reserve:
            there = f"{pool.num_free} free" + (f", {reserve} kept back" if reserve else "")
            return waiting.shortage(str(wanted), there, waiting.held_of_group(cache, 0))
        return waiting.NEXT_STEP

    waiting.explain(cache, ("waiting", "swapped"), {}, head_waits)
