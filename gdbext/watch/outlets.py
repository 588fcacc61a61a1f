"""Where what the watch sees goes to, by its options: -events, -exec, -metrics, -textfile."""

from __future__ import annotations

import sys
from typing import Any, Collection

from .. import log
from ..render.text import one_line
from .events import Lines, Program
from .metrics import Metrics, Server, Textfile
from .model import Look, OnEvent, OnLook

LAST = 10.0  # seconds that the programs of the last verdicts get as the watch ends


class Outlets:
    """`on_event`, `on_look`: what the watch calls. `quiet`: verdicts that accuse nobody.
    `GdbextError` where one cannot be had."""

    def __init__(self, args: Any, quiet: Collection[str]) -> None:
        self.on_event: list[OnEvent] = []
        self.on_look: list[OnLook] = []
        self.program, self.server = Program(args.exec, _say) if args.exec else None, None
        self.lines = Lines(args.events) if args.events else None
        self._files: list[Lines | Textfile] = []
        self._told: dict[Any, str] = {}
        if self.lines is not None:
            self._files.append(self.lines)
            self.on_event.append(self.lines.hear)
            self.on_look.append(self.lines.flush)
        if self.program is not None:
            self.on_event.append(self.program.hear)
        if args.metrics or args.textfile:
            metrics = Metrics(quiet)
            self.on_event.append(metrics.hear)
            self.on_look.append(metrics.look)
            if args.textfile:
                textfile = Textfile(metrics, args.textfile)
                self._files.append(textfile)
                self.on_look.append(textfile.look)
            if args.metrics:
                self.server = Server(metrics, args.metrics)
        self.on_look.append(self._tell)

    def _tell(self, look: Look | None = None) -> None:
        """Says once why a file is not written."""
        for one in self._files:
            if one.failed and one.failed != self._told.get(one):
                _say(one.failed)
            self._told[one] = one.failed

    def close(self) -> None:
        """Lets the last program end, and closes the port."""
        if self.lines is not None:
            self.lines.flush()
        self._tell()
        if self.program is not None:
            self.program.wait(LAST)
        if self.server is not None:
            self.server.close()


def _say(text: str) -> None:
    with log.passing_over(OSError, ValueError):  # a closed terminal ends neither the thread of the programs nor the watch
        print(one_line(f"llm-watch: {text}"), file=sys.stderr, flush=True)
