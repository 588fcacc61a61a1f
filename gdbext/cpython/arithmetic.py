"""`+ - * / // % ** & | ^ << >>` and the signs, on plain values of an expression; bounded."""

from __future__ import annotations

import operator
from typing import Any, Callable

from ..errors import GdbextError
from . import spending
from .comparisons import plain_set
from .objects import Object
from .values import NoneOperand, is_frozen, is_none, kind, members, of_library, own_code, plain, truth

_NUMBERS = ("decimal.Decimal", "fractions.Fraction", "datetime.timedelta")
MAX_BITS = 1 << 20  # of a number that an expression makes
_ARITHMETIC: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "Add": (operator.add, "add"),
    "Sub": (operator.sub, "sub"),
    "Mult": (operator.mul, "mul"),
    "Div": (operator.truediv, "truediv"),
    "FloorDiv": (operator.floordiv, "floordiv"),
    "Mod": (operator.mod, "mod"),
    "Pow": (operator.pow, "pow"),
    "BitAnd": (operator.and_, "and"),
    "BitOr": (operator.or_, "or"),
    "BitXor": (operator.xor, "xor"),
    "LShift": (operator.lshift, "lshift"),
    "RShift": (operator.rshift, "rshift"),
}
_UNARY: dict[str, tuple[Callable[[Any], Any], str]] = {
    "USub": (operator.neg, "__neg__"),
    "UAdd": (operator.pos, "__pos__"),
    "Invert": (operator.invert, "__invert__"),
}


def arithmetic(name: str, left: Any, right: Any) -> Any:
    """`left + right` and the like; `name`: of the ast node ("Add"). `GdbextError` where the result would grow too large."""
    if name not in _ARITHMETIC:
        raise GdbextError("this operator cannot be answered by reading memory")
    work, method = _ARITHMETIC[name]
    for side in (left, right):
        if isinstance(side, Object):
            own_code(side, f"__{method}__", f"__r{method}__")
    kinds = kind(left), kind(right)
    if name == "Add" and kinds in (("list", "list"), ("tuple", "tuple")):
        return [*members(left), *members(right)] if kinds[0] == "list" else (*members(left), *members(right))
    if kinds == ("set", "set") and name in ("Sub", "BitAnd", "BitOr", "BitXor"):
        made = work(plain_set(left), plain_set(right))
        return frozenset(made) if is_frozen(left) else made
    if is_none(left) or is_none(right):
        raise NoneOperand("None is no number")
    a, b = plain(left), plain(right)
    if name == "Mult" and not (_is_number(a) and _is_number(b)):
        raise GdbextError("only numbers are multiplied here")
    if name == "Mod" and isinstance(a, (str, bytes, bytearray)):
        raise GdbextError("text is not formatted here by %: write the values side by side, with commas")
    _bound(name, a, b)
    if isinstance(a, (str, bytes, bytearray, list, tuple)) and isinstance(b, (str, bytes, bytearray, list, tuple)):
        spending.take(len(a) + len(b))  # before it is there
    return work(a, b)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, complex)) or of_library(value, _NUMBERS)


def _bound(name: str, a: Any, b: Any) -> None:
    if of_library(a, ("fractions.Fraction",)) and isinstance(b, int) and name == "Pow":
        a, b = max(abs(a.numerator), a.denominator), abs(b)
    if isinstance(a, int) and isinstance(b, int):
        grown = {"Pow": a.bit_length() * max(b, 0), "LShift": a.bit_length() + b, "Mult": a.bit_length() + b.bit_length()}
        if grown.get(name, 0) > MAX_BITS:
            raise GdbextError("that number would be too large")


def unary(name: str, operand: Any) -> Any:
    """`-operand`, `not operand` and the like; `name`: of the ast node ("USub")."""
    if name == "Not":
        return not truth(operand)
    work, method = _UNARY[name]
    if isinstance(operand, Object):
        own_code(operand, method)
    return work(plain(operand))
