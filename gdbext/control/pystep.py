"""Steps in Python by debug registers. All threads are resumed.

The interpreter writes into a frame which of its instructions it is about to run. A watch on that word stops at each instruction
of this one frame. Everything that the frame calls runs at full speed.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable

import gdb

from .. import log
from ..access import live_gdb
from ..cpython import codes
from ..cpython.dialects import RawFrame
from ..cpython.frames import PyFrame
from ..cpython.runtime import Runtime
from ..errors import FaultError, GdbextError, LayoutError
from ..render.text import Style, escape
from . import hw_breakpoints, others
from .frame_values import instruction_word, result
from .gdb_state import every_thread_runs
from .hw_breakpoints import READ_ERRORS, BytecodeWatchpoint, Process, StopContext, WordWatchpoint
from .pybreak import result_text, source_line
from .quirks import wakeups

ANCESTORS = 3  # callers that are watched: where a frame goes away by an exception, one of them goes on
SKIPPED = "<frozen "  # the import machinery is not stepped into


class Run:
    """One step: watchpoints that last until it ends."""

    def __init__(self, process: Process, label: str) -> None:
        self.process, self.rt, self.label = process, process.rt, label
        self.hw_breakpoints: list[WordWatchpoint | BytecodeWatchpoint] = []
        self.ended: StopContext | int | None = None  # its end: the thread's stop, or the new value of a raw word
        self.returned: str | None = None  # the value that the frame returned, as text

    def watch(self, address: int, hit: Callable[[Any], bool], size: int = 8, raw: bool = False) -> None:
        self.hw_breakpoints.append(
            WordWatchpoint(self.process, address, self.label, functools.partial(self._note, hit), size, raw=raw)
        )

    def watch_frame(self, step: RawFrame, hit: Callable[[StopContext], bool]) -> None:
        """`hit(stop)` at each instruction of a frame."""
        address, size = instruction_word(self.rt, step.address)
        self.watch(address, hit, size)

    def watch_returns(self, left: RawFrame) -> None:
        """Records the value that a frame returns, if a debug register is left for each of its returns and one for its caller."""
        code = self.rt.code(left.code)
        found = codes.returns(code)
        if len(found) > self.process.free() - 1:
            return
        for place, constant in found:

            def hit(stop: StopContext, constant: int | None = constant) -> bool:
                if stop.frame.address == left.address:
                    try:
                        self.returned = result_text(stop.process, code.name, result(stop.frame, constant, stop.pc))
                    except READ_ERRORS as e:
                        log.passed_over(e)
                        self.returned = None
                return False

            self.hw_breakpoints.append(BytecodeWatchpoint(self.process, place, self.label, hit))

    def _note(self, hit: Callable[[Any], bool], stop: StopContext | int) -> bool:
        if hit(stop):
            self.ended = stop
            return True
        return False

    def go(self, alone: bool = False) -> StopContext | None:
        """Resumes all threads, and unless `alone` the other attached processes, until a watchpoint ends the run, something else
        stops the process, or it is gone. -> `StopContext` or None"""
        try:
            with wakeups.asked_again(), every_thread_runs(), contextlib.nullcontext() if alone else others.run_beside():
                gdb.execute("continue")
        finally:
            for breakpoint in self.hw_breakpoints:
                breakpoint.end(disarm=breakpoint.is_valid())
            self.hw_breakpoints = []
            hw_breakpoints.sweep()
        if not isinstance(self.ended, StopContext):
            return None
        self.ended.returned = self.returned
        return self.ended


def here(label: str) -> tuple[Process, StopContext, list[RawFrame]]:
    """-> (Process, StopContext, raw frames, innermost first) of the selected thread; `GdbextError` where it runs no Python."""
    process = Process.of(gdb.selected_inferior(), label)
    if gdb.selected_thread() is None:
        raise GdbextError("no thread is selected: thread N selects one (info threads lists them)")
    stop = process.current_stop()
    if stop is None:
        raise GdbextError("the selected thread runs no Python: pythreads lists those that do")
    steps = []
    for step in process.rt.dialect.walk(process.rt, stop.tstate):
        step.lasti = live_gdb.pending_offsets.get((process.pid, step.address), step.lasti)
        steps.append(step)
    return process, stop, [s for s in steps if s.complete] or steps


def _free(process: Process, wanted: int, least: int, label: str) -> int:
    free = process.free()
    if free < least:
        process.need(least, label)
    return min(free, wanted)


def over(label: str, only_forward: bool = False, until: int | None = None) -> StopContext | None:
    """pynext, pyuntil: to another line of the selected thread's innermost frame, or to its caller."""
    process, stop, steps = here(label)
    frame = PyFrame(process.rt, steps[0], 0)
    line, address, code = frame.line, steps[0].address, steps[0].code
    run = Run(process, "pyuntil" if only_forward else "pynext")
    count, jumped = _free(process, 1 + ANCESTORS, 2, run.label), _jumps(process.rt, steps[0])

    def at_instruction(now: StopContext) -> bool:
        top = now.frame.raw
        if jumped():
            return False
        if top.address != address or top.code != code:
            return _left(now, address, code)
        new = now.frame.line
        if until is not None:
            return new is not None and new >= until
        if only_forward:
            return new is not None and line is not None and new > line
        return new is not None and new != line

    run.watch_frame(steps[0], at_instruction)
    for step in steps[1:count]:
        run.watch_frame(step, functools.partial(_is_at, step.address))
    return run.go()


