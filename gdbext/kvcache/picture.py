"""An occupancy map for the terminal: one cell per block, or per run of blocks where there are more than fit."""

from __future__ import annotations

from .model import Cache

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
FREE, CACHED, SHARED, HELD, RESERVED, BAD = ".", "o", "*", "+", "0", "!"
CELLS = 64 * 32
MEANINGS = {
    FREE: "free",
    CACHED: "free and cached",
    SHARED: "shared",
    HELD: "no request's",
    RESERVED: "reserved",
    BAD: "free and owned",
}
COLOURS = {FREE: "#f2f2f2", CACHED: "#c9d8e8", SHARED: "#222222", HELD: "#888888", RESERVED: "#bbbb66", BAD: "#ff0000"}


def states(cache: Cache, number: int) -> str:
    """One character per block of a pool.

    `.` free, `o` free and cached, a letter per request (the largest first; requests after the 26th are `#`), `*` shared, `+`
    held by no request, `0` reserved, `!` free and owned.
    """
    pool = cache.pools[number]
    bits, cells = pool.free_bits(), bytearray(pool.count)
    code = {c: ord(c) for c in (FREE, CACHED, SHARED, HELD, RESERVED, BAD)}
    known = pool.linked or pool.free_ids is not None
    for i in range(pool.count):
        cells[i] = code[FREE] if bits[i] or not known else code[HELD]
    for i in pool.cached():
        if 0 <= i < pool.count and (bits[i] or pool.ref_cnt is None):
            cells[i] = code[CACHED]
    for i in pool.reserved:
        if 0 <= i < pool.count:
            cells[i] = code[RESERVED]
    letters = letters_of(cache, number)
    for i, owners in cache.owners(number).items():
        if not 0 <= i < pool.count:
            continue
        names = {r.request_id for r, _, _ in owners}
        cells[i] = (
            code[BAD] if known and bits[i] else code[SHARED] if len(names) > 1 else ord(letters.get(next(iter(names)), "#"))
        )
    return cells.decode("ascii")


def letters_of(cache: Cache, number: int) -> dict[str, str]:
    """`{request id: letter}` of the requests with blocks in a pool, the largest first."""
    groups = {g.id: g.pool for g in cache.groups}
    sizes = [(sum(len(b) for g, b in r.blocks.items() if groups.get(g, 0) == number), r.request_id) for r in cache.requests]
    sizes = sorted((s for s in sizes if s[0]), key=lambda s: (-s[0], s[1]))
    return {request_id: (LETTERS[i] if i < len(LETTERS) else "#") for i, (_, request_id) in enumerate(sizes)}


def picture(cells: str, width: int = 64, limit: int = CELLS) -> tuple[list[str], int]:
    """Lines of at most `width` cells -> (lines, blocks per cell).

    A cell of several blocks shows a fault first. Otherwise it shows the commonest state of those that are not free, so that used
    blocks are never hidden.
    """
    per = max(1, -(-len(cells) // limit))
    if per > 1:
        merged = []
        for start in range(0, len(cells), per):
            part = cells[start : start + per]
            kinds = set(part)
            if BAD in kinds:
                merged.append(BAD)
            elif len(kinds) == 1:
                merged.append(part[0])
            else:
                used = [k for k in kinds if k not in (FREE, CACHED)] or [CACHED]
                merged.append(max(used, key=lambda k: (part.count(k), k)))
        cells = "".join(merged)
    return [cells[i : i + width] for i in range(0, len(cells), width)], per
