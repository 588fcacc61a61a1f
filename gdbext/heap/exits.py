"""What the interpreter itself holds for later: functions that `atexit` is to call, with their arguments, and signal handlers.

No module or frame leads to these. The tables of offsets do not have the place of atexit's: it is looked for in the interpreter's
state (in 3.9 in the module's), and believed where every entry is a callback. Source: Modules/atexitmodule.c,
Include/internal/pycore_atexit.h of each minor.
"""

from __future__ import annotations

import struct
from typing import Sequence

from .. import log
from ..cpython.referrers import Root
from ..cpython.runtime import Runtime
from ..cpython.signals import handlers
from ..errors import GdbextError

MAX_CALLBACKS = 1 << 16


def roots(rt: Runtime, partial: list[str]) -> list[Root]:
    """Each such object as a root, those of atexit in no certain order. What could not be read is appended to `partial`."""
    found: list[Root] = []
    for what, read in (("an atexit callback", _at_exit), ("a handler of signal {}", handlers)):
        try:
            found += [Root(f"({address:#x})", address, shown=f"({what.format(n)})") for n, address in read(rt)]
        except GdbextError as e:
            log.passed_over(e, what)
            partial.append(f"what only {what.replace(' {}', '')} holds has no owner here: {e}")
    return found


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
