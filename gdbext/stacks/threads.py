"""Every thread of one stopped process: its merged stack, what it holds and waits for of the interpreter's lock, and whether it idles."""

import os
import re

from ..cpython import gil
from ..cpython.runtime import open_runtime
from ..errors import GdbextError, NotFoundError
from ..render import names
from . import merge, snapshots

# Calls in which a thread waits for others or for the world; innermost frames of C libraries.
_WAITS = re.compile(
    r"_*(pthread_cond_(timed|clock)?wait|futex|lll_lock_wait|epoll_p?wait2?|poll|ppoll|p?select|accept4?|recv(from|msg)?|read|sem_(timed|clock)?wait|"
    r"nanosleep|clock_nanosleep|wait4|waitpid|waitid|sigtimedwait|sigwait|io_getevents|syscall|new_sem_wait|internal_syscall_cancel)"
)
# Python functions in which a pool's thread waits for work: (end of the file's path, function)
IDLE = (
    ("concurrent/futures/thread.py", "_worker"),
    ("concurrent/futures/process.py", "_process_worker"),
    ("multiprocessing/pool.py", "worker"),
    ("multiprocessing/resource_sharer.py", "_serve"),
    ("tqdm/_monitor.py", "TMonitor.run"),
    ("multiprocessing/queues.py", "Queue._feed"),
    ("socketserver.py", "BaseServer.serve_forever"),
    ("multiprocessing/pool.py", "Pool._handle_workers"),
    ("multiprocessing/pool.py", "Pool._handle_tasks"),
    ("multiprocessing/pool.py", "Pool._handle_results"),
)
_BELOW_IDLE = ("threading.py", "queue.py", "selectors.py", "connection.py", "synchronize.py", "socket.py")


class Frame:
    """One frame for comparing: `kind` "python" or "native", `function`, `file` (of Python code, or the library), `line`."""

    __slots__ = ("kind", "function", "file", "line")

    def __init__(self, kind, function, file, line=None):
        self.kind, self.function, self.file, self.line = kind, function, file, line

    @property
    def key(self):
        return self.kind, self.function, self.file

    @property
    def where(self):
        base = os.path.basename(self.file)
        return f"{base}:{self.line}" if self.kind == "python" and self.line is not None else base

    def __repr__(self):
        return f"{self.function} ({self.where})"


class ThreadView:
    """One thread. `frames`: `[Frame]` innermost first without the interpreter's own machinery; `merged`: the same as `Merged`;
    `native`: `[NativeFrame]`; `python`: `[PyFrame]`; `gil` as in the contract; `reasons`: why it is less than whole."""

    def __init__(self, thread, py=None):
        self.tid, self.name, self.state, self.thread, self.py = thread.tid, thread.name, thread.state, thread, py
        self.frames, self.merged, self.native, self.python, self.gil, self.reasons, self.ident = [], [], [], [], "none", [], 0

    @property
    def idle(self):
        """Whether it is a helper that waits for work: no Python in it, or a pool's worker at the place where pools wait."""
        if not self.frames:
            return False
        if not self.python:
            waits = any(_WAITS.match(f.function or "") for f in self.native[:3])
            return waits or self.state == "S" and not any(f.function for f in self.native[:2])
        for frame in self.frames:
            if frame.kind == "native":
                continue
            if any(frame.file.endswith(file) and frame.function == function for file, function in IDLE):
                return self.state != "R"
            if os.path.basename(frame.file) not in _BELOW_IDLE:
                return False
        return False

    @property
    def top(self):
        """The innermost frame that says what it does: the innermost Python frame, else the innermost native one with a name."""
        return next((f for f in self.frames if f.kind == "python"), next((f for f in self.frames if f.function), None))

    def has(self, pattern):
        """The first frame whose function a compiled pattern matches, or None."""
        return next((f for f in self.frames if pattern.search(f.function or "")), None)


def frame_of(entry):
    """A `Merged` entry as a `Frame`."""
    if entry.python is not None:
        return Frame("python", entry.python.function, entry.python.file, entry.python.line)
    native = entry.native
    return Frame("native", names.short(native.function) if native.function else "", native.library)


