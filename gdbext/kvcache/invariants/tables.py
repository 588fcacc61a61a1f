"""Rules of requests' block tables."""

from __future__ import annotations

from ..model import DANGLING, Cache, Group, Owners, Pool, Request
from ..rules import DOUBLE_OWNER, FREE_OWNED, OWNED_TWICE, REQUEST_COUNTS, REQUEST_UNKNOWN, TABLE_RANGE, TABLE_SHORT
from .findings import Findings


def check(found: Findings, cache: Cache, number: int, pool: Pool) -> None:
    """Checks the tables of all requests that lie in pool `number`."""
    found.checks(TABLE_RANGE)
    groups = {g.id: g for g in cache.groups}
    seen: dict[int, tuple[Request, int]] = {}
    for request in cache.requests:
        for group_id, blocks in request.blocks.items():
            group = groups.get(group_id)
            if (group.pool if group else 0) == number:
                _check_table(found, pool, request, group, blocks, seen)
        if cache.queues and pool.unit == "block" and number == 0:
            found.checks(REQUEST_UNKNOWN)
            if not request.known and any(request.blocks.values()) and not request.transfer:
                count = sum(len(b) for b in request.blocks.values())
                detail = f"{request.request_id} holds {count} blocks and the scheduler does not know it"
                found.add(REQUEST_UNKNOWN, detail, None, request.request_id)
    for request in cache.requests if number == 0 else ():
        if request.lead is not None:
            found.checks(REQUEST_COUNTS)
            if request.excess > 1 + request.lead:  # a result is taken off what is on its way before it is added to the output
                detail = f"{request.request_id} has {request.excess} more tokens computed than it has: {request.computed_tokens}"
                found.add(REQUEST_COUNTS, detail, None, request.request_id, evidence="")
    unread = [r for r in cache.requests if r.allocated and r.row is not None and not r.blocks] if number == 0 else ()
    if unread:
        found.leave_out(pool.name, f"tables of {len(unread)} requests", "they are on the device")
    found.checks(OWNED_TWICE)
    if pool.hashes is not None:
        found.checks(DOUBLE_OWNER)


def _check_table(
    found: Findings,
    pool: Pool,
    request: Request,
    group: Group | None,
    blocks: list[int],
    seen: dict[int, tuple[Request, int]],
) -> None:
    """One table. `seen`: `{block: (request, index)}` of the tables checked before; this one's blocks are added."""
    own: dict[int, int] = {}
    name = request.request_id
    may_hold_reserved = pool.unit == "block" or (group is not None and group.kind == "sliding-window")
    for index, block in enumerate(blocks):
        if block in pool.reserved and may_hold_reserved:
            continue
        if not pool.valid(block) or block in pool.reserved:
            what = "no block of the pool" if block == DANGLING else str(block)
            found.add(TABLE_RANGE, f"place {index} of the table of {name} holds {what}", None if block < 0 else block, name)
            continue
        if block in own:
            detail = f"{pool.unit} {block} is in the table of {name} at {own[block]} and {index}"
            found.add(OWNED_TWICE, detail, block, name)
        own[block] = index
        before = seen.get(block)
        if before is not None and before[0] is not request and pool.hashes is not None:
            if pool.has_hash_map and not pool.hashes[block]:
                detail = f"block {block} belongs to {before[0].request_id} at {before[1]} and to {name} at {index}"
                found.add(DOUBLE_OWNER, f"{detail}, and is no cached prefix", block, name)
        seen[block] = (request, index)
    if group and group.kind in ("full", "mla") and request.computed_tokens and request.known and pool.unit == "block":
        found.checks(TABLE_SHORT)
        if len(blocks) < -(-request.computed_tokens // group.block_size):
            detail = f"{name} has computed {request.computed_tokens} tokens and holds {len(blocks)} blocks of {group.block_size}"
            found.add(TABLE_SHORT, detail, None, name, evidence="")  # the count was read first, and both only grow


def check_free(found: Findings, pool: Pool, owners: Owners) -> None:
    """Checks that no free block stands in a table."""
    if not pool.linked and pool.free_ids is None:
        return
    found.checks(FREE_OWNED)
    bits = pool.free_bits()
    for i, held_by in sorted(owners.items()):
        if pool.valid(i) and bits[i]:
            request, _, index = held_by[0]
            detail = f"{pool.unit} {i} is free and is in the table of {request.request_id} at {index}"
            found.add(FREE_OWNED, detail, i, request.request_id)
