"""The Python heap of a process as JSON and as text, and the file that stores an earlier one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..access import files as opened_files
from ..cpython.referrers import Path
from ..errors import GdbextError
from ..heap import collector, growth
from ..heap.growth import Look, Row
from ..heap.listing import Census, Container
from ..render import files, jsonline
from ..render.jsonline import Address
from ..render.text import Style, escape, seconds, size, table

SHOWN, LISTED = 15, 200  # rows of text without -all; containers and instances in JSON


LOOK = {"process": str, "complete": bool, "types": [list], "containers": [list]}


def heap_data(census: Census, collecting: float | None) -> dict[str, Any]:
    heap, sums = census.heap, census.types()
    state = collector.Collector(heap.rt, heap)
    types = []
    for s in sums:
        count, held = (s.count, s.bytes) if s.count else (s.held, s.held_bytes)
        row = {"type": escape(s.name), "count": count, "bytes": held, "tracked": s.count, "exact": s.exact}
        types.append({**row, "untracked": s.held, "untracked_bytes": s.held_bytes})
    return {
        "objects": sum(s.count + s.held for s in sums),
        "bytes": sum(s.bytes + s.held_bytes for s in sums),
        "tracked": heap.tracked,
        "types": types,
        "containers": [_container(census, c) for c in census.containers(LISTED)],
        "growth": [],
        "gc": {**_collector(state), "collecting_seconds": collecting},
    }


def _collector(state: collector.Collector) -> dict[str, Any]:
    names = ("count", "threshold", "objects", "collections", "collected", "seconds", "last")
    return {
        "enabled": state.enabled,
        "collecting": state.collecting,
        "tid": state.tid,
        "generation": state.generation,
        "generations": [{name: getattr(g, name) for name in names} for g in state.generations],
        "frozen": state.frozen,
        "full_pause_estimate": list(state.pause),
    }


def _owner(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {"owner": None, "owner_shown": None, "owner_frame": None}
    return {"owner": escape(path.text), "owner_shown": escape(path.shown), "owner_frame": escape(path.note) or None}


def _container(census: Census, c: Container) -> dict[str, Any]:
    row = {"address": Address(c.address), "type": escape(c.type), "length": c.length, "bytes": c.bytes, "retained": c.retained}
    return {**row, **_owner(census.owner(c.node))}


def instance_data(census: Census, node: int) -> dict[str, Any]:
    heap = census.heap
    row = {"address": Address(int(heap.addresses[node])), "type": escape(heap.name(heap.kind(node)))}
    return {**row, "bytes": int(heap.sizes[node]), "retained": int(census.retained[node]), **_owner(census.owner(node))}


def paths_data(census: Census, asked: str, every: bool) -> list[dict[str, Any]]:
    return _ways(census.ways_to(_address(asked), 1 << 20 if every else LISTED))


def weakly_data(census: Census, asked: str, every: bool) -> list[dict[str, Any]]:
    """The weak references to an object, as `paths_data`."""
    return _ways(census.weakly(_address(asked), 1 << 20 if every else LISTED))


def _ways(found: list[tuple[str, Path | None]]) -> list[dict[str, Any]]:
    return [{"holder": escape(kind), **_owner(path)} for kind, path in found]


def _address(asked: str) -> int:
    """The address that -path names."""
    try:
        return int(asked, 0)
    except ValueError:
        raise GdbextError(f"pyheap: -path needs an address, not {asked!r}") from None


def growth_data(row: Row) -> dict[str, Any]:
    found = {"type": escape(row.type), "before": row.before, "after": row.after, "bytes": row.bytes, "kind": row.kind}
    return {**found, "address": None if row.address is None else Address(row.address), **_owner(row.path)}


# ---- files -----------------------------------------------------------------------------------------------------------
def save_look(path: str, look: Look, force: bool) -> str:
    """Writes a file for `load_look`. -> the path"""
    path = os.path.expanduser(path)
    kept = {
        "process": look.process,
        "complete": look.complete,
        "types": [[name, *own] for name, own in look.types.items()],
        "containers": [[hex(address), *own] for address, own in look.containers.items()],
    }
    with files.writing(path, "-save", force) as f:
        f.write(jsonline.dumps({"schema": "pyheap-look/1", "look": kept}).encode() + b"\n")
    return path


def load_look(path: str) -> Look:
    """The heap that `-save` remembered in a file."""
    try:
        kept = opened_files.json_of(opened_files.contents(os.path.expanduser(path), opened_files.JSON_SIZE), path)
        jsonline.expect(kept, {"look": LOOK})
        kept = kept["look"]
        containers = {int(a, 0): (str(kind), int(length), int(held)) for a, kind, length, held in kept["containers"]}
        types = {str(name): (int(count), int(total)) for name, count, total in kept["types"]}
        if any(
            not 0 <= n < 1 << 63 for row in (*types.values(), *(one[1:] for one in containers.values()), containers) for n in row
        ):
            raise ValueError("numbers that no heap has")
        return growth.Look(containers, types, kept["complete"], kept["process"])
    except GdbextError as e:
        raise GdbextError(f"-diff {e}") from None
    except (ValueError, TypeError, KeyError, OverflowError):
        raise GdbextError(f"-diff {path}: no heap of pyheap; make one with: pyheap -save {path}") from None


# ---- text ------------------------------------------------------------------------------------------------------------
def _cut(rows: Sequence[dict[str, Any]], every: bool) -> Sequence[dict[str, Any]]:
    return rows if every else rows[:SHOWN]


def _more(rows: Sequence[dict[str, Any]], every: bool, style: Style) -> str:
    return "" if every or len(rows) <= SHOWN else style.dim(f"\n… {len(rows) - SHOWN} more: -all")


def _holder(row: dict[str, Any], style: Style) -> str:
    if row["owner"] is None:
        return style.dim("nothing that is a root holds it")
    return style.name(row["owner_shown"]) + (f"  ({row['owner_frame']})" if row["owner_frame"] else "")


def types_text(data: dict[str, Any], every: bool, style: Style) -> str:
    rows = sorted(data["types"], key=lambda r: -r["bytes"] - (r["untracked_bytes"] if r["tracked"] else 0))
    cells = []
    for r in _cut(rows, every):
        more = f"{r['untracked']} more, {size(r['untracked_bytes'])}, not tracked" if r["tracked"] and r["untracked"] else ""
        cells.append([style.name(r["type"]), str(r["count"]), ("" if r["exact"] else "~") + size(r["bytes"]), style.dim(more)])
    return table(cells, ["type", "count", "bytes", ""], style, right=("count", "bytes")) + _more(rows, every, style)


def containers_text(data: dict[str, Any], every: bool, style: Style) -> str:
    cells = [
        [r["type"], str(r["length"]), size(r["bytes"]), size(r["retained"]), _holder(r, style)]
        for r in _cut(data["containers"], every)
    ]
    head = ["container", "length", "bytes", "held in all", "owner"]
    return table(cells, head, style, right=("length", "bytes", "held in all")) if cells else "no containers"


def instances_text(data: dict[str, Any], count: int, every: bool, style: Style) -> str:
    rows = data["instances"]
    cells = [
        [f"{int(r['address']):#x}", r["type"], size(r["bytes"]), size(r["retained"]), _holder(r, style)]
        for r in _cut(rows, every)
    ]
    head = ["address", "type", "bytes", "held in all", "owner"]
    return f"{count} objects\n" + table(cells, head, style, right=("bytes", "held in all")) + _more(rows, every, style)


def paths_text(data: dict[str, Any], every: bool, style: Style) -> str:
    rows, weakly = data["paths"], data["weakly"]
    text = "no object holds it"
    if rows:
        cells = [[_holder(r, style), r["owner"] or "", r["holder"]] for r in _cut(rows, every)]
        text = table(cells, ["way", "for pyprint", "held by a"], style) + _more(rows, every, style)
    if weakly:
        cells = [[_holder(r, style), r["holder"]] for r in _cut(weakly, every)]
        text += "\n" + table(cells, ["known weakly, not held, by", "a"], style) + _more(weakly, every, style)
    return text


def growth_text(data: dict[str, Any], every: bool, style: Style) -> str:
    rows, of = data["growth"], data["compared"]
    if not any(of.values()):
        return style.bad("nothing was compared: the earlier walk has no type and no container of this heap")
    if not rows:
        return f"nothing grew: {of['types']} types and {of['containers']} containers of both walks were compared"
    cells = [
        [f"+{r['after'] - r['before']}", f"{r['before']} -> {r['after']}", "+" + size(r["bytes"]), r["type"], _holder(r, style)]
        for r in _cut(rows, every)
    ]
    head = ["more", "length or count", "bytes", "type", "owner"]
    return table(cells, head, style, right=("more", "bytes")) + _more(rows, every, style)


def totals_text(data: dict[str, Any]) -> str:
    """Objects, bytes and the state of the collector."""
    gc = data["gc"]
    counts = " ".join(f"{g['count']}/{g['threshold']}" for g in gc["generations"])
    tracked = sum(g["objects"] for g in gc["generations"])
    low, high = gc["full_pause_estimate"]
    state = "on" if gc["enabled"] else "off"
    if gc["collecting"]:
        known = [f"{what} {gc[key]}" for what, key in (("generation", "generation"), ("thread", "tid")) if gc[key] is not None]
        if gc["collecting_seconds"] is not None:
            known.append(f"for {seconds(gc['collecting_seconds'])} at least: at each walk of that time")
        state += ", collecting now" + (f" ({', '.join(known)})" if known else "")
    lines = [
        f"{data['objects']} objects, {size(data['bytes'])}; collector: {state}, {counts}, {tracked} objects in 3 generations, "
        f"{gc['frozen']} frozen",
        f"a full collection: {seconds(low)} to {seconds(high)}, an estimate by the number of objects",
    ]
    took = [
        f"{g['collections']} of generation {i} in {seconds(g['seconds'])}, the last in {seconds(g['last'])}"
        for i, g in enumerate(gc["generations"])
        if g["seconds"] is not None and g["collections"]
    ]
    if took:
        lines.append("collections so far: " + "; ".join(took))
    return "\n".join(lines)
