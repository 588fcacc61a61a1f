"""Print and go on: `pylog` at a line, `pytrace` at a function's beginning and its returns. Nothing stops but for the moment of
reading."""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import re
import time
from typing import Any, Callable, Iterator, NamedTuple

import gdb

from .. import log
from ..cpython import codes
from ..cpython.expressions import evaluate
from ..cpython.objects import Object
from ..errors import GdbextError
from ..render import jsonline
from ..render.columns import wrapped
from ..render.files import own_folder
from ..render.text import escape
from ..render.text import seconds as duration
from ..torch import files
from ..torch import tensor_impl as tensors
from .frame_values import arguments, result
from .gdb_state import columns
from .hw_breakpoints import READ_ERRORS, BytecodeWatchpoint, Process, StopContext, running_clock
from .pybreak import PyBreakpoint, result_text, text_of

KEPT = 10_000
MAX_ARGUMENTS = 12
MAX_DEPTH = 1000

write: Callable[[str], object] = gdb.write  # gdb's DAP server up to 16 swallows output while it continues
events: collections.deque[dict[str, Any]] = collections.deque(maxlen=KEPT)


def record(point: Spoken, stop: StopContext, place: Any, text: str, more: dict[str, Any] | None = None) -> None:
    """Keeps one event and prints it."""
    now = time.time()
    event = {
        "time": now,
        "number": point.number,
        "pid": stop.process.pid,
        "tid": stop.tid,
        "label": escape(stop.process.label),
        "file": escape(place.code.file),
        "line": place.line,
        "function": escape(place.code.qualname),
        "text": text,
        **(more or {}),
    }
    events.append(event)
    if point.pace.as_json:
        write(jsonline.dumps({"schema": point.command + "/1", "partial": [], "events": [event]}) + "\n")
    else:
        head = f"{event['label']} " if event["label"] else ""
        line = f"{clock(now)} {head}{stop.tid} {escape(place.code.file.rpartition('/')[2])}:{place.line}  {text}"
        write(wrapped(line, columns()) + "\n")


def clock(seconds: float) -> str:
    """The time of day, to the millisecond, of seconds since the epoch."""
    return time.strftime("%H:%M:%S", time.localtime(seconds)) + f".{int(seconds % 1 * 1000):03d}"


def arguments_text(stop: StopContext, show_content: bool) -> str:
    """`name=value, …`: the arguments of the function that has just been called."""
    count, shown = arguments(stop.frame), []
    for name, value in stop.frame.locals()[: min(count, MAX_ARGUMENTS)]:
        shown.append(f"{escape(name)}=" + ("?" if value is None else text_of(stop.process, name, value, show_content)))
    return ", ".join(shown) + (", …" if count > MAX_ARGUMENTS else "")


def parse_template(text: str) -> list[str | tuple[str]]:
    """`a {x.y} b` -> ["a ", ("x.y",), " b"]; `{{` and `}}` are braces. `GdbextError` where a brace stays open."""
    parts: list[str | tuple[str]] = []
    at = 0
    for found in re.finditer(r"\{\{|\}\}|\{([^{}]*)\}", text):
        parts.append(text[at : found.start()])
        at = found.end()
        parts.append(found.group()[0] if found.group(1) is None else (found.group(1).strip(),))
    parts.append(text[at:])
    rest = "".join(p for p in parts[::2] if isinstance(p, str))
    if "{" in rest or "}" in rest or ("",) in parts:
        raise GdbextError(f"in {text!r} a brace is open or empty: write {{expression}}, and {{{{ for a brace")
    return parts


