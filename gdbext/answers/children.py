"""A value as a tree of variables shows it: its text, and its children, page by page.

Private content is recognised by the path to a value, as `pyprint` does by the expression: everything below a private name stays
hidden, however deep.
"""

from __future__ import annotations

from typing import AbstractSet, Any, Iterable

from .. import log
from ..cpython import content, privacy, reprs
from ..cpython.expressions import last_name
from ..cpython.objects import Object
from ..cpython.types import BYTES, DICT, STR, TUPLE, TYPE
from ..cpython.values import kind, view_of
from ..errors import GdbextError
from ..render.text import escape
from .variables import MAX_FIELDS

PAGE = 200  # children of a value, at once
_UNKNOWN = "[...]"  # the step of a path to a child whose key cannot be written
_NO_FIELDS = ("function", "module", "code", "builtin_function_or_method", "NoneType", "bool", "int", "float", "complex")


class Variable:
    """A variable or a child of a value.

    `name` and `value`: an `Object`, an `Adapter` or a plain value. `path`: the expression that leads to it. `exact`: whether that
    expression gives this very value. `text` is bounded and escaped. `hidden`: its content is counted, not shown."""

    def __init__(self, name: str, value: Any, path: str, private: AbstractSet[str] = frozenset(), exact: bool = True) -> None:
        self.name, self.value, self.path, self.private, self.exact = escape(name), value, path, private, exact
        self.text, self.hidden = self.shown(reprs.SHORT)

    @property
    def kind(self) -> str:
        """The name of its type."""
        try:
            return escape(getattr(self.value, "type_name", type(self.value).__name__))
        except GdbextError as e:
            log.passed_over(e)
            return "?"

    def shown(self, limits: reprs.Limits) -> tuple[str, bool]:
        """-> (its text, whether its content is counted instead)."""
        repr_ = reprs.Repr(limits, self.private)
        text = content.shown(repr_, self.path, self.value)
        hidden = repr_.hidden and text == repr_.count(self.value)
        return escape(text, keep="\n" if repr_.multiline and not repr_.one_line else ""), hidden

    def counts(self) -> tuple[int, int]:
        """-> (how many attributes, how many items can be opened)."""
        if self.hidden:
            return 0, 0
        try:
            return len(_fields(self.value)), _length(self.value)
        except GdbextError as e:
            log.passed_over(e)
            return 0, 0

    def children(self, start: int = 0, count: int = PAGE) -> list[Variable]:
        """Attributes, then items, from number `start` on."""
        fields, (named, items) = _fields(self.value), self.counts()
        stop = min(start + count, named + items)
        found = [self._attribute(name, value) for name, value in fields[start:stop]] if start < named else []
        if stop > named:
            found += self._items(max(0, start - named), stop - named)
        return found

    def _attribute(self, name: str, value: Any) -> Variable:
        plain = name.isidentifier()
        return Variable(name, value, self.path + (f".{name}" if plain else f"[{name!r}]"), self.private, self.exact and plain)

    def _items(self, start: int, stop: int) -> list[Variable]:
        if _is_dict(self.value):
            return [self._entry(key, value) for key, value in _pairs(self.value, stop)[start:]]
        held, names = _members(self.value, start, stop), _names(self.value)
        if names:
            return [
                Variable(names[start + n], value, f"{self.path}.{names[start + n]}", self.private) for n, value in enumerate(held)
            ]
        steps = kind(self.value) in ("list", "tuple", "deque")
        by = _members(self.value, 0, 1)[0] if self.private and steps and _length(self.value) == 2 else None
        found = []
        for n, value in enumerate(held, start):
            path, exact = self.path + (f"[{n}]" if steps else _UNKNOWN), steps and self.exact
            if (
                n == 1 and privacy.is_text(by) and privacy.is_word(_text(by))
            ):  # ("authorization", "…"): the first names the second
                path, exact = f"{self.path}[{_text(by)!r}]", False
            found.append(Variable(f"[{n}]", value, path, self.private, exact))
        return found

    def _entry(self, key: Any, value: Any) -> Variable:
        """A dict's item, under its key."""
        name, step = reprs.Repr(reprs.SHORT, self.private)(key), _UNKNOWN
        if privacy.is_text(key) and (not self.private or privacy.is_word(_text(key))):
            step = f"[{_text(key)!r}]"
        elif privacy.is_number(key) and not (key.isa("float") if isinstance(key, Object) else isinstance(key, float)):
            step = f"[{key.integer() if isinstance(key, Object) else key}]"
        found = Variable(name, value, self.path + step, self.private, self.exact and step != _UNKNOWN)
        if self.private and not found.hidden:
            repr_ = reprs.Repr(reprs.SHORT, self.private)
            text = repr_.entry(last_name(self.path), key, value)
            found.hidden = repr_.hidden and text == repr_.count(value)
            found.text = escape(text) if found.hidden else found.text
        return found


def _text(value: Any) -> str:
    return str(value.string(privacy.MAX_WORD + 1)) if isinstance(value, Object) else str(value)


def _fields(value: Any) -> list[tuple[str, Any]]:
    """The attributes of an instance that lie in memory."""
    if not isinstance(value, Object) or value.type.flags & (TYPE | STR | BYTES) or value.isa(*_NO_FIELDS):
        return []
    return value.fields()[:MAX_FIELDS]


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict) or isinstance(value, Object) and bool(value.type.flags & DICT or value.isa("mappingproxy"))


def _pairs(value: Any, stop: int) -> list[tuple[Any, Any]]:
    """The first items of a dict, in its order."""
    if isinstance(value, dict):
        return list(value.items())[:stop]
    if kind(value) == "odict":
        return [(value.rt.object(key), value.rt.object(held)) for key, held in value.ordered_entries(stop)[:stop]]
    return list(value.items(stop))


def _length(value: Any) -> int:
    """How many items a container holds; 0 for anything else, and for text."""
    view = view_of(value)
    if view is not None:
        return view.length()
    if kind(value) or _is_dict(value):
        return int(value.len() if isinstance(value, Object) else len(value))
    return int(value.len()) if isinstance(value, Object) and value.isa("array.array") else 0


def _members(value: Any, start: int, stop: int) -> list[Any]:
    view = view_of(value)
    if view is not None:
        return list(view.members(stop))[start:stop]
    if not isinstance(value, Object):
        return list(value)[start:stop]
    if value.isa("array.array"):
        return value.array_numbers(start, stop)[1]
    return value.elements(stop)[start:]


def _names(value: Any) -> list[str]:
    """The fields of a namedtuple, [] for any other object."""
    if not isinstance(value, Object) or not value.type.flags & TUPLE or not value.type.is_heap:
        return []
    found = value.namedtuple_fields()
    return found if len(found) == value.len() else []


def of_names(pairs: Iterable[tuple[str, Object | None]], private: AbstractSet[str]) -> list[Variable]:
    """The variables of a frame or module that are set; its `__machinery__` stays out."""
    return [
        Variable(name, value, name, private)
        for name, value in pairs
        if value is not None and not (name.startswith("__") and name.endswith("__"))
    ]
