"""Hardware breakpoints: on a Python instruction's bytes, on a word that changes, on a C function. Nothing is written to the
process.

gdb sets and clears the registers (`awatch`, `watch`, `hbreak` of internal breakpoints). A `stop()` here only reads, through
/proc, and never makes gdb do anything: in gdb's default all-stop mode the other threads may still be running then. x86-64 has
four registers in every thread, aarch64 some of each kind. gdb gives each breakpoint one of them in all threads of its process.
Where a processor stops before the access (aarch64), gdb steps over it first, so `stop()` sees the same state everywhere.
"""

from __future__ import annotations

import atexit
import struct
import time
from typing import Any, Callable, TypeVar

import gdb

from .. import log
from ..access import debug_registers, live_gdb, perf_breakpoints, ptrace
from ..access.cfi import table_of
from ..cpython.codes import BytecodeLocation
from ..cpython.frames import PyFrame
from ..cpython.runtime import open_runtime
from ..engines.sensitive_names import names_for
from ..errors import FaultError, GdbextError, LayoutError
from . import attached_processes, device_work, inferior_breakpoints, kernel_events, protection
from . import others as others  # hears of stops from now on
from .events import listen
from .protection import Protection
from .quirks import urgency
from .registers import JUMP, arguments, pthread, register
from .spots import Register, Spot
from .stop_memory import StopMemory

T = TypeVar("T")
Hit = Callable[[Any], bool]  # whether to stop, at a `StopContext` or the new value of a word

TWICE = 24  # bytes of machine code: the two loads of one fetch lie closer, those of two fetches do not
DISPATCH = 40  # bytes of machine code: from the load of an instruction to the jump to its handler
READ_ERRORS = (GdbextError, gdb.error, struct.error, UnicodeError)  # gdb.MemoryError is a gdb.error
_HARDWARE = ("BP_HARDWARE_WATCHPOINT", "BP_READ_WATCHPOINT", "BP_ACCESS_WATCHPOINT", "BP_HARDWARE_BREAKPOINT")


class _Clock:
    stood = 0.0  # seconds in all that threads were stopped while a stop() read them
    stopped: float | None = None  # since when it does so now


def running_clock() -> float:
    """Seconds, as time.monotonic, without the time in which a `stop()` reads: to measure how long a process takes. gdb's own part
    of a stop, about a millisecond, is included."""
    return (time.monotonic() if _Clock.stopped is None else _Clock.stopped) - _Clock.stood


class StopContext:
    """A thread at a hardware breakpoint: `tid`, `pc`, `frame` (its innermost `PyFrame`), `tstate`."""

    def __init__(self, process: Process, thread: gdb.InferiorThread, pc: int, tstate: int, frame: PyFrame) -> None:
        self.process, self.thread, self.pc, self.tstate, self.frame = process, thread, pc, tstate, frame
        self.tid = thread.ptid[1] or thread.ptid[2]
        self.returned: str | None = None  # of pyfinish: the value that the frame returned, as text