class Pace:
    """How much a logpoint prints: JSON or text, every Nth pass, at most `limit` lines (0: no limit), for so many seconds from the
    first pass (0: no limit).

    At the limit a logpoint frees its debug registers and prints nothing more; gdb's list keeps its number."""

    def __init__(
        self, as_json: bool = False, limit: int = 0, every: int = 1, seconds: float = 0.0, show_content: bool = False
    ) -> None:
        self.as_json, self.limit, self.every, self.seconds, self.show_content = as_json, limit, every, seconds, show_content
        self.passes = self.said = 0
        self.ended = False
        self.began: float | None = None

    def due(self) -> bool:
        """Counts a pass; returns whether the logpoint prints it."""
        if self.began is None:
            self.began = time.monotonic()
        self.passes += 1
        if self.passes > 1 and self.over() or (self.passes - 1) % self.every:
            return False
        self.said += 1
        return True

    def over(self) -> bool:
        """Whether the limit is reached."""
        late = self.seconds and self.began is not None and time.monotonic() - self.began >= self.seconds
        return bool(self.limit and self.said >= self.limit or late)

    def end(self, title: str, runs_on: bool) -> None:
        """Prints once that the limit is reached. Without that line the process would run on in silence, because nothing stops
        there. With JSON each line is an event, so the line is left out."""
        if self.ended:
            return
        self.ended = True
        if self.as_json:
            return
        which = f"{self.limit} lines" if self.limit and self.said >= self.limit else f"{self.seconds:g} s"
        more = "; the process runs on (Ctrl-C stops it)" if runs_on else ""
        line = f"{title}: over after {which}: {self.said} of {self.passes} passes shown{more}"
        write(wrapped(line, columns()) + "\n")
        gdb.flush()


class Spoken(PyBreakpoint):
    """The common part of `pylog`, `pytrace` and `llm-save`: each pass prints something, as its `Pace` allows, and the process
    runs on."""

    def __init__(self, command: str, where: Any, condition: str, count: int, rank: str, *, pace: Pace) -> None:
        super().__init__(command, where, condition, count, rank)
        self.pace, self.awaited = pace, False

    def act(self, stop: StopContext, place: Any) -> bool:
        if self.pace.due():
            self.tell(stop, place)
        return self.is_last(stop)

    def is_last(self, stop: StopContext) -> bool:
        """Frees the debug registers where its limit is reached. -> whether to stop: it and all others that are `awaited`
        are over"""
        if self.pace.over():
            self.rest(stop)
        return self.awaited and all(point.is_over() for point in spoken() if point.awaited)

    def is_over(self) -> bool:
        """Whether it will print nothing more."""
        return self.pace.ended or self.pace.over()

    def tell(self, stop: StopContext, place: Any) -> None:
        """Prints one pass."""
        raise NotImplementedError

    def rest(self, stop: StopContext) -> None:
        """Frees the debug registers once nothing more is to be printed. Called inside stop()."""
        for hardware in self.hw_breakpoints:
            if hardware.alive:
                hardware.end(disarm=True)
        self.pace.end(self.title, not self.awaited)

    def text_of(self, stop: StopContext, expression: str) -> str:
        """The value of an expression in the frame that is about to run, or the reason why there is none, in angle brackets."""
        try:
            private = stop.process.private(self.pace.show_content)
            value = evaluate(stop.process.rt, expression, stop.frame, private=private)
            return text_of(stop.process, expression, value, self.pace.show_content)
        except READ_ERRORS as e:
            return f"<{escape(str(e))}>"


def spoken() -> list[Spoken]:
    """All such points that are set."""
    return [point for point in PyBreakpoint.points.values() if isinstance(point, Spoken)]


@contextlib.contextmanager
def awaited() -> Iterator[None]:
    """A `with` block in which the process stops when all pylog, pytrace and llm-save with a limit have reached it. `GdbextError`
    where none has one."""
    waiting = [point for point in spoken() if (point.pace.limit or point.pace.seconds) and not point.pace.ended]
    if not waiting:
        raise GdbextError("-until-logs: no pylog, pytrace or llm-save with a -limit or -for is under way: it would never end")
    for point in waiting:
        point.awaited = True
    try:
        yield
    finally:
        for point in waiting:
            point.awaited = False


class Logpoint(Spoken):
    """A `pylog`."""

    def __init__(self, where: Any, template: str, condition: str, count: int, rank: str, *, pace: Pace) -> None:
        super().__init__("pylog", where, condition, count, rank, pace=pace)
        self.parts = parse_template(template)

    def tell(self, stop: StopContext, place: Any) -> None:
        record(self, stop, place, "".join(self.text_of(stop, p[0]) if isinstance(p, tuple) else escape(p) for p in self.parts))


