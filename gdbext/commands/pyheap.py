"""pyheap: the Python heap of a process."""

from __future__ import annotations

import sys
import time
from typing import Any, Callable

from .. import log
from ..access.base import Target
from ..access.proc import ProcTarget
from ..answers import grow, places
from ..answers import heap as listed
from ..cpython import runtime as runtimes
from ..engines import processes
from ..errors import FaultError, GdbextError, LayoutError
from ..heap import collector, grow_watch, growth, listing, model, writers
from ..heap.collector import Sightings
from ..heap.growth import Look
from ..heap.listing import Census
from ..render.files import may_write
from ..render.text import Style
from ..session import evaluation as frames
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.optional_packages import need
from ..session.session import Session
from ..stacks import snapshots

COPIED = 2 << 30  # bytes of private memory; blocks that malloc mapped by themselves, tensors say, are the first to stay out
COPIES = 3  # of one process, where pages that its objects lie in were not copied


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
      (gdb) pyheap -watch 10 -on TP0        both, ten seconds apart, of a process that runs on, and who made it grow

    Every object that the collector tracks is listed, those that gc.freeze() hides from the process's own tools too, and what such
    objects hold that it does not track: texts, numbers, code. Nothing is called; bytes are those of sys.getsizeof ("~" before
    those of types that count more than their fields there). "312/700 2/10 1/10" are the collector's three counters, each with the
    number at which its generation is collected next. Of a tracked type `count` is gc.get_objects()'s. "held in all" is
    the memory whose shortest way from a module or frame leads through the container.

    With -watch a second table says who makes the three containers longer on which most hangs, and the process's memory larger:
    the Python line and thread that write their lengths, bytes a minute, as llm-memory -grow says it. The kernel samples a few of
    these writes (perf events; a debug register of each thread for each container, until the command ends). Where it may not, or
    with -no-perf, the lines count in which threads are while a length rises.

    A process that runs is copied in one short stop, and the copy is read ("paused" says for how long). With -unstopped,
    or where it cannot be copied, it is read while it runs: objects that come and go meanwhile may be missing. Either way the walk
    ends after -deadline seconds, and says what it has not read by then; a million objects take about a second of CPU. Needs
    numpy."""

    name = "pyheap"
    copies = 2
    tool = "heap"
    fields = listed.ANSWER
    group = "python"
    options = (
        Option("type", "str", "the instances of this type, and the holders of each", metavar="T"),
        Option("path", "str", "the ways from modules and frames to the object at this address", metavar="ADDR"),
        Option("save", "str", "remember this heap in a file, for -diff", metavar="FILE", was="o output", for_agents=False),
        Option("force", help="-save replaces a file that is there", for_agents=False),
        Option("diff", "str", "what grew since the heap in FILE", metavar="FILE", for_agents=False),
        Option("watch", "float", "what grew in S seconds, and by whom", metavar="S"),
        Option("no-perf", help="-watch without samples of the kernel's", for_agents=False),
        Option("all", help="every row, however many"),
        Option("unstopped", help="read the process while it runs, without a copy"),
        Option("deadline", "float", "seconds per walk, at most", 120.0, "S"),
    )

    def run(self, session: Session, args: Args) -> Answer:
        if sum(x is not None for x in (args.diff, args.watch)) > 1:
            raise UsageError("pyheap: -diff and -watch exclude each other")
        if not 1 <= args.deadline <= 86400:
            raise UsageError("pyheap: -deadline is 1 to 86400 seconds")
        need("numpy", "pyheap")
        if args.save is not None:
            may_write(args.save, "-save", args.force)
        before: Look | None = None
        moments: list[_Moment] = []
        sightings, grows = collector.Sightings(), None
        if args.watch is not None:
            before = _first_look(session, args, moments, sightings)
            grows = _Grows(moments[0].running, args)
        elif args.diff is not None:
            before = listed.load_look(args.diff)
        moments.append(_Moment(session, args, sightings))
        target, census = moments[-1].target, moments[-1].census
        partial = moments[-1].partial + census.heap.partial
        data = listed.heap_data(census, moments[-1].collecting)
        parts: list[Callable[[Style], str]] = [
            lambda style: listed.types_text(data, args.all, style),
            lambda style: listed.containers_text(data, args.all, style),
        ]
        if args.type is not None:
            nodes = census.instances(args.type)
            data["instances"] = [listed.instance_data(census, node) for node in nodes[: None if args.all else listed.LISTED]]
            parts = [lambda style: listed.instances_text(data, len(nodes), args.all, style)]
        if args.path is not None:
            data["paths"] = listed.paths_data(census, args.path, args.all)
            data["weakly"] = listed.weakly_data(census, args.path, args.all)
            parts = [lambda style: listed.paths_text(data, args.all, style)]
        if before is not None:
            if before.process != _process(target):
                partial.append("the earlier walk is of another process: only types are compared")
                before.containers.clear()
                before.complete = False
            rows = growth.compare(before, census)
            data["growth"] = [listed.growth_data(row) for row in rows]
            data["compared"] = growth.compared(before, census)
            if not any(data["compared"].values()):
                partial.append("nothing was compared: the earlier walk has no type and no container of this heap")
            parts = [lambda style: listed.growth_text(data, args.all, style)]
            if grows is not None:
                data["grow"] = [grows.who(rows, target, moments[-1].at - moments[0].at)]
                parts.append(lambda style: grow.who_text(data["grow"][0], style))
        if args.save is not None:
            data["saved"] = listed.save_look(args.save, growth.look(census, _process(target)), args.force)
        copies = [moment for moment in moments if moment.copied]
        stood, woken = sum(moment.pause for moment in copies), max((moment.woken for moment in copies), default=0)
        data["pauses"] = [{"pid": target.pid, "seconds": stood, "woken": woken}] if copies else []
        data["failed"] = []
        parts += [lambda style: listed.totals_text(data), lambda style: "\n".join(places.closing(data, {}, style))]
        return Answer(data, lambda style: "\n".join(filter(None, (part(style) for part in parts))), partial)


class _Moment:
    """One look: `census`, of what stands still, or of a copy of what runs (`running`), made in one short stop of `pause` seconds
    (`copied`; `woken`: how many of its threads slept and were stopped), or of what runs; `at`: when; `target`, `partial`;
    `collecting`: for how many seconds at least a collection is under way, as `sightings` tell, None where they do not."""

    def __init__(self, session: Session, args: Args, sightings: Sightings) -> None:
        began = self.at = time.monotonic()
        self.pause, self.woken, self.copied = 0.0, 0, False
        self.target: Target = session.target(args.on)
        self.partial: list[str] = session.partial(self.target)
        self._sightings, self.running = sightings, None if self.target.is_stopped else self.target
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
        if self.running is not None:
            with log.passing_over(GdbextError):
                self._sightings.look(runtimes.open_runtime(self.running))

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
            self.at = time.monotonic()
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
    del moment.census, moment.target  # a heap's worth of memory
    moments.append(moment)
    return before


class _Grows:
    """What makes the process grow between two walks: watched as it is made."""

    def __init__(self, target: Target | None, args: Args) -> None:
        assert target is not None and target.pid is not None
        self._samples = not args.no_perf
        self.seconds, self._spent = max(0.1, min(args.watch, 3600.0)), time.process_time()
        self._watch = grow_watch.GrowWatch(ProcTarget(target.pid), target.label or str(target.pid), self.seconds, self._samples)
        grow_watch.run([self._watch], self.seconds)
        self._rows = self._watch.finish()
        self._spent = time.process_time() - self._spent
        target.invalidate()

    def who(self, rows: list[growth.Row], target: Target, seconds: float) -> dict[str, Any]:
        """The answer. `rows`: what grew in so many seconds, as `target` shows it."""
        began, found = time.process_time(), []
        for row in rows:
            with log.passing_over(GdbextError):
                word = 0 if row.address is None else writers.length_at(target, row.address, row.after)
                if word:
                    owner = row.path.shown if row.path is not None else ""
                    found.append(writers.Grown(word, owner, row.bytes))
        source = ("writes to containers", False, "no container grew", writers.CANNOT)
        if found:
            who = writers.Writers(self._watch, found, min(max(self.seconds / 3, 1.0), 5.0), self._samples)
            self._rows = who.rows(seconds) + self._rows
            source = (source[0], who.source == writers.WRITES, who.why_not, source[3])
        return grow.grow_data(self._watch, self._rows, self._spent + time.process_time() - began, [source])


def _process(target: Target) -> str:
    """Which process a look is of: a copy of it counts as the same one."""
    return f"{target.pid}"
