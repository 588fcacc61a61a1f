"""`pytrace -calls`: every call of some modules in one thread, indented, with the result and the duration.

One debug register watches a word of the thread's state that changes with each Python call and return. In 3.9, 3.10 and from 3.13
on it is the pointer to the current frame. 3.11 and 3.12 keep that pointer in an object on the C stack, another one for each
activation of the interpreter. There the word is the recursion counter. It changes after a frame was linked in and before it is
unlinked (Python/ceval.c, `start_frame`, `_Py_LeaveRecursiveCallTstate`; 3.12: `_Py_LeaveRecursiveCallPy`).
"""

from __future__ import annotations

import difflib
from typing import Any, Iterable, NamedTuple

import gdb

from ..cpython import codes, exceptions
from ..cpython.dialects import OWNED_BY_GENERATOR, RawFrame, raw_frame
from ..cpython.frames import Code, PyFrame
from ..cpython.runtime import Runtime
from ..errors import GdbextError, LayoutError, NotFoundError
from ..render.text import escape
from ..render.text import seconds as duration
from .frame_values import result
from .hw_breakpoints import READ_ERRORS, Process, StopContext, WordWatchpoint, running_clock
from .pybreak import result_text
from .pylog import Pace, Spoken, arguments_text, record

RECURSION = ("tstate.py_recursion_remaining", "tstate.recursion_remaining")  # 3.12, 3.11
SUSPENDS = 0x20 | 0x80 | 0x200  # co_flags of generators, coroutines and asynchronous generators
UNKNOWN_FRAMES = 50  # new frames between two readings that are believed


class Place(NamedTuple):
    """The place of an event: the code object and the line where its function begins."""

    code: Code
    line: int


class Known:
    """A frame on the thread's stack. `told`: whether its call was printed; `in_c`: calls of C functions out of it that the
    recursion counter counts too."""

    def __init__(self, raw: RawFrame, told: bool = False) -> None:
        self.address, self.code, self.told, self.in_c, self.began = raw.address, raw.code, told, 0, running_clock()


class _Modules:
    """The modules that are followed, in the role of a `Where`."""

    file = ""

    def __init__(self, names: list[str]) -> None:
        self.line: int | None = None
        self.names = names
        self.text = self.function = " ".join(["-calls", *names])

    def places(self, rt: Runtime, code: Code | None = None) -> list[Any]:
        return []

    def has(self, module: str) -> bool:
        """Whether a module is one of these or lies in one of them."""
        return any(module == name or module.startswith(name + ".") for name in self.names)


