"""The wait-for edges of one process: the GIL, pthread mutexes and condition variables, Python's locks and what is built of them."""

import os
import re

from ..cpython import gil, locks
from ..cpython.objects import Object
from ..errors import GdbextError
from . import ipc_locks
from .waits import Edge

_MUTEX = re.compile(r"_*(pthread_mutex_(lock|timedlock|clocklock)|lll_lock_wait(_private)?|pthread_mutex_cond_lock)")
_RWLOCK = re.compile(r"_*pthread_rwlock_")
_ACQUIRES = re.compile(r"PyThread_acquire_lock|_?PyMutex_Lock")
_BATON = re.compile(r"FileBaton\.")
_COND = re.compile(r"_*pthread_cond_(wait|timedwait|clockwait)")
MUTEX_OWNER, MUTEX_KIND = 8, 16  # glibc's struct __pthread_mutex_s, x86-64 and aarch64 (sysdeps/nptl/bits/struct_mutex.h)
MUTEX_KINDS = 0x1FF
MUTEX_SHARED = 0x80  # PTHREAD_MUTEX_PSHARED_BIT, nptl/pthreadP.h
OURS = ("threading.py", "queue.py", "_bootstrap>", "thread.py", "_base.py", "logging/__init__.py", "synchronize.py")

# (end of the file, function) -> what the frame's `self` is and what it waits for
_WAITING = {
    ("queue.py", "Queue.get"): "get",
    ("queue.py", "Queue.put"): "put",
    ("queue.py", "Queue.join"): "join",
    ("threading.py", "Event.wait"): "Event",
    ("threading.py", "Condition.wait"): "Condition",
    ("threading.py", "Barrier.wait"): "Barrier",
    ("threading.py", "Semaphore.acquire"): "Semaphore",
    ("threading.py", "Thread.join"): "Thread",
    ("_base.py", "Future.result"): "Future",
    ("_base.py", "Future.exception"): "Future",
    ("importlib._bootstrap>", "_ModuleLock.acquire"): "import",
    # 3.9, 3.10 have no qualified names
    ("queue.py", "get"): "get",
    ("queue.py", "put"): "put",
    ("_base.py", "result"): "Future",
}
_BY_TYPE = {
    "Event": "Event",
    "Condition": "Condition",
    "Barrier": "Barrier",
    "Semaphore": "Semaphore",
    "BoundedSemaphore": "Semaphore",
    "Queue": "Queue",
    "LifoQueue": "Queue",
    "PriorityQueue": "Queue",
    "_ModuleLock": "import",
    "Future": "Future",
}


