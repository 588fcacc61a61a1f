"""SGLang's KV cache as its scheduler keeps it. The unit is the token slot at page size 1, else the page. Of tensors on a device
only the lengths are read here.

There are up to four pools: full attention; sliding-window layers; Mamba states; the host memory of the hierarchical cache. A
mapping gives the sliding-window slot of a token for its full slot (0: none, it is outside the window).
"""

from __future__ import annotations

from functools import partial

from ...cpython.objects import Object
from ...cpython.runtime import Runtime
from ...errors import GdbextError
from ...kvcache.model import Cache, Group, Request
from ..objects import at_once, first_present, is_set, numbers, optional, stands_in, updating
from . import kv_hashes
from .kv_pool import moving, page_size, read_pool, waiting_frees
from .kv_requests import explain_waits, requests_of
from .kv_tree import read_tree
from .paths import FORMING, GROUP_KINDS, HOST_POOLS, MAMBA_POOLS, READING, STEP_COUNTER, UPDATING


def read(rt: Runtime, scheduler: Object, version: str, content: bool, listed: list[Request] | None = None) -> Cache:
    """`Cache` of a Scheduler. `GdbextError` where its structure is that of no known release. `listed`: its requests, if they were
    read before."""
    if not rt.target.is_stopped:
        rt.target.drop_pages()  # earlier reads would be of another moment than the data compared below
    allocator, rows, tree = (scheduler.attr(n) for n in ("token_to_kv_pool_allocator", "req_to_token_pool", "tree_cache"))
    page = page_size(allocator)
    kept = {"full": allocator, "swa": None, "mamba": first_present(rows, MAMBA_POOLS)}
    if is_set(allocator, "full_attn_allocator"):
        kept.update(full=allocator.attr("full_attn_allocator"), swa=allocator.attr("swa_attn_allocator"))
    before = optional(scheduler, STEP_COUNTER), moving(rt, kept.values())
    pools = {
        what: at_once(rt, partial(read_pool, rt, what, one, 1 if what == "mamba" else page))
        for what, one in kept.items()
        if one is not None
    }
    pool = pools["full"]
    mapping = numbers(rt, allocator.attr("full_to_swa_index_mapping")) if "swa" in pools else None
    if "swa" in pools and mapping is None:
        pools["swa"].notes.append(
            "the mapping of full to sliding-window slots is on the device: which of those a request holds is not known here"
        )
    requests = at_once(rt, lambda: requests_of(rt, scheduler, pools, page, mapping, content, listed))
    host = first_present(tree, HOST_POOLS)
    if host is not None and is_set(host, "free_slots"):
        pools["host"] = at_once(rt, lambda: read_pool(rt, "host", host, page))
        pools["host"].reserved = ()
    gone = read_tree(rt, pools, tree, page, mapping)
    middle = updating(rt, UPDATING, READING) or stands_in(rt, FORMING)
    for holder in (allocator, *kept.values()) if not middle else ():
        waiting = sum(waiting_frees(rt, holder)) if holder is not None else 0
        middle = f"a group of frees that is still open: {waiting} wait in it" if waiting else middle
    if not rt.target.is_stopped:
        rt.target.drop_pages()  # else it is the earlier read
        if gone or before != (optional(scheduler, STEP_COUNTER), moving(rt, kept.values())):
            middle = middle or "a step that was made while it was read"
    numbered = {what: number for number, what in enumerate(pools)}
    groups = [
        Group(n, kind, pools[what].block_size, numbered[what]) for n, (what, kind) in enumerate(GROUP_KINDS) if what in pools
    ]
    cache = Cache("sglang", version, list(pools.values()), groups, requests, middle)
    cache.token_hashes = lambda: kv_hashes.check(rt, cache)
    for one in pools.values():
        cache.notes += one.notes
    _limits(rt, cache, scheduler, rows)
    counters, holders = pool.counters, [r for r in requests if r.row is not None]
    own = sum(max(0, -(-(r.allocated or 0) // page) * page - (r.private or 0)) for r in holders)
    if counters.get("evictable") is None and all(r.private is not None for r in holders):
        # a tree that cannot be read: slots that are neither free nor a request's own are in it
        counters["cached"] = (pool.size * page - counters.get("available", 0) - own) // page
        cache.notes.append(
            f"the prefix tree is a {counters['tree']}, whose nodes only it can read: cached = total - available - requests' own"
        )
    explain_waits(cache)
    return cache


def _limits(rt: Runtime, cache: Cache, scheduler: Object, rows: Object) -> None:
    """Fills in the maximum numbers of requests and tokens, and the free rows of the table of requests."""
    try:
        free = numbers(rt, rows.attr("free_slots"))
        if free is not None:
            cache.rows = {"size": optional(rows, "size"), "free": free}
    except GdbextError as e:
        cache.notes.append(f"free rows were not read: {e}")
    for name in ("max_total_num_tokens", "max_running_requests"):
        value = optional(scheduler, name)
        if value is not None:
            cache.limits[name] = value
