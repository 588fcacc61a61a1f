"""The values of a walk through a loop's bytecode (`poll_walk`): what is asked for, names, conditions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import log
from ..errors import GdbextError
from . import containers
from .objects import Object


class _Word:
    def __init__(self, word: str) -> None:
        self.word = word

    def __repr__(self) -> str:
        return self.word


UNKNOWN, RAISES, NOTHING = _Word("unknown"), _Word("raises"), _Word("nothing")


UNREAD = ("Value", "Connection", "SemLock")  # kinds of questions whose answer is not read here
MAX_PARTS = 8  # of a tuple that is compared


class Ask(NamedTuple):
    """What a loop asks for. `kind`: "Event", "Queue", "Future", "Thread", "Process", "Lock", "Items", "Flag", "File", "Value",
    "Connection", "asyncio.Event" …; `object`: the one that is asked, or the one whose attribute is (a "Flag"); `name`: of the
    attribute or file."""

    kind: str
    object: Any
    text: str = ""
    name: str = ""
    number: int = 0  # a pid, a descriptor, a thread's id
    row: Any = None  # of a primitive's object (`primitives.table`), with the way in which one would wait there
    way: Any = None

    @property
    def key(self) -> tuple[str, int, str, int]:
        return self.kind, self.object.address if self.object is not None else 0, self.name, self.number


class Value(NamedTuple):
    """A value of the walk: `held`: an `Object`, a plain value, a `Bound`, or `UNKNOWN`; `asks`: what it rests on."""

    held: Any = UNKNOWN
    asks: tuple[Ask, ...] = ()


@dataclass
class Bound:
    """A method of an object. `computes`: the function of a property, which is called at once."""

    owner: Object
    name: str
    function: Any
    computes: bool = False


class Awaitable(NamedTuple):
    """A coroutine that waits, and what it waits for; `limited`: the time limit ends it by an exception."""

    asks: tuple[Ask, ...]
    limited: bool = False


# ---- names and attributes --------------------------------------------------------------------------------------------
def entry(space: Object, name: str) -> Object | None:
    """An entry of a namespace."""
    try:
        found: Object = space.item(name)
        return found
    except GdbextError as e:
        log.passed_over(e)
        return None


def item(whole: Value, key: Any) -> Value:
    """`whole[key]` of a tuple, list or dict; of anything else only what cannot be read is kept of what it asks."""
    held = whole.held
    try:
        if isinstance(held, tuple) and isinstance(key, int):
            return Value(held[key], whole.asks)
        if isinstance(held, Object) and isinstance(key, int) and held.isa("tuple", "list") and 0 <= key < held.len():
            changes = () if held.isa("tuple") else (Ask("Items", held),)
            return Value(held.elements(key + 1)[key], whole.asks + changes)
        if isinstance(held, Object) and isinstance(key, str) and held.isa("dict"):
            return Value(held.item(key), (*whole.asks, Ask("Items", held)))
    except (GdbextError, IndexError) as e:
        log.passed_over(e, "an item")
    return Value(UNKNOWN, unread(whole.asks))


def unread(asks: tuple[Ask, ...]) -> tuple[Ask, ...]:
    """Those whose answer is not read here."""
    return tuple(ask for ask in asks if ask.kind in UNREAD)


def kinds_of(obj: Object) -> list[str]:
    """The full names of an object's classes."""
    return [base.full_name if base.is_heap else base.raw_name for base in obj.type.bases()]


# ---- conditions ------------------------------------------------------------------------------------------------------
_SCALARS = ("bool", "int", "float", "str", "NoneType")
CONTAINERS = ("list", "dict", "set", "frozenset", "tuple", "collections.deque", "collections.OrderedDict", "bytes")


def plain(held: Any) -> Any:
    """A number, text, None or tuple of these; `UNKNOWN` for anything else."""
    if not isinstance(held, Object):
        return held if held is None or isinstance(held, (bool, int, float, str, tuple)) else UNKNOWN
    if held.is_none():
        return None
    if held.isa("str"):
        return held.string(4096)
    if held.isa("tuple"):
        parts = tuple(map(plain, held.elements(MAX_PARTS))) if held.len() <= MAX_PARTS else (UNKNOWN,)
        return UNKNOWN if UNKNOWN in parts else parts
    return held.plain(1) if held.type.builtin_name in _SCALARS else UNKNOWN


def is_none(value: Value) -> bool | None:
    """Whether it is None; None where that is not known."""
    if isinstance(value.held, (_Word, Bound)):
        return None
    return value.held is None or isinstance(value.held, Object) and bool(value.held.is_none())


def truth(value: Value) -> Value:
    """Its truth."""
    known = plain(value.held)
    if known is not UNKNOWN:
        return Value(bool(known), value.asks)
    held = value.held
    if isinstance(held, Bound):
        return Value(True)
    if not isinstance(held, Object):
        return Value(UNKNOWN, value.asks)
    if held.type.builtin_name in CONTAINERS:
        asks = (*value.asks, Ask("Items", held)) if held.type.builtin_name != "tuple" else value.asks
        return Value(bool(held.len()), asks)
    if all(held.type.lookup(name) is None for name in ("__bool__", "__len__")):
        return Value(True, value.asks)
    return Value(held.isa("function", "module", "type") or UNKNOWN, value.asks)


def compared(name: str, left: Value, right: Value) -> Value:
    """`left OPERATOR right` of two plain values, and `is`; `name`: of the ast node. What a container holds is not looked at."""
    asks = left.asks + right.asks
    if name in ("Is", "IsNot"):
        return identical(left, right, name == "IsNot")
    a, b = plain(left.held), plain(right.held)
    if a is UNKNOWN or b is UNKNOWN or name in ("In", "NotIn"):
        return Value(UNKNOWN, asks)
    try:
        return Value(containers.holds(name, a, b), asks)
    except (GdbextError, TypeError) as e:
        log.passed_over(e, "a comparison")
        return Value(UNKNOWN, asks)


def identical(left: Value, right: Value, negated: bool) -> Value:
    """`is` and `is not`."""
    asks = left.asks + right.asks
    if any(isinstance(one.held, (_Word, Bound)) for one in (left, right)):
        return Value(UNKNOWN, asks)
    a, b = (0 if one.held is None or one.held.is_none() else one.held.address for one in map(_as_object, (left, right)))
    return Value((a == b) != negated, asks)


def _as_object(value: Value) -> Value:
    if value.held is None or isinstance(value.held, Object):
        return value
    raise GdbextError("a number is compared by `is`")
