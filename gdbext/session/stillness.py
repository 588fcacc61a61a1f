"""-still: a command reads not a running process but a copy of it, of one moment, made in a pause of milliseconds.

The command itself determines which pages the copy has to hold. The collector, a process of its own, runs the command on the
running process before the stop. It follows the same pointers once more during the stop, and runs the command on the copy
(access/collector.py).
"""

from __future__ import annotations

import json
from typing import Any

from ..access import elf
from ..access.base import Target
from ..access.collect import Running
from ..access.room import LOOK, nameless_file, need
from ..access.snapshot import CoreFileTarget
from ..engines.processes import ProcessRef
from ..errors import GdbextError
from ..render.text import ASLEEP, Style, seconds
from .command import SNAPSHOT_BYTES, Answer, Args, Command

READER = f"{__package__}.rehearsal"  # the collector's reader
SECONDS = 600  # that a collector may take on a machine at full load
TRIES = 3  # copies: the first has the pages that the command reads, the others those of a snapshot


class Copies:
    """The copies that one command reads in place of running processes. Each is made when the command first opens the process.

    `pauses`: `[{pid, seconds, woken}]`. `partial`: what is missing in the copies. `made`: how often they were made again, with
    the memory that a snapshot holds; that is for a process that changes faster than its pages can be learnt."""

    def __init__(self, command: Command, args: Args) -> None:
        values = {k: v for k, v in args.__dict__.items() if k != "operand_text"}
        self._operand = args.operand_text
        self._words = [type(command).__module__, type(command).__name__, json.dumps(command.rehearsed(values)), self._operand]
        self._targets: dict[int, Target] = {}
        self.pauses: list[dict[str, Any]] = []
        self.partial: list[str] = []
        self.made = 0

    def anew(self) -> None:
        """Drops the copies: later ones may have the parts that were missing."""
        self._targets.clear()
        self.partial.clear()
        self.made += 1

    def holds(self, target: Target) -> bool:
        """Whether it is one of the copies."""
        return any(one is target for one in self._targets.values())

    def of(self, one: ProcessRef) -> Target:
        """The copy of a process."""
        pid = one.pid or 0
        if pid not in self._targets:
            if "$py" in self._operand:
                raise GdbextError("$py is of the process that runs, not of its copy: with -still give an expression of its names")
            need(LOOK, f"a copy of process {pid}")
            with nameless_file() as file:
                heap = SNAPSHOT_BYTES if self.made else 0
                words = [*self._words, "once" if heap else ""]
                got = Running(pid, file.fileno(), READER, one.label, words, heap=heap).finish(SECONDS)
                target = CoreFileTarget(got.file, one.label)
                elf.drop_cached(got.file)
            self._targets[pid] = target
            self.pauses.append({"pid": pid, "seconds": got.pause, "woken": got.woken})
            self.partial += [f"{one.label or pid}: {reason}" for reason in got.partial]
        return self._targets[pid]

    def told(self, answer: Answer) -> Answer:
        """An answer with `pauses`, and the parts missing in the copies."""
        if not self.pauses:
            return answer
        text, stood = answer.in_style, ", ".join(f"{p['pid']} {seconds(p['seconds'])}" for p in self.pauses[:16] if p["seconds"])

        def people(style: Style) -> str:
            return "\n".join(filter(None, (text(style), style.dim(f"paused: {stood}; all resumed" if stood else ASLEEP))))

        data = {**answer.data, "pauses": [*answer.data.get("pauses", ()), *self.pauses]}
        return Answer(data, people, [*answer.partial, *self.partial])
