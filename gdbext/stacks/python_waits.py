"""The waits of threads and asyncio tasks, by their Python frames: queues, events, joins, futures, imports.

Source: Lib/threading.py, queue.py, concurrent/futures/_base.py, importlib/_bootstrap.py, asyncio/locks.py, queues.py of each
minor.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .. import log
from ..cpython.objects import Object
from ..cpython.poll_values import kinds_of
from ..errors import GdbextError
from .waits import Edge

if TYPE_CHECKING:
    from collections.abc import Sequence

LIBRARY = ("threading.py", "queue.py", "_bootstrap>", "thread.py", "_base.py", "logging/__init__.py", "synchronize.py")
ASYNCIO = ("asyncio/locks.py", "asyncio/queues.py", "asyncio/mixins.py", "asyncio/tasks.py", "asyncio/timeouts.py")
MAX_FUTURES = 1000  # that one call waits for
FRAMES = 8  # innermost frames in which a wait of the library is looked for
ORPHANED = "it was held when this process was forked, or the thread has ended without releasing it"

# (end of the file, function) -> the kind of the wait for the frame's `self`
_WAITING = {
    ("queue.py", "Queue.get"): "get",
    ("queue.py", "Queue.put"): "put",
    ("queue.py", "Queue.join"): "join",
    ("threading.py", "Event.wait"): "Event",
    ("threading.py", "Condition.wait"): "Condition",
    ("threading.py", "Barrier.wait"): "Barrier",
    ("threading.py", "Semaphore.acquire"): "Semaphore",
    ("threading.py", "Thread.join"): "Thread",
    ("_base.py", "Future.result"): "Future",
    ("_base.py", "Future.exception"): "Future",
    ("importlib._bootstrap>", "_ModuleLock.acquire"): "import",
    # 3.9, 3.10 have no qualified names
    ("queue.py", "get"): "get",
    ("queue.py", "put"): "put",
    ("_base.py", "result"): "Future",
}
_BY_TYPE = {
    "Event": "Event",
    "Condition": "Condition",
    "Barrier": "Barrier",
    "Semaphore": "Semaphore",
    "BoundedSemaphore": "Semaphore",
    "Queue": "Queue",
    "LifoQueue": "Queue",
    "PriorityQueue": "Queue",
    "_ModuleLock": "import",
    "Future": "Future",
}
_VERBS = ("wait", "join", "acquire", "get", "put", "exception")


class Wait:
    """A wait that frames show: `kind` ("get", "put", "join", "Event", "Thread", …), the awaited `object`, the library's `frame`
    that waits; `limit`: the wait has a time limit."""

    __slots__ = ("kind", "object", "frame", "limit")

    def __init__(self, kind: str, obj: Any, frame: Any, limit: bool) -> None:
        self.kind, self.object, self.frame, self.limit = kind, obj, frame, limit


def path_of(frame: Any) -> str:
    """A frame's file with forward slashes."""
    return str(frame.file).replace("\\", "/")


def find(frames: Sequence[Any]) -> Wait | None:
    """The outermost library wait in the innermost `frames`; None where there is none."""
    best = None
    if frames and last_part(str(frames[0].function)) == "__enter__":
        return None  # it waits for the lock inside, and has not come to its wait
    for frame in frames[:FRAMES]:
        if not path_of(frame).endswith(LIBRARY):
            break
        try:
            own = dict(frame.locals())
            me = own.get("self")
            kind = _kind(frame, me)
        except GdbextError as e:
            log.passed_over(e)
            continue
        if kind and me is not None and not _is_shared(me):
            best = Wait(kind, me, frame, _limited(own))
    return best


def _is_shared(me: Any) -> bool:
    """Whether it is made of semaphores that other processes share, though it waits by code of threading (a Barrier)."""
    return any(name.startswith("multiprocessing.") for name in kinds_of(me)) and last_part(me.type_name) == "Barrier"


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


def _kind(frame: Any, me: Any) -> str:
    path = path_of(frame)
    found = next((what for (end, function), what in _WAITING.items() if path.endswith(end) and frame.function == function), "")
    kind = _BY_TYPE.get(me.type_name) if me is not None else None
    if not found and kind and frame.function in _VERBS:
        found = {"Queue": str(frame.function)}.get(kind, kind)
    if not found and frame.function in ("join", "_wait_for_tstate_lock", "Thread._wait_for_tstate_lock"):
        if me is not None and any(last_part(n) in ("Thread", "Process") for n in me.mro_names()):
            found = "Thread"
    return found


