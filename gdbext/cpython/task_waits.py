"""The object for which an asyncio task waits, and the tasks that wait for it. Both come from the future that the task awaits and
from the innermost frames of its coroutines.

Sources, per minor: Lib/asyncio/ (tasks.py, taskgroups.py, staggered.py), Modules/_asynciomodule.c.
"""

from __future__ import annotations

import re
from typing import Callable, Iterable

from .. import log
from ..errors import GdbextError, LayoutError
from .frames import CO_FAST_FREE, PyFrame
from .objects import Object
from .runtime import Runtime
from .types import LONG, STR

MAX_CHILDREN = 100_000
MAX_NAME = 255  # characters of a task's name, as CPython's own readers
MAX_AWAITERS = 1000
PENDING, CANCELLED, FINISHED = "PENDING", "CANCELLED", "FINISHED"
_STATES = (PENDING, CANCELLED, FINISHED)


class Waiting:
    """The object for which a task waits. `text` for people; `object`: `Object` or None; `on`: addresses of the tasks that must
    finish; `seconds` of a sleep; `source`: the pool's future whose end `object`, an executor's, passes on.

    `kind`: "task", "gather", "wait", "group" (of tasks), "as_completed" (any of tasks), "sleep", "executor", "future",
    "asyncio" (an asyncio call such as Queue.get) or "awaitable" (an object of another library).
    """

    def __init__(
        self, kind: str, text: str, obj: Object | None = None, on: Iterable[int] = (), seconds: float | None = None
    ) -> None:
        self.kind, self.text, self.object, self.on, self.seconds = kind, text, obj, list(on), seconds
        self.source: Object | None = None


def is_task(obj: Object) -> bool:
    """Whether an object is an asyncio task, of C or of Python code."""
    return obj.isa("_asyncio.Task") or any(
        b.name in ("_PyTask", "Task") and b.module == "asyncio.tasks" for b in obj.type.bases()
    )


