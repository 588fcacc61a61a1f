"""Keys of Python stacks that differ when the thread has moved between two samples."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ..errors import GdbextError
from .frames import CO_FAST_CELL, CO_FAST_FREE

if TYPE_CHECKING:
    from collections.abc import Sequence


def stack_key(frames: Sequence[Any]) -> Any:
    """A key that stays equal while the thread stands: code, instruction, and each frame's variables. A loop that comes back to
    the same call has other objects in its variables by then, or other numbers: a new one soon takes an old one's place."""
    return tuple((f.code.address, f.raw.lasti, _variables(f)) for f in frames)


def advanced(stacks: Sequence[Any]) -> bool:
    """Whether two of a thread's stacks share outer calls and differ in a variable of one of them."""
    whole = [s for s in stacks if s and isinstance(s[0], tuple)]
    for a, b in zip(whole, whole[1:]):
        for one, other in zip(reversed(a), reversed(b)):
            if one[0] != other[0]:
                break
            if one[2] != other[2]:
                return True
    return False


def _variables(frame: Any) -> tuple[bytes, tuple[int, ...]]:
    """The words of its variables, and the ints among them. What is in cells others change too."""
    rt, variables = frame.rt, frame.code.variables[:256]
    L, t = rt.layout, rt.target
    at = frame.address + (L["frameobj.f_localsplus"] if "frameobj.f_localsplus" in L else L["iframe.localsplus"])
    words = bytes(t.read_partial(at, 8 * len(variables)))
    numbers = []
    for (_, kind), (word,) in zip(variables, struct.iter_unpack("<Q", words[: len(words) // 8 * 8])):
        value = rt.object(rt.dialect.untag(word)) if word and not kind & (CO_FAST_CELL | CO_FAST_FREE) else None
        try:
            if value is not None and value.type_name == "int":
                numbers.append(value.integer())
        except GdbextError:  # it changes while it is read, or is no object yet
            continue
    return words, tuple(numbers)
