"""Rules of a pool's blocks and of its free queue."""

from __future__ import annotations

from ..model import Pool
from ..rules import (
    BLOCK_ID,
    BLOCK_OBJECT,
    FREE_COUNT,
    FREE_LIST_DOUBLE,
    FREE_LIST_WILD,
    NULL_BLOCK,
    NULL_FREED,
    POOL_SIZE,
    STRUCTURE,
)
from .findings import Findings


def check_blocks(found: Findings, pool: Pool) -> None:
    """Checks that the pool lists its blocks: as many as it counts, each with its own id, the null block in its place."""
    found.checks(POOL_SIZE, BLOCK_OBJECT)
    if pool.count != pool.size and (pool.linked or pool.ids is not None):
        found.add(POOL_SIZE, f"the pool counts {pool.size} {pool.unit}s and lists {pool.count}")
    for i in pool.foreign:
        found.add(BLOCK_OBJECT, f"entry {i} of the pool's list is no block", i)
    if pool.ids is not None:
        found.checks(BLOCK_ID)
        if pool.ids != list(range(pool.count)):
            strangers = set(pool.foreign)
            for i, carried in enumerate(pool.ids):
                if carried != i and i not in strangers:
                    found.add(BLOCK_ID, f"block {i} carries the id {carried}", i)
    if pool.null_ids is not None:
        found.checks(NULL_BLOCK)
        for i in pool.null_ids:
            if i not in pool.reserved:
                found.add(NULL_BLOCK, f"block {i} says that it is the null block", i)
        for i in pool.reserved:
            if i not in pool.null_ids and pool.count:
                found.add(NULL_BLOCK, f"block {i} does not say that it is the null block", i)


def check_queue(found: Findings, pool: Pool) -> None:
    """Checks the free queue or free list of a pool that has one: its structure, its reserved blocks, its counter."""
    if not pool.linked and pool.free_ids is None:
        found.leave_out(pool.name, "free list", "it is on the device: only its length is known")
        return
    walk = pool.walk()
    found.checks(*STRUCTURE)
    if walk.fault:
        found.add(walk.fault[0], walk.fault[2], walk.fault[1])
    if pool.free_ids is not None:
        _check_list(found, pool, pool.free_ids)
    found.checks(NULL_FREED)
    for i in pool.reserved:
        if pool.valid(i) and walk.reached[i]:
            found.add(NULL_FREED, f"{pool.unit} {i} is reserved and is in the free queue", i)
    if pool.torn:
        found.leave_out(pool.name, FREE_COUNT.name, "it changed while it was read")
    elif pool.num_free is not None:
        found.checks(FREE_COUNT)
        length = len(walk.order) if pool.linked else len(pool.free_ids or ())
        if pool.num_free != length:
            detail = f"the counter says {pool.num_free} free {pool.unit}s, the queue has {length}"
            found.add(FREE_COUNT, detail, evidence=str(pool.num_free - length))


def _check_list(found: Findings, pool: Pool, free_ids: list[int]) -> None:
    """A free list without links: ids in range, each once."""
    if free_ids and len(set(free_ids)) == len(free_ids) and 0 <= min(free_ids) and max(free_ids) < pool.count:
        return
    seen = bytearray(pool.count)
    for at, i in enumerate(free_ids):
        if not pool.valid(i):
            found.add(FREE_LIST_WILD, f"place {at} of the free list holds {i}, which is no {pool.unit} of the pool", i)
        elif seen[i]:
            found.add(FREE_LIST_DOUBLE, f"{pool.unit} {i} is in the free list twice", i)
        else:
            seen[i] = 1
