"""Rules of what a worker's step goes by: its rows in both directions, slots by place, the tables that attention reads, tokens,
sampling parameters."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ..model import Cache, Request, Sent, Table, Worker
from ..rules import SLOT_PLACE, WORKER_COPY, WORKER_ROWS, WORKER_SAMPLING, WORKER_TOKENS
from .findings import Compared, Findings

Held = Dict[int, List[Tuple[str, int]]]  # block -> [(request, place in its table)]
Order = List[Tuple[Optional[str], List[int]]]  # (request, or None for one whose row is free again; positions of its tokens)

EQUAL = ("temperature", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty")
CLOSE = 1e-6  # a worker keeps 32 bits of them


def check(found: Findings, cache: Cache, worker: Worker, done: Compared) -> None:
    """Checks a worker that has all of its rows. What belongs to one step must be of one moment: where it runs on, a fault is one
    only if every reading has one, whichever numbers it shows."""
    requests = {r.request_id: r for r in cache.requests}
    found.checks(WORKER_ROWS)
    for request in cache.requests:
        if request.known and _has_begun(request) and request.request_id not in worker.rows:
            detail = f"{worker.rank}: it has no row for {request.request_id}, which runs and has {request.output_tokens} tokens"
            found.add(WORKER_ROWS, detail, None, request.request_id, evidence="no row")
    order = None
    for table in worker.tables:
        if table.slots and table.in_order:
            found.checks(SLOT_PLACE)
            group = cache.group(table.group)
            reserved = cache.pools[group.pool].reserved if group is not None else ()
            order = _order(found, worker, table, done, reserved) or order
    for table in worker.tables:
        if any(map(any, table.gathered)):
            _check_gathered(found, cache, worker, table, order, done)
    if done.gathered:
        found.checks(WORKER_COPY)
    for name in worker.rows:
        own = requests.get(name)
        if own is not None and own.known and own.address and cache.sent is not None:
            _check_sent(found, worker, name, cache.sent(own), done)
    done.without = [what for what in ("places", "gathered", "copies", "tokens", "sampling") if not getattr(done, what)]


def _has_begun(request: Request) -> bool:
    """Whether a worker has the request for sure: it has answered for it, and was not told to forget it since."""
    return request.queue == "running" and bool(request.output_tokens) and not request.preemptions and not request.transfer


# ---- slots ---------------------------------------------------------------------------------------------------------------
def _order(found: Findings, worker: Worker, table: Table, done: Compared, reserved: tuple[int, ...]) -> Order | None:
    """The requests of the last step in its order, by the slots of their tokens. None where that is not known: a slot is of a
    reserved block, of none, or of another place than its token's."""
    held: Held = {}
    for name, blocks in table.rows:
        for place, block in enumerate(blocks):
            held.setdefault(block, []).append((name, place))
    former = {block: number for number, blocks in enumerate(table.former) for block in blocks}
    order: Order = []
    last: object = None  # the request, or the row that is free again, of the token before
    known, size = True, table.block_size
    for token, slot in enumerate(table.slots):
        block, offset = divmod(slot, size)
        owner = _owner(held.get(block, ()), offset, size, worker, order)
        if slot < 0 or block in reserved:
            known = False
        elif owner is not None:
            name, position = owner
            done.places += 1
            if name == last:
                order[-1][1].append(position)
            else:
                order.append((name, [position]))
            last = name
        elif block not in former:
            _misplaced(found, worker, table, "", f"token {token} of the step is written to block {block}, which is in no table")
            known = False
        elif last != former[block]:
            order.append((None, []))
            last = former[block]
    names = [name for name, _ in order if name is not None]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        _misplaced(found, worker, table, twice, f"tokens of {twice} are written to places that are apart")
    wrong = [name for name, positions in order if name is not None and not _fits(worker, name, positions)]
    for who, positions in order:
        if who in wrong and who is not None and twice is None:
            row = worker.rows[who]
            where = f"tokens of {who} are written to its places {positions[0]} to {positions[-1]}"
            _misplaced(found, worker, table, who, f"{where}, and {row.computed} are computed (row {row.row})")
    return None if wrong or twice is not None or not known else order


def _owner(owners: Sequence[tuple[str, int]], offset: int, size: int, worker: Worker, order: Order) -> tuple[str, int] | None:
    """(the request whose token has a slot, the token's position); of several with the block the one that it fits best."""
    found = [(name, place * size + offset) for name, place in owners]
    if len(found) < 2:
        return found[0] if found else None
    before = [(order[-1][0], order[-1][1][-1] + 1)] if order and order[-1][1] else []
    follows = [one for one in found if one in before]
    return (follows or [one for one in found if _fits(worker, one[0], [one[1]])] or found)[0]


def _fits(worker: Worker, name: str, positions: list[int]) -> bool:
    """Whether a request's tokens of the last step are those that come next, or those that its counter has just passed."""
    row, drafts = worker.rows[name], (worker.ahead - 1) * worker.steps
    if positions != list(range(positions[0], positions[0] + len(positions))):
        return False
    if row.computed is None:
        return True
    if not drafts:
        return row.computed in (positions[0], positions[-1] + 1)
    upto = max(row.computed, row.total or 0, row.prefill or 0)
    return positions[-1] + 1 >= row.computed - drafts and positions[0] <= upto + drafts


