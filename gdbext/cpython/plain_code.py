"""Small Python functions evaluated from their bytecode: properties, `__len__`, and methods that read attributes, compute, compare
and call others of that kind. Code that stores, loops, catches or calls anything else is refused by name."""

from __future__ import annotations

from typing import Any, Callable, Sequence

from .. import log
from ..errors import GdbextError, NotFoundError
from . import arithmetic, bytecode, containers, expression_calls, spending, value_attributes, values
from .adapters import Adapter
from .bytecode import Step
from .machine import Machine, State, bound, code_of
from .objects import Object
from .types import TYPE, TypeInfo
from .value_attributes import BoundMethod

MAX_STEPS, MAX_DEPTH = 2000, 12  # instructions of one function, functions in one another
_BUILTIN = frozenset("len bool abs min max sum int float isinstance hasattr getattr any all super".split())


class _Builtin:
    def __init__(self, name: str) -> None:
        self.name = name


class Super(Adapter):
    """`super()` in a method of class `definer`, of the instance `owner`."""

    type_name = "super"

    def __init__(self, definer: TypeInfo, owner: Object) -> None:
        super().__init__(None)
        self.definer, self.owner = definer, owner

    def found(self, name: str) -> Object:
        """The attribute's value in the first class behind `definer` that has it."""
        bases = list(self.owner.type.bases())
        at = next((i for i, base in enumerate(bases) if base.address == self.definer.address), len(bases))
        for base in bases[at + 1 :]:
            if name in base.namespace:
                return self.owner.rt.object(base.namespace[name])
        raise NotFoundError(f"super() of {self.definer.name} has no {name}")


def call(function: Object, arguments: Sequence[Any], named: dict[str, Any] | None = None, depth: int = 0) -> Any:
    """The result of a Python function for these arguments. `GdbextError` with the reason where its code cannot be evaluated by
    reading."""
    if depth > MAX_DEPTH:
        raise GdbextError(f"more than {MAX_DEPTH} calls in one another")
    return _Run(function, arguments, named or {}, depth).result()


