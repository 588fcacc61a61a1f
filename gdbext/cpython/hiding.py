"""The one filter on what an expression learns of private content: content does not get into the evaluation at all.

Each place where an expression reads a value (a name, an attribute, an item, a member, an address) asks `under`. Content becomes a
`Hidden` there: it answers its type, its count, and comparisons with None. Any other use of it ends the evaluation, so neither
the value, nor an error, nor the time tells more (docs/security.md).
"""

from __future__ import annotations

import contextlib
from collections.abc import Set
from typing import Any, Callable, Iterable, Iterator, Sequence

from ..errors import GdbextError
from . import privacy
from .adapters import Adapter
from .objects import Object
from .types import BYTES, DICT, LIST, STR, TUPLE, TYPE

UNKNOWN = object()  # what a `Hidden` holds of a value that was not computed
_OF_ARRAYS = frozenset("shape dtype device ndim itemsize nbytes layout is_cuda requires_grad".split())
_CALLS_OF_ARRAYS = frozenset("dim numel element_size is_contiguous stride".split())
_SEQUENCES = ("bytearray", "array.array", "collections.deque", "range")


class PrivateError(GdbextError):
    """An expression wanted to know more of private content than is told."""


class _Hiding:
    """One evaluation. `names`: private ones; `met`: whether content was used."""

    def __init__(self, names: Set[str]) -> None:
        self.names, self.met = names, False


_now: list[_Hiding | None] = [None]


@contextlib.contextmanager
def expression(names: Set[str]) -> Iterator[_Hiding]:
    """A `with` block in which values of these names, and what privacy.py takes for content, are hidden. No names: none are."""
    before, _now[0] = _now[0], _Hiding(names) if names else None
    try:
        yield _now[0] or _Hiding(names)
    finally:
        _now[0] = before


def active() -> bool:
    """Whether content is being hidden."""
    return _now[0] is not None


def refuse() -> PrivateError:
    """The error for a use of content, which is noted: nothing that catches it makes an answer of it."""
    if _now[0] is not None:
        _now[0].met = True
    return PrivateError("the answer depends on private content: -show-content gives it")