class Process:
    """One inferior with hardware breakpoints in it."""

    known: dict[int, Process] = {}  # by inferior number
    when_gone: list[Callable[[Process], object]] = []  # functions of a Process that has ended or runs another program

    def __init__(self, inferior: gdb.Inferior, label: str = "") -> None:
        self.inferior, self.pid, self.label = inferior, inferior.pid, label
        self.view = StopMemory(self.pid, label)
        self.view.device_memory = device_work.of_stops(self.view)
        self.rt = open_runtime(self.view)
        if self.rt.layout.free_threaded:
            raise GdbextError(
                f"{self.name}: in a free-threaded Python each thread runs its own copy of the bytecode, which a watch does not "
                "cover"
            )
        self.hw_breakpoints: list[HardwareBreakpoint] = []
        self.looked = 0.0
        self.protection = Protection(self.pid)
        self.renewal: WordWatchpoint | None = None
        self.registers = debug_registers.how_many(self.pid)
        self._states: dict[int, list[int]] = {}
        self._in_eval: dict[int, bool] = {}
        self._private: frozenset[str] | None = None

    @classmethod
    def of(cls, inferior: gdb.Inferior, label: str = "") -> Process:
        """The `Process` of an inferior; `GdbextError` (one line) where none can be set in it."""
        found = cls.known.get(inferior.num)
        if found is not None and found.pid == inferior.pid and found.inferior.is_valid():
            found.invalidate()  # the values read at its last breakpoint
            return found
        if not inferior.pid:
            raise GdbextError("no process is selected: llm-attach one, or start one with run")
        if ptrace.MACHINE not in debug_registers.MACHINES:
            raise GdbextError(f"Python breakpoints use debug registers as x86-64 and aarch64 have them; this is {ptrace.MACHINE}")
        if not live_gdb.is_local(inferior):
            raise GdbextError("the process is on another machine: Python breakpoints need its /proc here")
        if live_gdb.core_file(inferior):
            raise GdbextError("a core file does not run: there is nothing to stop")
        cls.known[inferior.num] = found = cls(inferior, label)
        found._guard()
        return found

    def _guard(self) -> None:
        """The guard clears debug registers where gdb is killed: it must know of a process that gdb attached by itself too."""
        attached_processes.guard_process(self.pid)

    @property
    def name(self) -> str:
        return self.label or f"process {self.pid}"

    def invalidate(self) -> None:
        """Drops cached memory of the process: it may have run since."""
        self.view.count += 1
        self.rt.invalidate()

    def private(self, show_content: bool = False) -> frozenset[str]:
        """Names whose content is not shown: those of an engine's prompts and tokens."""
        if show_content:
            return frozenset()
        if self._private is None:
            self._private = names_for(self.rt)
        return self._private

    def disarmed(self) -> None:
        """None of its registers is armed any more."""
        if self.protection.leave() and not any(process.protection.armed for process in Process.known.values()):
            urgency.first(False)

    def gone(self) -> None:
        """None of its breakpoints counts any more."""
        self.disarmed()
        for breakpoint in list(self.hw_breakpoints):
            breakpoint.end()
        for tell in Process.when_gone:
            tell(self)

    def forget_private(self) -> None:
        self._private = None  # an engine may have been imported since

    # ---- registers -----------------------------------------------------------------------------------------------
    def used(self) -> list[str]:
        """`[what]`: the users of this process's debug registers."""
        own = [t.owner for t in self.hw_breakpoints if t.alive and t.enabled]
        kinds = {getattr(gdb, k) for k in _HARDWARE if hasattr(gdb, k)}
        return own + [
            f"gdb's breakpoint {b.number}"
            for b in gdb.breakpoints() or ()
            if b.is_valid() and b.number > 0 and b.enabled and b.type in kinds
        ]

    def free(self) -> int:
        """How many debug registers of this process are unused."""
        return self.registers - len(self.used())

    def need(self, count: int, what: str) -> None:
        """Raises `GdbextError` where fewer than `count` registers are free."""
        used = self.used()
        if count > self.free():
            taken = ", ".join(dict.fromkeys(used)) or "none"
            ours = next((o.replace(" ", " -delete ") for o in used if o.startswith(("py", "llm-")) and o[-1].isdigit()), "")
            raise GdbextError(
                f"{what} needs {count} of the {self.registers} debug registers of {self.name}, {self.free()} are free "
                f"(taken: {taken}); delete one of those{ours and ': ' + ours}"
            )

    def renew_registers(self) -> None:
        """Makes gdb write the debug registers of this process again, after an exec.

        The kernel clears them at the exec, but gdb's own record of them stays; the child of a fork inherits that record. So a
        breakpoint at an address where the parent has one would never be armed (gdb 13 to 18: gdb/nat/x86-dregs.c only counts one
        more user of that register). A change of any register makes gdb write all of them. That change is a watch on a word that
        never changes; it ends at the first hit."""
        if len(Process.known) > 1 and self.hw_breakpoints and self.free():
            self.renewal = WordWatchpoint(self, self.rt.library.base, "gdb's registers after an exec", lambda stop: False)

    # ---- the current stop ----------------------------------------------------------------------------------------
    def current_stop(self, code: int | None = None) -> StopContext | None:
        """`StopContext` of the thread that gdb has selected, or None when it runs no Python. `code`: the code object that it is
        likely to run. Where it does not, its thread state is looked for anew: the one that is known may be a dead thread's, in
        memory that is not used again yet."""
        self.invalidate()
        of, thread, pc = pthread(self.view), gdb.selected_thread(), register("pc")
        found = self._innermost(of, thread, pc)
        if code and self.in_eval(pc) and (found is None or found.frame.raw.code != code) and self._states.pop(of, []):
            found = self._innermost(of, thread, pc)
        return found

    def _innermost(self, of: int, thread: gdb.InferiorThread, pc: int) -> StopContext | None:
        for tstate in self._tstates(of):
            step = next(iter(self.rt.dialect.walk(self.rt, tstate, limit=1)), None)
            if step is not None:
                return StopContext(self, thread, pc, tstate, PyFrame(self.rt, step, 0))
        return None

    def _tstates(self, pthread: int) -> list[int]:
        """Thread states of an operating-system thread, by the pthread that each names."""
        key = self.rt.layout["tstate.thread_id"]
        known = self._states.get(pthread)
        if known:
            try:
                if self.view.u64(known[0] + key) == pthread and len(known) == 1:
                    return known
            except FaultError as e:
                log.passed_over(e)
        found = [a for i in self.rt.interpreters() for a in self.rt._thread_states(i) if self.view.u64(a + key) == pthread]
        if len(found) > 1:  # subinterpreters: the one that holds its interpreter's lock runs
            holders = {self.rt.gil(i)[1] for i in self.rt.interpreters()}
            found.sort(key=lambda a: a not in holders)
        self._states[pthread] = found
        return found

    def in_eval(self, pc: int) -> bool:
        """Whether `pc` follows the load of an instruction that is about to run. That is in the interpreter's loop or, where the
        loop is spread over many functions (tail calls), just before a jump through a table. Other readers of the bytecode compare
        the values that they read."""
        if pc not in self._in_eval:
            if len(self._in_eval) > 100_000:
                self._in_eval.clear()
            self._in_eval[pc] = self._look(pc)
        return self._in_eval[pc]

    def _look(self, pc: int) -> bool:
        library = self.rt.library
        if not library.base <= pc < library.end:
            return False
        table, loop = table_of(library.elf), library.elf.symbol("_PyEval_EvalFrameDefault")
        here = table.find(pc - library.bias) if table is not None and loop else None
        if here is not None and here[0] == loop:
            return True
        return bool(JUMP[self.view.arch].search(self.view.read_partial(pc, DISPATCH)))


