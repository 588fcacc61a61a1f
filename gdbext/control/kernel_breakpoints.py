"""Breakpoints at the launch of a kernel.

A kernel with symbols is watched where its own host code begins: nvcc's stub or the kernel's host function, one hidden breakpoint for each
template instance. When one is hit, the gate opens: the breakpoint on the launch function (cudaLaunchKernel and its kin), the one with a
number, where grid, stream and arguments stand. At all other times the gate is shut, so launches of other kernels cost nothing. Where a
kernel has no such code (launched through cudaLaunchKernelExC by address, stripped, or through the driver), the gate stays open and
every launch stops the process for a moment, to be looked at.

Nothing here calls gdb.execute from stop(): gdb 13 loses its event loop by that.
"""

import re
import struct
import time

import gdb

from ..access.cli_gdb import silently
from ..access.elf import open_elf
from ..access.unwind import MASK, NUMBERS
from ..cpython.expressions import evaluate
from ..errors import FaultError, GdbextError, NotFoundError
from ..kernels import catalogue, launch, signatures, triton
from . import inferior_breakpoints

MAX_DEVICE = 256  # breakpoints in device code, one for each template instance
MAX_STUBS = 6000  # hidden breakpoints; placing more takes seconds, and each stop puts all of them into the process

_watches = []
LOOK_AGAIN = 2.0  # seconds: how often at most Triton's own objects are read for a function that nobody knows
_names = {}  # (pid, handle) -> name, of functions that the driver handed out while we looked
_last = [None]  # (tid, watch, launch) of the last stop of ours


def current_registers(target):
    """{name: value} of the thread that gdb has selected, its program counter included."""
    frame = gdb.newest_frame()
    names = list(NUMBERS[target.arch]) + ["rip" if target.arch == "x86-64" else "pc"]
    return {name: int(frame.read_register(name)) & MASK for name in names}


def vector_register(arch):
    """-> a function from a number to the low 8 bytes of that vector register of the selected thread."""

    def read(index):
        try:
            value = gdb.newest_frame().read_register(f"xmm{index}" if arch == "x86-64" else f"v{index}")
            return struct.pack("<q", int((value["v2_int64"] if arch == "x86-64" else value["d"]["s"])[0]))
        except (gdb.error, ValueError):
            return None

    return read


def _tid():
    thread = gdb.selected_thread()
    return thread.ptid[1] or thread.ptid[2]


def dwarf_parameters(signature, function):
    """[(name, type, size)] of a kernel's parameters by the debug information that gdb has read for its host function; None without."""
    try:
        block = gdb.block_for_pc(function)
        while block is not None and block.function is None:
            block = block.superblock
        if block is None or block.start != function:
            return None
        found = [(s.name, str(s.type), s.type.sizeof) for s in block if s.is_argument]
    except (gdb.error, RuntimeError):
        return None
    kinds = signature.parameters if signature is not None else None
    if kinds is not None and len(kinds) != len(found):
        return None
    # typedefs and template parameters are resolved in the signature already
    return [(name, kinds[i] if kinds is not None else kind, size) for i, (name, kind, size) in enumerate(found)]


class InternalBreakpoint(gdb.Breakpoint):
    """A breakpoint of ours that gdb does not list."""

    def __init__(self, address, work):
        self.work = work
        super().__init__(f"*{address:#x}", internal=True)
        self.silent = True
        inferior_breakpoints.pin(self)

    def stop(self):
        self.work()
        return False


class LaunchBreakpoint(gdb.Breakpoint):
    """The breakpoint with a number: on a launch function, or on a plain function that is a kernel itself."""

    def __init__(self, watch, entry, address, library, symbol=""):
        self.watch, self.entry, self.library, self.symbol = watch, entry, library, symbol
        super().__init__(f"*{address:#x}")
        inferior_breakpoints.pin(self)

    def open(self, wanted):
        """Puts the breakpoint in or takes it out; its number stays, and stays enabled where gdb (13) can do that to a location."""
        places = inferior_breakpoints.locations_of(self)
        if places is None:
            self.enabled = wanted
        for place in places or ():
            place.enabled = wanted

    def stop(self):
        start = time.perf_counter()
        try:
            return self.watch.arrived(self, start)
        except (GdbextError, gdb.error) as e:
            gdb.write(f"llm-break: {str(e).strip()}; stopped to show it\n")
            return True
        finally:
            self.watch.spent += time.perf_counter() - start


