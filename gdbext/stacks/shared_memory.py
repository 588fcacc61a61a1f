"""Locks in shared memory whose holder has ended: who maps the lock, and whether one of them is left that could release it.

A semaphore of multiprocessing is released by Python code of a process that maps it. A process that has ended releases nothing: no
semaphore, and no process-shared mutex, unless that is robust (pthread_mutexattr_setrobust(3)).
"""

from __future__ import annotations

import os
import re
import time
from typing import Any, Callable, Iterable, Sequence

from .. import log
from ..access import namespaces
from ..access.model import Mapping
from ..access.procfs import read_or_empty, read_proc, state_of, task_ids
from ..access.proctable import ProcTable
from ..cpython.objects import Object
from ..cpython.poll_values import kinds_of
from ..cpython.primitive_states import pid_of
from ..errors import GdbextError
from ..observe.clocks import descendants, hidden_kin, how_ended
from ..primitives.model import Guard
from ..primitives.table import GUARDS, SHARED
from .python_waits import FRAMES, last_part, number, path_of, text
from .references import references_of
from .threads import ProcessView, ThreadView
from .waits import Edge

SECONDS, LATEST = 5.0, 30.0  # of CPU, and in all, for one pass through all maps
SHOWN = 4
_SIGNALS = ("wait", "wait_for", "notify")  # of multiprocessing.synchronize
_MULTIPROCESSING = "sem.mp-"  # how its names begin: multiprocessing/synchronize.py, `_make_name`
ENDED = "no process is left that could release it"


def identity(mapping: Mapping) -> Any:
    """(device, inode) of the file of a mapping; None where they are not known."""
    return (mapping.device, mapping.inode) if mapping.inode else None


def mappers(device: str, inode: int, family: Iterable[int]) -> list[int] | None:
    """The pids of the processes that map the file of an inode. None where the maps of one of `family` may not be read, or it
    took too long: one more may map it."""
    found, kin = [], set(family)
    spent, late = time.thread_time() + SECONDS, time.monotonic() + LATEST
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        if time.thread_time() > spent or time.monotonic() > late:
            return None
        maps = _maps(pid, device, inode)
        if maps:
            found.append(pid)
        elif maps is None and pid in kin:
            return None
    return found


def _maps(pid: int, device: str, inode: int) -> bool | None:
    """Whether a process maps the file of an inode; None where that may not be read."""
    try:
        return bool(re.search(rf"^\S+ \S+ \S+ {re.escape(device)} {inode} ".encode(), read_proc(pid, "maps"), re.M))
    except GdbextError as e:
        log.passed_over(e)
        return None if state_of(pid) not in ("", "Z", "X") else False


def owners_of_mutex(edge: Edge, views: Sequence[ProcessView], owner: int) -> list[Any]:
    """The threads of `views` that may own a shared mutex. `owner`: the tid as the owner's process sees it: in another pid
    namespace any thread may have that number, so only processes that map the mutex count, where that is known."""
    mine = next((view for view in views if view.name == edge.waiter[0]), None)
    mapping = mine.target.mapping_at(edge.address) if mine is not None else None
    file = identity(mapping) if mapping is not None else None
    threads = [(view, th) for view in views for th in view.threads if th.thread is not None and th.thread.ns_tid == owner]
    return [(v.name, th.tid) for v, th in threads if file is None or v is mine or file in map(identity, v.target.mappings())]


def owner_of_mutex(edge: Edge, view: ProcessView, owner: int) -> None:
    """Sets, for a shared mutex whose owner is in no process that was read, whether that thread still exists. `owner`: its tid as
    its process sees it, one of those that map the mutex."""
    mapping = view.target.mapping_at(edge.address)
    if not view.live or mapping is None or not mapping.inode:
        return  # a core
    found = mappers(mapping.device, mapping.inode, hidden_kin(ProcTable(), view.pid or 0))
    having = [pid for pid in found or () if _has_thread(pid, owner)]
    here = namespaces.thread_here(view.pid or 0, owner)
    if having:
        edge.outside, edge.unread = [f"process {pid}" for pid in having[:SHOWN]], having[:SHOWN]
        edge.note = f"its owner, thread {owner}, is in a process that was not read"
    elif found is not None and here is not None and not (here and _maps(here, mapping.device, mapping.inode) is not False):
        # it has ended; another one that has its number now has no such memory
        edge.orphan, edge.note = True, f"its owner, thread {owner}, has ended without releasing it: {ENDED}"


