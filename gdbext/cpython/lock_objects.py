"""Python's locks as bytes: `_thread.lock` and RLock, whether they are held and by whom. Source: Modules/_threadmodule.c of each
minor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import GdbextError, LayoutError

if TYPE_CHECKING:
    from .objects import Object
    from .runtime import Runtime

KINDS = {"_thread.lock": "Lock", "_thread.RLock": "RLock"}


class Lock:
    """A `_thread.lock` or RLock: `kind` "Lock" or "RLock", `address`, `locked`.

    `owner`: the pthread id of an RLock's holder (0: free, or a Lock, which keeps none); `count`: how often that one holds it;
    `futex`: the address that its waiters' futex calls name (0: each waits on a word of its own, 3.14 and later).
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
        if "lock.lock_lock" in L:
            locked = t.u8(at + L["lock.locked"])
            if locked > 1:
                raise LayoutError(f"no lock at {at:#x}")
            return Lock(kind, at, bool(locked), 0, t.u64(at + L["lock.lock_lock"]))
        return Lock(kind, at, bool(t.u8(at + L["lock.lock"]) & 1), 0, 0)
    if "rlock.rlock_lock" in L:
        count = t.u64(at + L["rlock.rlock_count"])
        owner = t.u64(at + L["rlock.rlock_owner"]) if count else 0
        return Lock(kind, at, count > 0, owner, t.u64(at + L["rlock.rlock_lock"]), count)
    locked = bool(t.u8(at + L["rlock.lock.mutex"]) & 1)
    count = t.u64(at + L["rlock.lock.level"]) + 1 if locked else 0
    return Lock(kind, at, locked, t.u64(at + L["rlock.lock.thread"]) if locked else 0, 0, count)


def parked_at(rt: Runtime, futex: int) -> Object | None:
    """3.14 and later: the lock `Object` whose byte a thread is parked for, which waits on the word `futex` of a record on its
    own stack (`struct wait_entry`, Python/parking_lot.c: park_arg, addr, semaphore); None where no lock is there."""
    L = rt.layout
    if "lock.lock" not in L:
        return None
    try:
        byte = rt.target.u64(futex - 8)
        for key in ("lock.lock", "rlock.lock.mutex"):
            obj = rt.object(byte - L[key])
            if byte > L[key] and KINDS.get(obj.type.builtin_name) == ("Lock" if key == "lock.lock" else "RLock"):
                return obj
    except GdbextError:
        pass  # something else parks there: a mutex of the interpreter's own
    return None
