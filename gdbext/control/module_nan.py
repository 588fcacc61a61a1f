"""`llm-break nan`, module by module: stops where the first torch.nn.Module of a step is about to return a tensor with a NaN.

It uses the two watchpoints of `llm-layers` (layer_steps.py): every call of a module of the process is seen, and its outputs are
read. After a hit nothing more is reported until the outermost call around it is over: all modules around it hold the NaN. From
then on a module that got a NaN as its input is not reported either.
"""

from __future__ import annotations

from typing import Any

from .. import log
from ..cpython import codes
from ..cpython.codes import BytecodeLocation
from ..cpython.frames import Code
from ..cpython.objects import Object
from ..cpython.runtime import Runtime
from ..engines import models
from ..errors import GdbextError, NotFoundError
from ..render.text import escape
from ..torch import arrays, modules, stats
from ..torch.tensor import Tensor
from ..torch.tensor_impl import is_tensor, read_tensor
from . import device_work, hw_breakpoints, pybreak
from .frame_values import first_variable, result
from .hw_breakpoints import READ_ERRORS, Process, StopContext
from .layer_steps import outermost_call, say

MAX_INPUTS = 8  # that are named
MAX_OWN = 1 << 30  # bytes of a parameter that is searched


class ModuleReturns:
    """Each return of every module's call, in the role of a `Where`."""

    text, file, function = "NaN in a module's output", "", ""

    def __init__(self) -> None:
        self.line: int | None = None
        self.constants: dict[int, int | None] = {}  # address of an instruction -> the constant that it returns

    def places(self, rt: Runtime, code: Code | None = None) -> list[BytecodeLocation]:
        """`[BytecodeLocation]` in a process; [] in one that has not imported torch."""
        try:
            found = codes.returns(modules.call_code(rt))
        except NotFoundError as e:
            log.passed_over(e)
            return []
        self.constants.update({place.address: constant for place, constant in found})
        return [place for place, _ in found]


class ModuleNanBreakpoint(pybreak.PyBreakpoint):
    """Stops at the first module of a step whose output holds a NaN."""

    where: ModuleReturns

    def __init__(self, condition: str, rank: str, dormant: bool = False) -> None:
        super().__init__("llm-break", ModuleReturns(), condition, 1, rank)
        self.dormant = dormant
        self.told: dict[tuple[int, int], int] = {}  # (pid, tid) -> frame of the outermost call in which it stopped
        self.passed_over: set[int] = set()  # pids for which unread outputs were reported

    @property
    def pending(self) -> bool:
        return False

    def data(self) -> dict[str, Any]:
        waits = " (once the logits held one)" if self.dormant and not self.hw_breakpoints else ""
        return {**super().data(), "file": "", "line": None, "function": self.where.text + waits}

    def start_in(self, process: Process) -> None:
        if not self.dormant:
            super().start_in(process)

    def set_in(self, processes: list[Process]) -> None:
        """As of every Python breakpoint; while it is `dormant` it takes a number and no register: `wake` sets it."""
        if not self.dormant:
            found = [(process, self.where.places(process.rt)) for process in processes]
            if not any(places for _, places in found):
                raise NotFoundError("no attached process has imported torch.nn: there are no modules to check")
        self.register(" ".join(["llm-break", self.where.text] + (["if", self.condition] if self.condition else [])))
        try:
            for process in [] if self.dormant else processes:
                self.arm(process, self.where.places(process.rt))
        except BaseException:
            self.take_back()
            raise

    def wake(self, stop: StopContext) -> str:
        """Sets it in the process of a stop. -> the changes, in words. Inside stop()."""
        try:
            if self.number not in pybreak.PyBreakpoint.points:
                return "delete took the breakpoint of the modules away: the next step stops at none"
            self.arm(stop.process, self.where.places(stop.process.rt))
            return f"from now on llm-break {self.number} stops at the first module of a step that returns a NaN"
        except GdbextError as e:
            return f"the modules are not checked: {e}"

    def reached(self, stop: StopContext, place: BytecodeLocation) -> bool:
        thread = (stop.process.pid, stop.tid)
        if thread in self.told:
            if stop.frame.address == self.told[thread]:
                del self.told[thread]
            return False
        if not self.is_for(stop.process):
            return False
        device_work.begin_stop(stop.process.view)
        try:
            found = self._with_nan(stop.process, result(stop.frame, self.where.constants[place.address], stop.pc))
        except READ_ERRORS as e:
            log.passed_over(e)
            return False
        if not found or self.condition and not self.holds(stop):
            return False
        outer = outermost_call(stop)
        if outer != stop.frame.address:
            self.told[thread] = outer
        bad, good = _inputs(stop)
        if self.hits and bad:
            return False  # a loss function, or the sampler: it only passes on a NaN that was reported
        self.hits += 1
        hw_breakpoints.note_offset(stop)
        self.last = f"{self.title}: {_module_text(stop, outer)} returned {', '.join(found)}, thread {stop.tid}, hit {self.hits}"
        hw_breakpoints.note(f"its inputs that hold NaN: {', '.join(bad)}" if bad else "none of its inputs holds a NaN")
        if good:
            hw_breakpoints.note(f"without: {', '.join(good)}")
        _note_origin(stop, bool(bad))
        return True

    def _with_nan(self, process: Process, value: Any) -> list[str]:
        """["3 NaN of 4096 ([8, 512] float32)"] of the tensors in a value that hold a NaN. The reason why other tensors are not
        read is reported once."""
        found = []
        for place, obj in modules.tensors_in(value):
            tensor = read_tensor(process.rt, obj.address)
            try:
                source = source_of(tensor)
                if not stats.has_nan(source):
                    continue
                count = stats.statistics(source)[0]["nan"]
            except GdbextError as e:
                if process.pid not in self.passed_over:
                    self.passed_over.add(process.pid)
                    say(escape(f"{self.title}: outputs of modules of {process.name} are not checked: {e}"))
                continue
            where = f" in {place}" if place else ""
            found.append(f"{count} NaN of {tensor.numel}{escape(where)} ({list(tensor.shape or ())} {tensor.dtype.name})")
        return found


