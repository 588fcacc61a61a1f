"""JSON for programs: one line, addresses as "0x…", NaN and infinities as strings, strings escaped as in text: no control character but newlines."""

from __future__ import annotations

import json
import math
from typing import Any

from .text import escape


class Address(int):
    """An int that JSON shows as "0x…"."""


def _plain(value: Any) -> Any:
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
        return {escape(str(k)): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(v) for v in value]
    raise TypeError(f"no JSON form for {type(value).__name__}")


def dumps(value: Any) -> str:
    """One ASCII line."""
    return json.dumps(_plain(value), ensure_ascii=True, allow_nan=False)
