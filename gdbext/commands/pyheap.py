"""pyheap: the Python heap of a process."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from .. import log
from ..access import files as opened_files
from ..access.base import Target
from ..answers import places
from ..cpython import runtime as runtimes
from ..cpython.referrers import Path
from ..engines import processes
from ..errors import FaultError, GdbextError, LayoutError
from ..heap import collector, growth, listing, model
from ..heap.collector import Sightings
from ..heap.growth import Look, Row
from ..heap.listing import Census, Container
from ..render import files, jsonline
from ..render.jsonline import Address
from ..render.text import Style, escape, seconds, size, table
from ..session import evaluation as frames
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.session import Session
from ..stacks import snapshots

COPIED = 2 << 30  # bytes of private memory; blocks that malloc mapped by themselves, tensors say, are the first to stay out
COPIES = 3  # of one process, where pages that its objects lie in were not copied
SHOWN, LISTED = 15, 200  # rows of text without -all; containers and instances in JSON
LOOK = {"process": str, "complete": bool, "types": [list], "containers": [list]}


class PyHeap(Command):
    """Show the Python heap: objects and bytes by type, the largest containers with their holders, growth, the collector.

      (gdb) pyheap
      type                                      count      bytes
      dict                                      18214    9.1 MiB
      vllm.v1.request.Request                     512  100.0 KiB
      container                                length      bytes   held in all
      list       __main__:finished              10000   83.1 KiB       4.1 MiB
      41021 objects, 21.3 MiB; collector: on, 312/700 2/10 1/10, 38211 objects in 3 generations, 2810 frozen
      (gdb) pyheap -type Request            its instances, and who holds each
      (gdb) pyheap -path 0x7f2b4c0a1200     the ways from modules and frames to an object
      (gdb) pyheap -save before.json        and later
      (gdb) pyheap -diff before.json        what grew meanwhile, by path, the largest growth first
      (gdb) pyheap -watch 10 -on TP0        both, ten seconds apart, of a process that runs on

    Every object that the collector tracks is listed, those that gc.freeze() hides from the process's own tools too, and what such
    objects hold that it does not track: texts, numbers, code. Nothing is called; bytes are those of sys.getsizeof ("~" before
    those of types that count more than their fields there). "312/700 2/10 1/10" are the collector's three counters, each with the
    number at which its generation is collected next. Of a tracked type `count` is gc.get_objects()'s. "held in all" is
    what hangs on a container by the shortest ways from modules and frames.

    A process that runs is copied in one short stop, and the copy is read ("stood still" says how long it took). With -unstopped,
    or where it cannot be copied, it is read while it runs: objects that come and go meanwhile may be missing. Either way the look
    ends after -deadline seconds, and says what it has not read by then; a million objects take about a second of CPU."""

    name = "pyheap"
    tool = "heap"
    group = "python"
    options = (
        Option("type", "str", "the instances of this type, and who holds each", metavar="T"),
        Option("path", "str", "the ways from modules and frames to the object at this address", metavar="ADDR"),
        Option("save", "str", "remember this heap in a file, for -diff", metavar="FILE", for_agents=False),
        Option("force", help="-save replaces a file that is there", for_agents=False),
        Option("diff", "str", "what grew since the heap in FILE", metavar="FILE", for_agents=False),
        Option("watch", "float", "look twice, so many seconds apart: what grew between", metavar="S"),
        Option("all", help="every row, however many"),
        Option("unstopped", help="read the process while it runs, without a copy"),
        Option("deadline", "float", "how many seconds one look may take", 120.0, "S"),
    )

    def run(self, session: Session, args: Args) -> Answer:
        if sum(x is not None for x in (args.diff, args.watch)) > 1:
            raise UsageError("pyheap: -diff and -watch exclude each other")
        if not 1 <= args.deadline <= 86400:
            raise UsageError("pyheap: -deadline is 1 to 86400 seconds")
        before, moments, sightings = None, [], collector.Sightings()
        if args.watch is not None:
            before = _first_look(session, args, moments, sightings)
        elif args.diff is not None:
            before = load_look(args.diff)
        moments.append(_Moment(session, args, sightings))
        target, census = moments[-1].target, moments[-1].census
        partial = moments[-1].partial + census.heap.partial
        data = _answer(census, moments[-1].collecting)
        parts = [lambda style: _types_text(data, args, style), lambda style: _containers_text(data, args, style)]
        if args.type is not None:
            nodes = census.instances(args.type)
            data["instances"] = [_instance(census, node) for node in nodes[: None if args.all else LISTED]]
            parts = [lambda style: _instances_text(data, len(nodes), args, style)]
        if args.path is not None:
            data["paths"] = _paths(census, args)
            parts = [lambda style: _paths_text(data, args, style)]
        if before is not None:
            if before.process != _process(target):
                partial.append("the earlier look is of another process: containers are not the same ones, types are compared")
                before.containers.clear()
                before.complete = False
            data["growth"] = [_growth(row) for row in growth.compare(before, census)]
            data["compared"] = growth.compared(before, census)
            if not any(data["compared"].values()):
                partial.append("nothing was compared: the earlier look has no type and no container of this heap")
            parts = [lambda style: _growth_text(data, args, style)]
        if args.save is not None:
            data["saved"] = _save(args.save, growth.look(census, _process(target)), args.force)
        copies = [moment for moment in moments if moment.copied]
        stood, woken = sum(moment.pause for moment in copies), max((moment.woken for moment in copies), default=0)
        data["pauses"] = [{"pid": target.pid, "seconds": stood, "woken": woken}] if copies else []
        data["failed"] = []
        parts += [lambda style: _totals(data), lambda style: "\n".join(places.closing(data, {}, style))]
        return Answer(data, lambda style: "\n".join(filter(None, (part(style) for part in parts))), partial)


class _Moment:
    """One look: `census`, of what stands still, or of a copy of what runs, made in one short stop of `pause` seconds (`copied`;
    `woken`: how many of its threads slept and were stopped), or of what runs; `target`, `partial`; `collecting`: for how many
    seconds at least a collection is under way, as `sightings` tell, None where they do not."""

    def __init__(self, session: Session, args: Args, sightings: Sightings) -> None:
        began, self.pause, self.woken, self.copied = time.monotonic(), 0.0, 0, False
        self.target: Target = session.target(args.on)
        self.partial: list[str] = session.partial(self.target)
        self._sightings, self._running = sightings, None if self.target.is_stopped else self.target
        copied = not self.target.is_stopped and not args.unstopped
        self._look()
        for left in range(COPIES, 0, -1):
            if copied:
                self._copy(args)
                session.moving = not self.target.is_stopped
            seconds = max(1.0, args.deadline - (time.monotonic() - began))
            try:
                self.census: Census = self._census(session, args, seconds)
                self._look()
                self.collecting: float | None = sightings.seconds(self.census.heap.rt)
                return
            except (FaultError, LayoutError) as e:
                log.passed_over(e)
                for reason in self.partial:
                    if self.copied and "to spare" in reason:
                        raise GdbextError(f"process {self.target.pid}: not all of its heap could be copied: {reason}") from None
                if not self.copied or left == 1 or time.monotonic() - began > args.deadline:
                    raise  # else memory came into use between the choice of what is copied and the stop: once more

    def _look(self) -> None:
        if self._running is not None:
            with log.passing_over(GdbextError):
                self._sightings.look(runtimes.open_runtime(self._running))

    def _census(self, session: Session, args: Args, seconds: float) -> Census:
        clock = model.Clock(seconds, lambda line: print(f"pyheap: {line}", file=sys.stderr, flush=True))
        rt = runtimes.open_runtime(self.target) if self.copied else session.runtime(args.on)
        found = [(f, False) for f in _frames(rt)] if self.copied else frames.all_frames(session, rt, args.on)
        return listing.Census(rt, found, clock=clock)

    def _copy(self, args: Args) -> None:
        snap = snapshots.ProcessSnapshot(processes.ProcessRef(self.target.pid))
        snapshots.collect([snap], None, heap=COPIED, seconds=args.deadline)
        if snap.target is None:
            self.partial.append(f"read while it runs, for no copy could be made: {snap.reason}")
        else:
            self._look()
            self.target, self.pause = snap.target, self.pause + sum(snap.pauses)
            self.woken, self.copied = max(self.woken, snap.woken), True
            self.partial = [reason.replace(" (-max-bytes)", " of the copy") for reason in snap.partial]


def _frames(rt: Any) -> list[Any]:
    found = []
    for thread in rt.threads():
        try:
            found += rt.frames(thread)
        except GdbextError as e:
            log.passed_over(e)
            continue
    return found


def _first_look(session: Session, args: Args, moments: list[_Moment], sightings: Sightings) -> Look:
    target = session.target(args.on)
    if target.is_stopped:
        raise GdbextError("-watch needs a process that runs: name it by -on PID while gdb does not hold it stopped")
    moment = _Moment(session, args, sightings)
    before = growth.look(moment.census, _process(target))
    moment.census = moment.target = None  # a heap's worth of memory
    moments.append(moment)
    time.sleep(max(0.0, min(args.watch, 3600.0)))
    target.invalidate()
    return before


def _process(target):
    """Which process a look is of: a copy of it counts as the same one."""
    return f"{target.pid}"


def _answer(census: Census, collecting: float | None) -> dict[str, Any]:
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


def _collector(state) -> dict[str, Any]:
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


def _instance(census: Census, node: int) -> dict[str, Any]:
    heap = census.heap
    row = {"address": Address(int(heap.addresses[node])), "type": escape(heap.name(heap.kind(node)))}
    return {**row, "bytes": int(heap.sizes[node]), "retained": int(census.retained[node]), **_owner(census.owner(node))}


def _paths(census: Census, args: Args) -> list[dict[str, Any]]:
    try:
        address = int(args.path, 0)
    except ValueError:
        raise UsageError(f"pyheap: -path needs an address, not {args.path!r}") from None
    return [{"holder": escape(kind), **_owner(path)} for kind, path in census.ways_to(address, 1 << 20 if args.all else LISTED)]


def _growth(row: Row) -> dict[str, Any]:
    found = {"type": escape(row.type), "before": row.before, "after": row.after, "bytes": row.bytes, "kind": row.kind}
    return {**found, "address": None if row.address is None else Address(row.address), **_owner(row.path)}


# ---- files -----------------------------------------------------------------------------------------------------------
def _save(path, look, force):
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
def _cut(rows, args):
    return rows if args.all else rows[:SHOWN]


def _more(rows, args, style):
    return "" if args.all or len(rows) <= SHOWN else style.dim(f"\n… {len(rows) - SHOWN} more: -all")


def _holder(row, style):
    if row["owner"] is None:
        return style.dim("nothing that is a root holds it")
    return style.name(row["owner_shown"]) + (f"  ({row['owner_frame']})" if row["owner_frame"] else "")


def _types_text(data, args, style: Style) -> str:
    rows = sorted(data["types"], key=lambda r: -r["bytes"] - (r["untracked_bytes"] if r["tracked"] else 0))
    cells = []
    for r in _cut(rows, args):
        more = f"{r['untracked']} more, {size(r['untracked_bytes'])}, not tracked" if r["tracked"] and r["untracked"] else ""
        cells.append([style.name(r["type"]), str(r["count"]), ("" if r["exact"] else "~") + size(r["bytes"]), style.dim(more)])
    return table(cells, ["type", "count", "bytes", ""], style, right=("count", "bytes")) + _more(rows, args, style)


def _containers_text(data, args, style: Style) -> str:
    cells = [
        [r["type"], str(r["length"]), size(r["bytes"]), size(r["retained"]), _holder(r, style)]
        for r in _cut(data["containers"], args)
    ]
    head = ["container", "length", "bytes", "held in all", "owner"]
    return table(cells, head, style, right=("length", "bytes", "held in all")) if cells else "no containers"


def _instances_text(data, count, args, style: Style) -> str:
    rows = data["instances"]
    cells = [
        [f"{int(r['address']):#x}", r["type"], size(r["bytes"]), size(r["retained"]), _holder(r, style)] for r in _cut(rows, args)
    ]
    head = ["address", "type", "bytes", "held in all", "owner"]
    return f"{count} objects\n" + table(cells, head, style, right=("bytes", "held in all")) + _more(rows, args, style)


def _paths_text(data, args, style: Style) -> str:
    rows = data["paths"]
    if not rows:
        return "no object refers to it"
    cells = [[_holder(r, style), r["owner"] or "", r["holder"]] for r in _cut(rows, args)]
    return table(cells, ["way", "for pyprint", "held by a"], style) + _more(rows, args, style)


def _growth_text(data, args, style: Style) -> str:
    rows, of = data["growth"], data["compared"]
    if not any(of.values()):
        return style.bad("nothing was compared: the earlier look has no type and no container of this heap")
    if not rows:
        return f"nothing grew: {of['types']} types and {of['containers']} containers of both looks were compared"
    cells = [
        [f"+{r['after'] - r['before']}", f"{r['before']} -> {r['after']}", "+" + size(r["bytes"]), r["type"], _holder(r, style)]
        for r in _cut(rows, args)
    ]
    head = ["more", "length or count", "bytes", "type", "owner"]
    return table(cells, head, style, right=("more", "bytes")) + _more(rows, args, style)


def _totals(data) -> str:
    gc = data["gc"]
    counts = " ".join(f"{g['count']}/{g['threshold']}" for g in gc["generations"])
    tracked = sum(g["objects"] for g in gc["generations"])
    low, high = gc["full_pause_estimate"]
    state = "on" if gc["enabled"] else "off"
    if gc["collecting"]:
        known = [f"{what} {gc[key]}" for what, key in (("generation", "generation"), ("thread", "tid")) if gc[key] is not None]
        if gc["collecting_seconds"] is not None:
            known.append(f"for {seconds(gc['collecting_seconds'])} at least: at each look of that time")
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
