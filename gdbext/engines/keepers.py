"""The threads that move requests on: the place of each, and a value that shows whether it made progress meanwhile."""

from __future__ import annotations

from typing import Callable

from .. import log
from ..cpython.frames import PyFrame
from ..cpython.runtime import PyThread, Runtime
from ..cpython.tasks import running_loops
from ..errors import GdbextError
from ..observe.observer import thread_sample
from ..primitives.table import WAITS
from .objects import settled_frames, thread_in
from .sightings import Keeper

LOOPS = ("/asyncio/runners.py", "/asyncio/base_events.py", "/uvicorn/_compat.py")  # the place of a loop with nothing to run


def keeper(
    rt: Runtime,
    name: str,
    thread: PyThread | None,
    rests: Callable[[list[PyFrame]], bool],
    turns_in: Callable[[PyFrame], bool] = lambda frame: False,
) -> Keeper:
    """A thread that moves requests on. `rests(frames)`, innermost first: whether it is idle at its place; `turns_in(frame)`:
    whether the frame is that of the loop which calls the work."""
    if thread is None:
        return Keeper(name, None)
    try:
        frames = rt.frames(thread)
        sample = thread_sample(rt, thread, inside(frames, turns_in))
    except GdbextError as e:
        log.passed_over(e)
        if rt.target.is_stopped:
            raise
        return Keeper(name, thread.tid, woken=True)  # it goes on
    inner = next((f for f in frames if not f.file.endswith(WAITS)), None)
    found = Keeper(name, thread.tid, sample=sample)
    if inner is None or rests(frames):
        found.woken = sample.runs
    else:
        found.stands = f"{inner.function} ({inner.file.rpartition('/')[2]}:{inner.line})"
    return found


def keeper_in(
    rt: Runtime,
    name: str,
    function: str,
    rests: Callable[[list[PyFrame]], bool],
    turns_in: Callable[[PyFrame], bool] = lambda frame: False,
) -> Keeper:
    """The thread with a frame of `function` as a keeper. It has ended only where the frames of every other thread were read."""
    thread = thread_in(rt, function)
    if thread is None and not rt.target.is_stopped and len(list(settled_frames(rt))) < len(rt.threads()):
        return Keeper(name, 0, woken=True)
    return keeper(rt, name, thread, rests, turns_in)


def inside(frames: list[PyFrame], turns_in: Callable[[PyFrame], bool]) -> int:
    """How many frames are above those of a thread's own loop. The loop's frames are the same at each turn, so only the others
    distinguish two moments."""
    return next((i for i, f in enumerate(frames) if turns_in(f)), len(frames))


def loop_keeper(rt: Runtime, name: str, loop: int) -> Keeper:
    """A task of the event loop at an address: at rest where no thread runs that loop, or no callback of it runs."""
    tid = running_loops(rt).get(loop)
    thread = next((t for t in rt.threads() if t.tid == tid), None)
    if thread is None:
        return Keeper(name, 0, kind="task")
    found = keeper(
        rt, name, thread, lambda frames: frames[0].file.endswith((*LOOPS, *WAITS)), lambda frame: frame.file.endswith(LOOPS)
    )
    found.kind = "task"
    return found
