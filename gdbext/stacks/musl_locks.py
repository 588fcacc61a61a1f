"""The mutexes of musl, the C library of Alpine and of static programs, which have no symbols to know a wait by.

A thread waits on the second word of the mutex. The top bit says that somebody waits; the rest is EBUSY in a plain mutex, which
notes no owner, and the owner's tid in the other kinds. The first word is the kind. Source: src/internal/pthread_impl.h,
src/thread/pthread_mutex_timedlock.c of musl 1.2.
"""

from __future__ import annotations

import re

from .. import log
from ..access.base import Target
from ..errors import FaultError

_MUSL = re.compile(r"ld-musl-.*|libc\.musl-.*|libc\.so$").match
WAITERS, TID, BUSY = 1 << 31, (1 << 30) - 1, 16
KIND, SHARED = 15, 128  # of the first word: 0 for a plain mutex; one that other processes may have


def owner(target: Target, futex: int) -> int | None:
    """The tid (in the process's own namespace) of the owner of the mutex on whose word a thread waits; 0 for a plain mutex; None
    where this is no mutex of musl."""
    if not any(_MUSL(module.name) for module in target.modules()):
        return None
    try:
        kind, word = target.u32(futex - 4), target.u32(futex)
    except FaultError as e:
        log.passed_over(e)
        return None
    if not word & WAITERS or kind >> 8 or kind & SHARED:
        return None
    if kind & KIND:
        return word & TID
    return 0 if word & TID == BUSY else None