def _misplaced(found: Findings, worker: Worker, table: Table, name: str, detail: str) -> None:
    place = f"slots of group {table.group}"
    found.add(SLOT_PLACE, f"{worker.rank}: {detail}", None, name or None, evidence=place, place=place)


# ---- the tables that attention reads -------------------------------------------------------------------------------------
def _check_gathered(found: Findings, cache: Cache, worker: Worker, table: Table, order: Order | None, done: Compared) -> None:
    """Compares the rows that were gathered for the last step with the rows that they are copies of."""
    own = dict(table.rows)
    group = cache.group(table.group)
    left = _unread(cache, table) if group is not None else {}
    if order is not None:
        for copy, (name, _) in zip(table.gathered, order):
            if name is not None and name in own:
                done.gathered += 1
                _compare_copy(found, worker, table, name, copy, left.get(name, set()))
        return
    whole = [blocks for blocks in [*own.values(), *table.former] if blocks]
    loose = [copy for copy in table.gathered if any(copy) and not any(_same(copy, blocks, set()) for blocks in whole)]
    for name, blocks in own.items():
        row, skip = worker.rows[name], left.get(name, set())
        request = next((r for r in cache.requests if r.request_id == name), None)
        if request is None or not blocks or not _has_begun(request) or row.computed is None or row.computed <= 0:
            continue
        done.gathered += 1
        if any(_same(copy, blocks, skip) for copy in table.gathered):
            continue
        alike = max(loose, key=lambda copy: _alike(copy, blocks), default=[])
        if 2 * _alike(alike, blocks) >= len(blocks) > 1:
            _compare_copy(found, worker, table, name, alike, skip)


def _unread(cache: Cache, table: Table) -> dict[str, set[int]]:
    """{request: places of its table that attention does not read any more: its scheduler has the reserved block there}"""
    group = cache.group(table.group)
    if group is None or group.block_size != table.block_size:
        return {}
    reserved = set(cache.pools[group.pool].reserved)
    return {
        r.request_id: {place for place, block in enumerate(r.blocks.get(table.group, ())) if block in reserved}
        for r in cache.requests
    }


def _same(copy: list[int], blocks: list[int], skip: set[int]) -> bool:
    pairs = enumerate(zip(copy, blocks))
    return len(copy) >= len(blocks) and all(a == b or place in skip for place, (a, b) in pairs)


def _alike(copy: list[int], blocks: list[int]) -> int:
    return sum(map(int.__eq__, copy, blocks))


def _compare_copy(found: Findings, worker: Worker, table: Table, name: str, copy: list[int], skip: set[int]) -> None:
    blocks = dict(table.rows)[name]
    place = next((i for i, (a, b) in enumerate(zip(copy, blocks)) if a != b and i not in skip), None)
    if place is not None:
        detail = f"place {place} of what attention reads for {name} in group {table.group} is {copy[place]}"
        detail += f", its row of the table has {blocks[place]}"
        where = f"gathered, group {table.group}"
        found.add(WORKER_COPY, f"{worker.rank}: {detail}", None, name, evidence=where, place=where)


# ---- what the scheduler sent ---------------------------------------------------------------------------------------------
def _check_sent(found: Findings, worker: Worker, name: str, sent: Sent, done: Compared) -> None:
    """Compares the tokens that a request began with, and the parameters by which it is sampled. No detail shows a token."""
    row = worker.rows[name]
    if sent.tokens and row.tokens:
        found.checks(WORKER_TOKENS)
        done.tokens += 1
        other = next((i for i, (a, b) in enumerate(zip(row.tokens, sent.tokens)) if a != b), None)
        if other is not None:
            detail = f"{worker.rank}: token {other} of {name} (row {row.row}) is not the one that its scheduler has"
            found.add(WORKER_TOKENS, detail, None, name)
    if sent.sampling and row.sampling:
        found.checks(WORKER_SAMPLING)
        done.sampling += 1
        for parameter, value in row.sampling.items():
            wanted = sent.sampling.get(parameter)
            if parameter in sent.sampling and not _drawn_alike(parameter, value, wanted, worker.vocabulary):
                detail = f"{worker.rank}: {parameter} of {name} (row {row.row}) is {value:g}, its request says {wanted}"
                found.add(WORKER_SAMPLING, detail, None, name, place=parameter)


def _drawn_alike(parameter: str, value: Any, wanted: Any, vocabulary: int | None) -> bool:
    """Whether a worker's value means what a request asks for. All tokens is 0, -1 or more than there are; any seed is None."""
    if parameter in EQUAL:
        return wanted is None or math.isclose(value, wanted, rel_tol=CLOSE, abs_tol=CLOSE)
    if parameter == "seed":
        return wanted is None or value == wanted
    if parameter == "top_k":
        limited = wanted is not None and wanted > 0 and (vocabulary is None or wanted <= vocabulary)
        return value == wanted if limited else vocabulary is None or value <= 0 or value >= vocabulary
    if parameter == "logprobs" and wanted is not None and wanted >= 0:
        return bool(value == wanted)
    return True
