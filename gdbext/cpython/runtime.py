"""A CPython interpreter inside a Target: found, its version known, its layout proved, its threads, frames and modules listed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable

from .. import log
from ..access.model import Module
from ..access.procfs import read_maps, read_stat
from ..access.retry import retry_reading
from ..errors import AwayError, FaultError, GdbextError, LayoutError, NotFoundError
from . import dialects, find, hashing, libraries, lost_names, stdlib_reprs, stdlib_types, whole_stacks  # noqa: F401  (three register what they know)
from . import layout as layouts
from .frames import Code, PyFrame
from .minors import Minor
from .objects import Object
from .types import MAX_NAME, TypeInfo

if TYPE_CHECKING:
    from ..access.base import Target

MAX_INTERPRETERS = 1000
MAX_THREAD_NAME = 200  # characters
FRAME_SECONDS = 0.1  # for which the stack of a thread that runs on is read again, until it holds together

# glibc's struct pthread: the tid (nptl/descr.h); proved against the thread list before use
PTHREAD_TID = {"x86-64": 720, "aarch64": 208}


class PyThread:
    """A Python thread: native `tid` (0: not found), `address` of its thread state, and the address of its `interp`reter.

    `states`: this state and those of the same thread in other interpreters, `[(address, interp)]`. `address` is the innermost
    state, as far as its frames tell.
    """

    def __init__(self, rt: Runtime, address: int, tid: int, interp: int) -> None:
        self.rt, self.address, self.tid, self.interp = rt, address, tid, interp
        self.states = [(address, interp)]

    def __repr__(self) -> str:
        return f"PyThread(tid={self.tid}, {self.address:#x})"


def open_runtime(target: Target) -> Runtime:
    """The `Runtime` of a Target, once per epoch. `GdbextError` where it runs no CPython that is known here; `NotFoundError` where
    the process has ended."""
    try:
        return all_runtimes(target)[0]
    except GdbextError:
        if _has_ended(target):
            raise NotFoundError(f"{target.describe()} has ended: nothing of it can be read any more") from None
        raise


def all_runtimes(target: Target) -> list[Runtime]:
    """The `Runtime`s of all CPythons of a Target that are initialised, once per epoch; errors as of `open_runtime`."""
    found: list[Runtime] = target.cached("cpython runtimes", lambda: _all_runtimes(target))
    return found


def _all_runtimes(target: Target) -> list[Runtime]:
    found, refused = [], None
    for address, library in find.places(target):
        try:
            found.append(Runtime(target, address, library))
        except GdbextError as e:
            log.passed_over(e, f"the CPython at {address:#x} of {library.name}")
            refused = refused or e
    if refused is not None and not found:
        raise refused
    target.lasting.pop("several CPythons", None)
    if len(found) > 1:
        names = ", ".join(rt.name for rt in found)
        target.lasting["several CPythons"] = (
            f"{len(found)} CPythons work in it: {names}; threads are those of all, names and modules those of the first, or "
            "of the selected thread's"
        )
    return found


def _has_ended(target: Target) -> bool:
    """Whether a running process has no memory any more. Bytes that are read from it then mean nothing."""
    if not target.is_live or target.is_stopped or not target.pid:
        return False
    try:
        stat = read_stat(target.pid)
        if stat.state not in ("Z", "X") and not stat.exits:
            return False
    except NotFoundError as e:
        log.passed_over(e)
        return True
    except GdbextError as e:
        log.passed_over(e)
        return False
    try:
        read_maps(target.pid)  # where only the main thread has ended, the others' memory is there
        return False
    except GdbextError as e:
        log.passed_over(e)
        return True


class _Listed:
    """sys.modules as it was read. `pairs`: [(address of a name, address of a module)]. `by_length`: the same by the name's
    length."""

    def __init__(self, pairs: list[tuple[int, int]]) -> None:
        self.pairs = pairs
        self.by_length: dict[int, list[tuple[int, int]]] = {}


class Runtime:
    """See the module's docstring. Everything read is cached until the target's epoch ends."""

    def __init__(self, target: Target, address: int, library: Module) -> None:
        self.target = target
        self.address, self.library = address, library  # of _PyRuntime; the `Module` that holds the interpreter
        self.version, free_threaded = find.version(target, self.address, self.library)
        self.layout = layouts.from_process(target, self.address, self.version, free_threaded)
        self.dialect = dialects.for_version(self.version, free_threaded)
        self.minor = Minor(self.version)
        self._types: dict[int, TypeInfo] = {}
        self._codes: dict[int, Code] = {}
        self._lost_names: dict[int, str] | None = None
        self._prove()

    @property
    def name(self) -> str:
        """`3.12 (libpython3.12.so.1.0)`"""
        return f"{self.layout.name} ({self.library.name})"

    def invalidate(self) -> None:
        """Drops the types and code objects that were read: the process has run since then and may have freed them."""
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
        except AwayError as e:
            raise GdbextError(f"{t.describe()}: its Python {L.name} cannot be looked at: {e}") from None
        except (FaultError, LayoutError) as e:
            raise LayoutError(
                f"{t.describe()}: its Python {L.name} does not have the layout that the table for {L.name} gives ({e}); "
                f"make the table again with: scripts/make-cpython-layouts PYTHON"
            ) from None

    # ---- interpreters, threads -----------------------------------------------------------------------------------
    def interpreters(self) -> list[int]:
        """Addresses of all PyInterpreterStates, the main one first; `NotFoundError` where there is none (any more)."""
        t = self.target
        found: list[int] = []
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
        at = t.u64(interp + L[head])
        found: list[int] = []
        seen: set[int] = set()
        while at and at not in seen and len(seen) < dialects.MAX_THREADS:
            seen.add(at)
            found.append(at)
            at = t.u64(at + L["tstate.next"])
        return found

    def interpreter_number(self, interp: int) -> int:
        """The id that CPython gave an interpreter, 0 for the main one."""
        return self.target.cached(("number of", interp), lambda: self.target.i64(interp + self.layout["interp.id"]))

    def states(self) -> list[PyThread]:
        """`[PyThread]` of each thread state of all interpreters, those of the main one first, each by itself."""
        return self.target.cached(("python thread states", self.address), self._states)

    def _states(self) -> list[PyThread]:
        found = []
        os_tids = self._os_tids()
        for interp in self.interpreters():
            states = self._thread_states(interp)
            found += [PyThread(self, a, self._tid(a, os_tids), interp) for a in reversed(states)]
        return found

    def threads(self) -> list[PyThread]:
        """`[PyThread]` of all interpreters, the main thread first; the states that one thread has in several of them are one."""
        return self.target.cached(("python threads", self.address), self._threads)

    def _threads(self) -> list[PyThread]:
        found: list[PyThread] = []
        by_tid: dict[int, PyThread] = {}
        for state in self.states():
            first = by_tid.get(state.tid)
            if first is None or not state.tid:
                by_tid[state.tid] = one = PyThread(self, state.address, state.tid, state.interp)
                found.append(one)
            elif self._on_one_stack(first, state):
                first.states += state.states
            else:
                found.append(state)
        for thread in found:
            if len(thread.states) > 1:
                walked = self._walked(thread)
                thread.address, thread.interp = walked[0][0] if walked else thread.states[0]
        return found

    def _on_one_stack(self, first: PyThread, other: PyThread) -> bool:
        """Whether two states with the same tid run on one C stack. Before 3.12 a state names the thread that made it, and another
        may run it. 3.9 leaves no marks on the C stack: then each state stays by itself."""
        anchors = []
        for state in (first, other):
            step = next(iter(self.dialect.walk(self, state.states[-1][0])), None)
            if step is None:
                return True
            anchors.append(step.anchor)
        stack = self.target.mapping_at(anchors[0]) if all(anchors) else None
        return stack is not None and stack.start <= anchors[1] < stack.end

    def _walked(self, thread: PyThread) -> list[tuple[tuple[int, int], Any]]:
        """The raw frames of all states of a thread, innermost first, `[((state, interp), RawFrame)]`. One interpreter calls
        another, so the activations' places on the stack give the order. Without those, the newer state is the inner one."""
        if len(thread.states) == 1:
            return [(thread.states[0], step) for step in self.dialect.walk(self, thread.address)]
        rows = []
        for state in reversed(thread.states):
            one = [(state, step) for step in self.dialect.walk(self, state[0])]
            if one:
                rows.append(one)
        found = []
        while rows:
            row = min(rows, key=lambda r: r[0][1].anchor)
            anchor = row[0][1].anchor
            while row and row[0][1].anchor == anchor:
                found.append(row.pop(0))
            rows = [r for r in rows if r]
        return found

    def _os_tids(self) -> dict[int, int]:
        """{tid inside the process: tid outside}; {} where the backend has no thread list."""
        try:
            return self.target.own_tids()
        except GdbextError as e:
            log.passed_over(e)
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
        except FaultError as e:
            log.passed_over(e)
            return 0

    # ---- frames --------------------------------------------------------------------------------------------------
    def frames(self, thread: PyThread) -> list[PyFrame]:
        """`[PyFrame]` of a `PyThread` of this `Runtime` or of another one, innermost first, in Python's own order. They are read
        again where the thread ran on meanwhile."""

        if thread.rt is not self:
            return thread.rt.frames(thread)

        def read() -> Any:
            try:
                walked = self._walked(thread)
                whole_stacks.settle(self, thread, [step for _, step in walked])
                steps = [(state, step) for state, step in walked if step.complete]
                arrived = self.target.pending_offsets
                for _, step in steps:
                    step.lasti = arrived.get(step.address, step.lasti)
                found = [PyFrame(self, step, i, state[1]) for i, (state, step) in enumerate(steps)]
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
                found[-1].is_cut = len(walked) >= dialects.MAX_FRAMES
            return found

        def again() -> list[PyFrame]:
            return retry_reading(self.target, read, FRAME_SECONDS, before_retry=self.target.refresh_pages)

        return retry_reading(
            self.target, lambda: self.target.cached(("python frames", thread.address), read), seconds=FRAME_SECONDS
        )

    def registered_threads(self) -> dict[int, Object]:
        """`{thread state's pthread id: its threading.Thread}` of the threads that `threading` lists as running; {} where it was
        never imported."""

        def read() -> dict[int, Object]:
            found: dict[int, Object] = {}
            module = self.module("threading")
            try:
                for key, value in module.item("_active").items(dialects.MAX_THREADS) if module else ():
                    found[key.integer()] = value
            except GdbextError as e:
                log.passed_over(e)  # names are a courtesy: a table in the middle of an update costs no answer
            return found

        known: dict[int, Object] = self.target.cached(("threading's threads", self.address), read)
        return known

    def thread_names(self) -> dict[int, str]:
        """`{thread state's pthread id: name}` of `registered_threads`."""

        def read() -> Any:
            found = {}
            for ident, thread in self.registered_threads().items():
                try:
                    name = thread.attr("_name")
                    found[ident] = name.string(MAX_THREAD_NAME) + ("…" if name.len() > MAX_THREAD_NAME else "")
                except GdbextError as e:
                    log.passed_over(e)
                    continue
            return found

        return self.target.cached(("python thread names", self.address), read)

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
                except GdbextError as e:
                    log.passed_over(e)
                    continue
            return found

        return self.target.cached(("python modules", self.address), read)

    def _imported(self, name: str) -> Object | None:
        """The `Object` of sys.modules[name], or None. Of the thousands of names one is read, or those of the same length."""
        known: dict[str, list[tuple[int, int]]] = self.target.cached(("modules looked for", self.address), dict)
        found = known.get(name)
        if found is None:
            found = hashing.find(self, self._modules_address(self.interpreters()[0]), name, "sys")
        if found is None:
            listed = self.target.cached(("imported modules", self.address), self._modules_listed)
            same = listed.by_length.get(len(name), ())
            found = [pair for pair in same if self.object(pair[0]).equals(name)][:1]
        known[name] = found
        return self.object(found[0][1]) if found else None

    def _modules_listed(self) -> _Listed:
        """The content of sys.modules. It is kept as long as the table does not change: the same addresses mean the same names and
        modules."""
        pairs = self.object(self._modules_address(self.interpreters()[0])).dict_entries()
        before: _Listed | None = self.target.lasting.get(("imported modules", self.address))
        if before is not None and before.pairs == pairs:
            return before
        places = [key + self.layout["ascii.length"] for key, _ in pairs]
        words = self.target.gather(places, 8)
        lengths = (
            words.cast("Q")
            if words is not None
            else (int.from_bytes(word or b"", "little") for word in self.target.read_many([(at, 8) for at in places]))
        )
        listed = self.target.lasting["imported modules", self.address] = _Listed(pairs)
        for pair, length in zip(pairs, lengths):
            listed.by_length.setdefault(length, []).append(pair)
        return listed

    def has_module(self, names: Iterable[str]) -> bool:
        """Whether a module of one of these names is imported."""
        try:
            return any(self._imported(name) is not None for name in names)
        except (FaultError, LayoutError) as e:
            log.passed_over(e)
            return False  # a table in the middle of an update

    def module(self, name: str) -> Object | None:
        """The dict of an imported module as an `Object`, or None."""
        found = self._imported(name)
        return None if found is None else self.module_dict(found)

    def module_dict(self, module: Object) -> Object | None:
        """The dict of a module as an `Object`, None for any other object."""
        if not module.isa("module"):
            return None
        return self.object(self.target.u64(module.address + self.layout["module.md_dict"]))

    def namespace_of(self, name: str) -> list[tuple[int, int]]:
        """[(key, value)] of an imported module's globals; [] where it was not imported. Works even where no type's name is
        known."""
        module = self._imported(name)
        at = self.target.u64(module.address + self.layout["module.md_dict"]) if module is not None else 0
        return list(self.object(at).dict_entries()) if at else []

    def lost_type_name(self, address: int) -> str:
        """The name of a type of C code whose text is lost (lost_names.py)."""
        names: dict[int, str] | None = self._lost_names
        if names is None:
            self._lost_names = {}  # meanwhile none is known
            self._lost_names = names = lost_names.read(self)
            self.invalidate()  # types that were read meanwhile have no names
        return names.get(address, lost_names.UNKNOWN)

    def release(self, modules: Iterable[str]) -> str:
        """`__version__` of the first of these modules that has one as a str, '' when none does."""
        for name in modules:
            scope = self.module(name)
            try:
                if scope is not None:
                    version: str = scope.item("__version__").string(60)
                    return version
            except GdbextError as e:
                log.passed_over(e)
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