class DeviceBreakpoint(gdb.Breakpoint):
    """cuda-gdb's own breakpoint in a kernel, by its whole name; it waits for the module that has it."""

    def __init__(self, watch, name, library):
        self.watch, self.name, self.library = watch, name, library
        super().__init__(name)


class KernelBreakpoint:
    """One llm-break. `gates`: breakpoints with numbers; `kernels`: rows it stops at; `by_name`: whether launches are told apart by name, the gate always
    open; `pending`: nothing of it is loaded yet; `looked`, `spent`, `nearest`: launches looked at, seconds in our hands and the
    smallest time from one look to the next: what a launch cost at most; `logged`: what -trace wrote."""

    def __init__(self, inferior, target_of, name, condition="", trace=0):
        """`target_of(inferior)`: the `Target` of the process that the inferior then is."""
        self.inferior, self.target_of, self.name, self.condition, self.trace = inferior, target_of, name, condition, trace
        self.gates, self.stubs, self.kernels, self.hosts, self.armed = [], [], [], {}, {}
        self.device = []  # `DeviceBreakpoint`, in cuda-gdb
        self.compiled, self._compiled_at = {}, -LOOK_AGAIN  # by Triton: {handle: `Compiled`}
        self.entries, self.seen, self.by_name, self.done = set(), set(), False, False
        self.looked = self.stopped = self.unnamed = 0
        self.spent, self.nearest, self._before = 0.0, None, None
        self.last_seen, self.logged, self._loader = {}, [], None
        self.rt = None
        self._in_stop = False
        self.naming, self.returns, self.returned = set(), {}, {}  # see _watch_names
        self.searched = inferior.pid or None  # the process that was looked through as a whole

    @property
    def target(self):
        return self.target_of(self.inferior)

    @property
    def pending(self):
        return not self.gates and not self.device

    # ---- finding places ------------------------------------------------------------------------------------------
    def place(self, rows, entries):
        """Sets what `catalogue.search` found; may be called again with what a new library brought."""
        rows = catalogue.chosen(rows, self.name)
        fresh = [r for r in rows if (r.library, r.module, r.name, r.kernel.backend) not in self.seen]
        self.seen.update((r.library, r.module, r.name, r.kernel.backend) for r in fresh)
        self.kernels += fresh
        launched = [r for r in fresh if r.kernel.launch == "runtime" and r.kernel.role != "launcher"]
        for row in fresh:
            for p in row.sites:
                if p.kind == "function" and not p.signature.clone:
                    self._gate("", p.address, row.library, p.symbol)
        places = {p.address: p for row in launched for p in row.sites}
        self.hosts.update({a: p.signature for a, p in places.items() if p.kind in ("wrapper", "registered")})
        self.by_name = (
            self.by_name
            or any(r.where != "host" for r in fresh)
            or len(places) > MAX_STUBS
            or any(r.kernel.within or _registered(r) for r in launched)
        )
        if len(places) <= MAX_STUBS:
            self.stubs += [InternalBreakpoint(a, lambda p=p: self._arm(p)) for a, p in places.items() if p.kind != "registered"]
        if self.kernels and any(r.kernel.launch != "cpu" and r.kernel.role != "launcher" for r in self.kernels):
            self._gates(entries)

    def place_in_device(self, rows):
        """In cuda-gdb: a breakpoint in each kernel itself, by the names that the host side has for the instances."""
        self.kernels = [r for r in catalogue.chosen(rows, self.name) if r.kernel.launch != "cpu" and r.kernel.role != "launcher"]
        names = dict.fromkeys((p.signature.text, r.library) for r in self.kernels for p in r.sites)
        names.update(dict.fromkeys((r.name, r.library) for r in self.kernels if not r.sites))
        if len(names) > MAX_DEVICE:
            raise GdbextError(
                f"{self.name} is {len(names)} kernels, more than {MAX_DEVICE} breakpoints: name the instance (llm-kernels -instances {self.name}), or "
                f"stop at the launch: llm-break -host {self.name}"
            )
        for name, library in names or [(self.name, "")]:
            self.device.append(silently(lambda name=name, library=library: DeviceBreakpoint(self, name, library)))

    def _gates(self, entries):
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
            self._gate(entry, address, library)
        if driver:  # or by name
            self._watch_names()
            if self.rt is not None:
                self.compiled, self._compiled_at = triton.compiled(self.rt), time.monotonic()
        for gate in self.gates:
            if gate.entry and not self.always(gate):
                gate.open(bool(self.armed))

    def _gate(self, *where):
        """Sets a breakpoint with a number; gdb's own message about it is swallowed, but inside stop()."""
        self.gates.append(LaunchBreakpoint(self, *where) if self._in_stop else silently(lambda: LaunchBreakpoint(self, *where)))

    def always(self, gate):
        """Whether every launch through a gate must be looked at."""
        return self.by_name or launch.is_driver(gate.entry) or "ExC" in gate.entry and bool(self.hosts)

    def _watch_names(self):
        """A handle says nothing: what a function is called, is learnt where it is registered or asked for by name."""
        for module in self.target.modules():
            try:
                if not catalogue.launches_kernels(module.elf) and not re.search(r"lib(cuda|amdhip64)\.so", module.name):
                    continue
                found = [(module.symbol(symbol), work) for symbol, work in _NAMING.items()]
            except NotFoundError:
                continue  # a mapped file that is no library
            for address, work in found:
                if address is not None and address not in self.naming:
                    self.naming.add(address)
                    self.stubs.append(InternalBreakpoint(address, lambda work=work: work(self)))

    def _now(self):
        """The registers of the thread that was stopped, and nothing remembered: no stop event tells the caches that the process ran on."""
        self.target.invalidate()
        return current_registers(self.target)

    def _argument(self, registers, index):
        return registers[(("rdi", "rsi", "rdx", "rcx") if self.target.arch == "x86-64" else ("x0", "x1", "x2", "x3"))[index]]

    def _registered(self):
        """__cudaRegisterFunction(handle, host function, …, device name, …), before main or at dlopen."""
        registers = self._now()
        text = self.target.cstring(self._argument(registers, 3), 4096)
        _names[self.inferior.pid, self._argument(registers, 1)] = text.decode("utf-8", "replace")

    def _handed_out(self):
        """__cudaGetKernel(&handle, host function): CUDA 13's stubs launch by the handle."""
        registers = self._now()
        name = _names.get((self.inferior.pid, self._argument(registers, 1)), "")
        if name:
            self._when_back(registers, self._argument(registers, 0), name)

    def _asked(self):
        """cuModuleGetFunction(&function, module, name) and its kin."""
        registers = self._now()
        text = self.target.cstring(self._argument(registers, 2), 4096)
        self._when_back(registers, self._argument(registers, 0), text.decode("utf-8", "replace"))

    def _entry_asked(self):
        """cuGetProcAddress(name, &function, …): a runtime gets the driver's functions so, and they need not be those that have symbols."""
        registers = self._now()
        name = self.target.cstring(self._argument(registers, 0), 256).decode("utf-8", "replace")
        if name in _NAMING or name in catalogue.DRIVER_ENTRIES:
            self._when_back(registers, self._argument(registers, 1), name, self._entry_handed_out)

    def _entry_handed_out(self, address, name):
        if name in _NAMING:
            if address not in self.naming:
                self.naming.add(address)
                self.stubs.append(InternalBreakpoint(address, lambda: _NAMING[name](self)))
        elif address not in self.entries:
            self.entries.add(address)
            launch.handed_out[self.inferior.pid, address] = name
            module = self.target.module_at(address)
            self._in_stop = True
            try:
                self._gate(name, address, module.path if module is not None else "")
            finally:
                self._in_stop = False

    def _named(self, handle, name):
        _names[self.inferior.pid, handle] = name

    def _when_back(self, registers, slot, name, then=None):
        """A call that fills `slot` has begun: what is in it when the call returns is called `name`; `then(what is in it, name)` deals with it."""
        waiting = self.returns.setdefault(launch.return_address(self.target, registers), {})
        if not waiting:
            address = launch.return_address(self.target, registers)
            hidden = self.returned.get(address)
            if hidden is None:
                hidden = self.returned[address] = InternalBreakpoint(address, lambda: self._back(address))
                self.stubs.append(hidden)
            hidden.enabled = True
        waiting[_tid()] = slot, name, then or self._named

    def _back(self, address):
        self.target.invalidate()
        waiting = self.returns.get(address, {})
        found = waiting.pop(_tid(), None)
        if found is not None:
            try:
                value = self.target.u64(found[0])
            except FaultError:
                value = 0  # the call refused its own argument
            if value:
                found[2](value, found[1])
        if not waiting:
            self.returned[address].enabled = False

    # ---- while it runs -------------------------------------------------------------------------------------------
    def _mine(self):
        return gdb.selected_inferior().num == self.inferior.num

    def _arm(self, place):
        if not self._mine():
            return
        registers = self._now()
        self.armed[_tid()] = registers["rsp" if self.target.arch == "x86-64" else "sp"], place.signature
        self._shut(False)

    def _shut(self, wanted):
        for gate in self.gates:
            if gate.is_valid() and gate.entry and not self.always(gate):
                gate.open(not wanted)

    def arrived(self, gate, start):
        """A gate was reached. -> whether to stop."""
        if not self._mine() or self.done:
            return False
        self.looked += 1
        if self._before is not None:
            self.nearest = min(self.nearest or 1e9, start - self._before)
        self._before = start
        registers, tid = self._now(), _tid()
        if gate.entry:
            found = self._launch(gate, registers, tid)
        else:
            found = launch.decode_call(self.target, gate.symbol, registers, vector_register(self.target.arch))
        if found is None or self.condition and not holds(self.condition, found):
            return False
        if self.trace:
            self.logged.append(found)
            gdb.write(f"[{len(self.logged)}] {line_of(found)}\n")
            if len(self.logged) >= self.trace:
                self.done = True
                self.disable()
            return False
        if not gate.ignore_count:  # gdb counts those down itself
            self.stopped += 1
            _last[0] = tid, self, found
        return True

    def _launch(self, gate, registers, tid):
        """The `Launch` where it is one that this watch is for."""
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
        name, parameters = "", None
        if signature is None and self.by_name or signature is None and launch.is_driver(gate.entry):
            name = _names.get((self.inferior.pid, function), "")
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
        self.last_seen[tid] = sp, launch.return_address(self.target, registers), gate, registers
        return launch.decode(self.target, gate.entry, registers, signature, parameters)

    def _within(self, gate, tid, sp, registers):
        """Whether this is the same launch again, further in: the runtime passes it to the driver, an exported function jumps to the real one."""
        seen = self.last_seen.get(tid)
        if seen is None or sp > seen[0] or self.target.arch != "x86-64":
            return False
        if sp == seen[0] and (
            gate is seen[2] or any(registers[r] != seen[3][r] for r in ("rdi", "rsi", "rdx", "rcx", "r8", "r9"))
        ):
            return False  # one after the other, from the same place
        try:
            return self.target.u64(seen[0]) == seen[1]
        except FaultError:
            return False

    def _host(self, function, registers):
        known = self.inferior.pid, function
        if known not in _names:
            found = launch.signature_at(self.target, function, registers)
            _names[known] = found.text if found is not None else ""
        return signatures.parse(_names[known]) if _names[known] else None

    def _by_triton(self, function, name):
        """What Triton's own objects say of a function: also of those that were loaded before we looked."""
        if self.rt is None:
            return None
        if (
            function not in self.compiled
            and not (name and not self._may_fit(name))
            and time.monotonic() - self._compiled_at > LOOK_AGAIN
        ):
            self.compiled, self._compiled_at = triton.compiled(self.rt), time.monotonic()
        return self.compiled.get(function)

    def _may_fit(self, name):
        return self._fits(signatures.parse(name))

    def _fits(self, signature):
        rows = [r for r in self.kernels if r.where != "host" or r.kernel.within or _registered(r) or len(self.hosts) > MAX_STUBS]
        if any(r.kernel.fits(signature) or r.kernel.kernel == signature.base for r in rows):
            return True
        book = catalogue.catalogue()
        if self.name == catalogue.PAGED:
            return any(k.role == "attention" for k in book.named(signature.base))
        return signature.base == self.name

    # ---- libraries that come later -------------------------------------------------------------------------------
    def wait_for_libraries(self):
        """Where gdb itself reads no symbols of new libraries, it tells nobody of them: the loader's own hook does."""
        if self._loader is not None or gdb.parameter("auto-solib-add"):
            return
        try:
            at = self.target.symbol("_r_debug")
            address = self.target.u64(at + 16)
        except GdbextError:
            return

        def called():
            self.target.invalidate()
            if self.target.u32(at + 24) == 0:  # RT_CONSISTENT: the list of libraries is whole again
                self._in_stop = True
                try:
                    self.refresh()
                finally:
                    self._in_stop = False

        self._loader = InternalBreakpoint(address, called)
        self.stubs.append(self._loader)

    def refresh(self):
        """Looks through what is loaded now; files that were looked through before cost nothing."""
        self.target.invalidate()
        rows, entries, _ = catalogue.search(self.target, None, self.rt, word_of(self.name))
        had = len(self.gates)
        self.place(rows, entries)
        if len(self.gates) > had:
            gdb.write(f"llm-break: {self.name}: now set: " + ", ".join(str(g.number) for g in self.gates[had:]) + "\n")

    # ---- its end -------------------------------------------------------------------------------------------------
    def disable(self):
        for b in self.gates + self.stubs + self.device:
            if b.is_valid():
                b.enabled = False

    def delete(self):
        for b in self.gates + self.stubs + self.device:
            if b.is_valid():
                b.delete()
        if self in _watches:
            _watches.remove(self)

    def forget_process(self):
        """The process is gone: its addresses mean nothing any more."""
        old = self.gates + self.stubs
        self.gates, self.stubs, self.kernels, self.hosts, self.armed = [], [], [], {}, {}
        for b in old:
            if b.is_valid():
                b.delete()
        self.entries, self.seen, self.last_seen, self._loader = set(), set(), {}, None
        self.naming, self.returns, self.returned = set(), {}, {}

    def cost(self):
        """What looking at launches cost so far, as data."""
        each = self.spent / self.looked if self.looked else None
        return {
            "launches_looked_at": self.looked,
            "seconds_each": each,
            "seconds_each_at_most": self.nearest,
            "stops": self.stopped,
            "unnamed": self.unnamed,
        }


