"""Python and native frames of a thread as one stack.

Each activation of CPython's interpreter loop leaves an object on its own C stack (`PyFrame.anchor`, 3.10 and later). The native
frame whose piece of the stack holds that address is that activation. This needs no symbols and no counting. The order is that of
the chain of native frames: a thread may have used several stacks (a signal handler's, a fiber's), which may lie in any order. 3.9
leaves no such object. There the native frames of `_PyEval_EvalFrameDefault` are counted, and the answer says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, Iterator, Sequence

from ..access.model import NativeFrame
from ..cpython.frames import PyFrame
from ..cpython.runtime import Runtime
from . import folding

if TYPE_CHECKING:
    Group = tuple[int, list[PyFrame]]

COUNTED = "Python 3.9 leaves no mark on the C stack: frames matched by counting"
LOOP = "_PyEval_EvalFrameDefault"
CUT = "native stack incomplete"
UNMARKED = "{} Python frames were begun by no activation that can be found: where native code stands among them is unknown"


class Merged:
    """One entry of a merged stack: exactly one of `python` (PyFrame) and `native` (NativeFrame) is set. `interpreter_frame`: it
    is one of the interpreter's own frames, which are folded unless asked for. `activation`: this native frame is an interpreter
    loop."""

    __slots__ = ("python", "native", "interpreter_frame", "activation", "reliable")

    def __init__(
        self,
        python: PyFrame | None = None,
        native: NativeFrame | None = None,
        interpreter_frame: bool = False,
        activation: bool = False,
        reliable: bool = True,
    ) -> None:
        self.python, self.native, self.interpreter_frame, self.activation, self.reliable = (
            python,
            native,
            interpreter_frame,
            activation,
            reliable,
        )


def merge(rt: Runtime | None, python: Sequence[PyFrame], native: Sequence[NativeFrame]) -> tuple[list[Merged], list[str]]:
    """-> (`[Merged]` innermost first, reasons why the stack may be incomplete). `native` may be empty."""
    if not native:
        return [Merged(python=f) for f in python], []
    reasons: list[str] = []
    return list(merged(rt, python, native, reasons, spare=_loops(rt, native) - len(python))), reasons


def _is_loop(fold: folding.Folding, frame: NativeFrame) -> bool:
    return not frame.inline and frame.function.split(".")[0] == LOOP and fold.may_run_python(frame)


def _loops(rt: Runtime | None, native: Iterable[NativeFrame]) -> int:
    fold = folding.Folding(rt)
    return sum(_is_loop(fold, frame) for frame in native)


def counts(rt: Runtime | None, python: Sequence[PyFrame]) -> bool:
    """Whether these frames are matched by counting, since their Python leaves no marks."""
    return bool(python) and not python[0].anchor and not (rt is not None and rt.minor.leaves_anchors)


def merged(
    rt: Runtime | None, python: Sequence[PyFrame], native: Iterable[NativeFrame], reasons: list[str], spare: int = 0
) -> Iterator[Merged]:
    """Yields the entries of `merge`, frame by frame. It reads `native` only one frame ahead of what it has yielded, so a caller
    can stop early. Reasons are appended to `reasons`. `spare`: where frames are counted, the number of innermost activations that
    have no Python frame, since they just begin or end."""
    groups, counting = _groups(python), counts(rt, python)
    fold = folding.Folding(rt)
    if counting:
        reasons.append(COUNTED)
    following_frames, began = iter(native), False
    frame = next(following_frames, None)
    while frame is not None:
        following, held = next(following_frames, None), None
        if counting:
            if groups and _is_loop(fold, frame):
                held = groups.pop(0)[1] if spare <= 0 else []
                spare -= 1
        elif following is not None and fold.may_run_python(frame):  # the upper end of the outermost frame's stack is not known
            passed, held = _take(groups, frame.sp, following.sp)
            yield from (Merged(python=f, reliable=False) for f in passed)
        began = began or held is not None
        interpreter_frame = held is not None or fold.is_interpreter(frame) or (began and not groups and fold.is_start(frame))
        yield from (Merged(python=f) for f in held or ())
        yield Merged(native=frame, interpreter_frame=interpreter_frame, activation=held is not None, reliable=frame.reliable)
        frame = following
    if groups:
        unmarked = sum(len(frames) for anchor, frames in groups if not anchor and not counting)
        reasons.append(UNMARKED.format(unmarked) if unmarked else CUT)
        for _, frames in groups:
            yield from (Merged(python=f, reliable=False) for f in frames)


def outward(rt: Runtime | None, python: Sequence[PyFrame], native: Sequence[NativeFrame]) -> list[PyFrame]:
    """The Python frames that the last of `native` and its callers run; the other Python frames are called by it."""
    if counts(rt, python):
        return list(python)[_loops(rt, native[:-1]) :]
    held = [entry.python for entry in merged(rt, python, native, []) if entry.python is not None and entry.reliable]
    last = python.index(held[-1]) + 1 if held else 0
    return list(python)[last:]


def _take(groups: list[Group], low: int, high: int) -> tuple[list[PyFrame], list[PyFrame] | None]:
    """Takes from `groups` those between two addresses of the stack. -> (frames before them that no native frame holds, their
    frames); None for their frames where there are none."""
    first = next((i for i, group in enumerate(groups) if low <= group[0] < high), None)
    if first is None:
        return [], None
    end = first + 1
    while end < len(groups) and low <= groups[end][0] < high:
        end += 1
    passed, held = groups[:first], groups[first:end]
    del groups[:end]
    return [f for _, frames in passed for f in frames], [f for _, frames in held for f in frames]


def _groups(python: Sequence[PyFrame]) -> list[tuple[int, list[PyFrame]]]:
    """Frames grouped by interpreter activation: `[(anchor, [PyFrame])]`; without anchors, each frame by itself."""
    groups: list[tuple[int, list[PyFrame]]] = []
    for frame in python:
        if groups and frame.anchor and groups[-1][0] == frame.anchor:
            groups[-1][1].append(frame)
        else:
            groups.append((frame.anchor, [frame]))
    return groups