# ---- the breakpoints themselves --------------------------------------------------------------------------------------
class HardwareBreakpoint:
    """A breakpoint that uses one debug register. `owner`: the name that the user knows it by; `hit(stop)` returns whether to
    stop. `catch`: the number of a `kernel_events.catch`; an event of the kernel's then takes the place of gdb's breakpoint
    where it can."""

    def __init__(self, process: Process, spot: Spot, owner: str, catch: int = 0) -> None:
        process.need(1, owner)
        self.process, self.owner, self.alive = process, owner, False
        process.protection.enter()
        self.by: Register | kernel_events.Event | None = self._event(spot, catch) if catch else None
        if self.by is None:
            with live_gdb.selected(process.inferior):
                self.by = Register(self, *spot.register())
        self.alive = True
        process.hw_breakpoints.append(self)

    def _event(self, spot: Spot, catch: int) -> kernel_events.Event | None:
        process = self.process
        if not kernel_events.can_be(catch, process.pid, [t.tid for t in process.rt.threads()]):
            return None
        try:
            return kernel_events.Event(process.pid, spot, catch, self.stop)
        except (GdbextError, OSError, gdb.error) as e:
            log.passed_over(e, "the kernel gives no event: a debug register of gdb's")
            return None

    def is_of(self, event: Any) -> bool:
        """Whether a stop that gdb reports may be one at this one."""
        if isinstance(self.by, kernel_events.Event):
            return kernel_events.is_hit(event)
        return self.by in getattr(event, "breakpoints", ())

    @property
    def number(self) -> int:
        """gdb's, of the breakpoint for its register, or of the one in its list at which its events are."""
        return self.by.number if self.by is not None else 0

    def is_valid(self) -> bool:
        return self.by is not None and bool(self.by.is_valid())

    @property
    def enabled(self) -> bool:
        return self.by is not None and bool(self.by.enabled)

    @enabled.setter
    def enabled(self, yes: bool) -> None:
        if self.by is not None:
            self.by.enabled = yes

    def stop(self) -> bool:
        if not self.alive or gdb.selected_inferior().num != self.process.inferior.num:
            return False  # the same address in another process
        self.process.protection.keep()
        if self.process.renewal is not None:
            self.process.renewal.end(disarm=True)
            self.process.renewal = None
        _Clock.stopped = time.monotonic()
        try:
            return bool(self.reached())
        except READ_ERRORS as e:
            note(str(e))  # the thread stops, with the error as the reason
            return True
        except KeyboardInterrupt:  # gdb would print an exception's name and nothing else
            note("stopped by Ctrl-C")
            return True
        finally:
            _Clock.stood += time.monotonic() - _Clock.stopped
            _Clock.stopped = None

    def reached(self) -> bool:
        """Whether to stop here; it only reads."""
        raise NotImplementedError

    def end(self, disarm: bool = False) -> None:
        """Ends this breakpoint at once. gdb's own breakpoint is deleted at the next `sweep`, because stop() and events may not
        delete any. `disarm`: its register is freed at once."""
        self.alive = False
        if isinstance(self.by, kernel_events.Event):
            self.by.delete()
        elif self.by is not None:
            if disarm and self.is_valid():
                self.enabled = False
            _dead.append(self.by)
        if self in self.process.hw_breakpoints:
            self.process.hw_breakpoints.remove(self)


