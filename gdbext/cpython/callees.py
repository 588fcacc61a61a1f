"""Which C function a Python frame has called: the callable on its value stack, where its instruction is a call.

The instruction says where the callable lies (Python/bytecodes.c, ceval.c). `stack_depths` says how deep the stack is before the
instruction. But an interpreter may also stand behind the call, before its next instruction: then the result is in the callable's
place. So the callable counts only with a proof that the call is still in progress:

- From 3.14 on the frame keeps the stack's end while C code runs.
- Before, the NULL beside a function stays until the result takes its place.
- A method belongs to the class of the object beside it.
- Else the callable is the one that the pushing instruction would push now.

Without a proof nothing is reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

from .. import log
from ..errors import GdbextError, NotFoundError
from . import bytecode, codes
from .bytecode import Step
from .frames import PyFrame
from .minors import Minor
from .objects import Object
from .stack_depths import UNKNOWN, writers

if TYPE_CHECKING:
    from .stack_depths import Writers

_DESCRIPTORS = ("method_descriptor", "classmethod_descriptor", "wrapper_descriptor")
_FUNCTIONS = ("builtin_function_or_method", "cython_function_or_method", "fused_cython_function")


def callee(frame: PyFrame) -> str:
    """The C function that a Python frame has called and waits for: `time.sleep`, `list.sort`, `sorted`. '' where the instruction
    is no call, where the frame called Python code, or where the function cannot be determined."""
    try:
        return _callee(frame)
    except GdbextError as e:
        log.passed_over(e)
        return ""


def _callee(frame: PyFrame) -> str:
    rt, at = frame.rt, frame.raw.lasti
    if at is None or at < 0 or _called_python(frame):
        return ""
    opcode = rt.target.read(codes.bytecode(frame.code) + at, 1)[0]
    told = codes.opcodes(rt.version)["effects"].get(str(opcode))
    if told is None or told[0] not in _SHAPES and told[0] != "PRECALL":
        return ""
    every, before = writers(frame.code)
    if at not in before:
        return ""
    found = _Call(frame, every, before[at], every[at]).callable()
    if not rt.target.is_stopped and at != _lasti_now(frame):
        raise NotFoundError(f"{frame.function} ran while its call was read")
    return name_of(found) if found is not None else ""


def _called_python(frame: PyFrame) -> bool:
    """Whether the next inner frame runs in the same activation of the interpreter."""
    return bool(frame.anchor and 0 < frame.level < len(frame.stack) and frame.stack[frame.level - 1].anchor == frame.anchor)


def _lasti_now(frame: PyFrame) -> int:
    from .dialects import raw_frame

    return int(raw_frame(frame.rt, frame.address).lasti)


def _size(step: Step, minor: Minor) -> int:
    """How many values of the stack a call takes."""
    return _SHAPES["CALL" if step.name == "PRECALL" else step.name](step.argument, minor)


_SHAPES: dict[str, Callable[[int, Minor], int]] = {
    "CALL_FUNCTION": lambda n, minor: n + 1,
    "CALL_FUNCTION_KW": lambda n, minor: n + 2,
    "CALL_METHOD": lambda n, minor: n + 2,
    "CALL": lambda n, minor: n + 2,
    "CALL_KW": lambda n, minor: n + 3,
    "CALL_FUNCTION_EX": lambda n, minor: 2 + (n & 1 or minor.always_kwargs) + minor.paired_ex,
}


class _Call:
    """A call at which a frame stands. `words`: the values that the call takes, the deepest first."""

    def __init__(self, frame: PyFrame, steps: dict[int, Step], writers: Writers, step: Step) -> None:
        self.frame, self.rt, self.steps, self.step = frame, frame.rt, steps, step
        self.bytes = bytecode.of(frame.code)
        rt = self.rt
        size = _size(step, rt.minor)
        self.depth, self.writers = len(writers) - size, writers
        if self.depth < 0:
            raise NotFoundError(f"{frame.function} has too few values for its {step.name}")
        self.base = self._base()
        self.raw = rt.target.words(self.base + 8 * self.depth, size)
        self.words = [rt.dialect.untag(word) for word in self.raw]

    def _base(self) -> int:
        rt, L, frame = self.rt, self.rt.layout, self.frame
        if "frameobj.f_valuestack" in L:
            return rt.target.u64(frame.address + L["frameobj.f_valuestack"])
        return frame.address + L["iframe.localsplus"] + 8 * rt.target.i32(frame.code.address + L["code.co_nlocalsplus"])

    def callable(self) -> Object | None:
        """The callable, where it is proven that the call is still in progress."""
        name, first, second = self.step.name, self.words[0], self.words[1] if len(self.words) > 1 else 0
        paired = name not in ("CALL_FUNCTION", "CALL_FUNCTION_KW") and (name != "CALL_FUNCTION_EX" or self.rt.minor.paired_ex)
        if not paired:
            return self._loaded(first)
        if self.rt.minor.keeps_stack_end:
            return self._running(first)
        leads = self.rt.minor.callable_first
        if not leads and not first:  # the result would stand there
            return self._object(second)
        if first and second and self._is_method(first, second):
            return self._object(first)
        return self._loaded(first) if leads else None

    def _running(self, first: int) -> Object | None:
        """The callable, proven by the stack's end that the frame keeps. The end lies before the values that the call takes, or
        behind them while all the arguments are there."""
        end = self.rt.target.u64(self.frame.address + self.rt.layout["iframe.stackpointer"])
        place = (end - self.base) // 8 - self.depth
        arguments = self.words[2:] if self.step.name != "CALL_FUNCTION_EX" else self.words[2:3]
        return self._object(first) if place == 0 or place == len(self.words) and all(arguments) else None

    def _object(self, address: int) -> Object | None:
        return self.rt.object(address) if address else None

    def _is_method(self, function: int, owner: int) -> bool:
        """Whether `function` is a C method of a class of the object `owner`."""
        rt = self.rt
        found = rt.object(function)
        if found.type.builtin_name not in _DESCRIPTORS:
            return False
        return rt.target.u64(function + rt.layout["descr.d_type"]) in rt.object(owner).type.mro

    def _loaded(self, address: int) -> Object | None:
        """The first of the words, where the instruction that pushed it would push the same one now."""
        writer = self.writers[self.depth]
        step = self.steps.get(writer) if writer != UNKNOWN else None
        if not address or step is None:
            return None
        found = self.rt.object(address)
        if step.name == "LOAD_ATTR":
            return found if own_name(found) == self.bytes.name(step.argument) else None
        return found if address == self._value(step) else None

    def _value(self, step: Step) -> int | None:
        """The address of the value that a load would push now."""
        frame = self.frame
        if step.name in ("LOAD_FAST", "LOAD_DEREF"):
            held = dict(frame.locals()).get(self.bytes.variable(step.argument))
            return held.address if held is not None else None
        if step.name in ("LOAD_GLOBAL", "LOAD_NAME"):
            name = self.bytes.name(step.argument)
            own = frame.namespace() if step.name == "LOAD_NAME" else None
            for where in (own, frame.globals(), frame.builtins()):
                if where is None:
                    continue
                try:
                    return int(where.item(name).address)
                except NotFoundError as e:
                    log.passed_over(e)
        return None


# ---- names -----------------------------------------------------------------------------------------------------------
def own_name(function: Object) -> str:
    """The name of a C function, without its module or class; '' for any other object."""
    rt, kind = function.rt, function.type.builtin_name or function.type.name
    L, t = rt.layout, rt.target
    if kind.rpartition(".")[2] in _FUNCTIONS:
        return t.cstring(t.u64(t.u64(function.address + L["cfunc.m_ml"]) + L["methoddef.ml_name"]), 300).decode(
            "utf-8", "replace"
        )
    if kind in _DESCRIPTORS:
        return str(rt.object(t.u64(function.address + L["descr.d_name"])).string(300))
    return str(rt.type(function.address).name) if kind == "type" and not rt.type(function.address).is_heap else ""


def name_of(function: Object) -> str:
    """`time.sleep`, `list.sort`, `sorted`, `range`; '' for anything but a C function."""
    rt, own = function.rt, own_name(function)
    L, t = rt.layout, rt.target
    kind = function.type.builtin_name
    if not own or kind == "type":
        return own and str(rt.type(function.address).raw_name)
    if kind in _DESCRIPTORS:
        return f"{rt.type(t.u64(function.address + L['descr.d_type'])).raw_name}.{own}"
    module = t.u64(function.address + L["cfunc.m_module"])
    known = rt.object(module).string(300) if module and rt.object(module).isa("str") else ""
    if known:  # its m_self may be anything: pybind11 keeps a record there
        return f"{known}.{own}" if known != "builtins" else own
    owner = t.u64(function.address + L["cfunc.m_self"]) if kind == "builtin_function_or_method" else 0
    if owner and rt.object(owner).isa("type"):
        return f"{rt.type(owner).raw_name}.{own}"
    if owner and not rt.object(owner).isa("module"):
        return f"{rt.object(owner).type.raw_name}.{own}"
    return own
