"""vLLM V1's KV cache as its scheduler keeps it: managers, groups, block tables, pins (vllm/v1/core/kv_cache_manager.py,
single_type_kv_cache_manager.py, sched/scheduler.py)."""

from __future__ import annotations

from functools import partial
from typing import Iterator, List, Tuple

from ... import log
from ...cpython.objects import Object
from ...cpython.runtime import Runtime
from ...errors import GdbextError, LayoutError
from ...kvcache.model import DANGLING, Cache, Group, Pool, Request
from .. import absences
from ..columns import Places
from ..objects import at, at_once, has, is_set, needed, optional, path, updating
from . import kv_hashes
from .kv_pool import read_pool
from .kv_requests import explain_waits, requests_of, sent
from .paths import FOLDERS, KEEPING, KINDS, MAX_REQUESTS, READING, SAMPLING, SPEC_FIELDS, UPDATING, known

Tables = List[Tuple[str, List[int]]]


def read(rt: Runtime, root: Object, version: str, content: bool, listed: list[Request] | None = None) -> Cache:
    """`Cache` from a Scheduler, a KVCacheManager or a BlockPool; `GdbextError` for another object. `listed`: its requests, where
    they were read before."""
    scheduler = manager = pool = None
    if known(root, "manager") is not None:
        scheduler, manager = root, known(root, "manager")
    elif known(root, "managers") is not None or has(root, "req_to_blocks") or has(root, "coordinator"):
        manager = root
    elif known(root, "head") is None and has(root, "free_block_queue"):
        pool = root
    else:
        raise GdbextError(f"the {root.type_name} at {root.address:#x} is no Scheduler, KVCacheManager or BlockPool of vLLM V1")
    if listed is not None:
        requests = {request.request_id: request for request in listed}
    else:
        requests = at_once(rt, lambda: requests_of(rt, scheduler, content)) if scheduler is not None else {}
    if not rt.target.is_stopped:
        rt.target.drop_pages()  # tables after the counts that they must cover: both grow, and blocks come before their tokens
    pools, groups, owned = _managers(rt, manager, pool)
    for group, tables in owned.items():
        _, index = pools[next(g.pool for g in groups if g.id == group)]
        for request_id, blocks in tables:
            request = requests.get(request_id)
            if request is None:
                request = requests[request_id] = Request(request_id, known=scheduler is None)
            request.blocks[group] = index.of(blocks, DANGLING)
    cache = Cache(
        "vllm",
        version,
        [p for p, _ in pools],
        groups,
        list(requests.values()),
        updating(rt, FOLDERS, READING, UPDATING),
        queues=scheduler is not None,
    )
    _pins(cache, scheduler, manager, pools)
    if scheduler is not None:
        _limits(cache, scheduler)
        explain_waits(cache)
        cache.sent = partial(sent, rt, tuple(SAMPLING))
    _stats(cache, manager)
    if scheduler is not None and any(pool.has_hash_map for pool in cache.pools):
        cache.token_hashes = lambda: kv_hashes.check(rt, cache)
    for g in groups:
        if g.kind == "mamba":
            cache.pools[g.pool].may_pin = cache.pools[g.pool].may_pin or "mamba states"
    return cache


def _managers(
    rt: Runtime, manager: Object | None, lone_pool: Object | None
) -> tuple[list[tuple[Pool, Places]], list[Group], dict[int, Tables]]:
    """The pools with the places of their blocks, the groups, and the block tables of each group by its id."""
    if manager is None:
        if lone_pool is None:
            raise LayoutError("there is neither a KV cache manager nor a pool of blocks to read")
        return [read_pool(rt, lone_pool)], [Group(0, "full", optional(lone_pool, "hash_block_size") or 0)], {}
    single = known(manager, "managers")
    config = known(manager, "config")
    if single is None:  # before 0.9.2 the manager keeps one table itself; before 0.8.5 it is the pool as well
        holder = known(manager, "pool")
        holder = manager if holder is None or holder.isa("list") else holder
        pool = read_pool(rt, holder)
        pool[0].block_size = needed(manager, "block_size")
        return [pool], [Group(0, "full", pool[0].block_size)], {0: _req_to_blocks(manager)}
    pools: list[tuple[Pool, Places]] = []
    places: dict[int, int] = {}  # {address of a pool: its number}
    groups: list[Group] = []
    owned: dict[int, Tables] = {}
    for number, one in enumerate(single.elements(1000)):
        holder = path(one, "block_pool")
        if holder.address not in places:
            places[holder.address] = len(pools)
            pools.append(read_pool(rt, holder, f"pool {len(pools)}"))
        told = optional(one, "kv_cache_group_id")
        group_id = number if told is None else told
        groups.append(_group(one, group_id, places[holder.address], config))
        owned[group_id] = at_once(rt, partial(_req_to_blocks, one))
    if len(pools) == 1:
        pools[0][0].name = "pool"
    if not pools:  # a model without attention
        pools.append(read_pool(rt, path(manager, "coordinator.block_pool")))
    for g in groups:
        pools[g.pool][0].block_size = g.block_size
    return pools, groups, owned


