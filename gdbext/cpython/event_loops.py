"""asyncio event loops of a process: what each has ready and scheduled, which callback it runs now, and what its tasks wait for.

Sources: Lib/asyncio/base_events.py, events.py (Handle, TimerHandle), locks.py, queues.py of 3.9 to 3.15; Modules/_asynciomodule.c
(TaskStepMethWrapper, task_wakeup). A uvloop.Loop keeps its queues in fields of C code that nothing describes: it is told as such.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import GdbextError, NotFoundError
from . import locks, tasks
from .objects import Object
from .value_attributes import attribute

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .frames import PyFrame
    from .runtime import Runtime

SHOWN = 100  # handles and timers whose callbacks are read


class Callback:
    """One handle of a loop: `function` that it calls, `task` (address, 0: of none) that it steps, `cancelled`; `when` on the
    loop's own clock (None: as soon as its turn comes)."""

    def __init__(self, function: str, task: int, when: float | None, cancelled: bool) -> None:
        self.function, self.task, self.when, self.cancelled = function, task, when, cancelled


class EventLoop:
    """`address`, `type` of the loop, `tid` of the thread that runs it (None: none does). `ready`, `scheduled`: how many callbacks
    can run now and at a later time, None where they are not to be read; `ready_callbacks`, `timers`: the first of them;
    `current`: the `Callback` that runs now, None between two; `frame`: the frame that runs it; `error`: why it is less than
    whole."""

    def __init__(self, address: int, type_name: str, tid: int | None) -> None:
        self.address, self.type, self.tid = address, type_name, tid
        self.ready: int | None = None
        self.scheduled: int | None = None
        self.ready_callbacks: list[Callback] = []
        self.timers: list[Callback] = []
        self.current: Callback | None = None
        self.frame: PyFrame | None = None
        self.error = ""


def event_loops(rt: Runtime, found: Iterable[tasks.Task] = ()) -> list[EventLoop]:
    """Every loop that runs in a thread, and those of the `Task`s in `found`, which need not run."""
    running = tasks.running_loops(rt)
    addresses = dict.fromkeys([*running, *(task.loop for task in found if task.loop)])
    return [_read(rt, address, running.get(address)) for address in addresses]


def _read(rt: Runtime, address: int, tid: int | None) -> EventLoop:
    obj = rt.object(address)
    loop = EventLoop(address, obj.type.full_name, tid)
    try:
        if tid is not None:
            _fill_current(rt, loop)
        own = dict(obj.fields())
        if not isinstance(own.get("_ready"), Object):
            raise NotFoundError(f"a {loop.type} keeps its queues where reading cannot tell them")
        handles, timers = own["_ready"], own["_scheduled"]
        loop.ready, loop.scheduled = handles.len(), timers.len()
        loop.ready_callbacks = [_callback(h) for h in handles.elements(SHOWN)]
        loop.timers = [_callback(h) for h in timers.elements(SHOWN)]
    except GdbextError as e:
        loop.error = str(e)
    return loop


def _fill_current(rt: Runtime, loop: EventLoop) -> None:
    """The handle that the loop's thread runs: `self` of the outermost `Handle._run` of asyncio below the loop's own frame."""
    thread = rt.thread(loop.tid) if loop.tid is not None else None
    frames = rt.frames(thread) if thread is not None else []
    for frame in frames:
        if frame.code.name == "_run" and frame.file.endswith("asyncio/events.py"):
            handle = next((v for n, v in frame.locals() if n == "self"), None)
            if handle is not None and _is_of(handle, loop.address):
                loop.current, loop.frame = _callback(handle), frame
                return


def _is_of(handle: Object, loop: int) -> bool:
    held = dict(handle.fields()).get("_loop")
    return isinstance(held, Object) and held.address == loop


def _callback(handle: Object) -> Callback:
    own = dict(handle.fields())
    when, cancelled, held = own.get("_when"), own.get("_cancelled"), own.get("_callback")
    task = _task_of(held) if isinstance(held, Object) else 0
    return Callback(
        _name(held) if isinstance(held, Object) else "",
        task,
        float(when.plain()) if isinstance(when, Object) and not when.is_none() else None,
        isinstance(cancelled, Object) and cancelled.plain() is True,
    )


def _task_of(callback: Object) -> int:
    """The address of the task that a callback steps or wakes up, 0 for any other callback."""
    rt = callback.rt
    owner = 0
    if callback.type.raw_name.rpartition(".")[2] in ("TaskStepMethWrapper", "TaskWakeupMethWrapper"):
        owner = rt.target.u64(callback.address + rt.layout["object.__size"])
    elif callback.isa("builtin_function_or_method"):
        owner = rt.target.u64(callback.address + rt.layout["cfunc.m_self"])
    elif callback.isa("method"):
        owner = rt.target.u64(callback.address + rt.layout["method.im_self"])
    return owner if owner and tasks.is_task(rt.object(owner)) else 0


def _name(callback: Object) -> str:
    """What a callback is called in its source."""
    for name in ("__qualname__", "__name__"):
        try:
            found = attribute(attribute(callback, "__func__") if callback.isa("method") else callback, name)
            return str(found.string(200) if isinstance(found, Object) else found)
        except (GdbextError, AttributeError):
            continue
    if callback.isa("functools.partial"):
        return _name(attribute(callback, "func"))
    return callback.type.qualname


# ---- what tasks wait for ---------------------------------------------------------------------------------------------
def held_by(found: Iterable[tasks.Task]) -> dict[int, list[tasks.Task]]:
    """`{address of a lock, semaphore, condition, ...: tasks inside an `async with` or `with` of it}`; asyncio's own locks keep no
    owner, but the frame that has entered one does."""
    owners: dict[int, list[tasks.Task]] = {}
    for task in found:
        for i, frame in enumerate(task.frames):
            coming = _being_entered(task.frames[i - 1]) if i else 0  # innermost first: the frame that this one awaits
            for manager in locks.entered(frame):
                if manager.address != coming and task not in owners.setdefault(manager.address, []):
                    owners[manager.address].append(task)
    return owners


def _being_entered(frame: PyFrame) -> int:
    """The address of what a frame waits to enter: the `self` of an `__aenter__`; 0 in any other frame."""
    if frame.code.name != "__aenter__":
        return 0
    return next((v.address for n, v in frame.locals() if n == "self" and v is not None), 0)


def state_of(obj: Object) -> dict[str, Any]:
    """What an asyncio Lock ({"locked"}), Event ({"set"}), Semaphore ({"value"}) or Condition says of itself, each with
    {"waiters"}; of a Queue {"size", "maxsize", "getters", "putters"}; {} for any other object."""
    modules = {b.module for b in obj.type.bases()}
    if not modules & {"asyncio.locks", "asyncio.queues"}:
        return {}
    own, told = dict(obj.fields()), {}

    def count(name: str) -> int:
        held = own.get(name)
        return held.len() if isinstance(held, Object) and not held.is_none() else 0

    for field, word in (("_locked", "locked"), ("_value", "value"), ("_maxsize", "maxsize")):
        if isinstance(own.get(field), Object):
            told[word] = own[field].plain()
    if obj.type.name == "Event" and "value" in told:
        told["set"] = told.pop("value")
    if "_queue" in own:
        told.update(size=count("_queue"), getters=count("_getters"), putters=count("_putters"))
    else:
        told["waiters"] = count("_waiters")
    return told
