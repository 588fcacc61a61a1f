"""llm-watch: stays with engines, keeps the last minutes, writes them down when something stalls or dies."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from typing import Any, Callable, Iterator, Sequence

from .. import __version__, log
from ..access import stop_nothing
from ..access.snapshot import CoreFileTarget
from ..answers import hang, report
from ..answers.hang_text import ends_at, hang_lines
from ..answers.requests import request_data
from ..api import bundled_memory, choosing
from ..api.verdicts import of_bundles
from ..bundle import format as bundles
from ..engines.processes import ProcessRef
from ..engines.what import is_path
from ..errors import GdbextError, NotFoundError
from ..render import files, streams
from ..render.columns import wrapped
from ..render.fields import NUMBER, REAL, TEXT, Field, Fields, each
from ..render.text import PLAIN, Style, escape, seconds, size
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.session import Session
from ..stacks import prefetch, snapshots
from ..verdict import examine as examining
from ..verdict import exchange
from ..verdict.kinds import QUIET
from ..watch import loop as watching
from ..watch import model, outlets, units
from ..watch.box import Boxes
from ..watch.found import Verdict
from ..watch.moments import Moments
from ..watch.rank import has_ended, start_of
from ..watch.ring import LEAST
from .snapshot_reader import READER

SHOT = Fields(*each(str, "label file"), *each(int, "pid bytes"))
EVENT = Fields(Field("kind", str), Field("time", float), Field("data", dict))


class LlmWatch(Command):
    """Stay with engines, stopping nothing; when one stalls or dies, say why and write the last minutes into a box.

    Once a -poll it looks at states, CPU clocks and stacks of all threads, and as often as they are worth it at an engine's own
    counters, requests and KV cache. WHAT is asked anew: engines that start are taken in, those that end are let go. The last
    minutes are kept in memory, -memory bytes for each process.

    No progress while work is owed for -after seconds is a stall; longer where steps of this engine have taken longer before. Of
    a program without counters it is its main thread in one place. llm-hang then examines that engine, and those that it shares
    requests with (a pause of milliseconds). Unless that finds them idle, busy or starting, a box is written into -o DIR:
    TIME.gdbext, one file with history, verdict, a page to paste and small snapshots, and TIME.html, the report. So also for a
    process that has died. The same stall is written once. A box stands where a core may stand: llm-hang ./TIME.gdbext,
    pybt -on ./TIME.gdbext/TP1.

      (gdb) llm-watch all -o /var/tmp/boxes
      llm-watch: 4 processes are watched; ^C ends it
      16:14:02 stalled: 12 open requests of vllm have not moved for 60.31 s: it has made no step
      16:14:04 collective: TP1 (VLLM::Worker_TP1, 21470) has not come to a collective in which others wait, ...
      16:14:05 box: /var/tmp/boxes/20261121-161405.gdbext
      16:16:40 recovered after 218.2 s: collective

    ^C or SIGTERM ends it and writes what is in memory. -once ends it with the first box, and -for S after that time too, with
    captured false. -share DIR: the watches of a job's machines ask each other there for boxes of one moment, and one verdict on
    all of them is written. -counter EXPR takes a Python expression of the main thread, such as self.step_counter: while its value
    changes there is progress."""

    name = "llm-watch"
    copies = 1
    group = "hang"
    fields = Fields(
        Field("captured", bool),
        Field("why", str, "what made it look"),
        Field("text", str, "with `-print-…`, alone"),
        Field("file", TEXT, "the report"),
        Field("box", TEXT, "the last box"),
        Field("boxes", [Fields(*each(str, "why verdict file"))]),
        Field("snapshots", [SHOT]),
        Field("looks", [Fields(*each(str, "why verdict"))], "each time that something stood still"),
        Field("events", [EVENT], "the last ones; kinds in gdbext/watch/model.py"),
        Field("watched", int, "processes, at the end"),
        Field("rounds", int, "looks at them"),
        Field("cost", REAL, "CPU seconds"),
        Field("memory", NUMBER, "resident bytes of the watch"),
        Field("history", NUMBER, "bytes of the last minutes in memory"),
        Field("bytes", int, "of the report"),
        *hang.ANSWER,
    )
    operand = "[WHAT...]"
    completion = "what"
    takes_target = False
    standalone = True
    options = (
        Option("after", "float", "seconds without progress", 60.0, "S"),
        Option("o", "str", "the folder for boxes (default: here)", ".", "DIR"),
        Option("poll", "float", "seconds between two looks", 1.0, "S"),
        Option("once", help="end with the first box"),
        Option("for", "float", "end after this many seconds, or with the first box", None, "S"),
        Option("counter", "str", "a Python expression that changes with progress", None, "EXPR"),
        Option("keep", "int", "boxes that stay in DIR, the newest", 10, "N", for_agents=False),
        Option("memory", "int", "bytes of history for each process", watching.BYTES, "BYTES", for_agents=False),
        Option("events", "str", "append events as JSON lines to this file; - is standard output", None, "F", for_agents=False),
        Option("exec", "str", "run this at a verdict, the event on its standard input; no shell", None, "CMD", for_agents=False),
        Option("metrics", "str", "serve OpenMetrics on this port of this machine, or HOST:PORT", None, "PORT", for_agents=False),
        Option("textfile", "str", "write the same to a file for a node exporter", None, "F.prom", for_agents=False),
        *(
            Option(f"print-{what}", help=f"print {text}, and watch nothing", for_agents=False)
            for what, text in units.WHATS.items()
        ),
        Option(
            "share",
            "str",
            "a folder in which watches of one job's machines ask each other for boxes",
            None,
            "DIR",
            for_agents=False,
        ),
        Option("max-bytes", "int", "bytes of a box; the biggest snapshots are left out first", 20_000_000, "N"),
    )

    def run(self, session: Session, args: Args) -> Answer:
        shown = next((what for what in units.WHATS if getattr(args, f"print_{what}")), None)
        if shown is not None:
            return Answer(self.fields.of(text=units.text(shown)), units.text(shown).rstrip())
        if args.after <= 0 or not 0.01 <= args.poll <= 3600 or args.max_bytes < 0:
            raise UsageError("llm-watch: -after is above 0, -poll 0.01 to 3600 seconds, -max-bytes 0 or more")
        if args.keep < 1 or args.memory < LEAST:
            raise UsageError(f"llm-watch: -keep is 1 or more, -memory {LEAST} bytes or more")
        limit, words = getattr(args, "for"), args.operand_text
        files.check_parent(args.o, "-o")
        found, resolve = _first(session, words, limit is not None or args.once)
        settings = watching.Settings(args.after, args.poll, args.counter, args.once or limit is not None, args.memory)
        boxes = Boxes(args.o, args.keep, args.max_bytes)
        judge = _Judge(session, args.after)
        with contextlib.closing(outlets.Outlets(args, QUIET)) as to:
            moments = Moments(args.share, boxes, _of_machines, args.keep) if args.share else None
            watch = self._watch(found, resolve, judge, boxes, to, settings, limit, session.in_gdb, moments)
        return self._answer(watch, boxes, judge, limit)

    @staticmethod
    def _watch(
        found: Sequence[ProcessRef], resolve: Any, judge: _Judge, boxes: Boxes, to: outlets.Outlets, settings: watching.Settings,
        limit: float | None, in_gdb: bool, moments: Moments | None,
    ) -> watching.Watch:  # fmt: skip
        """The watch, once it is over."""
        hands = watching.Hands(judge.full, judge.glance, boxes.keep_one, [_say, *to.on_event], to.on_look)
        watch = watching.Watch(found, resolve, hands, settings)
        if moments is not None:
            moments.watch, hands.keep = watch, moments.keep
            hands.on_look.append(moments.look)
        count = f"{len(found)} processes are" if len(found) != 1 else "1 process is"
        with log.passing_over(OSError, ValueError):
            print(f"llm-watch: {count} watched; ^C ends it", file=sys.stderr, flush=True)
        why = "the time is over" if limit is not None else "nothing is left"
        try:
            with _told_to_end(in_gdb) as deaf:
                try:
                    for _ in watch.rounds(limit):
                        pass
                except KeyboardInterrupt as e:
                    deaf()
                    why = str(e) or "SIGINT"
                    if watch.look is not None and (watch.followed.ranks or watch.followed.dead):
                        _keep_end(boxes, watch, f"the watch was ended by {why}")
        finally:
            watch.end(why)
            if moments is not None:
                moments.close()
        return watch

    def _answer(self, watch: watching.Watch, boxes: Boxes, judge: _Judge, limit: float | None) -> Answer:
        look, last = watch.look, boxes.last
        data = {
            "captured": bool(last),
            "file": None,
            "snapshots": [],
            "looks": list(watch.looked),
            "box": boxes.newest or None,
            "boxes": watch.boxes,
            "events": [{"kind": e.kind, "time": e.time, "data": e.data} for e in watch.events],
            "watched": len(watch.followed.ranks),
            "rounds": look.number if look is not None else 0,
            "cost": look.cost if look is not None else None,
            "memory": look.memory if look is not None else None,
            "history": look.box if look is not None else None,
        }
        if not last:
            given = f" in {seconds(limit)}" if limit is not None else ""
            text = f"nothing to capture{given}" + (f"\nlast minutes: {boxes.newest}" if boxes.newest else "")
            return Answer(self.fields.of(**data), text)
        kept = {**judge.last, **data, **{key: last[key] for key in ("why", "file", "snapshots", "bytes")}}
        return Answer(kept, lambda style: _text(kept, style), last["partial"])


def _first(session: Session, words: str, must: bool) -> tuple[Sequence[ProcessRef], Any]:
    """-> (what WHAT means now, what says it later: None where it can only become less)."""
    names = words.replace(",", " ").split()
    lasting = bool(names) and all(word.isdecimal() for word in names) or not names and session.selected_pid() is not None
    try:
        found = choosing.resolve_processes(session, words)
    except NotFoundError as e:
        if must or lasting or any(map(is_path, names)):
            raise
        log.passed_over(e)
        found = []
    if any(one.pid is None for one in found):
        raise GdbextError("llm-watch watches processes that run; a core does not")
    if any(session.targets.attached(one) is not None for one in found):
        raise GdbextError("a process that this gdb has attached does not run: llm-detach it first")

    first, last = {one: start_of(one.pid or 0) for one in found}, {}

    def meant(word: str) -> list[ProcessRef]:
        for _ in range(2):  # a process that ends while it is looked for hides the others
            session.ranks = []
            with log.passing_over(NotFoundError):
                last[word] = {one: start_of(one.pid or 0) for one in session.resolve(word)}
                return list(last[word])
        before = last.get(word, first).items()
        return [one for one, at in before if at is not None and one.pid and not has_ended(one.pid, at)]

    def again() -> list[ProcessRef]:
        now = dict.fromkeys(one for word in names or ["all"] for one in meant(word))
        return [one for one in now if one.pid is not None and session.targets.attached(one) is None]

    return found, None if lasting else again


class _Judge:
    """llm-hang, for the watch. `last`: what it said last that was not harmless."""

    def __init__(self, session: Session, after: float) -> None:
        self._targets, self._wait = session.targets, min(1.0, after)
        self.last: dict[str, Any] = {}

    def full(self, found: Sequence[ProcessRef], lasted: float) -> Verdict:
        """The whole examination: milliseconds of a pause for each process, whose copies are what a box has of its memory."""
        seen = examining.examine(found, self._targets, self._wait, (prefetch.KV,), kept=READER, lasted=lasted)
        self._targets.rest()
        data = hang.hang_data(seen)
        quiet = data["verdict"] in QUIET
        named = [(r.request_id, r.external_id, *r.behind, *(r.partner or ())[1:]) for r in seen.requests or ()]
        ids = [*dict.fromkeys(one for each_one in named for one in each_one if one)]
        more = ends_at(data) if data["verdict"] == "unknown" else ""
        said = Verdict(data, "", hang_lines(data, PLAIN, False), quiet, more=more, ids=ids, parts=_parts(seen, data, ids))
        said.fill = lambda said: self._fill(said, seen)
        if not quiet:
            self.last = data
        return said

    @staticmethod
    def _fill(said: Verdict, seen: examining.Examination) -> list[str]:
        """What a box has of an examination. -> why a part of it is missing: none costs the others, or the box"""
        missing: list[str] = []

        def made(what: str, make: Callable[[], Any]) -> Any:
            try:
                return make()
            except Exception as e:
                log.passed_over(e)
                missing.append(f"no {what}: {model.reason(e)}")
                return None

        def facts() -> bytes:
            found = exchange.facts_data(seen.seen, seen.sides, os.uname().nodename, __version__)
            return json.dumps({**found, "pauses": said.data["pauses"]}).encode()

        def requests() -> bytes:
            found = {"requests": [request_data(None, one) for one in seen.requests or ()]}
            return Answer(found, "").json("llm-requests").encode()

        views = [s.view for s in seen.seen if s.view is not None]
        read = [(s.pid, s.name) for s in seen.seen if s.pid and s.view is not None]
        said.page = made("report", lambda: report.page(said.data, seen.seen, views)) or ""
        members = {
            bundles.VERDICT: made("verdict", lambda: Answer(said.data, "").json("llm-hang").encode()),
            bundles.FACTS: made("facts", facts),
            bundles.REQUESTS: made("requests", requests),
            bundles.MEMORY: made("sizes of memory", lambda: bundled_memory.written(read)),
        }
        said.members = {name: content for name, content in members.items() if content is not None}
        for shot in (s.snapshot for s in seen.seen if s.snapshot is not None):
            name = "memory/" + snapshots.file_name(shot).lstrip(".")
            if isinstance(shot.target, CoreFileTarget):
                said.memory[name] = shot.target.file.data
            said.processes.append(_entry(shot, name if name in said.memory else None))
        if missing:
            said.text = [*said.text, *missing]
        return missing

    def glance(self, found: Sequence[ProcessRef]) -> str:
        """The verdict of a look that stops nothing, where that is harmless; else ""."""
        with stop_nothing.during():
            seen = examining.examine(found, self._targets, self._wait, once=True)
        return seen.verdicts[0].kind if seen.verdicts[0].kind in QUIET else ""


def _parts(seen: examining.Examination, data: dict[str, Any], ids: Sequence[str]) -> list[tuple[frozenset[int], Verdict]]:
    """Each group of processes with the verdict on it."""
    found = []
    for verdict, said in zip(seen.verdicts, data["verdicts"]):
        pids = {s.pid for s in seen.seen if s.pid and s.name in verdict.processes}
        more = ends_at(data, pids) if said["verdict"] == "unknown" else ""
        found.append((frozenset(pids), Verdict(said, quiet=said["verdict"] in QUIET, more=more, ids=ids)))
    return found


def _of_machines(paths: Sequence[str]) -> Verdict:
    """The one verdict on boxes of several machines; `GdbextError` where there is none."""
    found = of_bundles([ProcessRef(core=path) for path in paths])
    if found is None:
        raise GdbextError("these boxes hold nothing that could be judged together")
    said = [each["request_id"] for each in found.data["requests"] if each.get("request_id")]
    return Verdict(found.data, text=found.text().split("\n"), quiet=found.kind in QUIET, ids=said)


def _entry(shot: snapshots.ProcessSnapshot, name: str | None) -> dict[str, Any]:
    """What a box's manifest says of a copy. `name`: of its memory in the box, None where there is none."""
    return {
        "pid": shot.pid,
        "instance": shot.rank.family if shot.rank is not None else None,
        "program": os.path.basename(shot.rank.process.exe) if shot.rank is not None else "",
        "pause": sum(shot.pauses),
        "time": shot.moment,
        "file": name,
        "bytes": shot.bytes if name else None,
        "left_out_bytes": shot.left_out if name else None,
        "partial": [*shot.partial, *([f"not read: {shot.reason}"] if shot.reason else [])],
    }


