"""A KV cache as JSON: the fields of llm-kv, llm-requests and llm-addr."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Sequence

from ..engines.group import Engine
from ..errors import NotFoundError
from ..kvcache import invariants, model, picture
from ..kvcache.invariants import Report
from ..kvcache.model import Cache, Group, Request, Worker
from ..render.fields import FLAG, JOIN, KEEP, LEFT_OUT, NUMBER, SUM, TEXT, VALUE, Field, Fields, each, or_none
from ..render.jsonline import Address
from ..render.text import escape
from . import each_node
from .places import PAUSE

MAX_CELLS = 1 << 16  # of a map that JSON holds


def tokens_of(request: Request) -> int | None:
    """How many tokens a request has: its prompt and output, or the computed ones where those are not known."""
    known = [count for count in (request.prompt_tokens, request.output_tokens) if count is not None]
    if len(known) == 1:
        return None
    return sum(known) if known else request.computed_tokens


_OF_ROW: dict[str, Any] = {"must": True, "merge": KEEP}
NUMBERS = Fields(  # of a `Request`: how far it is, as its scheduler counts
    Field("tokens", NUMBER, read=lambda r: tokens_of(r), **_OF_ROW, head="tokens"),
    Field("prompt_tokens", NUMBER, **_OF_ROW, head="prompt", spare=2),
    Field("computed_tokens", NUMBER, **_OF_ROW, head="computed", spare=1),
    Field("output_tokens", NUMBER, **_OF_ROW, head="output", spare=5),
    Field("in_flight_tokens", NUMBER, "outputs of steps that have no result yet", read=lambda r: r.in_flight, **_OF_ROW),
    Field("draft_tokens", NUMBER, "guessed for its next step; null: not counted by this release", **_OF_ROW),
)
OWNER = Fields(  # of one of `Cache.owners`
    Field("request_id", str, read=lambda one: one[0].request_id),
    Field("index", int, "of the block in its table", read=lambda one: one[2]),
    Field("group", int, read=lambda one: one[1]),
    shape="owner",
)
COUNTS = each(
    NUMBER, "num_blocks free used cached shared held reserved", means="used: a request's or pinned; cached: free or not"
)
POOL = Fields(
    Field("name", str),
    Field("block_size", int, "tokens"),
    Field("unit", str, "token slots where a page is one token"),
    *COUNTS,
    Field("counters", dict, "the engine's own"),
    Field("reserved_ids", [int]),
    Field("may_pin", str, "who else may hold blocks"),
    Field("counter", NUMBER, "of `free`: of the free ones, as the engine counts"),
    Field("order", ([int], None), "of `free`: next to be taken first; null: the list is on the device"),
    Field("fault", TEXT, "of `free`: of the list"),
)
GROUP = Fields(  # of (Cache, Group)
    *each(int, "id block_size pool"),
    Field("kind", str),
    Field("layers", [VALUE]),
    Field("spec", dict, "of its layers"),
    Field("blocks", int, "that requests have of it"),
)
REQUEST = Fields(
    Field("request_id", str),
    Field("status", str, "the engine's own word"),
    Field("queue", str),
    *NUMBERS,
    Field("blocks", [int], "of its first group", read=lambda r: list(r.blocks[min(r.blocks)]) if r.blocks else []),
    Field(
        "tables", Fields(rest=[int]), "of each group", read=lambda r: {str(group): blocks for group, blocks in r.blocks.items()}
    ),
    Field("row", NUMBER),
    Field("cached_tokens", NUMBER, "that the prefix tree owns", read=lambda r: r.private),
    Field("slots", [int], "of tokens, where blocks are pages of several", read=lambda r: LEFT_OUT),
    Field("content", dict, read=lambda r: LEFT_OUT, private=True),
)
LAYOUT = Fields(  # of a `Worker` with layers: one shard
    Field("name", TEXT, read=or_none("layout")),
    Field("order", str, read=lambda w: w.layers[0].order),
    Field("shape", [VALUE], read=lambda w: w.layers[0].shape),
    Field("stride", [VALUE], read=lambda w: w.layers[0].stride),
    Field("dtype", str, read=lambda w: w.layers[0].dtype),
    Field("device", str, read=lambda w: w.layers[0].device),
    Field("layers", int, read=lambda w: len(w.layers)),
    Field("parts", Fields(rest=dict), "{base, and of each dimension count and stride}", "", lambda w: _parts(w.layers[0])),
    Field("note", TEXT, read=lambda w: w.layers[0].note or None),
)
PIECE = Fields(Field("rank", str), Field("layer", int), Field("name", TEXT), Field("device", str), rest=str)
STATISTICS = Fields(*each(VALUE, "min max mean std"), *each(int, "nan inf zeros count"), shape="statistics")
BLOCK = Fields(
    Field("id", int),
    Field("pool", str),
    Field("group", int),
    Field("ref_cnt", NUMBER),
    Field("free", FLAG),
    Field("hash", TEXT),
    *each(bool, "cached reserved"),
    Field("owners", [OWNER]),
    Field("pins", int),
    Field("addresses", [PIECE], "where each layer has it; of each part (`k`, `v`, …) the address"),
    *each(NUMBER, "prev next", means="in the free queue"),
    Field("stats", [Fields(Field("rank", str), Field("layer", int), Field("why", str), rest=STATISTICS)], "with -stats: by part"),
)
MAP = Fields(
    Field("pool", str),
    Field("cells", str, "a letter for each block; left out where there are very many"),
    Field("lines", [str], "the same, in lines"),
    Field("blocks_per_cell", int),
    Field("legend", Fields(rest=str)),
)
FAULT = Fields(  # of a `Violation`
    Field("rule", str, must=True),
    Field("block", NUMBER, must=True),
    Field("request_id", TEXT, must=True, read=or_none("request_id")),
    Field("detail", str, must=True),
    Field("pool", str),
    Field("rank", TEXT, must=True, read=or_none("rank")),
    Field("more", int, "findings of the same rule that are not listed", must=True),
    Field("follows", Fields(rest=int), "rules that this fault alone explains, and how often"),
    shape="fault",
)
COMPARED = Fields(
    Field("label", str, must=True),
    *each(int, "pools requests", means="of the scheduler"),
    Field("tables", int),
    Field("rows", int, "of requests that the scheduler has"),
    Field("blocks", int, "in them"),
    Field("counts", int, "requests whose lengths were compared"),
    Field("slots", int, "of the last step"),
    Field("places", int, "slots that are their token's own place in its request's table"),
    Field("gathered", int, "rows that attention reads"),
    Field("copies", int, "values that it keeps twice: host and device, pointers"),
    *each(int, "tokens sampling", means="requests of which they were compared"),
    Field("without", [str], "names of those of which nothing was compared"),
)
UNSEEN = Fields(*each(str, "label what why", must=True))  # of a `LeftOut`
RULE = Fields(Field("rule", str), Field("for", str, "releases"), Field("holds", str))
ANSWER = Fields(
    Field("engine", str, must=True),
    Field("version", str, must=True),
    Field("block_size", int),
    *(one for one in COUNTS if one.name != "held"),
    Field("held", (int, Fields(rest=int), None), "blocks of no request; of `check` by pool"),
    Field("pools", [POOL]),
    Field("groups", [GROUP]),
    Field("layout", (LAYOUT, None), "of the layers' memory"),
    Field("requests", [REQUEST], "that have blocks"),
    Field("counters", dict),
    Field("limits", dict),
    Field("notes", [str]),
    Field("mid_update", bool, "the engine is in the middle of a change", must=True),
    Field("mid_update_at", TEXT),
    Field("block", BLOCK, "of `block N`"),
    Field("request", REQUEST, "of `request ID`"),
    Field("order", ([int], None), "of `free`: the first pool's"),
    Field("maps", [MAP], "of `map`"),
    Field("plot", str, "the file of -plot"),
    Field(
        "ok", FLAG, "of `check`: null: nothing could be compared, it changed while it was read, or a machine was not", must=True
    ),
    Field("blocks", int, "of `check`", must=True, merge=SUM),
    Field("violations", [FAULT], "of `check`: broken rules", must=True, merge=JOIN),
    Field("passing", [FAULT], "faults that a half-done update explains", must=True, merge=JOIN),
    Field("changed", [FAULT], "what was broken at each reading of a process that never stood still", must=True, merge=JOIN),
    Field("compared", [COMPARED], "the scheduler, and each rank of which something was compared", must=True, merge=JOIN),
    Field(
        "not_compared", [UNSEEN], "what could not be, rules that were not judged, ranks that nobody has", must=True, merge=JOIN
    ),
    Field("looked_at", (Fields(rest=int), None), "with -deep: pieces of blocks' values that were read of each rank"),
    Field("rules", [RULE]),
    Field("ranks", [str], "those whose block tables were compared", must=True),
    each_node.nodes(
        Field("ok", FLAG),
        *each(int, "blocks processes"),
        *each(str, "engine version"),
        Field("mid_update", bool),
        Field("looked_at", (Fields(rest=int), None)),
        Field("ranks", [str]),
        Field("answer", dict, "of all but `check`, which are not merged"),
    ),
    Field("failed", [each_node.FAILED]),
    Field("pauses", [PAUSE], "of the copy that was read where numbers contradicted one another"),
    Field("facts", dict, "with -facts: [tables of several machines](#tables-of-several-machines)"),
)


def pool_data(cache: Cache, number: int) -> dict[str, Any]:
    """One pool: its counts and the engine's own counters."""
    pool = cache.pools[number]
    own = {name: getattr(pool, name) for name in ("name", "block_size", "unit", "counters", "may_pin")}
    return POOL.of(**own, **model.summary(cache, number), reserved_ids=list(pool.reserved))


