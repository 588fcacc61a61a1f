"""The tables of a scheduler and of its workers as JSON, for a comparison on another machine: what `invariants.worker_tables`
reads of a `Cache` and of a `Worker`, and no more. Block ids are sent as runs: `[first, how many, first, how many, ...]`."""

from __future__ import annotations

from typing import Any, Iterable, Sequence

from ..errors import GdbextError
from ..render.jsonline import expect
from .model import Cache, Group, Pool, Request, Row, Table, Worker
from .rules import RULES

MOST_IDS = 4_000_000  # block ids of one process, over all its states
MOST_BLOCKS, MOST_TOKENS = 1 << 26, 1 << 20  # of a pool; of a block
MOST_STATES = 64
TEXT = 1000  # characters of a name or reason

_COUNT, _TEXT, _RUNS = (int, None), str, [int]
REQUEST = {
    "request_id": str,
    "queue": str,
    "known": bool,
    **dict.fromkeys(("preemptions", "prompt_tokens", "computed_tokens", "output_tokens", "row", "private"), _COUNT),
}
GROUP = {"id": int, "kind": str, "block_size": int, "pool": int}
POOL = {"name": str, "size": int, "count": int, "block_size": int, "reserved": [int]}
ROW = {"row": int, **dict.fromkeys(("prompt", "prefill", "computed", "total"), _COUNT)}
WORKER = {"ahead": int, "own_tree": bool, "steps": int, "copies": int, "mid_update": str}
TABLE = {"group": int, "block_size": int}
CACHE_SHAPE = {
    "engine": str,
    "version": str,
    "mid_update": str,
    "groups": [GROUP],
    "pools": [{**POOL, "free": (_RUNS, None), "cached": (_RUNS, None)}],
    "requests": [{**REQUEST, "blocks": [{"group": int, "ids": _RUNS}]}],
}
WORKER_SHAPE = {
    **WORKER,
    "tables": [{**TABLE, "rows": [{"request_id": str, "ids": _RUNS}], "slots": _RUNS}],
    "rows": [{**ROW, "request_id": str, "blocks": [[int]]}],
    "sizes": [[int]],
    "unread": [[str]],
    "faults": [[str]],
}


# ---- out -----------------------------------------------------------------------------------------------------------------
def cache_data(cache: Cache, free: bool) -> dict[str, Any]:
    """A scheduler's groups, pools and requests with their tables. `free`: also which blocks are free or in a prefix tree, which
    decide where each rank has a tree of its own."""
    return {
        "engine": cache.engine,
        "version": cache.version[:TEXT],
        "mid_update": cache.mid_update[:TEXT],
        "groups": [{key: getattr(group, key) for key in GROUP} for group in cache.groups],
        "pools": [
            {
                **{key: getattr(pool, key) for key in POOL},
                "free": runs(i for i, one in enumerate(pool.free_bits()) if one) if free else None,
                "cached": runs(pool.cached_ids) if free and pool.cached_ids is not None else None,
            }
            for pool in cache.pools
        ],
        "requests": [
            {
                **{key: getattr(request, key) for key in REQUEST},
                "blocks": [{"group": group, "ids": runs(blocks)} for group, blocks in request.blocks.items()],
            }
            for request in cache.requests
        ],
    }


def worker_data(worker: Worker) -> dict[str, Any]:
    """A worker's tables and counts."""
    return {
        **{key: getattr(worker, key) for key in WORKER},
        "tables": [
            {
                **{key: getattr(table, key) for key in TABLE},
                "rows": [{"request_id": name, "ids": runs(row)} for name, row in table.rows],
                "slots": runs(table.slots),
            }
            for table in worker.tables
        ],
        "rows": [
            {**{key: getattr(row, key) for key in ROW}, "request_id": name, "blocks": [list(one) for one in row.blocks.items()]}
            for name, row in worker.rows.items()
        ],
        "sizes": [list(one) for one in worker.sizes.items()],
        "unread": [[what[:TEXT], why[:TEXT]] for what, why in worker.unread],
        "faults": [[rule.name, name, detail[:TEXT]] for rule, name, detail in worker.faults],
    }