class Finder:
    """Finds the edges of one `ProcessView`."""

    def __init__(self, view):
        self.view, self.rt, self.target = view, view.rt, view.target
        self.partial = []
        self._reach, self._entered, self._acquired = {}, {}, {}

    def edges(self):
        found = []
        for thread in self.view.threads:
            try:
                edge = self._edge(thread)
            except GdbextError as e:
                self.partial.append(f"{self.view.name} thread {thread.tid}: {e}")
                continue
            if edge is not None:
                found.append(edge)
        return found

    def node(self, thread):
        return (self.view.name, thread.tid)

    # ---- one thread ----------------------------------------------------------------------------------------------
    def _edge(self, thread):
        futex = gil.futex_of(self.target, thread.thread)
        if thread.py is not None and self.rt is not None:
            start, end = gil.gil_range(self.rt, thread.py.interp)
            if futex and start <= futex < end:
                return self._gil(thread)
        semantic = self._semantic(thread) if thread.python else None
        if semantic is None and self.view.live:
            edge = self._ipc_lock(thread, futex)
            if edge is not None:
                return edge
        if not futex and semantic is None:
            return None
        if futex and self._mutex_names(thread, _MUTEX):
            return self._mutex(thread, futex)
        if semantic is not None:
            return semantic
        if futex and thread.python:
            edge = self._python_lock(thread, futex)
            if edge is not None:
                return edge
        if futex and not thread.native and self.target.is_stopped is False:
            self._touch(futex)  # a prefetch: the copy's reader will want it
        if futex and self._mutex_names(thread, _COND) and thread.python:
            return Edge(
                self.node(thread), f"a condition variable at {futex:#x}", "condition", address=futex, where=str(thread.top or "")
            )
        return None

    def _touch(self, address):
        try:
            self.target.read(address, 48)
        except GdbextError:
            pass

    def _mutex_names(self, thread, pattern):
        return any(pattern.match(f.function or "") for f in thread.native[:6])

    def _ipc_lock(self, thread, futex):
        """The edge to a semaphore or a file that other processes lock too; None where it waits for neither."""
        edge = Edge(self.node(thread), "", "Lock", address=futex or 0, where=str(thread.top or ""))
        semaphore = ipc_locks.semaphore_at(self.target, futex) if futex else None
        if semaphore:
            edge.lock, edge.shared = f"the semaphore at {futex:#x}, in memory shared between processes", ("semaphore", semaphore)
            return edge
        path = ipc_locks.polled_lock_file(thread)
        if path:
            edge.lock, edge.polls = f"the file {path}", True
            edge.shared = ("baton" if thread.has(_BATON) else "path", self.target.root() + path)
            return edge
        descriptor = ipc_locks.locked_descriptor(self.view, thread)
        if descriptor is None:
            return None
        path = f"/proc/{self.view.pid}/fd/{descriptor}"
        try:
            edge.lock = f"a lock on the file {os.readlink(path)}"
        except OSError:
            return None  # a core, or it has gone on
        edge.shared = ("path", path)
        return edge

    def _gil(self, thread):
        said, holder = self.rt.gil(thread.py.interp)
        owner = (
            next((th for th in self.view.threads if th.py is not None and th.py.address == holder), None)
            if said == "held"
            else None
        )
        note = "" if owner or said != "held" else "the thread state that holds it belongs to no thread of this process"
        return Edge(
            self.node(thread), "the GIL", "GIL", self.node(owner) if owner else None, note=note, where=str(thread.top or "")
        )

    def _mutex(self, thread, futex):
        word, owner, kind = self.target.u32(futex), self.target.u32(futex + MUTEX_OWNER), self.target.u32(futex + MUTEX_KIND)
        edge = Edge(self.node(thread), f"the mutex at {futex:#x}", "mutex", address=futex, where=str(thread.top or ""))
        if kind > MUTEX_KINDS or not word & 0x3FFFFFFF:
            edge.note = "it was just being given back" if not word else "its owner cannot be told: no mutex of a kind known here"
            return edge
        found = next((th for th in self.view.threads if th.thread.ns_tid == owner), None)
        if found is not None:
            edge.owner = self.node(found)
        elif owner and kind & MUTEX_SHARED:
            edge.lock += " in shared memory"
            edge.shared = ("mutex", owner)
        elif owner:
            edge.orphan = True
            edge.note = f"its owner, thread {owner}, does not exist in this process: " + ORPHANED
        else:
            edge.note = "it is kept by a lock that notes no owner"
        return edge

    # ---- Python's locks --------------------------------------------------------------------------------------------
    def _python_lock(self, thread, futex):
        """The edge to the `_thread.lock` or RLock that the thread's futex call waits for; None where no such lock is found."""
        parked = locks.parked_at(self.rt, futex)
        name, obj = "", parked
        others = (frame for th in self.view.threads if th is not thread for frame in th.python)
        for frame in (*thread.python[:4], *others):
            if name or obj is not None and frame not in thread.python[:4]:
                break
            for path, one in self._reachable(frame):
                info = self._lock(one)
                if info is not None and (info.address == parked.address if parked is not None else info.futex == futex):
                    name, obj = path if frame in thread.python[:4] else f"{path} of {frame.function}", one
                    break
        if obj is not None:
            return self._lock_edge(thread, obj, name, thread.python[0])
        if not self._mutex_names(thread, _ACQUIRES):
            return None
        note = "no frame of this process can name it, so who has it cannot be told"
        return Edge(
            self.node(thread),
            f"a Python lock (semaphore {futex:#x})",
            "Lock",
            note=note,
            address=futex,
            where=str(thread.top or ""),
        )

    def _lock(self, obj):
        try:
            return locks.read(obj)
        except GdbextError:
            return None

    def _lock_edge(self, thread, obj, name, frame):
        info = locks.read(obj)
        what = self._called(thread, name)
        text = f"the {info.kind} {what or hex(info.address)}"
        edge = Edge(
            self.node(thread),
            text,
            info.kind,
            address=info.address,
            where=f"{frame.function} ({os.path.basename(frame.file)}:{frame.line})",
        )
        if not info.locked:
            edge.note = "it was just being given back"
            return edge
        if info.kind == "RLock":
            self._by_ident(edge, info.owner)
            owner = self.view.by_ident(info.owner)
            if (
                owner is not None
                and not any(self._holds(owner, f, info.address) for f in owner.python)
                and not self._names(owner, info.address)
            ):
                edge.owner, edge.candidates = None, [edge.owner]
                edge.note = (
                    "the lock names this thread, but no frame of it can reach the lock: after a fork, the id of a thread that is gone may "
                    "have been used again"
                )
            return edge
        return self._holder_of(edge, info.address, thread)

    def _called(self, thread, name):
        """What a lock is called; a logging handler's by its class."""
        for frame in thread.python[:3]:
            if frame.file.endswith("logging/__init__.py"):
                me = dict(frame.locals()).get("self")
                if me is not None and "self.lock" in name:
                    return f"of the logging handler {me.type_name}"
                if name.startswith("_lock"):
                    return "of the logging module"
        return name

    def _by_ident(self, edge, ident):
        owner = self.view.by_ident(ident)
        if owner is not None:
            edge.owner = self.node(owner)
        elif ident:
            edge.orphan = True
            edge.note = f"its owner, thread {ident:#x}, does not exist in this process: " + ORPHANED

    def _holder_of(self, edge, address, waiter):
        """The owner of a plain Lock: whose frame is inside its `with`, or between its acquire and its release."""
        for how, look in (("with", self._holds), ("between acquire and release", self._holds_by_source)):
            found = []
            for thread in self.view.threads:
                where = next((w for w in (look(thread, f, address) for f in thread.python) if w), None)
                if where:
                    found.append((thread, where))
            others = [f for f in found if f[0] is not waiter] or found
            if len(others) == 1:
                edge.owner, edge.how, edge.note = self.node(others[0][0]), how, f"held in {others[0][1]}"
                return edge
            if others:
                edge.candidates = [self.node(t) for t, _ in others]
                edge.note = "one of them holds it: " + "; ".join(w for _, w in others[:4])
                return edge
        able = [th for th in self.view.threads if th is not waiter and not th.idle and self._names(th, address)]
        if able:
            edge.candidates = [self.node(th) for th in able]
            edge.note = (
                "a plain Lock keeps no owner, and no frame is inside its with or between acquire and release: one that can reach it "
                "took it, or it was locked when this process was forked, or by a thread that has ended"
            )
        else:
            edge.note = "no thread of this process holds it in any frame: it is used as a signal, or " + ORPHANED
        return edge

    def _names(self, thread, address):
        return any(obj.address == address for frame in thread.python for _, obj in self._reachable(frame))

    def _reachable(self, frame):
        if frame.address not in self._reach:
            self._reach[frame.address] = locks.reachable(frame)
        return self._reach[frame.address]

    def _holds(self, thread, frame, address):
        if frame.address not in self._entered:
            self._entered[frame.address] = locks.entered(frame)
        for manager in self._entered[frame.address]:
            if address in (manager.address, self._inner_lock(manager)) and not self._waits_on(thread, manager):
                return f"{frame.function} ({os.path.basename(frame.file)}:{frame.line})"
        return None

    def _holds_by_source(self, thread, frame, address):
        if frame.address not in self._acquired:
            self._acquired[frame.address] = locks.acquired(frame)
        for _, obj, taken, given in self._acquired[frame.address]:
            if address in (obj.address, self._inner_lock(obj)) and not self._waits_on(thread, obj):
                return f"{frame.function} ({os.path.basename(frame.file)}:{frame.line}, acquired at line {taken}, released at {given})"
        return None

    def _inner_lock(self, obj):
        """The lock inside a Condition, or what stands for one; 0 for others."""
        if not obj.type.is_heap:
            return 0
        try:
            inner = obj.attr("_lock")
            return inner.address if isinstance(inner, Object) else 0
        except GdbextError:
            return 0

    def _waits_on(self, thread, manager):
        """Whether the thread stands in the `wait` of this Condition, which has given its lock back meanwhile."""
        inner = self._inner_lock(manager)
        for frame in thread.python:
            if frame.file.endswith("threading.py") and frame.function in ("Condition.wait", "wait"):
                me = dict(frame.locals()).get("self")
                if me is not None and (me.address == manager.address or inner and self._inner_lock(me) == inner):
                    return True
        return False

    # ---- what is built of locks --------------------------------------------------------------------------------------
    def _semantic(self, thread):
        """An edge by the Python frames in which the thread waits: queues, events, joins, imports. None where they are none of these."""
        best = None
        for frame in thread.python[:8]:
            base = frame.file.replace("\\", "/")
            if not base.endswith(OURS):
                break
            found = next(
                (what for (end, function), what in _WAITING.items() if base.endswith(end) and frame.function == function), None
            )
            try:
                me = dict(frame.locals()).get("self")
                kind = _BY_TYPE.get(me.type_name) if me is not None else None
                if found is None and kind and frame.function in ("wait", "join", "acquire", "get", "put", "exception"):
                    found = {"Queue": frame.function}.get(kind, kind)
                if found is None and frame.function in ("join", "_wait_for_tstate_lock", "Thread._wait_for_tstate_lock"):
                    found = (
                        "Thread"
                        if me is not None and any(n in ("Thread", "Process") for n in map(_last, me.mro_names()))
                        else None
                    )
            except GdbextError:
                continue
            if found and me is not None:
                best = (found, me, frame)
        if best is None:
            return None
        outer = next((f for f in thread.python if not f.file.replace("\\", "/").endswith(OURS)), best[2])
        where = f"{outer.function} ({os.path.basename(outer.file)}:{outer.line})"
        return self._built(thread, best[0], best[1], where)

    def _built(self, thread, kind, me, where):
        node = self.node(thread)
        name = next(
            (
                path
                for f in thread.python[:8]
                if not f.file.endswith(OURS)
                for path, o in self._reachable(f)
                if o.address == me.address
            ),
            "",
        )
        name = name or hex(me.address)
        if kind == "Thread":
            return self._join(node, me, where)
        if kind == "import":
            edge = Edge(node, f"the import of {_text(me, 'name')}", "import", address=me.address, where=where)
            self._by_ident(edge, _import_owner(me))
            return edge
        if kind in ("get", "put", "join"):
            size, limit = _queue_size(me)
            state = f"{size if size is not None else '?'} items" + (f" of at most {limit}" if limit else "")
            want = {"get": "an item of", "put": "room in", "join": "the end of all work of"}[kind]
            edge = Edge(node, f"{want} the {me.type_name} {name} ({state})", "Queue", address=me.address, where=where)
            edge.how = kind
        else:
            extra = ""
            if kind == "Barrier":
                extra = f" ({_number(me, '_count')} of {_number(me, '_parties')} have come)"
            elif kind == "Semaphore":
                extra = f" (value {_number(me, '_value')})"
            elif kind == "Future":
                extra = f" ({_text(me, '_state')})"
            edge = Edge(node, f"the {me.type_name} {name}{extra}", kind, address=me.address, where=where)
            if kind == "Semaphore":
                return self._semaphore(edge, me.address, thread)
        able = [
            th
            for th in self.view.threads
            if th is not thread and not th.idle and self._names(th, me.address) and not self._same_wait(th, me.address)
        ]
        edge.candidates = [self.node(th) for th in able]
        return edge

    def _same_wait(self, thread, address):
        """Whether the thread itself stands in a wait of this very object."""
        return any(
            f.file.endswith(OURS) and "self" in dict(f.locals()) and getattr(dict(f.locals())["self"], "address", 0) == address
            for f in thread.python[:6]
        )

    def _semaphore(self, edge, address, waiter):
        holders = [th for th in self.view.threads if any(self._holds(th, f, address) for f in th.python)]
        holders = [th for th in holders if th is not waiter] or holders
        if len(holders) == 1:
            edge.owner, edge.how = self.node(holders[0]), "with"
        else:
            edge.candidates = [self.node(th) for th in holders]
        return edge

    def _join(self, node, me, where):
        if "Process" in map(_last, me.mro_names()):
            return Edge(node, f"the end of the process {_text(me, '_name')}", "Process", address=me.address, where=where)
        edge = Edge(node, f"the end of thread {_text(me, '_name')}", "Thread", address=me.address, where=where)
        ident = _number(me, "_ident")
        owner = self.view.by_ident(ident) if isinstance(ident, int) else None
        if owner is not None:
            edge.owner = self.node(owner)
        else:
            edge.orphan, edge.note = True, "that thread does not exist in this process: " + ORPHANED
        return edge


