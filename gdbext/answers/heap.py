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
from ..render.fields import LEFT_OUT, NUMBER, REAL, TEXT, Field, Fields
from ..render.jsonline import Address
from ..render.text import Style, escape, seconds, size, table
from .each_node import FAILED
from .grow import GROW
from .places import PAUSE

SHOWN, LISTED = 15, 200  # rows of text without -all; containers and instances in JSON


LOOK = {"process": str, "complete": bool, "types": [list], "containers": [list]}


def heap_data(census: Census, collecting: float | None) -> dict[str, Any]:
    heap, sums = census.heap, census.types()
    state = collector.Collector(heap.rt, heap)
    return ANSWER.of(
        objects=sum(s.count + s.held for s in sums),
        bytes=sum(s.bytes + s.held_bytes for s in sums),
        tracked=heap.tracked,
        types=[TYPE.data(s) for s in sums],
        containers=[_container(census, c) for c in census.containers(LISTED)],
        growth=[],
        gc={**COLLECTOR.data(state), "collecting_seconds": collecting},
    )


def _container(census: Census, c: Container) -> dict[str, Any]:
    return {**CONTAINER.data(c), **HOLDER.data(census.owner(c.node))}


def instance_data(census: Census, node: int) -> dict[str, Any]:
    heap = census.heap
    own = {"address": Address(int(heap.addresses[node])), "type": escape(heap.name(heap.kind(node)))}
    sizes = {"bytes": int(heap.sizes[node]), "retained": int(census.retained[node])}
    return INSTANCE.of(**own, **sizes, **HOLDER.data(census.owner(node)))


def paths_data(census: Census, asked: str, every: bool) -> list[dict[str, Any]]:
    return _ways(census.ways_to(_address(asked), 1 << 20 if every else LISTED))


def weakly_data(census: Census, asked: str, every: bool) -> list[dict[str, Any]]:
    """The weak references to an object, as `paths_data`."""
    return _ways(census.weakly(_address(asked), 1 << 20 if every else LISTED))


def _ways(found: list[tuple[str, Path | None]]) -> list[dict[str, Any]]:
    return [WAY.of(holder=escape(kind), **HOLDER.data(path)) for kind, path in found]


def _address(asked: str) -> int:
    """The address that -path names."""
    try:
        return int(asked, 0)
    except ValueError:
        raise GdbextError(f"pyheap: -path needs an address, not {asked!r}") from None


def growth_data(row: Row) -> dict[str, Any]:
    return {**GROWTH.data(row), **HOLDER.data(row.path)}


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
def _holder(row: dict[str, Any], style: Style) -> str:
    if row["owner"] is None:
        return style.dim("nothing that is a root holds it")
    return style.name(row["owner_shown"]) + (f"  ({row['owner_frame']})" if row["owner_frame"] else "")


def _untracked(r: dict[str, Any], style: Style) -> str:
    more = f"{r['untracked']} more, {size(r['untracked_bytes'])}, not tracked"
    return style.dim(more if r["tracked"] and r["untracked"] else "")


def _of(name: str) -> Any:
    return lambda path: getattr(path, name, None) or None


HOLDER = Fields(  # of a `Path`, or of None
    Field("owner", TEXT, "a path that pyprint takes", read=_of("text")),
    Field("owner_shown", TEXT, "the same for people", read=_of("shown"), head="owner", draw=_holder, short=True),
    Field("owner_frame", TEXT, read=_of("note")),
)
HELD = tuple(one._replace(read=lambda row: LEFT_OUT) for one in HOLDER)
TYPE = Fields(
    Field("type", str, read=lambda s: s.name, head="type", draw=lambda r, style: style.name(r["type"])),
    Field(
        "count",
        int,
        "of those that the collector tracks; of a type without any, of those that tracked objects hold",
        read=lambda s: s.count or s.held,
        head="count",
    ),
    Field(
        "bytes",
        int,
        "of the same",
        read=lambda s: s.bytes if s.count else s.held_bytes,
        head="bytes",
        draw=lambda r, style: "~" * (not r["exact"]) + size(r["bytes"]),
    ),
    Field("exact", bool, "`bytes` is the sum of sys.getsizeof", head=" ", draw=_untracked),
    Field("tracked", int, read=lambda s: s.count),
    Field("untracked", int, "held and not tracked", read=lambda s: s.held),
    Field("untracked_bytes", int, read=lambda s: s.held_bytes),
)


