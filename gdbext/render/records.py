"""The one codec of dataclasses between machines: as JSON, and again from the JSON of another machine, which nobody vouches for.

A value is plain JSON, or an object with one key that names its type: `t` a tuple, `s` a set, `d` a dict as pairs, `r` whole
numbers as runs (`[first, how many, ...]`), `v` a dict from whole numbers to texts as pairs of a text and its numbers, `a` the
value of that number among those of `v` and the objects that are `alike`, `c` an object of a class with its members. Lists and
texts are bounded. What comes is held to the types that the classes declare; a member that is missing has its default; one that
a class does not know is another release's, and is left out."""

from __future__ import annotations

import ast
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Callable, Iterable, Sequence

from ..errors import GdbextError

TEXT, ITEMS = 2000, 20_000  # characters of a text, members of a list
MOST = 4_000_000  # whole numbers in the runs of one value
KEPT = 32  # dicts that a codec remembers
_PLAIN: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "str": (str,), "bool": (bool,)}
_PLAIN["None"] = (type(None),)
_LISTS = {"list": (list, tuple), "Sequence": (list, tuple), "tuple": (tuple, list), "set": (set, frozenset)}
DAMAGE = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError, OverflowError, MemoryError)


class Codec:
    """For objects of `classes`, dataclasses in the main. `sent`: of a class only these members; `left`: all but these; `becomes`:
    what is sent instead of an object; `short`: lists of numbers go as runs; `alike`: names of classes whose equal objects become
    one, since nobody changes them."""

    def __init__(
        self,
        classes: Iterable[type],
        *,
        sent: dict[type, Sequence[str]] | None = None,
        left: dict[str, set[str]] | None = None,
        items: int = ITEMS,
        becomes: Callable[[Any], Any] = lambda value: value,
        short: bool = False,
        alike: Iterable[str] = (),
    ) -> None:
        self.classes: dict[str, Any] = {cls.__name__: cls for cls in classes}
        self.sent, self.left, self.items, self.becomes = sent or {}, left or {}, items, becomes
        self.short, self.alike = short, frozenset(alike)
        self._types: dict[str, dict[str, Any]] = {}
        self._usual: dict[str, dict[str, Any]] = {}
        self.kept: dict[str, dict[int, str]] = {}  # those of `v` that came last

    def data(self, value: Any) -> Any:
        """A value as JSON; None for an object of a class that does not travel."""
        return Writing(self).data(value)

    def value(self, data: Any) -> Any:
        """The value of JSON; one of `DAMAGE` where it is none. `sound` makes that a `GdbextError`."""
        return Reading(self).value(data)

    def usual(self, name: str) -> dict[str, Any]:
        """{member of a class: what it is where nothing else is said}; it is not sent."""
        found = self._usual.get(name)
        if found is None:
            cls = self.classes[name]
            known = {f.name: f.default for f in (fields(cls) if is_dataclass(cls) else ()) if f.default is not MISSING}
            made = {f.name: f.default_factory for f in (fields(cls) if is_dataclass(cls) else ())}
            known.update({key: make() for key, make in made.items() if make is not MISSING})
            found = self._usual[name] = known
        return found

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