def _has_thread(pid: int, tid: int) -> bool:
    """Whether a process has a thread that it calls `tid` itself."""
    with log.passing_over(GdbextError):
        return any(namespaces.numbers(f"/proc/{pid}/task/{one}")[-1] == tid for one in task_ids(pid))
    return False


def holders_of_semaphore(edge: Edge, views: Sequence[ProcessView], edges: Sequence[Edge], same: Callable[[Any], bool]) -> None:
    """Sets, for a semaphore that no process that was read says that it has, whether one is left that could release it: a process
    that maps it and has a Python thread that does not wait for it too. Inside a condition or an event a semaphore is a signal,
    which any that maps it may send: one of an event may be meant to be waited for until the program ends. `same(semlock)`:
    whether a SemLock is this semaphore."""
    key = edge.shared[1][0] if edge.shared[1] else None
    mine = next(view for view in views if view.name == edge.waiter[0])
    if not isinstance(key, tuple) or not mine.live:
        return
    found = mappers(key[0], key[1], hidden_kin(ProcTable(), mine.pid or 0))
    waiters = {one.waiter for one in edges if one.shared == edge.shared}
    read = {view.pid: view for view in views}
    outside = [pid for pid in found or () if pid not in read]
    mapping = [view for view in views if view.pid in (found or ())]
    waiter = next((th for th in mine.threads if th.tid == edge.waiter[1]), None)
    inside = _guard_of(waiter) if waiter is not None else None
    able = [node for view in mapping for node in _could_release(view, waiters, inside, same)]
    ended = list(dict.fromkeys(one for view in [mine, *mapping] for one in ended_processes(view)))
    signalled = waiter is None or any(last_part(frame.function) in _SIGNALS for frame in waiter.python[:FRAMES])
    openers = _may_open(mine, key[1], found) if found is not None and not outside else ""
    pythons = waiter is None or signalled or _is_pythons(mine, waiter, same)
    if found and waiter is not None and pythons and not outside and not openers:
        with log.passing_over(GdbextError):  # a copy may lack the object: it may be an event
            me, _ = object_of(waiter)
            edge.sharers = [] if me is not None and last_part(me.type_name) == "Event" else found
    if not pythons:
        edge.note += "; no SemLock of Python is seen to be it: native code posts it, here or in another process"
    elif openers and not able:
        edge.note += f"; {openers}"
    elif found is not None and not able and not outside and not signalled:
        why = "no thread is at work in that queue" if inside else "every process that maps it waits for it itself"
        edge.orphan, edge.note = True, f"{why}: {ENDED}"
    elif able:
        edge.candidates, edge.doubted = able, True
        edge.note += "; a thread of a process that maps it may have it"
    if outside:
        edge.unread = outside[:SHOWN]
        edge.note += f"; process {', '.join(map(str, outside[:SHOWN]))} maps it too and was not read"
    if ended:
        edge.note += f"; {', '.join(ended[:SHOWN])} has ended and may have had it"


def object_of(waiter: ThreadView) -> tuple[Any, list[Any]]:
    """(the object of multiprocessing.synchronize for which a thread waits, the outermost one; the frames that called it). (None,
    its frames) where there is none."""
    found, own = None, waiter.python[:FRAMES]
    for i, frame in enumerate(waiter.python[:FRAMES]):
        barrier = path_of(frame).endswith("/threading.py") and last_part(frame.function) in ("wait", "_wait")
        if not barrier and not path_of(frame).endswith(SHARED):
            break
        me = dict(frame.locals()).get("self")
        if me is not None and me.type.is_heap:
            found, own = me, waiter.python[i + 1 : FRAMES]
    return found, own


