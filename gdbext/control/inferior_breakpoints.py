"""Breakpoints at an address, limited to the process that they are set in.

gdb (13 to 18) takes `*0x7f…` for an address of every process. A breakpoint that is set in one process gets a location at the same
address in each process that gdb attaches, or reads symbols of, later. The breakpoint instruction would then overwrite other code
or data of that process.
"""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

import gdb

from .events import listen

_pinned: list[tuple[gdb.Breakpoint, int]] = []  # (breakpoint, number of its inferior)


def pin(breakpoint: gdb.Breakpoint) -> None:
    """Ties a breakpoint to the inferior that is selected now."""
    listen(new_objfile=apply)
    _pinned.append((breakpoint, gdb.selected_inferior().num))
    _apply(*_pinned[-1])


def locations_of(breakpoint: gdb.Breakpoint) -> list[Any] | None:
    """A breakpoint's locations in its own process; None where this gdb (before 13) does not list locations."""
    number = next((n for b, n in _pinned if b is breakpoint), None)
    places = getattr(breakpoint, "locations", None)
    return None if places is None else [p for p in places if number in (p.thread_groups or [number])]


def apply(_: Any = None) -> None:
    """Disables every location that is not in the breakpoint's own process."""
    _pinned[:] = [(b, n) for b, n in _pinned if b.is_valid()]
    if sum(bool(i.pid) for i in gdb.inferiors()) > 1:
        for breakpoint, number in _pinned:
            _apply(breakpoint, number)


def _apply(breakpoint: gdb.Breakpoint, number: int) -> None:
    for place in getattr(breakpoint, "locations", ()):
        if place.enabled and number not in (place.thread_groups or [number]):
            place.enabled = False


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """Disables these breakpoints for a `with` block; afterwards each is enabled in its own process only."""
    apply()
    off = [b for b, _ in _pinned if b.enabled]
    for breakpoint in off:
        breakpoint.enabled = False
    try:
        yield
    finally:
        apply()
        for breakpoint in off:
            if breakpoint.is_valid():
                breakpoint.enabled = True
        apply()