class Futures:
    """Reads tasks and futures, of C and of Python code. `shown`: how a task's name is shown where another task waits for it."""

    def __init__(self, rt: Runtime, shown: Callable[[str], str] = str) -> None:
        self.rt, self.target, self.shown = rt, rt.target, shown
        self.names: dict[int, str] = {}  # by address of the task

    def field(self, obj: Object, name: str) -> Object | None:
        """A field of a task or future, C or Python: an `Object`, or None where it is empty or None."""
        keys = {
            "name": "task_name",
            "coro": "task_coro",
            "fut_waiter": "task_fut_waiter",
            "loop": "task_loop",
            "source_traceback": "task_source_tb",
        }
        if obj.isa("_asyncio.Task", "_asyncio.Future"):
            pointer = self.target.u64(obj.address + self.rt.layout["task." + keys.get(name, "task_callback0")])
            found = self.rt.object(pointer) if pointer else None
        else:
            found = obj.attr("_" + name)
        return None if found is None or found.is_none() else found

    def state_of(self, obj: Object) -> str:
        if obj.isa("_asyncio.Task", "_asyncio.Future"):
            value = self.target.i32(obj.address + self.rt.layout["task.task_state"])
            if not 0 <= value < 3:
                raise LayoutError(f"no future at {obj.address:#x}: its state is {value}")
            return _STATES[value]
        state: str = obj.attr("_state").string(20)
        return state

    def name_of(self, obj: Object) -> str:
        """A task's name as `get_name()` gives it."""
        if obj.address not in self.names:
            held: Object | None = self.field(obj, "name")
            if held is None:
                text = "?"
            elif held.type.flags & LONG:  # 3.12+: a number until the name is requested
                text = f"Task-{held.integer()}"
            else:
                text = held.string(MAX_NAME) if held.type.flags & STR else "?"
                text += "…" if held.type.flags & STR and held.len() > MAX_NAME else ""
            self.names[obj.address] = text
        return self.names[obj.address]

    def _shown(self, obj: Object) -> str:
        return self.shown(self.name_of(obj))

    # ---- the object of a wait ----------------------------------------------------------------------------------------
    def waits(self, frames: list[PyFrame], waiter: Object) -> Waiting:
        try:
            if is_task(waiter):
                return Waiting("task", f"task {self._shown(waiter)}", waiter, [waiter.address])
            known = self._known_future(waiter)
            if known is not None:
                return known
        except GdbextError as e:
            return Waiting("future", f"future {waiter.address:#x} ({e})", waiter)
        taker = next((frame for frame in frames if takes_completed(frame)), None)
        if taker is not None:
            return self._of_completed(taker, waiter)
        for frame in reversed(frames):
            if not _in_asyncio(frame.file):
                break  # a coroutine that awaits a future itself: its callers do not matter
            group = self._of_group(frame, waiter)
            if group is not None:
                return group
            if not frame.code.name.startswith("_"):
                return self._of_asyncio(frame, waiter)
        return Waiting("future", f"{waiter.type.name} {waiter.address:#x}", waiter)

    def _known_future(self, waiter: Object) -> Waiting | None:
        """The futures that tell what they wait for: gather's knows its children; those of a thread pool and of shield are known
        by their first callback."""
        if waiter.type.name == "_GatheringFuture":
            children = [c for c in waiter.attr("_children").elements(MAX_CHILDREN) if self.state_of(c) == PENDING]
            return self._of_many("gather", waiter, children)
        callback = self._callback(waiter)
        if callback is None or not callback.isa("function"):
            return None
        name = qualname(callback)
        if name.startswith("_chain_future."):
            found = Waiting("executor", "a thread or process pool (run_in_executor, to_thread, wrap_future)", waiter)
            found.source = chained(callback)
            return found
        inner = free_variables(callback).get("inner") if name.startswith("shield.") else None
        if inner is not None and is_task(inner):
            return Waiting("task", f"shielded task {self._shown(inner)}", inner, [inner.address])
        return None

    def _callback(self, waiter: Object) -> Object | None:
        if waiter.isa("_asyncio.Task", "_asyncio.Future"):
            return self.field(waiter, "callback0")
        held = waiter.attr("_callbacks")
        return held.item(0).item(0) if held.len() else None

    def _of_many(self, kind: str, waiter: Object, members: list[Object]) -> Waiting:
        names = [self._shown(m) if is_task(m) else f"{m.type.name} {m.address:#x}" for m in members[:5]]
        what = "group of tasks," if kind == "group" else f"{kind} of"
        text = f"{what} {len(members)} pending: {', '.join(names)}{', …' if len(members) > 5 else ''}"
        return Waiting(kind, text, waiter, [m.address for m in members if is_task(m)])

    def _of_group(self, frame: PyFrame, waiter: Object) -> Waiting | None:
        """A TaskGroup, which ends with its tasks, or a race of `staggered_race`. Their futures do not know the tasks."""
        name = frame.code.name
        group = name in ("__aexit__", "_aexit") and frame.file.endswith("taskgroups.py")
        if not group and name != "staggered_race":
            return None
        try:
            own = {n: v for n, v in frame.locals() if v is not None}
            held = own["self"].attr("_tasks") if group else own["running_tasks"]
            members = [m for m in held.elements(MAX_CHILDREN) if is_task(m) and self.state_of(m) == PENDING]
        except (GdbextError, KeyError) as e:
            log.passed_over(e)
            return None
        return self._of_many("group", waiter, members)

    def _of_completed(self, frame: PyFrame, waiter: Object) -> Waiting:
        """An iteration of `as_completed`. Callbacks of the futures fill its queue; up to 3.12 only they know which futures."""
        try:
            own = {n: v for n, v in frame.locals() if v is not None}
            held = own["self"].attr("_todo").elements(MAX_CHILDREN)
            return self._of_many("as_completed", waiter, [m for m in held if self.state_of(m) == PENDING])
        except (GdbextError, KeyError) as e:
            log.passed_over(e)
            return Waiting("as_completed", "as_completed of futures that are not known here", waiter)

    def awaiters(self, obj: Object) -> list[int]:
        """The addresses of the tasks that await a task or future, by its own record (3.14 on), also through other futures."""
        found: list[int] = []
        seen, pending = {obj.address}, [obj]
        while pending and len(seen) < MAX_AWAITERS:
            for one in self._awaited_by(pending.pop()):
                if one.address not in seen:
                    seen.add(one.address)
                    if is_task(one):
                        found.append(one.address)
                    else:
                        pending.append(one)
        return found

    def _awaited_by(self, obj: Object) -> list[Object]:
        """The direct awaiters (Modules/_asynciomodule.c, FutureObj: one awaiter, or a set of them)."""
        L = self.rt.layout
        if not obj.isa("_asyncio.Task", "_asyncio.Future"):
            held = obj.attr("_Future__asyncio_awaited_by") if self.rt.minor.futures_tell_awaiters else None
            return list(held.elements(MAX_AWAITERS)) if held is not None and not held.is_none() else []
        if "task.task_awaited_by" not in L:
            return []
        pointer = self.target.u64(obj.address + L["task.task_awaited_by"])
        if not pointer:
            return []
        held = self.rt.object(pointer)
        return list(held.elements(MAX_AWAITERS)) if self.target.u8(obj.address + L["task.task_awaited_by_is_set"]) else [held]

    def _of_asyncio(self, frame: PyFrame, waiter: Object) -> Waiting:
        """An asyncio call that made the future for itself. The object of that call says more than the future."""
        own = {}
        try:
            own = {n: v for n, v in frame.locals() if v is not None}
        except GdbextError as e:
            log.passed_over(e)  # a name is then all there is to say
        name, owner = frame.code.name, own.get("self")
        if owner is not None:
            return Waiting("asyncio", f"{owner.type.name}.{name} on {owner.address:#x}", owner)
        if name == "sleep" and "delay" in own:
            delay = own["delay"].plain()
            seconds = float(delay) if isinstance(delay, (int, float)) else None
            return Waiting("sleep", f"sleep({delay})", waiter, seconds=seconds)
        if name == "wait_for" and "fut" in own and is_task(own["fut"]):  # up to 3.11 it makes a task of its argument
            return Waiting("task", f"task {self._shown(own['fut'])}, with a time limit", own["fut"], [own["fut"].address])
        if name == "wait" and "fs" in own:
            try:
                members = [m for m in own["fs"].elements(MAX_CHILDREN) if self.state_of(m) == PENDING]
                return self._of_many("wait", waiter, members)
            except GdbextError as e:
                log.passed_over(e)  # still an iterator: it has not begun
        return Waiting("asyncio", f"{name} ({waiter.type.name} {waiter.address:#x})", waiter)