def _at(row: Any) -> Address | None:
    return None if row.address is None else Address(row.address)


LENGTH = Field("length", int, head="length")
SIZES = (
    Field("bytes", int, head="bytes", cell=size),
    Field("retained", int, "with all that hangs on it alone", head="held in all", cell=size),
)
CONTAINER = Fields(Field("type", str, head="container"), LENGTH, *SIZES, *HELD, Field("address", str, read=_at))
INSTANCE = Fields(
    Field("address", str, head="address", cell=lambda at: f"{int(at):#x}"), Field("type", str, head="type"), *SIZES, *HELD
)
WAY = Fields(*HELD, Field("holder", str, "the type of what holds it"))
GROWTH = Fields(
    Field("before", int, head="more", draw=lambda r, style: f"+{r['after'] - r['before']}"),
    Field("after", int, head="length or count", draw=lambda r, style: f"{r['before']} -> {r['after']}"),
    Field("bytes", int, "what hangs on it more", head="bytes", cell=lambda n: "+" + size(n)),
    Field("type", str, head="type"),
    *HELD,
    Field("kind", str, "`container`: lengths; `type`: counts of objects that no container which grew explains"),
    Field("address", TEXT, read=_at),
)
GENERATION = Fields(
    *(Field(name, int) for name in ("count", "threshold", "objects", "collections", "collected")),
    Field("seconds", REAL, "of all its collections; before CPython 3.15 null"),
    Field("last", REAL, "of the last one"),
)
COLLECTOR = Fields(
    Field("enabled", bool),
    Field("collecting", bool),
    Field("tid", NUMBER, "the thread that collects now"),
    Field("generation", NUMBER, "what it collects; null where that cannot be told"),
    Field("generations", [GENERATION], read=lambda state: [GENERATION.data(g) for g in state.generations]),
    Field("frozen", int),
    Field("full_pause_estimate", [(int, float)], "least, most", "s", lambda state: list(state.pause)),
    Field(
        "collecting_seconds",
        REAL,
        "at least so long, by looks at the process; null where one alone saw it",
        read=lambda state: LEFT_OUT,
    ),
)
ANSWER = Fields(
    Field("objects", int),
    Field("bytes", int, "of all objects found"),
    Field("tracked", int, "how many the collector tracks"),
    Field("types", [TYPE]),
    Field("containers", [CONTAINER], f"the largest {LISTED}"),
    Field("growth", [GROWTH], "with -diff or -watch, the largest first"),
    Field("grow", [GROW], "with -watch: who makes it grow, as llm-memory -grow says it"),
    Field("compared", Fields(Field("types", int), Field("containers", int)), "how many both walks have"),
    Field("gc", COLLECTOR),
    Field("instances", [INSTANCE], "with -type"),
    Field("paths", [WAY], "with -path: who holds the object"),
    Field("weakly", [WAY], "with -path: who knows it by a weak reference"),
    Field("saved", str, "the file of -save"),
    Field("pauses", [PAUSE], "of a process that was copied"),
    Field("failed", [FAILED]),
)


def _cut(rows: Sequence[dict[str, Any]], every: bool) -> Sequence[dict[str, Any]]:
    return rows if every else rows[:SHOWN]


def _more(rows: Sequence[dict[str, Any]], every: bool, style: Style) -> str:
    return "" if every or len(rows) <= SHOWN else style.dim(f"\n… {len(rows) - SHOWN} more: -all")


def types_text(data: dict[str, Any], every: bool, style: Style) -> str:
    rows = sorted(data["types"], key=lambda r: -r["bytes"] - (r["untracked_bytes"] if r["tracked"] else 0))
    return TYPE.table(_cut(rows, every), style) + _more(rows, every, style)


def containers_text(data: dict[str, Any], every: bool, style: Style) -> str:
    rows = _cut(data["containers"], every)
    return CONTAINER.table(rows, style) if rows else "no containers"


def instances_text(data: dict[str, Any], count: int, every: bool, style: Style) -> str:
    rows = data["instances"]
    return f"{count} objects\n" + INSTANCE.table(_cut(rows, every), style) + _more(rows, every, style)


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
    return GROWTH.table(_cut(rows, every), style) + _more(rows, every, style)


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