class BytecodeWatchpoint(HardwareBreakpoint):
    """Stops as an instruction is about to run. `hit(stop)` is called once per pass."""

    def __init__(self, process: Process, place: BytecodeLocation, owner: str, hit: Hit, catch: int = 0) -> None:
        self.place, self.hit = place, hit
        self._old = process.rt.minor.frame_objects
        self._last: dict[int, tuple[int, int, int]] = {}
        super().__init__(process, Spot(place.address, 2, perf_breakpoints.READ_WRITE), owner, catch)

    def reached(self) -> bool:
        found = self.process.current_stop(self.place.code.address)
        if found is None or not self.process.in_eval(found.pc):
            return False  # its bytes were read by something else: a copy for co_code, say
        step = found.frame.raw
        if step.code != self.place.code.address:
            return False  # 3.10 shares one bytecode between equal functions
        if step.lasti == self.place.offset and not self._old:
            return False  # the instruction runs already, and specialises itself
        before, now = self._last.get(found.tid), (step.address, step.lasti, found.pc)
        self._last[found.tid] = now
        if before and before[:2] == now[:2] and before[2] < found.pc < before[2] + TWICE:
            return False  # the second load of one fetch: opcode and argument are read one after the other
        step.lasti = self.place.offset
        found.frame.code = self.process.rt.code(step.code)
        return self.hit(found)


class WordWatchpoint(HardwareBreakpoint):
    """Stops when a word of memory has changed. `hit(stop)` -> whether to stop; `size` 4 or 8 bytes; `raw`: `hit(new value)`."""

    def __init__(
        self,
        process: Process,
        address: int,
        owner: str,
        hit: Hit,
        size: int = 8,
        *,
        raw: bool = False,
        catch: int = 0,
    ) -> None:
        self.address, self.hit, self.raw = address, hit, raw
        super().__init__(process, Spot(address, size, perf_breakpoints.WRITE), owner, catch)

    def reached(self) -> bool:
        if self.raw:
            self.process.invalidate()
            return self.hit(self.process.view.u64(self.address))
        try:
            found = self.process.current_stop()
        except (FaultError, LayoutError) as e:
            log.passed_over(e)
            return False  # the interpreter is just linking a frame in
        return found is not None and self.hit(found)


