"""Every thread of one stopped process: its merged stack, whether it holds or waits for the GIL, and whether it is idle."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Iterator

from .. import log
from ..access import namespaces, ptrace
from ..access.base import Target
from ..access.model import NativeFrame, Thread
from ..cpython import exceptions, gc, gil
from ..cpython.frames import PyFrame
from ..cpython.runtime import PyThread, Runtime, all_runtimes, open_runtime
from ..cpython.whole_stacks import SWITCHES_STACKS
from ..engines.recognition import memory_environ
from ..engines.sensitive_names import shown_name
from ..errors import GdbextError, NotFoundError
from ..primitives.table import BELOW_IDLE, IDLE
from ..render import names
from . import merge
from .native_waits import DEPTH, LOCKED

if TYPE_CHECKING:
    from .snapshots import ProcessSnapshot

# Calls in which a thread waits for others or for input from outside; innermost frames of C libraries.
_COUNT = re.compile("[0-9]{1,6}")
_KERNEL_WAITS = re.compile(
    r"_*(pthread_cond_(timed|clock)?wait|futex|lll_lock_wait|epoll_p?wait2?|poll|ppoll|p?select|accept4?|recv(from|msg)?|read|sem_(timed|clock)?wait|"
    r"nanosleep|clock_nanosleep|wait4|waitpid|waitid|sigtimedwait|sigwait|io_getevents|syscall|new_sem_wait|internal_syscall_cancel)"
)
# Modules/gcmodule.c, Python/gc.c, gc_free_threading.c of 3.9 to 3.15
COLLECTING = frozenset(
    "gc_collect_main gc_collect_region gc_collect_young gc_collect_full gc_collect_increment gc_collect_internal "
    "gc_collect_with_callback gc_collect_generations collect_with_callback collect".split()
)
INSIDE_A_GREENLET = "a greenlet runs in it: outer frames may belong to another greenlet; pybt shows the rest"
_GIVES = re.compile(r"_*(write|writev|send|sendto|sendmsg|send_bytes|sendall|put)$")
_MUST_WAIT = ("Queue._feed", "_feed")  # they wait for work in a function that they call
MOST_READ = 4096  # threads of a process: more would be an answer of gigabytes


def waits_in_kernel(function: str) -> bool:
    """Whether a C library's function of this name blocks in the kernel."""
    return bool(_KERNEL_WAITS.match(function))


class Frame:
    """One frame, for comparisons: `kind` "python" or "native", `function`, `file` (of Python code, or the library), `line`."""

    __slots__ = ("kind", "function", "file", "line")

    def __init__(self, kind: str, function: str, file: str, line: int | None = None) -> None:
        self.kind, self.function, self.file, self.line = kind, function, file, line

    @property
    def key(self) -> tuple[str, str, str]:
        return self.kind, self.function, self.file

    @property
    def where(self) -> str:
        base = os.path.basename(self.file)
        return f"{base}:{self.line}" if self.kind == "python" and self.line is not None else base

    def __repr__(self) -> str:
        return f"{self.function} ({self.where})"