def _limited(own: dict[str, Any]) -> bool:
    for name in ("timeout", "endtime"):
        value = own.get(name)
        if value is not None and not (isinstance(value, Object) and value.is_none()):
            return True
    return False


def find_async(frames: Sequence[Any]) -> Wait | None:
    """The wait for an asyncio lock, event, condition, semaphore, barrier or queue in a suspended task's innermost frames; None
    where there is none."""
    best = None
    for frame in frames[:FRAMES]:
        if not path_of(frame).endswith(ASYNCIO):
            break
        try:
            own = dict(frame.locals())
            me = own.get("self")
            name = str(frame.function).rpartition(".")[2]
            if me is None or name not in ("acquire", "wait", "get", "put", "join", "__aenter__"):
                continue
            kind = me.type_name
        except GdbextError as e:
            log.passed_over(e)
            continue
        if kind in ("Lock", "Event", "Condition", "Semaphore", "BoundedSemaphore", "Barrier"):
            best = Wait("Semaphore" if kind == "BoundedSemaphore" else kind, me, frame, False)
        elif kind in ("Queue", "LifoQueue", "PriorityQueue"):
            best = Wait(name, me, frame, False)
    return best


def edge_of(node: Any, wait: Wait, name: str, where: str, module: str = "") -> Edge:
    """The `Edge` of any wait except for a thread's end or an import. `name`: by which a frame names the object; `module`:
    "asyncio." for asyncio's objects."""
    me, kind = wait.object, wait.kind
    if kind in ("get", "put", "join"):
        size, bound = queue_size(me)
        state = f"{size if size is not None else '?'} items" + (f" of at most {bound}" if bound else "")
        want = {"get": "an item of", "put": "room in", "join": "the end of all work of"}[kind]
        return Edge(
            node,
            f"{want} the {module}{me.type_name} {name} ({state})",
            module + "Queue",
            how=kind,
            address=me.address,
            where=where,
            limit=wait.limit,
            open=_open(kind, me, size, bound),
        )
    extra = ""
    if kind == "Barrier":
        extra = f" ({number(me, '_count')} of {number(me, '_parties')} have come)"
    elif kind == "Semaphore":
        extra = f" (value {number(me, '_value')})"
    elif kind == "Future":
        state = text(me, "_state")
        extra = f" ({state})" if state != "?" else ""  # a future of C code
    return Edge(
        node,
        f"the {module}{me.type_name} {name}{extra}",
        module + kind,
        address=me.address,
        where=where,
        limit=wait.limit,
        open=_open(kind, me),
    )


def _open(kind: str, me: Any, size: int | None = None, bound: int = 0) -> str:
    """Why a wait for an object should be over, by the object's own state; '' where it need not be."""
    if kind == "get":
        return f"{size} item{'s are' if size != 1 else ' is'} in it" if size else ""
    if kind == "put":
        return f"there is room for {bound - size}" if size is not None and 0 <= size < bound else ""
    if kind == "Event":
        return "it is set" if True in (attribute(me, "_flag"), attribute(me, "_value")) else ""
    if kind == "Semaphore":
        value = number(me, "_value")
        return f"its value is {value}" if isinstance(value, int) and value > 0 else ""
    if kind == "Future":
        return "it is done" if text(me, "_state") in ("FINISHED", "CANCELLED", "CANCELLED_AND_NOTIFIED") else ""
    return "it is open" if kind == "Lock" and attribute(me, "_locked") is False else ""


def outer_place(frames: Sequence[Any], otherwise: Any, library: tuple[str, ...] = LIBRARY) -> str:
    """The innermost frame outside the library, as "function (file:line)"."""
    frame = next((f for f in frames if not path_of(f).endswith(library)), otherwise)
    return f"{frame.function} ({os.path.basename(frame.file)}:{frame.line})"


def last_part(name: str) -> str:
    """The last part of a dotted name."""
    return name.rpartition(".")[2]


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


def queue_size(me: Any) -> tuple[int | None, int]:
    """(items in a queue.Queue or asyncio.Queue, its limit or 0); None for what cannot be read."""
    size = None
    for name in ("queue", "_queue"):
        try:
            size = me.attr(name).len()
            break
        except GdbextError as e:
            log.passed_over(e)
            continue
    bound = next((b for b in (number(me, "maxsize"), number(me, "_maxsize")) if isinstance(b, int)), 0)
    return size, max(bound, 0)
