"""Equality, identity and order of the values of an expression, as Python defines them for its own types."""

from __future__ import annotations

import operator
from typing import Any, Callable

from ..errors import GdbextError
from . import hiding, spending
from .adapters import Adapter
from .objects import Object
from .types import BYTES, EXCEPTION, LONG, STR
from .values import NoneOperand, adapter_of, describe, is_none, kind, length, made_of, members, own_code, plain

# C types without a comparison of their own: equal only to themselves.
_BY_IDENTITY = frozenset(
    "object type function module generator coroutine async_generator NoneType ellipsis NotImplementedType frame traceback"
    " property _thread.lock _thread.RLock BaseException".split()
)
_SCALARS = ("float", "complex", "NoneType", "ellipsis", "bytearray", "range", "slice")


def same(left: Any, right: Any) -> bool:
    """Whether containers treat two values as one: they are identical, or equal."""
    return identical(left, right) or equal(left, right)


def identical(left: Any, right: Any) -> bool:
    """`left is right`, for objects of the process and the singletons."""
    if hiding.differ(left, right):
        return False
    if isinstance(left, Object) and isinstance(right, Object):
        if of_one_memory(left, right):
            return left.address == right.address
        left, right = _singleton(left), _singleton(right)
        return left is right is not None
    for a, b in ((left, right), (right, left)):
        if isinstance(a, Object) and (b is None or b is Ellipsis or isinstance(b, bool)):
            name = a.type.builtin_name
            if isinstance(b, bool):
                return name == "bool" and a.boolean() is b
            return name == ("NoneType" if b is None else "ellipsis")
    return left is right


def of_one_memory(left: Object, right: Object) -> bool:
    """Whether two objects are of one process and moment: only there does an address name one object."""
    return left.rt.target is right.rt.target


def _singleton(value: Object) -> Any:
    """What stands for None, a bool or Ellipsis in any process; None for other objects."""
    name = value.type.builtin_name
    return (name, value.boolean()) if name == "bool" else name if name in ("NoneType", "ellipsis") else None


def one_object(left: Any, right: Any) -> bool:
    """`left is right`, also where one side was made here and has no address in the process. `GdbextError` where an equal number,
    text or tuple may or may not be the same object there: CPython keeps one of each small number, and of some others."""
    if identical(left, right):
        return True
    made = [one for one in (left, right) if not isinstance(one, (Object, Adapter)) and isinstance(one, _SHARED)]
    other = right if made and made[0] is left else left
    if not made or _type_name(made[0]) != _type_name(other) or not equal(left, right):
        return False
    if isinstance(made[0], int) and -5 <= made[0] <= 256:  # _PY_NSMALLPOSINTS, at least
        return True
    raise GdbextError("whether two equal values are one object is not told by reading: one of them is made anew here")


_SHARED = (int, float, complex, str, bytes, tuple)


def _type_name(value: Any) -> str:
    return value.type.builtin_name if isinstance(value, Object) else type(value).__name__


def equal(left: Any, right: Any, depth: int = 100) -> bool:
    """`left == right`; `GdbextError` where a class's own code decides."""
    if not depth:
        raise GdbextError("the values are nested too deeply to be compared")
    spending.take(1)  # the time counts
    if hiding.differ(left, right):
        return False
    kinds = kind(left), kind(right)
    if kinds[0] and kinds[1]:
        for side in (left, right):
            if isinstance(side, Object):
                own_code(side, "__eq__")
        return _equal_containers(left, right, kinds, depth)
    sides = _comparable(left), _comparable(right)
    if not any(isinstance(s, (Object, Adapter)) for s in sides):
        return bool(sides[0] == sides[1])
    if isinstance(left, Object) and isinstance(right, Object):
        return _equal_objects(left, right, depth)
    if any(isinstance(s, Adapter) for s in sides):
        raise GdbextError(f"{describe(left)} and {describe(right)} cannot be compared by reading memory")
    thing = left if isinstance(left, Object) else right
    own_code(thing, "__eq__")
    if kind(thing) or _compares_by_identity(thing):
        return False  # an object of the process and a plain value of another type
    raise GdbextError(f"whether {describe(thing)} equals a value is up to its own code; compare a field")


def _comparable(value: Any) -> Any:
    """The plain value for comparison, or the value itself where it has none or is a container."""
    if not isinstance(value, (Object, Adapter)) or kind(value):
        return value
    adapter = adapter_of(value)
    made = adapter.plain() if adapter is not None else NotImplemented
    if made is not NotImplemented:
        return made
    if isinstance(value, Object) and (value.type.flags & (LONG | STR | BYTES) or value.isa(*_SCALARS)):
        own_code(value, "__eq__")
        if value.isa("slice"):
            return slice(*(plain(value.attr(part)) for part in ("start", "stop", "step")))
        if value.isa("complex"):
            return value.complex()
        if value.isa("bytearray", "range"):
            return made_of(value)
        return Ellipsis if value.isa("ellipsis") else value.plain()
    return value


