"""Python breakpoints. A file's line or a function becomes watchpoints on bytecode, in every attached process, even before the
module is imported.

A `PyBreakpoint` is the breakpoint that the user set. gdb lists it under its number, as a pending breakpoint that never resolves:
`delete`, `disable` and `enable` work on it. Its watchpoints are internal breakpoints (`hw_breakpoints.py`).
"""

from __future__ import annotations

import functools
import re
import time
from typing import Any, Callable, Protocol

import gdb

from .. import log
from ..access.base import Target
from ..access.cli_gdb import silently
from ..cpython import codes
from ..cpython.codes import BytecodeLocation
from ..cpython.content import shown, shown_result
from ..cpython.expressions import condition
from ..cpython.frames import Code
from ..cpython.reprs import SHORT, Repr
from ..cpython.runtime import Runtime
from ..errors import GdbextError, NotFoundError
from ..render.text import escape, short_path, thread_text
from . import hw_breakpoints, kernel_events
from .events import listen
from .gdb_state import say
from .hw_breakpoints import BytecodeWatchpoint, FunctionBreakpoint, HardwareBreakpoint, Process, StopContext


class Places(Protocol):
    """What a breakpoint is set at: a `Where`, or what stands for one."""

    text: str
    file: str
    line: int | None
    function: str

    def places(self, rt: Runtime, code: Code | None = None) -> list[BytecodeLocation]:
        """Its places in a process, or in a module's `Code` that is about to run."""


class Where:
    """A parsed FILE:LINE, FUNCTION or MODULE:FUNCTION."""

    def __init__(self, text: str) -> None:
        self.text, self.file, self.module, self.function = text, "", "", ""
        self.line: int | None = None
        found = re.match(r"(.+):(\d+)$", text)
        if found:
            self.file, self.line = found.group(1), int(found.group(2))
            return
        module, colon, name = text.rpartition(":")
        if "/" in text or (module if colon else name).endswith(".py"):
            raise GdbextError(f"{text}: after a file comes a line number; a function is named by itself or as MODULE:FUNCTION")
        if not re.match(r"[^\W\d][\w.]*$", name) or (colon and not re.match(r"[^\W\d][\w.]*$", module)):
            raise GdbextError(f"{text!r} is no FILE:LINE, FUNCTION or MODULE:FUNCTION")
        self.module, self.function = module, name

    def places(self, rt: Runtime, code: Code | None = None) -> list[BytecodeLocation]:
        """`[BytecodeLocation]` in a process, or in a module's `Code` that is about to run."""
        if self.line is not None:
            return codes.at_line(rt, self.file, self.line, None if code is None else [c for c, _ in codes.nested(code)])
        return codes.at_function(rt, self.module, self.function, None if code is None else codes.nested(code))


