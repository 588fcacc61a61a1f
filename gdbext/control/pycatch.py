"""Stops where a Python exception is raised. A hardware breakpoint is set on PyTraceBack_Here. The interpreter calls it for each
frame that an exception leaves or is handled in (Python/ceval.c, `error:`), first for the frame that raised it.
"""

from __future__ import annotations

import functools
from typing import Any

from .. import log
from ..cpython import exceptions
from ..cpython.bytecode import exception_entries
from ..cpython.codes import BytecodeLocation
from ..cpython.content import counted, hides_message
from ..cpython.dialects import RawFrame
from ..cpython.frames import Code
from ..cpython.runtime import Runtime
from ..cpython.types import EXCEPTION
from ..engines import registry
from ..errors import FaultError, GdbextError, LayoutError
from ..render.text import escape, short_path, thread_text
from . import hw_breakpoints, pybreak
from .hw_breakpoints import FunctionBreakpoint, Process, StopContext

# Code that catches everything only to print it: an exception that gets there was not handled by the program.
OUTERMOST = (
    "/threading.py",
    "/multiprocessing/process.py",
    "/multiprocessing/spawn.py",
    "/multiprocessing/forkserver.py",
    "/runpy.py",
    "/concurrent/futures/process.py",
)
# The functions among them that an exception never leaves.
CATCH_ALL = (("/threading.py", "_bootstrap_inner"), ("/multiprocessing/process.py", "_bootstrap"))


class Catchpoint(pybreak.PyBreakpoint):
    """A `pycatch`. It has no place; its breakpoints are on C functions."""

    def __init__(self, kind: str, uncaught: bool, condition: str, count: int, rank: str, show_content: bool = False) -> None:
        super().__init__("pycatch", _Anywhere(kind, uncaught), condition, count, rank)
        self.kind, self.uncaught, self.show_content = kind, uncaught, show_content
        self.reported: dict[int, int] = {}  # tid -> exception that was reported last

    @property
    def names(self) -> set[str]:
        return super().names | ({self.kind} - {""})

    @property
    def pending(self) -> bool:
        return False

    def data(self) -> dict[str, Any]:
        return {
            **super().data(),
            "file": "",
            "line": None,
            "function": self.kind or "any exception",
            "uncaught": self.uncaught,
            "places": len(self.hw_breakpoints),
        }

    @property
    def functions(self) -> list[str]:
        """The C functions at which it stops to check."""
        return ["PyTraceBack_Here"] + (["PyErr_Display"] if self.uncaught else [])

    def set_in(self, processes: list[Process]) -> None:
        """Takes a number and sets its breakpoints; takes all back where that fails."""
        hw_breakpoints.need_hardware_breakpoints("it cannot stop where exceptions are raised: pybreak a line of the handler")
        for process in processes:
            process.need(len(self.functions), f"pycatch {self.where.text}".strip())
        self.register(
            " ".join(["pycatch"] + [w for w in (self.where.text, "if " + self.condition if self.condition else "") if w])
        )
        try:
            for process in processes:
                self.arm_all(process)
        except BaseException:
            self.take_back()
            raise

    def arm_all(self, process: Process) -> None:
        """Sets its breakpoints in one process."""
        for name in self.functions:
            hit = self.passes if name == "PyTraceBack_Here" else self.printed
            self.hw_breakpoints.append(FunctionBreakpoint(process, name, self.title, functools.partial(hit, process)))

    def start_in(self, process: Process) -> None:
        self.arm_all(process)

    # ---- inside stop() -------------------------------------------------------------------------------------------
    def passes(self, process: Process, frame_object: int, _: int) -> bool:
        """Whether to stop as an exception passes a frame."""
        rt = process.rt
        stop = process.current_stop()
        if stop is None:
            return False
        if not self.is_for(process):
            return False
        value, kind, trace = exceptions.current(rt, stop.tstate)
        if not kind or not self.wanted(rt, kind):
            return False
        if value and not rt.object(value).type.flags & EXCEPTION:
            value = 0
        if self.uncaught:
            return self.leaves(stop, kind, value, trace)
        if trace:
            return False  # reported already, where it was raised
        return self.report(stop, kind, value, stop.frame)

    def printed(self, process: Process, _: int, value: int) -> bool:
        """Whether to stop as sys.excepthook prints an uncaught exception."""
        rt = process.rt
        stop = process.current_stop()
        kind = rt.target.u64(value + rt.layout["object.ob_type"]) if value else 0
        if not self.is_for(process) or not kind or not self.wanted(rt, kind):
            return False
        text = escape(exceptions.class_name(rt.type(kind)))
        self.hits += 1
        where = f"thread {stop.tid}" if stop else "a thread that has left its last Python frame"
        self.last = f"{self.title}: {text} was not caught, {where}, hit {self.hits}; pyprint {value:#x} shows it"
        return self.hits >= self.count

    def wanted(self, rt: Runtime, kind: int) -> bool:
        if not self.kind:
            return True
        info = rt.type(kind)
        return any(self.kind in (base.name, exceptions.class_name(base)) for base in info.bases())

    def leaves(self, stop: StopContext, kind: int, value: int, trace: int) -> bool:
        """Whether to stop because an exception leaves the program's last frame: only frames remain that catch everything to print
        it.

        That is the case when PyTraceBack_Here is called for the last frame and no handler covers its instruction. A `finally:` or
        `except: raise` covers it and ends by RERAISE, which calls nothing for that frame. Then the traceback shows it, one frame
        further out."""
        rt = stop.process.rt
        frames = list(rt.dialect.walk(rt, stop.tstate))
        left = [rt.code(f.code) for f in frames]
        own = program_frames(left)
        if len(left) == 1 and left[0].file == "<string>" and trace:
            passed = exceptions.traceback(rt, trace)
            if passed and "/multiprocessing/" in passed[-1].file:
                return False  # a spawned child's own end: `python -c "from multiprocessing.spawn import ..."`
        if own == 1 and not handled_here(rt, frames[0]):
            self.reported[stop.tid] = value
            return self.report(stop, kind, value, stop.frame)
        if own or not trace or value and self.reported.get(stop.tid) == value:
            return False
        passed = exceptions.traceback(rt, trace)
        if not passed or is_outermost(passed[-1].file):
            return False  # it was raised out here, or has come through one of these frames already
        self.reported[stop.tid] = value
        return self.report(stop, kind, value, passed[0], "; its frames have been left: pyexc shows the traceback")

    def report(self, stop: StopContext, kind: int, value: int, frame: Any, more: str = "") -> bool:
        """Counts an exception. -> whether to stop, with a line that gives the reason. `frame`: where it was raised"""
        rt = stop.process.rt
        if self.condition and not self.holds(stop):
            return False
        self.hits += 1
        if self.hits < self.count:
            return False
        text = exceptions.class_name(rt.type(kind))
        try:
            message = exceptions.current_message(rt, kind, exceptions.current(rt, stop.tstate)[0])
        except GdbextError as e:
            log.passed_over(e)
            message = ""
        if message and hides_message(stop.process.private(self.show_content), message):
            message = counted(message)
        text = escape(text + (": " + message if message else ""))
        thread = thread_text(stop.tid, escape(stop.thread.name or ""))
        where = f"{escape(frame.function)} at {short_path(escape(frame.file))}:{frame.line}"
        self.last = f"{self.title}: {text} in {where}, {thread}, hit {self.hits}{more}"
        return True