class _Run(Machine):
    """One call; its values are those of an expression (values.py)."""

    null = object()

    def __init__(self, function: Object, arguments: Sequence[Any], named: dict[str, Any], depth: int) -> None:
        super().__init__(code_of(function))
        self.function, self.arguments, self.depth = function, arguments, depth
        names, known = self.bytes.parameters, bound(function, self.code, arguments, named)
        given = len(arguments) <= len(names) and set(named) <= set(names[len(arguments) :]) and known.keys() >= set(names)
        if not given or self.code.flags & (bytecode.GENERATOR | bytecode.COROUTINE) or self.bytes.keywords_only:
            raise GdbextError(f"{self.code.qualname} takes other arguments, or is no plain function")
        self.known = known

    def result(self) -> Any:
        """Runs to its `return`."""
        state = State(0, [], self.known)
        for _ in range(MAX_STEPS):
            step = self.steps.get(state.at)
            if step is None:
                break
            if step.name in ("RETURN_VALUE", "RETURN_CONST"):
                return state.stack.pop() if step.name == "RETURN_VALUE" else self.bytes.constant(step.argument)
            spending.take(spending.ITEM)
            state.at = step.behind
            if step.name.startswith("CALL") and step.name != "CALL_FUNCTION_EX" and "INTRINSIC" not in step.name:
                state.stack.append(self._called(*self.taken(state, step)))
            elif "JUMP" in step.name and step.target is not None and not step.name.endswith("MATCH"):
                self._jump(state, step, step.target)
            elif not self.do(state, step):
                raise GdbextError(f"{self.code.qualname} does more than read and compute (line {self.code.line(step.offset)})")
            if state.at <= step.offset:
                raise GdbextError(f"{self.code.qualname} loops")
        raise GdbextError(f"{self.code.qualname} takes more than {MAX_STEPS} steps")

    def _jump(self, state: State, step: Step, target: int) -> None:
        jumps = "_IF_" not in step.name or self.jumps(state.stack[-1], step.name)[1]
        if "_IF_" in step.name and not (jumps and step.name.endswith("_OR_POP")):
            state.stack.pop()
        state.at = target if jumps else state.at

    # ---- values --------------------------------------------------------------------------------------------------
    def given(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if value["name"] not in _BUILTIN:
            raise GdbextError(f"{self.code.qualname} uses {value['name']}, which is not evaluated here")
        return _Builtin(value["name"])

    def local(self, state: State, name: str) -> Any:
        if name not in state.fast:
            raise GdbextError(f"{self.code.qualname} reads a variable that is not set")
        return state.fast[name]

    def named(self, name: str) -> Any:
        space = self.rt.object(self.rt.target.u64(self.function.address + self.rt.layout["func.func_globals"]))
        try:
            return space.item(name)
        except NotFoundError as e:
            log.passed_over(e)
            return self.given({"name": name})

    def attribute(self, owner: Any, name: str) -> Any:
        if owner is self.null or isinstance(owner, _Builtin):
            raise GdbextError(f"{self.code.qualname} looks into a built-in function")
        if isinstance(owner, Super):
            held = owner.found(name)
            if held.isa("property"):
                raise GdbextError(f"{self.code.qualname} asks super() for the property {name}")
            return BoundMethod(held, owner.owner, name)
        return value_attributes.attribute(owner, name)

    def super_attribute(self, called: Any, kind: Any, owner: Any, name: str) -> Any:
        return self.attribute(self._called(called, [kind, owner], {}), name)

    def truth(self, value: Any) -> bool:
        return values.truth(value)

    def decided(self, truth: Any) -> bool:
        return bool(truth)

    def is_none(self, value: Any) -> bool:
        return values.is_none(value)

    def unary(self, name: str, value: Any) -> Any:
        return arithmetic.unary(name, value)

    def binary(self, name: str, left: Any, right: Any, in_place: bool) -> Any:
        if in_place and not isinstance(values.plain(left), (int, float, str, bytes, tuple)):
            raise GdbextError(f"{self.code.qualname} changes an object")
        return arithmetic.arithmetic(name, left, right)

    def compare(self, name: str, left: Any, right: Any) -> bool:
        return containers.holds(name, left, right)

    def item(self, whole: Any, key: Any) -> Any:
        return containers.item(whole, values.plain(key))

    def made(self, kind: str, members: list[Any]) -> Any:
        if kind == "set":
            raise GdbextError(f"{self.code.qualname} makes a set, which is not evaluated here")
        return spending.made(members if kind == "list" else tuple(members))

    def parts(self, whole: Any, count: int) -> list[Any]:
        found = list(values.members(whole))
        if len(found) != count:
            raise GdbextError(f"cannot unpack {len(found)} values into {count} names")
        return found

    # ---- calls ---------------------------------------------------------------------------------------------------
    def _called(self, what: Any, arguments: list[Any], named: dict[str, Any]) -> Any:
        if isinstance(what, _Builtin):
            if what.name == "super":
                return self._super(arguments)
            if what.name in ("int", "float"):
                return _number(what.name, arguments)
            return expression_calls.function(self.rt, None, what.name, arguments, named)
        if isinstance(what, BoundMethod):
            if what.func.isa("function"):
                return call(what.func, [what.owner, *arguments], named, self.depth + 1)
            if isinstance(what.owner, Object) and not arguments and what.name in _OF_C:  # by way of super()
                return _OF_C[what.name](what.owner)
            return expression_calls.method(what.owner, what.name, arguments, named, what.name)
        if isinstance(what, Object) and what.isa("function"):
            return call(what, arguments, named, self.depth + 1)
        raise GdbextError(f"{self.code.qualname} calls what is not evaluated here")

    def _super(self, given: Sequence[Any]) -> Super:
        """`super()`, of the class in the cell `__class__`; `super(kind, owner)`."""
        kind, owner = given if len(given) == 2 else (self.known.get("__class__"), self.arguments[0] if self.arguments else None)
        if not isinstance(kind, Object) or not kind.type.flags & TYPE or not isinstance(owner, Object):
            raise GdbextError(f"{self.code.qualname} calls a super that is not evaluated here")
        return Super(self.rt.type(kind.address), owner)


_OF_C: dict[str, Callable[[Object], Any]] = {
    "__len__": lambda owner: owner.len(),
    "__iter__": lambda owner: list(values.held_members(owner)),
}


def _number(name: str, arguments: list[Any]) -> Any:
    given = [values.plain(a) for a in arguments]
    if len(given) != 1 or not isinstance(given[0], (int, float)):
        raise GdbextError(f"{name}() of anything but a number is not evaluated here")
    return int(given[0]) if name == "int" else float(given[0])


def register() -> None:
    """From now on len(), truth, iteration and properties are evaluated where their code is plain."""
    values.PlainCode.call = call
