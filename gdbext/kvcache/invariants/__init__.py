"""The check of a KV cache against every rule of `rules`, in order: the structure of a pool before the facts derived from it.

The first fault leads. Faults that a broken structure explains are counted as following from it, not listed. If the engine is in
the middle of an update, findings of transient rules are set apart (`Report.transient`) instead of being called corruption.
"""

from __future__ import annotations

from typing import Iterable

from ..model import Cache, Owners, Pool, Values, Worker
from ..rules import BLOCK_NAN, FREE_OWNED, PREFIX_COPY, RANK_COPY, REF_BELOW_OWNERS, RESERVED_NAN, RULES, Rule
from . import free_queue, prefix, references, slots, tables, worker_tables
from .findings import LIMIT, Compared, Findings, LeftOut, Report, Violation, fold

__all__ = ["LIMIT", "RULES", "Compared", "LeftOut", "Report", "Rule", "Violation", "check"]


def check(cache: Cache, workers: Iterable[Worker] = (), values: Values | None = None, moves: bool = False) -> Report:
    """Checks every rule that applies to the read data. `workers`: the ranks whose tables are compared with the scheduler's.
    `values`: the result of checking the blocks' values, None where they were not read. `moves`: the processes run on during the
    read."""
    found = Findings()
    held: dict[str, int] = {}
    blocks = _check_pools(found, cache, held)
    found.pool = cache.pools[0].name if len(cache.pools) == 1 else ""
    prefix.check_tokens(found, cache)
    workers = list(workers)
    compared = [worker_tables.check(found, cache, worker, moves) for worker in workers]
    if values is not None:
        looked_at = any(values.looked_at.values())
        found.checks(*((RESERVED_NAN, BLOCK_NAN, PREFIX_COPY) if looked_at else ()), *((RANK_COPY,) if values.pairs else ()))
        for rank in (rank for rank, count in values.looked_at.items() if not count):
            found.leave_out(rank, "values of blocks", "none could be read")
        for fault in values.faults:
            found.rank = fault.rank
            found.add(fault.rule, fault.detail, fault.block)
        found.rank = ""
    return _reported(found, cache, workers, compared, blocks, held)


def contradictions(cache: Cache) -> list[str]:
    """What a cache that was read from a running process says in two ways, each in words: most often it changed meanwhile."""
    found = Findings()
    _check_pools(found, cache, {})
    torn = [f"the free queue of {pool.name} changed while it was read" for pool in cache.pools if pool.torn]
    ahead = [f"{r.request_id} has {r.excess} more tokens computed than it has" for r in cache.requests if r.excess]
    judged = (v.detail for v in found.violations if v.rule not in cache.unjudged)
    return [*judged, *torn, *ahead]


def _check_pools(found: Findings, cache: Cache, held: dict[str, int]) -> int:
    """Checks what the scheduler has -> how many blocks were looked at."""
    blocks = 0
    if cache.rows:
        slots.check_rows(found, cache)  # first: a row of two requests gives both the same slots
    for number, pool in enumerate(cache.pools):
        blocks += pool.size if pool.count < pool.size else pool.count
        found.pool = pool.name
        _check_pool(found, cache, number, pool, held)
    return blocks


def check_workers(cache: Cache, workers: Iterable[Worker]) -> Report:
    """Checks the tables of workers against a scheduler's, while both run on, and nothing else."""
    found, workers = Findings(), list(workers)
    compared = [worker_tables.check(found, cache, worker, True) for worker in workers]
    return _reported(found, cache, workers, compared, 0, {})


def _reported(
    found: Findings, cache: Cache, workers: list[Worker], compared: list[Compared], blocks: int, held: dict[str, int]
) -> Report:
    leading = fold([v for v in found.violations if v.rule not in cache.unjudged])
    for name in dict.fromkeys(cache.unjudged.values()):
        these = ", ".join(rule for rule, why in cache.unjudged.items() if why == name)
        found.leave_out(cache.engine, these, f"not judged: {name} is not there")
    middle = {worker.rank for worker in workers if worker.mid_update}
    passing = [v for v in leading if RULES[v.rule].transient and (cache.mid_update or v.rank in middle)]
    left = [v for v in leading if v not in passing]
    place = cache.mid_update or next((worker.mid_update for worker in workers if worker.mid_update), "")
    rules = [name for name in found.checked if name not in cache.unjudged]
    return Report(left, passing, blocks, held, rules, compared, found.left_out, middle=place)


def _check_pool(found: Findings, cache: Cache, number: int, pool: Pool, held: dict[str, int]) -> None:
    owners = cache.owners(number)
    keeping = _judged(found, cache, number, pool, owners)
    free_queue.check_blocks(found, pool)
    free_queue.check_queue(found, pool)
    for rule, block, detail in pool.faults:
        found.add(rule, detail, block)
    tables.check(found, cache, number, pool)
    if pool.ref_cnt is not None:
        held[pool.name] = references.check(found, pool, owners, keeping)
    tables.check_free(found, pool, keeping)
    if pool.hashes is not None and pool.has_hash_map:
        prefix.check_hashes(found, pool)
    if pool.tree is not None:
        prefix.check_tree(found, pool.tree)
    if pool.ref_cnt is None:
        slots.check(found, cache, pool, owners)


def _judged(found: Findings, cache: Cache, number: int, pool: Pool, owners: Owners) -> Owners:
    """`owners` without lent blocks, and without tables of which it is unknown which blocks are given back."""
    unknown = {group.id: group.unjudged for group in cache.groups if group.pool == number and group.unjudged}
    for group, why in unknown.items():
        rules = f"{FREE_OWNED.name} and {REF_BELOW_OWNERS.name} of the tables of group {group}"
        found.leave_out(pool.name, rules, f"not judged: {why}")
    if not unknown and not pool.lent:
        return owners
    kept = {b: [one for one in held if one[1] not in unknown] for b, held in owners.items() if b not in pool.lent}
    return {block: held for block, held in kept.items() if held}
