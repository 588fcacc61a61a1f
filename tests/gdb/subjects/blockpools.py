"""Real BlockPool objects of the vLLM of this interpreter, without an engine: healthy, broken by hand in one way each, and of
several sizes.

Says for each name in `pools` which rule and block must be named (null: none), and what the pool itself says.
"""

import json
import os
import sys
import time

from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id


def fresh(blocks=64):
    return BlockPool(num_gpu_blocks=blocks, enable_caching=True, hash_block_size=16)


def used():
    """A pool with a history: some blocks taken, cached, shared and given back."""
    pool = fresh()
    taken = pool.get_new_blocks(12)
    for i, block in enumerate(taken[:8]):
        pool._insert_block_hash(make_block_hash_with_group_id(b"%032d" % (i // 2), 0), block, num_tokens=16 * i + 16)
    pool.touch(taken[:3])
    pool.free_blocks(taken[2:10][::-1])
    return pool, taken


def broken(change):
    pool, taken = used()
    return pool, change(pool, taken, pool.free_block_queue)


def double_append(pool, taken, queue):
    queue.append(pool.blocks[30])
    return ["free-list-double", 30]


def double_prepend(pool, taken, queue):
    queue.prepend_n([pool.blocks[30]])
    return ["free-list-double", 30]


def cycle(pool, taken, queue):
    pool.blocks[40].next_free_block = pool.blocks[20]
    return ["free-list-cycle", 40]


def leak(pool, taken, queue):
    queue.remove(pool.blocks[25])
    return ["leaked", 25]


def swapped(pool, taken, queue):
    pool.blocks[7], pool.blocks[9] = pool.blocks[9], pool.blocks[7]
    return ["block-id", 7]


def negative(pool, taken, queue):
    pool.blocks[33].ref_cnt -= 1
    return ["negative-ref", 33]


def null_freed(pool, taken, queue):
    queue.append(pool.null_block)
    return ["null-freed", 0]


def free_referenced(pool, taken, queue):
    pool.blocks[33].ref_cnt = 2
    return ["free-referenced", 33]


def counter(pool, taken, queue):
    queue.num_free_blocks += 5
    return ["free-count", None]


def wrong_prev(pool, taken, queue):
    pool.blocks[50].prev_free_block = pool.blocks[20]
    return ["free-list-link", 50]


def cut(pool, taken, queue):
    pool.blocks[50].next_free_block = None
    return ["free-list-end", 50]


def stranger(pool, taken, queue):
    pool.blocks[50].next_free_block = fresh(4).blocks[2]
    return ["free-list-wild", 50]


def wrong_hash(pool, taken, queue):
    key = taken[0].block_hash
    pool.cached_block_hash_to_block._cache[key] = pool.blocks[60]
    return ["hash-entry", 60]


def unmapped(pool, taken, queue):
    pool.blocks[60].set_block_hash(make_block_hash_with_group_id(b"x" * 32, 0), 16)
    return ["hash-missing", 60]


def links_left(pool, taken, queue):
    taken[0].next_free_block = pool.blocks[40]
    return ["stray-links", taken[0].block_id]


def another_null(pool, taken, queue):
    pool.blocks[12].is_null = True
    return ["null-block", 12]


def shortened(pool, taken, queue):
    pool.num_gpu_blocks += 1
    return ["pool-size", None]


def no_block(pool, taken, queue):
    pool.blocks[11] = "eleven"
    return ["block-object", 11]


FAULTS = [
    double_append,
    double_prepend,
    cycle,
    leak,
    swapped,
    negative,
    null_freed,
    free_referenced,
    counter,
    wrong_prev,
    cut,
    stranger,
    wrong_hash,
    unmapped,
    links_left,
    another_null,
    shortened,
    no_block,
]


def main():
    pools, expected = {}, {}
    pools["used"], expected["used"] = used()[0], None
    pools["fresh"], expected["fresh"] = fresh(), None
    pools["one"], expected["one"] = fresh(1), None
    pools["emptied"], expected["emptied"] = fresh(20), None
    held = pools["emptied"].get_new_blocks(19)  # noqa: F841
    for change in FAULTS:
        pools[change.__name__], expected[change.__name__] = broken(change)
    for size in (10_000, int(sys.argv[1])):
        pools[f"size{size}"], expected[f"size{size}"] = fresh(size), None
    said = {}
    for name in ("used", "fresh", "one", "emptied"):
        pool = pools[name]
        said[name] = {
            "free": [b.block_id for b in pool.free_block_queue.get_all_free_blocks()],
            "ref_cnt": [b.ref_cnt for b in pool.blocks],
            "num_free": pool.get_num_free_blocks(),
            "hashed": [b.block_id for b in pool.blocks if b.block_hash is not None],
        }
    print(json.dumps({"pid": os.getpid(), "expected": expected, "said": said}), flush=True)
    while True:
        time.sleep(1000)


main()
