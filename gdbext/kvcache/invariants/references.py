"""Rules of reference counts: against the free queue, against block tables, and against the engine's own counters."""

from __future__ import annotations

import operator
from itertools import compress

from ..model import NONE, Owners, Pool, shown
from ..rules import BUSY_COUNT, FREE_REFERENCED, LEAKED, NEGATIVE_REF, REF_ABOVE_OWNERS, REF_BELOW_OWNERS, STRAY_LINKS
from .findings import Findings


def check(found: Findings, pool: Pool, owners: Owners, keeping: Owners) -> int:
    """Checks a pool that counts references -> how many of its blocks no request holds. `keeping`: those of `owners` that have a
    reference to each of their blocks."""
    refs = pool.ref_cnt or []
    found.checks(NEGATIVE_REF, FREE_REFERENCED, LEAKED, REF_BELOW_OWNERS, STRAY_LINKS)
    if not pool.may_pin:
        found.checks(REF_ABOVE_OWNERS)
    bits, reserved = pool.free_bits(), set(pool.reserved) | set(pool.foreign)
    _check_free(found, refs, bits, reserved, owners)
    _check_links(found, pool, refs, bits, reserved)
    if pool.counters.get("busy") is not None:
        found.checks(BUSY_COUNT)
        busy, referenced = pool.counters["busy"], pool.counters["referenced"]
        if busy != referenced:
            found.add(BUSY_COUNT, f"the counter says {busy} busy blocks, {referenced} have references")
    held = _check_too_many(found, pool, refs, reserved, owners)
    for i, held_by in sorted(keeping.items()):
        if pool.valid(i) and i not in reserved and 0 <= refs[i] < len(held_by) and not bits[i]:
            names = ", ".join(dict.fromkeys(r.request_id for r, _, _ in held_by))
            detail = f"block {i} has {refs[i]} references and is held by {names}"
            found.add(REF_BELOW_OWNERS, detail, i, held_by[0][0].request_id)
    return held


def _check_free(found: Findings, refs: list[int], bits: bytearray, reserved: set[int], owners: Owners) -> None:
    """A free block has no references, any other block has some. The comparison runs at the speed of C where all is well."""
    if bytearray(map(operator.not_, refs)) == bits and min(refs, default=0) >= 0:
        return
    for i, (free, count) in enumerate(zip(bits, refs)):
        if i in reserved or ((count != 0) != free and count >= 0):
            continue
        if count < 0:
            found.add(NEGATIVE_REF, f"block {i} has {count} references", i)
        elif i not in owners and free:
            found.add(FREE_REFERENCED, f"block {i} is free and has {count} references", i)
        elif i not in owners:
            found.add(LEAKED, f"block {i} has no references and is not free: it is lost", i)


def _check_links(found: Findings, pool: Pool, refs: list[int], bits: bytearray, reserved: set[int]) -> None:
    """A block outside the free queue has no links. A queue that was followed without a fault gave each of its blocks two."""
    if pool.prev is None or pool.next is None:
        return
    outside = bits.count(0)
    if not pool.walk().fault and pool.prev.count(NONE) == outside and pool.next.count(NONE) == outside:
        return
    for i, (before, after, free) in enumerate(zip(pool.prev, pool.next, bits)):
        if free or (before == NONE and after == NONE) or i in pool.foreign:
            continue
        if refs[i] == 0 and i not in reserved:
            continue  # a lost block: `LEAKED` says so
        found.add(STRAY_LINKS, f"block {i} is not free and has links: prev {shown(before)}, next {shown(after)}", i)


def _check_too_many(found: Findings, pool: Pool, refs: list[int], reserved: set[int], owners: Owners) -> int:
    """References that no table accounts for -> how many blocks have references but are in no table."""
    held, bits = 0, pool.free_bits()
    for i in compress(range(len(refs)), refs):
        count, tables = refs[i], len(owners.get(i, ()))
        if count <= 0 or (tables and count == tables) or i in reserved:
            continue
        if not tables:
            held += 1
        if count > tables + pool.pins.get(i, 0) and not pool.may_pin and not bits[i]:
            who = f"{tables} tables hold it" if tables else "no table holds it"
            found.add(REF_ABOVE_OWNERS, f"block {i} has {count} references and {who}: the others were never released", i)
    return held
