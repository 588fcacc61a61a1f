"""The waits of threads and asyncio tasks, by their Python frames: queues, events, joins, futures, imports.

Which functions, objects and states these are is told by `primitives.table`.
"""

from __future__ import annotations

import os
from typing import Any, Sequence

from .. import log
from ..cpython import primitive_states
from ..cpython.objects import Object
from ..cpython.primitive_states import FRAMES as FRAMES
from ..cpython.primitive_states import Wait as Wait
from ..cpython.primitive_states import end_of, pid_of
from ..cpython.primitive_states import find as find
from ..cpython.primitive_states import last_part as last_part
from ..cpython.primitive_states import path_of as path_of
from ..errors import GdbextError
from ..primitives.table import LIBRARY
from .waits import Edge

MAX_FUTURES = 1000  # that one call waits for
ORPHANED = "it was held when this process was forked, or the thread has ended without releasing it"


def awaited_futures(frames: Sequence[Any]) -> tuple[list[Any], bool] | None:
    """(the futures for which `concurrent.futures.wait` or `as_completed` waits, whether all of them have to be done); None where
    the innermost frames are in neither. Source: Lib/concurrent/futures/_base.py."""
    for frame in frames[:FRAMES]:
        if not path_of(frame).endswith(LIBRARY):
            break
        if path_of(frame).endswith("_base.py") and frame.function in ("wait", "as_completed"):
            own = dict(frame.locals())
            futures = [one for one in own["fs"].elements(MAX_FUTURES) if text(one, "_state") in ("PENDING", "RUNNING")]
            when = own.get("return_when")
            return futures, when is not None and when.string(40) == "ALL_COMPLETED"
    return None


def edge_of(node: Any, wait: Wait, name: str, where: str) -> Edge:
    """The `Edge` of any wait except for a thread's end or an import. `name`: by which a frame names the object."""
    me, row, way = wait.object, wait.row, wait.way
    if row.kind == "Process":
        return Edge(node, end_of(me), row.kind, address=me.address, where=where, limit=wait.limit, pid=pid_of(me))
    want = f"{way.want} the " if way.want else "the "
    what = (
        want
        + ("asyncio." if row.kind.startswith("asyncio.") else "")
        + f"{me.type_name} {name}{primitive_states.in_words(me, row)}"
    )
    found = Edge(node, what, row.kind, how=way.name if way.want else "", address=me.address, where=where, limit=wait.limit)
    found.open = primitive_states.why_ready(me, row, way)
    return found


def outer_place(frames: Sequence[Any], otherwise: Any, library: tuple[str, ...] = LIBRARY) -> str:
    """The innermost frame outside the library, as "function (file:line)"."""
    frame = next((f for f in frames if not path_of(f).endswith(library)), otherwise)
    return f"{frame.function} ({os.path.basename(frame.file)}:{frame.line})"


def attribute(obj: Any, name: str) -> Any:
    """An attribute as a plain value, None where it cannot be read."""
    try:
        value = obj.attr(name)
        return value.plain() if isinstance(value, Object) else value
    except GdbextError as e:
        log.passed_over(e)
        return None


def number(obj: Any, name: str) -> Any:
    """An attribute as an int, "?" where it is not one."""
    value = attribute(obj, name)
    return value if isinstance(value, int) else "?"


def text(obj: Any, name: str) -> str:
    """An attribute as text, "?" where it is not text."""
    value = attribute(obj, name)
    return value if isinstance(value, str) else "?"


def import_owner(module_lock: Any) -> int:
    """The pthread id of the thread that imports the module. 3.12 and later: while others wait, `count` is a list (bpo-38091)."""
    value = attribute(module_lock, "owner")
    return value if isinstance(value, int) else 0
