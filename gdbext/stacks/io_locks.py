"""The lock inside Python's io objects of C code, which notes its owner. Source: Modules/_io/bufferedio.c."""

from __future__ import annotations

from typing import Any

from .. import log
from ..access.model import PAGE
from ..errors import GdbextError

_BUFFERED, _TEXT = ("_io.BufferedWriter", "_io.BufferedReader", "_io.BufferedRandom"), "_io.TextIOWrapper"
IO_WORDS = 26  # of such an object: more than it has before its lock and owner


def buffered_owner(obj: Any, futex: int, kinds: tuple[str, ...] = (*_BUFFERED, _TEXT)) -> int | None:
    """The pthread id of the owner of the lock inside an io.BufferedWriter, BufferedReader or BufferedRandom, or inside the one
    below an io.TextIOWrapper. The lock's semaphore has to be at `futex`. None for anything else.

    Source: Modules/_io/bufferedio.c, `buffered`: `PyThread_type_lock lock`, then `unsigned long owner`. Their offsets differ by
    minor; the pointer to the semaphore that a thread waits on marks the place."""
    with log.passing_over(GdbextError):
        kind = obj.type.builtin_name
        if kind not in kinds or futex < PAGE:  # the first argument of another call
            return None
        words = obj.rt.target.words(obj.address, IO_WORDS)
        if kind != _TEXT:
            return next((owner for word, owner in zip(words[2:], words[3:]) if word == futex), None)
        inner = (buffered_owner(obj.rt.object(word), futex, _BUFFERED) for word in words[2:6] if word)
        return next((owner for owner in inner if owner is not None), None)
    return None
