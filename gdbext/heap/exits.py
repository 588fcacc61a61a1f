"""What the interpreter itself holds for later: functions that `atexit` is to call, with their arguments, and signal handlers.

No module or frame leads to these. The tables of offsets do not have the place of atexit's: it is looked for in the interpreter's
state (in 3.9 in the module's), and believed where every entry is a callback. Up to 3.11 the handlers stand in a static variable;
where its symbol is stripped, the table is known by what every entry of it is. Source: Modules/atexitmodule.c, signalmodule.c,
Include/internal/pycore_atexit.h, pycore_signal.h of each minor.
"""

from __future__ import annotations

import struct
from typing import Iterator, Sequence

from .. import log
from ..access.model import PAGE
from ..cpython.find import variables
from ..cpython.referrers import Root
from ..cpython.runtime import Runtime
from ..errors import GdbextError, NotFoundError

SIGNALS = 65  # Py_NSIG of Linux; the first is unused
OF_GLIBC = (32, 33)  # which sigaction(2) of the C library refuses
MAX_CALLBACKS = 1 << 16


def roots(rt: Runtime, partial: list[str]) -> list[Root]:
    """Each such object as a root, those of atexit in no certain order. What could not be read is appended to `partial`."""
    found: list[Root] = []
    for what, read in (("an atexit callback", _at_exit), ("a handler of signal {}", _handlers)):
        try:
            found += [Root(f"({address:#x})", address, shown=f"({what.format(n)})") for n, address in read(rt)]
        except GdbextError as e:
            log.passed_over(e, what)
            partial.append(f"what only {what.replace(' {}', '')} holds has no owner here: {e}")
    return found


def _handlers(rt: Runtime) -> Iterator[tuple[int, int]]:
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


def _at_exit(rt: Runtime) -> list[tuple[int, int]]:
    """(0, object) of the functions, tuples and dicts of all callbacks."""
    L, t = rt.layout, rt.target
    if not rt.minor.interp_atexit:
        module = rt.module("atexit")
        state = t.u64(rt.modules()["atexit"].address + L["module.md_state"]) if module is not None else 0
        places = [(state, 16)] if state else []
    else:
        places = [(interp, L["interp.__size"] & -8) for interp in rt.interpreters()]
    found = []
    for start, size in places:
        words = struct.unpack(f"<{size // 8}Q", rt.target.read_filled(start, size))
        for callback in _listed(rt, words) if rt.minor.listed_atexit else _in_arrays(rt, words):
            found += [(0, one) for one in callback if one]
    return found


def _is_callback(rt: Runtime, parts: Sequence[int]) -> bool:
    """Whether three words are a callback's function, its arguments and its keywords."""
    function, arguments, keywords = parts
    known = function and arguments and rt.object(arguments).type.builtin_name == "tuple"
    return bool(known) and (not keywords or rt.object(keywords).type.builtin_name in ("dict", "NoneType"))


def _in_arrays(rt: Runtime, words: Sequence[int]) -> list[tuple[int, ...]]:
    """Up to 3.13: callbacks ** (some NULL), their number and room for how many there is."""
    t = rt.target
    for array, counts in zip(words, words[1:]):
        count, room = counts & 0xFFFFFFFF, counts >> 32
        if not 0 < count <= room <= MAX_CALLBACKS or array & 7 or not array >> 12:
            continue
        try:
            entries = [at for at in struct.unpack(f"<{count}Q", t.read(array, 8 * count)) if at]
            callbacks = [struct.unpack("<3Q", t.read(at, 24)) for at in entries]
            if callbacks and all(_is_callback(rt, one) for one in callbacks):
                return callbacks
        except GdbextError as e:
            log.note("no callbacks of atexit at %#x: %s", array, e)
    return []


def _listed(rt: Runtime, words: Sequence[int]) -> list[tuple[int, ...]]:
    """From 3.14 on: a list of tuples."""
    system = rt.module("sys")
    lists = system.item("path").type.address if system is not None else 0
    for at in dict.fromkeys(word for word in words if word >> 12 and not word & 7):
        try:
            if rt.target.u64(at + rt.layout["object.ob_type"]) != lists:
                continue
            held = rt.object(at).elements(MAX_CALLBACKS)
            callbacks = [tuple(one.element_addresses(4)) for one in held if one.isa("tuple")]
            if held and len(callbacks) == len(held) and all(len(c) == 3 and _is_callback(rt, c) for c in callbacks):
                return [(at, *callback) for callback in callbacks]
        except GdbextError as e:
            log.note("no callbacks of atexit at %#x: %s", at, e)
    return []
