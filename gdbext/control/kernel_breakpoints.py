"""Breakpoints at the launch of a kernel. stop() never calls gdb.execute here: gdb 13 loses its event loop by that.

A kernel with symbols is watched where its own host code begins: nvcc's stub or the kernel's host function, one internal
breakpoint for each template instance. A hit opens the launch breakpoints: those on the launch functions (cudaLaunchKernel and
similar). They have numbers, and there grid, stream and arguments can be read. At all other times they are shut, so launches of
other kernels cost nothing. Kernels that are stripped, or launched by address through cudaLaunchKernelExC or through the driver,
have no such code. For them the launch breakpoints stay open, and every launch stops the process for a moment to be examined.
"""

from __future__ import annotations

import functools
import re
import time
from typing import TYPE_CHECKING, Any, Callable, Sequence, Tuple

import gdb

from .. import log
from ..access.cli_gdb import silently
from ..access.elf import open_elf
from ..cpython.runtime import Runtime, open_runtime
from ..errors import FaultError, GdbextError
from ..kernels import catalogue, launch, signatures, triton
from ..kernels.launch import Launch
from ..kernels.watched import LAUNCHES
from .driver_names import DriverNames, handle_names
from .events import listen
from .gdb_state import say
from .launch_breakpoints import DeviceBreakpoint, InternalBreakpoint, LaunchBreakpoint
from .launch_conditions import holds, line_of, word_of
from .registers import current_registers, dwarf_parameters, selected_tid, vector_register

if TYPE_CHECKING:
    from ..access.base import Target
    from ..kernels.parameters import Parameter
Entry = Tuple[str, int, str]  # a launch function, its address, its library

MAX_INTERNAL = 6000  # internal breakpoints; placing more takes seconds, and each stop puts all of them into the process
LOOK_AGAIN = 2.0  # seconds between two reads of Triton's own objects for an unknown function

# The libraries loaded when Triton's kernels are launched: the driver, and the launcher that Triton builds for each kernel.
_DRIVER = re.compile(r"lib(cuda|amdhip64)\.so|triton[^/]*\.so")


class _State:
    breakpoints: list[KernelBreakpoint] = []
    last: tuple[int, KernelBreakpoint, Launch] | None = None  # of the last stop of ours; the first is a tid
    gone: list[gdb.Breakpoint] = []  # breakpoints of gdb that belonged to one the user has deleted


