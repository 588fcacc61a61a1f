"""Rules of the block tables and counts that workers hold, against the scheduler's."""

from __future__ import annotations

from typing import Container

from ..model import Cache, Group, Pool, Request, Row, Table, Worker
from ..rules import SLOT_RANGE, SLOT_TWICE, WORKER_COPY, WORKER_LENGTH, WORKER_RANGE, WORKER_ROWS, WORKER_TABLE, Rule
from . import batches
from .findings import Compared, Findings

GROWING = ("full", "mla", "sliding-window", "chunked")  # kinds of groups whose tables grow with the tokens


def check(found: Findings, cache: Cache, worker: Worker, moves: bool = False) -> Compared:
    """Checks one worker -> the parts of it that were compared. It may be a step behind: a shorter row is no fault, another id is.
    `moves`: the scheduler was read first, and both run on. Then a difference is no fault if the later reading of the worker
    explains it."""
    found.rank = worker.rank
    done = Compared(worker.rank)
    requests = {r.request_id: r for r in cache.requests}
    _add_faults(found, worker, [fault for fault in worker.faults if fault[0] is WORKER_ROWS])
    for name, row in worker.rows.items():  # first: a row that is another's explains its table and its counts
        request = requests.get(name)
        if request is not None and request.row is not None and request.row != row.row:
            detail = f"{worker.rank}: row {row.row} of the batch is {name}'s, the scheduler says {request.row}"
            found.add(WORKER_ROWS, detail, None, name)
    for table in worker.tables:
        group = cache.group(table.group)
        if group is None:
            found.leave_out(worker.rank, f"block table {table.group}", "the scheduler has no such group")
            continue
        pool = cache.pools[group.pool]
        found.pool = pool.name
        found.checks(WORKER_TABLE, WORKER_RANGE, SLOT_RANGE, SLOT_TWICE)
        done.tables += 1
        _check_rows(found, done, requests, group, pool, table, worker.own_tree)
        _check_slots(found, worker.rank, table, pool.size * group.block_size, group.block_size)
        done.slots += len(table.slots)
    if worker.rows:
        found.checks(WORKER_ROWS, WORKER_LENGTH)
        found.pool = ""
        for name, row in worker.rows.items():
            request = requests.get(name)
            if request is not None and request.known:
                done.counts += _check_counts(found, cache, worker, request, row, moves)
    found.pool = ""
    done.copies = worker.copies
    found.checks(*((WORKER_COPY,) if worker.copies else ()))  # also over machines: one state without the fault acquits
    _add_faults(found, worker, [fault for fault in worker.faults if fault[0] is not WORKER_ROWS])
    if worker.every_row:
        batches.check(found, cache, worker, done)
    for what, why in worker.unread:
        found.leave_out(worker.rank, what, why)
    if done.tables and not done.rows and any(any(r.blocks.values()) for r in cache.requests if r.queue == "running"):
        found.leave_out(worker.rank, "block tables", "none of their rows is of a request that the scheduler has")
        done.tables = 0
    elif not done.tables and not worker.unread:
        found.leave_out(worker.rank, "block tables", "it keeps none that can be compared")
    found.rank = ""
    return done


def _add_faults(found: Findings, worker: Worker, faults: list[tuple[Rule, str, str]]) -> None:
    for rule, name, detail in faults:
        found.add(rule, f"{worker.rank}: {detail}", None, name or None, place="" if name else detail)