class ThreadView:
    """One thread; all stacks are innermost first.

    * `thread`: its `Thread`, None for a Python thread without a system thread
    * `py`: its `PyThread` or None
    * `native`: `[NativeFrame]`
    * `python`: `[PyFrame]`
    * `entries`: both as `[Merged]`, with the interpreter's own frames
    * `merged`: `entries` without those
    * `frames`: `merged` as `[Frame]`
    * `gil`: "holds", "waits", "none", "disabled" or "unknown"
    * `ident`: its pthread id
    * `error`: why its Python frames could not be read
    * `reasons`: everything that makes it incomplete
    """

    def __init__(self, thread: Thread | None, py: PyThread | None = None) -> None:
        self.thread, self.py = thread, py
        self.tid = thread.tid if thread is not None else py.tid if py is not None else 0
        self.name, self.state = (thread.name, thread.state) if thread is not None else ("", "")
        self.frames: list[Frame] = []
        self.entries: list[merge.Merged] = []
        self.native: list[NativeFrame] = []
        self.python: list[PyFrame] = []
        self.reasons: list[str] = []
        self.gil, self.ident, self.error = "none", 0, ""
        self._idle: bool | None = None

    @property
    def merged(self) -> list[merge.Merged]:
        return [e for e in self.entries if not (e.interpreter_frame and self.python)]

    @property
    def folded(self) -> int:
        """How many native frames `merged` leaves out: the interpreter's own, without those that run a Python frame."""
        return sum(e.interpreter_frame and not e.activation for e in self.entries) if self.python else 0

    @property
    def collects(self) -> bool:
        """Whether the interpreter collects garbage in this thread, by the names of its native frames or by its Python frames."""
        named = any(n.function.partition(".")[0] in COLLECTING and "python" in os.path.basename(n.library) for n in self.native)
        return named or gc.collects(self.python)

    @property
    def handles(self) -> str:
        """The class of the exception whose handler it runs; '' for none, and where a copy lacks it."""
        with log.passing_over(GdbextError):
            return exceptions.handled_type(self.py.rt, self.py) if self.py is not None else ""
        return ""

    @property
    def idle(self) -> bool:
        """Whether it is a helper that waits for work: it runs no Python, or it is a pool's worker where pools wait for work."""
        if self._idle is None:
            self._idle = self._is_idle()
        return self._idle

    def _is_idle(self) -> bool:
        if not self.frames:
            return False
        if any(LOCKED.search(f.function or "") for f in self.native[:DEPTH]):
            return False
        waits = any(waits_in_kernel(f.function or "") for f in self.native[:3])
        if not self.python:
            return waits or self.state == "S" and not any(f.function for f in self.native[:2])
        inner = [f.function for f in self.native[:1]] + [f.function for f in self.python[:4]]
        if any(_GIVES.match((name or "").rpartition(".")[2]) for name in inner):
            return False  # it is giving something
        for frame in self.frames:
            if frame.kind == "native":
                continue
            if frame.function in _MUST_WAIT and frame is next(f for f in self.frames if f.kind == "python"):
                return False  # the lock that it waits for there is no wait for work
            if any(frame.file.endswith(file) and frame.function == function for file, function in IDLE):
                return waits or self.state != "R"  # a stop wakes it, and on a busy machine it is runnable for a while after that
            if not f"/{frame.file}".endswith(BELOW_IDLE):
                return False
        return False

    @property
    def top(self) -> Frame | None:
        """The innermost frame that shows what it does: the innermost Python frame, else the innermost native one with a name."""
        return next((f for f in self.frames if f.kind == "python"), next((f for f in self.frames if f.function), None))

    def has(self, pattern: re.Pattern[str]) -> Frame | None:
        """The first frame whose function a compiled pattern matches, or None."""
        return next((f for f in self.frames if pattern.search(f.function or "")), None)


def frame_of(entry: merge.Merged) -> Frame:
    """A `Merged` entry as a `Frame`."""
    if entry.python is not None:
        return Frame("python", entry.python.function, entry.python.file, entry.python.line)
    native: Any = entry.native  # set where `python` is not
    return Frame("native", names.short(native.function) if native.function else "", native.library)


def read_threads(
    target: Target, rt: Runtime | None, partial: list[str], native: bool = True, unmatched: bool = False, only: int | None = None
) -> list[ThreadView]:
    """Read all threads: the main thread first, then those that run Python, then the others.

    `rt`: the process's `Runtime`, None where it has none. `partial`: reasons why threads or frames are missing are appended to
    it. Without `native` no native stack is walked. `unmatched`: Python threads without a system thread are read too, and it is no
    error if the system's threads cannot be listed. `only`: the tid of the one thread to read."""
    pythons: dict[int, PyThread] = {}
    lone: list[PyThread] = []
    system: list[Thread] = []
    try:
        system = target.threads()
    except GdbextError as e:
        if not unmatched:
            raise
        partial.append(str(e))
    tids = {th.tid for th in system}
    try:
        for py in _python_threads(target, rt):
            if py.tid in tids and py.tid not in pythons:
                pythons[py.tid] = py
            elif unmatched:
                lone.append(py)
    except GdbextError as e:
        if unmatched:
            raise
        partial.append(f"its Python threads: {e}")
    if only is not None:
        system = [th for th in system if th.tid == only]
    elif len(system) + len(lone) > MOST_READ:
        many = len(system) + len(lone)
        system = sorted(system, key=lambda th: (th.tid != target.pid, th.state != "R", th.tid not in pythons, th.tid))[:MOST_READ]
        lone = lone[: MOST_READ - len(system)]
        partial.append(
            f"{many - MOST_READ:,} of {many:,} threads were not read: {MOST_READ:,} are, first the main thread, then running "
            "threads, then those of Python"
        )
    system = sorted(system, key=lambda th: (th.tid != target.pid, th.tid not in pythons, th.tid))
    found = [read_thread(target, rt, th, pythons.get(th.tid), native) for th in system]
    partial += target.doubts() if native else []
    return found + [read_thread(target, rt, None, py, native) for py in lone]