ORPHANED = "it was held when this process was forked, or the thread has ended without giving it back"


def _last(name):
    return name.rpartition(".")[2]


def _attribute(obj, name):
    try:
        value = obj.attr(name)
        return value.plain() if isinstance(value, Object) else value
    except GdbextError:
        return None


def _number(obj, name):
    value = _attribute(obj, name)
    return value if isinstance(value, int) else "?"


def _text(obj, name):
    value = _attribute(obj, name)
    return value if isinstance(value, str) else "?"


def _import_owner(module_lock):
    """The pthread id of the thread that imports the module. 3.12 and later: while others wait, `count` is a list (bpo-38091)."""
    value = _attribute(module_lock, "owner")
    return value if isinstance(value, int) else 0


def _queue_size(me):
    """(items in a queue.Queue, its limit or 0); None for what cannot be read."""
    size = None
    try:
        inner = me.attr("queue")
        size = inner.len()
    except GdbextError:
        pass
    limit = _number(me, "maxsize")
    return size, limit if isinstance(limit, int) and limit > 0 else 0


def find(view):
    """-> (`[Edge]`, reasons why there may be more)"""
    if view.rt is None and not view.threads:
        return [], [f"{view.name}: no thread could be read"]
    finder = Finder(view)
    return finder.edges(), finder.partial