class ProcessView:
    """One process: `threads`: `[ThreadView]`, the main one first; `rt`: its `Runtime` or None (`partial` says why); `live`: /proc can be
    asked about it."""

    def __init__(self, target, label="", rank=None):
        self.target, self.label, self.rank, self.pid = target, label or target.label, rank, target.pid
        self.partial, self.rt, self.threads, self.live = [], None, [], True
        try:
            self.rt = open_runtime(target)
        except GdbextError as e:
            self.partial.append(str(e))
        pythons = {}
        try:
            for py in self.rt.threads() if self.rt else ():
                pythons.setdefault(py.tid, py)
        except GdbextError as e:
            self.partial.append(f"its Python threads: {e}")
        for thread in sorted(target.threads(), key=lambda th: (th.tid != target.pid, th.tid not in pythons, th.tid)):
            self.threads.append(self._read(thread, pythons.get(thread.tid)))

    @property
    def name(self):
        return self.label or str(self.pid)

    @property
    def main(self):
        return self.threads[0] if self.threads else None

    def _read(self, thread, py):
        view = ThreadView(thread, py)
        try:
            view.native = self.target.unwind(thread)
        except GdbextError as e:
            view.reasons.append(str(e))
        if py is not None:
            try:
                view.name = self.rt.thread_name(py) or view.name
                view.ident = self.rt.target.u64(py.address + self.rt.layout["tstate.thread_id"])
                view.python = self.rt.frames(py)
                view.gil = gil.state(self.rt, py, thread)
            except GdbextError as e:
                view.reasons.append(str(e))
        try:
            self._merge(view)
        except GdbextError as e:  # a frame that changed while it was copied: the native ones are left
            view.reasons.append(str(e))
            view.python = []
            self._merge(view)
        return view

    def _merge(self, view):
        merged, reasons = merge.merge(self.rt, view.python, view.native)
        view.merged = [e for e in merged if not (e.interpreter_frame and view.python)]
        view.frames = [frame_of(e) for e in view.merged]
        view.reasons += reasons

    def thread(self, tid):
        return next((th for th in self.threads if th.tid == tid), None)

    def by_ident(self, ident):
        """The thread with this pthread id (`threading.get_ident()`), or None."""
        return next((th for th in self.threads if th.ident == ident and ident), None)


def view_of(snapshot):
    """The `ProcessView` of a `ProcessSnapshot` that was taken."""
    if snapshot.target is None:
        raise NotFoundError(f"{snapshot.name}: {snapshot.reason}")
    view = ProcessView(snapshot.target, snapshot.label, snapshot.rank)
    view.live = bool(snapshot.pauses) or snapshot.target.is_live
    if snapshot.rank is None and not view.label and view.rt is not None:
        view.label = distributed_label(view.rt)
    return view


def distributed_label(rt):
    """ "R3" for a process of torch.distributed that is no engine's: its rank in the default group, else its RANK. '' for others."""
    from ..engines.recognition import memory_environ

    try:
        if not rt.has_module(("torch.distributed",)):
            return ""
        value = memory_environ(rt, ("RANK",)).get("RANK", "")
    except GdbextError:
        return ""
    return f"R{int(value)}" if value.isdigit() and len(value) < 9 else ""


def read_all(taken):
    """-> (`[ProcessView]` of what could be read, reasons for `partial`, `failed`)"""
    views, partial, failed = [], [], snapshots.failed(taken)
    for look in taken:
        if look.target is None:
            continue
        try:
            view = view_of(look)
        except GdbextError as e:
            failed.append({"label": look.label, "pid": look.pid, "reason": str(e)})
            continue
        views.append(view)
        partial += [f"{view.name}: {reason}" for reason in view.partial + look.partial]
        partial += [f"{view.name} thread {th.tid}: {reason}" for th in view.threads for reason in th.reasons]
    if not views:
        raise GdbextError("; ".join(dict.fromkeys(f["reason"] for f in failed)))
    return views, partial, failed