def _python_threads(target: Target, rt: Runtime | None) -> Iterator[PyThread]:
    """The threads of every CPython of the process, `rt`'s first."""
    if rt is not None:
        yield from rt.threads()
        for other in all_runtimes(target):
            if other is not rt:
                yield from other.threads()


def read_thread(
    target: Target, rt: Runtime | None, thread: Thread | None, py: PyThread | None, native: bool = True
) -> ThreadView:
    """Read one thread: its native stack (with `native`), its Python frames, both merged, and its state towards the GIL."""
    view = ThreadView(thread, py)
    rt = py.rt if py is not None else rt
    if native and thread is not None:
        try:
            view.native = target.unwind(thread)
        except GdbextError as e:
            view.reasons.append(str(e))
        if any(os.path.basename(frame.library).startswith(SWITCHES_STACKS) for frame in view.native):
            view.reasons.append(INSIDE_A_GREENLET)
    if rt is not None and py is not None:
        try:
            view.name = shown_name(rt, rt.thread_name(py) or view.name)
            view.ident = target.u64(py.address + rt.layout["tstate.thread_id"])
            view.gil = gil.state(rt, py, thread)
            view.python = rt.frames(py)
            if view.python and view.python[-1].is_cut:
                view.reasons.append(f"the innermost {len(view.python):,} Python frames, further outward are more")
        except GdbextError as e:
            view.error = str(e)
            view.reasons.append(view.error)
    try:
        _merge(rt, view)
    except GdbextError as e:  # a frame changed while it was copied: only the native ones are kept
        view.error = str(e)
        view.reasons.append(view.error)
        view.python = []
        _merge(rt, view)
    return view


def read_python_thread(target: Target, rt: Runtime, py: PyThread) -> ThreadView:
    """Read the Python side of one thread."""
    try:
        thread = next((th for th in target.threads() if th.tid == py.tid), None)
    except GdbextError as e:
        log.passed_over(e)
        thread = None
    return read_thread(target, rt, thread, py, native=False)


def _merge(rt: Runtime | None, view: ThreadView) -> None:
    view.entries, reasons = merge.merge(rt, view.python, view.native)
    view.frames = [frame_of(e) for e in view.merged]
    view.reasons += reasons
    if view.native and view.native[-1].cut and merge.CUT not in view.reasons:
        view.reasons.append(merge.CUT)


def reasons_of(views: list[ThreadView]) -> list[str]:
    """What makes the threads incomplete, each reason once: `thread 4123: ...`, `12 threads: ...`."""
    found: dict[str, list[int]] = {}
    for view in views:
        for reason in dict.fromkeys(view.reasons):
            found.setdefault(reason, []).append(view.tid)
    return [
        reason
        if reason == merge.COUNTED
        else f"thread {tids[0]}: {reason}"
        if len(tids) == 1
        else f"{len(tids)} threads: {reason}"
        for reason, tids in found.items()
    ]