def _jumps(rt: Runtime, step: RawFrame) -> Callable[[], bool]:
    """A function that says whether a frame's word was only advanced by a generator that ended, to be called at each change of the
    word. In 3.12 a generator's end adds `return_offset` to it (Python/ bytecodes.c, FOR_ITER_GEN and RETURN_VALUE), and no
    instruction runs there."""
    if not rt.minor.advances_ended:
        return lambda: False

    def place() -> int:
        return rt.target.u64(step.address + rt.layout["iframe.prev_instr"])

    before = [place()]

    def jumped() -> bool:
        old, before[0] = before[0], place()
        by = rt.target.u16(step.address + rt.layout["iframe.return_offset"])
        return by > 0 and before[0] == old + 2 * by

    return jumped


def _is_at(address: int, now: StopContext) -> bool:
    """Whether a stop is in the frame at an address."""
    return now.frame.raw.address == address


def _left(now: StopContext, address: int, code: int) -> bool:
    """Whether a frame's memory already belongs to another function. (In the middle of a call the new frame may already be the
    current one while the old frame's place is still being written.)"""
    rt, L = now.process.rt, now.process.rt.layout
    try:
        if rt.target.u64(address + L.frame_code) & ~rt.dialect.tag_mask == code:
            return False
    except FaultError as e:
        log.passed_over(e)
    hw_breakpoints.note("the frame was left on a way that could not be followed")
    return True


def out(label: str, level: int = 0) -> StopContext | None:
    """pyfinish: until the frame at `level` has returned to its caller."""
    process, stop, steps = here(label)
    callers = steps[level + 1 :]
    if not callers:
        raise GdbextError("this is the outermost Python frame of the thread: it has no caller to go to")
    run = Run(process, "pyfinish")
    _free(process, ANCESTORS, 1, run.label)
    run.watch_returns(steps[level])
    for step in callers[: _free(process, ANCESTORS, 1, run.label)]:
        run.watch_frame(step, functools.partial(_is_at, step.address))
    return run.go()


