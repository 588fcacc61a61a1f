"""Waits in native code: the pthread locks of glibc, and what else a thread is known to wait for by the C function it is in.

A mutex and a rwlock that is locked for writing note their owner's tid; a rwlock only counts its readers; a pthread_once and
the guard of a C++ static note no owner, a barrier has none. Sources, the same on x86-64 and aarch64:
sysdeps/nptl/bits/struct_mutex.h, sysdeps/*/nptl/bits/struct_rwlock.h, nptl/pthreadP.h, nptl/pthread_rwlock_common.c,
nptl/pthread_once.c of glibc; libstdc++-v3/libsupc++/guard.cc.
"""

from __future__ import annotations

import ctypes
import os
import re
from typing import TYPE_CHECKING

from .. import log
from ..access.procfs import read_syscall, state_of
from ..cpython import gil
from ..errors import GdbextError
from ..primitives.table import NATIVE
from ..render import names
from .python_waits import ORPHANED
from .waits import Edge

if TYPE_CHECKING:
    from .threads import ProcessView, ThreadView

MUTEX = re.compile(r"_*(pthread_mutex_(lock|timedlock|clocklock)|lll_lock_wait(_private)?|pthread_mutex_cond_lock)")
JOIN = re.compile(r"_*pthread_(timed|clock)?join")
COND = re.compile(r"_*pthread_cond_(wait|timedwait|clockwait)")
_RWLOCK = re.compile(r"_*pthread_rwlock_(?:timed|clock)?(rd|wr)lock")
_KINDS = tuple((re.compile(row.function), row) for row in NATIVE)
_UNTOLD = re.compile(
    r"_*(pthread_(spin_lock|rwlock_\w*lock|barrier_wait|once\w*)|cxa_guard_acquire|sem_(timed|clock)?wait|new_sem_wait)"
)
_FUTEX = re.compile(r"_*(futex|lll_|syscall$|internal_syscall|GI___futex|pthread_cond_)")
# inside one of these no thread rests: it waits for an owner, or for others to come
LOCKED = re.compile(
    r"^_*(pthread_(rwlock_\w*lock|barrier_wait|once\w*|spin_lock|mutex_\w*lock)|lll_lock_wait\w*|cxa_guard_acquire)(@|$)|"
    r"(\w*[Mm]utex|[Rr][Ww]_?[Ll]ock|[Bb]arrier|[Ll]atch)::(lock|Lock|wait|arrive_and_wait|\w*[Ss]low)"
)
_LIBC = ("libc.", "libc-", "libpthread", "ld-")
DEPTH = 6  # innermost frames in which a wait has its name
GETPID = 11  # of semctl(2)
MUTEX_OWNER, MUTEX_KIND = 8, 16
MUTEX_KINDS = 0x1FF
MUTEX_SHARED = 0x80  # PTHREAD_MUTEX_PSHARED_BIT, nptl/pthreadP.h
WRPHASE_FUTEX, WRITERS_FUTEX, CUR_WRITER, RW_SHARED, RW_FLAGS = 8, 12, 24, 28, 48
WRPHASE, WRLOCKED, RWAITING, READER_SHIFT = 1, 2, 4, 3  # bits of its first word
WRITERS_FIRST = 2  # PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP


def stands_in(thread: ThreadView, pattern: re.Pattern[str]) -> re.Match[str] | None:
    """The match of the innermost native frame whose function a pattern matches, None where there is none."""
    return next((m for m in (pattern.match(f.function or "") for f in thread.native[:DEPTH]) if m), None)


def _edge(view: ProcessView, thread: ThreadView, kind: str, lock: str, address: int) -> Edge:
    """The edge, with the place in which the thread wants the lock: of native code the function that called the C library."""
    frames = [f for f in thread.frames if f.function and (f.kind == "python" or not os.path.basename(f.file).startswith(_LIBC))]
    where = thread.top if thread.python or not frames else frames[0]
    return Edge((view.name, thread.tid), lock, kind, address=address, where=str(where or "a place that cannot be named"))


def _by_tid(view: ProcessView, tid: int) -> ThreadView | None:
    """The thread that has a tid in the process's own namespace."""
    return next((th for th in view.threads if th.thread is not None and th.thread.ns_tid == tid), None) if tid else None


