"""`llm-break request ID`, `step`, `oom`, `nan`: Python breakpoints at the places that engines/presets.py names."""

from __future__ import annotations

import array
import importlib.util
import re
from typing import TYPE_CHECKING, Any, Sequence

from ..cpython.codes import BytecodeLocation
from ..cpython.expressions import evaluate
from ..cpython.objects import Object
from ..cpython.runtime import Runtime
from ..cpython.values import plain
from ..engines import presets as data
from ..errors import GdbextError
from ..render.text import escape
from . import device_work, follow, hw_breakpoints, pybreak, pycatch
from .hw_breakpoints import StopContext

if TYPE_CHECKING:
    from .module_nan import ModuleNanBreakpoint

MAX_ELEMENTS = 1 << 24
# dtype name -> (array type code, mask of the exponent): all its bits set is an infinity or NaN
EXPONENTS = {
    "float32": ("I", 0x7F800000),
    "float16": ("H", 0x7C00),
    "bfloat16": ("H", 0x7F80),
    "float64": ("Q", 0x7FF0000000000000),
}


class RequestBreakpoint(pybreak.PyBreakpoint):
    """Stops the first time that a request reaches the place, until it is set again. `ids`: an expression for the ids of the
    requests at this place. `which`: the wanted id, or a whole part of it, because an engine adds to the user's id: req-3 is not
    req-31-f00."""

    def __init__(self, where: pybreak.Where, ids: str, which: str, condition: str, rank: str) -> None:
        super().__init__("llm-break", where, condition, 1, rank)
        self.ids, self.which = ids, which
        self._part = re.compile(rf"(?<![^\W_]){re.escape(which)}(?![^\W_])" if which[-1].isalnum() else re.escape(which))

    def data(self) -> dict[str, Any]:
        also = f" and ({self.condition})" if self.condition else ""
        return {**super().data(), "condition": f"{self.which!r} names one of {self.ids}{also}"}

    def reached(self, stop: StopContext, place: BytecodeLocation) -> bool:
        if not self.is_for(stop.process):
            return False
        try:
            found = [one for one in plain(evaluate(stop.process.rt, self.ids, stop.frame)) if self._part.search(one)]
        except hw_breakpoints.READ_ERRORS as e:
            found = [f"{self.ids} cannot be read: {e}"]
        if not found or (self.condition and not self.holds(stop)):
            return False
        self.hits += 1
        if self.hits > 1:
            return False
        hw_breakpoints.note(", ".join(map(escape, found[:4])) + (f" and {len(found) - 4} more" if found[4:] else ""))
        return self.act(stop, place)


class NanBreakpoint(pybreak.PyBreakpoint):
    """Stops where a tensor that is about to be used holds NaN or an infinity, as far as its memory can be read."""

    def __init__(self, where: pybreak.Where, expression: str, condition: str, rank: str) -> None:
        super().__init__("llm-break", where, condition, 1, rank)
        self.expression = expression
        self.modules: ModuleNanBreakpoint | None = None  # wakes once the tensor held a NaN

    def reached(self, stop: StopContext, place: BytecodeLocation) -> bool:
        if self.condition and not self.holds(stop):
            return False
        device_work.begin_stop(stop.process.view)
        try:
            bad = not_finite(stop.process.rt, evaluate(stop.process.rt, self.expression, stop.frame))
        except hw_breakpoints.READ_ERRORS as e:
            if self.hits == 0:
                hw_breakpoints.note(f"{self.expression} cannot be read: {e}; delete {self.number} if that stays so")
                self.hits += 1
                return self.act(stop, place)
            return False
        if not bad:
            return False
        self.hits += 1
        hw_breakpoints.note(f"{self.expression} holds {bad}")
        if self.modules is not None and not bad.startswith("0 NaN"):
            hw_breakpoints.note(self.modules.wake(stop))
        return self.act(stop, place)


