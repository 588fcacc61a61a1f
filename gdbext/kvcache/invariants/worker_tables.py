"""Rules of the block tables that workers hold, against the scheduler's."""

from __future__ import annotations

from ..model import Cache, Group, Pool, Table, Worker
from ..rules import SLOT_RANGE, SLOT_TWICE, WORKER_RANGE, WORKER_TABLE
from .findings import Findings


def check(found: Findings, cache: Cache, worker: Worker) -> None:
    """Checks one worker. It may be a step behind: a shorter row is no fault, another id is."""
    found.rank = worker.rank
    for table in worker.tables:
        group = cache.group(table.group)
        if group is None:
            continue
        pool = cache.pools[group.pool]
        found.pool = pool.name
        found.checks(WORKER_TABLE, WORKER_RANGE, SLOT_RANGE, SLOT_TWICE)
        _check_rows(found, cache, worker.rank, group, pool, table)
        _check_slots(found, worker.rank, table, pool.size * group.block_size, group.block_size)
    found.rank = ""


def _check_rows(found: Findings, cache: Cache, rank: str, group: Group, pool: Pool, table: Table) -> None:
    requests = {r.request_id: r for r in cache.requests}
    whole = table.block_size and group.block_size % table.block_size == 0
    ratio = max(1, group.block_size // table.block_size) if whole else 1
    limit = pool.size * ratio
    for name, row in table.rows:
        outside = next(((i, b) for i, b in enumerate(row) if not 0 <= b < limit), None)
        if outside is not None:
            place, block = outside
            detail = f"{rank}: place {place} of the row of {name} holds {block}, the cache has {limit} blocks"
            found.add(WORKER_RANGE, detail, block, name)
        request = requests.get(name)
        if request is None or table.group not in request.blocks:
            continue
        wanted = request.blocks[table.group]
        if ratio > 1:
            wanted = [b * ratio + k for b in wanted for k in range(ratio)]
        # a block that left the window is the null block to the scheduler; the worker's row keeps what stood there
        pairs = enumerate(zip(row, wanted))
        different = next((i for i, (a, b) in pairs if a != b and b // ratio not in pool.reserved), None)
        if different is not None:
            detail = f"{rank}: place {different} of the row of {name} holds {row[different]}"
            found.add(WORKER_TABLE, f"{detail}, the scheduler says {wanted[different]}", wanted[different], name)


def _check_slots(found: Findings, rank: str, table: Table, limit: int, block_size: int) -> None:
    """The slot mapping of the last step: -1 marks a token that is not written."""
    seen: dict[int, int] = {}
    for token, slot in enumerate(table.slots):
        if slot == -1:
            continue
        block = slot // block_size
        if not 0 <= slot < limit:
            found.add(SLOT_RANGE, f"{rank}: token {token} of the step is written to slot {slot}, the cache has {limit}", block)
        elif slot in seen:
            found.add(
                SLOT_TWICE, f"{rank}: tokens {seen[slot]} and {token} of the step are written to the same slot {slot}", block
            )
        seen[slot] = token
