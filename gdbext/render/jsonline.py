"""JSON for programs: one line, addresses as "0x…", NaN and infinities as strings. Strings are escaped as in text: no control
characters but newlines."""

from __future__ import annotations

import math
from typing import Any

from .text import escape


class Address(int):
    """An int that JSON shows as "0x…"."""


_AS_IT_IS = frozenset((int, bool, type(None)))


def _plain(value: Any) -> Any:
    kind = type(value)  # by far the most values are of these types themselves
    if kind in _AS_IT_IS:
        return value
    if kind is str:
        return value if value.isprintable() else escape(value, keep="\n")
    if kind is dict:
        found = {}
        for key, v in value.items():
            kind = type(v)
            if not (kind in _AS_IT_IS or kind is str and v.isprintable()):
                v = _plain(v)
            found[key if type(key) is str and key.isprintable() else escape(str(key))] = v
        return found
    if kind is list:
        return [_plain(v) for v in value] if value else value
    if isinstance(value, Address):
        return hex(value)
    if isinstance(value, (bool, int)) or value is None:
        return value
    if isinstance(value, str):
        return escape(value, keep="\n")
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        return value
    if isinstance(value, dict):
        return _plain(dict(value))
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(v) for v in value]
    raise TypeError(f"no JSON form for {type(value).__name__}")


def dumps(value: Any) -> str:
    """One ASCII line."""
    import json  # here: a gdb that prints no JSON need not load it

    return json.dumps(_plain(value), ensure_ascii=True, allow_nan=False)


def expect(value: Any, shape: Any, where: str = "the answer") -> None:
    """Raises ValueError, naming the place, where parsed JSON does not have a shape.

    `shape`: a type, or None for null; a tuple of shapes, one of which must fit; `[shape]`: a list of such; `{"key": shape}`: an
    object that has at least these keys, where "key?" is optional. A bool is no int, and no float is NaN or infinite."""
    if isinstance(shape, tuple):
        for other in shape[:-1]:
            try:
                return expect(value, other, where)
            except ValueError:
                continue
        expect(value, shape[-1], where)
    elif isinstance(shape, list):
        expect(value, list, where)
        for number, item in enumerate(value):
            expect(item, shape[0], f"{where}[{number}]")
    elif isinstance(shape, dict):
        expect(value, dict, where)
        for key, inner in shape.items():
            name = key.rstrip("?")
            if name in value:
                expect(value[name], inner, f"{where}.{name}")
            elif name == key:
                raise ValueError(f"{where} has no {name}")
    else:
        good = (
            value is None if shape is None else isinstance(value, shape) and not (isinstance(value, bool) and shape is not bool)
        )
        if not good or isinstance(value, float) and not math.isfinite(value):
            import json

            found = f"a {type(value).__name__}" if isinstance(value, (list, dict)) else json.dumps(value)[:40]
            raise ValueError(f"{where} is {found}")
    return None