def owned(view: ProcessView, edge: Edge, owner: int) -> Edge:
    """The edge to a lock of the process's own, whose owner's tid is known; 0: it notes none."""
    found = _by_tid(view, owner)
    if found is not None:
        edge.owner = (view.name, found.tid)
    elif owner:
        edge.orphan = True
        edge.note = f"its owner, thread {owner}, does not exist in this process: " + ORPHANED
    else:
        edge.note = "it is kept by a lock that notes no owner"
    return edge


def _of_several(view: ProcessView, edge: Edge, owner: int, shared: bool) -> Edge:
    """As `owned`; of a lock that is `shared` between processes the owner may be in another one."""
    if shared and owner and _by_tid(view, owner) is None:
        edge.lock += " in shared memory"
        edge.shared = ("mutex", owner)
        return edge
    return owned(view, edge, owner)


def mutex(view: ProcessView, thread: ThreadView, futex: int) -> Edge:
    """The edge of a thread that waits for the pthread mutex at `futex`."""
    target = view.target
    word, owner, kind = target.u32(futex), target.u32(futex + MUTEX_OWNER), target.u32(futex + MUTEX_KIND)
    edge = _edge(view, thread, "mutex", f"the mutex at {futex:#x}", futex)
    if kind > MUTEX_KINDS or not word & 0x3FFFFFFF:
        edge.note = "it was just being released" if not word else "its owner is unknown: not a known kind of mutex"
        return edge
    return _of_several(view, edge, owner, bool(kind & MUTEX_SHARED))


def join(view: ProcessView, thread: ThreadView, futex: int) -> Edge | None:
    """The edge to the thread that a pthread_join waits for. It waits on the `tid` in that thread's descriptor (glibc's struct
    pthread)."""
    owner = _by_tid(view, view.target.u32(futex))
    if owner is None:
        return None
    edge = _edge(view, thread, "Thread", f"the end of thread {owner.name or owner.tid}", 0)
    edge.owner, edge.where = (view.name, owner.tid), str(thread.top or "")
    return edge


def other(view: ProcessView, thread: ThreadView, futex: int) -> Edge | None:
    """The edge of a thread that waits in native code for a rwlock, a barrier, an initializer, or an object of the kernel's; None
    where it is in no function of these."""
    way = stands_in(thread, _RWLOCK)
    if way is not None and futex:
        return _rwlock(view, thread, futex, way.group(1) == "wr")
    for pattern, row in _KINDS:
        if not stands_in(thread, pattern) or bool(futex) is (row.kind == "native"):
            continue
        if row.kind == "semaphore" and _is_pythons(thread):
            return None
        edge = _edge(view, thread, row.kind, row.what.format(futex), futex)
        able = _inside(view, thread, pattern, row.kind)
        edge.candidates, edge.doubted = [(view.name, th.tid) for th in able], bool(able)
        edge.note = row.note + ("; by their frames one of these may be in it" if able else "")
        if pattern.match("semop") and view.live:
            edge.note = _last_at_semaphore(view, thread) + edge.note
        return edge
    return None


def _last_at_semaphore(view: ProcessView, thread: ThreadView) -> str:
    """Which process has last done something at the System V semaphore of a thread's call, in words; '' where that is not told.
    Sources: semop(2), semctl(2); the kernel notes no holder."""
    with log.passing_over(GdbextError, OSError, AttributeError):
        call = read_syscall(view.pid or thread.tid, thread.tid)
        if call is None or os.readlink(f"/proc/{view.pid}/ns/ipc") != os.readlink("/proc/self/ns/ipc"):
            return ""
        number = view.target.u16(call.arguments[1])
        last = ctypes.CDLL(None).semctl(ctypes.c_int(call.arguments[0]), number, GETPID)
        if last > 0:
            gone = state_of(last) in ("", "Z", "X")
            return f"process {last} was the last at it{', and has ended: it gives nothing back' if gone else ''}; "
    return ""


def _is_pythons(thread: ThreadView) -> bool:
    """Whether the interpreter itself waits: its locks, events and queues sleep in semaphores of their own."""
    callers = (os.path.basename(f.library or "") for f in thread.native)
    return bool(re.match(r"(lib)?python\d", next((name for name in callers if not name.startswith(_LIBC)), "")))


