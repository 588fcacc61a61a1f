"""The lock inside Python's io objects of C code, which notes its owner. Source: Modules/_io/bufferedio.c."""

from __future__ import annotations

from typing import Any

from .. import log
from ..access.model import PAGE
from ..errors import GdbextError

_BUFFERED, _TEXT = ("_io.BufferedWriter", "_io.BufferedReader", "_io.BufferedRandom"), "_io.TextIOWrapper"
IO_WORDS = 26  # of such an object: more than it has before its lock and owner


def buffered_owner(obj: Any, futex: int) -> int | None:
    """The pthread id of the owner of the lock inside an io.BufferedWriter, BufferedReader or BufferedRandom, or inside the one
    below an io.TextIOWrapper. The lock's semaphore has to be at `futex`. None for anything else.

    Source: Modules/_io/bufferedio.c, `buffered`: `PyThread_type_lock lock`, then `unsigned long owner`. Their offsets differ by
    minor; the pointer to the semaphore that a thread waits on marks the place."""
    try:
        kind = obj.type.builtin_name
        if kind not in (*_BUFFERED, _TEXT) or futex < PAGE:  # the first argument of another call
            return None
        words = obj.rt.target.words(obj.address, IO_WORDS)
        if kind == _TEXT:
            inner = (obj.rt.object(word) for word in words[2:6] if word)
            return next((owner for one in inner if (owner := _owner_in(one, futex)) is not None), None)
    except GdbextError as e:
        log.passed_over(e)
        return None
    return _owner_in(obj, futex)


def _owner_in(obj: Any, futex: int) -> int | None:
    try:
        if obj.type.builtin_name not in _BUFFERED:
            return None
        words = obj.rt.target.words(obj.address, IO_WORDS)
    except GdbextError as e:
        log.passed_over(e)
        return None
    return next((owner for word, owner in zip(words[2:], words[3:]) if word == futex), None)
