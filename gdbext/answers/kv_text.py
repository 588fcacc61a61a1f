"""The text of llm-kv's answers."""

from __future__ import annotations

from typing import Any, Sequence

from ..kvcache import invariants, model
from ..kvcache.model import Cache, Request, Worker
from ..render.text import Style, escape, table
from .kv import tokens_of

LISTED = 64  # ids shown in text
MORE = {  # what is compared of some workers besides
    "places": "{} slots by place",
    "gathered": "{} rows that attention reads",
    "copies": "{} values that it keeps twice",
    "tokens": "the tokens of {} requests",
    "sampling": "the sampling of {} requests",
}


def run_lengths(ids: Sequence[int], limit: int = LISTED) -> str:
    """`1876-1879 12 7`: ids in their order, runs joined, at most `limit` pieces."""
    pieces: list[str] = []
    i = 0
    while i < len(ids) and len(pieces) < limit:
        j, step = i, 0
        while j + 1 < len(ids) and ids[j + 1] - ids[j] in (1, -1) and (step in (0, ids[j + 1] - ids[j])):
            step = ids[j + 1] - ids[j]
            j += 1
        if j - i >= 2:
            pieces.append(f"{ids[i]}-{ids[j]}")
        else:
            pieces += [str(n) for n in ids[i : j + 1]]
        i = j + 1
    return " ".join(pieces) + (f" … ({len(ids)} in all)" if i < len(ids) else "")


def cache_lines(cache: Cache, workers: Sequence[Worker], data: dict[str, Any], style: Style) -> list[str]:
    """The pools, groups and layers, and a table of the requests that have blocks."""
    lines = [_pool_line(cache, p, len(data["pools"]) > 1, style) for p in data["pools"]]
    for g in data["groups"]:
        spec = ", ".join(f"{k} {v}" for k, v in g["spec"].items() if k != "class")
        lines.append(
            f"group {g['id']}: {g['kind']}, {g['block_size']} tokens a block, {len(g['layers'])} layers, "
            f"{g['blocks']} blocks in use" + (f" ({spec})" if spec else "")
        )
    for worker in workers[:1]:
        for layer in worker.layers[:1]:
            lines.append(
                f"layers: {len(worker.layers)} on {layer.device}, {layer.dtype} {list(layer.shape)} ({layer.order}) "
                f"strides {list(layer.stride)}{' ' + worker.layout if worker.layout else ''}"
            )
    stats = cache.counters.get("prefix_cache")
    if stats and stats.get("queries"):
        said = f"{stats['hits']} of {stats['queries']} tokens hit, {stats['requests']} requests"
        lines.append(f"prefix cache since the last report: {said}")
    if cache.mid_update:
        lines.append(style.bad(f"mid-update: it is in {cache.mid_update}"))
    lines += [style.dim(note) for note in cache.notes]
    rows = [
        [
            escape(r.request_id),
            escape(r.status),
            str(tokens_of(r) or 0),
            str(sum(len(b) for b in r.blocks.values())),
            run_lengths(next(iter(r.blocks.values())), 8),
        ]
        for r in cache.requests
        if r.blocks
    ]
    if rows:
        lines.append(table(rows, ["request", "status", "tokens", "blocks", "table"], style, right=("tokens", "blocks")))
    return lines


def _pool_line(cache: Cache, pool: dict[str, Any], several: bool, style: Style) -> str:
    always = ("free", "used", "cached")
    known = [k for k in (*always, "shared", "held", "reserved") if pool[k] or k in always and pool[k] is not None]
    counts = ", ".join(f"{pool[k]} {k}" for k in known)
    unit = f"{pool['num_blocks']} {pool['unit']}s" + (f" of {pool['block_size']} tokens" if pool["block_size"] > 1 else "")
    name = f"{pool['name']}: " if several else ""
    return f"{style.title(cache.engine + ' ' + escape(cache.version))}  {name}{unit}: {counts}"


def block_lines(cache: Cache, data: dict[str, Any], style: Style) -> list[str]:
    """One block: its state, its owners, its addresses, and its values where those were read."""
    group = cache.group(data["group"])
    pool = cache.pools[group.pool if group else 0]
    state = "reserved" if data["reserved"] else "free" if data["free"] else "used" if data["owners"] else "not free"
    words = [state] + ([f"{data['ref_cnt']} references"] if data["ref_cnt"] is not None else [])
    words += ["cached " + (data["hash"] or "")] if data["cached"] else []
    lines = [style.title(f"{pool.unit} {data['id']}") + "  " + "  ".join(words)]
    for owner in data["owners"]:
        first = owner["index"] * pool.block_size
        tokens = f"tokens {first}-{first + pool.block_size - 1}"
        lines.append(f"  {owner['request_id']}: group {owner['group']}, place {owner['index']} ({tokens})")
    if pool.linked and data["free"]:
        lines.append(f"  in the free queue between {model.shown(data['prev'])} and {model.shown(data['next'])}")
    addresses = data["addresses"]
    if addresses:
        parts = sorted({k for a in addresses for k in a} - {"rank", "layer", "name", "device"})
        rows = [[a["rank"], str(a["layer"]), a["name"] or ""] + [hex(a[p]) if p in a else "" for p in parts] for a in addresses]
        lines.append(table(rows, ["rank", "layer", "name"] + parts, style))
    for s in data.get("stats", ()):
        parts_text = "; ".join(f"{p}: {describe_stats(v)}" for p, v in s.items() if isinstance(v, dict))
        lines.append(f"  {s['rank']} layer {s['layer']}: {parts_text or s.get('why', '')}")
    return lines


