"""The wait-for edges of one process: the GIL, pthread mutexes and condition variables, Python's locks and objects built from
them.

The objects that each thread can reach or holds are indexed once over all frames, so the graph takes time linear in their number.
"""

from __future__ import annotations

import functools
import os
import re
from dataclasses import replace
from typing import Any, Mapping

from .. import log
from ..access.snapshot import CoreFileTarget
from ..cpython import gil, lock_objects
from ..cpython.poll_loops import Poll
from ..cpython.primitive_states import held
from ..cpython.runtime import Runtime
from ..errors import FaultError, GdbextError
from ..primitives.table import LIBRARY, RINGS
from . import forks, gil_waits, import_lock, ipc_locks, musl_locks, native_waits, polls, process_pools, ray_actors, sqlite_locks
from .ending import shutdown_edge
from .givers import Givers
from .holders import WITH, Holders
from .io_locks import buffered_owner
from .pools import Pools, loop_of, task_behind
from .python_waits import ORPHANED, awaited_futures, edge_of, import_owner, last_part, number, outer_place, path_of, text
from .python_waits import find as find_wait
from .references import Reach, Reachable, references_of
from .threads import ProcessView, ThreadView
from .waits import Edge

_ACQUIRES = re.compile(r"PyThread_acquire_lock|_?PyMutex_Lock")
NAMING = 4  # innermost frames that may give a lock its name