class KernelBreakpoint:
    """One llm-break. `numbered`: its `LaunchBreakpoint`s. `kernels`: the catalogue's rows that it stops at. `by_name`: only the
    name distinguishes launches, so every launch is examined. `pending`: none of its kernels is loaded yet. `looked`: number of
    launches examined; `spent`: seconds spent in stop(); `nearest`: the smallest time between two. `logged`: launches that -trace
    wrote."""

    def __init__(
        self, inferior: gdb.Inferior, target_of: Callable[[gdb.Inferior], Target], name: str, condition: str = "", trace: int = 0
    ) -> None:
        """`target_of(inferior)`: the `Target` of the process that the inferior then is."""
        self.inferior, self.target_of, self.name, self.condition, self.trace = inferior, target_of, name, condition, trace
        self.numbered: list[LaunchBreakpoint] = []
        self.internal: list[InternalBreakpoint] = []
        self.device: list[DeviceBreakpoint] = []  # in cuda-gdb
        self.kernels: list[catalogue.Row] = []
        self.hosts: dict[int, signatures.Signature] = {}  # by address
        self.armed: dict[int, tuple[int, signatures.Signature]] = {}  # by tid: stack pointer, its next launch
        self.compiled: dict[int, triton.Compiled] = {}  # by handle
        self._compiled_at = -LOOK_AGAIN
        self.entries: set[int] = set()  # addresses
        self.seen: set[tuple[str, str, str, str]] = set()  # library, module, name, backend of a row
        self.by_name = self.done = False
        self.looked = self.stopped = self.unnamed = 0
        self.spent = 0.0
        self.nearest: float | None = None
        self._before: float | None = None
        # by tid: stack pointer, return address, breakpoint and registers of the last launch examined
        self.last_seen: dict[int, tuple[int, int, LaunchBreakpoint, dict[str, int]]] = {}
        self.logged: list[Launch] = []
        self._loader: InternalBreakpoint | None = None
        self.rt: Runtime | None = None
        self.inlined: set[str] = set()  # signatures of kernels that are known from the launch alone
        self._named: dict[str, list[Parameter] | None] = {}
        self._in_stop = False
        self.names = DriverNames(self, self._entry_found)
        self.searched = inferior.pid or None  # the process that was searched as a whole

    @property
    def target(self) -> Target:
        return self.target_of(self.inferior)

    @property
    def pending(self) -> bool:
        return not self.numbered and not self.device

    @property
    def may_be_triton(self) -> bool:
        """Whether kernels of Triton match its name: no library holds those, the driver launches them."""
        return any(k.launch == "driver" and self.name in (catalogue.PAGED, k.kernel) for k in catalogue.catalogue().kernels)

    # ---- finding places ------------------------------------------------------------------------------------------
    def place(self, rows: Sequence[catalogue.Row], entries: Sequence[Entry]) -> None:
        """Sets breakpoints on the results of `catalogue.search`; it may be called again with the kernels of a new library."""
        rows = catalogue.chosen(rows, self.name)
        fresh = [r for r in rows if (r.library, r.module, r.name, r.kernel.backend) not in self.seen]
        self.seen.update((r.library, r.module, r.name, r.kernel.backend) for r in fresh)
        self.kernels += fresh
        launched = [r for r in fresh if r.kernel.launch == "runtime" and r.kernel.role != "launcher"]
        for row in fresh:
            for p in row.sites:
                if p.kind == "function" and not p.signature.clone:
                    self._set_launch("", p.address, row.library, p.symbol)
        places = {p.address: p for row in launched for p in row.sites}
        self.hosts.update({a: p.signature for a, p in places.items() if p.kind in ("wrapper", "registered")})
        inlined: set[str] = set().union(*(row.inlined for row in launched))
        self.inlined |= inlined
        places = {a: p for a, p in places.items() if p.signature.text not in inlined}
        self.by_name = (
            self.by_name
            or bool(inlined)
            or any(r.where != "host" for r in fresh)
            or len(places) > MAX_INTERNAL
            or any(r.kernel.within or _registered(r) for r in launched)
        )
        if len(places) <= MAX_INTERNAL:
            self.internal += [
                InternalBreakpoint(a, functools.partial(self._arm, p)) for a, p in places.items() if p.kind != "registered"
            ]
        if self.kernels and any(r.kernel.launch != "cpu" and r.kernel.role != "launcher" for r in self.kernels):
            self._set_launches(entries)

    def _set_launches(self, entries: Sequence[Entry]) -> None:
        """Launch breakpoints on the launch functions that these kernels can go through."""
        driver = any(r.kernel.launch == "driver" for r in self.kernels) or self.by_name
        books = {r.library: open_elf(self.target.local_file(r.library)) for r in self.kernels if r.library}
        for entry, address, library in entries:
            if address in self.entries or launch.is_driver(entry) and not driver:
                continue
            if not launch.is_driver(entry) and not any(catalogue.passes(book, entry) for book in books.values()):
                continue
            if library not in books and not catalogue.exports(open_elf(self.target.local_file(library)), entry):
                continue
            self.entries.add(address)
            self._set_launch(entry, address, library)
        if driver:  # or by name
            self.names.watch()
            if self.rt is not None:
                self.compiled, self._compiled_at = triton.compiled(self.rt), time.monotonic()
        for gate in self.numbered:
            if gate.entry and not self.always(gate):
                gate.open(bool(self.armed))

    def _set_launch(self, entry: str, address: int, library: str, symbol: str = "") -> None:
        """Sets a breakpoint with a number. Its parameters are those of `LaunchBreakpoint`. gdb's own message about it is
        swallowed, except inside stop()."""
        if entry:
            LAUNCHES[self.inferior.pid, address] = entry
        make = functools.partial(LaunchBreakpoint, self, entry, address, library, symbol)
        self.numbered.append(make() if self._in_stop else silently(make))

    def always(self, gate: LaunchBreakpoint) -> bool:
        """Whether every launch through it must be examined."""
        return self.by_name or launch.is_driver(gate.entry) or "ExC" in gate.entry and bool(self.hosts)

    def _entry_found(self, address: int, name: str) -> None:
        """Handles a launch function that a runtime requested from the driver: the launches go through that one. Inside stop()."""
        if address in self.entries:
            return
        self.entries.add(address)
        module = self.target.module_at(address)
        self._in_stop = True
        try:
            self._set_launch(name, address, module.path if module is not None else "")
        finally:
            self._in_stop = False

    # ---- while it runs -------------------------------------------------------------------------------------------
    def now(self) -> dict[str, int]:
        """The registers of the stopped thread. They are read anew each time: inside stop() no event informs the caches that the
        process has run."""
        self.target.invalidate()
        return current_registers(self.target)

    def _mine(self) -> bool:
        return gdb.selected_inferior().num == self.inferior.num

    def _arm(self, site: catalogue.BreakpointSite) -> None:
        """A kernel's own host code was entered: the next launch of this thread is one of this kernel."""
        if not self._mine():
            return
        registers = self.now()
        self.armed[selected_tid()] = registers["rsp" if self.target.arch == "x86-64" else "sp"], site.signature
        self._shut(False)

    def _shut(self, wanted: bool) -> None:
        for gate in self.numbered:
            if gate.is_valid() and gate.entry and not self.always(gate):
                gate.open(not wanted)

    def reached(self, gate: LaunchBreakpoint, start: float) -> bool:
        """A launch breakpoint was reached, at `start` of time.perf_counter. -> whether to stop."""
        if not self._mine() or self.done:
            return False
        self.looked += 1
        if self._before is not None:
            self.nearest = min(self.nearest or 1e9, start - self._before)
        self._before = start
        registers, tid = self.now(), selected_tid()
        if gate.entry:
            found = self._launch(gate, registers, tid)
        else:
            found = launch.decode_call(self.target, gate.symbol, registers, vector_register(self.target.arch))
        if found is None or self.condition and not holds(self.condition, found):
            return False
        if self.trace:
            self.logged.append(found)
            say(f"[{len(self.logged)}] {line_of(found)}")
            if len(self.logged) >= self.trace:
                self.done = True
                self.disable()
                say(f"llm-break {self.name}: over after {self.trace} launches; the process runs on (Ctrl-C stops it)")
            return False
        if not gate.ignore_count:  # gdb counts those down itself
            self.stopped += 1
            _State.last = tid, self, found
        return True

    def _launch(self, gate: LaunchBreakpoint, registers: dict[str, int], tid: int) -> Launch | None:
        """The `Launch` where it is of a kernel that this breakpoint is for."""
        sp = registers["rsp" if self.target.arch == "x86-64" else "sp"]
        function = launch.function_of(self.target, gate.entry, registers)
        armed = self.armed.pop(tid, None)
        signature = self.hosts.get(function)
        if signature is None and armed is not None and sp <= armed[0]:  # a higher one: the stub has returned without a launch
            signature = armed[1]
        if not self.armed:
            self._shut(True)
        if self._within(gate, tid, sp, registers):
            return None
        parameters: Sequence[Parameter] | None = None
        if signature is None and self.by_name or signature is None and launch.is_driver(gate.entry):
            name = handle_names.get((self.inferior.pid, function), "")
            own = self._by_triton(function, name) if launch.is_driver(gate.entry) else None
            if own is not None:
                signature, parameters = own.signature, own.parameters
            else:
                signature = signatures.parse(name) if name else self._host(function, registers)
            if signature is None:
                self.unnamed += 1
                return None
            if not self._fits(signature):
                return None
        if signature is None:
            return None
        if parameters is None:
            parameters = self._parameters(signature, function)
        self.last_seen[tid] = sp, launch.return_address(self.target, registers), gate, registers
        return launch.decode(self.target, gate.entry, registers, signature, parameters)

    def _parameters(self, signature: signatures.Signature, function: int) -> Sequence[Parameter] | None:
        """A kernel's parameters by debug information, read once for each kernel: a condition may name them."""
        if signature.text not in self._named:
            self._named[signature.text] = dwarf_parameters(signature, function, self.hosts)
        return self._named[signature.text]

    def _within(self, gate: LaunchBreakpoint, tid: int, sp: int, registers: dict[str, int]) -> bool:
        """Whether this is the same launch, one call further in: the runtime passes it to the driver, an exported function jumps
        to the real one."""
        seen = self.last_seen.get(tid)
        if seen is None or sp > seen[0] or self.target.arch != "x86-64":
            return False
        if sp == seen[0] and (
            gate is seen[2] or any(registers[r] != seen[3][r] for r in ("rdi", "rsi", "rdx", "rcx", "r8", "r9"))
        ):
            return False  # one after the other, from the same place
        try:
            return self.target.u64(seen[0]) == seen[1]
        except FaultError as e:
            log.passed_over(e)
            return False

    def _host(self, function: int, registers: dict[str, int]) -> signatures.Signature | None:
        known = self.inferior.pid, function
        if known not in handle_names:
            found = launch.signature_at(self.target, function, registers)
            handle_names[known] = found.text if found is not None else ""
        return signatures.parse(handle_names[known]) if handle_names[known] else None

    def _by_triton(self, function: int, name: str) -> triton.Compiled | None:
        """The data of Triton's own objects about a function, also about functions that were loaded earlier."""
        if self.rt is None:
            return None
        if (
            function not in self.compiled
            and not (name and not self._fits(signatures.parse(name)))
            and time.monotonic() - self._compiled_at > LOOK_AGAIN
        ):
            self.compiled, self._compiled_at = triton.compiled(self.rt), time.monotonic()
        return self.compiled.get(function)

    def _fits(self, signature: signatures.Signature) -> bool:
        """Whether a launched kernel is one of its own; Triton 2's names contain the specialisation too (`NAME_0d1d2c`)."""
        return self._is_wanted(signature) or (
            triton.without_suffix(signature.base) != signature.base
            and self._is_wanted(signatures.parse(triton.without_suffix(signature.base)))
        )

    def _is_wanted(self, signature: signatures.Signature) -> bool:
        rows = [
            r for r in self.kernels if r.where != "host" or r.kernel.within or _registered(r) or len(self.hosts) > MAX_INTERNAL
        ]
        if any(r.kernel.fits(signature) or r.kernel.kernel == signature.base for r in rows):
            return True
        if signature.text in self.inlined:
            return True
        book = catalogue.catalogue()
        if self.name == catalogue.PAGED:
            return any(k.role == "attention" for k in book.named(signature.base))
        return signature.base == self.name

    # ---- libraries that come later -------------------------------------------------------------------------------
    def wait_for_libraries(self) -> None:
        """Sets a breakpoint on the dynamic loader's own hook, for a gdb that reports no new libraries as it reads no symbols."""
        if self._loader is not None or gdb.parameter("auto-solib-add"):
            return
        try:
            at = self.target.symbol("_r_debug")
            address = self.target.u64(at + 16)
        except GdbextError as e:
            log.passed_over(e)
            return

        def called() -> None:
            self.target.invalidate()
            if self.target.u32(at + 24) == 0:  # RT_CONSISTENT: the list of libraries is whole again
                self._in_stop = True
                try:
                    self.refresh()
                finally:
                    self._in_stop = False

        self._loader = InternalBreakpoint(address, called)
        self.internal.append(self._loader)

    def refresh(self) -> None:
        """Searches the libraries that are loaded now for its kernels. Libraries that were searched before cost nothing."""
        self.target.invalidate()
        if self.rt is None:
            self.rt = runtime_or_none(self.target)  # set before the process ran Python
        rows, entries, _ = catalogue.search(self.target, None, self.rt, word_of(self.name))
        had = len(self.numbered)
        self.place(rows, entries)
        if len(self.numbered) > had:
            say(f"llm-break: {self.name}: now set: " + ", ".join(str(g.number) for g in self.numbered[had:]))

    # ---- its end -------------------------------------------------------------------------------------------------
    def _all(self) -> list[gdb.Breakpoint]:
        return [b for b in (*self.numbered, *self.internal, *self.device) if b.is_valid()]

    def disable(self) -> None:
        for b in self._all():
            b.enabled = False

    def delete(self) -> None:
        for b in self._all():
            b.delete()
        if self in _State.breakpoints:
            _State.breakpoints.remove(self)

    def forget_process(self) -> None:
        """Drops all addresses of a process that is gone."""
        old: list[gdb.Breakpoint] = [*self.numbered, *self.internal]
        self.numbered, self.internal, self.kernels, self.hosts, self.armed = [], [], [], {}, {}
        for b in old:
            if b.is_valid():
                b.delete()
        self.entries, self.seen, self.last_seen, self._loader = set(), set(), {}, None
        self.names = DriverNames(self, self._entry_found)

    def cost(self) -> dict[str, Any]:
        """The cost of examining launches so far, as data."""
        each = self.spent / self.looked if self.looked else None
        return {
            "launches_looked_at": self.looked,
            "seconds_each": each,
            "seconds_each_at_most": self.nearest,
            "stops": self.stopped,
            "unnamed": self.unnamed,
        }


