"""Locks between processes: the process that holds the mutex, semaphore or file lock for which a thread of another process waits.

- A process-shared pthread mutex notes its owner's thread id (glibc, struct __pthread_mutex_s).
- A semaphore in shared memory notes no owner. But multiprocessing's SemLock, in the process that has it, counts and notes the
  thread (Modules/_multiprocessing/semaphore.c: handle, last_tid, count).
- A lock on a file is the kernel's: the holder's /proc/PID/fdinfo/FD says `lock:` (proc(5)). The process is known, not the thread.
  Of a file that exists while the lock is held, the maker names itself in it, or has it open (`tries`).
"""

from __future__ import annotations

import os
import re
import stat
from functools import partial
from typing import Any, Iterable, Sequence

from .. import log
from ..access.base import Target
from ..access.files import file_status
from ..access.procfs import read_proc
from ..cpython import gil, locks
from ..cpython.objects import Object
from ..errors import GdbextError
from ..observe.system_calls import all_descriptors
from . import ray_actors, shared_memory, sqlite_locks, tries
from .python_waits import last_part
from .references import References, references_of
from .threads import ProcessView, ThreadView
from .waits import Edge, Node

SEMAPHORES = "/dev/shm/sem."  # where glibc's sem_open keeps them
HANDLE, LAST_TID, COUNT = 0, 8, 16  # in a SemLock, behind the object's head
_FILE_CALL = re.compile(r"_*(libc_)?(flock|fcntl\w*|lockf\w*)$")


# ---- in the process that waits ---------------------------------------------------------------------------------------
def semaphore_at(target: Target, address: int) -> Any:
    """The identity of the semaphore at `address`, the same in every process that maps it: (inode, offset in its file); None where
    there is none."""
    mapping = target.mapping_at(address)
    if mapping is None or not mapping.path.startswith(SEMAPHORES):
        return None
    return shared_memory.identity(mapping) or mapping.path, mapping.offset + address - mapping.start


def shared_name(references: References, thread: ThreadView, address: int) -> str:
    """An object of multiprocessing that a thread waits for, in words: the one for which its outermost frame of the library waits.
    `address`: of its semaphore."""
    with log.passing_over(GdbextError):
        me, own = shared_memory.object_of(thread)
        if me is not None:
            name = next(filter(None, (references.name_of(f, me.address) for f in own)), "") or hex(me.address)
            return f"the {last_part(me.type_name)} {name}, shared between processes"
    return f"the semaphore at {address:#x}, in memory shared between processes"


def of_semlock(rt: Any, address: int) -> Any:
    """The identity of the semaphore of a SemLock at `address`, as `semaphore_at` gives it."""
    return semaphore_at(rt.target, rt.target.u64(address + rt.layout["object.__size"] + HANDLE))


def _is_semaphore(key: Any, semlock: Any) -> bool:
    return bool(of_semlock(semlock.rt, semlock.address) == key)


def locked_descriptor(view: ProcessView, thread: ThreadView) -> int | None:
    """The file descriptor on which a thread calls flock() or fcntl(), or None."""
    if thread.thread is None or not thread.native or not _FILE_CALL.match(thread.native[0].function or ""):
        return None
    try:
        return view.target.registers(thread.thread).get(gil.FIRST_ARGUMENT[view.target.arch])
    except (GdbextError, KeyError) as e:
        log.passed_over(e)
        return None


# ---- in the processes that may have it -------------------------------------------------------------------------------
def held_semaphores(view: ProcessView) -> dict[Any, list[ThreadView]]:
    """{semaphore: [ThreadView that took it]} of the semaphores that frames of this process can name and that its SemLocks say
    they have."""
    found: dict[Any, list[ThreadView]] = {}
    if view.rt is None or not any(m.path.startswith(SEMAPHORES) for m in view.target.mappings()):
        return found
    references = references_of(view.rt)
    for thread in view.threads:
        for frame in thread.python:
            inside = locks.entered(frame)
            for obj in inside + [obj for _, obj in references.of_frame(frame)]:
                try:
                    _claim(view, obj, found, thread if obj in inside else None)
                except GdbextError as e:
                    log.passed_over(e)
                    continue  # what cannot be read is no lock
    return found