class PyBreakpoint:
    """A Python breakpoint. `hits`: passes at which the condition held; `pending`: in no process yet."""

    points: dict[int, PyBreakpoint] = {}  # by number
    preset = ""  # the name of `llm-break` that it is a part of
    when_armed: list[Callable[[PyBreakpoint], object]] = []  # called with each that has got further places

    def __init__(self, command: str, where: Places, condition: str = "", count: int = 1, rank: str = "") -> None:
        self.command, self.where, self.condition, self.count, self.rank = command, where, condition, count, rank
        self.hits = self.number = 0
        self.hw_breakpoints: list[HardwareBreakpoint] = []
        self.places: list[BytecodeLocation] = []
        self.placeholder: gdb.Breakpoint | None = None  # gdb's own breakpoint in its list
        self.last: str | None = None  # the reason of the last stop

    @property
    def names(self) -> set[str]:
        """The words that mean it where one is to be deleted."""
        return {str(self.number), self.where.text, self.preset} - {""}

    # ---- its data ------------------------------------------------------------------------------------------------
    @property
    def pending(self) -> bool:
        return not self.places

    @property
    def title(self) -> str:
        return f"{self.command} {self.number}" if self.number else self.command

    @property
    def named(self) -> str:
        """The function as the user named it, "" for a line."""
        return self.where.text if self.where.line is None else ""

    def data(self) -> dict[str, Any]:
        """The breakpoint's JSON fields (docs/json.md)."""
        first = self.places[0] if self.places else None
        others = [p for p in self.places[1:] if first is not None and p.code is not first.code]
        return {
            "number": self.number,
            "command": self.command,
            "file": escape(first.code.file if first else self.where.file),
            "line": first.line if first else self.where.line,
            "function": escape(first.code.qualname if first else self.named),
            "pending": self.pending,
            "hits": self.hits,
            "condition": self.condition,
            "count": self.count,
            "places": len(self.places),
            "also": list(dict.fromkeys(f"{escape(p.code.file)}:{p.line}" for p in others)),
            "processes": [t.process.pid for t in self.hw_breakpoints],
        }

    # ---- setting it ----------------------------------------------------------------------------------------------
    def set_in(self, processes: list[Process]) -> None:
        """Takes a number and sets watchpoints wherever its place exists already; undoes all of it where that fails."""
        found = [(process, self.where.places(process.rt)) for process in processes]
        if not found or not all(places for _, places in found):
            hw_breakpoints.need_hardware_breakpoints()
        for process, places in found:
            if places:
                process.need(len(places), f"{self.command} {self.where.text}")
        self.register()
        try:
            for process, places in found:
                self.arm(process, places)
        except BaseException:
            self.take_back()
            raise
        watch_imports()

    def register(self, text: str = "") -> None:
        """Takes a number in gdb's list, under the name `text`, or without it as the user wrote it."""
        asked = [self.command, self.where.text] + (["if", self.condition] if self.condition else [])
        self.placeholder = _make_placeholder(text or " ".join(asked))
        self.number = self.placeholder.number
        PyBreakpoint.points[self.number] = self
        _listen()

    def take_back(self) -> None:
        """Removes its number and the watchpoints under it, because it could not be set everywhere."""
        if self.placeholder is not None:
            self.placeholder.delete()
        hw_breakpoints.sweep()

    def start_in(self, process: Process) -> None:
        """Sets the breakpoint in a process that has just begun to run Python, as far as its code is loaded."""
        places = self.where.places(process.rt)
        if places:
            self.arm(process, places)

    def is_for(self, process: Process) -> bool:
        """Whether it is meant for a process: its -on is a label, a pid or gdb's number of an inferior."""
        return not self.rank or self.rank in (label_of(process), str(process.pid), str(process.inferior.num))

    def arm(self, process: Process, places: list[BytecodeLocation]) -> None:
        """Sets a watchpoint on each `BytecodeLocation` of one process."""
        process.forget_private()
        armed = {t.place.address for t in self.hw_breakpoints if isinstance(t, BytecodeWatchpoint) and t.process is process}
        fresh = [p for p in places if p.address not in armed]
        if fresh:
            process.need(len(fresh), self.title)
        for place in fresh:
            self.hw_breakpoints.append(
                BytecodeWatchpoint(process, place, self.title, functools.partial(self.reached, place=place), catch=self.number)
            )
            self.places.append(place)
        if fresh:
            for tell in PyBreakpoint.when_armed:
                tell(self)

    def end(self) -> None:
        """Ends all its hardware breakpoints. gdb's own breakpoints are deleted at the next `sweep`."""
        for hardware in self.hw_breakpoints:
            hardware.end(disarm=True)
        ours, self.hw_breakpoints = {t.process.inferior.num: t.process for t in self.hw_breakpoints}, []
        PyBreakpoint.points.pop(self.number, None)
        for process in ours.values():
            if not process.hw_breakpoints:
                process.disarmed()

    # ---- at a hit ------------------------------------------------------------------------------------------------
    def reached(self, stop: StopContext, place: BytecodeLocation) -> bool:
        """-> whether to stop. Inside stop(): reads only."""
        if not self.is_for(stop.process):
            return False
        if self.condition and not self.holds(stop):
            return False
        self.hits += 1
        if self.hits < self.count:
            return False
        return self.act(stop, place)

    def holds(self, stop: StopContext) -> bool:
        """Whether the condition is true. A condition that cannot be evaluated counts as true, and the stop gives the reason."""
        try:
            return condition(stop.process.rt, self.condition, stop.frame, private=stop.process.private(False))
        except hw_breakpoints.READ_ERRORS as e:
            hw_breakpoints.note(f"its condition cannot be evaluated: {e}")
            return True

    def act(self, stop: StopContext, place: BytecodeLocation) -> bool:
        """Acts on a hit; returns whether to stop: a `pybreak` does."""
        hw_breakpoints.note_offset(stop)
        self.last = f"{self.title}: {where_text(stop, place)}, hit {self.hits}"
        source = source_line(stop.process.view, place.code.file, place.line)
        if source is not None:
            self.last += f"\n{place.line}\t" + escape(source, keep="\t")
        return True


