"""Python and native frames of a thread as one stack.

Each activation of CPython's interpreter loop leaves an object on its own C stack (`PyFrame.anchor`, 3.10 and later). The native
frame whose piece of the stack holds that address is that activation: no symbols, no counting. 3.9 leaves none: there the native
frames of `_PyEval_EvalFrameDefault` are counted, and the answer says so.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..access.model import NativeFrame
    from ..cpython.frames import PyFrame
    from ..cpython.runtime import Runtime

COUNTED = "Python 3.9 leaves no mark on the C stack: frames matched by counting"
LOOP = "_PyEval_EvalFrameDefault"
CUT = "native stack incomplete"
# The interpreter's own machinery between two Python frames; what a user wants to see of libpython (a sleep, a lock, the
# collector) is not here.
_INTERPRETER = re.compile(
    r"_?Py(?!Thread)|_TAIL_CALL|cfunction_|method_|slot_|vectorcall|object_vacall|type_call|run_mod|run_eval|pymain_|partial_|gen_|"
    r"bounded_lru|lru_cache|wrapper_|wrap_|function_code_fastcall|trampoline|tp_new|builtin___build_class|classmethod_|property_|"
    r"call_|context_run|thread_run|t_bootstrap|pythread_wrapper|main$|_start$|__libc_start|start_thread$|clone3?$|__?clone"
)


class Merged:
    """One entry of a merged stack: exactly one of `python` (PyFrame) and `native` (NativeFrame) is set; `interpreter_frame`: part
    of the interpreter's own frames, folded unless asked for; `activation`: for a native frame, it is an interpreter loop."""

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
    """-> (`[Merged]` innermost first, reasons why it is less than whole). `native` may be empty."""
    if not native:
        return [Merged(python=f) for f in python], []
    reasons: list[str] = []
    return list(merged(rt, python, native, reasons, spare=sum(map(_is_loop, native)) - len(python))), reasons


def _is_loop(frame: NativeFrame) -> bool:
    return not frame.inline and frame.function.split(".")[0] == LOOP


def merged(
    rt: Runtime | None, python: Sequence[PyFrame], native: Iterable[NativeFrame], reasons: list[str], spare: int = 0
) -> Iterator[Merged]:
    """Yields what `merge` returns, frame by frame. It reads `native` only one frame ahead of what it has yielded, so a caller can
    stop early; `native` may begin anywhere in the stack. Reasons are appended to `reasons`. `spare`: where frames are counted, so
    many of the innermost activations have no Python frame: one that just begins has none yet, one that ends has none any more."""
    groups, counting = _groups(python), bool(python) and not python[0].anchor
    runtime_library = rt.library.path if rt is not None else None
    if counting:
        reasons.append(COUNTED)
    following_frames, began = iter(native), False
    frame = next(following_frames, None)
    if frame is not None and not counting:
        groups = [group for group in groups if group[0] >= frame.sp]  # the others belong to frames that were called by this one
    while frame is not None:
        following, held = next(following_frames, None), None
        if counting:
            if groups and _is_loop(frame):
                held = groups.pop(0)[1] if spare <= 0 else []
                spare -= 1
        elif following is not None:  # the piece of stack of the outermost frame has no upper end: it holds nothing
            mine = [group for group in groups if frame.sp <= group[0] < following.sp]
            if mine:
                groups = [group for group in groups if group not in mine]
                held = [f for _, frames in mine for f in frames]
        began = began or held is not None
        inside = frame.library == runtime_library
        interpreter_frame = held is not None or (inside and (not frame.function or bool(_INTERPRETER.match(frame.function))))
        if began and not groups and (inside or _INTERPRETER.match(frame.function or "main")):
            interpreter_frame = True  # below the outermost Python frame: how threads and programs begin
        yield from (Merged(python=f) for f in held or ())
        yield Merged(native=frame, interpreter_frame=interpreter_frame, activation=held is not None, reliable=frame.reliable)
        frame = following
    if groups:
        reasons.append(CUT)
        for _, frames in groups:
            yield from (Merged(python=f, reliable=False) for f in frames)


def _groups(python: Sequence[PyFrame]) -> list[tuple[int, list[PyFrame]]]:
    """Frames of one interpreter activation each: `[(anchor, [PyFrame])]`; without anchors, each frame by itself."""
    groups: list[tuple[int, list[PyFrame]]] = []
    for frame in python:
        if groups and frame.anchor and groups[-1][0] == frame.anchor:
            groups[-1][1].append(frame)
        else:
            groups.append((frame.anchor, [frame]))
    return groups