def _is_pythons(view: ProcessView, waiter: ThreadView, same: Callable[[Any], bool]) -> bool:
    """Whether frames of a thread lead to a SemLock that is the semaphore: one that Python code alone acquires and releases."""
    if view.rt is None:
        return False
    for frame in waiter.python[:FRAMES]:
        for _, obj in references_of(view.rt).of_frame(frame):
            try:
                if obj.type.name == "SemLock" and same(obj):
                    return True
            except GdbextError as e:
                log.passed_over(e)
    return False


def _may_open(view: ProcessView, inode: int, mapping: Iterable[int]) -> str:
    """Who may still open the semaphore by its name, in words; '' where it has none, or no process that may know it. The name of
    multiprocessing's, where children are spawned, is known to their kin alone (multiprocessing/synchronize.py, `SemLock`)."""
    name = _name_of(f"{view.target.root()}/dev/shm", inode)
    if not name:
        return ""
    if not name.startswith(_MULTIPROCESSING):
        return f"its name is /dev/shm/{name}: any process may open it and post it"
    table, known = ProcTable(), set(mapping)
    kin = {pid for one in known for pid in descendants(table, one)} - known
    kin = {pid for pid in kin if b"resource_tracker" not in read_or_empty(pid, "cmdline")}
    return f"process {', '.join(map(str, sorted(kin)[:SHOWN]))} may still open it by its name" if kin else ""


def _name_of(folder: str, inode: int) -> str:
    """The name of a file in a folder by its inode; '' for one that has none there, or is out of sight."""
    try:
        with os.scandir(folder) as entries:
            return next((one.name for one in entries if one.name.startswith("sem.") and one.inode() == inode), "")
    except OSError as e:
        log.passed_over(e)
        return ""


def _guard_of(waiter: ThreadView) -> Guard | None:
    """The lock inside a queue of multiprocessing for which a thread waits; None where it waits for another lock."""
    inner = waiter.python[:2]
    if len(inner) < 2 or last_part(inner[0].function) != "__enter__":
        return None
    return next((one for one in GUARDS if _is_inside(inner[1], one)), None)


def _is_inside(frame: Any, guard: Guard) -> bool:
    return path_of(frame).endswith(guard.file) and last_part(frame.function) in guard.functions


def _may_have(frame: Any, guard: Guard, same: Callable[[Any], bool]) -> bool:
    """Whether a frame is inside a function of the queue whose lock it is; true also of a queue that cannot be read."""
    if not _is_inside(frame, guard):
        return False
    try:
        queue: Any = dict(frame.locals())["self"]
        return same(queue.attr(guard.lock).attr("_semlock"))
    except (GdbextError, KeyError, AttributeError) as e:
        log.passed_over(e, "the lock of a queue")
        return True


def _could_release(view: ProcessView, waiters: set[Any], inside: Guard | None, same: Callable[[Any], bool]) -> list[Any]:
    """The Python threads that do not wait for it; of a queue's lock those `inside` its functions. The main thread where none
    could be read."""
    python = [th for th in view.threads if th.python and (inside or not th.idle)]
    if not python:
        return [(view.name, view.pid)]
    if inside:
        python = [th for th in python if any(_may_have(frame, inside, same) for frame in th.python)]
    return [(view.name, th.tid) for th in python if (view.name, th.tid) not in waiters]


def ended_processes(view: ProcessView) -> list[str]:
    """The `multiprocessing.Process` objects that frames of a process can name and whose processes have ended."""
    found: dict[int, str] = {}
    if view.rt is None:
        return []
    references = references_of(view.rt)
    for frame in (frame for thread in view.threads for frame in thread.python):
        for _, obj in references.of_frame(frame):
            try:
                if obj.type.is_heap and "multiprocessing.process.BaseProcess" in kinds_of(obj):
                    popen = obj.attr("_popen")
                    status = number(popen, "returncode") if isinstance(popen, Object) and not popen.is_none() else "?"
                    if isinstance(status, int):
                        how = how_ended(-status if status < 0 else status << 8)
                        found[obj.address] = f"{text(obj, '_name')} (pid {pid_of(obj) or '?'}, {how})"
            except GdbextError as e:
                log.passed_over(e)
    return list(found.values())