def rank_may_be(point: PyBreakpoint, process: Process) -> bool:
    """Whether a breakpoint's -on names this process, or may do so later: a process that has just started has no title yet."""
    return not point.rank or not process.label or point.rank in (process.label, str(process.pid), str(process.inferior.num))


def label_of(process: Process) -> str:
    """The process's label. A process without one is looked up again once a second, because engines set their titles late."""
    if not process.label and time.monotonic() > process.looked + 1:
        from ..engines import discover

        process.looked = time.monotonic()
        ranks, _ = discover.discover()
        process.label = next((r.label for r in ranks if r.pid == process.pid), "")
    return process.label


def where_text(stop: StopContext, place: BytecodeLocation) -> str:
    """Where a stop is: function, file and line, process and thread."""
    thread = thread_text(stop.tid, escape(stop.thread.name or ""))
    label = f"{escape(stop.process.label)} " if stop.process.label else ""
    return f"{escape(place.code.qualname)} at {short_path(escape(place.code.file))}:{place.line}, {label}{thread}"


def source_line(target: Target, path: str, number: int | None) -> str | None:
    """A line of a source file that a process names, None where it cannot be read."""
    try:
        return target.source_lines(path)[number - 1].rstrip().expandtabs() if number is not None else None
    except (NotFoundError, IndexError, TypeError) as e:
        log.passed_over(e)
        return None


def text_of(process: Process, expression: str, value: Any, show_content: bool = False) -> str:
    """A value for one line of a log; private content is counted unless `show_content`."""
    return escape(shown(Repr(SHORT, process.private(show_content)), expression, value))


def result_text(process: Process, function: str, value: Any, show_content: bool = False) -> str:
    """A function's return value, for one line of a log; private content is counted unless `show_content`."""
    return escape(shown_result(Repr(SHORT, process.private(show_content)), function, value))


# ---- gdb's list of breakpoints ---------------------------------------------------------------------------------------
def _make_placeholder(text: str) -> gdb.Breakpoint:
    """What has gdb number and list our breakpoint: where its events are caught, or a pending breakpoint under a name that no
    function has (it holds a space)."""
    return kernel_events.catch(text) or silently(functools.partial(Placeholder, function=text))


class Placeholder(gdb.Breakpoint):
    """A breakpoint that stays pending: no library will have it."""

    names_no_function = True


def _listen() -> None:
    listen(breakpoint_deleted=_on_deleted, breakpoint_modified=_on_modified, stop=_on_stop)
    if _on_gone not in Process.when_gone:
        Process.when_gone.append(_on_gone)


def _on_deleted(breakpoint: gdb.Breakpoint) -> None:
    point = PyBreakpoint.points.get(breakpoint.number)
    if point is not None:
        point.end()


def _on_modified(breakpoint: gdb.Breakpoint) -> None:
    point = PyBreakpoint.points.get(breakpoint.number)
    if point is not None:
        for hardware in point.hw_breakpoints:
            if hardware.is_valid() and hardware.enabled != breakpoint.enabled:
                hardware.enabled = breakpoint.enabled


def _on_stop(event: Any) -> None:
    """Prints in one line why it stopped."""
    for point in PyBreakpoint.points.values():
        if point.last and any(t.is_of(event) for t in point.hw_breakpoints):
            say(point.last)
            point.last = None
    for text in hw_breakpoints.notes():
        say(f"  ({text})")


