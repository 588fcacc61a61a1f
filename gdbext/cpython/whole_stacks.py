"""Whether the stack of a running thread is whole: it must end at the thread's root, its first frame.

A frame may return while the stack is read. Its link outward is then cleared (Python/ceval.c, clear_gen_frame;
Objects/frameobject.c, frame_dealloc), and the walk ends there. Rules for a root:

- From 3.12 on, an activation whose own frame lies on the C stack called it.
- In 3.11 it belongs to the outermost _PyCFrame.
- It is no coroutine's frame.
- From 3.12 on, its thread counts as many frames as the stack has (Python/ceval.c, _Py_EnterRecursivePy). A frame that C called
  may have returned, and its C stack have other contents: no other rule shows that.

A stack that breaks a rule, or ends at another root than before, is read again until it stays the same.
"""

from __future__ import annotations

import os
import struct
import time
from typing import TYPE_CHECKING, Sequence

from .. import log
from ..access import procfs
from ..errors import GdbextError, LayoutError
from . import dialects
from .dialects import RawFrame
from .layout import Layout

if TYPE_CHECKING:
    from ..access.base import Target
    from .runtime import PyThread, Runtime

AGREE, SPAN = 6, 0.03  # readings one after the other, and seconds from the first to the last, that prove a root
GENERATES = 0x20 | 0x80 | 0x200  # flags of a generator's and a coroutine's code (Include/cpython/code.h)
SWITCHES_STACKS = "_greenlet."  # the library of the greenlet package
_ASLEEP = ("S", "T", "t")  # states in which no frame comes or goes


class _Root:
    """What is known of a thread's outermost frame.

    `root`: (address, code), None where it has no frame or nothing is `known`. `last`: the root of the last reading in doubt,
    which was the same `count` times since `since`. `rest`: the run time of the thread if it slept after that reading, else None.
    """

    def __init__(self) -> None:
        self.root: tuple[int, int] | None = None
        self.known = False
        self.last: tuple[int, int] | None = None
        self.count, self.since = 0, 0.0
        self.rest: int | None = None

    def agrees(self, root: tuple[int, int] | None, rest: int | None) -> bool:
        """Whether a reading in doubt has been the same often enough, this one included."""
        now = time.monotonic()
        if not self.count or self.last != root:
            self.last, self.count, self.since, self.rest = root, 0, now, None
        self.count += 1
        still, self.rest = rest is not None and rest == self.rest, rest
        return still or self.count >= AGREE and now - self.since >= SPAN


def settle(rt: Runtime, thread: PyThread, steps: Sequence[RawFrame]) -> None:
    """Raises `LayoutError` where a stack, innermost first, may not be whole. In a stopped process every stack is whole."""
    if rt.target.is_stopped:
        return
    kept: _Root = rt.target.lasting.setdefault(("root of a thread", thread.address), _Root())
    root = (steps[-1].address, steps[-1].code) if steps else None
    if kept.known and kept.root == root:
        kept.count = 0
        return
    why = _doubt(rt, thread, steps)
    if not why and kept.root is None and rt.minor.frame_objects:
        why = "is not known to be whole yet"
    if not why and kept.root is not None:
        why = "ends at another frame than before"
    if why and not kept.agrees(root, _rest(rt, thread)):
        raise LayoutError(f"the stack of thread {thread.tid} {why}: it changed while it was read")
    kept.root, kept.known, kept.count = root, True, 0


def states_by_thread(rt: Runtime) -> list[list[PyThread]]:
    """The states of each thread, that of the main interpreter first. Before 3.12 a state names the thread that made it, and
    another may run it: there each counts by itself."""
    found: list[list[PyThread]] = []
    by_tid: dict[int, list[PyThread]] = {}
    for state in rt.states():
        if rt.minor.states_own_threads and state.tid in by_tid:
            by_tid[state.tid].append(state)
        elif state.tid:
            by_tid[state.tid] = [state]
            found.append(by_tid[state.tid])
    return found


def counted(layout: Layout, head: bytes) -> int | None:
    """How many Python frames a thread has by its own count. `head`: its state's first bytes, `tstate.__size` of them. None before
    3.12, where calls of C are counted too."""
    if "tstate.py_recursion_remaining" not in layout:
        return None
    (limit,) = struct.unpack_from("<i", head, layout["tstate.py_recursion_limit"])
    (left,) = struct.unpack_from("<i", head, layout["tstate.py_recursion_remaining"])
    return int(limit - left)


def counts_more(target: Target) -> bool:
    """Whether a thread may count frames that are not on its stack: greenlet is loaded, and a greenlet goes on with the count of
    the one that started it (greenlet's TPythonState.cpp, set_initial_state)."""
    return any(os.path.basename(m.path).startswith(SWITCHES_STACKS) for m in target.mappings())


def _doubt(rt: Runtime, thread: PyThread, steps: Sequence[RawFrame]) -> str:
    """Why a stack may be torn; '' where nothing says so."""
    if not steps:
        return "is empty"
    last = steps[-1]
    if len(steps) >= dialects.MAX_FRAMES:
        return ""  # there are more than are read
    if rt.code(last.code).flags & GENERATES:
        return "ends in a coroutine or generator"
    if rt.minor.shim_frames and not last.anchor:
        return "does not end where C called Python"
    if rt.minor.entry_frames and len(thread.states) == 1 and last.anchor != dialects.outermost_cframe(rt, thread.address):
        return "does not end where C called Python"
    if len(thread.states) == 1:
        own = counted(rt.layout, rt.target.read(thread.address, rt.layout["tstate.__size"]))
        if own not in (None, len(steps)) and not counts_more(rt.target):
            return f"has {len(steps)} frames where its thread counts {own}"
    return ""


def _rest(rt: Runtime, thread: PyThread) -> int | None:
    """The run time of a sleeping thread, in nanoseconds; None where it does not sleep or the time cannot be read. If two readings
    give the same time, nothing changed between them."""
    pid = rt.target.pid or 0
    try:
        return (procfs.read_schedstat(pid, thread.tid).ran or None) if procfs.state_of(pid, thread.tid) in _ASLEEP else None
    except (GdbextError, OSError) as e:
        log.passed_over(e)
        return None