_NAMING = {
    "cuGetProcAddress": KernelBreakpoint._entry_asked,
    "cuGetProcAddress_v2": KernelBreakpoint._entry_asked,
    "cuModuleGetFunction": KernelBreakpoint._asked,
    "cuLibraryGetKernel": KernelBreakpoint._asked,
    "cuLibraryGetFunction": KernelBreakpoint._asked,
    "hipModuleGetFunction": KernelBreakpoint._asked,
    "__cudaRegisterFunction": KernelBreakpoint._registered,
    "__hipRegisterFunction": KernelBreakpoint._registered,
    "__cudaGetKernel": KernelBreakpoint._handed_out,
}


def _registered(row):
    """Whether a row is of a stripped library: its launching code has no names to stop at."""
    return any(p.kind == "registered" for p in row.sites)


def word_of(name):
    """The identifier in a NAME, '' where it has none of its own."""
    last = name.rpartition("::")[2]
    return last if re.fullmatch(r"[A-Za-z_]\w*", last) and name != catalogue.PAGED else ""


def holds(condition, found):
    """Whether a launch fits a condition on grid, block, cluster (zeros without one), name, stream, shared_bytes, args[i] and arguments by name."""
    if found.grid is None and re.search(r"\b(grid|block|cluster)\.[xyz]", condition):
        raise GdbextError(
            f"cannot evaluate {condition!r}: {found.base} is a function of the CPU and has no grid; name and args[i] are known of it"
        )
    names = {
        "grid": found.grid,
        "block": found.block,
        "cluster": found.cluster or (0, 0, 0),
        "name": found.name,
        "stream": found.stream,
        "shared_bytes": found.shared_bytes,
        "args": [a.value for a in found.arguments],
    }
    names.update({a.name: a.value for a in found.arguments if a.name and a.name not in names})
    return bool(evaluate(None, prepared(condition), names=names))


