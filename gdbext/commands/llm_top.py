"""llm-top: what each rank does now."""

from __future__ import annotations

import collections
import os
import sys
import time
from typing import Any

from .. import log
from ..access import permission, resident
from ..answers import top as answers
from ..api import choosing
from ..engines import group as groups
from ..engines import processes, targets
from ..errors import GdbextError, NotFoundError
from ..render import text as styles
from ..render.columns import cut, fold
from ..requests import meter
from ..requests.meter import EngineMeter
from ..session import screen as screens
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.screen import Screen
from ..session.session import Session
from ..stacks import prefetch, snapshots
from ..timeline import live
from ..timeline.live import Live
from . import table
from .snapshot_reader import READER

KEYS = "q quit  s sort  up/down choose  enter stack  w snapshot", "r requests  f functions  h verdict  b bundle"
SORTS = ("order", *answers.SORTS)
STACK, REQUESTS, FUNCTIONS, VERDICT = "stack", "requests", "functions", "verdict"  # what stands below the ranks
PANELS = {"enter": STACK, "o": STACK, "r": REQUESTS, "f": FUNCTIONS}
FRAMES = 64  # of which numbers are drawn
MOST = 12  # Pythons that are watched where no engine runs and none is named


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

    Where no engine runs and none is named, the busiest Pythons here are shown. Of what is no engine the functions stand below in
    which the threads ran: self, in the function itself; total, also in what it calls.

    Bars tell of the frames before: tokens, requests that wait, KV use. lag: steps behind the first rank of a replica.

    Keys: q ends, s sorts by CPU, memory, GIL, lag, the arrows choose a rank. Below the ranks Enter shows its stack, r the oldest
    requests and who has each, f the functions that run most (self, total), h the verdict of llm-hang on all (a pause of
    milliseconds). b writes a bundle of all, w a snapshot of the chosen rank into the current folder. On a terminal that cannot
    move its cursor (TERM=dumb) frames stand below each other.
    -once prints one frame; -json prints a line for each frame, -frames N of them."""

    name = "llm-top"
    letters = True
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
        try:
            found = choosing.resolve_processes(session, args.operand_text)
        except NotFoundError as e:
            log.passed_over(e)
            found = [] if args.operand_text else [processes.ProcessRef(pid) for pid, _ in choosing.pythons()[:MOST]]
            if not found:
                raise
        failed: list[dict[str, Any]] = []
        watched = choosing.moving(session, found, failed)
        ranks = live.Live([(target, one.name) for target, one in watched])
        opened = targets.Targets()  # of no debugger: what runs is read through /proc
        engines = [e for e in groups.engines_of(processes.ranks_of(one for _, one in watched), opened.of) if e.spec is not None]
        replicas = [{rank.pid for rank in e.shards_for(first)} for e in engines for (first, *_) in e.replicas()]
        view = _View(session, ranks, [meter.EngineMeter(e) for e in engines], failed, args)
        view.replicas, view.refs = replicas, [one for _, one in watched]
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
    """The frames. `refused`: what is not watched, and why; `data`: the last one; `panel`: what stands below the ranks."""

    def __init__(
        self, session: Session, ranks: Live, meters: list[EngineMeter], refused: list[dict[str, Any]], args: Args
    ) -> None:
        self.session, self.ranks, self.meters, self.refused, self.args = session, ranks, meters, refused, args
        self.sort, self.panel, self.said = args.sort, "", ""
        self.replicas: list[set[int]] = []
        self.refs: list[processes.ProcessRef] = []
        self.verdict: list[str] = []  # its lines
        self.past: collections.deque[list[dict[str, Any]]] = collections.deque(maxlen=FRAMES)  # engines of the frames before
        self.plain = not _draws_bars()
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
        self.data, self.partial = answers.frame_data(
            rows, self.readings, self.ranks.failed + self.refused, self.ranks.functions(), self.replicas
        )
        self.past.append(self.data["engines"])
        answers.sort(self.data, self.sort)

    def answer(self) -> Answer:
        said = Answer(self.data, lambda style: "\n".join(answers.frame_lines(self.data, style)), self.partial)
        return said.about(row["pid"] for row in self.data["ranks"])

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
        shown = [*self._bars(columns), *answers.frame_lines(self.data, style, self.place(), 0 if self.panel else 10)]
        shown = [*filter(None, [permission.first_line(self.rows)]), *shown]
        shown += [style.dim(styles.escape(f"{f['label']}: {f['reason']}")) for f in self.data["failed"]]
        keys = fold(self.said, columns) if self.said else [KEYS[0], f"{KEYS[1]}  (sorted by {self.sort})"]
        last = ["", *(style.dim(line) for line in keys)]
        shown += self._below(lines - len(shown) - len(last) - 2, style)
        shown = [*shown[: max(0, lines - len(last) - 1)], *last]
        screen.show([cut(line, columns) for line in shown], style.enabled)

    def _bars(self, columns: int) -> list[str]:
        """A line for each engine: its numbers in the frames before."""
        several = len(self.data["engines"]) > 1
        found = []
        for number, one in enumerate(self.data["engines"]):
            line = answers.spark_line([frame[number] for frame in self.past if len(frame) > number], columns, self.plain)
            found.append(f"{one['engine']}  {line}" if several and line else line)
        return [styles.escape(line) if self.plain else line for line in found if line]

    def _below(self, most: int, style: Any) -> list[str]:
        """What the last key has opened."""
        if self.panel == STACK:
            lines = answers.stack_lines(self.rows[self.pid(self.place())], most, style)
        elif self.panel == REQUESTS:
            lines = answers.open_lines(self.data, most, style)
        elif self.panel == FUNCTIONS:
            lines = answers.function_lines(self.data, most, style)
        else:
            lines = self.verdict[: max(0, most)] if self.panel == VERDICT else []
        return ["", *lines] if lines else []

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
        elif key in PANELS and self.rows:
            self.panel, self.chosen = "" if self.panel == PANELS[key] else PANELS[key], self.pid(self.place())
        elif key == "h":
            self.panel = "" if self.panel == VERDICT else VERDICT
            self.verdict = self.asked("llm-hang", "").split("\n") if self.panel else []
        elif key == "b":
            self.said = self.asked("llm-bundle", time.strftime(" -o gdbext-%Y%m%d-%H%M%S.gdbext")).split("\n")[0]
        elif key == "w" and self.rows:
            self.chosen = self.pid(self.place())
            self.said = self.snapshot(self.chosen)
        return False

    def asked(self, name: str, words: str) -> str:
        """The text of another command on what is watched."""
        command = table.load(name)
        try:
            args = command.parse(" ".join(one.exact for one in self.refs) + words)
            answer = command().answer(self.session, args)
            return answer.to_text(styles.Style(False))
        except (GdbextError, OSError) as e:
            return f"no {name.partition('-')[2]}: {e}"

    @staticmethod
    def snapshot(pid: int) -> str:
        """Writes a snapshot of one process into the current folder; -> what came of it."""
        shots = snapshots.snapshots_of([processes.ProcessRef(pid)])
        name = f"{pid}-{time.strftime('%H%M%S')}.core"
        try:
            snapshots.collect(shots, [name], [prefetch.KV, prefetch.REACH], resident.SMALL, reader=READER)
        except (GdbextError, OSError) as e:
            return f"no snapshot of {pid}: {e}"
        return f"snapshot: {name}" if shots[0].target is not None else f"no snapshot of {pid}: {shots[0].reason}"


def _draws_bars() -> bool:
    """Whether the terminal's encoding has the letters of bars."""
    try:
        answers.BARS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeError, LookupError):
        return False
    return os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def _pause(seconds: float) -> bool:
    time.sleep(seconds)
    return False
