"""Keys of Python stacks that differ when the thread has moved between two samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def stack_key(frames: Sequence[Any]) -> Any:
    """A key that stays equal while the thread stands: code, instruction, and the words of each frame's variables. A loop that
    comes back to the same call has other objects in its variables by then."""
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


def _variables(frame: Any) -> bytes:
    rt = frame.rt
    L, t = rt.layout, rt.target
    count = len(frame.code.variables)
    at = frame.address + (L["frameobj.f_localsplus"] if "frameobj.f_localsplus" in L else L["iframe.localsplus"])
    return bytes(t.read_partial(at, 8 * min(count, 256)))
