"""The one codec of dataclasses between machines: as JSON, and again from the JSON of another machine, which nobody vouches for.

A value is plain JSON, or an object with one key that names its type: `t` a tuple, `s` a set, `d` a dict as pairs, `r` whole
numbers as runs (`[first, how many, ...]`), `c` an object of a class with its members. Lists and texts are bounded. What comes is
held to the types that the classes declare; a member that a class does not know is another release's, and is left out."""

from __future__ import annotations

import ast
from dataclasses import fields, is_dataclass
from typing import Any, Callable, Iterable, Sequence

from ..errors import GdbextError

TEXT, ITEMS = 2000, 20_000  # characters of a text, members of a list
MOST = 4_000_000  # whole numbers in the runs of one value
_PLAIN: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "str": (str,), "bool": (bool,)}
_PLAIN["None"] = (type(None),)
_LISTS = {"list": (list, tuple), "Sequence": (list, tuple), "tuple": (tuple, list), "set": (set, frozenset)}
DAMAGE = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError, OverflowError, MemoryError)


class Codec:
    """For objects of `classes`, dataclasses in the main. `sent`: of a class only these members; `left`: all but these; `becomes`:
    what is sent instead of an object; `short`: lists of numbers go as runs."""

    def __init__(
        self,
        classes: Iterable[type],
        sent: dict[type, Sequence[str]] | None = None,
        left: dict[str, set[str]] | None = None,
        items: int = ITEMS,
        becomes: Callable[[Any], Any] = lambda value: value,
        short: bool = False,
    ) -> None:
        self.classes: dict[str, Any] = {cls.__name__: cls for cls in classes}
        self.sent, self.left, self.items, self.becomes = sent or {}, left or {}, items, becomes
        self.short = short
        self._types: dict[str, dict[str, Any]] = {}

    # ---- out -------------------------------------------------------------------------------------------------------------
    def data(self, value: Any) -> Any:
        """A value as JSON; None for an object of a class that does not travel."""
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, str):
            return value[:TEXT]
        if isinstance(value, list):
            found = runs(value) if self.short and all(type(one) is int for one in value) else value
            return {"r": found} if len(found) < len(value) else [self.data(one) for one in value[: self.items]]
        if isinstance(value, tuple):
            return {"t": [self.data(one) for one in value[: self.items]]}
        if isinstance(value, (set, frozenset)):
            return {"s": [self.data(one) for one in sorted(value, key=repr)[: self.items]]}
        if isinstance(value, dict):
            return {"d": [[self.data(k), self.data(v)] for k, v in list(value.items())[: self.items]]}
        return self._object(self.becomes(value))

    def _object(self, value: Any) -> Any:
        cls = type(value)
        name = cls.__name__
        if self.classes.get(name) is not cls:
            return None
        members = self.sent.get(cls) or getattr(cls, "__slots__", None) or vars(value)
        return {"c": name, **{key: self.data(getattr(value, key)) for key in members if key not in self.left.get(name, ())}}

    # ---- in --------------------------------------------------------------------------------------------------------------
    def value(self, data: Any) -> Any:
        """The value of JSON; one of `DAMAGE` where it is none. `sound` makes that a `GdbextError`."""
        return Reading(self).value(data)

    def wanted(self, name: str) -> dict[str, Any]:
        """{member of a class: the type that it declares}"""
        found = self._types.get(name)
        if found is None:
            cls = self.classes[name]
            found = self._types[name] = {f.name: ast.parse(str(f.type), mode="eval").body for f in fields(cls)}
        return found


def sound(damaged: str, codec: Codec, data: Any) -> Any:
    """As `Codec.value`; `GdbextError` begins with `damaged` where the JSON is none."""
    try:
        return codec.value(data)
    except DAMAGE as e:
        raise GdbextError(f"{damaged}: {type(e).__name__} {e}") from None


