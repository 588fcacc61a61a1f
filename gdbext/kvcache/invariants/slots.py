"""Rules of pools of token slots (SGLang): slots of requests, the free list and the prefix tree against each other; request
rows."""

from __future__ import annotations

from typing import Any

from ..model import Cache, Owners, Pool, Request
from ..rules import FREE_CACHED, ROW_FREE, ROW_SHARED, SLOT_SHARED, SLOTS_LOST
from .findings import Findings


def check(found: Findings, cache: Cache, pool: Pool, owners: Owners) -> None:
    """Checks that each slot is free, cached or a request's own, and that none is lost or counted twice."""
    bits = pool.free_bits() if pool.free_ids is not None else None
    if pool.cached_ids is not None and bits is not None:
        found.checks(FREE_CACHED)
        for i in pool.cached_ids:
            if pool.valid(i) and bits[i]:
                found.add(FREE_CACHED, f"{pool.unit} {i} is free and in the prefix tree", i)
    found.checks(SLOT_SHARED)
    cached = set(pool.cached_ids or ())
    for i, held_by in sorted(owners.items()):
        if i in cached or len({r.request_id for r, _, _ in held_by}) < 2:
            continue
        private = [
            r
            for r, _, index in held_by
            if pool.unit == "state" or (r.private is not None and (index + 1) * pool.block_size > r.private)
        ]
        if private:
            names = " and ".join(dict.fromkeys(r.request_id for r, _, _ in held_by))
            own = private[0].request_id
            found.add(SLOT_SHARED, f"{pool.unit} {i} is used by {names}, and is {own}'s own", i, own)
    if all(pool.counters.get(k) is not None for k in ("available", "evictable", "protected")) and cache.queues:
        _check_sum(found, cache, pool, pool.counters)


def _check_sum(found: Findings, cache: Cache, pool: Pool, counted: dict[str, Any]) -> None:
    """The engine's own leak check: available, cached and requests' own slots must make up the pool."""
    own = counted.get("own")
    if own is None and any(r.slots and r.private is None for r in cache.requests):
        return  # which of their slots are the tree's is not known
    found.checks(SLOTS_LOST)
    if own is None:
        own = sum(_own_slots(r, pool.block_size) for r in cache.requests) if pool is cache.pools[0] else 0
    available, evictable, protected = counted["available"], counted["evictable"], counted["protected"]
    total, size = available + evictable + protected + own + counted.get("session", 0), pool.size * pool.block_size
    if total != size:
        word = "lost" if total < size else "counted twice"
        parts = f"{available} available + {evictable} evictable + {protected} protected + {own} of requests = {total}"
        found.add(SLOTS_LOST, f"{parts}, the pool has {size}: {abs(size - total)} {word}")


def _own_slots(request: Request, page: int) -> int:
    """Slots of the pages that a request has, without those of its prefix in the tree."""
    if request.private is None:
        return 0
    pages = ((request.allocated or 0) + page - 1) // page
    return max(0, pages * page - request.private)


def check_rows(found: Findings, cache: Cache) -> None:
    """Checks the request rows: a free row is no request's and free once, a row is one request's."""
    found.checks(ROW_FREE, ROW_SHARED)
    free: set[int] = set()
    seen: dict[int, str] = {}
    for row in (cache.rows or {"free": ()})["free"]:
        if row in free:
            found.add(ROW_FREE, f"row {row} of the request pool is free twice")
        free.add(row)
    for request in cache.requests:
        row, name = request.row, request.request_id
        if row is None:
            continue
        if row in free:
            found.add(ROW_FREE, f"row {row} is free and belongs to {name}", None, name)
        if row in seen:
            found.add(ROW_SHARED, f"row {row} belongs to {seen[row]} and to {name}", None, name)
        seen[row] = name