class Writing:
    """Values on their way out, which are read again in the same order by one `Reading`."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self.kept: dict[Any, int] = {}

    def data(self, value: Any) -> Any:
        """As `Codec.data`."""
        most = self.codec.items
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, str):
            return value[:TEXT]
        if isinstance(value, list):
            found = runs(value) if self.codec.short and all(type(one) is int for one in value) else value
            return {"r": found} if len(found) < len(value) else [self.data(one) for one in value[:most]]
        if isinstance(value, tuple):
            return {"t": [self.data(one) for one in value[:most]]}
        if isinstance(value, (set, frozenset)):
            return {"s": [self.data(one) for one in sorted(value, key=repr)[:most]]}
        if isinstance(value, dict):
            grouped = _grouped(value)
            if 2 * len(grouped) < len(value):
                return self._once(repr(grouped)) or {
                    "v": [[text[:TEXT], runs(ids)] for text, ids in list(grouped.items())[:most]]
                }
            return {"d": [[self.data(k), self.data(v)] for k, v in list(value.items())[:most]]}
        return self._object(self.codec.becomes(value))

    def _object(self, value: Any) -> Any:
        cls = type(value)
        name = cls.__name__
        if self.codec.classes.get(name) is not cls:
            return None
        members = self.codec.sent.get(cls) or getattr(cls, "__slots__", None) or vars(value)
        left = self.codec.left.get(name, ())
        if name in self.codec.alike:
            known = self._once((name, *(getattr(value, one) for one in members)))
            if known is not None:
                return known
        usual = self.codec.usual(name)
        told = {key: getattr(value, key) for key in members if key not in left}
        return {"c": name, **{key: self.data(one) for key, one in told.items() if not (key in usual and same(one, usual[key]))}}

    def _once(self, key: Any) -> dict[str, int] | None:
        """What is sent of a value that was sent before; None the first time."""
        if key in self.kept:
            return {"a": self.kept[key]}
        self.kept[key] = len(self.kept)
        return None


class Reading:
    """One value on its way in. What differs between machines is mended by `tuple` and `made`, which a caller overrides."""

    def __init__(self, codec: Codec) -> None:
        self.codec, self.left = codec, MOST
        self.kept: list[Any] = []

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
        if kind == "a":
            number: Any = members
            return self.kept[number]
        if kind == "v":
            self.kept.append(self._by_number(members))
            return self.kept[-1]
        return {self.value(key): self.value(one) for key, one in members} if kind == "d" else None

    def object(self, data: dict[str, Any]) -> Any:
        name = data["c"]
        made = self._made(name, data)
        if name in self.codec.alike:
            self.kept.append(made)
        return made

    def _made(self, name: str, data: dict[str, Any]) -> Any:
        cls: Any = self.codec.classes[name]
        members = {key: one for key, one in data.items() if key != "c"}
        made: Any
        if is_dataclass(cls):
            wanted = self.codec.wanted(name)
            held = {key: self._member(f"{name}.{key}", one, wanted.get(key)) for key, one in members.items()}
            made = self.codec.classes[name](**{key: one for key, one in held.items() if key in wanted})
        else:
            made = object.__new__(cls)
            for key, one in members.items():
                if key.isidentifier() and not key.startswith("_"):
                    setattr(made, key, self.value(one))
        self.made(name, made)
        return made

    def _member(self, where: str, data: Any, wanted: Any) -> Any:
        """A member; one that is not known is read too: what comes after may refer to what is in it."""
        if wanted is not None:
            return self._held(where, data, wanted)
        try:
            return self.value(data)
        except KeyError:  # of a class that is not known either
            return None

    def _held(self, where: str, data: Any, wanted: Any) -> Any:
        found = self.value(data)
        if not fits(found, wanted):
            raise TypeError(f"{where} is {str(data)[:40]}")
        return found

    def _by_number(self, data: list[Any]) -> dict[int, str]:
        """{number: text}; one object for all that are equal, since each process of a job sends the same."""
        key = repr(data)
        if key not in self.codec.kept:
            if not all(isinstance(text, str) for text, _ in data):
                raise TypeError(f"a text is {key[:40]}")
            self.codec.kept = {key: {number: text for text, numbers in data for number in self._ids(numbers)}, **self.codec.kept}
            while len(self.codec.kept) > KEPT:
                self.codec.kept.popitem()
        return self.codec.kept[key]

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


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal and of one type."""
    return type(one) is type(other) and bool(one == other)


def _grouped(value: dict[Any, Any]) -> dict[str, list[int]]:
    """{text: its numbers} of a dict from numbers to texts, as long as the dict where it is none."""
    found: dict[str, list[int]] = {}
    for number, text in value.items():
        if type(number) is not int or type(text) is not str:
            return {str(i): [] for i in range(len(value))}
        found.setdefault(text, []).append(number)
    return found


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