def _claim(view: ProcessView, obj: Any, found: dict[Any, list[ThreadView]], inside: ThreadView | None) -> None:
    """Adds the owner of the lock `obj` to `found`. `inside`: the thread that is in a `with` of the object. A Semaphore is claimed
    for that thread only, since any thread may release one."""
    locks_ = obj.type.name in ("Lock", "RLock")
    if not obj.type.is_heap or not (locks_ or inside is not None and obj.type.name in ("Semaphore", "BoundedSemaphore")):
        return
    inner = obj.attr("_semlock")
    if not isinstance(inner, Object) or inner.type.name != "SemLock":
        return
    target, at = view.target, inner.address + inner.rt.layout["object.__size"]
    count = target.i32(at + COUNT)
    if count == 1 or count > 0 and (inside is not None or obj.type.name == "RLock"):
        key = semaphore_at(target, target.u64(at + HANDLE))
        owner = view.by_ident(target.u64(at + LAST_TID)) if locks_ else inside
        if key and owner is not None and owner not in found.get(key, ()):
            found.setdefault(key, []).append(owner)


def file_holders(paths: Iterable[str]) -> dict[tuple[int, int], tuple[list[int], list[int]]]:
    """{(device, inode): ([pid that has a lock on the file], [pid that has it open])} of some files, of the processes that may be
    read. It makes one pass through all descriptors. Only for those that lead to a file of the same name is the file looked up."""
    wanted = {key: os.path.basename(_name(path)) for path in paths for key in [_file(path)] if key is not None}
    found: dict[tuple[int, int], tuple[list[int], list[int]]] = {key: ([], []) for key in wanted}
    names = set(wanted.values())
    with log.passing_over():  # those that were found in time
        for pid, fd, link in all_descriptors() if wanted else ():
            if os.path.basename(link.replace(" (deleted)", "")) not in names:
                continue
            key = _file(f"/proc/{pid}/fd/{fd}")
            if key is None or key not in found:
                continue
            locked, opened = found[key]
            opened.append(pid)
            try:
                if re.search(rb"^lock:\s*\S+\s+(FLOCK|POSIX|OFDLCK)", read_proc(pid, f"fdinfo/{fd}"), re.M):
                    locked.append(pid)
            except GdbextError as e:
                log.passed_over(e)
                continue  # closed meanwhile
    return {key: (list(dict.fromkeys(locked)), list(dict.fromkeys(opened))) for key, (locked, opened) in found.items()}


def _name(path: str) -> str:
    try:
        return os.readlink(path).replace(" (deleted)", "") if path.startswith("/proc/") else path
    except OSError:
        return path


def _file(path: str) -> tuple[int, int] | None:
    status = file_status(path)
    return status[1:] if status is not None and stat.S_ISREG(status[0]) else None


