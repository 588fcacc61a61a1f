"""One step of a model, module by module, in every followed process. The process stops where each call of a torch.nn.Module is
about to return to its caller. Nothing is written; the debug registers are free again when the step is over, however it ends.

Every call of a module ends in a return of `Module._wrapped_call_impl`. That frame has the module as its first variable and the
return value on its stack. A step is one call of the outermost module. Calls that had begun before are no part of it.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Callable, NamedTuple, Sequence

import gdb

from ..access import live_gdb
from ..cpython import codes
from ..cpython.dialects import RawFrame
from ..cpython.frames import PyFrame
from ..cpython.objects import Object
from ..errors import GdbextError
from ..torch import modules
from ..torch.modules import Node
from . import attached_processes, gdb_state, hw_breakpoints, kernel_events, resuming, time_limit
from .frame_values import first_variable, instruction_word, result
from .hw_breakpoints import READ_ERRORS, BytecodeWatchpoint, HardwareBreakpoint, Process, StopContext, WordWatchpoint


class Call(NamedTuple):
    """A module that is about to return: its `Node`, how often it had returned in this step, its return value, and the stop."""

    node: Node
    number: int
    value: Any
    stop: StopContext


class Thread:
    """A thread that calls modules. `root_frame`: the frame of the outermost call that it is in, 0 outside of one."""

    def __init__(self) -> None:
        self.root_frame = 0
        self.counts: dict[int, int] = {}


class Recorder:
    """Follows one process to the end of its `step`th step. `keep(call)` is called at each return of that step, inside stop().

    `root`: the address of the outermost module, or 0 to find it. It is then the first module that is called anew, has modules
    below it, and is called by no other. `started(nodes)` gets the tree of modules once it is known."""

    def __init__(
        self, process: Process, step: int, keep: Callable[[Call], None], started: Callable[[dict[int, Node]], None], root: int = 0
    ) -> None:
        self.process, self.step, self.keep, self.started, self.root = process, step, keep, started, root
        self.nodes: dict[int, Node] = {}
        self.threads: dict[int, Thread] = {}
        self.before: set[tuple[int, int]] = set()  # (tid, frame) of the calls that had begun before
        self.steps = self.stops = self.calls = 0
        self.seconds = 0.0  # that threads were stopped for reading, of the recorded step
        self.began = self.ended = 0.0  # when the first module of that step returned, and the outermost one
        self.root_tid = 0
        self.done = False
        self.peers: Sequence[Recorder] = [self]  # all that are recorded together
        self.catch = 0  # number of the `kernel_events.catch` at which its events are; 0 where debug registers of gdb's serve
        self.hw_breakpoints: list[HardwareBreakpoint] = []

    def arm(self) -> None:
        """Sets a watchpoint on each return. `GdbextError` where too few registers are free."""
        rt = self.process.rt
        code = modules.call_code(rt)
        if not code.variables or code.variables[0][0] != "self" or code.variables[0][1] & (0x40 | 0x80):
            raise GdbextError("this torch's Module calls its modules in a way that is not known here")
        self.code = code.address
        places = codes.returns(code)
        offsets = {place.offset for place, _ in places}
        under_way = []
        for thread in rt.threads():
            frames = list(rt.dialect.walk(rt, thread.address))
            for frame in frames:
                # A call that is at its return does not stop here again. A rank that ran on from there may be inside another
                # call, whose frame has the same address: that one has frames in it.
                stands = live_gdb.pending_offsets.get((self.process.pid, frame.address)) if frame is frames[0] else None
                if frame.code == self.code and stands not in offsets:
                    self.before.add((thread.tid, frame.address))
            found = self.forward(frames)
            if found:
                self.before.add((thread.tid, found[0].address))
                under_way.append((thread.tid, found))
        self.process.need(len(places) + len(under_way), "llm-layers")
        for place, constant in places:
            hit = lambda stop, constant=constant: self.through(self.returns(stop, constant))  # noqa: E731
            self.hw_breakpoints.append(BytecodeWatchpoint(self.process, place, "llm-layers", hit, self.catch))
        for tid, found in under_way:
            self.watch_end(tid, *found)

    def disarm(self) -> None:
        """Ends its watchpoints; gdb's own are deleted at the next `sweep`."""
        for breakpoint in self.hw_breakpoints:
            if breakpoint.alive:
                breakpoint.end(disarm=breakpoint.is_valid())
        self.hw_breakpoints = []

    def forward(self, frames: Sequence[RawFrame]) -> tuple[RawFrame, RawFrame] | None:
        """-> (the outermost of a thread's frames, innermost first, that is a call of the model's own `forward`, its caller), for
        a model that is not called through a module's call."""
        rt, caller = self.process.rt, None
        for frame in reversed(frames if self.root else ()):
            if not frame.complete:
                continue
            if frame.code == self.code:
                return None
            if caller is not None and rt.code(frame.code).name == "forward":
                first = next((value for _, value in PyFrame(rt, frame, 0).locals()), None)
                if first is not None and first.address == self.root:
                    return frame, caller
            caller = frame
        return None

    def watch_end(self, tid: int, frame: RawFrame, caller: RawFrame) -> None:
        """Sets a watchpoint on the end of a call of the model's own `forward`: the caller's current instruction changes then."""

        def goes_on(stop: StopContext) -> bool:
            if stop.tid != tid or stop.frame.address != caller.address:
                return False
            watch.end(disarm=True)
            self.hw_breakpoints.remove(watch)
            if (tid, frame.address) in self.before:
                self.before.discard((tid, frame.address))
                return False
            return self.through(self.over(self.threads[tid]))

        address, size = instruction_word(self.process.rt, caller.address)
        watch = WordWatchpoint(self.process, address, "llm-layers", goes_on, size, catch=self.catch)
        self.hw_breakpoints.append(watch)

    # ---- inside stop() -------------------------------------------------------------------------------------------
    def through(self, over: bool) -> bool:
        """Ends its watchpoints once the step that counts is `over`. -> whether all recorders are done with theirs"""
        if over:
            self.disarm()
        return over and all(r.done for r in self.peers)

    def over(self, thread: Thread) -> bool:
        """A call of the outermost module has ended. -> whether it was the step that counts."""
        thread.root_frame = 0
        thread.counts = {}
        self.steps += 1
        if self.steps < self.step:
            return False
        self.done, self.ended = True, time.perf_counter()
        return True

    def returns(self, stop: StopContext, constant: int | None) -> bool:
        """Keeps the wanted data of a return. -> whether the step that counts is over"""
        began = time.perf_counter()
        self.stops += 1
        thread = self.threads.setdefault(stop.tid, Thread())
        try:
            if not thread.root_frame and not self.enters(stop, thread):
                return False
            module = first_variable(stop.frame)
            if self.steps + 1 == self.step:
                self.began = self.began or began
                self.calls += 1
                self.one_call(stop, thread, module, constant)
        finally:
            if self.began:
                self.seconds += time.perf_counter() - began
        if stop.frame.address != thread.root_frame or not self.over(thread):
            return False
        hw_breakpoints.note_offset(stop)
        return True

    def enters(self, stop: StopContext, thread: Thread) -> bool:
        """Whether a return belongs to a call inside a new call of the outermost module. Notes that call's frame."""
        rt = stop.process.rt
        outer = outermost_call(stop)
        if (stop.tid, outer) in self.before:
            if outer == stop.frame.address:
                self.before.discard((stop.tid, outer))
            return False
        root, found = rt.object(first_variable(stop.frame, outer)), None
        if self.root and root.address != self.root:
            found = self.forward(list(rt.dialect.walk(rt, stop.tstate)))
            if found is None or (stop.tid, found[0].address) in self.before:
                return False
            root, outer = rt.object(self.root), found[0].address
        if self.root_tid not in (0, stop.tid):
            return False
        if not self.nodes:
            nodes = modules.tree(root)
            if len(nodes) < 2 and not self.root:
                return False  # a loss function, say
            self.root, self.nodes, self.root_tid = root.address, nodes, stop.tid
            self.started(nodes)
        thread.root_frame = outer
        if found is not None:
            self.watch_end(stop.tid, *found)
        return True

    def one_call(self, stop: StopContext, thread: Thread, address: int, constant: int | None) -> None:
        node = self.nodes.get(address)
        if node is None:  # no attribute of the model holds it
            node = modules.Node(address, f"<{address:#x}>", stop.process.rt.object(address).type_name, 0)
        number = thread.counts.get(address, 0)
        thread.counts[address] = number + 1
        try:
            value: Object | str = result(stop.frame, constant, stop.pc)
        except READ_ERRORS as e:
            value = str(e)
        self.keep(Call(node, number, value, stop))