class Hidden(Adapter):
    """A value that is private content. `held`: the value itself, or `UNKNOWN`."""

    def __init__(self, held: Any = UNKNOWN) -> None:
        super().__init__(None)
        self.held = held
        if held is not UNKNOWN:
            self.type_name = getattr(held, "type_name", type(held).__name__)

    def __repr__(self) -> str:
        return "<private>"

    def _is_sequence(self) -> bool:
        if isinstance(self.held, Object):
            return (
                bool(self.held.type.flags & (STR | BYTES | LIST | TUPLE))
                or self.held.isa(*_SEQUENCES)
                or _array(self.held) is not None
            )
        return isinstance(self.held, (str, bytes, bytearray, list, tuple, range)) or _array(self.held) is not None

    def text(self, printer: Any, depth: int) -> str:
        printer.hidden = True
        with expression(frozenset()):
            return counted(self.held)

    def attribute(self, name: str) -> Any:
        if name == "__class__" and isinstance(self.held, Object):
            return self.held.rt.object(self.held.type.address)
        array = _array(self.held)
        if name not in _OF_ARRAYS or array is None:
            raise refuse()
        return array.attribute(name)

    def call(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        array = _array(self.held)
        if name not in _CALLS_OF_ARRAYS or args or kwargs or array is None:
            raise refuse()
        return array.call(name, args, kwargs)

    def length(self) -> int:
        if self.held is UNKNOWN or privacy.is_number(self.held) or isinstance(self.held, bool):
            raise refuse()
        with expression(frozenset()):
            return privacy.content_length(self.held)

    def truth(self) -> bool:
        return self.length() > 0

    @contextlib.contextmanager
    def opened(self, sets: bool = False) -> Iterator[Any]:
        """A `with` block for the reader of its items, which `part` has to hide again: the value itself. Those of a set only with
        `sets`; whether a dict has a key is not told."""
        if not self._is_sequence() and not (sets and isinstance(self.held, Object) and self.held.isa("set", "frozenset")):
            raise refuse()
        with expression(frozenset()):
            yield self.held

    def item(self, key: Any) -> Any:
        raise refuse()

    def members(self, limit: int) -> Iterable[Any]:
        raise refuse()

    def plain(self) -> Any:
        raise refuse()


def _array(value: Any) -> Adapter | None:
    """The adapter of an array of integers; None for any other value."""
    adapter = value.adapter if isinstance(value, Object) else value
    return adapter if isinstance(adapter, Adapter) and not isinstance(adapter, Hidden) and adapter.has_integers() else None


def part(value: Any) -> Any:
    """An item of private content: hidden too. None and instances, whose attributes are looked at by their names, are not."""
    if value is None or isinstance(value, Hidden):
        return value
    if isinstance(value, Object):
        if value.is_none() or value.type.flags & TYPE:
            return value
        held = value.type.flags & (STR | BYTES | LIST | TUPLE | DICT)
        if not held and not value.isa("int", "float", "complex", "set", "frozenset") and not privacy.content_length(value):
            return value
    return Hidden(value)


def counted(value: Any) -> str:
    """The text that stands for a private value."""
    if value is UNKNOWN or not privacy.is_number(value) and not privacy.content_length(value):
        return "<private: -show-content shows it>"
    return privacy.counted(value)


def under(name: str | None, value: Any) -> Any:
    """A value that was read under a name: itself, or `Hidden` where it is content."""
    now = _now[0]
    if now is None or value is None or isinstance(value, (bool, Hidden)):
        return value
    if type(value) is dict:  # that an attribute made: `__dict__`
        return {key: under(key if isinstance(key, str) and key.isidentifier() else name, held) for key, held in value.items()}
    if type(value) in (list, tuple) and any(isinstance(one, Object) for one in value):
        return type(value)(under(name, one) for one in value)
    _now[0] = None  # to look at it
    try:
        if _is_private(now.names, name, value):
            return Hidden(value)
        if isinstance(value, Object) and not value.under:
            value.under = name or "_"
        return value
    finally:
        _now[0] = now


def _is_private(names: Set[str], name: str | None, value: Any) -> bool:
    if isinstance(value, Object) and value.type.flags & (STR | BYTES) or isinstance(value, (str, bytes)):
        return bool(privacy.content_length(value)) and _is_private_text(names, name, value)
    if name in names:
        return privacy.is_number(value) or bool(privacy.content_length(value))
    if privacy.says_nothing(name) and not privacy.is_number(value) and privacy.is_content(value):
        return bool(privacy.content_length(value))
    return privacy.is_secret(name, value)


def _is_private_text(names: Set[str], name: str | None, value: Any) -> bool:
    text = privacy.is_text(value)
    if name in names or privacy.says_nothing(name):
        return not (text and name in privacy.PROGRAM_TEXT - names)
    if text and name in privacy.PROGRAM_TEXT:
        return False
    if text:
        told = privacy.is_word(value.string(privacy.MAX_WORD + 1) if isinstance(value, Object) else value)
    else:
        told = privacy.are_words(value.raw_bytes(privacy.MAX_WORD + 1) if isinstance(value, Object) else value)
    return not told or privacy.is_secret(name, value)


def item_of(owner: Any, key: Any, value: Any) -> Any:
    """As `under`, for an item that was taken out of a container: under its key where that is a name, else the container's."""
    now = _now[0]
    if now is None or value is None or isinstance(value, Hidden):
        return value
    if not isinstance(owner, Object):  # it was made here, of values that have been looked at, or is a view
        held = getattr(owner, "held", None)
        if not isinstance(held, Object):
            return value if isinstance(owner, (list, tuple, dict, set, frozenset, str, bytes, range)) else under(None, value)
        owner = held
    name = _key_name(owner.under or "_", key)
    if (name in now.names or privacy.says_nothing(name)) and privacy.is_number(value):
        return Hidden(value)  # one token of many
    return under(name, value)


def attribute_of(owner: Any, name: str, value: Any) -> Any:
    """As `under`, for an attribute: a view of an array stands under the array's name."""
    if _now[0] is not None and isinstance(owner, Object) and _array(value) is not None and _array(owner) is not None:
        return item_of(owner, None, value)
    return under(name, value)


def result_of(owner: Any, name: str, value: Any) -> Any:
    """As `under`, for what a method that is answered by reading gives: it stands under its owner's name."""
    if _now[0] is None or isinstance(owner, Hidden) or name in _CALLS_OF_ARRAYS:
        return value
    if isinstance(owner, Object) and owner.under:
        return item_of(owner, None, value)
    return value if _array(owner) is not None else under(name, value)


def key_of(key: Any) -> Any:
    """A dict's own key: hidden where it is no word of the program."""
    if _now[0] is None or not (privacy.is_text(key) or isinstance(key, Object) and key.type.flags & BYTES):
        return key
    return under("key", key)


def pairs_of(owner: Any, pairs: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """The items of a dict."""
    return [(key_of(key), item_of(owner, key, value)) for key, value in pairs]


def members_of(owner: Any, found: Iterable[Any]) -> Iterable[Any]:
    """As `item_of`, for the items of an iteration."""
    if isinstance(owner, (Hidden, str, bytes, range)) or not isinstance(owner, (Object, Adapter)):
        return found
    if isinstance(owner, Object) and owner.type.flags & (STR | BYTES):
        return found
    view = getattr(owner, "kind", "")  # of a dict's view
    if view == "items":
        return iter(pairs_of(owner, found))
    held = getattr(owner, "held", None)
    if view == "values" and isinstance(held, Object):
        return (item_of(owner, key, value) for key, value in held.items())
    is_dict = view == "keys" or isinstance(owner, Object) and bool(owner.type.flags & DICT) or isinstance(found, dict)
    return ((key_of(one) if is_dict and privacy.is_text(one) else item_of(owner, None, one)) for one in found)


def differ(left: Any, right: Any) -> bool:
    """Whether one side is private content and the other is None: they differ. Content and anything else cannot be compared."""
    if not isinstance(left, Hidden) and not isinstance(right, Hidden):
        return False
    for side in (left, right):
        if side is None or isinstance(side, Object) and side.is_none():
            return True
    raise refuse()


def revealed(value: Any) -> Any:
    """A value of an earlier expression: itself, as it is looked at anew."""
    if isinstance(value, Hidden) and _now[0] is None:
        if value.held is UNKNOWN:
            raise PrivateError("$py is private content that was not computed: evaluate it again with -show-content")
        return value.held
    return value


def _key_name(owner: str, key: Any) -> str:
    if isinstance(key, str) or privacy.is_text(key):
        text = key if isinstance(key, str) else str(key.string(privacy.MAX_WORD + 1))
        if text.isidentifier():
            return text
        return owner if privacy.is_word(text) else "_"
    return owner


def told_of(values: Iterable[Any], test: Callable[[Any], bool], asked: Callable[[Any], Any] = lambda value: value) -> bool:
    """Whether `test` holds of one of the values. Where it holds of none of those that are shown (`asked` gives what it looks at),
    the private ones would have to be asked."""
    private = False
    for value in values:
        if isinstance(asked(value), Hidden):
            private = True
        elif test(value):
            return True
    if private:
        raise refuse()
    return False
