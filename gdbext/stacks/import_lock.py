"""CPython's own import lock (`_imp.acquire_lock`): whoever is inside a finder's `find_spec` has it, and every other import of the
process waits for it. The locks of single modules are `python_waits`'s.

Sources: Lib/importlib/_bootstrap.py (`_find_spec`, `_get_module_lock`, `_ImportLockContext`); Python/import.c: `import_lock`,
`import_lock_thread` up to 3.11, in 3.12 `lock.mutex` and `lock.thread` of `interp->imports`; pycore_lock.h: from 3.13 on it is a
`_PyRecursiveMutex`, on whose byte waiters are parked (struct wait_entry of Python/parking_lot.c).
"""

from __future__ import annotations

from typing import Any

from .. import log
from ..cpython import locks
from ..cpython.runtime import PyThread
from ..errors import GdbextError
from ..primitives.table import LIBRARY
from .python_waits import ORPHANED, last_part, outer_place, path_of
from .threads import ProcessView, ThreadView
from .waits import Edge

WHAT = "the import lock (_imp.acquire_lock)"
_BOOTSTRAP, _CONTEXT = "importlib._bootstrap>", "_ImportLockContext"
_NOBODY = (0, (1 << 64) - 1)  # PYTHREAD_INVALID_THREAD_ID
_MUTEX, _THREAD = "interp.imports.lock.mutex", "interp.imports.lock.thread"


def edge_of(view: ProcessView, thread: ThreadView, py: PyThread, futex: int) -> Edge | None:
    """The edge of a thread that waits for the import lock; None where it waits for something else. `futex`: the address that it
    waits on, 0 for none."""
    if not futex:
        return None
    lock, owner = _lock(py)
    if not (_waits_at(py, lock, futex) if lock else _takes(thread.python)):
        return None
    where = outer_place(thread.python, thread.python[0], LIBRARY) if thread.python else str(thread.top or "")
    found = Edge((view.name, thread.tid), WHAT, "import", address=lock, where=where)
    inside = [th for th in view.threads if th is not thread and _holds(th)] if owner is None else []
    who = view.by_ident(owner) if owner is not None else inside[0] if len(inside) == 1 else None
    if who is not None:
        found.owner = (view.name, who.tid)
    elif inside:
        found.candidates = [(view.name, th.tid) for th in inside]
    elif owner in _NOBODY:
        found.note = "it was just being released"
    elif owner is not None:
        found.orphan, found.note = True, f"its owner, thread {owner:#x}, does not exist in this process: {ORPHANED}"
    else:
        found.note = "no frame of this process shows who has it"
    return found


def _lock(py: PyThread) -> tuple[int, int | None]:
    """-> (the address of the lock, or of its semaphore before 3.13; the pthread id of its owner). 0 and None where these are not
    known: before 3.12 they are variables of import.c, which a stripped library does not name."""
    L, t = py.rt.layout, py.rt.target
    with log.passing_over(GdbextError):
        if _MUTEX in L:
            at = py.interp + L[_MUTEX]
            return at if py.rt.minor.mutexes else t.u64(at), t.u64(py.interp + L[_THREAD])
        return t.u64(t.symbol("import_lock")), t.u64(t.symbol("import_lock_thread"))
    return 0, None


def _waits_at(py: PyThread, lock: int, futex: int) -> bool:
    """Whether a thread's futex is the lock's."""
    with log.passing_over(GdbextError):
        return bool(lock) and (py.rt.target.u64(futex - 8) if py.rt.minor.mutexes else futex) == lock
    return False


def _takes(frames: Any) -> bool:
    """Whether the innermost frame is where importlib takes the lock."""
    if not frames or not path_of(frames[0]).endswith(_BOOTSTRAP):
        return False
    name = last_part(str(frames[0].function))
    return name == "_get_module_lock" or name == "__enter__" and _is_context(frames[0])


def _is_context(frame: Any) -> bool:
    """Whether a method is one of the context that takes the lock. From 3.11 on its qualified name says so."""
    if "." in str(frame.function):
        return str(frame.function).startswith(_CONTEXT)
    with log.passing_over(GdbextError, AttributeError):
        own: Any = dict(frame.locals()).get("self")
        return own is not None and last_part(own.type_name) == _CONTEXT
    return False


def _holds(thread: ThreadView) -> bool:
    """Whether a frame of a thread is inside the context that has the lock, past its `__enter__`."""
    for inner, frame in zip([None, *thread.python], thread.python):
        if path_of(frame).endswith(_BOOTSTRAP) and last_part(str(frame.function)) == "_find_spec":
            entering = inner is not None and last_part(str(inner.function)) == "__enter__" and _is_context(inner)
            if not entering and any(last_part(obj.type_name) == _CONTEXT for obj in locks.entered(frame)):
                return True
    return False
