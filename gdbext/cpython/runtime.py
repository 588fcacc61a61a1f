"""A CPython interpreter inside a Target: found, its version known, its layout proved, its threads, frames and modules listed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..access.proc import read_maps, read_proc
from ..access.retry import retry, retry_reading
from ..errors import FaultError, GdbextError, LayoutError, NotFoundError
from . import dialects, stdlib_reprs, stdlib_types, thirdparty  # noqa: F401  (the last three register what they know)
from . import layout as layouts
from .frames import Code, PyFrame
from .objects import Object
from .types import MAX_NAME, TypeInfo

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..access.base import Target
    from ..access.model import Module

MAX_INTERPRETERS = 1000
FRAME_SECONDS = 0.1  # for which the stack of a thread that runs on is read again, until it holds together
PF_EXITING = 4  # include/linux/sched.h, in the ninth field of /proc/PID/stat
# glibc's struct pthread: the tid (nptl/descr.h); proved against the thread list before use
PTHREAD_TID = {"x86-64": 720, "aarch64": 208}


class PyThread:
    """A Python thread state: its `address`, native `tid` (0: not to be found) and `interp`reter's address."""

    def __init__(self, address: int, tid: int, interp: int) -> None:
        self.address, self.tid, self.interp = address, tid, interp

    def __repr__(self) -> str:
        return f"PyThread(tid={self.tid}, {self.address:#x})"


def open_runtime(target: Target) -> Runtime:
    """The `Runtime` of a Target, once per epoch. `GdbextError` when it runs no CPython that is known here; `NotFoundError` when
    the process has ended."""
    try:
        found: Runtime = target.cached("cpython runtime", lambda: Runtime(target))
        return found
    except GdbextError:
        if _has_ended(target):
            raise NotFoundError(f"{target.describe()} has ended: nothing of it can be read any more") from None
        raise


def _has_ended(target: Target) -> bool:
    """Whether a process that runs on has no memory any more: what is read of it then means nothing."""
    if not target.is_live or target.is_stopped or not target.pid:
        return False
    try:
        words = read_proc(target.pid, "stat").rpartition(b")")[2].split()
        if words[0] not in (b"Z", b"X") and not int(words[6]) & PF_EXITING:
            return False
    except NotFoundError:
        return True
    except (GdbextError, ValueError, IndexError):
        return False
    try:
        read_maps(target.pid)  # where only the main thread has ended, the others' memory is there
        return False
    except GdbextError:
        return True


class _Listed:
    """sys.modules as it was read: `pairs`: [(address of a name, of a module)], the same `by_length` of the name; `found`: {name
    that was looked for: its pair, none or one}."""

    def __init__(self, pairs: list[tuple[int, int]]) -> None:
        self.pairs = pairs
        self.by_length: dict[int, list[tuple[int, int]]] = {}
        self.found: dict[str, list[tuple[int, int]]] = {}