def describe_stats(s: dict[str, Any]) -> str:
    """The range of some values, and how many are none."""
    bad = "".join(f", {s[k]} {k}" for k in ("nan", "inf") if s[k])
    if s["nan"] + s["inf"] == s["count"]:
        return f"no finite value{bad}"
    return f"{s['min']:.6g} to {s['max']:.6g}, mean {s['mean']:.6g}{bad}, {s['zeros']} of {s['count']} zero"


def request_lines(cache: Cache, request: Request, style: Style) -> list[str]:
    """One request with its whole block table."""
    head = f"  {escape(request.status)}  {tokens_of(request)} tokens, {request.computed_tokens} computed"
    lines = [style.title(escape(request.request_id)) + head]
    for number, blocks in sorted(request.blocks.items()):
        group = cache.group(number)
        unit = cache.pools[group.pool if group else 0].unit
        lines.append(f"  group {number}: {len(blocks)} {unit}s: {run_lengths(blocks, 4 * LISTED)}")
    return lines + [f"  {key}: {tokens}" for key, tokens in (request.content or {}).items()]


def free_lines(data: dict[str, Any], style: Style) -> list[str]:
    """The free queues, next to be taken first."""
    lines = []
    for p in data["pools"]:
        lines.append(f"{p['name']}: {p['free']} free (the engine counts {p['counter']})")
        lines.append("  next: " + run_lengths(p["order"]) if p["order"] is not None else "  the list is on the device")
        if p["fault"]:
            lines.append("  " + style.bad(p["fault"]) + f"; see: {style.typed('llm-kv check')}")
    return lines + ([f"mid-update: it is in {data['mid_update_at']}"] if data["mid_update"] else [])


def map_lines(maps: Sequence[dict[str, Any]]) -> list[str]:
    """The pictures with their legends."""
    lines = []
    for m in maps:
        head = f"{m['pool']}: {len(m['cells'])} blocks, {m['blocks_per_cell']} a cell"
        lines.append(head + "   . free  o free and cached  * shared  + no request's  0 reserved")
        at = 0
        for line in m["lines"]:
            lines.append(f"{at:>8} " + line)
            at += len(line) * m["blocks_per_cell"]
        lines += [f"  {letter} {name}" for letter, name in m["legend"].items()]
    return lines


def compared_line(one: dict[str, Any]) -> str:
    """How much of a rank was compared with its scheduler."""
    words = [f"{one['rows']} rows with {one['blocks']} blocks"] if one["tables"] else []
    words += [f"the counts of {one['counts']} requests"] if one["counts"] else []
    words += [f"{one['slots']} slots of its last step"] if one["slots"] else []
    words += [text.format(one[what]) for what, text in MORE.items() if one.get(what)]
    without = [MORE[what].format("").strip() for what in one.get("without", ())]
    return f"compared: {escape(one['label'])}: {', '.join(words)}" + (f"; not: {', '.join(without)}" if without else "")


def check_lines(cache: Cache, data: dict[str, Any], style: Style) -> list[str]:
    """Whether the cache is sound, and its faults; with the first broken rule its full text."""
    violations = data["violations"]
    if violations:
        said = style.bad(f"{sum(1 + v['more'] for v in violations)} faults")
    elif data["ok"]:
        said = style.good("sound")
    else:
        unseen = data["looked_at"] is not None and not any(data["looked_at"].values())
        what = "no block's values could be read" if unseen else "no rank's block tables were compared"
        said = f"no fault found, {style.bad('not known' if data['changed'] or not data['blocks'] else what)}"
    counts = f"{data['blocks']} {cache.pools[0].unit}s, {len(data['rules'])} rules"
    lines = [f"{cache.engine} {escape(cache.version)}: {counts}: {said}"]
    lines += [compared_line(one) for one in data["compared"][1:]]
    for rank, count in (data["looked_at"] or {}).items():
        lines.append(f"read: {escape(rank)}: {count} pieces of blocks' values, by layer and part")
    lines += [style.bad(f"not compared: {escape(one['label'])}: {one['what']}: {one['why']}") for one in data["not_compared"]]
    lines += [style.dim(note) for note in data["notes"]]
    lines += [f"  changed while it was read: {v['rule']}: {v['detail']}" for v in data["changed"]]
    if cache.mid_update:
        lines.append(f"mid-update: it is in {cache.mid_update}")
    for number, v in enumerate(violations):
        follows = ", ".join(f"{n} {r}" for r, n in v["follows"].items())
        more = f" (+{v['more']} more)" if v["more"] else ""
        lines.append(f"  {style.bad(v['rule'])}: {v['detail']}{more}" + (f"  [from this follow: {follows}]" if follows else ""))
        if number == 0:
            rule = invariants.RULES[v["rule"]]
            lines.append(style.dim(f"    what must hold: {rule.holds} ({rule.releases})"))
    lines += [style.dim(f"  passing {v['rule']}: {v['detail']}") for v in data["passing"]]
    held = sum(data["held"].values())
    if held:
        why = f" ({cache.pools[0].may_pin})" if cache.pools[0].may_pin else ""
        lines.append(f"{held} blocks are held by no request{why}")
    return lines