def not_finite(rt: Runtime, value: Any) -> str:
    """ "3 NaN, 1 infinite of 4096" for a tensor in memory that can be read, "" where all elements are finite. `GdbextError`
    otherwise."""
    from ..torch import tensor_impl as tensors

    if not isinstance(value, Object) or not tensors.is_tensor(value):
        raise GdbextError("it is no tensor")
    found = tensors.read_tensor(rt, value.address)
    if found.doubt:
        raise GdbextError(found.doubt)
    name = str(found.dtype.name).rpartition(".")[2]
    if name not in EXPONENTS:
        return ""
    if not found.numel or found.numel > MAX_ELEMENTS:
        raise GdbextError(f"{found.numel} elements are too many to check")
    contiguous, step = True, 1
    for size, stride in zip(reversed(found.shape or ()), reversed(found.stride or ())):
        contiguous, step = contiguous and (size == 1 or stride == step), step * size
    if not contiguous:
        raise GdbextError("its elements do not lie together")
    code, mask = EXPONENTS[name]
    words = array.array(code)
    words.frombytes(found.read_bytes(0, found.numel * words.itemsize))
    odd = [w for w in words if w & mask == mask]
    if not odd:
        return ""
    nan = sum(1 for w in odd if w & (mask & -mask) - 1)
    return f"{nan} NaN, {len(odd) - nan} infinite of {found.numel}"


def points(rt: Runtime, name: str, condition: str = "", rank: str = "") -> Sequence[pybreak.PyBreakpoint]:
    """`[PyBreakpoint]` of a preset ("step", "request ID", "oom", "nan"), not set yet; `GdbextError` where this process has
    none."""
    engine, known = data.of_process(rt)
    if engine is None or known is None:
        raise GdbextError(f"llm-break {name}: the process runs none of {', '.join(data.names())} (yet); pybreak stops anywhere")
    word, _, which = name.partition(" ")
    which = which.strip()
    if word == "request" and not which:
        raise GdbextError("llm-break request: which request? llm-requests lists the ids")
    if word == "oom":
        kind, functions = known.oom
        full = [pybreak.PyBreakpoint("llm-break", pybreak.Where(f), condition, 1, rank) for f in functions]
        return [pycatch.Catchpoint(kind, False, condition, 1, rank), *full]
    if word == "nan":
        return _nan(_there(rt, known.nan), condition, rank)
    if word == "request":
        return [RequestBreakpoint(pybreak.Where(f), ids, which, condition, rank) for f, ids in known.request]
    return [pybreak.PyBreakpoint("llm-break", pybreak.Where(f), condition, 1, rank) for f in known.step]


def _there(rt: Runtime, places: Sequence[tuple[str, ...]]) -> list[tuple[str, str]]:
    """The places in modules that the process has imported; where it has imported none yet, the first place."""
    there = [place for place in places if not place[2:] or rt.module(place[2]) is not None] or [places[0]]
    return [(place[0], place[1]) for place in there]


def _nan(places: Sequence[tuple[str, str]], condition: str, rank: str) -> list[pybreak.PyBreakpoint]:
    """Breakpoints where logits are about to be used and, once they held a NaN, on every module. The outputs of modules are read
    with numpy: without it those breakpoints are left out."""
    found = [NanBreakpoint(pybreak.Where(f), expression, condition, rank) for f, expression in places]
    if importlib.util.find_spec("numpy") is None:
        return [*found]
    from . import module_nan

    inside = module_nan.ModuleNanBreakpoint("", rank, dormant=True)
    for point in found:
        point.modules = inside
    return [*found, inside]


def place_in_modules(labels: dict[int, str], condition: str = "", rank: str = "") -> Sequence[pybreak.PyBreakpoint]:
    """Sets breakpoints on every module's output in every attached process, at once. -> `[PyBreakpoint]`"""
    from . import module_nan

    point = module_nan.ModuleNanBreakpoint(condition, rank)
    point.set_in(follow.processes(labels, rank))
    point.preset = "nan"
    return [point]


def place(labels: dict[int, str], name: str, condition: str = "", rank: str = "") -> Sequence[pybreak.PyBreakpoint]:
    """Sets a preset in every attached process that has its engine (`labels`: {pid: label}); -> its `[PyBreakpoint]`."""
    processes = [p for p in follow.processes(labels, rank) if data.of_process(p.rt)[0]]
    if not processes:
        raise GdbextError(f"llm-break {escape(name)}: no attached process runs {' or '.join(data.names())}")
    made = []
    for point in points(processes[0].rt, name, condition, rank):
        if isinstance(point, pycatch.Catchpoint):
            point.set_in(processes)
        elif name == "oom" and not any(point.where.places(p.rt) for p in processes):
            continue  # a worker has no scheduler, and nothing is worth waiting for
        else:
            point.set_in(processes)
        point.preset = name
        made.append(point)
    return made
