"""A KV cache as JSON: the fields of llm-kv, llm-requests and llm-addr."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Iterable, Sequence

from ..engines.group import Engine
from ..errors import NotFoundError
from ..kvcache import invariants, model, picture
from ..kvcache.invariants import LeftOut, Report
from ..kvcache.invariants.findings import Violation
from ..kvcache.model import Cache, Group, Request, Worker
from ..render.jsonline import Address
from ..render.text import escape

COUNTS = ("num_blocks", "free", "used", "cached", "shared", "held", "reserved")
MAX_CELLS = 1 << 16  # of a map that JSON holds


def pool_data(cache: Cache, number: int) -> dict[str, Any]:
    """One pool: its counts and the engine's own counters."""
    pool = cache.pools[number]
    return {
        "name": pool.name,
        "block_size": pool.block_size,
        "unit": pool.unit,
        **model.summary(cache, number),
        "counters": pool.counters,
        "reserved_ids": list(pool.reserved),
        "may_pin": pool.may_pin,
    }


def tables_of(request: Request) -> dict[str, list[int]]:
    """`{group id: [block ids]}` with the ids as JSON's keys."""
    return {str(group): blocks for group, blocks in request.blocks.items()}


def numbers_data(request: Request | None) -> dict[str, Any]:
    """How far a request is, in tokens, as its scheduler counts them; None for each where no scheduler has it."""
    r = request if request is not None else Request("")
    return {
        "tokens": tokens_of(r),
        "prompt_tokens": r.prompt_tokens,
        "computed_tokens": r.computed_tokens,
        "output_tokens": r.output_tokens,
        "in_flight_tokens": r.in_flight,
        "draft_tokens": r.draft_tokens,
    }


def request_data(request: Request) -> dict[str, Any]:
    """A request with its whole table; `blocks` are the ids of its first group, `tables` those of each."""
    groups = sorted(request.blocks)
    return {
        "request_id": escape(request.request_id),
        "status": escape(request.status),
        "queue": request.queue,
        **numbers_data(request),
        "blocks": list(request.blocks[groups[0]]) if groups else [],
        "tables": tables_of(request),
        "row": request.row,
        "cached_tokens": request.private,
    }


def tokens_of(request: Request) -> int | None:
    """How many tokens a request has: its prompt and output, or the computed ones where those are not known."""
    known = [count for count in (request.prompt_tokens, request.output_tokens) if count is not None]
    if len(known) == 1:
        return None
    return sum(known) if known else request.computed_tokens


def layout_data(worker: Worker | None) -> dict[str, Any] | None:
    """The layout of the layers' memory, from one shard; None without any layer."""
    if worker is None or not worker.layers:
        return None
    layer = worker.layers[0]
    parts = {
        p.name: {"base": Address(p.base), **{d: {"count": n, "stride": s} for d, (n, s) in p.dims.items()}} for p in layer.parts
    }
    return {
        "name": worker.layout or None,
        "order": layer.order,
        "shape": layer.shape,
        "stride": layer.stride,
        "dtype": layer.dtype,
        "device": layer.device,
        "layers": len(worker.layers),
        "parts": parts,
        "note": layer.note or None,
    }


def owners_data(owners: Iterable[tuple[Request, int, int]]) -> list[dict[str, Any]]:
    """`Cache.owners` of a block: request, place in its table, group."""
    return [{"request_id": escape(r.request_id), "index": index, "group": group} for r, group, index in owners]


def cache_data(cache: Cache, workers: Sequence[Worker]) -> dict[str, Any]:
    """All of it in numbers. Mamba states and host memory are no blocks of the same kind: only pools of one unit are added up."""
    pools = [pool_data(cache, n) for n in range(len(cache.pools))]
    alike = [p for p in pools if p["unit"] == pools[0]["unit"]]
    return {
        "engine": cache.engine,
        "version": escape(cache.version),
        "block_size": cache.pools[0].block_size,
        **{k: sum(p[k] or 0 for p in alike) for k in COUNTS},
        "pools": pools,
        "groups": [group_data(cache, g) for g in cache.groups],
        "layout": layout_data(workers[0] if workers else None),
        "requests": [request_data(r) for r in cache.requests if r.blocks],
        "counters": cache.counters,
        "limits": cache.limits,
        **update_data(cache),
        "notes": cache.notes,
    }


def group_data(cache: Cache, group: Group) -> dict[str, Any]:
    """A group of layers, and how many blocks requests have of it."""
    return {
        "id": group.id,
        "kind": group.kind,
        "block_size": group.block_size,
        "pool": group.pool,
        "layers": group.layers,
        "spec": group.spec,
        "blocks": sum(len(r.blocks.get(group.id, ())) for r in cache.requests),
    }


def block_data(cache: Cache, group: Group, number: int, workers: Sequence[Worker]) -> dict[str, Any]:
    """A block of a group's pool: references, owners, and its addresses on every rank and layer. `NotFoundError` outside
    the pool."""
    pool = cache.pools[group.pool]
    if not pool.valid(number):
        raise NotFoundError(f"no {pool.unit} {number}: the pool has 0 to {pool.count - 1}")
    owners = cache.owners(group.pool).get(number, [])
    token = pool.hashes[number] if pool.hashes else 0
    known = pool.linked or pool.free_ids is not None
    group_of = owners[0][1] if owners else group.id
    data = {
        "id": number,
        "pool": pool.name,
        "group": group_of,
        "ref_cnt": pool.ref_cnt[number] if pool.ref_cnt else None,
        "free": bool(pool.free_bits()[number]) if known else None,
        "hash": pool.hash_text(token) if token else None,
        "cached": token != 0 or (pool.cached_ids is not None and number in set(pool.cached_ids)),
        "reserved": number in pool.reserved,
        "owners": owners_data(owners),
        "pins": pool.pins.get(number, 0),
        "addresses": [
            {
                "rank": worker.rank,
                "layer": layer.index,
                "name": escape(layer.name) or None,
                **{part: Address(at) for part, at in layer.block_addresses(number).items()},
                "device": layer.device,
            }
            for worker, layer in layers_of(cache, group_of, workers)
        ],
    }
    if pool.next is not None and pool.prev is not None:
        data.update(prev=pool.prev[number], next=pool.next[number])
    return data