def _parts(layer: Any) -> dict[str, Any]:
    return {
        p.name: {"base": Address(p.base), **{d: {"count": n, "stride": s} for d, (n, s) in p.dims.items()}} for p in layer.parts
    }


def cache_data(cache: Cache, workers: Sequence[Worker]) -> dict[str, Any]:
    """All of it in numbers. Mamba states and host memory are no blocks of the same kind: only pools of one unit are added up."""
    pools = [pool_data(cache, n) for n in range(len(cache.pools))]
    alike = [p for p in pools if p["unit"] == pools[0]["unit"]]
    worker = next((w for w in workers[:1] if w.layers), None)
    return ANSWER.of(
        **_about(cache),
        block_size=cache.pools[0].block_size,
        **{one.name: sum(p[one.name] or 0 for p in alike) for one in COUNTS},
        pools=pools,
        groups=[group_data(cache, g) for g in cache.groups],
        layout=LAYOUT.data(worker) if worker is not None else None,
        requests=[REQUEST.data(r) for r in cache.requests if r.blocks],
        counters=cache.counters,
        limits=cache.limits,
    )


def _about(cache: Cache) -> dict[str, Any]:
    return {"engine": cache.engine, "version": escape(cache.version), **update_data(cache), "notes": cache.notes}


def group_data(cache: Cache, group: Group) -> dict[str, Any]:
    """A group of layers, and how many blocks requests have of it."""
    own = {name: getattr(group, name) for name in ("id", "kind", "block_size", "pool", "layers", "spec")}
    return GROUP.of(**own, blocks=sum(len(r.blocks.get(group.id, ())) for r in cache.requests))


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
    return BLOCK.of(
        id=number,
        pool=pool.name,
        group=group_of,
        ref_cnt=pool.ref_cnt[number] if pool.ref_cnt else None,
        free=bool(pool.free_bits()[number]) if known else None,
        hash=pool.hash_text(token) if token else None,
        cached=token != 0 or (pool.cached_ids is not None and number in set(pool.cached_ids)),
        reserved=number in pool.reserved,
        owners=[OWNER.data(one) for one in owners],
        pins=pool.pins.get(number, 0),
        addresses=[
            {
                **PIECE.of(rank=worker.rank, layer=layer.index, name=escape(layer.name) or None, device=layer.device),
                **{part: Address(at) for part, at in layer.block_addresses(number).items()},
            }
            for worker, layer in layers_of(cache, group_of, workers)
        ],
        **({"prev": pool.prev[number], "next": pool.next[number]} if pool.next is not None and pool.prev is not None else {}),
    )