class CallTrace(Spoken):
    """A `pytrace -calls`: follows one thread until its pace is over; then its register is free again."""

    def __init__(self, modules: list[str], *, pace: Pace) -> None:
        super().__init__("pytrace", _Modules(modules), "", 1, "", pace=pace)
        self.tid, self.tstate, self.before = 0, 0, 0
        self.stack: list[Known] = []  # outermost first
        self.counter = ""
        self.left: tuple[int, int] | None = None  # the frame that the event before this one left
        self._chosen: dict[tuple[int, int], bool] = {}

    where: _Modules

    @property
    def pending(self) -> bool:
        return False

    def data(self) -> dict[str, Any]:
        return {**super().data(), "places": len(self.hw_breakpoints), "tid": self.tid, "modules": self.where.names}

    def follow(self, process: Process, stop: StopContext) -> None:
        """Takes a number and watches the thread of `stop`. `LayoutError` where the word to watch is not known."""
        rt, L = process.rt, process.rt.layout
        process.need(1, f"pytrace {self.where.text}")
        self.tid, self.tstate = stop.tid, stop.tstate
        self.stack = [Known(step) for step in rt.dialect.walk(rt, stop.tstate)][::-1]
        self.counter = counter = next((key for key in RECURSION if key in L), "") if (3, 10) < rt.version < (3, 13) else ""
        self.register(f"pytrace {self.where.text}")
        try:
            if counter:
                self.before = rt.target.u32(stop.tstate + L[counter])
                watch = WordWatchpoint(process, stop.tstate + L[counter], self.title, self.counted, size=4, catch=self.number)
            else:
                key = next((key for key in ("tstate.current_frame", "tstate.frame") if key in L), None)
                if key is None:
                    raise LayoutError("the layout of this Python's thread state names no word that changes with each call")
                watch = WordWatchpoint(process, stop.tstate + L[key], self.title, self.switched, catch=self.number)
        except BaseException:
            self.take_back()
            raise
        self.hw_breakpoints.append(watch)

    # ---- inside stop() -------------------------------------------------------------------------------------------
    def counted(self, stop: StopContext) -> bool:
        """3.11, 3.12: the recursion counter has changed. Never stops."""
        if stop.tstate != self.tstate:
            return False
        rt, now = stop.process.rt, stop.process.rt.target.u32(self.tstate + stop.process.rt.layout[self.counter])
        before, self.before = self.before, now
        left, self.left = self.left, None
        self._catch_up(stop)
        raw, top = stop.frame.raw, self.stack[-1] if self.stack else None
        entered = top is None or top.address != raw.address
        cleared = left == (raw.address, raw.code) and not stop.frame.code.flags & SUSPENDS
        if now < before and entered and not cleared:
            self._enter(stop, raw)
        elif now < before and top is not None:  # a call of C; 3.11: a frame that was left is cleared
            top.in_c += 1
        elif top is not None and top.in_c:
            top.in_c -= 1
        elif not entered:
            self.left = (raw.address, raw.code) if self.counter == RECURSION[1] else None
            self._leave(stop, PyFrame(rt, raw, 0))
        return self._go_on(stop)

    def switched(self, stop: StopContext) -> bool:
        """Other versions: another frame is the current one. Never stops."""
        if stop.tstate != self.tstate:
            return False
        raw = stop.frame.raw
        if self._index(raw) is None:
            self._catch_up(stop)
            self._enter(stop, raw)
        else:
            while self.stack and self.stack[-1].address != raw.address:
                self._leave(stop, None)
        return self._go_on(stop)

    def _index(self, raw: RawFrame) -> int | None:
        return next((i for i, k in enumerate(self.stack) if k.address == raw.address and k.code == raw.code), None)

    def _catch_up(self, stop: StopContext) -> None:
        """Makes the known stack agree with the thread's, except for a frame that was just entered. Frames that are gone are
        removed, and unseen ones added, without output."""
        rt, unseen = stop.process.rt, []
        known = self._index(stop.frame.raw)
        if known is not None:
            del self.stack[known + 1 :]
            return
        for number, step in enumerate(rt.dialect.walk(rt, self.tstate, limit=UNKNOWN_FRAMES)):
            found = self._index(step) if number else None
            if found is not None:
                del self.stack[found + 1 :]
                break
            if number:
                unseen.append(Known(step))
        self.stack += reversed(unseen)

    def _enter(self, stop: StopContext, raw: RawFrame) -> None:
        """Handles a frame that was just linked in. It is printed where its module is followed and the pace allows."""
        known = Known(raw)
        self.stack.append(known)
        if self._makes_generator(stop, raw) or self.pace.over() or not self._wanted(stop.frame):
            return
        self.hits += 1
        if not self.pace.due():
            return
        known.told = True
        code = stop.frame.code
        shown = arguments_text(stop, self.pace.show_content)
        self._say(stop, code, f"-> {escape(code.qualname)}({shown})")

    @staticmethod
    def _makes_generator(stop: StopContext, raw: RawFrame) -> bool:
        """3.11+: when a generator's function is called, it runs up to RETURN_GENERATOR in a frame that is not the generator's."""
        return bool(stop.frame.code.flags & SUSPENDS) and stop.process.rt.version > (3, 10) and raw.owner != OWNED_BY_GENERATOR

    def _leave(self, stop: StopContext, frame: PyFrame | None) -> None:
        """Handles the end of the innermost frame. `frame`: the frame to read; None: it was unlinked just now, and is read at its
        old address."""
        known = self.stack.pop()
        if not known.told:
            return
        seconds, rt = running_clock() - known.began, stop.process.rt
        try:
            frame = frame or PyFrame(rt, raw_frame(rt, known.address), 0)
            text = self._outcome(stop, frame)
            code = frame.code
        except READ_ERRORS as e:
            text, code = f": <{escape(str(e))}>", rt.code(known.code)
        line = f"<- {escape(code.qualname)}{text}  ({duration(seconds)})"
        self._say(stop, code, line, {"seconds": seconds})

    def _outcome(self, stop: StopContext, frame: PyFrame) -> str:
        """` = value`, or in words how the frame was left, from its current instruction."""
        rt, known = stop.process.rt, codes.opcodes(stop.process.rt.version)
        opcode, argument = rt.target.read(codes.bytecode(frame.code) + max(frame.raw.lasti, 0), 2)
        if opcode in known["return_value"] or opcode in known["return_const"]:
            value = result(frame, argument if opcode in known["return_const"] else None)
            return " = " + result_text(stop.process, frame.code.name, value, self.pace.show_content)
        if exceptions.current(rt, stop.tstate)[1]:
            return " is left by an exception"
        return " is suspended" if frame.code.flags & SUSPENDS else " returns"  # a build may note the last instruction too late

    def _say(self, stop: StopContext, code: Code, text: str, more: dict[str, Any] | None = None) -> None:
        depth = sum(k.told for k in self.stack) - text.startswith("->")
        record(self, stop, Place(code, code.first), "  " * depth + text, more)

    def _wanted(self, frame: PyFrame) -> bool:
        key = (frame.code.address, frame.code.first)
        if key not in self._chosen:
            name = frame.globals().item("__name__")
            self._chosen[key] = self.where.has(name.string(4096))
        return self._chosen[key]

    def _go_on(self, stop: StopContext) -> bool:
        if self.pace.over():
            self.rest(stop)
        return False


def refuse_unknown(modules: Iterable[str], rt: Runtime) -> None:
    """`NotFoundError` with the nearest names for a module of which nothing is loaded."""
    loaded = rt.modules()
    for name in modules:
        if any(one == name or one.startswith(name + ".") for one in loaded):
            continue
        near = difflib.get_close_matches(name, loaded, 4)
        raise NotFoundError(
            f"no module of the process is called {name}" + (f"; near it: {', '.join(map(escape, near))}" if near else "")
        )


def selected(labels: dict[int, str]) -> tuple[Process, StopContext]:
    """The process and thread that gdb has selected. `GdbextError` where it runs no Python."""
    inferior = gdb.selected_inferior()
    process = Process.of(inferior, labels.get(inferior.pid, ""))
    found = process.current_stop()
    if found is None:
        raise GdbextError("the selected thread runs no Python: pythreads lists those that do, thread N selects one")
    return process, found
