"""A BlockPool of vLLM V1 out of memory: blocks, free queue, prefix map (vllm/v1/core/block_pool.py, kv_cache_utils.py)."""

from __future__ import annotations

from itertools import compress
from typing import Any, Sequence

from ... import log
from ...cpython.objects import Object
from ...cpython.runtime import Runtime
from ...errors import GdbextError, LayoutError
from ...kvcache.model import DANGLING, HEAD, NONE, TAIL, Pool
from ..columns import Columns, Places, Records
from ..objects import address_of_none, at, has, optional, path
from .paths import PATHS, known


def read_pool(rt: Runtime, holder: Object, name: str = "pool") -> tuple[Pool, Places]:
    """(`Pool`, `Places` of its blocks, with negative marks for None and the queue's ends) of a BlockPool, or of a
    KVCacheManager of 0.6.6 that is one itself. `GdbextError` where it has no list of blocks."""
    blocks = known(holder, "blocks")
    if blocks is None or not blocks.isa("list"):
        raise GdbextError(f"the {holder.type_name} at {holder.address:#x} has no list of blocks")
    addresses = blocks.element_addresses()
    size = optional(holder, "num_gpu_blocks", default=len(addresses))
    pool = Pool(name, len(addresses) if size is None else size, len(addresses), optional(holder, "hash_block_size") or 0)
    caching = optional(holder, "enable_caching", default=0)
    pool.counters["enable_caching"] = None if caching is None else bool(caching)
    queue = path(holder, "free_block_queue") if addresses else None
    before = _ends(queue) if queue is not None else ()
    records = Records(rt, addresses)
    pool.foreign = records.foreign
    index = Places(addresses, _marks(rt, queue) if queue is not None else {})
    if index.different != len(addresses):
        pool.notes.append("a block is in the pool's list more than once")
    try:
        null = index.get(holder.attr("null_block").address, DANGLING)
        pool.reserved = (null,) if null >= 0 else ()
    except GdbextError as e:
        log.passed_over(e)
        pool.reserved = ()
    if queue is not None:
        pool.ids = records.integers("block_id", -1)
        pool.ref_cnt = records.integers("ref_cnt", 0)
        if records.has("is_null"):
            pool.null_ids = list(compress(range(pool.count), records.integers("is_null", 0)))
            if not has(holder, "null_block"):
                pool.reserved = tuple(pool.null_ids)
        _links(pool, queue, records, index)
        if not rt.target.is_stopped:
            rt.target.drop_pages()
            pool.torn = _ends(queue) != before
        _hash_map(rt, pool, holder, records, index)
        watchers = at(holder, "_reuse_watchers")  # of 0.32: pages whose copy on the host is whole
        pool.lent = {block.integer() for block, _ in watchers.items()} if watchers is not None else set()
    else:
        pool.reserved, pool.ref_cnt, pool.prev, pool.next = (), [], [], []
    return pool, index


def _marks(rt: Runtime, queue: Object) -> dict[int, int]:
    """{address: mark} of the objects that a link may lead to instead of a block."""
    marks = {address_of_none(rt): NONE, 0: NONE}
    if _name(queue, "head").startswith("fake"):
        marks.update({queue.attr(_name(queue, "head")).address: HEAD, queue.attr(_name(queue, "tail")).address: TAIL})
    return marks


def _links(pool: Pool, queue: Object, records: Records, index: Places) -> None:
    pool.num_free = optional(queue, "num_free_blocks")
    head, tail = queue.attr(_name(queue, "head")), queue.attr(_name(queue, "tail"))
    pool.prev, pool.next = (index.of(records.column(name), DANGLING) for name in ("prev_free_block", "next_free_block"))
    if _name(queue, "head").startswith("fake"):
        pool.head_next = index.get(head.attr("next_free_block").address, DANGLING)
        pool.tail_prev = index.get(tail.attr("prev_free_block").address, DANGLING)
        return
    # ends that are None are given as the ends of later releases, so that one walk serves both
    first, last = index.get(head.address, DANGLING), index.get(tail.address, DANGLING)
    pool.head_next = TAIL if first == NONE else first
    pool.tail_prev = HEAD if last == NONE else last
    if first >= 0 and pool.prev[first] == NONE:
        pool.prev[first] = HEAD
    if last >= 0 and pool.next[last] == NONE:
        pool.next[last] = TAIL


