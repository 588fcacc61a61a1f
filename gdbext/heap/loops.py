"""Where the innermost activation of the interpreter ends on a native stack, by its function's name, or, in an interpreter without
symbols, by what PyEval_EvalCode calls: `_PyEval_Vector`, which calls the loop, or the loop itself (Python/ceval.c)."""

from __future__ import annotations

from .. import log
from ..access.base import Target
from ..access.cfi import table_of
from ..access.model import NativeFrame
from ..errors import GdbextError

LOOP, OUTER = "_PyEval_EvalFrameDefault", "PyEval_EvalCode"


class Loops:
    """Of one process; what one stack shows is known for the next."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._starts: set[int] = set()  # of functions without a name

    def end(self, frames: list[NativeFrame]) -> int:
        """The end of the innermost loop's frame, of frames from the innermost on; 0 where it is not seen."""
        names = [frame.function for frame in frames]
        if LOOP in names[:-1]:
            return frames[names.index(LOOP) + 1].sp
        if OUTER in names and not self._starts:
            at = names.index(OUTER)
            self._starts = {self._start(frame) for frame in frames[max(0, at - 2) : at]} - {0}
        for frame, above in zip(frames, frames[1:]):
            if self._starts and frame.reliable and self._start(frame) in self._starts:
                return above.sp
        return 0

    def _start(self, frame: NativeFrame) -> int:
        """Where the function of a frame begins; 0: not known."""
        module = self._target.module_at(frame.pc)
        try:
            table = table_of(module.elf) if module is not None else None
            found = table.find(frame.pc - module.bias - 1) if table and module is not None else None
        except GdbextError as e:
            log.passed_over(e)
            return 0
        return module.bias + found[0] if found and module is not None else 0
