"""A budget for what an expression may make. A few words can need more than all memory, since each value may hold the last one
twice.

One budget covers everything that is made while an expression is evaluated, kept or not: text, containers, copies, numbers.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from typing import Any, Iterable, Iterator

from ..errors import GdbextError

MAX_MADE = 256 << 20  # bytes
SECONDS = 30.0
ITEM = 64  # bytes of a place in a container, with the small thing that lies there
TOGETHER = 1024  # members that are taken at once

_left: list[float] = []  # bytes, and the moment of the end, while an expression is evaluated


@contextlib.contextmanager
def expression() -> Iterator[None]:
    """A `with` block in which an expression is evaluated; one within another shares its budget."""
    if _left:
        yield
        return
    _left[:] = [MAX_MADE, time.monotonic() + SECONDS]
    try:
        yield
    finally:
        _left.clear()


def take(size: float) -> None:
    """Counts the size of a new value, before or while it is made; `GdbextError` where the budget is spent."""
    if not _left:
        return
    _left[0] -= size
    if _left[0] < 0:
        raise GdbextError(f"the expression makes more than {MAX_MADE >> 20} MiB of text, numbers and containers: narrow it down")
    if time.monotonic() > _left[1]:
        raise GdbextError(f"the expression takes more than {SECONDS:g} s: narrow it down")


def made(value: Any) -> Any:
    """A value that an expression has made, counted."""
    if isinstance(value, (str, bytes, bytearray, int, float)):
        take(sys.getsizeof(value))
    elif isinstance(value, (list, tuple, dict, set, frozenset)):
        take(sys.getsizeof(value) + ITEM * len(value))
    elif type(value).__module__.startswith("pathlib"):
        take(len(str(value)))
    elif type(value).__module__ == "fractions":
        take(sys.getsizeof(value.numerator) + sys.getsizeof(value.denominator))
    return value


def gathered(members: Iterable[Any]) -> list[Any]:
    """A list of `members`, counted as they come."""
    found: list[Any] = []
    coming = iter(members)
    while True:
        part = list(itertools.islice(coming, TOGETHER))
        if not part:
            return found
        take(ITEM * len(part) * (1 + len(part[0]) if isinstance(part[0], tuple) else 1))
        found += part


def brief(value: Any, limit: int = 60) -> str:
    """The beginning of a value's repr. A value that holds itself many times is not written out."""
    import reprlib

    short = reprlib.Repr()
    short.maxlevel = 2
    short.maxstring = short.maxother = short.maxlong = limit
    return short.repr(value)[:limit]
