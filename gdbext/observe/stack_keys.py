"""Keys of Python stacks that differ when the thread has moved between two samples."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Sequence

from .. import log
from ..cpython.bytecode import stored_around
from ..cpython.frames import CO_FAST_CELL, CO_FAST_FREE
from ..errors import FaultError, GdbextError

MOST_NAMES = 32  # of a loop in module code


@dataclass(frozen=True)
class FrameKey:
    """One frame at one moment: the `words` of its variables, and `numbers`: ((index, value) of each int among them). `numbers`
    count only for `advanced`: a copy of a process may lack objects that the other samples have. Where it lacks `words` there is
    no key (`FaultError`)."""

    code: int
    lasti: int
    words: bytes
    numbers: tuple[tuple[int, int], ...] = field(compare=False)


def stack_key(frames: Sequence[Any]) -> tuple[FrameKey, ...]:
    """A key that stays equal while the thread does not move: code, instruction, and the words of each frame's variables. A loop
    that comes back to the same call has other objects in its variables by then."""
    return tuple(FrameKey(f.code.address, f.raw.lasti, *_variables(f)) for f in frames)


def advanced(stacks: Sequence[Any]) -> bool:
    """Whether two of a thread's stacks share outer calls and differ in a variable of one of them. It differs in its word, or in
    its int value: the next number of a counter soon takes the address of an earlier one."""
    whole = [s for s in stacks if s and isinstance(s[0], FrameKey)]
    for a, b in zip(whole, whole[1:]):
        for one, other in zip(reversed(a), reversed(b)):
            if one.code != other.code:
                break
            if one.words != other.words or _differ(one.numbers, other.numbers):
                return True
    return False


def most_added(one: Sequence[FrameKey], other: Sequence[FrameKey]) -> int:
    """By how much an int of the outer calls that two stacks share has changed, the most of all; 0 where none has."""
    most = 0
    for a, b in zip(reversed(one), reversed(other)):
        if a.code != b.code:
            break
        known = dict(a.numbers)
        most = max([most, *(abs(n - known[i]) for i, n in b.numbers if i in known)])
    return most


def _differ(one: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]) -> bool:
    """Whether an int that both know has another value."""
    known = dict(one)
    return any(known.get(i, n) != n for i, n in other)


def _variables(frame: Any) -> tuple[bytes, tuple[tuple[int, int], ...]]:
    """The words of its variables, and those that are ints. Variables in cells are left out of the ints: other code changes them
    too. Those of module code are the names to which the loop gives values in which it stands."""
    rt, variables = frame.rt, frame.code.variables[:256]
    if not variables:
        return _names(frame)
    L, t = rt.layout, rt.target
    at = frame.address + (L["frameobj.f_localsplus"] if "frameobj.f_localsplus" in L else L["iframe.localsplus"])
    words = bytes(t.read_partial(at, 8 * len(variables)))
    if len(words) < 8 * len(variables) and t.is_stopped:
        raise FaultError(at, 8 * len(variables), "not in the copy")
    numbers = []
    for i, ((_, kind), (word,)) in enumerate(zip(variables, struct.iter_unpack("<Q", words[: len(words) // 8 * 8]))):
        value = rt.object(rt.dialect.untag(word)) if word and not kind & (CO_FAST_CELL | CO_FAST_FREE) else None
        try:
            if value is not None and value.type_name == "int":
                numbers.append((i, value.integer()))
        except GdbextError as e:  # it changes while it is read, or is no object yet
            log.passed_over(e)
            continue
    return words, tuple(numbers)


def _names(frame: Any) -> tuple[bytes, tuple[tuple[int, int], ...]]:
    """As `_variables`, of a frame that has none."""
    words, numbers, names, stands = b"", [], [], frame.rt.target.is_stopped
    try:
        names = stored_around(frame.code, frame.raw.lasti)[:MOST_NAMES]
    except GdbextError as e:
        if stands:
            raise
        log.passed_over(e)
    for i, name in enumerate(names):
        try:
            value = frame.globals().item(name)
            words += name.encode() + struct.pack("<Q", value.address)
            if value.type_name == "int":
                numbers.append((i, value.integer()))
        except GdbextError as e:
            if stands and isinstance(e, FaultError):
                raise  # a copy that lacks a name is no sample in which the name has gone
            log.passed_over(e)  # it has no value yet, or changes while it is read
    return words, tuple(numbers)