def layers_of(cache: Cache, group: int, workers: Sequence[Worker]) -> list[tuple[Worker, Any]]:
    """`[(worker, layer)]` of a group; of all layers where there is one group."""
    return [(w, layer) for w in workers for layer in w.layers if len(cache.groups) == 1 or layer.group == group]


def free_data(cache: Cache) -> dict[str, Any]:
    """The free queue of each pool in its own order; the first pool's fields are also given on their own."""
    pools = []
    for pool in cache.pools:
        walk = pool.walk()
        known = pool.linked or pool.free_ids is not None
        pools.append(
            {
                "name": pool.name,
                "free": sum(walk.reached) if known else pool.num_free,
                "counter": pool.num_free,
                "order": walk.order if known else None,
                "fault": walk.fault[2] if walk.fault else None,
            }
        )
    return {"free": pools[0]["free"], "order": pools[0]["order"], "pools": pools, **update_data(cache)}


def update_data(cache: Cache) -> dict[str, Any]:
    """Whether the engine is in the middle of a change, and where."""
    return {"mid_update": bool(cache.mid_update), "mid_update_at": cache.mid_update or None}


def maps_of(cache: Cache) -> list[dict[str, Any]]:
    """A picture of each pool in letters, with its legend."""
    maps = []
    for number, pool in enumerate(cache.pools):
        cells = picture.states(cache, number)
        lines, per = picture.picture(cells)
        letters = picture.letters_of(cache, number)
        legend = {letter: escape(name) for name, letter in letters.items() if letter != "#"}
        maps.append({"pool": pool.name, "cells": cells, "lines": lines, "blocks_per_cell": per, "legend": legend})
    return maps


def map_data(maps: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The pictures as JSON, without the cells of pools that are too large for it."""
    return {"maps": [{k: v for k, v in m.items() if k != "cells" or len(m["cells"]) <= MAX_CELLS} for m in maps]}


def is_sound(report: Report, ranks: bool) -> bool | None:
    """Whether everything that was compared holds.

    None where none of a requested kind could be compared (`ranks`: block tables of workers; of values: a block's), or where it
    changed while it was read."""
    if report.violations:
        return False
    unseen = report.values is not None and not any(report.values.looked_at.values())
    return None if report.changed or not report.blocks or unseen or (ranks and not report.ranks) else True


def check_data(report: Report, cache: Cache, ranks: bool) -> dict[str, Any]:
    """The result of the invariants: broken rules, and separately those that a half-done update explains; what was compared and
    what was not."""
    tables = sum(1 for r in cache.requests if any(r.blocks.values()))
    return {
        "ok": is_sound(report, ranks),
        "compared": [
            {"label": "scheduler", "pools": len(cache.pools), "blocks": report.blocks, "requests": tables},
            *compared_data(report),
        ],
        "not_compared": [left_out_data(one) for one in report.not_compared],
        "looked_at": report.values.looked_at if report.values is not None else None,
        "changed": [violation_data(v) for v in report.changed],
        "blocks": report.blocks,
        "violations": [violation_data(v) for v in report.violations],
        "mid_update": bool(cache.mid_update),
        "mid_update_at": cache.mid_update or None,
        "passing": [violation_data(v) for v in report.transient],
        "held": report.held,
        "rules": [{"rule": r, "holds": invariants.RULES[r].holds, "for": invariants.RULES[r].releases} for r in report.rules],
        "ranks": report.ranks,
        "engine": cache.engine,
        "version": escape(cache.version),
        "notes": cache.notes,
    }


def compared_data(report: Report) -> list[dict[str, Any]]:
    """The ranks of which something was compared."""
    return [{**asdict(one), "label": escape(one.label)} for one in report.compared if one.tables or one.counts]


def left_out_data(one: LeftOut) -> dict[str, Any]:
    """A part that was not compared."""
    return {"label": escape(one.label), "what": escape(one.what), "why": escape(one.why)}


def no_cache_data(engines: Sequence[Engine]) -> dict[str, Any]:
    """The result of the invariants on a machine that has workers and no scheduler."""
    empty: dict[str, Any] = {
        part: [] for part in ("compared", "not_compared", "changed", "violations", "passing", "rules", "ranks")
    }
    names = ", ".join(dict.fromkeys(engine.name for engine in engines))
    about: dict[str, Any] = {"ok": None, "blocks": 0, "mid_update": False, "mid_update_at": None, "looked_at": None, "held": {}}
    return {**empty, **about, "engine": names, "version": "", "notes": []}


def violation_data(v: Violation) -> dict[str, Any]:
    """One broken rule."""
    return {
        "rule": v.rule,
        "block": v.block,
        "request_id": escape(v.request_id) if v.request_id else None,
        "detail": escape(v.detail),
        "pool": v.pool,
        "rank": escape(v.rank) or None,
        "more": v.more,
        "follows": v.follows,
    }