@contextlib.contextmanager
def _told_to_end(in_gdb: bool) -> Iterator[Callable[[], None]]:
    """SIGTERM and SIGHUP end what is in the block as ^C does, once: what it then writes they do not cut off. The block is given
    what makes it deaf to them. In gdb they stay gdb's."""

    def deaf() -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)

    def end(number: int, frame: Any) -> None:
        deaf()
        raise KeyboardInterrupt(signal.Signals(number).name)

    numbers = () if in_gdb else (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield deaf
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(event: model.Event) -> None:
    """Prints an event for people."""
    d = event.data
    text = {
        model.CAME: lambda: f"{d['label']} (pid {d['pid']}) is watched",
        model.LEFT: lambda: f"{d['label']} (pid {d['pid']}) {d['why']}",
        model.DIED: lambda: f"{d['label']} (pid {d['pid']}) {d['why']}",
        model.STALLED: lambda: f"stalled: {d['why']}",
        model.VERDICT: lambda: f"{d['verdict']}: {d['sentence']}",
        model.RECOVERED: lambda: f"recovered after {seconds(d['seconds'])}" + (f": {d['verdict']}" if d["verdict"] else ""),
        model.ASKED: lambda: f"{d['host']} asks for a box: {d['why']}",
        model.BOX: lambda: f"box: {d['file']}",
        model.NO_BOX: lambda: f"no box: {d['why']}",
        model.LOST: lambda: f"{d['label']} {d['why']}".strip(),
    }
    if event.kind in text and not d.get("at_first"):
        stamp = time.strftime("%H:%M:%S", time.localtime(event.time))
        line = wrapped(escape(f"{stamp} {text[event.kind]()}"), streams.columns(sys.stderr))
        with log.passing_over(OSError, ValueError):  # a full disk or a pipe that nobody reads is no end of the watch
            print(line, file=sys.stderr, flush=True)


def _keep_end(boxes: Boxes, watch: watching.Watch, why: str) -> None:
    """The box of a watch that ends."""
    try:
        made = boxes.keep_end(why, watch)
    except Exception as e:  # a full disk; whatever it is, the watch ends as it should
        log.passed_over(e)
        watch.tell(model.NO_BOX, why=model.reason(e))
    else:
        watch.tell(model.BOX, file=made["box"], bytes=made["box_bytes"], why=why, snapshots=0)


def _text(data: dict[str, Any], style: Style) -> str:
    return "\n".join(
        [
            escape(data["why"]),
            *(hang_lines(data, style, False) if "verdict" in data else ()),
            f"captured: {style.file(data['file'])}, {len(data['snapshots'])} snapshots",
            f"box: {style.file(data['box'])}, {size(data['history'] or 0)} of history in memory",
        ]
    )
