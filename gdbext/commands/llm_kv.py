"""llm-kv: what every block of the KV cache is, who owns it, and which invariant is broken."""

import math

from ..engines.registry import kv_releases
from ..errors import GdbextError, NotFoundError
from ..lazy import lazy_module
from ..render.jsonline import Address
from ..render.text import escape, table
from ..session.command import Answer, Command, Option, UsageError
from ..session.engine_selection import CONTENT, POOL, view_of
from ..session.optional_packages import need

kv_view = lazy_module("engines.kv_view")
arrays, statistics = lazy_module("torch.arrays"), lazy_module("torch.stats")
model, invariants, picture = lazy_module("kvcache.model"), lazy_module("kvcache.invariants"), lazy_module("kvcache.picture")

LISTED = 64  # ids shown in text
TRIES = 4  # a process that runs is read again until what looks broken is seen each time


def pool_data(cache, number):
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


def tables_of(request):
    return {str(group): blocks for group, blocks in request.blocks.items()}


def request_data(request):
    """A request with its whole table; `blocks` are the ids of its first group, `tables` those of each."""
    groups = sorted(request.blocks)
    return {
        "request_id": escape(request.request_id),
        "status": escape(request.status),
        "queue": request.queue,
        "tokens": tokens_of(request),
        "prompt_tokens": request.prompt_tokens,
        "computed_tokens": request.computed_tokens,
        "output_tokens": request.output_tokens,
        "blocks": list(request.blocks[groups[0]]) if groups else [],
        "tables": tables_of(request),
        "row": request.row,
        "cached_tokens": request.private,
    }


def tokens_of(request):
    if request.prompt_tokens is None and request.output_tokens is None:
        return request.computed_tokens
    return (request.prompt_tokens or 0) + (request.output_tokens or 0)


def layout_data(worker):
    """What the layers' memory looks like, from one shard; None without any layer."""
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


def owners_data(owners):
    return [{"request_id": escape(r.request_id), "index": index, "group": group} for r, group, index in owners]


def run_lengths(ids, limit=LISTED):
    """`1876-1879 12 7`: ids in their order, runs joined, at most `limit` pieces."""
    pieces, i = [], 0
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