def say(text: str) -> None:
    """Prints a line while the process still runs."""
    gdb_state.say(text)
    gdb.flush()


def outermost_call(stop: StopContext) -> int:
    """The address of the frame of the outermost call of a module that a thread is in. The thread must be in one."""
    rt = stop.process.rt
    return [f for f in rt.dialect.walk(rt, stop.tstate) if f.code == stop.frame.raw.code][-1].address


class Recording:
    """The recorders of all processes that are followed. It stops when the last of them is through its step."""

    def __init__(self, recorders: Sequence[Recorder]) -> None:
        self.recorders = list(recorders)

    def go(self, seconds: float) -> str:
        """Resumes everything until all recorders are done. -> "" or the event that ended the step too early"""
        caught = kernel_events.catch("llm-layers")
        try:
            for recorder in self.recorders:
                recorder.peers, recorder.catch = self.recorders, caught.number if caught is not None else 0
                if recorder.process.view.device_memory is not None:
                    recorder.process.view.device_memory.begin()
                with gdb_state.QuietGdb():
                    recorder.arm()
            with time_limit.interrupted_after(seconds) as limit:
                _resume()
        finally:
            for recorder in self.recorders:
                recorder.disarm()
            if caught is not None:
                caught.delete()
            hw_breakpoints.sweep()
        if all(r.done for r in self.recorders):
            return ""
        ended = [r.process.name for r in self.recorders if not r.process.inferior.is_valid() or not r.process.inferior.pid]
        if ended:
            return f"{', '.join(ended)} ended before the step did"
        if limit.expired:
            return f"no step came to its end in {seconds:g} s"
        return "the process stopped for another reason before the step had ended"


def _resume() -> None:
    """Lets all attached processes run until something stops them."""
    with gdb_state.every_thread_runs(), contextlib.suppress(KeyboardInterrupt):
        if attached_processes.attached():
            resuming.resume()
        else:
            gdb.execute("continue")