class ProcessView:
    """One process. `threads`: `[ThreadView]`, the main one first; `rt`: its `Runtime`, or None (`partial` says why); `live`:
    /proc can be read for it."""

    def __init__(self, target: Target, label: str = "", rank: Any = None) -> None:
        self.target, self.label, self.rank, self.pid = target, label or target.label, rank, target.pid
        self.partial: list[str] = []
        self.rt: Runtime | None = None
        self.threads: list[ThreadView] = []
        self.live = True
        self.ns_pid = self.pid  # in its own pid namespace
        try:
            self.rt = open_runtime(target)
        except GdbextError as e:
            self.partial.append(str(e))
        self.threads = read_threads(target, self.rt, self.partial)
        self._by_ident = {th.ident: th for th in reversed(self.threads) if th.ident}

    @property
    def name(self) -> str:
        return self.label or str(self.pid)

    @property
    def main(self) -> ThreadView | None:
        return self.threads[0] if self.threads else None

    def thread(self, tid: int) -> ThreadView | None:
        return next((th for th in self.threads if th.tid == tid), None)

    def by_ident(self, ident: int) -> ThreadView | None:
        """The thread with this pthread id (`threading.get_ident()`), or None."""
        return self._by_ident.get(ident)


def view_of(snapshot: ProcessSnapshot) -> ProcessView:
    """The `ProcessView` of a `ProcessSnapshot` that was taken."""
    if snapshot.target is None:
        raise NotFoundError(f"{snapshot.name}: {snapshot.reason}")
    view = ProcessView(snapshot.target, snapshot.label, snapshot.rank)
    view.live = bool(snapshot.pauses) or snapshot.target.is_live
    pid = snapshot.pid
    if view.live and pid is not None:
        view.ns_pid = namespaces.own_pid(pid) or pid
    if view.rt is None and snapshot.pauses and pid is not None and ptrace.memory_tid(pid) is None:
        raise NotFoundError(f"{snapshot.name} has ended while it was copied")
    if snapshot.rank is None and not view.label and view.rt is not None:
        view.label = distributed_label(view.rt)
    return view


def distributed_label(rt: Runtime) -> str:
    """ "R3" for a process of torch.distributed that is no engine's: its rank in the default group, else its RANK. '' for
    others."""

    try:
        if not rt.has_module(("torch.distributed",)):
            return ""
        value = memory_environ(rt, ("RANK",)).get("RANK", "")
    except GdbextError as e:
        log.passed_over(e)
        return ""
    return f"R{int(value)}" if value.isdigit() and len(value) < 9 else ""


def world(rt: Runtime) -> tuple[int, int] | None:
    """(rank, size) of a torch.distributed process from os.environ, else from the frame that sets the group up; None for
    others."""
    try:
        if not rt.has_module(("torch.distributed",)):
            return None
        said = memory_environ(rt, ("RANK", "WORLD_SIZE"))
        if said.get("RANK", "").isdigit() and said.get("WORLD_SIZE", "").isdigit():
            return int(said["RANK"]), int(said["WORLD_SIZE"])
        for thread in rt.threads()[:1]:
            for frame in rt.frames(thread):
                if frame.function == "init_process_group":
                    own: dict[str, Any] = dict(frame.locals())
                    rank, size = (own[k].integer() for k in ("rank", "world_size"))
                    if 0 <= rank < size:
                        return rank, size
    except (GdbextError, KeyError, AttributeError) as e:
        log.passed_over(e)
    return None


def place_by_environment(rt: Runtime) -> tuple[int, int] | None:
    """(rank, size) that the environment gives a process, as torchrun does; None where it lacks one of the four variables."""
    try:
        said = memory_environ(rt, ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
    except GdbextError as e:
        log.passed_over(e)
        return None
    rank, size = said.get("RANK", ""), said.get("WORLD_SIZE", "")
    known = (
        _COUNT.fullmatch(rank)
        and _COUNT.fullmatch(size)
        and int(rank) < int(size)
        and said.get("MASTER_ADDR")
        and said.get("MASTER_PORT")
    )
    return (int(rank), int(size)) if known else None


def store_by_environment(rt: Runtime) -> str:
    """HOST:PORT of the store at which the environment lets a process's ranks meet."""
    said = memory_environ(rt, ("MASTER_ADDR", "MASTER_PORT"))
    return f"{said['MASTER_ADDR']}:{said['MASTER_PORT']}"


def ranks_of_a_node(rt: Runtime) -> int:
    """How many ranks torchrun has started on each node, 0 where it was not torchrun."""
    try:
        said = memory_environ(rt, ("LOCAL_WORLD_SIZE",)).get("LOCAL_WORLD_SIZE", "")
    except GdbextError as e:
        log.passed_over(e)
        return 0
    return int(said) if _COUNT.fullmatch(said) else 0
