"""pyframe, pyup, pydown, pylist, pylocals: moving and looking around in Python frames."""

from __future__ import annotations

import os
import re

from .. import log
from ..answers import sources
from ..answers.frames import frame_place, frame_text, python_frame
from ..answers.shapes import LOCAL, SELECTED
from ..answers.variables import variable_lines, variables_of
from ..cpython import reprs, resolution
from ..cpython.frames import PyFrame
from ..errors import GdbextError, NotFoundError
from ..render.fields import NUMBER, Field, Fields
from ..render.text import Style, escape
from ..session.command import CONTENT, Answer, Args, Command, Option, UsageError
from ..session.session import Session

FRAME = Fields(Field("frame", SELECTED), Field("locals", [LOCAL]))


def _frame_answer(session: Session, args: Args, frame: PyFrame) -> Answer:
    data = python_frame(frame)

    def text(style: Style) -> str:
        lines = [frame_text(data, style)]
        source = _source(frame, frame.line or 0, 1)
        if source:
            lines.append(f"{source[0][0]:<6}{source[0][1]}")
        return "\n".join(lines)

    found = variables_of(frame, session.private(frame.rt, args))
    return Answer(FRAME.of(frame=frame_place(frame), locals=found), text, _partial(session, frame))


def _partial(session: Session, frame: PyFrame) -> list[str]:
    doubt = sources.doubt(frame)
    return session.partial(frame.rt.target) + ([doubt] if doubt else [])


def _move(session: Session, args: Args, level: int) -> Answer:
    frames = session.frames(args.on)
    if not 0 <= level < len(frames):
        end = "innermost" if level < 0 else "outermost"
        raise GdbextError(f"no frame {level}: the {end} Python frame is {0 if level < 0 else len(frames) - 1}")
    return _selected(session, args, frames[level])


def _selected(session: Session, args: Args, frame: PyFrame) -> Answer:
    session.select(frame.level, args.on)
    return _frame_answer(session, args, frame)


def _count(name: str, text: str, default: int) -> int:
    try:
        return int(text, 0) if text else default
    except ValueError:
        raise UsageError(f"{name}: needs a number, not {text!r}") from None


class PyFrameCommand(Command):
    """Select a Python frame by its number in pybt or its function's name, or show the selected one.

      (gdb) pyframe 2
      #2  EngineCoreProc.run_busy_loop (vllm/v1/engine/core.py:1203)
      1203              self._process_engine_step()

      (gdb) pyframe Scheduler.schedule           the innermost frame of a function, by its whole name or the end of it

    pylist, pylocals, pyprint and pytensor then use this frame, until the process moves on."""

    name = "pyframe"
    group = "python"
    fields = FRAME
    operand = "[N | NAME]"
    options = (CONTENT,)

    def run(self, session: Session, args: Args) -> Answer:
        text = args.operand_text
        if re.match(r"[^\W\d]|<", text):
            return _selected(session, args, resolution.frame_of(session.frames(args.on), text))
        return _move(session, args, _count(self.name, text, session.level(args.on)))


class PyUp(Command):
    """Select the Python frame that called the selected one, or the Nth one up.

    (gdb) pyup
    (gdb) pyup 3"""

    name = "pyup"
    group = "python"
    fields = FRAME
    operand = "[N]"
    options = (CONTENT,)

    def run(self, session: Session, args: Args) -> Answer:
        return _move(session, args, session.level(args.on) + _count(self.name, args.operand_text, 1))


class PyDown(Command):
    """Select the Python frame that the selected one called, or the Nth one down.

    (gdb) pydown
    (gdb) pydown 3"""

    name = "pydown"
    group = "python"
    fields = FRAME
    operand = "[N]"
    options = (CONTENT,)

    def run(self, session: Session, args: Args) -> Answer:
        return _move(session, args, session.level(args.on) - _count(self.name, args.operand_text, 1))


def _source(frame: PyFrame, line: int, count: int) -> list[tuple[int, str]]:
    """`[(number, text)]` of lines around `line`; [] where the source is not here."""
    try:
        lines = sources.lines_of(frame)
    except NotFoundError as e:
        log.passed_over(e)
        return []
    start = max(1, line - count // 2)
    return [(n, lines[n - 1]) for n in range(start, min(len(lines), start + count - 1) + 1)]


class PyList(Command):
    """List the source around the selected Python frame's line.

      (gdb) pylist
         410          while req_index < len(self.running):
      >  411              request = self.running[req_index]

    Highlighted when Pygments is installed for gdb's Python (gdbext install)."""

    name = "pylist"
    group = "python"
    fields = Fields(
        Field("frame", SELECTED),
        Field("file", str),
        Field("line", NUMBER, "of the frame"),
        Field("lines", [Fields(Field("line", int), Field("text", str))]),
    )
    operand = "[LINE]"
    options = (Option("lines", "int", "how many lines to show", 11),)

    def run(self, session: Session, args: Args) -> Answer:
        frame = session.frame(args.on)
        whole = sources.lines_of(frame)  # raises when it is not here
        at = _count(self.name, args.operand_text, frame.line or frame.code.first)
        shown = _source(frame, at, max(1, args.lines))
        if not shown:
            raise GdbextError(f"{os.path.basename(frame.file)} has {len(whole)} lines, no line {at}")
        lines = [{"line": n, "text": escape(t, keep="\t")} for n, t in shown]
        data = self.fields.of(frame=frame_place(frame), file=escape(frame.file), line=frame.line, lines=lines)

        def people(style: Style) -> str:
            style.wraps = 0  # source is shown as it is
            texts = [escape(t, keep="\t") for _, t in shown]
            if style.enabled:
                texts = _highlight(texts, style)
            mark = {frame.line: ">"}
            return "\n".join(f"{mark.get(n, ' ')}{n:>5}  {t}" for (n, _), t in zip(shown, texts))

        return Answer(data, people, _partial(session, frame))


def _highlight(lines: list[str], style: Style) -> list[str]:
    """Escaped source lines in `Style`'s colours where Pygments is there."""
    try:
        from pygments.lexers import PythonLexer
        from pygments.token import Comment, Keyword, Name, Number, String
    except ImportError:
        return lines
    meanings = {Comment: "dim", String: "good", Number: "value", Keyword: "name", Name.Function: "title", Name.Class: "title"}
    shown = []
    for kind, text in PythonLexer(stripnl=False, ensurenl=False).get_tokens("\n".join(lines)):
        meaning = next((meaning for token, meaning in meanings.items() if kind in token), "")
        shown.append("\n".join(style.paint(meaning, part) if meaning else part for part in text.split("\n")))
    found = "".join(shown).split("\n")
    return found if len(found) >= len(lines) else lines


class PyLocals(Command):
    """Show the variables of the selected Python frame, cells followed.

      (gdb) pylocals
      self = <vllm.v1.core.sched.scheduler.Scheduler object at 0x7f21a40b1f90>
      token_budget = 2048

    Text equals Python's repr where the type is known; -full lifts the bound on length."""

    name = "pylocals"
    group = "python"
    fields = FRAME
    options = (Option("full", help="whole values, however long"), CONTENT)

    def run(self, session: Session, args: Args) -> Answer:
        frame = session.frame(args.on)
        found = variables_of(frame, session.private(frame.rt, args), reprs.FULL if args.full else None)
        place = frame_place(frame)

        def text(style: Style) -> str:
            where = f" in frame {place['index']}, {place['function']} ({style.path(place['file'])}:{place['line']})"
            return "\n".join(variable_lines(found, style, "", where))

        return Answer(FRAME.of(frame=place, locals=found), text, session.partial(frame.rt.target))