def _registered(row: catalogue.Row) -> bool:
    """Whether a row is of a stripped library: its launching code has no names to stop at."""
    return any(p.kind == "registered" for p in row.sites)


def runtime_or_none(target: Target) -> Runtime | None:
    """The process's Python; None where it has none (yet), and so no Triton either."""
    try:
        return open_runtime(target)
    except GdbextError as e:
        log.passed_over(e)
        return None


def breakpoints() -> list[KernelBreakpoint]:
    """The kernel breakpoints that are set."""
    return list(_State.breakpoints)


def add(breakpoint: KernelBreakpoint) -> None:
    """Registers a breakpoint for the events of its process: new libraries, its end, another process in the same inferior."""
    sweep()
    _State.breakpoints.append(breakpoint)
    listen(
        exited=_on_exit,
        new_thread=_on_thread,
        new_objfile=_on_library,
        breakpoint_deleted=_on_deleted,
        before_prompt=sweep,
    )


def last_stop() -> Launch | None:
    """The `Launch` at which one of them stopped the selected thread, as long as the thread stays there."""
    if _State.last is None or gdb.selected_thread() is None or _State.last[0] != selected_tid():
        return None
    return _State.last[2]


def _on_exit(event: Any) -> None:
    inferior = getattr(event, "inferior", None)
    for one in _State.breakpoints:
        if inferior is None or inferior.num == one.inferior.num:
            one.forget_process()


