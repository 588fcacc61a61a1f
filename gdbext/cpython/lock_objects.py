"""Python's locks as bytes: `_thread.lock` and RLock, whether they are held, and the holder. Source: Modules/_threadmodule.c of
each minor.

A `_thread.lock` either points to a semaphore of the system or is a byte of its own (PyMutex). It is a byte from 3.14 on, and in
later releases of 3.13. Such an object is smaller; its type gives the size.
"""

from __future__ import annotations

from .. import log
from ..errors import GdbextError, LayoutError
from .objects import Object
from .runtime import Runtime

KINDS = {"_thread.lock": "Lock", "_thread.RLock": "RLock"}


class Lock:
    """A `_thread.lock` or RLock: `kind` "Lock" or "RLock", `address`, `locked`.

    `owner`: the pthread id of an RLock's holder (0: free, or a Lock, which keeps none); `count`: how often that one holds it;
    `futex`: the address that its waiters' futex calls name (0: each waits on a word of its own, where the lock is a byte).
    """

    __slots__ = ("kind", "address", "locked", "owner", "futex", "count")

    def __init__(self, kind: str, address: int, locked: bool, owner: int, futex: int, count: int = 0) -> None:
        self.kind, self.address, self.locked, self.owner, self.futex, self.count = kind, address, locked, owner, futex, count


def read(obj: Object) -> Lock | None:
    """The `Lock` of an `Object`, None where it is of another type; `LayoutError` where no lock stands there."""
    kind = KINDS.get(obj.type.builtin_name)
    if kind is None:
        return None
    L, t, at = obj.rt.layout, obj.rt.target, obj.address
    if kind == "Lock":
        byte = _byte_at(obj)
        if byte is not None:
            return Lock(kind, at, bool(t.u8(at + byte) & 1), 0, 0)
        locked = t.u8(at + L["lock.locked"])
        if locked > 1:
            raise LayoutError(f"no lock at {at:#x}")
        return Lock(kind, at, bool(locked), 0, t.u64(at + L["lock.lock_lock"]))
    if "rlock.rlock_lock" in L:
        count = t.u64(at + L["rlock.rlock_count"])
        owner = t.u64(at + L["rlock.rlock_owner"]) if count else 0
        return Lock(kind, at, count > 0, owner, t.u64(at + L["rlock.rlock_lock"]), count)
    locked = bool(t.u8(at + L["rlock.lock.mutex"]) & 1)
    count = t.u64(at + L["rlock.lock.level"]) + 1 if locked else 0
    return Lock(kind, at, locked, t.u64(at + L["rlock.lock.thread"]) if locked else 0, 0, count)


def _byte_at(lock: Object) -> int | None:
    """The offset of a `_thread.lock`'s byte, None where the lock points to a semaphore."""
    L = lock.rt.layout
    if "lock.lock" in L:
        return L["lock.lock"]
    return L["lock.lock_lock"] if lock.type.basicsize < L["lock.__size"] else None


def parked_at(rt: Runtime, futex: int) -> Object | None:
    """The lock `Object` for whose byte a thread is parked; None where no lock is there.

    `futex`: the word on which the thread waits. It belongs to a record on the thread's own stack (`struct wait_entry`,
    Python/parking_lot.c: park_arg, addr, semaphore).
    """
    L = rt.layout
    if not rt.minor.mutexes:
        return None
    try:
        byte = rt.target.u64(futex - 8)
        for kind, key in (("Lock", "lock.lock" if "lock.lock" in L else "lock.lock_lock"), ("RLock", "rlock.lock.mutex")):
            if key not in L or byte <= L[key]:
                continue
            obj = rt.object(byte - L[key])
            if KINDS.get(obj.type.builtin_name) == kind and (kind == "RLock" or _byte_at(obj) is not None):
                return obj
    except GdbextError as e:
        log.passed_over(e)  # something else parks there: a mutex of the interpreter's own
    return None