class _Anywhere:
    """The `Where` of a point that has no place."""

    def __init__(self, kind: str, uncaught: bool) -> None:
        self.text = " ".join((["-uncaught"] if uncaught else []) + ([kind] if kind else []))
        self.file, self.function = "", kind or "any exception"
        self.line: int | None = None

    def places(self, rt: Runtime, code: Code | None = None) -> list[BytecodeLocation]:
        return []


def is_outermost(file: str) -> bool:
    """Whether a source file is one whose frames catch everything only to print it."""
    return file.startswith("<frozen ") or file.endswith(OUTERMOST)


def program_frames(codes: list[Code]) -> int:
    """How many of a stack's frames (innermost first) could handle an exception: all except those at its end that catch everything
    only to print it.

    A forked child has its parent's frames below its own and never returns to them; the frame that catches everything ends the
    stack. multiprocessing starts a spawned child by `python -c "from multiprocessing.spawn import spawn_main; ..."`; that frame
    is such an end too. So is a function of an engine that logs what it catches (`EngineSpec.reporting`)."""
    catching = registry.reporting()
    for i, code in enumerate(codes):
        if any(code.name == name and code.file.endswith(end) for end, name in catching):
            return i
    ends = (i for i, code in enumerate(codes) if any(code.file.endswith(f) and code.name == name for f, name in CATCH_ALL))
    files = [code.file for code in codes[: next(ends, len(codes)) + 1]]
    if len(files) > 1 and files[-1] == "<string>" and "/multiprocessing/" in files[-2]:
        files.pop()
    while files and is_outermost(files[-1]):
        files.pop()
    return len(files)


def handled_here(rt: Runtime, step: RawFrame) -> bool:
    """Whether a handler of the frame itself covers its current instruction (3.11+: the exception table,
    Objects/exception_handling_notes.txt; before: the block stack)."""
    L, t = rt.layout, rt.target
    try:
        if "code.co_exceptiontable" in L:
            table = rt.object(t.u64(step.code + L["code.co_exceptiontable"])).raw_bytes()
            return any(start <= step.lasti < end for start, end, *_ in exception_entries(table))
        return t.i32(step.address + L["frameobj.f_iblock"]) > 0
    except (FaultError, LayoutError) as e:
        log.passed_over(e)
        return False
