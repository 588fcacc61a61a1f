"""asyncio event loops of a process: how many callbacks are ready, when timers are due, and the callback that runs now.

Sources: Lib/asyncio/base_events.py (`_ready`, `_scheduled`), events.py (Handle, TimerHandle) of 3.9 to 3.15;
Modules/_collectionsmodule.c (dequeobject). A uvloop.Loop keeps its queues in fields of C code that nothing describes.
"""

from __future__ import annotations

from typing import Any, Iterable

from .. import log
from ..errors import GdbextError
from . import tasks
from .objects import Object
from .runtime import Runtime
from .value_attributes import attribute

MAX_TIMERS = 4096


class Callback:
    """One handle of a loop. `when`: seconds on the loop's own clock (None: as soon as its turn comes); `cancelled`."""

    def __init__(self, handle: Object) -> None:
        when, cancelled = _attribute(handle, "_when"), _attribute(handle, "_cancelled")
        self._handle = handle
        self.when: float | None = when.floating() if when is not None and when.isa("float") else None
        self.cancelled = cancelled is not None and cancelled.isa("bool") and cancelled.boolean()

    @property
    def function(self) -> str:
        """Qualified name of the function that it calls; '' where that cannot be read."""
        callback = _attribute(self._handle, "_callback")
        return _name(callback) if callback is not None else ""


class EventLoop:
    """One event loop.

    `tid`: of the thread that runs it, None where none does. `ready`: how many callbacks can run now, None where the queues cannot
    be read. `taken`: as of `callbacks_taken`. `timers`: callbacks that are due later, in no order. `current`: the callback that
    runs now, None between two.
    """

    def __init__(self, address: int, type_name: str, tid: int | None) -> None:
        self.address, self.type, self.tid = address, type_name, tid
        self.ready: int | None = None
        self.taken: int | None = None
        self.timers: list[Callback] = []
        self.current: Callback | None = None


def event_loops(rt: Runtime, found: Iterable[tasks.Task] = (), max_timers: int = MAX_TIMERS) -> list[EventLoop]:
    """Every loop that runs in a thread, and the loops of the `Task`s in `found`, running or not. At most `max_timers` timers of
    each are read."""
    running = tasks.running_loops(rt)
    addresses = dict.fromkeys([*running, *(task.loop for task in found if task.loop)])
    return [_read(rt, address, running.get(address), max_timers) for address in addresses]


def _read(rt: Runtime, address: int, tid: int | None, max_timers: int) -> EventLoop:
    obj = rt.object(address)
    loop = EventLoop(address, obj.type.full_name, tid)
    try:
        loop.current = _current(rt, loop)
        ready, scheduled = _attribute(obj, "_ready"), _attribute(obj, "_scheduled")
        if ready is not None:
            loop.ready, loop.taken = ready.len(), _taken(ready)
        if scheduled is not None:
            loop.timers = [Callback(handle) for handle in scheduled.elements(max_timers)]
    except GdbextError as e:
        log.passed_over(e)  # it changed while it was read, or is damaged: the part read by then counts
    return loop


def callbacks_taken(rt: Runtime) -> dict[int, int]:
    """{address: count} of the running loops. A count grows by two for each callback that the loop takes from its queue to run. It
    starts at an unknown value, and is off by one where a callback is queued during the reading. Unreadable loops are left out."""
    found = {}
    try:
        for address in tasks.running_loops(rt):
            ready = _attribute(rt.object(address), "_ready")
            taken = _taken(ready) if ready is not None else None
            if taken is not None:
                found[address] = taken
    except GdbextError as e:
        log.passed_over(e)  # it changed while it was read: the part read by then counts
    return found


def _taken(ready: Object) -> int | None:
    turns = deque_turns(ready)
    return None if turns is None else turns - ready.len()  # an item counts one when it is put in, and one less while it is there


def deque_turns(deque: Any) -> int | None:
    """How often the ends of a collections.deque have changed, as it counts itself (`state`, after `rightindex`:
    Modules/_collectionsmodule.c); None for anything else."""
    if not isinstance(deque, Object) or deque.type.builtin_name != "collections.deque":
        return None
    return int(deque.rt.target.u64(deque.address + deque.rt.layout["deque.leftindex"] + 16))


def _current(rt: Runtime, loop: EventLoop) -> Callback | None:
    """The handle that the loop's thread runs: `self` of the outermost `Handle._run` of asyncio below the loop's own frame."""
    thread = rt.thread(loop.tid) if loop.tid is not None else None
    for frame in rt.frames(thread) if thread is not None else []:
        if frame.code.name == "_run" and frame.file.endswith("asyncio/events.py"):
            handle = next((v for n, v in frame.locals() if n == "self"), None)
            own = _attribute(handle, "_loop") if handle is not None else None
            if handle is not None and own is not None and own.address == loop.address:
                return Callback(handle)
    return None


def _attribute(obj: Object, name: str) -> Object | None:
    try:
        found = obj.attr(name)
    except (GdbextError, AttributeError) as e:
        log.passed_over(e)
        return None
    return found if isinstance(found, Object) else None


def _name(callback: Object) -> str:
    """Qualified name of a callback."""
    for name in ("__qualname__", "__name__"):
        try:
            found = attribute(attribute(callback, "__func__") if callback.isa("method") else callback, name)
            return str(found.string(200) if isinstance(found, Object) else found)
        except (GdbextError, AttributeError) as e:
            log.passed_over(e)
            continue
    if callback.isa("functools.partial"):
        return _name(attribute(callback, "func"))
    return callback.type.qualname