class Reading:
    """One value on its way in. What differs between machines is mended by `tuple` and `made`, which a caller overrides."""

    def __init__(self, codec: Codec) -> None:
        self.codec, self.left = codec, MOST

    def tuple(self, found: tuple[Any, ...]) -> tuple[Any, ...]:
        """What a tuple becomes."""
        return found

    def made(self, name: str, found: Any) -> None:
        """Called with each object of the class of that name."""

    def value(self, data: Any) -> Any:
        """The value of JSON."""
        if isinstance(data, list):
            return [self.value(one) for one in data]
        if not isinstance(data, dict):
            return data
        if "c" in data:
            return self.object(data)
        kind, members = next(iter(data.items()), ("", []))
        if kind == "t":
            return self.tuple(tuple(self.value(one) for one in members))
        if kind == "s":
            return {self.value(one) for one in members}
        if kind == "r":
            return self._ids(members)
        return {self.value(key): self.value(one) for key, one in members} if kind == "d" else None

    def object(self, data: dict[str, Any]) -> Any:
        name = data["c"]
        cls: Any = self.codec.classes[name]
        members = {key: one for key, one in data.items() if key != "c"}
        made: Any
        if is_dataclass(cls):
            wanted = self.codec.wanted(name)
            known = {key: one for key, one in members.items() if key in wanted}
            made = self.codec.classes[name](**{key: self._held(f"{name}.{key}", one, wanted[key]) for key, one in known.items()})
        else:
            made = object.__new__(cls)
            for key, one in members.items():
                if key.isidentifier() and not key.startswith("_"):
                    setattr(made, key, self.value(one))
        self.made(name, made)
        return made

    def _held(self, where: str, data: Any, wanted: Any) -> Any:
        found = self.value(data)
        if not fits(found, wanted):
            raise TypeError(f"{where} is {str(data)[:40]}")
        return found

    def _ids(self, data: list[int]) -> list[int]:
        if len(data) % 2 or any(type(one) is not int for one in data) or any(count < 1 for count in data[1::2]):
            raise ValueError("a run of nothing")
        self.left -= sum(data[1::2])
        if self.left < 0:
            raise ValueError(f"more than {MOST} numbers")
        return [one for first, count in zip(data[::2], data[1::2]) for one in range(first, first + count)]


def fits(value: Any, wanted: ast.expr) -> bool:
    """Whether a value may be of the type that an annotation names. A name that says nothing here fits all."""
    if isinstance(wanted, ast.BinOp):
        return fits(value, wanted.left) or fits(value, wanted.right)
    if isinstance(wanted, ast.Constant):
        return value is None if wanted.value is None else True
    if isinstance(wanted, ast.Name):
        kinds = _PLAIN.get(wanted.id) or _LISTS.get(wanted.id)
        if kinds is None:
            return wanted.id != "dict" or isinstance(value, dict)
        return isinstance(value, kinds) and (wanted.id != "int" or type(value) is not float)
    if not isinstance(wanted, ast.Subscript) or not isinstance(wanted.value, ast.Name):
        return True
    name, inner = wanted.value.id, _inner(wanted)
    if name == "dict":
        return isinstance(value, dict) and all(fits(k, inner[0]) and fits(v, inner[-1]) for k, v in value.items())
    kinds = _LISTS.get(name)
    if kinds is None:
        return True
    if not isinstance(value, kinds):
        return False
    if name == "tuple" and not (len(inner) == 2 and isinstance(inner[1], ast.Constant)):
        return len(value) == len(inner) and all(map(fits, value, inner))
    return all(fits(one, inner[0]) for one in value)


def _inner(wanted: ast.Subscript) -> tuple[ast.expr, ...]:
    held: Any = getattr(wanted.slice, "value", wanted.slice) if type(wanted.slice).__name__ == "Index" else wanted.slice
    return tuple(held.elts) if isinstance(held, ast.Tuple) else (held,)


def runs(ids: Iterable[int]) -> list[int]:
    """`[5, 6, 7, 2]` -> `[5, 3, 2, 1]`."""
    found: list[int] = []
    for one in ids:
        if found and one == found[-2] + found[-1]:
            found[-1] += 1
        else:
            found += [one, 1]
    return found


def numbers_in(data: Any) -> int:
    """How many numbers the runs and lists in JSON stand for."""
    if isinstance(data, dict):
        return sum(sum(one[1::2]) if key == "r" else numbers_in(one) for key, one in data.items())
    return sum(map(numbers_in, data)) if isinstance(data, list) else int(isinstance(data, int))