def _on_deleted(breakpoint: gdb.Breakpoint) -> None:
    for one in list(_State.breakpoints):
        if breakpoint in one.numbered:
            one.numbered.remove(breakpoint)
            if not one.numbered:
                _State.breakpoints.remove(one)
                one.disable()
                _State.gone += [*one.internal, *one.device]  # gdb walks its list now: it would go on at a deleted one, and crash


def sweep(_: Any = None) -> None:
    """Deletes the parts of breakpoints that the user has deleted. It must not run inside gdb's own event of a deletion."""
    while _State.gone:
        breakpoint = _State.gone.pop()
        if breakpoint.is_valid():
            breakpoint.delete()


def _on_library(event: Any) -> None:
    for one in _State.breakpoints:
        if one.inferior.is_valid() and one.inferior.pid and one.inferior.progspace == event.new_objfile.progspace:
            _look_through(one, event.new_objfile.filename)


def _on_thread(event: Any) -> None:
    """Handles a process that is new in an inferior: gdb reports its threads, and would put the old addresses into it."""
    inferior = getattr(event, "inferior_thread", None) and event.inferior_thread.inferior
    for one in _State.breakpoints:
        if (
            inferior is not None
            and inferior.num == one.inferior.num
            and one.searched is not None
            and inferior.pid not in (0, one.searched)
        ):
            one.forget_process()
            one.searched = None


def _look_through(one: KernelBreakpoint, path: str | None) -> None:
    """Searches a new library, and all libraries only if the new one holds something for this breakpoint. Breakpoints in the
    kernels themselves need no search: cuda-gdb places them when the device gets its code."""
    if one.device:
        return
    try:
        found = open_elf(path or "")
        first, one.searched = one.searched != one.inferior.pid, one.inferior.pid
        if not first and not (
            catalogue.chosen(catalogue.scan_library(found, path or "", 0, None, word_of(one.name)), one.name)
            or one.kernels
            and found.symbols_named([b"LaunchKernel"])
            or one.may_be_triton
            and _DRIVER.search(path or "")
        ):
            return
        one.refresh()
    except (GdbextError, gdb.error) as e:
        log.passed_over(e)
        return  # not a file of the process (the vdso), or it is not mapped yet: gdb reports it again
