"""Small Python functions evaluated from their bytecode: properties, `__len__`, and methods that read attributes, compute, compare
and call others of that kind. Code that stores, loops, catches or calls anything else is refused by name.

Instructions and their arguments: Python/bytecodes.c and Lib/dis.py of each minor; the opcodes: layouts/opcodes.json.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import log
from ..errors import GdbextError, NotFoundError
from . import arithmetic, codes, comparisons, containers, expression_calls, spending, value_attributes, values
from .adapters import Adapter
from .objects import Object
from .types import TypeInfo
from .value_attributes import BoundMethod

if TYPE_CHECKING:
    from .frames import Code
    from .runtime import Runtime

MAX_STEPS, MAX_DEPTH = 2000, 12  # instructions of one function, functions in one another
_VARIADIC, _GENERATES = 0x04 | 0x08, 0x20 | 0x80 | 0x200  # flags of a code object (Include/cpython/code.h)
_BINARY = "Add BitAnd FloorDiv LShift MatMult Mult Mod BitOr Pow RShift Sub Div BitXor".split()  # BINARY_OP's arguments 0 to 12
_IN_PLACE, _SUBSCRIPT = 13, 26
_OF_39 = dict(zip("ADD SUBTRACT MULTIPLY TRUE_DIVIDE FLOOR_DIVIDE MODULO POWER AND OR XOR LSHIFT RSHIFT".split(),
                  "Add Sub Mult Div FloorDiv Mod Pow BitAnd BitOr BitXor LShift RShift".split()))  # fmt: skip
_ORDER = "Lt LtE Eq NotEq Gt GtE".split()
_BUILTIN = frozenset("len bool abs min max sum int float isinstance hasattr getattr any all super".split())
_NULL = object()  # beside a callable that is no method


class _Builtin:
    def __init__(self, name: str) -> None:
        self.name = name


class Super(Adapter):
    """`super()` in a method of class `definer`, of the instance `owner`."""

    type_name = "super"

    def __init__(self, definer: TypeInfo, owner: Object) -> None:
        super().__init__(None)
        self.definer, self.owner = definer, owner

    def found(self, name: str) -> tuple[TypeInfo, Object]:
        """(the class behind `definer` that has the attribute, the attribute's value there)."""
        bases = list(self.owner.type.bases())
        at = next(i for i, base in enumerate(bases) if base.address == self.definer.address)
        for base in bases[at + 1 :]:
            if name in base.namespace:
                return base, self.owner.rt.object(base.namespace[name])
        raise NotFoundError(f"super() of {self.definer.name} has no {name}")


def definer_of(kind: TypeInfo, name: str) -> TypeInfo | None:
    """The class that defines a name of its instances; None where no class does."""
    return next((base for base in kind.bases() if name in base.namespace), None)


def call(function: Object, arguments: list[Any], definer: TypeInfo | None, depth: int = 0) -> Any:
    """The result of a Python function for positional arguments. `definer`: the class in which it was found. `GdbextError` with
    the reason where its code cannot be evaluated by reading."""
    if depth > MAX_DEPTH:
        raise GdbextError(f"more than {MAX_DEPTH} calls in one another")
    return _Run(function, arguments, definer, depth).result()


class _Run:
    """One call. `stack`: the values of the interpreter's stack, bottom first; `fast`: {number of a variable: value}."""

    def __init__(self, function: Object, arguments: list[Any], definer: TypeInfo | None, depth: int) -> None:
        self.rt: Runtime = function.rt
        self.function, self.definer, self.depth = function, definer, depth
        self.code: Code = self.rt.code(self._word(function.address, "func.func_code"))
        count = self.rt.target.i32(self.code.address + self.rt.layout["code.co_argcount"])
        only = self.rt.target.i32(self.code.address + self.rt.layout["code.co_kwonlyargcount"])
        if self.code.flags & (_VARIADIC | _GENERATES) or only or count != len(arguments):
            raise GdbextError(f"{self.code.qualname} takes other arguments, or is no plain function")
        self.fast = dict(enumerate(arguments))
        self.arguments = arguments
        self.stack: list[Any] = []

    def _word(self, address: int, key: str) -> int:
        return self.rt.target.u64(address + self.rt.layout[key])

    def _element(self, key: str, index: int) -> Object:
        found = self.rt.object(self._word(self.code.address, key)).elements(index + 1)
        return found[index]

    def _name(self, index: int) -> str:
        return self._element("code.co_names", index).string(1000)

    def result(self) -> Any:
        """Runs to its `return`."""
        known = codes.opcodes(self.rt.version)
        steps = codes.instructions(self.code)
        places = {step[0]: i for i, step in enumerate(steps)}
        at, high = 0, 0
        for _ in range(MAX_STEPS):
            if at >= len(steps):
                break
            offset, opcode, argument = steps[at]
            argument |= high
            name = known["plain"].get(str(opcode))
            if name is None:
                raise GdbextError(f"{self.code.qualname} does more than read and compute (line {self.code.line(offset)})")
            high = argument << 8 if name == "EXTENDED_ARG" else 0
            if name in ("RETURN_VALUE", "RETURN_CONST"):
                return self._constant(argument) if name == "RETURN_CONST" else self.stack.pop()
            behind = offset + 2 + 2 * known["caches"].get(str(opcode), 0)
            spending.take(spending.ITEM)
            to = self._step(name, argument, behind)
            if to is not None and to <= offset:
                raise GdbextError(f"{self.code.qualname} loops")
            at = at + 1 if to is None else places[to]
        raise GdbextError(f"{self.code.qualname} takes more than {MAX_STEPS} steps")

    def _step(self, name: str, argument: int, behind: int) -> int | None:
        """Does one instruction. -> the offset that it jumps to, None where it does not."""
        if "JUMP" in name:
            return self._jump(name, argument, behind)
        if name in _IGNORED:
            return None
        if name.startswith("BINARY_"):
            self._binary(name, argument)
            return None
        work = getattr(self, "_" + name.lower(), None)
        if work is None:
            raise GdbextError(f"{self.code.qualname} has an instruction {name} that is not evaluated here")
        work(argument)
        return None

    # ---- jumps ---------------------------------------------------------------------------------------------------
    def _jump(self, name: str, argument: int, behind: int) -> int | None:
        unit = 1 if self.rt.version < (3, 10) else 2
        relative = name == "JUMP_FORWARD" or self.rt.version >= (3, 11)
        target = argument * unit + (behind if relative else 0)
        if name == "JUMP_FORWARD":
            return target
        if name.endswith("_OR_POP"):
            if values.truth(self.stack[-1]) == ("TRUE" in name):
                return target
            self.stack.pop()
            return None
        value = self.stack.pop()
        if name.endswith("NONE"):
            return target if values.is_none(value) != name.endswith("NOT_NONE") else None
        return target if values.truth(value) == name.endswith("TRUE") else None

    # ---- loads and the stack -------------------------------------------------------------------------------------
    def _load_fast(self, index: int) -> None:
        if index not in self.fast:
            raise GdbextError(f"{self.code.qualname} reads a variable that is not set")
        self.stack.append(self.fast[index])

    _load_fast_check = _load_fast_borrow = _load_fast

    def _load_fast_load_fast(self, pair: int) -> None:
        self._load_fast(pair >> 4)
        self._load_fast(pair & 15)

    _load_fast_borrow_load_fast_borrow = _load_fast_load_fast

    def _store_fast(self, index: int) -> None:
        self.fast[index] = self.stack.pop()

    def _constant(self, index: int) -> Any:
        found = self._element("code.co_consts", index)
        return None if found.is_none() else found

    def _load_const(self, index: int) -> None:
        self.stack.append(self._constant(index))

    def _load_small_int(self, number: int) -> None:
        self.stack.append(number)

    def _load_common_constant(self, index: int) -> None:
        found = codes.opcodes(self.rt.version)["common"][index]
        if isinstance(found, dict) and found["name"] not in _BUILTIN:
            raise GdbextError(f"{self.code.qualname} uses {found['name']}, which is not evaluated here")
        self.stack.append(_Builtin(found["name"]) if isinstance(found, dict) else found)

    def _pop_top(self, _: int) -> None:
        self.stack.pop()

    def _copy(self, depth: int) -> None:
        self.stack.append(self.stack[-depth])

    def _dup_top(self, _: int) -> None:
        self.stack.append(self.stack[-1])

    def _swap(self, depth: int) -> None:
        self.stack[-1], self.stack[-depth] = self.stack[-depth], self.stack[-1]

    def _rot_two(self, _: int) -> None:
        self._swap(2)

    def _rot_three(self, _: int) -> None:
        self.stack.insert(-2, self.stack.pop())

    def _push_null(self, _: int) -> None:
        self.stack.append(_NULL)

    def _load_global(self, argument: int) -> None:
        with_null = self.rt.version >= (3, 11) and argument & 1
        name = self._name(argument >> 1 if self.rt.version >= (3, 11) else argument)
        try:
            found: Any = self.rt.object(self._word(self.function.address, "func.func_globals")).item(name)
        except NotFoundError as e:
            log.passed_over(e)
            if name not in _BUILTIN:
                raise GdbextError(f"{self.code.qualname} uses {name}, which is not evaluated here") from None
            found = _Builtin(name)
        self._callable(found, bool(with_null))

    def _callable(self, found: Any, with_null: bool) -> None:
        """Pushes a callable, and the place beside it where the instruction leaves one."""
        beside = [_NULL] if with_null else []
        self.stack += [found, *beside] if self.rt.version >= (3, 13) else [*beside, found]

    def _load_attr(self, argument: int) -> None:
        method = self.rt.version >= (3, 12) and argument & 1
        name = self._name(argument >> 1 if self.rt.version >= (3, 12) else argument)
        self._callable(self._attribute(self.stack.pop(), name), bool(method))

    def _load_method(self, index: int) -> None:
        self._callable(self._attribute(self.stack.pop(), self._name(index)), True)

    def _attribute(self, owner: Any, name: str) -> Any:
        if owner is _NULL or isinstance(owner, _Builtin):
            raise GdbextError(f"{self.code.qualname} looks into a built-in function")
        if isinstance(owner, Super):
            base, held = owner.found(name)
            if held.isa("property"):
                raise GdbextError(f"{self.code.qualname} asks super() for the property {name}")
            return _Method(held, owner.owner, base, name)
        found = value_attributes.attribute(owner, name)
        if isinstance(found, BoundMethod) and isinstance(owner, Object):
            return _Method(found.func, found.owner, definer_of(owner.type, name), name)
        return found

    def _load_deref(self, index: int) -> None:
        variables = self.code.variables
        if self.rt.version < (3, 11):
            index += self._local_count()
        if not index < len(variables) or variables[index][0] != "__class__":
            raise GdbextError(f"{self.code.qualname} uses a variable of a function around it")
        self.stack.append(_NULL)  # only super() takes it

    def _local_count(self) -> int:
        return self.rt.target.i32(self.code.address + self.rt.layout["code.co_nlocals"])

    def _load_super_attr(self, argument: int) -> None:
        owner, _, called = self.stack.pop(), self.stack.pop(), self.stack.pop()
        if not isinstance(called, _Builtin) or called.name != "super" or owner is not self.arguments[0]:
            raise GdbextError(f"{self.code.qualname} calls a super that is not evaluated here")
        self._callable(self._attribute(self._super(), self._name(argument >> 2)), bool(argument & 1))

    def _super(self) -> Super:
        owner = self.arguments[0] if self.arguments else None
        if self.definer is None or not isinstance(owner, Object):
            raise GdbextError(f"{self.code.qualname} calls super(), and its class is not known")
        return Super(self.definer, owner)

    # ---- work ----------------------------------------------------------------------------------------------------
    def _binary(self, name: str, argument: int) -> None:
        right, left = self.stack.pop(), self.stack.pop()
        if name == "BINARY_SUBSCR" or name == "BINARY_OP" and argument == _SUBSCRIPT:
            self.stack.append(containers.item(left, values.plain(right)))
            return
        if name == "BINARY_OP" and argument >= _IN_PLACE:
            argument -= _IN_PLACE
            if not isinstance(values.plain(left), (int, float, str, bytes, tuple)):
                raise GdbextError(f"{self.code.qualname} changes an object")
        which = _OF_39[name[len("BINARY_") :]] if name != "BINARY_OP" else _BINARY[argument]
        self.stack.append(arithmetic.arithmetic(which, left, right))

    def _compare_op(self, argument: int) -> None:
        right, left = self.stack.pop(), self.stack.pop()
        shift = 5 if self.rt.version >= (3, 13) else 4 if self.rt.version >= (3, 12) else 0
        name = _ORDER[argument >> shift]
        if name in ("Eq", "NotEq"):
            self.stack.append(comparisons.equal(left, right) == (name == "Eq"))
        else:
            self.stack.append(comparisons.ordered(name, left, right))

    def _is_op(self, negated: int) -> None:
        right, left = self.stack.pop(), self.stack.pop()
        same = left is right or comparisons.identical(left, right)
        self.stack.append(same != bool(negated))

    def _contains_op(self, negated: int) -> None:
        container, value = self.stack.pop(), self.stack.pop()
        self.stack.append(containers.contains(container, value) != bool(negated))

    def _unary_not(self, _: int) -> None:
        self.stack.append(not values.truth(self.stack.pop()))

    def _unary_negative(self, _: int) -> None:
        self.stack.append(arithmetic.unary("USub", self.stack.pop()))

    def _to_bool(self, _: int) -> None:
        self.stack.append(values.truth(self.stack.pop()))

    # ---- calls ---------------------------------------------------------------------------------------------------
    def _call(self, count: int) -> None:
        arguments = [self.stack.pop() for _ in range(count)][::-1]
        pair = [self.stack.pop(), self.stack.pop()]
        called = [one for one in pair if one is not _NULL]
        if len(called) != 1:
            raise GdbextError(f"{self.code.qualname} makes a call that is not evaluated here")
        self.stack.append(self._called(called[0], arguments))

    _call_method = _call

    def _call_function(self, count: int) -> None:
        arguments = [self.stack.pop() for _ in range(count)][::-1]
        self.stack.append(self._called(self.stack.pop(), arguments))

    def _called(self, what: Any, arguments: list[Any]) -> Any:
        if isinstance(what, _Builtin):
            if what.name == "super":
                if arguments:
                    raise GdbextError(f"{self.code.qualname} calls super with arguments")
                return self._super()
            if what.name in ("int", "float"):
                return _number(what.name, arguments)
            return expression_calls.function(self.rt, None, what.name, arguments, {})
        if isinstance(what, _Method):
            return what.call(arguments, self.depth)
        if isinstance(what, Object) and what.isa("function"):
            return call(what, arguments, None, self.depth + 1)
        raise GdbextError(f"{self.code.qualname} calls what is not evaluated here")


_IGNORED = frozenset(("NOP", "RESUME", "CACHE", "NOT_TAKEN", "PRECALL", "COPY_FREE_VARS", "EXTENDED_ARG"))


class _Method:
    """A function of a class, `definer`, bound to an instance."""

    def __init__(self, function: Object, owner: Any, definer: TypeInfo | None, name: str) -> None:
        self.function, self.owner, self.definer, self.name = function, owner, definer, name

    def call(self, arguments: list[Any], depth: int) -> Any:
        if self.function.isa("function"):
            return call(self.function, [self.owner, *arguments], self.definer, depth + 1)
        if isinstance(self.owner, Object) and not arguments:  # of a class of C's, by way of super()
            if self.name == "__len__":
                return self.owner.len()
            if self.name == "__iter__":
                return list(values.held_members(self.owner))
        return expression_calls.method(self.owner, self.name, arguments, {}, self.name)


def _number(name: str, arguments: list[Any]) -> Any:
    given = [values.plain(a) for a in arguments]
    if len(given) != 1 or not isinstance(given[0], (int, float)):
        raise GdbextError(f"{name}() of anything but a number is not evaluated here")
    return int(given[0]) if name == "int" else float(given[0])


def register() -> None:
    """From now on len(), truth, iteration and properties are evaluated where their code is plain."""
    values.PlainCode.call = call