class Runtime:
    """See the module's docstring. Everything read is cached until the target's epoch ends."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.address, self.library = _find_runtime(target)  # of _PyRuntime; the `Module` that holds the interpreter
        self.version, free_threaded = _version(target, self.address, self.library)
        self.layout = layouts.from_process(target, self.address, self.version, free_threaded)
        self.dialect = dialects.for_version(self.version, free_threaded)
        self._types: dict[int, TypeInfo] = {}
        self._codes: dict[int, Code] = {}
        self._prove()

    def invalidate(self) -> None:
        """Drops the types and code objects that were read: the process has run since, and may have freed them."""
        self._types.clear()
        self._codes.clear()

    # ---- proof ---------------------------------------------------------------------------------------------------
    def _prove(self) -> None:
        """The layout must fit this process: interpreter and thread point at each other, a code object's type is a type."""
        L, t = self.layout, self.target
        heads = self.interpreters()
        if not heads:
            raise GdbextError(f"{t.describe()}: its Python has no interpreter: it is just starting or ending")
        try:
            for head in heads[:1]:
                for address in self._thread_states(head)[:4]:
                    if t.u64(address + L["tstate.interp"]) != head:
                        raise LayoutError("a thread state does not point back at its interpreter")
                modules = self.object(self._modules_address(head))
                if modules.type.builtin_name != "dict" or self.object(modules.type.address).type.builtin_name != "type":
                    raise LayoutError("sys.modules is no dict")
        except (FaultError, LayoutError) as e:
            raise LayoutError(
                f"{t.describe()}: its Python {L.name} does not have the layout that the table for {L.name} gives ({e}); "
                f"make the table again with: scripts/make-cpython-layouts PYTHON"
            ) from None

    # ---- interpreters, threads -----------------------------------------------------------------------------------
    def interpreters(self) -> list[int]:
        """Addresses of all PyInterpreterStates, the main one first; `NotFoundError` where there is none (any more)."""
        t, found = self.target, []
        at = t.u64(self.address + self.layout["runtime.interpreters.head"])
        while at and at not in found and len(found) < MAX_INTERPRETERS:
            found.append(at)
            at = t.u64(at + self.layout["interp.next"])
        if not found:
            raise NotFoundError(f"{t.describe()} has no Python interpreter (any more)")
        return list(reversed(found))  # the list is newest first: the main interpreter leads

    def _thread_states(self, interp: int) -> list[int]:
        L, t = self.layout, self.target
        head = "interp.threads.head" if "interp.threads.head" in L else "interp.tstate_head"
        at, found, seen = t.u64(interp + L[head]), [], set()
        while at and at not in seen and len(seen) < dialects.MAX_THREADS:
            seen.add(at)
            found.append(at)
            at = t.u64(at + L["tstate.next"])
        return found

    def threads(self) -> list[PyThread]:
        """`[PyThread]` of all interpreters, the main thread first."""
        return self.target.cached("python threads", self._threads)

    def _threads(self) -> list[PyThread]:
        found = []
        os_tids = self._os_tids()
        for interp in self.interpreters():
            states = self._thread_states(interp)
            found += [PyThread(a, self._tid(a, os_tids), interp) for a in reversed(states)]
        return found

    def _os_tids(self) -> dict[int, int]:
        """{tid as the process sees it: tid as we see it}; {} where the backend has no thread list."""
        try:
            return self.target.own_tids()
        except GdbextError:
            return {}

    def _tid(self, tstate: int, os_tids: dict[int, int]) -> int:
        L, t = self.layout, self.target
        if "tstate.native_thread_id" in L:
            own = t.u64(tstate + L["tstate.native_thread_id"])
            if own in os_tids or not os_tids:
                return os_tids.get(own, own)
        try:  # older, or forked: the id of the pthread, whose control block holds the tid
            pthread = t.u64(tstate + L["tstate.thread_id"])
            at = PTHREAD_TID[t.arch]
            own = t.u32(pthread + at)
            if own in os_tids:
                return os_tids[own]
            blob = t.read(pthread, 2304)
            near = {int.from_bytes(blob[i : i + 4], "little") for i in range(at - 80, at + 80, 4)} & set(os_tids)
            return os_tids[near.pop()] if len(near) == 1 else 0
        except FaultError:
            return 0

    # ---- frames --------------------------------------------------------------------------------------------------
    def frames(self, thread: PyThread) -> list[PyFrame]:
        """`[PyFrame]` of a `PyThread`, innermost first, as Python itself would list them; read again where the thread ran on
        meanwhile."""

        def read() -> Any:
            try:
                walked = list(self.dialect.walk(self, thread.address))
                steps = [s for s in walked if s.complete]
                arrived = self.target.pending_offsets
                for step in steps:
                    step.lasti = arrived.get(step.address, step.lasti)
                found = [PyFrame(self, s, i) for i, s in enumerate(steps)]
            except FaultError as e:
                if self.target.is_live or e.address >= 4096:
                    raise
                raise FaultError(
                    e.address,
                    e.size,
                    "zeros where thread {} keeps its frames: this core was written without that memory (gdb's gcore "
                    "skips what has a guard page inside; the kernel's cores and llm-snapshot have it)".format(thread.tid),
                ) from None
            for frame in found:
                frame.stack, frame.source, frame.tid = found, again, thread.tid
            if found:
                found[-1].is_cut = len(walked) == dialects.MAX_FRAMES
            return found

        def again() -> list[PyFrame]:
            return retry(read, lambda: not self.target.is_stopped, self.target.drop_pages, seconds=FRAME_SECONDS)

        return retry_reading(
            self.target, lambda: self.target.cached(("python frames", thread.address), read), seconds=FRAME_SECONDS
        )

    def registered_threads(self) -> dict[int, Object]:
        """`{thread state's pthread id: its threading.Thread}` of those that `threading` knows to run; {} where it was never
        imported."""

        def read() -> dict[int, Object]:
            found: dict[int, Object] = {}
            module = self.module("threading")
            try:
                for key, value in module.item("_active").items(dialects.MAX_THREADS) if module else ():
                    found[key.integer()] = value
            except GdbextError:
                pass  # what is asked of it is a courtesy: a table in the middle of an update costs no answer
            return found

        known: dict[int, Object] = self.target.cached("threading's threads", read)
        return known

    def thread_names(self) -> dict[int, str]:
        """`{thread state's pthread id: name}` of `registered_threads`."""

        def read() -> Any:
            found = {}
            for ident, thread in self.registered_threads().items():
                try:
                    found[ident] = thread.attr("_name").string(200)
                except GdbextError:
                    continue
            return found

        return self.target.cached("python thread names", read)

    def thread_name(self, thread: PyThread) -> str:
        """The name that Python gave the thread, or ''."""
        return self.thread_names().get(self.target.u64(thread.address + self.layout["tstate.thread_id"]), "")

    def thread(self, tid: int) -> PyThread | None:
        """The `PyThread` with this native tid, or None."""
        return next((th for th in self.threads() if th.tid == tid), None)

    # ---- objects -------------------------------------------------------------------------------------------------
    def object(self, address: int) -> Object:
        return Object(self, address)

    def type(self, address: int) -> TypeInfo:
        info = self._types.get(address)
        if info is None:
            info = self._types[address] = TypeInfo(self, address)
        return info

    def code(self, address: int) -> Code:
        code = self._codes.get(address)
        if code is None:
            code = self._codes[address] = Code(self, address)
        return code

    def _modules_address(self, interp: int) -> int:
        L = self.layout
        key = "interp.imports.modules" if "interp.imports.modules" in L else "interp.modules"
        return self.target.u64(interp + L[key])

    def modules(self) -> dict[str, Object]:
        """`{name: Object}` of sys.modules of the main interpreter."""

        def read() -> Any:
            found = {}
            for key, value in self.object(self._modules_address(self.interpreters()[0])).items():
                try:
                    found[key.string(MAX_NAME)] = value
                except GdbextError:
                    continue
            return found

        return self.target.cached("python modules", read)

    def _imported(self, name: str) -> Object | None:
        """The `Object` of sys.modules[name], or None. Only names of the same length are read: there are thousands."""
        listed = self.target.cached("imported modules", self._modules_listed)
        known = listed.found.get(name)
        same = listed.by_length.get(len(name), ()) if known is None else known
        found = listed.found[name] = [pair for pair in same if self.object(pair[0]).equals(name)][:1]
        return self.object(found[0][1]) if found else None

    def _modules_listed(self) -> _Listed:
        """What sys.modules holds. A name and a module that both stay are the same, so what was told of a table that has not
        changed since is kept."""
        pairs = self.object(self._modules_address(self.interpreters()[0])).dict_entries()
        before: _Listed | None = self.target.lasting.get("imported modules")
        if before is not None and before.pairs == pairs:
            return before
        places = [key + self.layout["ascii.length"] for key, _ in pairs]
        words = self.target.gather(places, 8)
        lengths = (
            words.cast("Q")
            if words is not None
            else (int.from_bytes(word or b"", "little") for word in self.target.read_many([(at, 8) for at in places]))
        )
        listed = self.target.lasting["imported modules"] = _Listed(pairs)
        for pair, length in zip(pairs, lengths):
            listed.by_length.setdefault(length, []).append(pair)
        return listed

    def has_module(self, names: Iterable[str]) -> bool:
        """Whether a module of one of these names is imported."""
        try:
            return any(self._imported(name) is not None for name in names)
        except (FaultError, LayoutError):
            return False  # a table in the middle of an update

    def module(self, name: str) -> Object | None:
        """The dict of an imported module as an `Object`, or None."""
        found = self._imported(name)
        return None if found is None else self.module_dict(found)

    def module_dict(self, module: Object) -> Object | None:
        """The dict of a module as an `Object`, None of what is no module."""
        if not module.isa("module"):
            return None
        return self.object(self.target.u64(module.address + self.layout["module.md_dict"]))

    def release(self, modules: Iterable[str]) -> str:
        """`__version__` of the first of these modules that has one as a str, '' when none does."""
        for name in modules:
            scope = self.module(name)
            try:
                if scope is not None:
                    return scope.item("__version__").string(60)
            except GdbextError:
                continue
        return ""

    # ---- the lock ------------------------------------------------------------------------------------------------
    def gil(self, interp: int) -> tuple[str, int]:
        """-> (state, tstate address): ("held", address), ("free", 0) or ("disabled", 0). `last_holder` counts only while
        locked."""
        L, t = self.layout, self.target
        if "runtime.gilstate.tstate_current" in L:
            holder = t.u64(self.address + L["runtime.gilstate.tstate_current"])
            return ("held", holder) if holder else ("free", 0)
        gil = t.u64(interp + L["interp.ceval.gil"])
        if not gil:
            return "free", 0
        if "gil.enabled" in L and not t.i32(gil + L["gil.enabled"]):
            return "disabled", 0
        if not t.i32(gil + L["gil.locked"]):
            return "free", 0
        return "held", t.u64(gil + L["gil.last_holder"])


