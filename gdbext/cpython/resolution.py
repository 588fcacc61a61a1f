"""The Python frame in which an expression is evaluated: the selected one, a function's innermost one, or the nearest outward in
which it resolves."""

from __future__ import annotations

import difflib
from collections.abc import Set
from typing import Any, Sequence

from ..errors import FaultError, GdbextError, NotFoundError
from .expressions import Evaluator, evaluate, free_names
from .frames import PyFrame
from .runtime import Runtime

MAX_TRIED = 4  # frames whose errors are told


class Resolved:
    """An expression's `value` and the `frame` whose names gave it; None where it needed none."""

    def __init__(self, value: Any, frame: PyFrame | None) -> None:
        self.value, self.frame = value, frame

    @property
    def where(self) -> str:
        """ "frame 3, EngineCore.step"; '' where no frame was needed."""
        return "" if self.frame is None else f"frame {self.frame.level}, {self.frame.function}"


def resolve(
    rt: Runtime,
    text: str,
    frames: Sequence[PyFrame],
    *,
    level: int = 0,
    outward: bool = False,
    function: str = "",
    last: Any = None,
    private: Set[str] = frozenset(),
) -> Resolved:
    """The value of `text` in one of a thread's `frames` (innermost first).

    `level`: the selected frame. `function`: start from that function's innermost frame instead. `outward`: take the first frame
    from there outward in which the whole expression resolves. Without `outward`, a name that only an outer frame has is an error
    that names that frame. `NotFoundError` where it resolves in no frame; the message gives the reason for each frame that has the
    names.
    """
    if function:
        level = frame_of(frames, function).level
    if not free_names(text) or not frames:
        return Resolved(evaluate(rt, text, None, last=last, private=private), None)
    if not outward:
        frame = frames[level]
        return Resolved(evaluate(rt, text, frame, last=last, private=private), frame)
    return _outward(rt, text, frames[level:], last, private)


def frame_of(frames: Sequence[PyFrame], function: str) -> PyFrame:
    """The innermost frame of a function: by its qualified name ("Scheduler.schedule"), the end of one, or co_name."""
    wanted = function.replace(".<locals>", "")
    for frame in frames:
        name = frame.function.replace(".<locals>", "")
        if wanted in (name, frame.code.name) or name.endswith("." + wanted):
            return frame
    names = list(dict.fromkeys(f.function for f in frames))
    close = difflib.get_close_matches(function, names, 3) or names[:8]
    raise NotFoundError(f"no frame of this thread runs {function}; it has {', '.join(close) or 'no Python frame'}")


def _outward(rt: Runtime, text: str, frames: Sequence[PyFrame], last: Any, private: Set[str]) -> Resolved:
    failures: list[tuple[PyFrame, GdbextError, tuple[int, bool]]] = []
    for frame in frames:
        work = Evaluator(rt, text, frame, last, None, private)
        try:
            return Resolved(work.run(), frame)
        except FaultError:
            raise  # memory that changed under the reader: to be read again, not to be taken for another frame's
        except GdbextError as e:
            failures.append((frame, e, (-work.done, isinstance(e, NotFoundError))))
    names = free_names(text)
    closest = [one for one in failures if any(n in names and v is not None for n, v in one[0].locals())] or failures
    told: dict[str, str] = {}
    for frame, error, _ in sorted(closest, key=lambda one: one[2]):  # the one that got farthest tells most
        told.setdefault(str(error), f"in frame {frame.level}, {frame.function}: {error}")
    reasons = list(told.values())
    more = f"; and {len(reasons) - MAX_TRIED} more" if len(reasons) > MAX_TRIED else ""
    raise NotFoundError(
        f"{text!r} resolves in none of the {len(failures)} frames of this thread; {'; '.join(reasons[:MAX_TRIED])}{more}"
    )
