"""The one machine that does Python's instructions by reading. What a value is, and what is done with it, is up to its domain:
`plain_code` knows each value, or refuses; `poll_walk` goes on with unknown ones.

Instructions and their arguments: Python/bytecodes.c and Lib/dis.py of each minor, made alike by `bytecode`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Sequence

from ..errors import GdbextError
from . import bytecode, hiding, value_attributes
from .bytecode import SUBSCRIPT, VARIADIC, Bytecode, Step
from .frames import Code
from .objects import Object

NEUTRAL = frozenset(
    "NOP RESUME CACHE NOT_TAKEN PRECALL EXTENDED_ARG COPY_FREE_VARS MAKE_CELL GEN_START GET_AWAITABLE END_FOR POP_ITER".split()
)
_AGAIN = ("JUMP_ABSOLUTE", "JUMP_BACKWARD")
_AWAITS = frozenset("GET_AWAITABLE SEND YIELD_VALUE YIELD_FROM END_SEND JUMP_BACKWARD_NO_INTERRUPT".split())


@dataclass
class State:
    """Where a run stands: the offset `at` of its next instruction, the values of its stack, its variables by name."""

    at: int
    stack: list[Any]
    fast: dict[str, Any]
    blocks: list[tuple[int, int]] = field(default_factory=list)  # 3.9, 3.10: handlers and the depth of the stack
    words: Sequence[str] = ()  # 3.11, 3.12: the keywords of the next call

    def copy(self, at: int) -> State:
        """Another run that goes on from here."""
        return State(at, list(self.stack), dict(self.fast), list(self.blocks), self.words)


class Machine:
    """Does the instructions of one function. A subclass is a domain: it defines what is declared here. Operators are named as the
    nodes of `ast` ("Add", "USub", "Not", "Lt", "Is", "In")."""

    null: Any = None  # beside a callable that is no method
    given: Callable[[Any], Any]  # a constant: an `Object`, None, a number, the {"name"} of a built-in function
    local: Callable[[State, str], Any]
    named: Callable[[str], Any]  # a global, or a built-in
    attribute: Callable[[Any, str], Any]
    super_attribute: Callable[[Any, Any, Any, str], Any]  # of super (the callable), a class, an owner
    truth: Callable[[Any], Any]  # as a value
    decided: Callable[[Any], bool | None]  # a truth; None where it is not known
    is_none: Callable[[Any], bool | None]
    unary: Callable[[str, Any], Any]
    binary: Callable[[str, Any, Any, bool], Any]  # the last: in place
    compare: Callable[[str, Any, Any], Any]
    item: Callable[[Any, Any], Any]
    made: Callable[[str, list[Any]], Any]  # a new "list", "tuple" or "set"
    parts: Callable[[Any, int], list[Any]]  # what a sequence is unpacked into

    def __init__(self, code: Code) -> None:
        self.rt, self.code, self.minor = code.rt, code, code.rt.minor
        self.bytes: Bytecode = bytecode.of(code)
        self.steps = self.bytes.steps

    # ---- instructions --------------------------------------------------------------------------------------------
    def do(self, state: State, step: Step) -> bool:
        """Does an instruction that neither jumps nor calls. -> False for one that is not known here."""
        work = getattr(self, "_" + step.name.lower(), None)
        if work is not None:
            work(state, step)
        return work is not None or step.name in NEUTRAL

    def _load_fast(self, state: State, step: Step) -> None:
        state.stack.append(self.local(state, self.bytes.variable(step.argument)))

    _load_deref = _load_fast

    def _load_fast_load_fast(self, state: State, step: Step) -> None:
        state.stack += [self.local(state, self.bytes.variable(n)) for n in (step.argument >> 4, step.argument & 15)]

    def _store_fast(self, state: State, step: Step) -> None:
        state.fast[self.bytes.variable(step.argument)] = state.stack.pop()

    def _store_fast_load_fast(self, state: State, step: Step) -> None:
        state.fast[self.bytes.variable(step.argument >> 4)] = state.stack.pop()
        state.stack.append(self.local(state, self.bytes.variable(step.argument & 15)))

    def _store_fast_store_fast(self, state: State, step: Step) -> None:
        for n in (step.argument >> 4, step.argument & 15):
            state.fast[self.bytes.variable(n)] = state.stack.pop()

    def _load_const(self, state: State, step: Step) -> None:
        state.stack.append(self.given(self.bytes.constant(step.argument)))

    def _load_small_int(self, state: State, step: Step) -> None:
        state.stack.append(self.given(step.argument))

    def _load_common_constant(self, state: State, step: Step) -> None:
        state.stack.append(self.given(self.bytes.known["common"][step.argument]))

    def _load_global(self, state: State, step: Step) -> None:
        self._callable(state, self.named(self.bytes.name(step.argument)), step)

    def _load_attr(self, state: State, step: Step) -> None:
        self._callable(state, self.attribute(state.stack.pop(), self.bytes.name(step.argument)), step)

    def _load_super_attr(self, state: State, step: Step) -> None:
        owner, kind, called = state.stack.pop(), state.stack.pop(), state.stack.pop()
        self._callable(state, self.super_attribute(called, kind, owner, self.bytes.name(step.argument)), step)

    def _callable(self, state: State, value: Any, step: Step) -> None:
        """Pushes a value, and the place beside it where the instruction leaves one."""
        beside = [self.null] if step.beside else []
        state.stack += [value, *beside] if self.minor.callable_first else [*beside, value]

    def _push_null(self, state: State, step: Step) -> None:
        state.stack.append(self.null)

    def _pop_top(self, state: State, step: Step) -> None:
        state.stack.pop()

    def _copy(self, state: State, step: Step) -> None:
        state.stack.append(state.stack[-step.argument])

    def _swap(self, state: State, step: Step) -> None:
        stack, depth = state.stack, step.argument
        stack[-1], stack[-depth] = stack[-depth], stack[-1]

    def _rot_three(self, state: State, step: Step) -> None:
        state.stack.insert(-2, state.stack.pop())

    def _unary_not(self, state: State, step: Step) -> None:
        state.stack.append(self.unary("Not", state.stack.pop()))

    def _unary_negative(self, state: State, step: Step) -> None:
        state.stack.append(self.unary("USub", state.stack.pop()))

    def _to_bool(self, state: State, step: Step) -> None:
        state.stack.append(self.truth(state.stack.pop()))

    def _compare_op(self, state: State, step: Step) -> None:
        self._compared(state, bytecode.ORDER[step.argument])

    def _is_op(self, state: State, step: Step) -> None:
        self._compared(state, "IsNot" if step.argument else "Is")

    def _contains_op(self, state: State, step: Step) -> None:
        self._compared(state, "NotIn" if step.argument else "In")

    def _compared(self, state: State, name: str) -> None:
        right, left = state.stack.pop(), state.stack.pop()
        state.stack.append(self.compare(name, left, right))

    def _binary_op(self, state: State, step: Step) -> None:
        right, left = state.stack.pop(), state.stack.pop()
        which, in_place = step.argument, bytecode.IN_PLACE <= step.argument < SUBSCRIPT
        if which == SUBSCRIPT:
            state.stack.append(self.item(left, right))
        else:
            name = bytecode.BINARY[which - bytecode.IN_PLACE * in_place]
            state.stack.append(self.binary(name, left, right, in_place))

    def _build_list(self, state: State, step: Step) -> None:
        at = len(state.stack) - step.argument
        members = state.stack[at:]
        del state.stack[at:]
        state.stack.append(self.made(step.name[len("BUILD_") :].lower(), members))

    _build_tuple = _build_set = _build_list

    def _unpack_sequence(self, state: State, step: Step) -> None:
        state.stack += reversed(self.parts(state.stack.pop(), step.argument))

    def _kw_names(self, state: State, step: Step) -> None:
        state.words = words(self.bytes.constant(step.argument))

    # ---- jumps and calls -----------------------------------------------------------------------------------------
    def jumps(self, value: Any, name: str) -> tuple[Any, bool | None]:
        """-> (what a jump's decision rests on, whether it jumps; None where that is not known)"""
        if name.endswith("NONE"):
            known = self.is_none(value)
            return value, known if known is None else known != name.endswith("NOT_NONE")
        value = self.truth(value)
        known = self.decided(value)
        return value, known if known is None else known == ("TRUE" in name)

    def taken(self, state: State, step: Step) -> tuple[Any, list[Any], dict[str, Any]]:
        """-> (callable, arguments, arguments by keyword) of a call, taken from the stack."""
        stack, count = state.stack, step.argument
        if step.name in ("CALL_KW", "CALL_FUNCTION_KW"):
            state.words = words(self.held(stack.pop()))
        keywords, state.words = list(state.words), ()
        arguments = [stack.pop() for _ in range(count)][::-1]
        pair = [stack.pop() for _ in range(1 if step.name.startswith("CALL_FUNCTION") else 2)]
        called = [one for one in pair if one is not self.null]
        if len(called) != 1 or len(keywords) > count:
            raise GdbextError(f"{self.code.qualname} makes a call that is not evaluated here")
        at = count - len(keywords)
        return called[0], arguments[:at], dict(zip(keywords, arguments[at:]))

    def held(self, value: Any) -> Any:
        """What a value of the domain is, as a constant is given to it."""
        return value


def words(held: Any) -> list[str]:
    """The keywords of a call: of a tuple."""
    return [one.string(200) for one in held.elements(64)] if isinstance(held, Object) and held.isa("tuple") else []


# ---- functions -------------------------------------------------------------------------------------------------------
def code_of(function: Object) -> Code:
    """The code of a function."""
    rt = function.rt
    return rt.code(rt.target.u64(function.address + rt.layout["func.func_code"]))


def closure(function: Object, code: Code) -> dict[str, Any]:
    """The variables of the functions around it."""
    rt = function.rt
    cells = rt.target.u64(function.address + rt.layout["func.func_closure"])
    held = rt.object(cells).elements(256) if cells else []
    free = [name for name, _ in code.variables][-len(held) :] if held else []
    inner = {name: rt.target.u64(cell.address + rt.layout["cell.ob_ref"]) for name, cell in zip(free, held)}
    return {name: hiding.under(name, rt.object(address)) for name, address in inner.items() if address}


def bound(function: Object, code: Code, arguments: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
    """The variables of a function as it begins, by name: what it is given, defaults, and those around it. `GdbextError` where it
    takes arguments packed."""
    names = bytecode.of(code).parameters
    if code.flags & VARIADIC:
        raise GdbextError(f"{code.qualname} takes other arguments, or is no plain function")
    found: dict[str, Any] = {**dict(zip(names, arguments)), **named, **closure(function, code)}
    if any(name not in found for name in names):
        for name, value in zip(reversed(names), reversed(_defaults(function))):
            found.setdefault(name, value)
    return found


def _defaults(function: Object) -> list[Any]:
    """The default values of a function's last arguments."""
    held = value_attributes.attribute(function, "__defaults__")
    return [None if one.is_none() else one for one in held.elements(64)] if isinstance(held, Object) and held.isa("tuple") else []


def only_again(code: Code, offset: int) -> bool:
    """Whether a function will only repeat one call: the one of the instruction at this offset. The call is in a loop without an
    exit, and the loop calls nothing else, stores nothing, and makes nothing."""
    known = bytecode.of(code)
    around = [(end - start, start, end) for start, end in known.loops() if start <= offset <= end]
    if not around:
        return False
    _, start, end = min(around)
    names = [step.name for at, step in known.steps.items() if start <= at < end and step.name not in _AWAITS]
    calls = [name for name in names if name.startswith("CALL")]
    others = [name for name in names if name not in calls and name not in NEUTRAL]
    stays = all(hasattr(Machine, "_" + name.lower()) and not name.startswith("STORE") for name in others)
    return known.steps[end].name in _AGAIN and stays and len(calls) == 1