def runs(ids: Iterable[int]) -> list[int]:
    """`[5, 6, 7, 2]` -> `[5, 3, 2, 1]`."""
    found: list[int] = []
    for one in ids:
        if found and one == found[-2] + found[-1]:
            found[-1] += 1
        else:
            found += [one, 1]
    return found


def ids_in(data: Any) -> int:
    """How many ids the runs in JSON stand for."""
    if isinstance(data, dict):
        return sum(sum(v[1::2]) if k in ("ids", "slots", "free", "cached") and v else ids_in(v) for k, v in data.items())
    return sum(map(ids_in, data)) if isinstance(data, list) else 0


# ---- in ------------------------------------------------------------------------------------------------------------------
def caches_of(states: Any) -> list[Cache]:
    """The states of a scheduler; `GdbextError` where the JSON is damaged."""
    return [_cache(one) for one in _checked(states, CACHE_SHAPE)]


def workers_of(states: Any, label: str) -> list[Worker]:
    """The states of a worker; `GdbextError` where the JSON is damaged."""
    return [_worker(one, label) for one in _checked(states, WORKER_SHAPE)]


def _checked(states: Any, shape: Any) -> list[dict[str, Any]]:
    try:
        expect(states, [shape], "a table")
        found: list[dict[str, Any]] = states
        if len(found) > MOST_STATES or ids_in(found) > MOST_IDS:
            raise ValueError(f"more than {MOST_STATES} states, or {MOST_IDS} blocks")
        for one in found:
            _bounded(one)
        return found
    except (ValueError, TypeError) as e:
        raise GdbextError(f"its tables are damaged: {e}") from None


def _bounded(state: dict[str, Any]) -> None:
    """Raises ValueError for sizes that no engine has."""
    sizes = [one["block_size"] for what in ("groups", "pools", "tables") for one in state.get(what, ())]
    sizes += [size for _, size in state.get("sizes", ())]
    counts = [pool[key] for pool in state.get("pools", ()) for key in ("size", "count")]
    if any(not 0 <= size <= MOST_TOKENS for size in sizes) or any(not 0 <= count <= MOST_BLOCKS for count in counts):
        raise ValueError("blocks of a size, or pools with a number of them, that no engine has")
    if any(not 0 <= group["pool"] < len(state["pools"]) for group in state.get("groups", ())):
        raise ValueError("a group of no pool")


def _ids(data: Sequence[int]) -> list[int]:
    if len(data) % 2 or any(count < 1 for count in data[1::2]):
        raise GdbextError("its tables are damaged: a run of no blocks")
    return [one for first, count in zip(data[::2], data[1::2]) for one in range(first, first + count)]


def _members(data: dict[str, Any], shape: dict[str, Any]) -> dict[str, Any]:
    return {key: data[key] for key in shape}


def _cache(data: dict[str, Any]) -> Cache:
    pools = []
    for one in data["pools"]:
        pool = Pool(**{**_members(one, POOL), "reserved": tuple(one["reserved"])})
        pool.free_ids = _ids(one["free"]) if one["free"] is not None else None
        pool.cached_ids = _ids(one["cached"]) if one["cached"] is not None else None
        pools.append(pool)
    groups = [Group(**_members(one, GROUP)) for one in data["groups"]]
    requests = [
        Request(**_members(one, REQUEST), blocks={table["group"]: _ids(table["ids"]) for table in one["blocks"]})
        for one in data["requests"]
    ]
    return Cache(data["engine"], data["version"], pools, groups, requests, data["mid_update"])


def _worker(data: dict[str, Any], label: str) -> Worker:
    try:
        return Worker(
            label,
            **_members(data, WORKER),
            tables=[
                Table(t["group"], t["block_size"], [(r["request_id"], _ids(r["ids"])) for r in t["rows"]], _ids(t["slots"]))
                for t in data["tables"]
            ],
            rows={r["request_id"]: Row(**_members(r, ROW), blocks=dict(r["blocks"])) for r in data["rows"]},
            sizes=dict(data["sizes"]),
            unread=[(what, why) for what, why in data["unread"]],
            faults=[(RULES[rule], name, detail) for rule, name, detail in data["faults"]],
        )
    except (KeyError, ValueError) as e:
        raise GdbextError(f"its tables are damaged: {type(e).__name__} {e}") from None