def _on_gone(process: Process) -> None:
    """Handles the end of a process: its hardware breakpoints are gone, and its Python breakpoints wait for the next process."""
    for point in PyBreakpoint.points.values():
        gone = [t for t in point.hw_breakpoints if t.process is process]
        places = [t.place for t in gone if isinstance(t, BytecodeWatchpoint)]
        point.hw_breakpoints = [t for t in point.hw_breakpoints if t not in gone]
        point.places = [p for p in point.places if p not in places]


# ---- modules that are imported later ---------------------------------------------------------------------------------
def watch_imports() -> None:
    """Uses one register in each process for as long as a breakpoint waits there: PyEval_EvalCode runs a module's code. Also
    inside stop()."""
    for process in list(Process.known.values()):
        waiting = [p for p in PyBreakpoint.points.values() if _waits(p, process)]
        own = [t for t in process.hw_breakpoints if isinstance(t, FunctionBreakpoint) and t.owner == IMPORTS]
        if waiting and not own:
            FunctionBreakpoint(process, "PyEval_EvalCode", IMPORTS, functools.partial(_on_import, process))
        elif own and not waiting:
            own[0].end(disarm=True)


IMPORTS = "waiting for an import"


def _waits(point: PyBreakpoint, process: Process) -> bool:
    return (
        isinstance(point.where, Where)
        and not any(t.process is process for t in point.hw_breakpoints)
        and rank_may_be(point, process)
    )


def _on_import(process: Process, code: int, _: int) -> bool:
    """Sets the breakpoints that waited for the code that is about to run, inside stop(). -> whether to stop; failures are in the
    notes"""
    rt, failed = process.rt, False
    for point in list(PyBreakpoint.points.values()):
        if not _waits(point, process):
            continue
        module = rt.code(code)
        if module.name != "<module>" or point.where.line is not None and not codes.same_file(point.where.file, module.file):
            continue
        try:
            places = point.where.places(rt, module)
        except NotFoundError as e:
            say(f"{point.title}: {e}")
            continue
        if not places:
            continue
        try:
            if not any(p is not point and _waits(p, process) for p in PyBreakpoint.points.values()):
                for hardware in [
                    t for t in process.hw_breakpoints if t.owner == IMPORTS
                ]:  # its register is free again, and may be the one that is needed
                    hardware.end(disarm=True)
            point.arm(process, places)
            say(f"{point.title}: {short_path(escape(places[0].code.file))} is imported now, set at line {places[0].line}")
        except GdbextError as e:
            hw_breakpoints.note(f"{point.title}: {e}")
            failed = True
    return failed


# ---- for the commands ------------------------------------------------------------------------------------------------
def split(text: str) -> tuple[Where, str]:
    """`WHERE if COND` -> (where, condition)"""
    found = re.match(r"(.*?)\s+if\s+(.*)$", text, re.S)
    where, condition = (found.group(1), found.group(2)) if found else (text, "")
    return Where(where.strip()), condition.strip()


def of_command(command: str) -> list[PyBreakpoint]:
    """The points that a command has set: those of llm-break's reserved names are its own, whatever they are."""
    return [p for p in listed() if p.command == command or p.preset and command == "llm-break"]


def delete(command: str, which: str) -> list[int]:
    """Deletes the points of `command` that `which` means, a number or a place; all of them without. -> their numbers"""
    ours = of_command(command)
    words = which.split() if which.replace(" ", "").isdigit() else [which]
    gone = [p for p in ours if not which or p.names & {*words}]
    if which and not gone:
        there = ", ".join(f"{p.number} {p.where.text}".strip() for p in ours)
        raise NotFoundError(f"{which} is not set; set are: {there or 'none'}")
    for point in gone:
        point.take_back()
    return [p.number for p in gone]


def listed() -> list[PyBreakpoint]:
    """The Python breakpoints that are set, by number."""
    hw_breakpoints.sweep()
    return [p for _, p in sorted(PyBreakpoint.points.items())]
