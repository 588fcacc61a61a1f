"""Answers for objects whose own code would have to run: one `Adapter` per family of types. The module that knows a family
registers its adapter.

Adapters of the standard library are in stdlib_types.py and stdlib_reprs.py; those of numpy, pydantic and msgspec are in
libraries/. The rooms above register theirs (torch).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterable, Sequence

from ..errors import LayoutError

if TYPE_CHECKING:
    from .objects import Object
    from .reprs import Repr
    from .types import TypeInfo


# In addition to `GdbextError`, the errors of code that makes a value out of damaged memory.
DAMAGED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, AssertionError)


class Adapter:
    """A view of one object that answers, from memory, what the object's own code would.

    Every method may return `NotImplemented`: the object is then treated like any other. An `Adapter` may itself be the value of
    an expression (a slice of a tensor); its `object` is then None. Keys and arguments are plain Python values.
    """

    # Classes whose `__repr__`, written in Python, `text` reproduces; None: `text` is a description, whatever they define.
    reprs: tuple[str, ...] | None = ()

    type_name = "value"  # of the object
    tables: tuple[str, ...] = ()  # dicts of the instance whose entries are attributes too

    def __init__(self, obj: Object | None) -> None:
        self.object = obj
        if obj is not None and type(self).type_name == Adapter.type_name:
            self.type_name = obj.type_name

    @property
    def own(self) -> Object:
        """Its `object`, where it has one."""
        assert self.object is not None
        return self.object

    def text(self, printer: Repr, depth: int) -> Any:
        """The result of `repr()`."""
        return NotImplemented

    def attribute(self, name: str) -> Any:
        """The value of an attribute that a descriptor computes. Called before the instance is looked at."""
        return NotImplemented

    def missing_attribute(self, name: str) -> Any:
        """The value that `__getattr__` gives. Called where neither instance nor class has the attribute."""
        return NotImplemented

    def names(self) -> Iterable[str]:
        """Further names for `dir()`."""
        return ()

    def length(self) -> Any:
        return NotImplemented

    def item(self, key: Any) -> Any:
        return NotImplemented

    def members(self, limit: int) -> Any:
        """The items of an iteration, as a list of at most `limit` values."""
        return NotImplemented

    def call(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """`self.name(*args, **kwargs)`, for methods that reading can answer."""
        return NotImplemented

    def plain(self) -> Any:
        """An equal Python value of this process, for comparisons and arithmetic."""
        return NotImplemented

    def truth(self) -> Any:
        return NotImplemented

    def has_integers(self) -> bool:
        """Whether it is an array whose text shows integers, which may be tokens."""
        return False


_makers: dict[str, Callable[[Object], Adapter]] = {}
_last_names: set[str] = set()


def register(names: Iterable[str], make: Callable[[Object], Adapter]) -> None:
    """`make(obj)` gives the `Adapter` of each object with one of these classes ("numpy.ndarray") along its MRO."""
    for name in names:
        _makers[name] = make
        _last_names.add(name.rpartition(".")[2])


def maker_for(info: TypeInfo) -> Callable[[Object], Adapter] | None:
    """The function registered for the nearest class along the MRO of a type; None where there is none."""
    for base in info.bases():
        if base.name in _last_names:
            found = _makers.get(base.builtin_name) or _makers.get(base.full_name)
            if found is not None:
                return found
    return None


class PlainAdapter(Adapter):
    """An immutable value that this process can rebuild: attributes and methods are answered by the equal value made here."""

    def make(self) -> Any:
        """The equal value, of a type of Python's own standard library."""
        raise NotImplementedError

    def plain(self) -> Any:
        try:
            return self.make()
        except DAMAGED:
            assert self.object is not None
            raise LayoutError(f"no {self.object.type_name} at {self.object.address:#x}") from None

    def attribute(self, name: str) -> Any:
        if name.startswith("_"):
            return NotImplemented
        found = getattr(self.plain(), name, NotImplemented)
        return NotImplemented if callable(found) else found

    def call(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if name.startswith("_") or name not in self.methods:
            return NotImplemented
        return getattr(self.plain(), name)(*args, **kwargs)

    methods: frozenset[str] = frozenset()  # those that touch nothing but the value