def _inside(view: ProcessView, waiter: ThreadView, pattern: re.Pattern[str], kind: str) -> list[ThreadView]:
    """The threads that may run the initializer for which one waits. Of a once they have it further out on their stack; of a
    static they are in the function whose static it is."""
    if kind not in ("once", "guard"):
        return []
    at = next(i for i, f in enumerate(waiter.native) if pattern.match(f.function or ""))
    name = waiter.native[at + 1].function if kind == "guard" and at + 1 < len(waiter.native) else None
    found = []
    for th in view.threads:
        if th is waiter or stands_in(th, pattern) and _sleeps_in(th, pattern):
            continue
        if any(f.function == name if kind == "guard" else pattern.match(f.function or "") for f in th.native) and (
            name or kind == "once"
        ):
            found.append(th)
    return found


def _sleeps_in(thread: ThreadView, pattern: re.Pattern[str]) -> bool:
    """Whether a thread waits in a function of `pattern` itself: nothing but system calls is further in."""
    inner: list[str] = []
    for frame in thread.native:
        if pattern.match(frame.function or ""):
            return all(_FUTEX.match(name or "syscall") for name in inner)
        inner.append(frame.function)
    return False


def _rwlock(view: ProcessView, thread: ThreadView, futex: int, writes: bool) -> Edge | None:
    """The edge of a thread that waits for a rwlock. A writer waits on one of two words of it, a reader on one of two others."""
    target = view.target
    first = target.u32(futex)
    behind = not writes and first & (WRPHASE | WRLOCKED | RWAITING) == WRLOCKED | RWAITING and bool(first >> READER_SHIFT)
    if behind and target.u32(futex + RW_FLAGS) == WRITERS_FIRST:
        base = futex
    else:
        base, behind = futex - (WRITERS_FUTEX if futex % 8 else WRPHASE_FUTEX), False
    word, owner = target.u32(base), target.u32(base + CUR_WRITER)
    edge = _edge(view, thread, "rwlock", f"the rwlock at {base:#x} for {'writing' if writes else 'reading'}", base)
    readers = word >> READER_SHIFT
    if owner:
        return _of_several(view, edge, owner, target.u32(base + RW_SHARED) != 0)
    if behind:
        writers = [th for th in view.threads if th is not thread and _writes(view, th, base)]
        edge.candidates, edge.every = [(view.name, th.tid) for th in writers], len(writers) == 1
        edge.note = "a writer waits for it, and goes first"
    elif readers:
        edge.note = f"it counts {readers} reader{'s' * (readers != 1)}, and keeps no note of {'them' if readers != 1 else 'it'}"
    else:
        edge.note = "it is just being handed over"
    return edge


def _writes(view: ProcessView, thread: ThreadView, base: int) -> bool:
    """Whether a thread waits to write the rwlock at `base`."""
    way = stands_in(thread, _RWLOCK)
    if way is None or way.group(1) != "wr" or thread.thread is None:
        return False
    return gil.futex_of(view.target, thread.thread) in (base + WRPHASE_FUTEX, base + WRITERS_FUTEX)


def untold(view: ProcessView, known: set[int]) -> tuple[list[tuple[ThreadView, str]], int]:
    """-> (`[(thread, the native function it is in)]` of the threads that wait in native code for what cannot be told; how many
    threads of native code alone sleep in a futex that is no condition variable, in whatever function). `known`: the tids of
    those of which it is known."""
    found, asleep = [], 0
    for th in view.threads:
        if th.tid in known or not th.native:
            continue
        named = next((f for f in th.native[:DEPTH] if _UNTOLD.match(f.function or "")), None)
        sleeps = bool(_FUTEX.match(th.native[0].function or "futex"))
        if th.idle or not th.python and named is None:
            asleep += sleeps and not th.python and not stands_in(th, COND)
            continue
        if named is None and sleeps:
            named = next((f for f in th.native if f.function and not _FUTEX.match(f.function)), None)
        if named is not None:
            found.append((th, names.short(named.function)))
    return found, asleep
