"""The handlers of signals that a program has set.

Up to 3.11 they stand in a static variable; where its symbol is stripped, the table is known by what every entry of it is. Source:
Modules/signalmodule.c, Include/internal/pycore_signal.h of each minor.
"""

from __future__ import annotations

import struct
from typing import Iterator, Sequence

from .. import log
from ..access.model import PAGE
from ..errors import GdbextError, NotFoundError
from .find import variables
from .runtime import Runtime

SIGNALS = 65  # Py_NSIG of Linux; the first is unused
OF_GLIBC = (32, 33)  # which sigaction(2) of the C library refuses


def handlers(rt: Runtime) -> Iterator[tuple[int, int]]:
    """(its number, its handler) of each signal: of an array of (int tripped, PyObject *func)."""
    at = rt.layout.get("runtime.signals")
    table = rt.address + at if at is not None else _static_table(rt)
    words = rt.target.words(table, 2 * SIGNALS)
    yield from ((n // 2, words[n]) for n in range(3, len(words), 2) if words[n])


def _static_table(rt: Runtime) -> int:
    """The address of `Handlers` of signalmodule.c up to 3.11; `NotFoundError`.

    Every signal's entry has SIG_DFL, SIG_IGN, None or a function, whether the program has set it or not; the two that glibc keeps
    for itself (32, 33) have None for good. Entry 0 is empty."""
    with log.passing_over(GdbextError):
        return rt.target.symbol("Handlers", [rt.library])
    scope = rt.module("_signal")
    default = scope.item("SIG_DFL").address if scope is not None else 0
    for start, data in variables(rt.target, rt.library):
        words = struct.unpack_from(f"<{len(data) // 8}Q", data)
        for place in (i for i, word in enumerate(words) if word == default and default):
            first = place
            while first >= 2 and _is_entry(words[first - 3 : first - 1]):
                first -= 2
            table = words[first - 1 : first - 1 + 2 * (SIGNALS - 1)]
            if first >= 3 and words[first - 3 : first - 1] == (0, 0) and _is_table(rt, table):
                return start + 8 * (first - 3)
    raise NotFoundError(f"{rt.name} is stripped, and its table of signal handlers is not where it can be told from other data")


def _is_entry(pair: Sequence[int]) -> bool:
    return len(pair) == 2 and pair[0] <= 1 and pair[1] >= PAGE and not pair[1] & 7


def _is_table(rt: Runtime, words: Sequence[int]) -> bool:
    """Whether these are the entries of the signals 1 to 64."""
    pairs = list(zip(words[::2], words[1::2]))
    try:
        own = [rt.object(pairs[n - 1][1]).is_none() for n in OF_GLIBC] if len(pairs) == SIGNALS - 1 else []
        return (
            all(own) and bool(own) and all(map(_is_entry, pairs)) and all(rt.object(at).type.name for at in {p[1] for p in pairs})
        )
    except GdbextError as e:
        log.note("no table of signal handlers: %s", e)
        return False