def prepared(condition):
    """`grid.x` as people write it -> `grid[0]`."""
    return re.sub(r"\b(grid|block|cluster)\.([xyz])\b", lambda m: f"{m.group(1)}[{'xyz'.index(m.group(2))}]", condition)


def line_of(found):
    """A launch in one line."""
    text = signatures.names.short(found.name) if found.name else f"function {found.function:#x}"
    if found.grid is not None:
        text += "  grid {} block {}".format(*("({},{},{})".format(*t) for t in (found.grid, found.block)))
        text += (
            " cluster ({},{},{})".format(*found.cluster) if found.cluster else ""
        ) + f" shared {found.shared_bytes} stream {found.stream:#x}"
    return text


def watches():
    return list(_watches)


def add(watch):
    _watches.append(watch)
    _listen()


def last_stop():
    """The `Launch` that the selected thread was stopped at by us, while it still stands there; None."""
    if _last[0] is None or gdb.selected_thread() is None or _last[0][0] != _tid():
        return None
    return _last[0][2]


_listening = []


def _listen():
    if _listening:
        return
    _listening.append(True)

    def gone(event):
        inferior = getattr(event, "inferior", None)
        for watch in _watches:
            if inferior is None or inferior.num == watch.inferior.num:
                watch.forget_process()

    def deleted(breakpoint):
        for watch in list(_watches):
            if breakpoint in watch.gates:
                watch.gates.remove(breakpoint)
                if not watch.gates:
                    watch.delete()

    def loaded(event):
        for watch in _watches:
            if watch.inferior.is_valid() and watch.inferior.pid and watch.inferior.progspace == event.new_objfile.progspace:
                _library(watch, event.new_objfile.filename)

    def another(event):
        # Detached and attached to another process: gdb tells of its threads, and would put the old addresses into it.
        inferior = getattr(event, "inferior_thread", None) and event.inferior_thread.inferior
        for watch in _watches:
            if (
                inferior is not None
                and inferior.num == watch.inferior.num
                and watch.searched is not None
                and inferior.pid not in (0, watch.searched)
            ):
                watch.forget_process()
                watch.searched = None

    gdb.events.exited.connect(gone)
    if hasattr(gdb.events, "new_thread"):
        gdb.events.new_thread.connect(another)
    gdb.events.new_objfile.connect(loaded)
    if hasattr(gdb.events, "breakpoint_deleted"):
        gdb.events.breakpoint_deleted.connect(deleted)


def _library(watch, path):
    """A library came: only it is looked through, and everything only if there is something in it for us."""
    try:
        found = open_elf(path or "")
        first, watch.searched = watch.searched != watch.inferior.pid, watch.inferior.pid
        if not first and not (
            catalogue.chosen(catalogue.scan_library(found, path, 0, None, word_of(watch.name)), watch.name)
            or watch.kernels
            and found.symbols_named([b"LaunchKernel"])
        ):
            return
        watch.refresh()
    except (GdbextError, gdb.error):
        return  # not a file of the process (the vdso), or it is not mapped yet: gdb tells of it again