def _ends(queue: Object) -> tuple[int | None, int, int]:
    """(the counter, the addresses of the first and last block). Whenever a block is taken or given back, one of them changes."""
    head, tail = queue.attr(_name(queue, "head")), queue.attr(_name(queue, "tail"))
    if _name(queue, "head").startswith("fake"):
        head, tail = head.attr("next_free_block"), tail.attr("prev_free_block")
    return optional(queue, "num_free_blocks"), head.address, tail.address


def _name(queue: Object, what: str) -> str:
    for _, name in PATHS[what]:
        if has(queue, name):
            return name
    raise LayoutError(f"the {queue.type_name} at {queue.address:#x} has neither of {', '.join(n for _, n in PATHS[what])}")


def _hash_map(rt: Runtime, pool: Pool, holder: Object, records: Records, index: Places) -> None:
    found = known(holder, "hash map")
    pool.has_hash_map = found is not None
    entries = found.dict_entries() if found is not None else []
    keys, column, extra, none = [k for k, _ in entries], records.column("_block_hash"), [], address_of_none(rt)
    blocks = index.of([v for _, v in entries], DANGLING)
    pool.hash_map = [(key, (block,)) for key, block in zip(keys, blocks)]
    pool.hash_text = lambda token: _hash_text(rt, token)
    if has(holder, "cached_block_hashes_by_block"):
        for block, names in holder.attr("cached_block_hashes_by_block").items():
            extra.append((block.integer(max_digits=2), names.element_addresses(100_000)))
    lone = min(blocks, default=0) >= 0
    if lone and not extra and column.count(none) == pool.count - len(keys) and list(map(column.__getitem__, blocks)) == keys:
        pool.hashes = [
            0
        ] * pool.count  # each entry leads to a block that carries this very object, and no other block carries any
        for block, key in zip(blocks, keys):
            pool.hashes[block] = key
        return
    canonical = {**dict(zip(keys, keys)), none: 0, 0: 0}
    strangers = set(column).difference(canonical)
    strangers.update(p for _, names in extra for p in names if p not in canonical)
    if strangers:  # equal hashes may be different objects: then their content decides
        by_content = dict(zip(_contents(rt, keys), keys))
        pointers = sorted(strangers)
        for pointer, content in zip(pointers, _contents(rt, pointers)):
            canonical[pointer] = by_content.setdefault(content, pointer)
    pool.hashes = list(map(canonical.__getitem__, column))
    pool.extra_hashes = {b: {canonical[p] for p in names} for b, names in extra}
    for place in () if lone else [i for i, block in enumerate(blocks) if block < 0]:  # no block: a dict of several
        key, value = entries[place]
        inner = rt.object(value)
        pool.hash_map[place] = (
            key,
            index.of([v for _, v in inner.dict_entries()], DANGLING) if inner.isa("dict") else [DANGLING],
        )


def _contents(rt: Runtime, addresses: Sequence[int]) -> list[Any]:
    """Something hashable for each hash object, equal for equal ones: bytes of one length are compared as words."""
    if not addresses:
        return []
    L = rt.layout
    first = rt.object(addresses[0])
    if first.isa("bytes"):
        length, begin = first.len(), L["bytes.ob_sval"]
        if 0 < length <= 256 and begin % 8 == 0:
            columns = Columns(rt.target, addresses, begin + (length + 7 & -8))
            if set(columns.words(L["varobj.ob_size"])) == {length} and set(columns.words(L["object.ob_type"])) == {
                first.type.address
            }:
                words = [columns.words(begin + i) for i in range(0, length, 8)]
                if length % 8:
                    mask = (1 << 8 * (length % 8)) - 1
                    words[-1] = [w & mask for w in words[-1]]
                return list(zip(*words))
    return [rt.object(a).plain() for a in addresses]


def _hash_text(rt: Runtime, token: int) -> str:
    """A hash for people: hex of its first bytes, or the repr of the value in older releases."""
    if not token:
        return "none"
    try:
        value = rt.object(token).plain()
    except GdbextError as e:
        return f"unreadable ({e})"
    while isinstance(value, tuple) and value:  # BlockHash and BlockHashWithGroupId of older releases: the hash leads
        value = value[0]
    if isinstance(value, bytes):
        return value[:8].hex() + ("…" if len(value) > 8 else "")
    return f"{value & (1 << 64) - 1:x}" if isinstance(value, int) else "?"