class Finder:
    """Finds the edges of one `ProcessView`."""

    def __init__(
        self, view: ProcessView, loops: Mapping[int, Poll] | None = None, tries: Mapping[int, Edge] | None = None
    ) -> None:
        self.view, self.rt, self.target = view, view.rt, view.target
        self.loops, self.tries = loops or {}, tries or {}
        self.partial: dict[int, str] = {}
        self.references = references_of(view.rt)
        self.reachable = Reachable(self.references, [th for th in view.threads if not th.idle])
        self.holders = Holders(list(view.threads))
        self.pools = Pools(view.threads)
        self.givers = Givers(self.reachable, self.holders, self.node, LIBRARY)
        self._locks: dict[Reach, list[tuple[str, Any, Any]]] = {}
        self._ended: dict[Reach, dict[int, str]] = {}  # threads that have ended, by address
        self._by_futex: dict[int, tuple[str, Any]] | None = None

    def edges(self) -> list[Edge]:
        """The edges of all threads whose wait is known."""
        found = []
        for thread in self.view.threads:
            try:
                edge = self._edge(thread)
            except GdbextError as e:
                late = isinstance(e, FaultError) and isinstance(self.target, CoreFileTarget)
                came = "its wait, if it waits, is not in the copy: it had just begun" if late else str(e)
                self.partial[thread.tid] = came
                log.passed_over(e, f"what thread {thread.tid} waits for")
                continue
            if edge is None:
                continue
            if edge.owner is None:
                log.note(
                    "no thread owns %s, which thread %d waits for: %s", edge.lock, thread.tid, edge.note or "it names no owner"
                )
                log.note("its candidates: %s; passed over for what they do: %s", edge.candidates, edge.bystanders)
            found.append(edge)
        return found

    def node(self, thread: ThreadView) -> tuple[str, int]:
        return (self.view.name, thread.tid)

    # ---- one thread ----------------------------------------------------------------------------------------------
    def _edge(self, thread: ThreadView) -> Edge | None:
        futex = gil.futex_of(self.target, thread.thread) if thread.thread is not None else 0
        if thread.py is not None:
            edge = gil_waits.edge_of(self.view, thread, thread.py, futex)
            edge = edge or import_lock.edge_of(self.view, thread, thread.py, futex)
            if edge is not None:
                return edge
        wait = find_wait(thread.python)
        if wait is not None and "path" in wait.row.state:
            return self._lock_file(thread, held(wait.object, wait.row.state["path"])) if self.view.live else None
        if thread.tid in self.tries:
            return replace(self.tries[thread.tid])
        if thread.tid in self.loops:
            known = self._ipc_lock(thread, futex) if self.view.live else None
            return known or self._poll(thread, self.loops[thread.tid])
        pids = self.pools.awaited(thread) if wait is None else []
        if pids:
            return Edge(self.node(thread), f"a result of one of {len(pids)} worker processes", "Job", pids=pids)
        semantic = self._built(thread, wait) if wait is not None else ray_actors.edge_of(self.node(thread), thread.python)
        if thread is self.view.main and semantic is None:
            semantic = shutdown_edge(self.view.name, thread, self.view.threads)
        if semantic is None and self.view.live:
            edge = self._ipc_lock(thread, futex)
            if edge is not None:
                return edge
        if not futex and semantic is None:
            return native_waits.other(self.view, thread, 0)
        if futex and native_waits.stands_in(thread, native_waits.MUTEX):
            return native_waits.mutex(self.view, thread, futex)
        if semantic is not None:
            return semantic
        owner = musl_locks.owner(self.target, futex) if futex else None
        if owner is not None:
            where = str(thread.top or "a place that cannot be named")
            edge = Edge(self.node(thread), f"the mutex at {futex:#x}", "mutex", address=futex, where=where)
            return native_waits.owned(self.view, edge, owner)
        if futex and native_waits.stands_in(thread, native_waits.JOIN):
            return native_waits.join(self.view, thread, futex)
        if futex and thread.python and thread.py is not None:
            edge = self._python_lock(thread, thread.py.rt, futex)
            if edge is not None:
                return edge
        if futex and not thread.native and self.target.is_stopped is False:
            self._touch(futex)  # a prefetch: the copy's reader will want it
        native = native_waits.other(self.view, thread, futex) if futex else None
        if native is not None:
            return native
        if futex and native_waits.stands_in(thread, native_waits.COND) and thread.python:
            what = f"a condition variable at {futex:#x}"
            return Edge(self.node(thread), what, "condition", address=futex, where=str(thread.top or ""))
        log.note("thread %d waits for the futex %#x in %s: no lock that is known here", thread.tid, futex, thread.top)
        return None

    def _poll(self, thread: ThreadView, poll: Poll) -> Edge:
        """The edge of a thread whose loop only asks."""
        edge = polls.edge(self.node(thread), poll)
        if edge.kind == "Thread":
            self._by_ident(edge, poll.asks[0].number)
        elif edge.kind in ("Lock", "RLock") and edge.address and not edge.shared and self.rt is not None:
            self._lock_edge(thread, self.rt.object(edge.address), edge)
        elif edge.kind != "Process" and not edge.shared and not (edge.kind == "Future" and self._in_a_pool(edge)):
            polls.offer(edge, poll, thread, self.reachable.agents, self.reachable, self.node)
        return edge

    def _touch(self, address: int) -> None:
        for start in (address - 16, address):  # a rwlock begins before the word that is waited on
            with log.passing_over(GdbextError):
                self.target.read(start, 64)

    def _ipc_lock(self, thread: ThreadView, futex: int) -> Edge | None:
        """The edge to a semaphore or a file that other processes lock too; None where the thread waits for neither."""
        own = (*LIBRARY, "/multiprocessing/queues.py")
        where = outer_place(thread.python, thread.python[0], own) if thread.python else str(thread.top or "")
        edge = Edge(self.node(thread), "", "Lock", address=futex or 0, where=where)
        semaphore = ipc_locks.semaphore_at(self.target, futex) if futex else None
        if semaphore:
            edge.lock, edge.shared = ipc_locks.shared_name(self.references, thread, futex), ("semaphore", semaphore)
            return edge
        if sqlite_locks.waits(thread):
            edge.lock, edge.shared = "the lock of a SQLite database", ("sqlite", self.view.pid)
            edge.polls = edge.in_one_call = True
            return edge
        descriptor = ipc_locks.locked_descriptor(self.view, thread)
        if descriptor is None:
            return None
        path = f"/proc/{self.view.pid}/fd/{descriptor}"
        try:
            edge.lock = f"a lock on the file {os.readlink(path)}"
        except OSError:
            return None  # a core, or the call has ended
        edge.shared = ("path", path)
        return edge

    def _lock_file(self, thread: ThreadView, path: str) -> Edge:
        """The edge of a thread that asks over and over whether a file is gone."""
        shared = ("made", self.target.root() + path)
        return Edge(self.node(thread), f"the file {path}", "Lock", where=str(thread.top or ""), shared=shared, polls=True)

    # ---- Python's locks --------------------------------------------------------------------------------------------
    def _python_lock(self, thread: ThreadView, rt: Runtime, futex: int) -> Edge | None:
        """The edge to the `_thread.lock` or RLock that the thread's futex call waits for; None where no such lock is found."""
        parked = lock_objects.parked_at(rt, futex)
        name, obj = self._lock_waited_for(thread, futex, parked)
        if obj is not None:
            return self._new_lock_edge(thread, obj, name, thread.python[0])
        inside = self._buffered_io(thread, futex) or self._simple_queue(thread, futex)
        if inside is not None:
            return inside
        if not native_waits.stands_in(thread, _ACQUIRES):
            return None
        note = "no frame of this process names it, so its owner is not known"
        what = f"a Python lock (semaphore {futex:#x})"
        return Edge(self.node(thread), what, "Lock", note=note, address=futex, where=str(thread.top or ""))

    def _lock_waited_for(self, thread: ThreadView, futex: int, parked: Any) -> tuple[str, Any]:
        """(the path by which a frame names the lock, the lock), ("", None) where it is not found. `parked`: the lock, if
        known."""
        for frame in thread.python[:NAMING]:
            for reach in self.references.reaches(frame):
                for path, obj, info in self._locks_of(reach):
                    if info.address == parked.address if parked is not None else info.futex == futex:
                        return path, obj
        if parked is not None:
            return "", parked
        if self._by_futex is None:
            self._by_futex = {}
            for frame in (frame for th in self.view.threads for frame in th.python):
                for path, obj, info in (one for reach in self.references.reaches(frame) for one in self._locks_of(reach)):
                    self._by_futex.setdefault(info.futex, (f"{path} of {frame.function}", obj))
        return self._by_futex.get(futex, ("", None))

    def _locks_of(self, reach: Reach) -> list[tuple[str, Any, Any]]:
        """`[(path, Object, Lock)]` of the locks that can be reached from some variables."""
        if reach not in self._locks:
            found = ((path, obj, self._lock(obj)) for path, obj in reach.named)
            self._locks[reach] = [one for one in found if one[2] is not None]
        return self._locks[reach]

    def _buffered_io(self, thread: ThreadView, futex: int) -> Edge | None:
        """The edge to the lock inside an io object of C code, which notes its owner's id."""
        for frame in thread.python[:NAMING]:
            for path, obj in self.references.of_frame(frame):
                owner = buffered_owner(obj, futex)
                if owner is None:
                    continue
                what = f"the lock inside the {obj.type.builtin_name.rpartition('.')[2]} {path}"
                edge = Edge(self.node(thread), what, "Lock", address=futex, where=outer_place(thread.python, frame))
                self._by_ident(edge, owner)
                return edge
        return None

    def _simple_queue(self, thread: ThreadView, futex: int) -> Edge | None:
        """The edge to an item of a queue of C code, whose lock is its first word (Modules/_queuemodule.c, before 3.13)."""
        for frame in thread.python[:NAMING]:
            for path, obj in self.references.of_frame(frame):
                try:
                    if obj.type.builtin_name in RINGS and self.target.u64(obj.address + 16) == futex:
                        what, where = f"an item of the {obj.type_name} {path}", outer_place(thread.python, frame)
                        edge = Edge(self.node(thread), what, "Queue", how="get", address=obj.address, where=where)
                        self.givers.offer(edge, thread)
                        edge.ended = self._ended_threads(thread)
                        return edge
                except GdbextError as e:
                    log.passed_over(e)
                    continue
        return None

    def _lock(self, obj: Any) -> Any:
        try:
            return lock_objects.read(obj)
        except GdbextError as e:
            log.passed_over(e)
            return None

    def _new_lock_edge(self, thread: ThreadView, obj: Any, name: str, frame: Any) -> Edge:
        kind = lock_objects.KINDS[obj.type.builtin_name]
        what = self._called(thread, name) or hex(obj.address)
        where = outer_place(thread.python, frame)
        return self._lock_edge(thread, obj, Edge(self.node(thread), f"the {kind} {what}", kind, address=obj.address, where=where))

    def _lock_edge(self, thread: ThreadView, obj: Any, edge: Edge) -> Edge:
        """Sets the owner of a lock's edge, or those that may have it."""
        info: Any = lock_objects.read(obj)  # no None: `obj` is a lock that was found
        if not info.locked:
            edge.note, edge.open = "it was just being released", "" if edge.polls else "it is open"
            return edge
        if info.kind != "RLock":
            return self._holder_of(edge, info.address, thread)
        self._by_ident(edge, info.owner)
        owner = self.view.by_ident(info.owner)
        if owner is not None and not self._can_hold(owner, info.address):
            edge.owner, edge.candidates, edge.doubted = None, [edge.owner], True
            edge.note = (
                f"the lock names {owner.name or 'thread'} ({owner.tid}), but no frame of it can reach the lock: the id of a "
                "thread that has ended, before a fork or since, may have been used again"
            )
        return edge

    def _can_hold(self, owner: ThreadView, address: int) -> bool:
        inside = any(agent is owner for agent, _ in self.holders.of(WITH, address))
        return inside or any(self.references.name_of(frame, address) for frame in owner.python)

    def _called(self, thread: ThreadView, name: str) -> str:
        """The name of a lock; for a logging handler's lock, the handler's class."""
        for frame in thread.python[:3]:
            if path_of(frame).endswith("logging/__init__.py"):
                me = dict(frame.locals()).get("self")
                if me is not None and "self.lock" in name:
                    return f"of the logging handler {me.type_name}"
                if name.startswith("_lock"):
                    return "of the logging module"
        return name

    def _by_ident(self, edge: Edge, ident: int) -> None:
        owner = self.view.by_ident(ident)
        if owner is not None:
            edge.owner = self.node(owner)
        elif ident:
            edge.orphan = True
            edge.note = f"its owner, thread {ident:#x}, does not exist in this process: " + ORPHANED

    def _holder_of(self, edge: Edge, address: int, waiter: ThreadView) -> Edge:
        """Sets the owner of a plain Lock: the thread with a frame inside its `with`, or between its acquire and its release."""
        if self.holders.set_owner(edge, waiter, self.node):
            return edge
        able = self.reachable.agents_of(address, lambda th: th is waiter)
        if able:
            edge.candidates = [self.node(th) for th in able]
            edge.note = (
                "a plain Lock keeps no owner, and no frame is inside its with or between acquire and release: one that can reach "
                "it took it, or it was locked when this process was forked, or by a thread that has ended"
            )
        else:
            edge.note = (
                "no frame of this process shows who holds it: it is used as a signal, was taken in a call that has returned, or "
                + ORPHANED
            )
        return edge

    # ---- what is built of locks --------------------------------------------------------------------------------------
    def _built(self, thread: ThreadView, wait: Any) -> Edge:
        """The edge of a wait that the library's frames show: a queue, an event, a join, a future, an import."""
        node, me = self.node(thread), wait.object
        where = outer_place(thread.python, wait.frame)
        if wait.kind == "Thread":
            edge = self._join(node, me, where)
            edge.limit = wait.limit
            return edge
        if wait.kind == "import":
            edge = Edge(node, f"the import of {text(me, 'name')}", "import", address=me.address, where=where)
            self._by_ident(edge, import_owner(me))
            return edge
        many = awaited_futures(thread.python) if wait.kind == "Event" else None
        if many is not None:
            return self._futures(Edge(node, "", "Future", where=where, limit=wait.limit), *many)
        job = process_pools.edge(node, wait, where, self.view.by_ident) if wait.kind == "Job" else None
        if job is not None:
            return job
        if wait.kind == "Process":
            return edge_of(node, wait, "", where)
        own = [f for f in thread.python[:8] if not path_of(f).endswith(LIBRARY)]
        name = next(filter(None, (self.references.name_of(f, me.address) for f in own)), "")
        edge = edge_of(node, wait, name or hex(me.address), where)
        edge.named = bool(name)
        if wait.kind == "Future" and self._in_a_pool(edge):
            return edge
        self.givers.set(edge, wait.row, thread)
        edge.ended = self._ended_threads(thread)
        return edge

    def _futures(self, edge: Edge, futures: list[Any], every: bool) -> Edge:
        """Sets the threads of pools that run some futures, or may run them."""
        able: dict[int, ThreadView] = {}
        pids = {pid: True for future in futures for pid in self.pools.workers(future.address)}
        if pids:
            edge.kind, edge.pids = "Job", list(pids)
        for future in futures:
            runs = self.pools.running(future.address)
            able.update((th.tid, th) for th in ([runs] if runs is not None else self.pools.queued(future.address)))
        edge.lock = f"{'all' if every else 'one'} of {len(futures)} futures" if len(futures) != 1 else "a Future"
        edge.candidates, edge.every = [self.node(th) for th in able.values()], every and bool(able)
        return edge

    def _in_a_pool(self, edge: Edge) -> bool:
        """Whether a pool or a task of an event loop has the work of the awaited Future. Sets who runs it, or all that may."""
        if not self.pools.give(edge, edge.address, self.node):
            edge.task = task_behind(self.rt, edge.address)
            tid = 0 if edge.task else loop_of(self.rt, edge.address)
            edge.owner = (self.view.name, tid) if tid else None
        return bool(edge.owner or edge.pool or edge.pids or edge.task)

    def _ended_threads(self, waiter: ThreadView) -> list[str]:
        """Names of the ended threads whose `threading.Thread` objects the waiter's frames can name; [] where another thread may
        be the one that ends the wait, though no frame of it is known to lead there."""
        if self.references.lacks or self._one_hides_its_work:
            return []
        found: dict[int, str] = {}
        for frame in waiter.python[:NAMING]:
            for reach in self.references.reaches(frame):
                if reach not in self._ended:
                    ended = [obj for _, obj in reach.named if self._is_ended_thread(obj)]
                    self._ended[reach] = {obj.address: text(obj, "_name") for obj in ended}
                found.update(self._ended[reach])
        return list(found.values())

    @functools.cached_property
    def _one_hides_its_work(self) -> bool:
        return any(map(_hides_its_work, self.view.threads))

    def _is_ended_thread(self, obj: Any) -> bool:
        if not obj.type.is_heap or "Thread" not in map(last_part, obj.mro_names()):
            return False
        return self._was_started(obj) and isinstance(number(obj, "_ident"), int) and self._runs(obj) is None

    def _runs(self, thread: Any) -> ThreadView | None:
        """The thread of a `threading.Thread`; None if it has ended, even if its id has been reused."""
        ident = number(thread, "_ident")
        registered = self.rt.registered_threads().get(ident) if self.rt is not None else None
        gone = registered is not None and registered.address != thread.address
        return self.view.by_ident(ident) if isinstance(ident, int) and not gone else None

    def _was_started(self, thread: Any) -> bool:
        try:
            return bool(thread.attr("_started").attr("_flag").boolean())
        except GdbextError as e:
            log.passed_over(e)
            return False

    def _join(self, node: Any, me: Any, where: str) -> Edge:
        edge = Edge(node, f"the end of thread {text(me, '_name')}", "Thread", address=me.address, where=where)
        owner = self._runs(me)
        if owner is not None:
            edge.owner = self.node(owner)
        else:
            edge.orphan, edge.note = True, "that thread does not exist in this process: " + ORPHANED
        return edge


def _hides_its_work(thread: ThreadView) -> bool:
    """Whether what a thread does is not among its frames: they could not be read, are too many, or it has only just begun."""
    own = thread.python
    names = {frame.function.rpartition(".")[2] if path_of(frame).endswith("/threading.py") else "run" for frame in own}
    return bool(thread.error or own and own[-1].is_cut or "_bootstrap" in names and "run" not in names)


def find(
    view: ProcessView, loops: Mapping[int, Poll] | None = None, tries: Mapping[int, Edge] | None = None
) -> tuple[list[Edge], dict[int, str]]:
    """-> (the edges of a process, {tid: why its edge is not known}; 0 for all of them). `loops`: the threads that only ask, by
    tid; `tries`: what those wait for that try again."""
    if view.rt is None and not view.threads:
        return [], {0: "no thread could be read"}
    finder = Finder(view, loops, tries)
    edges = finder.edges()
    forks.note_copies(view, edges)
    return edges, finder.partial
