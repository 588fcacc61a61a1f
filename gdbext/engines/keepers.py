"""The threads that move requests on: where each stands, and what tells whether it got on meanwhile."""

from __future__ import annotations

from ..access.ptrace import thread_state
from ..cpython.stack_keys import stack_key
from ..cpython.tasks import running_loops
from ..errors import GdbextError
from .sightings import Keeper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional

    from ..cpython.frames import PyFrame
    from ..cpython.runtime import PyThread, Runtime

WAITS = ("/threading.py", "/queue.py", "/selectors.py")  # of the standard library: who stands there is named by its caller
LOOPS = ("/asyncio/runners.py", "/asyncio/base_events.py", "/uvicorn/_compat.py")  # whose loop has nothing to run stands there


def keeper(rt: Runtime, name: str, thread: Optional[PyThread], rests: Callable[[List[PyFrame]], bool]) -> Keeper:
    """A thread that moves requests on. `rests(frames)`, innermost first: whether it waits for more where it stands."""
    if thread is None:
        return Keeper(name, None)
    try:
        frames = rt.frames(thread)
        key = tuple((code, at, (words, _numbers(f))) for (code, at, words), f in zip(stack_key(frames), frames))
    except GdbextError:
        if rt.target.is_stopped:
            raise
        return Keeper(name, thread.tid, woken=True)  # it goes on
    inner = next((f for f in frames if not f.file.endswith(WAITS)), None)
    if inner is None or rests(frames):
        live = rt.target.is_live and not rt.target.is_stopped and rt.target.pid
        return Keeper(name, thread.tid, woken=bool(live) and thread_state(rt.target.pid or 0, thread.tid) == "R", key=key)
    return Keeper(name, thread.tid, f"{inner.function} ({inner.file.rpartition('/')[2]}:{inner.line})", key=key)


def _numbers(frame: PyFrame) -> List[int]:
    """The ints among a frame's variables: a counter comes round to the same place in memory at every second step."""
    found = []
    for _, value in frame.locals():
        try:
            if hasattr(value, "isa") and value.type_name == "int":
                found.append(value.integer())
        except GdbextError:  # it changes while it is read, or is no object yet
            continue
    return found


def loop_keeper(rt: Runtime, name: str, loop: int) -> Keeper:
    """A task of the event loop at an address: at rest where no thread runs that loop, or no callback of it runs."""
    tid = running_loops(rt).get(loop)
    thread = next((t for t in rt.threads() if t.tid == tid), None)
    if thread is None:
        return Keeper(name, 0, kind="task")
    found = keeper(rt, name, thread, lambda frames: frames[0].file.endswith((*LOOPS, *WAITS)))
    found.kind = "task"
    return found