def _ratio(group: Group, size: int) -> int:
    """How many blocks of a worker's table make up one of the scheduler's."""
    return max(1, group.block_size // size) if size and group.block_size % size == 0 else 1


def _check_rows(
    found: Findings, done: Compared, requests: dict[str, Request], group: Group, pool: Pool, table: Table, own_tree: bool
) -> None:
    """`own_tree`: ranks that each have a prefix tree of their own may be a step apart, see `_handed_over`."""
    rank, ratio = done.label, _ratio(group, table.block_size)
    limit = max(pool.size, pool.count) * ratio
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
        done.rows += 1
        done.blocks += min(len(row), len(wanted))
        # a block that left the window is the null block to the scheduler; the worker's row keeps the former one
        pairs = enumerate(zip(row, wanted))
        places = [i for i, (a, b) in pairs if a != b and b // ratio not in pool.reserved]
        if own_tree and ratio == 1:
            taken = {b for r in requests.values() for b in r.blocks.get(table.group, ())}
            places = [i for i in places if not _handed_over(request, pool, taken, i, row[i], wanted[i])]
        different = next(iter(places), None)
        if different is not None:
            detail = f"{rank}: place {different} of the row of {name} holds {row[different]}"
            found.add(WORKER_TABLE, f"{detail}, the scheduler says {wanted[different]}", wanted[different], name)


def _handed_over(request: Request, pool: Pool, taken: Container[int], place: int, own: int, other: int) -> bool:
    """Whether a place differs only because one rank has handed its prompt's tokens over to its prefix tree, and another is about
    to (SGLang, in cache_unfinished_req). The row then has the tree's slot for the same tokens, and the request's own slot is
    free. `taken`: the slots that some request owns."""
    if place * pool.block_size >= (request.prompt_tokens or 0) or not pool.valid(own) or not pool.valid(other):
        return False
    free, tree = pool.free_bits(), pool.cached_ids
    if free[own]:  # the scheduler has handed it over
        return not free[other] if tree is None else other in tree
    mine = request.private is None or place >= request.private
    return mine and (own not in taken if tree is None else own in tree)


def _check_counts(found: Findings, cache: Cache, worker: Worker, request: Request, row: Row, moves: bool) -> bool:
    """Compares a worker's counts of one request with the scheduler's -> whether any count was compared.

    The prompt does not change. All else grows: the worker's count lies behind the scheduler's by the steps that are on their way.
    It never lies before it, except by drafts that were refused.
    """
    name, late = request.request_id, worker.ahead * worker.steps
    generates = bool(request.output_tokens) and request.queue == "running"
    more = late if worker.ahead > 1 else 0
    tokens = (request.prompt_tokens or 0) + (request.output_tokens or 0)
    # (name, the worker's, the scheduler's, how much it may be behind (None: any), how much before it)
    bounds: list[tuple[str, int, int, int | None, int]] = []
    if row.prompt is not None and request.prompt_tokens is not None:
        bounds.append(("prompt tokens", row.prompt, request.prompt_tokens, 0, 0))
    if row.prefill is not None and request.prompt_tokens is not None:
        bounds.append(("tokens to start with", row.prefill, tokens, request.output_tokens or 0, 0))
    # its second token came with a step that the worker began after the last one of the prompt: its counter is of that or later
    begun = bool(request.output_tokens) and tokens - (row.prefill or request.prompt_tokens or 0) > 1
    settled = request.queue == "running" and request.preemptions == 0  # else its row may be of before it was preempted
    if row.computed is not None and request.computed_tokens is not None and settled:
        bounds.append(("computed tokens", row.computed, request.computed_tokens, late if generates and begun else None, more))
    if row.device is not None and row.computed is not None and begun:
        bounds.append(("computed tokens for the device", row.device, row.computed, more + worker.ahead, 2 * worker.ahead))
    if row.total is not None and request.prompt_tokens is not None and generates and settled:
        bounds.append(("tokens in all", row.total, tokens, 0, late))
    for group in cache.groups:
        count, wanted = row.blocks.get(group.id), request.blocks.get(group.id)
        if count is None or wanted is None or group.kind not in GROWING or not group.block_size or not settled:
            continue
        ratio = _ratio(group, worker.sizes.get(group.id, 0))
        less = ratio * (late // group.block_size + 2) if generates else None
        bounds.append((f"blocks of group {group.id}", count, len(wanted) * ratio, less, 0))
    for what, own, theirs, less, beyond in bounds:
        other = "its mirror" if what.endswith("device") else "the scheduler"
        detail = f"{worker.rank}: counts {own} {what} of {name} (row {row.row}), {other} says {theirs}"
        if less is not None and own < theirs - less:
            found.add(WORKER_LENGTH, detail, None, name, evidence=what, place=what)
        elif own > theirs + beyond:  # the worker was read later: where both run on it has gone on
            found.add(WORKER_LENGTH, detail, None, name, at_rest=moves and (less, beyond) != (0, 0), place=what)
    return bool(bounds)


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
