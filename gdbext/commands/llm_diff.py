"""llm-diff: what changed between two moments."""

from __future__ import annotations

import os
from typing import Any, Sequence

from ..answers import difference
from ..answers.places import closing
from ..api import choosing
from ..api.opening import Opened
from ..api.processes import Process
from ..bundle import paths
from ..errors import GdbextError
from ..render.text import Style
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.session import Session


class LlmDiff(Command):
    """Compare two moments of a process or an engine: what moved, what stands, what grew, which requests came and went.

    BEFORE and AFTER are snapshots, cores, bundles, boxes, or processes that run: of such a process a copy is made in a pause of
    milliseconds.

      (gdb) llm-diff monday.core tuesday.core
      monday.core -> tuesday.core: 23h10m apart
      came: thread 4417 (worker-9)  run (pool.py:31)
      stands still: thread 4242 (MainThread)  in join (threading.py:1119)
      memory, mapped:
      kind       before      after      change
      anonymous  1.2 GiB   3.4 GiB    +2.2 GiB
      (gdb) llm-diff engine.gdbext all

    Processes belong together that are the same one (pid and start), or have one label; else, of one each, those two. Threads of
    the same process are compared by tid, of another by name. "stands still": the same stack at both moments, and it did not run
    in between; "same place": the same stack, but it ran, or that is not known. Of a thread that moved the outermost frames are
    shown that differ. -heap also compares the objects of Python's heap by type: of files that have it (llm-snapshot -heap)."""

    name = "llm-diff"
    copies = 2
    group = "hang"
    operand = "BEFORE AFTER"
    completion = "what"
    takes_target = False
    standalone = True
    fields = difference.ANSWER
    options = (Option("heap", help="also the objects of Python's heap, by type"),)

    def run(self, session: Session, args: Args) -> Answer:
        words = args.operand_text.split()
        if len(words) != 2:
            raise UsageError("llm-diff: takes two moments, BEFORE and AFTER: llm-diff one.core two.core, llm-diff x.gdbext TP0")
        sides = [_Side(session, word, args.heap) for word in words]
        before, after = sides
        data: dict[str, Any] = {
            **{key: side.data for key, side in zip(("before", "after"), sides)},
            "seconds": round(after.data["time"] - before.data["time"], 3),
            **difference.difference_data(before.moments, after.moments, (before.requests, after.requests)),
            "not_compared": [*before.lacks, *after.lacks],
            "pauses": [*before.pauses, *after.pauses],
            "failed": [*before.failed, *after.failed],
        }
        partial = [*before.partial, *after.partial, *(f"{f['label']}: {f['reason']}" for f in data["failed"])]

        def text(style: Style) -> str:
            return "\n".join([*difference.difference_lines(data, style), *closing(data, {}, style)])

        return Answer(data, text, partial)


class _Side:
    """One of the two: its `moments` and `requests`, as `difference` compares them."""

    def __init__(self, session: Session, word: str, heap: bool) -> None:
        file = paths.split(os.path.expanduser(word))[0]
        named = f"./{word}" if "/" not in word and os.path.isfile(file) and not word.isdecimal() else word
        opened = Opened(session, False, False, difference.HEAP if heap else None)
        processes = opened.processes(choosing.resolve_processes(session, named))
        self.lacks: list[str] = []
        self.moments = [difference.moment(one.view, heap, self.lacks) for one in processes]
        self.requests = self._requests(opened, processes)
        self.pauses = [pause for one in processes for pause in one.pauses]
        self.partial = [f"{one.name}: {reason}" for one in processes for reason in one.partial]
        self.failed = opened.failed
        shown = [{"label": moment.label, "pid": moment.pid} for moment in self.moments]
        time = max(difference.time_of(one.target) for one in processes)
        self.data = difference.SIDE.of(what=word, time=time, processes=shown)

    def _requests(self, opened: Opened, processes: Sequence[Process]) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for one in {opened.family_of(one): one for one in processes}.values():
            try:
                engine = one.engine
                found.update(difference.numbers(engine.requests) if engine is not None else {})
            except GdbextError as e:
                self.lacks.append(f"requests of {one.name}: {e}")
        return found
