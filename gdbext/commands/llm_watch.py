"""llm-watch: capture before the engine's own watchdog ends it."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Any

from ..answers.hang_text import hang_lines
from ..answers.report import make_report
from ..api import choosing
from ..engines import group as groups
from ..engines import processes
from ..errors import GdbextError
from ..observe.loop import rounds
from ..render import files
from ..render.text import Style, escape, seconds
from ..requests import watch as requests
from ..session.command import MAX_BYTES, Answer, Args, Command, Option, UsageError
from ..session.session import Session
from ..stacks import prefetch, snapshots, standstill
from .snapshot_reader import READER

FINE = ("idle", "busy")


class LlmWatch(Command):
    """Watch engine processes without stopping them; when one makes no progress, capture snapshots of all and a report.

    Reads states, CPU clocks and the main threads' Python stacks through /proc every -poll seconds, and of engines their open
    requests, four times in -after seconds; nothing is stopped. When a process has ended, is stopped, or its main thread has stood
    in the same place for -after seconds, or an open request has not moved for so long, llm-hang examines all of them (a pause of
    milliseconds). A verdict of idle or busy is no hang: the watch goes on. Any other is captured into -o DIR:
    report.html and a snapshot of each process, and the watch ends.

      (gdb) llm-watch all -after 60 -o /var/tmp/hangs
      llm-watch: 4 processes are watched; ^C ends it
      TP0 has been in the same place for 60.12 s
      collective: TP1 (VLLM::Worker_TP1, 21470) has not come to a collective in which others wait, ...
      …
      captured: /var/tmp/hangs/20261121-161502/report.html, 4 snapshots

    -counter EXPR takes a Python expression of the main thread, such as self.step_counter: while its value changes there is
    progress. -for S ends the watch after S seconds with captured false. ^C ends it too."""

    name = "llm-watch"
    copies = 1
    group = "hang"
    operand = "[WHAT...]"
    completion = "what"
    takes_target = False
    standalone = True
    options = (
        Option("after", "float", "seconds without progress", 60.0, "S"),
        Option("o", "str", "the folder for what is captured (default: here)", ".", "DIR"),
        Option("poll", "float", "seconds between two samples", 1.0, "S"),
        Option("for", "float", "end the watch after this many seconds", None, "S"),
        Option("counter", "str", "a Python expression that changes with progress", None, "EXPR"),
        MAX_BYTES,
    )

    def run(self, session: Session, args: Args) -> Answer:
        if args.after <= 0 or not 0.01 <= args.poll <= 3600 or (args.max_bytes or 0) < 0:
            raise UsageError("llm-watch: -after is above 0, -poll 0.01 to 3600 seconds, -max-bytes 0 or more")
        found = choosing.resolve_processes(session, args.operand_text)
        if any(one.pid is None for one in found):
            raise GdbextError("llm-watch watches processes that run; a core does not")
        if any(session.targets.attached(one) is not None for one in found):
            raise GdbextError("a process that this gdb has attached does not run: llm-detach it first")
        files.check_parent(args.o, "-o")
        limit = getattr(args, "for")
        mains, quiet, looked = [standstill.MainThreadWatch(one, args.counter) for one in found], 1.0, []
        watched = [*mains, *_engines(found, session.targets)]
        count = f"{len(found)} processes are" if len(found) != 1 else "1 process is"
        print(f"llm-watch: {count} watched; ^C ends it", file=sys.stderr, flush=True)
        for _ in rounds(args.poll, seconds=limit, rest=lambda took: float(args.poll)):
            why = next((w for w in (one.look(args.after * quiet) for one in watched) if w), None)
            if why:
                data = self._capture(found, session.targets, args, why)
                looked.append({"why": why, "verdict": data["verdict"]})
                if data["captured"]:
                    return Answer({**data, "looks": looked}, lambda style: _text(data, style), data.pop("partial"))
                quiet = min(quiet * 2, 16.0)  # an engine without work is not stopped again and again
            elif any(one.progressed for one in mains):
                quiet = 1.0
        return Answer(
            {"captured": False, "file": None, "snapshots": [], "looks": looked},
            lambda style: f"nothing to capture in {seconds(limit)}",
        )

    def _capture(self, found: Any, targets: Any, args: Args, why: Any) -> dict[str, Any]:
        """Looks, and writes what there is to write where the verdict is bad. -> its data"""
        page, data, _ = make_report(found, targets, min(1.0, args.after))
        if data["verdict"] in FINE:
            return {**data, "captured": False}
        stamp = time.strftime("%Y%m%d-%H%M%S")
        place = os.path.join(args.o, f"{stamp}-{os.getpid()}", "report.html")
        with contextlib.closing(files.Draft(place, "-o", folders=True)) as draft:
            draft.write(page)
            folder = files.new_folder(args.o, stamp, "-o")
            file = draft.keep(os.path.join(folder, "report.html"))
        shots = snapshots.snapshots_of(found)
        snapshots.collect(
            shots,
            [os.path.join(folder, snapshots.file_name(s)) for s in shots],
            [prefetch.KV],
            snapshots.limit(bound=args.max_bytes),
            reader=READER if args.max_bytes is None else snapshots.READER,
        )
        pauses = {p["pid"]: p["seconds"] for p in data["pauses"]}
        for p in snapshots.pauses(shots):
            pauses[p["pid"]] = pauses.get(p["pid"], 0) + p["seconds"]
        captured = {
            **data,
            "captured": True,
            "why": why,
            "file": file,
            "bytes": os.path.getsize(file),
            "snapshots": [{"label": s.label, "file": s.file, "pid": s.pid, "bytes": s.bytes} for s in shots if s.target],
            "pauses": [{"pid": pid, "seconds": s} for pid, s in pauses.items()],
            "failed": snapshots.failed(shots),
            "partial": [f"{s.name}: no snapshot: {s.reason}" for s in shots if not s.target],
        }
        return captured


def _engines(found: Any, targets: Any) -> list[Any]:
    """The watches over the open requests of the engines that are among the processes."""
    engines = groups.engines_of(processes.ranks_of(found), targets.of)
    return [requests.RequestsWatch(engine) for engine in engines if engine.spec is not None]


def _text(data: dict[str, Any], style: Style) -> str:
    return "\n".join(
        [
            escape(data["why"]),
            *hang_lines(data, style, False),
            f"captured: {style.file(data['file'])}, {len(data['snapshots'])} snapshots",
        ]
    )
