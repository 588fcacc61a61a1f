"""Operations of expressions on values, by reading memory: length, iteration, truth, types. Attributes, items, comparisons and
arithmetic are in value_attributes.py, containers.py, comparisons.py and arithmetic.py.

A value is an `Object` of the process, an `Adapter`, or a plain Python value. Each answer is Python's own answer. Where that would
run code of the process (a class's own `__eq__`, `__len__`, `__getitem__`, a property that computes), it is a `GdbextError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Collection, Iterable

from .. import log
from ..errors import FaultError, GdbextError
from . import hiding, spending
from .adapters import Adapter, PlainAdapter
from .objects import MAX_ITEMS, Object
from .types import BYTES, DICT, LIST, STR, TUPLE, TYPE

if TYPE_CHECKING:
    from .reprs import Repr
    from .runtime import Runtime

# Classes of the standard library whose values are made here, by name: their modules are loaded where one is met.
_LIBRARY = {
    *(f"datetime.{name}" for name in ("date", "time", "timedelta", "tzinfo")),
    *("decimal.Decimal", "fractions.Fraction", "pathlib.PurePath", "uuid.UUID"),
}


class NoneOperand(GdbextError):
    """An operation on text, a container or a number met None instead."""


def of_library(value: Any, classes: Collection[str] = _LIBRARY) -> bool:
    """Whether a plain value is a date, number, path or the like of the standard library: of one of these classes or below it."""
    return any(f"{base.__module__.partition('.')[0]}.{base.__name__}" in classes for base in type(value).__mro__)


def describe(value: Any) -> str:
    """ "the Request at 0x…", for messages."""
    if isinstance(value, Object):
        return f"the {value.type_name} at {value.address:#x}"
    return f"the {value.type_name}" if isinstance(value, Adapter) else f"the plain value {spending.brief(value)}"


def own_code(value: Object, *names: str) -> None:
    """Raises `GdbextError` where the class defines one of these methods in Python."""
    adapter = value.adapter
    known = (adapter.reprs or ()) if isinstance(adapter, PlainAdapter) else ()  # classes whose values can be made again here
    for name in names:
        definer = value.type.python_definer(name)
        if definer is not None and definer.full_name not in known:
            raise GdbextError(
                f"{describe(value)} has a {name} of its own ({definer.name}), which only running code could answer; "
                f"look at its fields: vars(…)"
            )


class PlainCode:
    """Evaluates small functions of the process by reading: set by plain_code.py, which needs this module itself."""

    call: Callable[[Object, list[Any]], Any] | None = None


def by_code(value: Object, name: str) -> Any:
    """The result of the method `name` that a class defines in Python, where its code only reads and computes. `NotImplemented`
    where it has none; `GdbextError` with the reason where the code does more."""
    try:
        own_code(value, name)
    except GdbextError as e:
        definer = value.type.python_definer(name)
        if PlainCode.call is None or definer is None:
            raise
        try:
            return PlainCode.call(value.rt.object(definer.namespace[name]), [value])
        except FaultError:
            raise
        except GdbextError as why:
            raise GdbextError(f"{e} ({why})") from None
    return NotImplemented


def is_none(value: Any) -> bool:
    """Whether a value is None."""
    return value is None or isinstance(value, Object) and value.is_none()


def adapter_of(value: Any) -> Adapter | None:
    """The `Adapter` that answers for a value, None where none does."""
    if isinstance(value, Adapter):
        return value
    return value.adapter if isinstance(value, Object) else None


def plain(value: Any) -> Any:
    """The plain Python value; `GdbextError` for an object that has none."""
    if isinstance(value, (list, tuple)):
        spending.take(spending.ITEM * (1 + len(value)))  # one that holds another many times is copied as often
        return type(value)(plain(v) for v in value)
    if hiding.active() and isinstance(value, Object) and value.type.flags & TUPLE:
        return tuple(plain(v) for v in members(value))
    if isinstance(value, Adapter):
        found = value.plain()
        if found is NotImplemented:
            raise GdbextError(f"{describe(value)} has no plain value")
        return found
    return value.plain() if isinstance(value, Object) else value


def kind(value: Any) -> str:
    """ "list", "tuple", "dict", "odict", "set" or "deque" for a container, '' for anything else."""
    if not isinstance(value, Object):
        for made, name in ((list, "list"), (tuple, "tuple"), (dict, "dict"), (set, "set"), (frozenset, "set")):
            if isinstance(value, made):
                return name
        return ""
    flags = value.type.flags
    if flags & (LIST | TUPLE):
        return "list" if flags & LIST else "tuple"
    if flags & DICT:
        return "odict" if value.isa("collections.OrderedDict") else "dict"
    return "set" if value.isa("set", "frozenset") else "deque" if value.isa("collections.deque") else ""


def is_frozen(value: Any) -> bool:
    """Whether a value is a frozenset."""
    return value.isa("frozenset") if isinstance(value, Object) else isinstance(value, frozenset)


def hashable(value: Any) -> None:
    """Raises `GdbextError` for values that Python refuses as a key."""
    known = kind(value)
    spending.take(1)  # the time counts: one tuple may hold another many times
    if known in ("list", "dict", "odict", "deque") or known == "set" and not is_frozen(value) or isinstance(value, bytearray):
        raise GdbextError(f"{describe(value)} is unhashable: no key is equal to it")
    if known == "tuple":
        for member in members(value):
            hashable(member)


def type_of(rt: Runtime | None, value: Any) -> Any:
    """`type(value)`: the class `Object`."""
    if isinstance(value, Object):
        return value.rt.object(value.type.address)
    if isinstance(value, hiding.Hidden):
        if value.held is hiding.UNKNOWN:
            raise hiding.refuse()
        return type_of(rt, value.held)
    if rt is None:
        raise GdbextError("type() needs a process")
    if value is None or value is Ellipsis:
        address = rt.target.symbol("_Py_NoneStruct" if value is None else "_Py_EllipsisObject", [rt.library])
        return rt.object(rt.object(address).type.address)
    contents = rt.module("builtins")
    name = value.type_name if isinstance(value, Adapter) else type(value).__name__
    if contents is None or isinstance(value, Adapter) or of_library(value):
        raise GdbextError(f"the type of {describe(value)} is {name}, whose class object is not at hand")
    return contents.item(name)


class DictView(Adapter):
    """`d.keys()`, `d.values()`, `d.items()` of a dict of the process."""

    def __init__(self, held: Object, kind: str) -> None:
        super().__init__(None)
        self.held, self.kind = held, kind
        self.looked_at: list[Any] | None = None  # its members, where content is to be hidden
        self.type_name = ("odict_" if held.isa("collections.OrderedDict") else "dict_") + kind

    def text(self, printer: Repr, depth: int) -> str:
        if self.kind != "values" or self.looked_at is not None:
            shown = self.members(printer.limits.items) if self.looked_at is None else self.looked_at[: printer.limits.items]
            return f"{self.type_name}([{printer.each(self.held.len(), shown, lambda v: printer.show(v, depth + 1))}])"
        pairs = self.held.items(printer.limits.items)  # a value stands under its key
        inner = printer.each(self.held.len(), pairs, lambda p: printer.under_key(p[0], p[1], depth + 1))
        return f"{self.type_name}([{inner}])"

    def length(self) -> int:
        return self.held.len()

    def members(self, limit: int) -> list[Any]:
        pairs = self.held.items(limit)
        return list(pairs) if self.kind == "items" else [p[0] if self.kind == "keys" else p[1] for p in pairs]

    def truth(self) -> bool:
        return self.held.len() > 0


VIEWS = {f"{prefix}_{kind}": kind for prefix in ("dict", "odict") for kind in ("keys", "values", "items")}


def view_of(value: Any) -> DictView | None:
    """The `DictView` of a view object of the process or of one that was made here."""
    if isinstance(value, DictView):
        return value
    if isinstance(value, Object) and value.type.builtin_name in VIEWS:
        return DictView(wrapped(value), VIEWS[value.type.builtin_name])
    return None


def wrapped(descriptor: Object) -> Object:
    """The object that a classmethod or staticmethod wraps: the first word after its header."""
    return descriptor.rt.object(descriptor.rt.target.u64(descriptor.address + descriptor.rt.layout["object.__size"]))


def length(value: Any) -> int:
    """`len(value)`"""
    adapter = view_of(value) or adapter_of(value)
    known = adapter.length() if adapter is not None else NotImplemented
    if known is not NotImplemented:
        return int(known)
    if isinstance(value, Object):
        told = by_code(value, "__len__")
        if told is not NotImplemented:
            return _count(value, told)
        return len(value.range()) if value.isa("range") else value.len()
    if isinstance(value, Adapter):
        raise GdbextError(f"{describe(value)} has no length that can be read")
    return len(value)


def _count(value: Object, told: Any) -> int:
    count = plain(told)
    if not isinstance(count, int) or count < 0:
        raise GdbextError(f"the __len__ of {describe(value)} gives {spending.brief(count, 40)}, which is no length")
    return int(count)


def members(value: Any, limit: int = MAX_ITEMS) -> Iterable[Any]:
    """The items of an iteration over a value."""
    if isinstance(value, hiding.Hidden):
        with value.opened(sets=True) as held:
            return [hiding.part(one) for one in _members(held, limit)]
    found = _members(value, limit)
    return hiding.members_of(value, found) if hiding.active() else found


def _members(value: Any, limit: int) -> Iterable[Any]:
    adapter = view_of(value) or adapter_of(value)
    known: Iterable[Any] = adapter.members(limit) if adapter is not None else NotImplemented
    if known is not NotImplemented:
        return known
    if not isinstance(value, Object):
        if value is None:
            raise NoneOperand("None cannot be iterated")
        if isinstance(value, Adapter):
            raise GdbextError(f"{describe(value)} cannot be iterated by reading memory")
        inside: Iterable[Any] = iter(value)
        return inside
    if value.is_none():
        raise NoneOperand("None cannot be iterated")
    if value.type.flags & TYPE and "_member_map_" in value.rt.type(value.address).namespace:
        named = {k.string(1000): v for k, v in value.attr("_member_map_").items()}
        return [named[n.string(1000)] for n in value.attr("_member_names_").elements()]
    told = by_code(value, "__iter__")
    if told is not NotImplemented:
        return members(told, limit) if told is not value else held_members(value, limit)
    own_code(value, "__getitem__")
    return held_members(value, limit)


def made_of(value: Object) -> str | bytes | bytearray | range | None:
    """The text, bytes or range that equals such an object; None for any other."""
    if value.type.flags & STR:
        return value.string()
    if value.type.flags & BYTES:
        return value.raw_bytes()
    if value.isa("bytearray"):
        return bytearray(value.raw_bytes())
    numbers: range | None = value.range() if value.isa("range") else None
    return numbers


def held_members(value: Object, limit: int = MAX_ITEMS) -> Iterable[Any]:
    """The members of a container, as the iteration of its C type gives them."""
    made = made_of(value)
    if made is not None:
        return iter(made)
    if value.isa("array.array"):
        return value.array_numbers(0, value.len())[1]
    if value.isa("mappingproxy"):
        return [k for k, _ in value.items(limit)]
    return value.elements(limit)


def truth(value: Any) -> bool:
    """`bool(value)`"""
    adapter = view_of(value) or adapter_of(value)
    known = adapter.truth() if adapter is not None else NotImplemented
    if known is not NotImplemented:
        return bool(known)
    if not isinstance(value, Object):
        if isinstance(value, Adapter):
            made = value.plain()
            return True if made is NotImplemented else bool(made)
        return bool(value)
    told = by_code(value, "__bool__")
    if told is NotImplemented and value.type.lookup("__bool__") is None:
        told = by_code(value, "__len__")
    if told is not NotImplemented:
        return bool(plain(told))
    try:
        return bool(value.plain())
    except FaultError:
        raise
    except GdbextError as e:
        log.passed_over(e)
    if value.isa("range", *VIEWS):
        return length(value) > 0
    try:
        return value.len() > 0
    except FaultError:
        raise
    except GdbextError as e:
        log.passed_over(e)
        if value.type.lookup("__bool__") or value.type.lookup("__len__"):
            raise GdbextError(f"whether {describe(value)} counts as true is up to its own code; compare a field") from None
        return True