class LlmKv(Command):
    __doc__ = f"""Show the KV cache of the engine: blocks, owners, the free queue, and whether it is sound.

      (gdb) llm-kv
      vLLM 0.32.0  4096 blocks of 128 tokens: 4091 free, 4 used, 1460 cached, 1 reserved
      (gdb) llm-kv block 1876            owners, references, hash, and addresses per rank, layer and part
      (gdb) llm-kv request request-7     its block table
      (gdb) llm-kv free                  the free queue, next to be taken first
      (gdb) llm-kv map                   one cell per block: who has it
      (gdb) llm-kv check -ranks          every invariant; with -ranks also the workers' tables against the scheduler's

    Works in the scheduler's process (vLLM: EngineCore), in a worker (the scheduler is then read as its sibling) and on cores of
    either. `used`: owned by requests or pinned; `cached`: named by the prefix cache, free or not. A stop in the middle of an
    update is said (mid-update); what it explains is not called corruption.

    Reads {kv_releases()}."""

    name = "llm-kv"
    group = "kv"
    operand = "[block N | request ID | free | map | check]"
    options = (
        Option("ranks", help="check: compare the workers' block tables too"),
        Option("group", "int", "block: of this KV cache group's pool", default=None),
        Option("stats", help="block: NaN, infinities and range of the values per layer"),
        Option("plot", "str", "map: write a picture to this file", metavar="FILE"),
        POOL,
        CONTENT,
    )

    def complete(self, session, text):
        return ["block", "request", "free", "map", "check"]

    def run(self, session, args):
        word, _, rest = args.operand_text.partition(" ")
        actions = {
            "": self.summary,
            "summary": self.summary,
            "block": self.block,
            "request": self.request,
            "free": self.free,
            "map": self.map,
            "check": self.check,
        }
        if word not in actions:
            raise UsageError(f"llm-kv: {word!r} is none of block N, request ID, free, map, check; see: help llm-kv")
        if rest.strip() and word not in ("block", "request"):
            raise UsageError(f"llm-kv {word}: takes nothing after it, got {rest.strip()!r}")
        return actions[word](session, args, view_of(session, args), rest.strip())

    # ---- summary -----------------------------------------------------------------------------------------------------
    def summary(self, session, args, view, rest):
        cache = view.cache()
        workers = view.workers(cache.pools[0].size) if args.pool is None else []
        pools = [pool_data(cache, n) for n in range(len(cache.pools))]
        alike = [p for p in pools if p["unit"] == pools[0]["unit"]]  # Mamba states and host memory are no blocks of the same kind
        total = {k: sum(p[k] or 0 for p in alike) for k in ("num_blocks", "free", "used", "cached", "shared", "held", "reserved")}
        groups = [
            {
                "id": g.id,
                "kind": g.kind,
                "block_size": g.block_size,
                "pool": g.pool,
                "layers": g.layers,
                "spec": g.spec,
                "blocks": sum(len(r.blocks.get(g.id, ())) for r in cache.requests),
            }
            for g in cache.groups
        ]
        data = {
            "engine": cache.engine,
            "version": escape(cache.version),
            "block_size": cache.pools[0].block_size,
            **total,
            "pools": pools,
            "groups": groups,
            "layout": layout_data(workers[0] if workers else None),
            "requests": [request_data(r) for r in cache.requests if r.blocks],
            "counters": cache.counters,
            "limits": cache.limits,
            "mid_update": bool(cache.mid_update),
            "mid_update_at": cache.mid_update or None,
            "notes": cache.notes,
        }

        def text(style):
            lines = []
            for p in pools:
                name = "" if len(pools) == 1 else f"{p['name']}: "
                counts = ", ".join(
                    f"{p[k]} {k}"
                    for k in ("free", "used", "cached", "shared", "held", "reserved")
                    if p[k] or k in ("free", "used", "cached")
                )
                unit = f"{p['num_blocks']} {p['unit']}s" + (f" of {p['block_size']} tokens" if p["block_size"] > 1 else "")
                lines.append(f"{style.title(cache.engine + ' ' + escape(cache.version))}  {name}{unit}: {counts}")
            for g in groups:
                spec = ", ".join(f"{k} {v}" for k, v in g["spec"].items() if k != "class")
                lines.append(
                    f"group {g['id']}: {g['kind']}, {g['block_size']} tokens a block, {len(g['layers'])} layers, {g['blocks']} blocks in use"
                    + (f" ({spec})" if spec else "")
                )
            for worker in workers[:1]:
                for layer in worker.layers[:1]:
                    lines.append(
                        f"layers: {len(worker.layers)} on {layer.device}, {layer.dtype} {list(layer.shape)} ({layer.order}) "
                        f"strides {list(layer.stride)}{' ' + worker.layout if worker.layout else ''}"
                    )
            stats = cache.counters.get("prefix_cache")
            if stats and stats.get("queries"):
                lines.append(
                    f"prefix cache since the last report: {stats['hits']} of {stats['queries']} tokens hit, {stats['requests']} requests"
                )
            if cache.mid_update:
                lines.append(style.bad(f"mid-update: it stands in {cache.mid_update}"))
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
            return "\n".join(lines)

        return Answer(data, text, view.partial)

    # ---- one block ---------------------------------------------------------------------------------------------------
    def block(self, session, args, view, rest):
        try:
            number = int(rest, 0)
        except ValueError:
            raise UsageError("llm-kv block: give a block's number, such as: llm-kv block 17") from None
        cache = view.cache()
        group = cache.group(args.group) if args.group is not None else (cache.groups[0] if cache.groups else None)
        if group is None:
            raise NotFoundError(f"no group {args.group}; there are {', '.join(str(g.id) for g in cache.groups)}")
        pool = cache.pools[group.pool]
        if not pool.valid(number):
            raise NotFoundError(f"no {pool.unit} {number}: the pool has 0 to {pool.count - 1}")
        owners = cache.owners(group.pool).get(number, [])
        known = pool.linked or pool.free_ids is not None
        token = pool.hashes[number] if pool.hashes else 0
        workers = view.workers(pool.size) if args.pool is None else []
        group_of = owners[0][1] if owners else group.id
        addresses, stats = [], []
        if args.stats:
            need("numpy", "-stats")
        for worker in workers:
            for layer in worker.layers:
                if len(cache.groups) > 1 and layer.group != group_of:
                    continue
                found = layer.block_addresses(number)
                addresses.append(
                    {
                        "rank": worker.rank,
                        "layer": layer.index,
                        "name": escape(layer.name) or None,
                        **{part: Address(at) for part, at in found.items()},
                        "device": layer.device,
                    }
                )
                if args.stats:
                    stats.append({"rank": worker.rank, "layer": layer.index, **block_stats(layer, number)})
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
            "addresses": addresses,
        }
        if pool.linked:
            data.update(prev=pool.prev[number], next=pool.next[number])
        if args.stats:
            data["stats"] = stats

        def text(style):
            state = "reserved" if data["reserved"] else "free" if data["free"] else "used" if owners else "not free"
            words = [f"{pool.unit} {number}", state] + ([f"{data['ref_cnt']} references"] if data["ref_cnt"] is not None else [])
            words += ["cached " + (data["hash"] or "")] if data["cached"] else []
            lines = [style.title(words[0]) + "  " + "  ".join(words[1:])]
            lines += [
                f"  {escape(r.request_id)}: group {g}, place {i} (tokens {i * pool.block_size}-{(i + 1) * pool.block_size - 1})"
                for r, g, i in owners
            ]
            if pool.linked and data["free"]:
                lines.append(f"  in the free queue between {model.shown(data['prev'])} and {model.shown(data['next'])}")
            if addresses:
                parts = sorted({k for a in addresses for k in a} - {"rank", "layer", "name", "device"})
                lines.append(
                    table(
                        [
                            [a["rank"], str(a["layer"]), a["name"] or ""] + [hex(a[p]) if p in a else "" for p in parts]
                            for a in addresses
                        ],
                        ["rank", "layer", "name"] + parts,
                        style,
                    )
                )
            if args.stats:
                for s in stats:
                    lines.append(
                        f"  {s['rank']} layer {s['layer']}: "
                        + (
                            "; ".join(f"{p}: {describe_stats(v)}" for p, v in s.items() if isinstance(v, dict))
                            or s.get("why", "")
                        )
                    )
            return "\n".join(lines)

        return Answer({"block": data}, text, view.partial)

    # ---- one request -------------------------------------------------------------------------------------------------
    def request(self, session, args, view, rest):
        if not rest:
            raise UsageError("llm-kv request: give a request's id, such as: llm-kv request cmpl-7; llm-requests lists them")
        cache = view.cache()
        found = [r for r in cache.requests if r.request_id == rest] or [
            r for r in cache.requests if r.request_id.startswith(rest)
        ]
        if len(found) != 1:
            names = ", ".join(escape(r.request_id) for r in (found or cache.requests)[:8])
            raise NotFoundError(
                f"{'several requests begin with' if found else 'no request'} {escape(rest)}"
                + (f"; there are {names}" if names else "")
            )
        request = found[0]
        data = request_data(request)
        if request.slots is not None and cache.pools[0].block_size > 1:
            data["slots"] = request.slots
        if request.content is not None:
            data["content"] = request.content

        def text(style):
            lines = [
                style.title(escape(request.request_id)) + f"  {escape(request.status)}  {tokens_of(request)} tokens, "
                f"{request.computed_tokens} computed"
            ]
            for group, blocks in sorted(request.blocks.items()):
                lines.append(
                    f"  group {group}: {len(blocks)} {cache.pools[cache.group(group).pool].unit}s: {run_lengths(blocks, 4 * LISTED)}"
                )
            for key, tokens in (request.content or {}).items():
                lines.append(f"  {key}: {tokens}")
            return "\n".join(lines)

        return Answer({"request": data}, text, view.partial)

    # ---- the free queue ----------------------------------------------------------------------------------------------
    def free(self, session, args, view, rest):
        cache = view.cache()
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

        def text(style):
            lines = []
            for p in pools:
                lines.append(f"{p['name']}: {p['free']} free (the engine counts {p['counter']})")
                lines.append("  next: " + run_lengths(p["order"]) if p["order"] is not None else "  the list is on the device")
                if p["fault"]:
                    lines.append("  " + style.bad(p["fault"]) + "; see: llm-kv check")
            return "\n".join(lines)

        return Answer({"free": pools[0]["free"], "order": pools[0]["order"], "pools": pools}, text, view.partial)

    # ---- the picture -------------------------------------------------------------------------------------------------
    def map(self, session, args, view, rest):
        cache = view.cache()
        maps = []
        for number, pool in enumerate(cache.pools):
            cells = picture.states(cache, number)
            letters = picture.letters_of(cache, number)
            lines, per = picture.picture(cells)
            maps.append(
                {
                    "pool": pool.name,
                    "cells": cells,
                    "lines": lines,
                    "blocks_per_cell": per,
                    "legend": {letter: escape(name) for name, letter in letters.items() if letter != "#"},
                }
            )
        if args.plot:
            plot(args.plot, maps)

        def text(style):
            out = []
            for m in maps:
                out.append(
                    f"{m['pool']}: {len(m['cells'])} blocks, {m['blocks_per_cell']} a cell   . free  o free and cached  * shared  + no request's  0 reserved"
                )
                at = 0
                for line in m["lines"]:
                    out.append(f"{at:>8} " + line)
                    at += len(line) * m["blocks_per_cell"]
                out += [f"  {letter} {name}" for letter, name in m["legend"].items()]
            if args.plot:
                out.append(f"written to {args.plot}")
            return "\n".join(out)

        data = {"maps": [{k: v for k, v in m.items() if k != "cells" or len(m["cells"]) <= 1 << 16} for m in maps]}
        if args.plot:
            data["plot"] = args.plot
        return Answer(data, text, view.partial)

    # ---- check -------------------------------------------------------------------------------------------------------
    def check(self, session, args, view, rest):
        report, cache, workers = self._checked(args, view)
        for _ in range(TRIES if "unstopped" in view.partial else 0):
            if not report.violations:
                break
            view = view_of(session, args)
            again, cache, workers = self._checked(args, view)
            before = {v.key for v in report.violations}
            again.violations = [v for v in again.violations if v.key in before]
            report = again
        violations = [self._violation(v) for v in report.violations]
        data = {
            "ok": not violations,
            "blocks": report.blocks,
            "violations": violations,
            "mid_update": bool(cache.mid_update),
            "mid_update_at": cache.mid_update or None,
            "passing": [self._violation(v) for v in report.transient],
            "held": report.held,
            "rules": [{"rule": r, "holds": invariants.RULES[r].holds, "for": invariants.RULES[r].releases} for r in report.rules],
            "ranks": [w.rank for w in workers],
            "engine": cache.engine,
            "version": escape(cache.version),
        }
        partial = list(view.partial)
        if report.transient:
            partial.append(
                f"mid-update in {cache.mid_update}: {len(report.transient)} differences that a half-done update explains; check again after it"
            )

        def text(style):
            head = f"{cache.engine} {escape(cache.version)}: {report.blocks} {cache.pools[0].unit}s, {len(report.rules)} rules"
            lines = [
                head
                + ": "
                + (style.good("sound") if not violations else style.bad(f"{sum(1 + v['more'] for v in violations)} faults"))
            ]
            if cache.mid_update:
                lines.append(f"mid-update: it stands in {cache.mid_update}")
            for number, v in enumerate(violations):
                follows = ", ".join(f"{n} {r}" for r, n in v["follows"].items())
                lines.append(
                    f"  {style.bad(v['rule'])}: {v['detail']}"
                    + (f" (+{v['more']} more)" if v["more"] else "")
                    + (f"  [from this follow: {follows}]" if follows else "")
                )
                if number == 0:
                    lines.append(
                        style.dim(
                            f"    what must hold: {invariants.RULES[v['rule']].holds} ({invariants.RULES[v['rule']].releases})"
                        )
                    )
            for v in data["passing"]:
                lines.append(style.dim(f"  passing {v['rule']}: {v['detail']}"))
            held = sum(report.held.values())
            if held:
                lines.append(
                    f"{held} blocks are held by no request" + (f" ({cache.pools[0].may_pin})" if cache.pools[0].may_pin else "")
                )
            return "\n".join(lines)

        return Answer(data, text, partial)

    @staticmethod
    def _checked(args, view):
        cache = view.cache()
        workers = view.workers(cache.pools[0].size) if args.ranks else []
        return invariants.check(cache, workers), cache, workers

    @staticmethod
    def _violation(v):
        return {
            "rule": v.rule,
            "block": v.block,
            "request_id": escape(v.request_id) if v.request_id else None,
            "detail": escape(v.detail),
            "pool": v.pool,
            "rank": v.rank or None,
            "more": v.more,
            "follows": v.follows,
        }


