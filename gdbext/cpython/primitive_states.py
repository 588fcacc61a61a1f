"""The waits at primitives that frames show, and the state of a primitive as its object stands: what its row of
`primitives.table` names."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Sequence

from .. import log
from ..errors import GdbextError
from ..primitives import table
from ..primitives.model import Primitive, Way
from . import lock_objects
from .objects import Object
from .poll_values import kinds_of
from .simple_queues import items
from .task_waits import Futures

FRAMES = 8  # innermost frames in which a wait of the library is looked for
DONE = ("FINISHED", "CANCELLED", "CANCELLED_AND_NOTIFIED")  # states of a concurrent.futures.Future


class Wait(NamedTuple):
    """A wait that frames show: the awaited `object`, the `row` and `way` of its primitive, the library's `frame` that waits;
    `limit`: the wait has a time limit."""

    row: Primitive
    way: Way
    object: Any
    frame: Any
    limit: bool = False

    @property
    def kind(self) -> str:
        return self.row.kind


def path_of(frame: Any) -> str:
    """A frame's file with forward slashes."""
    return str(frame.file).replace("\\", "/")


def find(frames: Sequence[Any], library: tuple[str, ...] = table.LIBRARY) -> Wait | None:
    """The outermost wait in the innermost `frames`, of a thread or, with asyncio's files, a suspended task; None where there is
    none."""
    best = None
    if frames and last_part(str(frames[0].function)) == "__enter__":
        return None  # it waits for the lock inside, and has not come to its wait
    for frame in frames[:FRAMES]:
        if not path_of(frame).endswith(library):
            break
        try:
            own = dict(frame.locals())
            me: Any = own.get("self")
            row = row_of(me) if me is not None else None
            way = row.way_of(path_of(frame), str(frame.function)) if row is not None else None
            if row is not None and way is not None and (best is not None or not row.built):
                best = Wait(row, way, me.attr(row.object) if row.object else me, frame, _limited(own))
        except GdbextError as e:
            log.passed_over(e)
    return best


def _limited(own: dict[str, Any]) -> bool:
    for name in ("timeout", "endtime"):
        value = own.get(name)
        if value is not None and not (isinstance(value, Object) and value.is_none()):
            return True
    return False


def last_part(name: str) -> str:
    """The last part of a dotted name."""
    return name.rpartition(".")[2]


def pid_of(child: Object) -> int:
    """Our pid of a `subprocess.Popen`, a `multiprocessing.Process` or an asyncio `Process`; 0 where it is not known here."""
    return child.rt.target.pid_here(_own_pid(child))


def end_of(child: Object) -> str:
    """Its end, in words."""
    pid = pid_of(child)
    return f"the end of process {pid}" if pid else f"the end of process {_own_pid(child)} of its own pid namespace"


def _own_pid(child: Object) -> int:
    """The pid as the process itself has it."""
    names = [name for name, _ in child.fields()]
    return int((child.attr("_popen").attr("pid") if "_popen" in names else child.attr("pid")).integer())


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
    parts = [held(obj, one) for one in row.state["bound"].split("+")] if "bound" in row.state else []
    return sum(max(one, 0) for one in parts if isinstance(one, int))


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
