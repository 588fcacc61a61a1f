"""Loops that only ask: a thread or task that asks over and over for what another one is to give, and does nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import log
from ..errors import GdbextError
from . import loops
from .poll_walk import Walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .frames import PyFrame
    from .poll_calls import Ask

MAX_FRAMES = 8  # innermost, of which one may have the loop
_LIBRARY = ("/queue.py", "/threading.py", "/_base.py", "/connection.py", "/subprocess.py", "/synchronize.py", "/selectors.py",
            "/popen_fork.py", "/tasks.py", "/context.py", "/sharedctypes.py")  # fmt: skip
_ENGINE = ("asyncio/base_events.py", "asyncio/runners.py", "asyncio/events.py")  # run other code in turn


@dataclass
class Poll:
    """A loop that only asks: its `code` (address), its first and last instruction, `depth`: how many frames are outward of its
    frame; `asks`: what it waits for."""

    code: int
    start: int
    end: int
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
        return place is not None and place.code == self.code and self.start <= place.lasti <= self.end

    @property
    def key(self) -> tuple[int, int, int]:
        return self.code, self.start, self.depth


def of_frames(frames: Sequence[PyFrame]) -> Poll | None:
    """The loop of a thread or task that only asks; None where its loop may do anything else. `frames`: innermost first."""
    for n, frame in enumerate(frames[:MAX_FRAMES]):
        path = str(frame.file).replace("\\", "/")
        if path.endswith(_ENGINE):
            return None
        if path.endswith(_LIBRARY):
            continue
        try:
            for start, end in _around(frame):
                found = Walk(frame.rt, frame.code, dict(frame.locals()), (frame.globals(), frame.builtins()))
                asks = found.round(start, end, frame.raw.lasti)
                if asks:
                    poll = Poll(frame.code.address, start, end, len(frames) - n - 1, asks, frame)
                    poll.limit = found.ends or found.unsure
                    return poll
        except (GdbextError, RecursionError) as e:
            log.passed_over(e, "whether a loop only asks")
    return None


def _around(frame: PyFrame) -> list[tuple[int, int]]:
    """The loops round a frame's instruction, the innermost first, those of one head as one."""
    ends: dict[int, int] = {}
    for start, end in loops._loops(frame.code):
        ends[start] = max(end, ends.get(start, 0))
    found = [(start, end) for start, end in ends.items() if start <= frame.raw.lasti <= end]
    return sorted(found, key=lambda one: one[1] - one[0])