# ---- the two together ------------------------------------------------------------------------------------------------
def resolve(views: Sequence[ProcessView], edges: Sequence[Edge]) -> None:
    """Finds the owners of those `edges` whose locks other processes may have (`Edge.shared`), in `views`, the processes that were
    read."""
    wanted = [e for e in edges if e.shared is not None]
    if not wanted:
        return
    by_name = {view.name: view for view in views}
    taken: dict[Any, list[Node]] = {}
    actors: dict[str, list[bytes]] = {}
    files = [e.shared[1] for e in wanted if e.shared[0] in ("path", "made")]
    files += [path for e in wanted if e.shared[0] == "locked" for path in e.shared[1]]
    held = file_holders(files) if files else {}
    if any(e.shared[0] == "semaphore" for e in wanted):
        for view in views:
            for key, owners in held_semaphores(view).items():
                taken.setdefault(key, []).extend((view.name, owner.tid) for owner in owners)
    for edge in wanted:
        kind, key = edge.shared
        if kind == "mutex":
            found = shared_memory.owners_of_mutex(edge, views, key)
            set_owner(edge, found, f"its owner, thread {key}, is in none of the processes read")
            if not found:
                shared_memory.owner_of_mutex(edge, by_name[edge.waiter[0]], key)
        elif kind == "semaphore":
            found = [node for node in taken.get(key, ()) if node != edge.waiter]
            set_owner(edge, found, "a semaphore keeps no owner, and no process that was read says that it has it")
            if not found:
                shared_memory.holders_of_semaphore(edge, views, edges, partial(_is_semaphore, key))
        elif kind == ray_actors.KIND:
            ray_actors.set_givers(edge, views, actors)
        elif kind == "sqlite":
            sqlite_locks.set_owner(edge, by_name)
        elif kind == "named":
            tries.set_named(edge, views)
        elif kind == "made":
            with log.passing_over(GdbextError, OSError):
                tries.set_maker(edge, _holders(held, key)[1], by_name)
        else:
            if kind == "locked":
                path = next((one for one in key if _holders(held, one)[0]), key[0])
                edge.shared, edge.lock = ("path", path), f"a lock on the file {_name(path)}"
            set_file_owner(edge, held, by_name)
    _drop_turns(wanted)


def _holders(known: dict[tuple[int, int], tuple[list[int], list[int]]], path: str) -> tuple[list[int], list[int]]:
    key = _file(path)
    return known.get(key, ([], [])) if key is not None else ([], [])


def _drop_turns(edges: Sequence[Edge]) -> None:
    """Drops owners that want the same lock: the kernel was asked later than the copies were made, and the lock has passed on
    meanwhile."""
    for edge in edges:
        same = [e for e in edges if e.polls and e.lock == edge.lock and e.waiter[0] != edge.waiter[0]] if edge.polls else []
        if edge.owner is not None and any(e.waiter[0] == edge.owner[0] for e in same):
            edge.owner, edge.note = None, f"{edge.owner[0]} wanted it too, and had it a moment later: it is taken in turn"


def set_owner(edge: Edge, found: list[Node], nobody: str) -> None:
    """Sets the owner of a lock's edge. `found`: the threads that may have it; `nobody`: the note where there are none."""
    if len(found) == 1:
        edge.owner, edge.note = found[0], "" if edge.shared[0] == "mutex" else "its own count says so"
    elif found:
        edge.candidates, edge.note = found, "one of them has it"
    else:
        edge.note = nobody


def set_file_owner(edge: Edge, holders: dict[Any, Any], by_name: dict[str, ProcessView]) -> None:
    """Sets the process that has a locked file as the edge's owner, or notes it. `holders`: as `file_holders` gives them."""
    if _file(edge.shared[1]) is None:
        edge.note = "the file is gone, or cannot be seen from here"
        return
    mine = by_name[edge.waiter[0]]
    locked, _ = _holders(holders, edge.shared[1])
    held = [pid for pid in locked if pid != mine.pid]
    known = [(v.name, v.main.tid) for v in by_name.values() if v.pid in held and v.main is not None]
    if len(held) == 1 and known:
        edge.owner = known[0]
        edge.note = "the kernel names the process that has it, not the thread"
    elif held and len(known) == len(held):
        edge.candidates, edge.note = known, "these processes share it: the kernel names them, not the threads"
    elif held:
        edge.outside, edge.unread = [f"{_comm(pid)} ({pid})" for pid in held], held
        edge.note = f"{', '.join(edge.outside[:4])} {'has' if len(held) == 1 else 'have'} it"
    else:
        edge.note = "this process has it itself, by another descriptor" if mine.pid in locked else "no readable process has it"


def _comm(pid: int) -> str:
    try:
        return read_proc(pid, "comm").decode("utf-8", "replace").strip()
    except GdbextError as e:
        log.passed_over(e)
        return "a process that has ended"