class Savepoint(Spoken):
    """An `llm-save`: writes tensors to numbered files. `named`: [(name, expression)]; `folder`: where to."""

    def __init__(self, where: Any, named: list[tuple[str, str]], folder: str, condition: str, rank: str, *, pace: Pace) -> None:
        super().__init__("llm-save", where, condition, 1, rank, pace=pace)
        self.named_expressions, self.folder = named, folder

    def tell(self, stop: StopContext, place: Any) -> None:
        for name, expression in self.named_expressions:
            path = os.path.join(self.folder, f"{name}-{stop.process.pid}-{self.pace.said:06d}.pt")
            try:
                value = evaluate(stop.process.rt, expression, stop.frame)
                if not isinstance(value, Object) or not tensors.is_tensor(value):
                    raise GdbextError("it is no tensor")
                tensor = tensors.read_tensor(stop.process.rt, value.address)
                own_folder(self.folder, "-o", make=True)
                size, _ = files.save(tensor, path)
                text = f"{name} = {expression}: {list(tensor.shape or ())} {tensor.dtype.name}, {size} bytes in {path}"
            except (*READ_ERRORS, OSError) as e:
                text, path = f"{name} = {expression}: not saved: {e}", ""
            record(self, stop, place, escape(text), {"saved": escape(path), "name": name})


class Call(NamedTuple):
    """A printed call: its frame and code, when it began, and whether its return will be printed."""

    frame: int
    code: int
    began: float
    returns: bool


class Tracepoint(Spoken):
    """A `pytrace`: a line at the call with the arguments, one at each return with the result and the call's duration."""

    def __init__(self, where: Any, condition: str, count: int, rank: str, *, pace: Pace) -> None:
        super().__init__("pytrace", where, condition, count, rank, pace=pace)
        self.inside: dict[tuple[int, int], list[Call]] = {}  # of (pid, tid): printed calls that are not over, outermost first
        self.without_results: list[str] = []
        self._returns: set[int] = set()  # code objects whose returns are printed

    def arm(self, process: Process, places: list[Any]) -> None:
        super().arm(process, places)
        for place in places:
            found = codes.returns(place.code)
            free = process.free()
            if len(found) > free:
                self.without_results.append(
                    f"{place.code.qualname} returns in {len(found)} places and {free} debug registers are free: calls are shown "
                    "without results"
                )
                continue
            self._returns.add(place.code.address)
            for there, constant in found:
                hit = lambda stop, there=there, constant=constant: self.leaves(stop, there, constant)  # noqa: E731
                self.hw_breakpoints.append(BytecodeWatchpoint(process, there, self.title, hit, catch=self.number))

    def tell(self, stop: StopContext, place: Any) -> None:
        calls = self._still_open(stop)
        if len(calls) < MAX_DEPTH:
            calls.append(Call(stop.frame.address, stop.frame.code.address, running_clock(), place.code.address in self._returns))
        shown = arguments_text(stop, self.pace.show_content)
        record(self, stop, place, "  " * (len(calls) - 1) + f"-> {escape(place.code.qualname)}({shown})")

    def _still_open(self, stop: StopContext) -> list[Call]:
        """The printed calls that the one which begins now is in: those whose frames are on the thread's stack. What a register
        says of a return does not tell that: there may be none left for it, and an exception passes it by."""
        calls = self.inside.setdefault((stop.process.pid, stop.tid), [])
        if calls:
            try:
                rt = stop.process.rt
                outer = {(raw.address, raw.code) for raw in itertools.islice(rt.dialect.walk(rt, stop.tstate), 1, None)}
            except READ_ERRORS as e:
                log.passed_over(e)
                outer = set()
            calls[:] = [call for call in calls if (call.frame, call.code) in outer]
        return calls

    def is_over(self) -> bool:
        """The last call that was printed is printed to its end, if that is printed at all."""
        return super().is_over() and not any(call.returns for calls in self.inside.values() for call in calls)

    def rest(self, stop: StopContext) -> None:
        if self.is_over():
            super().rest(stop)

    def leaves(self, stop: StopContext, place: Any, constant: int | None) -> bool:
        """Prints a return that is about to run in some frame; whether to stop, as `is_last`."""
        frames = self.inside.get((stop.process.pid, stop.tid), [])
        if all(stop.frame.address != call.frame for call in frames):
            return False  # its call was not printed: it began before, the condition did not hold, or the limit is reached
        while frames:  # those above it were left by an exception
            call = frames.pop()
            if call.frame == stop.frame.address:
                break
        seconds = running_clock() - call.began
        try:
            text = result_text(stop.process, place.code.name, result(stop.frame, constant, stop.pc), self.pace.show_content)
        except READ_ERRORS as e:
            text = f"<{escape(str(e))}>"
        line = "  " * len(frames) + f"<- {escape(place.code.qualname)} = {text}  ({duration(seconds)})"
        record(self, stop, place, line, {"seconds": seconds})
        return self.is_last(stop)