# ---- values ----------------------------------------------------------------------------------------------------------
def block_stats(layer, block):
    """{part: statistics} of a block's elements in one layer; {"why": …} where they cannot be read."""
    try:
        return {
            part.name: statistics.statistics(arrays.of_tensor(kv_view.block_values(layer, part, block)))[0]
            for part in layer.parts
        }
    except GdbextError as e:
        return {"why": str(e)}


def describe_stats(s):
    bad = "".join(f", {s[k]} {k}" for k in ("nan", "inf") if s[k])
    if s["nan"] + s["inf"] == s["count"]:
        return f"no finite value{bad}"
    return f"{s['min']:.6g} to {s['max']:.6g}, mean {s['mean']:.6g}{bad}, {s['zeros']} of {s['count']} zero"


def plot(path, maps):
    """Writes a picture of the maps; the file's ending chooses the format."""
    matplotlib = need("matplotlib", "-plot")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(11, 4 * len(maps)), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    for axis, m in zip(figure.subplots(len(maps), 1, squeeze=False)[:, 0], maps):
        cells = m["cells"]
        width = max(1, math.ceil(math.sqrt(len(cells))) * 2) if len(cells) > 64 else max(1, len(cells))
        kinds = sorted(set(cells))
        colours = [picture.COLOURS.get(k) or matplotlib.colormaps["tab20"](ord(k) % 20) for k in kinds]
        codes = [kinds.index(c) for c in cells] + [len(kinds)] * (-len(cells) % width)
        rows = [codes[i : i + width] for i in range(0, len(codes), width)] or [[0]]
        axis.imshow(
            rows, aspect="auto", interpolation="nearest", cmap=ListedColormap([*colours, "white"]), vmin=0, vmax=len(kinds)
        )
        axis.set_title(f"{m['pool']}: {len(cells)} blocks, {width} a row")
        axis.set_yticks([])
        names = {**picture.MEANINGS, **m["legend"]}
        axis.legend(
            [Patch(facecolor=c, edgecolor="grey") for c in colours],
            [names.get(k, "another request") for k in kinds],
            loc="center left",
            bbox_to_anchor=(1, 0.5),
            fontsize="small",
        )
    try:
        canvas.print_figure(path)
    except (OSError, ValueError) as e:  # no such folder; an ending that is no picture
        raise GdbextError(f"-plot {path}: {e}") from None
