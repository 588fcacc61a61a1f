"""TensorRT-LLM's C++ KV cache by its debug information: window block managers, blocks, sequences (batch_manager).

Written from the source only (batch_manager/kvCacheManager.h, evictionPolicy.h), and tried on a stand-in with the same type and
member names. Each name is data below, so that a difference is one line to fix. The Python KVCacheManagerV2 is not read.
"""

from __future__ import annotations

from typing import Any

from ...errors import LayoutError, NotFoundError
from ...kvcache.model import Cache, Group, Pool, Request
from ...kvcache.rules import FREE_ITERATOR, FREE_LEVEL
from ..native_objects import first, middle_of

WINDOWS = ("mBlockManager.mWindowBlockManagers", "mWindowBlockManagers")  # std::map<window, WindowBlockManager>
BLOCKS, TABLES, TOKENS, PRIMARY = "mAllBlocksById", "mAllocatedBlocksPerSeq", "mTokensPerBlock", "mNumPrimaryBlocks"
POLICY, QUEUES, COUNTS = (
    "mEvictionPolicy",
    "mFreeQueues",
    "mNumFreeBlocksPerLevel",
)  # queues: [cache level][priority] of std::list<BlockPtr>
ID, REFERENCES, ITERATOR = "mBlockId", "mRefCount", "mFreeBlockIterator"
UPDATING = ("LRUEvictionPolicy", "WindowBlockManager", "BlockManager", "KVCacheBlock")
MAX_BLOCKS = 1 << 24


def read(found: Any) -> Cache:
    """`Cache` from `(class, this, inner)` of a frame: a pool and a group per window. Ids below the number of primary blocks are
    on the device."""
    name, this, inner = found
    middle = middle_of(inner, UPDATING)
    windows = first(this, WINDOWS)
    if windows is not None:
        managers = [(key.integer(), value) for key, value in windows.items(1000)]
    elif name == "WindowBlockManager":
        managers = [(0, this.object())]
    else:
        raise NotFoundError(f"the {name} of this frame leads to no WindowBlockManager")
    pools: list[Pool] = []
    groups: list[Group] = []
    requests: dict[str, Request] = {}
    for number, (window, manager) in enumerate(managers):
        pool = _pool(manager, f"window {window}" if len(managers) > 1 else "pool")
        pools.append(pool)
        groups.append(
            Group(number, "full" if len(managers) == 1 else "sliding-window", pool.block_size, number, spec={"window": window})
        )
        for key, blocks in manager.field(TABLES).items(MAX_BLOCKS):
            request_id = str(key.integer())
            request = requests.setdefault(request_id, Request(request_id))
            request.blocks[number] = [block.field(ID).integer() for block in blocks.items(MAX_BLOCKS)]
    cache = Cache("tensorrt-llm", "", pools, groups, list(requests.values()), middle, queues=False)
    cache.notes.append("read by debug information, with member names taken from TensorRT-LLM's source")
    return cache


def _pool(manager: Any, name: str) -> Pool:
    blocks = [b.object() for b in manager.field(BLOCKS).items(MAX_BLOCKS)]
    if any(b is None for b in blocks):
        raise LayoutError(f"{BLOCKS} holds a null pointer")
    pool = Pool(name, len(blocks), len(blocks), manager.field(TOKENS).integer(), reserved=())
    pool.ids = [b.field(ID).integer() for b in blocks]
    pool.ref_cnt = [b.field(REFERENCES).integer() for b in blocks]
    primary = manager.field(PRIMARY).integer()
    policy = manager.field(POLICY)
    pool.free_ids = []
    for level, queues in enumerate(policy.field(QUEUES).items(8)):
        for queue in queues.items(1000):
            for block in queue.items(MAX_BLOCKS):
                number = block.field(ID).integer()
                pool.free_ids.append(number)
                if (number >= primary) != (level > 0):
                    pool.faults.append(
                        (
                            FREE_LEVEL,
                            number,
                            f"block {number} of {primary} primary blocks waits in the free queue of level {level}",
                        )
                    )
    counted = [n.integer() for n in policy.field(COUNTS).items(8)]
    pool.num_free = sum(counted)
    pool.counters["free_per_level"] = counted
    free = set(pool.free_ids)
    for number, block in enumerate(blocks):
        engaged = block.field(ITERATOR).engaged()
        if engaged != (pool.ids[number] in free):
            said = "has a place in a free queue but is in none" if engaged else "is in a free queue but has no place"
            pool.faults.append((FREE_ITERATOR, number, f"block {number} {said}"))
    return pool
