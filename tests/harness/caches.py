"""A KV cache made of plain data, as an engine that is well keeps one."""

import random

from gdbext.kvcache.model import HEAD, NONE, TAIL, Cache, Group, Pool, Request


def link(pool, order):
    """Makes `order` the free queue of a pool."""
    pool.prev, pool.next = [NONE] * pool.count, [NONE] * pool.count
    ends = [HEAD] + list(order) + [TAIL]
    for before, at, after in zip(ends, ends[1:], ends[2:]):
        pool.prev[at], pool.next[at] = before, after
    pool.head_next, pool.tail_prev = ends[1], ends[-2]
    pool.num_free = len(order)


def healthy(blocks=64, tables=((1, 2, 3), (1, 2, 4, 5)), cached=(1, 2, 9), seed=0, size=16):
    """A cache as vLLM keeps one: requests with shared prefixes, free blocks in any order, some of them cached."""
    pool = Pool("pool", blocks, blocks, size)
    pool.ids, pool.null_ids = list(range(blocks)), [0]
    pool.ref_cnt = [0] * blocks
    requests = []
    for number, table in enumerate(tables):
        requests.append(Request(f"r{number}", "RUNNING", "running", 10, size * len(table), 5, {0: list(table)}))
        for b in table:
            pool.ref_cnt[b] += 1
    free = [b for b in range(1, blocks) if not pool.ref_cnt[b]]
    random.Random(seed).shuffle(free)
    link(pool, free)
    shared = {b for b in range(blocks) if pool.ref_cnt[b] > 1}
    pool.hashes = [1000 + b if b in shared or b in cached else 0 for b in range(blocks)]
    pool.hash_map = [(h, [b]) for b, h in enumerate(pool.hashes) if h]
    pool.has_hash_map = True
    return Cache("vllm", "1", [pool], [Group(0, "full", size)], requests)