def need_hardware_breakpoints(without: str = "nothing can wait for an import: set it when the module is loaded") -> None:
    """Raises `GdbextError` in a gdb whose Python has watchpoints only; `without`: the consequence for the user."""
    if not hasattr(gdb, "BP_HARDWARE_BREAKPOINT"):
        raise GdbextError(f"this gdb cannot set hardware breakpoints from Python (gdb 12 can), so {without}")


class FunctionBreakpoint(HardwareBreakpoint):
    """Stops at an instruction of C code, by a hardware breakpoint. `hit(first, second argument)` -> whether to stop."""

    def __init__(self, process: Process, symbol: str, owner: str, hit: Callable[[int, int], bool]) -> None:
        need_hardware_breakpoints()
        address = process.view.symbol(symbol, [process.rt.library])
        self.hit = hit
        super().__init__(process, Spot(address, 8, perf_breakpoints.EXECUTE), owner)
        if isinstance(self.by, Register):
            with live_gdb.selected(process.inferior):
                inferior_breakpoints.pin(self.by)

    def reached(self) -> bool:
        self.process.invalidate()
        return self.hit(*arguments(self.process.view, 2))


_dead: list[gdb.Breakpoint] = []
_notes: list[str] = []


def note(text: str) -> None:
    """Adds a line to the next stop's message."""
    _notes.append(text)


def notes() -> list[str]:
    """Returns the notes that were added since the last call."""
    found = list(_notes)
    _notes.clear()
    return found


def sweep(_: Any = None) -> None:
    """Deletes the breakpoints that have ended from gdb's own list. It must not run inside stop() or an event."""
    while _dead:
        breakpoint = _dead.pop()
        if breakpoint.is_valid():
            breakpoint.delete()
    kernel_events.sweep()
    protection.give_back(p.protection for p in Process.known.values())


def note_offset(stop: StopContext) -> None:
    """Records the byte offset of the instruction that is about to run.

    At a watched instruction the frame's own memory still names the previous one; readers of this stop take the recorded one
    (`Target.pending_offsets`)."""
    live_gdb.pending_offsets[(stop.process.pid, stop.frame.address)] = stop.frame.raw.lasti


def _on_cont(_: Any) -> None:
    live_gdb.pending_offsets.clear()
    _keep_group_stops()
    urgency.first(any(process.protection.armed for process in Process.known.values()))


def _on_stop(_: Any) -> None:
    urgency.first(False)
    _keep_group_stops()


def _keep_group_stops(_: Any = None) -> None:
    for process in Process.known.values():
        process.protection.keep()


def _on_exit(event: Any) -> None:
    process = Process.known.pop(event.inferior.num, None)
    if process is not None:
        process.gone()
        attached_processes.unguard_process(process.pid)


def _on_exec(event: Any) -> None:
    """Handles an exec, another program in the same process: gdb forgets the files, and our places are no longer valid."""
    for number, process in list(Process.known.items()):
        if process.inferior.is_valid() and process.inferior.progspace == event.progspace:
            del Process.known[number]
            process.gone()


def _on_prompt(_: object = None) -> None:
    urgency.first(False)
    sweep()


def _at_exit() -> None:
    """gdb 13 crashes where internal breakpoints made here outlive its Python."""
    for process in Process.known.values():
        process.disarmed()
        for breakpoint in list(process.hw_breakpoints):
            breakpoint.end()
    sweep()


atexit.register(_at_exit)
listen(
    gdb_exiting=_keep_group_stops,
    cont=_on_cont,
    stop=_on_stop,
    exited=_on_exit,
    clear_objfiles=_on_exec,
    before_prompt=_on_prompt,
)