def _group(one: Object, group_id: int, pool: int, config: Object | None) -> Group:
    kind = other = ""
    spec = {}
    try:
        described = one.attr("kv_cache_spec")
        other = described.type_name
        kind = KINDS.get(other, "other")
        spec = {"class": other, **{n: v for n in SPEC_FIELDS for v in [optional(described, n)] if v is not None}}
    except GdbextError as e:
        log.passed_over(e)
        kind = "full" if absences.holds_default(one, "kv_cache_spec") else "unknown"
    layers = []
    try:
        layers = (
            [n.string(300) for n in config.attr("kv_cache_groups").item(group_id).attr("layer_names").elements(10_000)]
            if config
            else []
        )
    except GdbextError as e:
        log.passed_over(e)  # the names are a courtesy
    return Group(group_id, kind, needed(one, "block_size"), pool, layers, spec, _unjudged(one))


def _unjudged(one: Object) -> str:
    """Why the blocks in a manager's tables may be free all the same; '' for a manager that counts a reference for each."""
    return "" if one.type_name in KEEPING else f"which blocks a {one.type_name} releases is not known"


def _req_to_blocks(owner: Object) -> Tables:
    """`[(request id, [block addresses])]`"""
    return [(key.string(1000), value.element_addresses()) for key, value in owner.attr("req_to_blocks").items(MAX_REQUESTS)]


def _limits(cache: Cache, scheduler: Object) -> None:
    for name in ("max_num_running_reqs", "max_num_active_reqs", "max_num_scheduled_tokens", "max_model_len"):
        value = optional(scheduler, name)
        if value is not None:
            cache.limits[name] = value
    try:
        watermark = optional(scheduler.attr("kv_cache_manager"), "watermark_blocks", default=0)
        cache.limits["watermark_blocks"] = watermark
    except GdbextError as e:
        log.passed_over(e)


def _pins(cache: Cache, scheduler: Object | None, manager: Object | None, pools: list[tuple[Pool, Places]]) -> None:
    """References to blocks other than those of tables: named, or counted where the engine keeps a list of them."""
    why = ""
    if manager is None:
        why = "requests were not read"
    elif scheduler is None:
        why = "its scheduler was not read: stores in flight, transfers"
    elif is_set(scheduler, "connector"):
        why = "a KV connector"
    elif is_set(scheduler, "ec_connector"):
        why = "an encoder connector"
    for number, (pool, _) in enumerate(pools):
        lent = next((g.unjudged for g in cache.groups if g.pool == number and g.unjudged), "")
        pool.may_pin = why or lent or ("HiSparse's spills and publications" if _has_host_pages(manager) else "")
    for address in _kept(scheduler, manager) if scheduler is not None else ():
        for pool, index in pools:
            block = index.get(address, DANGLING)
            if block >= 0:
                pool.pins[block] = pool.pins.get(block, 0) + 1


def _kept(scheduler: Object, manager: Object | None) -> Iterator[int]:
    """The addresses of blocks that are kept until a step has run: freed ones, and both ends of copies that are to be made."""
    if has(scheduler, "deferred_frees"):
        for entry in scheduler.attr("deferred_frees").elements(100_000):
            yield from entry.item(1).element_addresses()
    managers = known(manager, "managers") if manager is not None else None
    for one in managers.elements(1000) if managers is not None else ():
        if has(one, "_pending_cow_copies"):
            for pair in one.attr("_pending_cow_copies").elements(100_000):
                yield from pair.element_addresses()


def _has_host_pages(manager: Object | None) -> bool:
    """Whether pages of requests go to the host and back (vllm/v1/hisparse): a page on its way is pinned on both sides."""
    single = known(manager, "managers") if manager is not None else None
    return single is not None and any(at(one, "coordinator.pending_spills") is not None for one in single.elements(1000))


def _stats(cache: Cache, manager: Object | None) -> None:
    """Hit counters since the engine last reported them."""
    try:
        stats = manager.attr("prefix_cache_stats") if manager is not None else None
    except GdbextError as e:
        log.passed_over(e)
        stats = None
    if stats is None or not hasattr(stats, "attr") or stats.is_none():
        return
    cache.counters["prefix_cache"] = {n: optional(stats, n, default=0) for n in ("requests", "queries", "hits")}