def layers_of(cache: Cache, group: int, workers: Sequence[Worker]) -> list[tuple[Worker, Any]]:
    """`[(worker, layer)]` of a group; of all layers where there is one group."""
    return [(w, layer) for w in workers for layer in w.layers if len(cache.groups) == 1 or layer.group == group]


def free_data(cache: Cache) -> dict[str, Any]:
    """The free queue of each pool in its own order; the first pool's fields are also given on their own."""
    pools = []
    for pool in cache.pools:
        walk = pool.walk()
        known = pool.linked or pool.free_ids is not None
        free, fault = sum(walk.reached) if known else pool.num_free, walk.fault[2] if walk.fault else None
        pools.append(POOL.of(name=pool.name, free=free, counter=pool.num_free, order=walk.order if known else None, fault=fault))
    return ANSWER.of(free=pools[0]["free"], order=pools[0]["order"], pools=pools, **update_data(cache))


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
        maps.append(MAP.of(pool=pool.name, cells=cells, lines=lines, blocks_per_cell=per, legend=legend))
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
    scheduler = COMPARED.of(label="scheduler", pools=len(cache.pools), blocks=report.blocks, requests=tables)
    return ANSWER.of(
        ok=is_sound(report, ranks),
        compared=[scheduler, *compared_data(report)],
        not_compared=[UNSEEN.data(one) for one in report.not_compared],
        looked_at=report.values.looked_at if report.values is not None else None,
        changed=[FAULT.data(v) for v in report.changed],
        blocks=report.blocks,
        violations=[FAULT.data(v) for v in report.violations],
        passing=[FAULT.data(v) for v in report.transient],
        held=report.held,
        rules=[{"rule": r, "holds": invariants.RULES[r].holds, "for": invariants.RULES[r].releases} for r in report.rules],
        ranks=report.ranks,
        **_about(cache),
    )


def compared_data(report: Report) -> list[dict[str, Any]]:
    """The ranks of which something was compared."""
    return [COMPARED.of(**{**asdict(one), "label": escape(one.label)}) for one in report.compared if one.tables or one.counts]


def no_cache_data(engines: Sequence[Engine]) -> dict[str, Any]:
    """The result of the invariants on a machine that has workers and no scheduler."""
    empty: dict[str, Any] = {one.name: [] for one in ANSWER.merging(JOIN)}
    about: dict[str, Any] = {"ok": None, "blocks": 0, "mid_update": False, "mid_update_at": None, "looked_at": None, "held": {}}
    names = ", ".join(dict.fromkeys(engine.name for engine in engines))
    return ANSWER.of(**empty, **about, rules=[], ranks=[], engine=names, version="", notes=[])