def source_of(tensor: Tensor) -> arrays.Source:
    """The `Source` of a tensor at a stop; `GdbextError` too where a GPU may still be computing it."""
    if tensor.unfinished:
        raise GdbextError(f"their values are in the memory of {tensor.device}: {tensor.unfinished}")
    return arrays.of_tensor(tensor)


def _module_text(stop: StopContext, outer: int) -> str:
    """ "layers.3.mlp (LlamaMLP)": the module that returns, by its path from the engine's model, else from the outermost one."""
    rt = stop.process.rt
    module = rt.object(first_variable(stop.frame))
    model = models.model_of(rt)
    roots = [models.inner_model(model) if model is not None else None, rt.object(first_variable(stop.frame, outer))]
    nodes = (modules.tree(root).get(module.address) for root in roots if root is not None)
    node = next((node for node in nodes if node is not None), None)
    label = f"{stop.process.label} " if stop.process.label else ""
    path = f"{module.address:#x}" if node is None else node.path or "the outermost module"
    return escape(f"{label}{path} ({module.type_name})")


def _note_origin(stop: StopContext, passed_on: bool) -> None:
    """Reports which of a module's own parameters and buffers hold a NaN (its inputs may hold values that it wrote there itself).
    Where it got none, it reports whether other ranks' results are part of the return value."""
    rt = stop.process.rt
    module = rt.object(first_variable(stop.frame))
    own, found = dict(module.instance_entries()), []
    for table in ("_parameters", "_buffers"):
        for key, value in rt.object(own[table]).items() if table in own else ():
            try:
                source = source_of(read_tensor(rt, value.address)) if is_tensor(value) else None
                if source is not None and source.numel * source.dtype.itemsize <= MAX_OWN and stats.has_nan(source):
                    found.append(key.string(200))
            except READ_ERRORS as e:
                log.passed_over(e)
                continue
    if found:
        hw_breakpoints.note(escape(f"of its own tensors these hold NaN: {', '.join(found)}"))
    elif not passed_on and models.adds_ranks(module):
        hw_breakpoints.note("it adds up what all ranks computed: the NaN may be another rank's; pytensors -nan -on all checks")


def _inputs(stop: StopContext) -> tuple[list[str], list[str]]:
    """-> (["args[0] [5, 64] float32"] of a call's inputs that hold a NaN, those that do not)."""
    bad: list[str] = []
    good: list[str] = []
    for name, value in stop.frame.locals()[1:3]:  # *args and **kwargs
        if not isinstance(value, Object):
            continue
        for place, obj in list(modules.tensors_in(value, name))[:MAX_INPUTS]:
            try:
                tensor = read_tensor(stop.process.rt, obj.address)
                text = f"{place} {list(tensor.shape or ())} {tensor.dtype.name}"
                (bad if stats.has_nan(source_of(tensor)) else good).append(escape(text))
            except READ_ERRORS as e:
                log.passed_over(e)
                continue
    return bad, good