def _python_modules(target: Target) -> list[Module]:
    """Mapped files that may hold CPython, the likeliest first: libpython, then python executables, then the executable,
    whatever its name, and every other file: programs are renamed, and libpython is built into them."""

    def rank(module: Module) -> int:
        return (
            0
            if re.match(r"libpython3\.\d+", module.name)
            else 1
            if re.match(r"python(3(\.\d+)?)?t?( \(deleted\))?$", module.name)
            else 2
        )

    return sorted(target.modules(), key=rank)


def _find_runtime(target: Target) -> tuple[int, Module]:
    """-> (address of _PyRuntime, its Module)"""
    tried = []
    for module in _python_modules(target):
        try:
            address = module.symbol("_PyRuntime")
            if address is None and ".PyRuntime" in module.elf.sections:
                address = module.bias + module.elf.sections[".PyRuntime"][0]
        except (NotFoundError, OSError) as e:
            tried.append(str(e))
            continue
        if address is not None:
            return address, module
        tried.append(module.name)
    why = f" (looked in {', '.join(tried[:4])}{', …' if len(tried) > 4 else ''})" if tried else ""
    raise NotFoundError(f"{target.describe()} runs no CPython that can be found{why}")


_OF_PATH = re.compile(r"python3\.(\d+)").search
MAX_DATA = 64 << 20  # bytes of a file's own variables