def into(label: str) -> StopContext | None:
    """pystep: to another line, into a function that is called, or to the caller."""
    process, stop, steps = here(label)
    rt, L = process.rt, process.rt.layout
    frame = PyFrame(rt, steps[0], 0)
    line, address, code, callers = frame.line, steps[0].address, steps[0].code, {s.address for s in steps[1:]}
    run = Run(process, "pystep")
    current, activation = _current(rt, stop.tstate)
    process.need(2 + bool(activation), run.label)
    entered: list[RawFrame] = []
    switched: list[int] = []
    jumped = _jumps(rt, steps[0])

    def at_instruction(now: StopContext) -> bool:
        top = now.frame.raw
        if jumped() or top.address != address or top.code != code:
            return False
        return now.frame.line is not None and now.frame.line != line

    def at_switch(now: StopContext) -> bool:
        top = now.frame.raw
        if now.tstate != stop.tstate or top.address == address:
            return False
        if top.address not in callers:
            if now.frame.file.startswith(SKIPPED):
                return False
            entered.append(top)
        return True

    def at_activation(value: int) -> bool:
        switched.append(value)
        return True

    run.watch_frame(steps[0], at_instruction)
    run.watch(current, at_switch)
    if (
        activation
    ):  # 3.11, 3.12: a call by way of C starts another activation of the interpreter, whose frame is not linked in yet
        run.watch(activation, at_activation, raw=True)
    found = run.go()
    if switched:
        try:
            now = process.current_stop()
        except (FaultError, LayoutError) as e:
            log.passed_over(e)
            now = None
        if (
            switched[-1] > current
        ):  # the stack grows downwards: back in the caller's activation; the frame was there already, or is now
            return into(label) if now is not None and now.frame.raw.address == address else now
        if now is not None and now.frame.raw.address != address and at_switch(now):
            found = now
        else:  # its frame comes, or another one that is stepped over
            run = Run(process, "pystep")
            run.watch(switched[-1] + L["cframe.current_frame"], at_switch)
            run.watch_frame(steps[0], at_instruction)
            found = run.go()
    return _to_first_line(label, process, steps[0], line, entered[-1]) if entered else found


def _to_first_line(label: str, process: Process, caller: RawFrame, line: int | None, fresh: RawFrame) -> StopContext | None:
    """On from where a function was entered, to its first line; a generator that was only made is stepped over."""
    rt, L = process.rt, process.rt.layout
    key = "code._co_firsttraceable"
    resume = 2 * process.view.i32(fresh.code + L[key]) if key in L else -1
    before = rt.code(fresh.code).line(fresh.lasti) if fresh.lasti > resume else None  # a generator that goes on

    def at_first_line(now: StopContext) -> bool:
        here = now.frame.line
        return now.frame.raw.address == fresh.address and now.frame.raw.lasti > resume and here is not None and here != before

    run = Run(process, "pystep")
    run.watch_frame(fresh, at_first_line)
    ended = _jumps(rt, caller)
    run.watch_frame(caller, lambda now: not ended() and now.frame.raw.address == caller.address)
    found = run.go()
    back = found is not None and found.frame.raw.address == caller.address and found.frame.line == line
    return into(label) if back else found  # a generator was made, none of its lines ran


def _current(rt: Runtime, tstate: int) -> tuple[int, int]:
    """-> (address of the word that names the current frame of a thread, address of the word that changes with calls by way of C,
    or 0)"""
    L = rt.layout
    if "tstate.frame" in L:
        return tstate + L["tstate.frame"], 0
    if "tstate.current_frame" in L:
        return tstate + L["tstate.current_frame"], 0
    return rt.target.u64(tstate + L["tstate.cframe"]) + L["cframe.current_frame"], tstate + L["tstate.cframe"]


def text(stop: StopContext, style: Style) -> str:
    """Where a step ended, with the source line where this machine has the file."""
    frame = stop.frame
    head = f"{escape(frame.function)} at {style.path(escape(frame.file))}:{frame.line}, thread {stop.tid}"
    source = source_line(stop.process.view, frame.file, frame.line)
    return head if source is None else f"{head}\n{frame.line}\t" + escape(source, keep="\t")
