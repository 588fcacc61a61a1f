"""The state of a primitive of waiting, as its object stands: what its row of `primitives.table` names."""

from __future__ import annotations

import re
from typing import Any

from .. import log
from ..errors import GdbextError
from ..primitives import table
from ..primitives.model import Primitive, Way
from . import lock_objects
from .objects import Object
from .poll_values import kinds_of
from .simple_queues import items
from .task_waits import Futures

DONE = ("FINISHED", "CANCELLED", "CANCELLED_AND_NOTIFIED")  # states of a concurrent.futures.Future


def row_of(obj: Object) -> Primitive | None:
    """The row of an object; None where it is no primitive."""
    return table.of_classes(kinds_of(obj))


def held(obj: Object, path: str) -> Any:
    """What dotted attributes lead to: a plain value where it is one, else an `Object`."""
    found: Any = obj
    for name in filter(None, path.split(".")):
        found = found.attr(name)
    return found.plain(1) if isinstance(found, Object) and (found.is_none() or found.type.builtin_name in _PLAIN) else found


_PLAIN = ("bool", "int", "float", "str")


def count(obj: Object, row: Primitive) -> int:
    """The items of a queue or a pool."""
    return len(items(obj)) if row.state["items"] == "(ring)" else int(held(obj, row.state["items"]).len())


def bound(obj: Object, row: Primitive) -> int:
    """The most items of a queue or a pool, 0 for no limit."""
    found = held(obj, row.state["bound"]) if "bound" in row.state else 0
    return max(found, 0) if isinstance(found, int) else 0


def ready(obj: Object, row: Primitive, way: Way) -> bool | None:
    """Whether the state of an object is one that ends a wait; None where the way has no such state. `GdbextError` where it
    cannot be read."""
    what = way.ready
    if what == "items":
        return count(obj, row) > 0
    if what == "room":
        return not bound(obj, row) or count(obj, row) < bound(obj, row)
    if what == "pending":
        return Futures(obj.rt).state_of(obj) != "PENDING"
    if what == "free":
        lock = lock_objects.read(obj)
        return lock is not None and not lock.locked
    value = held(obj, row.state[what]) if what in row.state else None
    if what == "done":
        return value in DONE
    if what == "unlocked":
        return value is False
    if what == "value":
        return isinstance(value, int) and value > 0
    return value is True if what else None


def why_ready(obj: Object, row: Primitive, way: Way) -> str:
    """Why a wait should be over, by the object's own state; '' where it need not be, or that cannot be read."""
    try:
        if not ready(obj, row, way):
            return ""
        if way.ready == "items":
            size = count(obj, row)
            return f"{size} item{'s are' if size != 1 else ' is'} in it"
        if way.ready == "room":
            return f"there is room for {bound(obj, row) - count(obj, row)}" if bound(obj, row) else ""
        if way.ready == "value":
            return f"its value is {held(obj, row.state['value'])}"
        return {"set": "it is set", "done": "it is done"}.get(way.ready, "it is open")
    except GdbextError as e:
        log.passed_over(e)
        return ""


def in_words(obj: Object, row: Primitive) -> str:
    """The state of an object in brackets, '' where its row shows none."""
    words = row.shows
    if not words and "items" in row.state:
        words = "{items} items" + (" of at most {bound}" if _number(obj, row, "bound") else "")
    if not words:
        return ""
    return f" ({re.sub(r'{(.+?)}', lambda m: str(_number(obj, row, m.group(1))), words)})"


def _number(obj: Object, row: Primitive, what: str) -> Any:
    try:
        found = count(obj, row) if what == "items" else bound(obj, row) if what == "bound" else held(obj, what)
    except GdbextError as e:
        log.passed_over(e)
        return "?" if what != "bound" else 0
    return found if isinstance(found, (int, str)) else "?"