def takes_completed(frame: PyFrame) -> bool:
    """Whether a frame is that of asyncio's `as_completed` that takes the next one."""
    return frame.code.name == "_wait_for_one" and frame.file.endswith("asyncio/tasks.py") and _in_asyncio(frame.file)


def qualname(function: Object) -> str:
    """The qualified name of a Python function."""
    rt = function.rt
    return rt.object(rt.target.u64(function.address + rt.layout["func.func_qualname"])).string(200)


def free_variables(function: Object) -> dict[str, Object]:
    """The variables of the functions around a Python function, as it uses them."""
    rt, t, L = function.rt, function.rt.target, function.rt.layout
    cells = t.u64(function.address + L["func.func_closure"]) if "func.func_closure" in L else 0
    if not cells:
        return {}
    names = [name for name, kind in rt.code(t.u64(function.address + L["func.func_code"])).variables if kind & CO_FAST_FREE]
    held = ((name, t.u64(cell + L["cell.ob_ref"])) for name, cell in zip(names, rt.object(cells).element_addresses(16)))
    return {name: rt.object(address) for name, address in held if address}


def chained(callback: Object) -> Object | None:
    """The future whose end a callback of asyncio's `_chain_future` passes on to the one that it is a callback of; None for other
    callbacks. So a loop's future waits for a pool's, and a thread's (run_coroutine_threadsafe) for a task."""
    if not callback.isa("function"):
        return None
    return free_variables(callback).get("source") if qualname(callback).startswith("_chain_future.") else None


def _in_asyncio(path: str) -> bool:
    return bool(re.search(r"(^|/)asyncio/[^/]*\.py$", path)) and "site-packages" not in path
