"""llm-top: what each rank does now."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from ..answers import top as answers
from ..api import choosing
from ..engines import group as groups
from ..engines import processes, targets
from ..errors import GdbextError
from ..render import text as styles
from ..render.columns import cut
from ..requests import meter
from ..requests.meter import EngineMeter
from ..session import screen as screens
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.screen import Screen
from ..session.session import Session
from ..stacks import prefetch, snapshots
from ..timeline import live
from ..timeline.live import Live
from .snapshot_reader import READER

KEYS = "q quit  s sort  up/down choose  enter stack  w snapshot"
SORTS = ("order", "cpu", "rss", "gil")


class LlmTop(Command):
    """Show live what each rank does and what each engine gets done, from memory, without stopping anything.

      (gdb) llm-top -once
      vllm  4 running, 12 waiting  812 tokens/s  203 steps/s  KV 61 %  oldest: req-7, 0.2 s
      label       pid    state    in                               part   GIL  waits   CPU      RSS
      EngineCore  21913  running  Scheduler.schedule (scheduler.py)  38 %  71 %    2 %  0.98  1.2 GiB
      TP0         21950  poll     acquire_read (shm_broadcast.py)    91 %   4 %    0 %  0.31  2.1 GiB

    Every process is looked at 20 times a second; a frame tells of the last -interval seconds. state, in: what the main thread did
    for most of the time, and the innermost Python function where; part: of the time. GIL: the part in which the main thread held
    it; waits: the longest that some thread waited for it. CPU: processors used. An engine's requests, tokens, blocks and its
    oldest request without progress are read from its scheduler, not from /metrics; steps are counted by the engine where it
    counts, else by the request that gets on fastest.

    Keys: q ends, s sorts by CPU, memory, GIL, the arrows choose a rank, Enter opens its stack, w writes a snapshot of it into the
    current folder (a pause of milliseconds). On a terminal that cannot move its cursor (TERM=dumb) frames stand below each other.
    -once prints one frame; -json prints a line for each frame, -frames N of them."""

    name = "llm-top"
    group = "time"
    operand = "[WHAT...]"
    completion = "what"
    takes_target = False
    standalone = True
    options = (
        Option("once", help="print one frame"),
        Option("interval", "float", "seconds that a frame covers", 1.0, "S"),
        Option("frames", "int", "end after so many frames", None, "N"),
        Option("sort", list(SORTS), "the order of the ranks", "order"),
    )

    fields = answers.ANSWER
    node_words = ("-once",)  # of several machines one frame (session/nodes.py)

    def merge(self, args: Args, found: list[tuple[str, Any]], failed: list[dict[str, Any]]) -> Answer:
        """One frame of several machines, `(node, answer)` each."""
        data, partial = answers.merged(found, failed, args.sort)
        return Answer(data, lambda style: "\n".join(answers.lines(data, style)), partial)

    def run(self, session: Session, args: Args) -> Answer:
        if not 0.05 <= args.interval <= 3600 or args.frames is not None and args.frames < 1:
            raise UsageError("llm-top: -interval is 0.05 to 3600 seconds, -frames at least 1")
        found = choosing.resolve_processes(session, args.operand_text)
        failed: list[dict[str, Any]] = []
        watched = choosing.moving(session, found, failed)
        ranks = live.Live([(target, one.name) for target, one in watched])
        opened = targets.Targets()  # of no debugger: what runs is read through /proc
        meters = [
            meter.EngineMeter(e)
            for e in groups.engines_of(processes.ranks_of(one for _, one in watched), opened.of)
            if e.spec is not None
        ]
        view = _View(ranks, meters, failed, args)
        try:
            if args.once or args.json:
                return view.stream(1 if args.once else args.frames)
            with screens.Screen(own_signals=not session.in_gdb) as screen:
                view.interact(screen, session.style() if screen.moves else styles.Style(False))
        except KeyboardInterrupt:
            pass
        finally:
            ranks.close()
        return Answer(view.data, "") if view.data else Answer({"ranks": [], "engines": [], "requests": []}, "")


class _View:
    """The frames. `refused`: what is not watched, and why; `data`: the last one."""

    def __init__(self, ranks: Live, meters: list[EngineMeter], refused: list[dict[str, Any]], args: Args) -> None:
        self.ranks, self.meters, self.refused, self.args = ranks, meters, refused, args
        self.sort, self.opened, self.said = args.sort, False, ""
        self.chosen: int | None = None  # the pid of a rank: rows change their places
        self.data: dict[str, Any] = {}
        self.partial: list[str] = []
        self.rows: dict[int, Any] = {}  # by pid
        self.readings: list[Any] = []

    def take(self, meanwhile: Any) -> None:
        """One more frame."""
        if not self.readings:
            self.readings = [m.read() for m in self.meters]  # rates need two
        rows = self.ranks.frame(self.args.interval, meanwhile)
        self.readings = [m.read() for m in self.meters]
        self.rows = {row.pid: row for row in rows}
        self.data, self.partial = answers.frame_data(rows, self.readings, self.ranks.failed + self.refused)
        answers.sort(self.data, self.sort)

    def answer(self) -> Answer:
        return Answer(self.data, lambda style: "\n".join(answers.frame_lines(self.data, style)), self.partial)

    def stream(self, frames: int | None) -> Answer:
        """Prints a line for each frame; the last one is the answer."""
        number = 0
        while True:
            try:
                self.take(_pause)
            except KeyboardInterrupt:
                return self.answer()
            number += 1
            if number == frames:
                return self.answer()
            try:
                print(self.answer().json(LlmTop.name), flush=True)
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads on
                return self.answer()

    def interact(self, screen: Screen, style: Any) -> None:
        """Shows frames until q is pressed."""
        number = 0
        while self.args.frames is None or number < self.args.frames:
            over = []

            def meanwhile(left: float) -> bool:
                key = screen.key(left)
                if key:
                    over.append(self.press(key))
                    self.draw(screen, style)
                return True in over

            self.take(meanwhile)
            if True in over:
                return
            number += 1
            self.draw(screen, style)

    def draw(self, screen: Screen, style: Any) -> None:
        if not self.rows:
            return
        columns, lines = screen.size()
        style = styles.Style(style.enabled, columns, style.full_paths)
        shown = answers.frame_lines(self.data, style, self.place())
        shown += [style.dim(styles.escape(f"{f['label']}: {f['reason']}")) for f in self.data["failed"]]
        if self.opened:
            shown += ["", *answers.stack_lines(self.rows[self.pid(self.place())], lines - len(shown) - 4, style)]
        shown += ["", style.dim(self.said or f"{KEYS}  (sorted by {self.sort})")]
        screen.show([cut(line, columns) for line in shown], style.enabled)

    def place(self) -> int:
        """The number of the chosen rank's row; 0 where none is chosen, or it is no longer shown."""
        return next((i for i, row in enumerate(self.data["ranks"]) if row["pid"] == self.chosen), 0)

    def pid(self, place: int) -> int:
        """The pid in a row, counted from both ends."""
        return int(self.data["ranks"][place % len(self.rows)]["pid"])

    def press(self, key: str) -> bool:
        """-> whether that ends the view."""
        self.said = ""
        if key in ("q", "Q"):
            return True
        if key == "s":
            self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
            answers.sort(self.data, self.sort)
        elif key in ("up", "k", "down", "j") and self.rows:
            self.chosen = self.pid(self.place() + (1 if key in ("down", "j") else -1))
        elif key in ("enter", "o") and self.rows:
            self.opened, self.chosen = not self.opened, self.pid(self.place())
        elif key == "w" and self.rows:
            self.chosen = self.pid(self.place())
            self.said = self.snapshot(self.chosen)
        return False

    @staticmethod
    def snapshot(pid: int) -> str:
        """Writes a snapshot of one process into the current folder; -> what came of it."""
        shots = snapshots.snapshots_of([processes.ProcessRef(pid)])
        name = f"{pid}-{time.strftime('%H%M%S')}.core"
        try:
            snapshots.collect(shots, [name], [prefetch.KV], snapshots.limit(), reader=READER)
        except (GdbextError, OSError) as e:
            return f"no snapshot of {pid}: {e}"
        return f"snapshot: {name}" if shots[0].target is not None else f"no snapshot of {pid}: {shots[0].reason}"


def _pause(seconds: float) -> bool:
    time.sleep(seconds)
    return False