def _equal_containers(left: Any, right: Any, kinds: tuple[str, str], depth: int) -> bool:
    if set(kinds) == {"dict", "odict"}:
        kinds = ("dict", "dict")
    if kinds[0] != kinds[1] or length(left) != length(right):
        return False
    if kinds[0] in ("list", "tuple", "deque"):
        return all(identical(a, b) or equal(a, b, depth - 1) for a, b in zip(members(left), members(right)))
    if kinds[0] == "set":
        others = list(members(right))
        return all(any(identical(a, b) or equal(a, b, depth - 1) for b in others) for a in members(left))
    pairs, others = _pairs(left), _pairs(right)
    if kinds[0] == "odict":
        return all(same(a, c) and (identical(b, d) or equal(b, d, depth - 1)) for (a, b), (c, d) in zip(pairs, others))
    for key, value in pairs:
        match = next((v for k, v in others if same(k, key)), NotImplemented)
        if match is NotImplemented or not (identical(value, match) or equal(value, match, depth - 1)):
            return False
    return True


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    return hiding.pairs_of(value, value.items()) if isinstance(value, Object) else list(value.items())


def _compares_by_identity(value: Object) -> bool:
    """Whether no class along the MRO compares by anything but identity."""
    if value.type.python_definer("__eq__") is not None:
        return False
    return bool(value.type.flags & EXCEPTION) or all(b.is_python or b.builtin_name in _BY_IDENTITY for b in value.type.bases())


def _equal_objects(left: Object, right: Object, depth: int) -> bool:
    definers = [side.type.python_definer("__eq__") for side in (left, right)]
    apart = not of_one_memory(left, right)
    alike = _full_name(left) == _full_name(right) if apart else left.type.address == right.type.address
    own, other = definers
    if own is not None and (own is other or other is not None and apart and alike) and "__dataclass_fields__" in own.namespace:
        code = left.rt.code(left.rt.target.u64(own.namespace["__eq__"] + left.rt.layout["func.func_code"]))
        if code.file == "<string>" or code.file.endswith("/dataclasses.py"):
            return alike and _equal_fields(left, right, own.namespace, depth)
    for side in (left, right):
        own_code(side, "__eq__")
    if _compares_by_identity(left) and _compares_by_identity(right):
        if apart and alike:
            raise GdbextError(
                f"{describe(left)} is compared by identity, which two moments or processes do not share; compare fields"
            )
        return not apart and left.address == right.address
    if any(_compares_by_identity(side) or kind(side) or _is_scalar(side) for side in (left, right)):
        others = [side for side in (left, right) if not (_compares_by_identity(side) or kind(side) or _is_scalar(side))]
        if not others:
            return False  # of different kinds
    raise GdbextError(
        f"whether {describe(left)} and {describe(right)} are equal is up to their own code; compare fields, or use `is`"
    )


def _full_name(value: Object) -> tuple[str, str]:
    return value.type.module, value.type.qualname


def _is_scalar(value: Object) -> bool:
    return not isinstance(_comparable(value), (Object, Adapter))


def _equal_fields(left: Object, right: Object, namespace: dict[str, int], depth: int) -> bool:
    """The `__eq__` that `dataclasses` makes: field by field, of those that count."""
    for name, field in left.rt.object(namespace["__dataclass_fields__"]).items(1000):
        parts = dict(field.fields())
        pseudo = dict(parts["_field_type"].fields())["name"].string() != "_FIELD"
        if pseudo or parts["compare"].plain() is False:
            continue
        a, b = (hiding.under(name.string(1000), side.attr(name.string(1000))) for side in (left, right))
        if not (identical(a, b) or equal(a, b, depth - 1)):
            return False
    return True


_ORDER: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "Lt": (operator.lt, "__lt__"),
    "LtE": (operator.le, "__le__"),
    "Gt": (operator.gt, "__gt__"),
    "GtE": (operator.ge, "__ge__"),
}


def ordered(name: str, left: Any, right: Any) -> bool:
    """`left < right` and the like; `name`: of the ast node ("Lt"). `NoneOperand` where one side is None."""
    work, method = _ORDER[name]
    if is_none(left) or is_none(right):
        raise NoneOperand(f"None has no order ({describe(left)}, {describe(right)})")
    for side in (left, right):
        if isinstance(side, Object):
            own_code(side, *(m for _, m in _ORDER.values()), "__eq__")
    kinds = kind(left), kind(right)
    if kinds[0] in ("list", "tuple", "deque") and kinds[0] == kinds[1]:
        for a, b in zip(members(left), members(right)):
            if not same(a, b):
                return ordered(name, a, b)
        return bool(work(length(left), length(right)))
    if kinds == ("set", "set"):
        return bool(work(plain_set(left), plain_set(right)))
    return bool(work(_orderable(left), _orderable(right)))


def _orderable(value: Any) -> Any:
    found = _comparable(value)
    if isinstance(found, (Object, Adapter)) or kind(found):
        raise GdbextError(f"{describe(value)} has no order that reading can tell")
    return found


def plain_set(value: Any) -> set[Any]:
    """A set of the plain values of its members."""
    return {plain(v) for v in spending.gathered(members(value))}