def _written_version(target: Target, module: Module) -> re.Match[bytes] | None:
    """`sys.version` as Py_GetVersion has written it into its own buffer: of a CPython that is linked into a stripped program."""
    for mapping in target.mappings():
        near = module.base <= mapping.start <= module.end and "x" not in mapping.perms
        if near and (mapping.path == module.path or not mapping.path) and mapping.end - mapping.start <= MAX_DATA:
            try:
                data = target.read(mapping.start, mapping.end - mapping.start)
                found = re.search(rb"\b3\.(\d+)\.\d+\S* \([^()\0]{1,80}\)\s{1,2}\[", data)
            except FaultError:
                continue
            if found:
                return found
    return None


def _version(target: Target, runtime: int, module: Module) -> tuple[tuple[int, int], bool]:
    """-> ((major, minor), free_threaded): from the debug offsets, Py_Version in the file, else the file's name."""
    try:
        head = target.read(runtime, 24)
    except FaultError:
        raise GdbextError(
            f"{target.describe()}: its Python's state at {runtime:#x} cannot be read"
            + ("" if target.is_live else ": the core is cut or trimmed")
        ) from None
    if head[:8] == layouts.DEBUG_COOKIE:
        number = int.from_bytes(head[8:16], "little")
        version = number >> 24 & 255, number >> 16 & 255
        if version[0] == 3 and version[1] >= 13:
            return version, bool(int.from_bytes(head[16:24], "little"))
    value = module.elf.symbol("Py_Version")
    raw = module.elf.at(value, 8) if value else None
    if raw:
        number = int.from_bytes(raw, "little")
        if number >> 24 & 255 == 3:
            return (3, number >> 16 & 255), False
    by_name = re.search(r"python3\.(\d+)", module.name)
    found = by_name or _written_version(target, module) or next(filter(None, (_OF_PATH(m.path) for m in target.modules())), None)
    if found:
        return (3, int(found.group(1))), False
    raise LayoutError(f"{target.describe()}: cannot tell which Python {module.path} is")
