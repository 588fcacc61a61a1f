"""Loops that only ask: a thread or task that asks over and over for what another one is to give, and does nothing else."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Sequence

from .. import log
from ..errors import GdbextError
from ..primitives.table import ASYNCIO, CHILDREN, LIBRARY, LOOPS
from . import bytecode
from .frames import PyFrame
from .poll_values import Ask
from .poll_walk import Walk
from .primitive_states import find, path_of, pid_of

MAX_LOOPS = 4  # of a function
MAX_FRAMES = 8  # innermost, of which one may have the loop
_LIBRARY = (*LIBRARY, *ASYNCIO, "/context.py", "/sharedctypes.py")
_ENGINE = ("asyncio/base_events.py", "asyncio/runners.py", "asyncio/events.py")  # run other code in turn


@dataclass
class Poll:
    """A loop that only asks: its `code` (address), its instructions (where each begins and ends), `depth`: how many frames are
    outward of its frame; `asks`: what it waits for."""

    code: int
    places: list[tuple[int, int]]
    depth: int
    asks: list[Ask]
    where: Any = None  # the frame
    edge: Any = None  # what `stacks.polls` makes of it
    limit: bool = False  # it ends by itself, or rests on what cannot be read

    def covers(self, stack: Any) -> bool:
        """Whether a sample of the stack (`observe.stack_keys`) is in the loop. One that was torn is not looked at."""
        if not stack or not hasattr(stack[0], "lasti"):
            return True
        place = stack[-1 - self.depth] if len(stack) > self.depth else None
        return place is not None and place.code == self.code and any(at <= place.lasti < end for at, end in self.places)

    @property
    def key(self) -> tuple[int, int, int]:
        return self.code, min(self.places)[0], self.depth


def of_frames(frames: Sequence[PyFrame]) -> Poll | None:
    """The loop of a thread or task that only asks; None where its loop may do anything else. `frames`: innermost first."""
    for n, frame in enumerate(frames[:MAX_FRAMES]):
        if path_of(frame).endswith(_ENGINE):
            return None
        if path_of(frame).endswith(_LIBRARY) and not path_of(frame).endswith(LOOPS):
            continue
        with log.passing_over(GdbextError):  # its stack changed while it was read
            for start, end in around(frame):
                found = _of_loop(frame, start, end)
                if found is not None:
                    found.depth = len(frames) - n - 1
                    return found
    return _of_child(frames)


def _of_child(frames: Sequence[PyFrame]) -> Poll | None:
    """The library's own loop that waits for a child up to a time limit. Its caller may do more after that."""
    wait = find(frames) if any(path_of(frame).endswith(CHILDREN) for frame in frames[:MAX_FRAMES]) else None
    if wait is None or wait.kind != "Process" or not wait.limit:
        return None
    ask = Ask("Process", wait.object, "", "", pid_of(wait.object))
    depth = len(frames) - list(frames).index(wait.frame) - 1
    caller = next((f for f in frames if not path_of(f).endswith(LIBRARY)), wait.frame)
    return Poll(wait.frame.code.address, [(0, sys.maxsize)], depth, [ask], caller, limit=True)


def _of_loop(frame: PyFrame, start: int, end: int) -> Poll | None:
    try:
        walk = Walk(frame.code, dict(frame.locals()), (frame.globals(), frame.builtins()))
        asks = walk.round(start, end, frame.raw.lasti)
    except (GdbextError, RecursionError, IndexError) as e:
        log.passed_over(e, "whether a loop only asks")
        return None
    places = [(at, walk.steps[at].behind) for at in sorted(walk.visited)]
    return Poll(frame.code.address, places, 0, asks, frame, limit=walk.ends or walk.unsure) if asks else None


def around(frame: PyFrame) -> list[tuple[int, int]]:
    """The loops of a frame's function that may be round its instruction, the innermost first, those of one head as one. The code
    of a handler lies behind its loop."""
    ends: dict[int, int] = {}
    for start, end in bytecode.of(frame.code).loops():
        ends[start] = max(end, ends.get(start, 0))
    at = frame.raw.lasti
    found = [(start, end) for start, end in ends.items() if start <= at]
    return sorted(found, key=lambda one: (one[1] < at, one[1] - one[0] if one[1] >= at else -one[0]))[:MAX_LOOPS]
