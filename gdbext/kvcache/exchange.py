"""The tables of a scheduler and of its workers for a comparison on another machine (render/records.py): what
`invariants.worker_tables` reads of a `Cache` and of a `Worker`, and no more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import GdbextError
from ..render.records import MOST, Codec, numbers_in, sound
from .model import Cache, Group, Pool, Request, Row, Table, Worker
from .rules import RULES

MOST_IDS = MOST  # block ids of one process, over all its states
MOST_BLOCKS, MOST_TOKENS = 1 << 26, 1 << 20  # of a pool; of a block
MOST_STATES = 64
TEXT = 1000  # characters of a name or reason
COUNTS = ("preemptions", "prompt_tokens", "computed_tokens", "output_tokens", "row", "private")
CODEC = Codec(
    (Cache, Group, Pool, Request, Row, Table, Worker),
    sent={
        Cache: ("engine", "version", "mid_update", "groups", "pools", "requests"),
        Group: ("id", "kind", "block_size", "pool"),
        Pool: ("name", "size", "count", "block_size", "reserved", "free_ids", "cached_ids"),
        Request: ("request_id", "queue", "known", "blocks", *COUNTS),
        Row: ("row", "prompt", "prefill", "computed", "total", "blocks"),
        Table: ("group", "block_size", "rows", "slots"),
        Worker: ("rank", "ahead", "own_tree", "steps", "copies", "mid_update", "tables", "rows", "sizes", "unread", "faults"),
    },
    items=MOST_IDS,
    short=True,
)
ids_in = numbers_in


def cache_data(cache: Cache, free: bool) -> dict[str, Any]:
    """A scheduler's groups, pools and requests with their tables. `free`: also which blocks are free or in a prefix tree, which
    decide where each rank has a tree of its own."""
    pools = [
        replace(
            pool,
            free_ids=[i for i, one in enumerate(pool.free_bits()) if one] if free else None,
            cached_ids=pool.cached_ids if free else None,
        )
        for pool in cache.pools
    ]
    data: dict[str, Any] = CODEC.data(replace(cache, pools=pools))
    return data


def worker_data(worker: Worker) -> dict[str, Any]:
    """A worker's tables and counts."""
    faults: Any = [(rule.name, name, detail) for rule, name, detail in worker.faults]
    data: dict[str, Any] = CODEC.data(replace(worker, faults=faults))
    return data


def caches_of(states: Any) -> list[Cache]:
    """The states of a scheduler; `GdbextError` where the JSON is damaged."""
    return _checked(states, Cache)


def workers_of(states: Any, label: str) -> list[Worker]:
    """The states of a worker; `GdbextError` where the JSON is damaged."""
    found = _checked(states, Worker)
    for one in found:
        if any(rule not in RULES for rule, _, _ in one.faults):
            raise GdbextError("its tables are damaged: a rule that is none here")
        one.rank, one.faults = label, [(RULES[rule], name, detail) for rule, name, detail in one.faults]
    return found


def _checked(states: Any, kind: type) -> list[Any]:
    if not isinstance(states, list) or len(states) > MOST_STATES:
        raise GdbextError(f"its tables are damaged: more than {MOST_STATES} states, or no list")
    found: list[Any] = sound("its tables are damaged", CODEC, states)
    if not all(isinstance(one, kind) for one in found):
        raise GdbextError("its tables are damaged: a state of another kind")
    for one in found:
        _bounded(one)
    return found


def _bounded(state: Cache | Worker) -> None:
    """`GdbextError` for sizes that no engine has."""
    if isinstance(state, Cache):
        sizes = [*(one.block_size for one in state.groups), *(one.block_size for one in state.pools)]
        counts = [count for pool in state.pools for count in (pool.size, pool.count)]
        lost = any(not 0 <= group.pool < len(state.pools) for group in state.groups)
    else:
        sizes, counts, lost = [*(one.block_size for one in state.tables), *state.sizes.values()], [], False
    if any(not 0 <= size <= MOST_TOKENS for size in sizes) or any(not 0 <= count <= MOST_BLOCKS for count in counts) or lost:
        raise GdbextError("its tables are damaged: blocks of a size, pools with a number of them, or a group, that no engine has")
