"""asyncio tasks of a process, each with its chain of suspended coroutines and the object that the innermost one awaits.

Works alike for the C `_asyncio.Task` (uvloop's tasks too) and the pure Python one. Sources, per minor: Modules/_asynciomodule.c
(where tasks are kept, TaskObj, FutureObj, FutureIter), Objects/genobject.c (`_PyGen_yf`: the object that a suspended frame
awaits; asend, athrow, coroutine_wrapper), Include/internal/pycore_frame.h (states of a generator's frame),
Lib/asyncio/base_tasks.py.
"""

from __future__ import annotations

import os
import re
from typing import Callable, Iterable

from .. import log
from ..errors import GdbextError, LayoutError, NotFoundError
from .dialects import RawFrame
from .frames import PyFrame
from .objects import Object
from .runtime import Runtime
from .task_waits import CANCELLED, FINISHED, PENDING, Futures, Waiting, is_task

MAX_TASKS = 1_000_000
MAX_CHAIN = 20_000
SHOWN = 4  # names
MAX_TRACE, LONGEST = 60, 1000  # frames of where a task was made; characters of a name
YIELD_FROM = 72  # the opcode of 3.9 and 3.10 (Include/opcode.h)
_GENERATORS = ("coroutine", "generator", "async_generator")
_WRAPPERS = {  # awaitable -> the field with its target; the first word after the header where a table has no name for it
    "coroutine_wrapper": "corowrapper.cw_coroutine",
    "async_generator_asend": "asyncgenasend.ags_gen",
    "async_generator_athrow": "asyncgenathrow.agt_gen",
    "anext_awaitable": "object.__size",
    "_asyncio.FutureIter": "object.__size",
}
# Cython's own types of these kinds -> the members with what one awaits and with its code (Cython/Utility/Coroutine.c)
_CYTHON = re.compile(r"_cython_\w+\.(\w+)$")
_COMPILED = {
    "coroutine": ("cr_await", "cr_code"),
    "generator": ("gi_yieldfrom", "gi_code"),
    "async_generator": ("ag_await", "ag_code"),
}


class Task:
    """One asyncio task.

    - `state`: "running" (its coroutine is on a thread's stack), "ready" (it runs at the loop's next turn), "waiting", "done" or
      "cancelled".
    - `frames`: `[PyFrame]`, innermost first.
    - `waits`: `Waiting` or None; `awaited_by`: addresses of the tasks that wait for it.
    - `created`: [(function, file, line)], innermost first, where it was made; asyncio keeps that in its debug mode.
    - `loop`: address; `tid` of the thread that runs its loop now, None where none does.
    - `error`: why it is incomplete.
    """

    def __init__(self, address: int) -> None:
        self.address, self.name, self.state, self.coroutine = address, "", "", ""
        self.frames: list[PyFrame] = []
        self.waits: Waiting | None = None
        self.awaited_by: list[int] = []
        self.created: list[tuple[str, str, int]] = []
        self.loop = 0
        self.tid: int | None = None
        self.error: str | None = None


def tasks(rt: Runtime, finished: bool = False, shown: Callable[[str], str] = str) -> tuple[list[Task], list[str]]:
    """-> (`[Task]` by loop and name, reasons why they are incomplete). `finished`: finished ones too. `shown`: how a task's name
    appears in another's `waits` and in the reasons; `Task.name` stays as it is."""
    return _Reader(rt, shown).read(finished)


def tasks_at(rt: Runtime, addresses: Iterable[int]) -> list[Task]:
    """The tasks at some addresses, finished ones too. `error` of a task says which part cannot be read."""
    reader, loops, found = _Reader(rt), running_loops(rt), []
    for address in addresses:
        task = Task(address)
        try:
            reader.fill(task, set(), loops)
        except GdbextError as e:
            task.error = str(e)
        found.append(task)
    return found


def running_tasks(rt: Runtime) -> dict[int, tuple[str, int]]:
    """{address of a task that is being stepped: (its name, the address of its loop)}"""
    module = rt.module("asyncio.tasks")
    reader = _Reader(rt)
    objects = [rt.object(address) for address in sorted(reader.current(module)) if address] if module is not None else []
    found = {}
    for obj in objects:
        loop = reader.field(obj, "loop") if is_task(obj) else None
        if loop is not None:
            found[obj.address] = reader.name_of(obj), loop.address
    return found


def running_loops(rt: Runtime) -> dict[int, int]:
    """{address of an event loop that runs: tid of its thread}"""
    layout, t, found = rt.layout, rt.target, {}
    for thread in rt.states():
        try:
            if "tstateimpl.asyncio_running_loop" in layout:
                loop = t.u64(thread.address + layout["tstateimpl.asyncio_running_loop"])
            else:  # in the dict of the thread state: the loop itself (3.12, 3.13) or a holder of it
                own = t.u64(thread.address + layout["tstate.dict"])
                held = rt.object(own).item("__asyncio_running_event_loop__") if own else None
                loop = held.address if held is not None and not held.is_none() else 0
                if held is not None and loop and held.type.builtin_name == "_RunningLoopHolder":
                    loop = t.u64(loop + layout["object.__size"])
        except GdbextError as e:
            log.passed_over(e)
            continue
        if loop:
            found[loop] = thread.tid
    return found


# ---- generators and coroutines ---------------------------------------------------------------------------------------
def frame_of(rt: Runtime, gen: int) -> tuple[RawFrame | None, str]:
    """-> (`RawFrame` of a generator, coroutine or async generator, its state); (None, "finished") where it has no frame. State:
    "created", "suspended", "awaiting" (suspended in await or yield from), "executing"."""
    L, t = rt.layout, rt.target
    if "gen.gi_frame" in L:
        return _frame_of_object(rt, t.u64(gen + L["gen.gi_frame"]))
    state = _state(rt, int.from_bytes(t.read(gen + L["gen.gi_frame_state"], 1), "little", signed=True))
    if state == "finished":
        return None, state
    frame = gen + L["gen.gi_iframe"]
    code = t.u64(frame + L.frame_code) & ~rt.dialect.tag_mask
    at = t.u64(frame + L.frame_instruction)
    lasti = at - (code + L["code.co_code_adaptive"])
    if state == "suspended" and not rt.minor.tells_awaiting:  # the RESUME that it goes on with says which of the two
        state = "awaiting" if t.u8(at + 3) & 3 >= 2 else state
    return RawFrame(frame, code, lasti, t.u8(frame + L["iframe.owner"]), 0), state


def _state(rt: Runtime, value: int) -> str:
    names = rt.minor.generator_states
    if value not in names:
        raise LayoutError(f"no state of a generator's frame: {value}")
    return names[value]


def _frame_of_object(rt: Runtime, frame: int) -> tuple[RawFrame | None, str]:
    """3.9, 3.10: the frame is an object; the instruction behind its current one tells the state."""
    L, t = rt.layout, rt.target
    if not frame:
        return None, "finished"
    code, lasti = t.u64(frame + L["frameobj.f_code"]), t.i32(frame + L["frameobj.f_lasti"])
    if rt.object(frame).type.builtin_name != "frame":
        raise LayoutError(f"no frame object at {frame:#x}")
    step = RawFrame(frame, code, lasti * rt.minor.code_unit if lasti >= 0 else -1, 1, 0)
    if "frameobj.f_state" in L:
        value = int.from_bytes(t.read(frame + L["frameobj.f_state"], 1), "little", signed=True)
        if value > 0:
            return None, "finished"
        running = value == 0
    else:
        running = bool(t.u8(frame + L["frameobj.f_executing"]))
        if not running and not t.u64(frame + L["frameobj.f_stacktop"]):
            return None, "finished"
    if running:
        return step, "executing"
    if lasti < 0:
        return step, "created"
    following = rt.object(t.u64(code + L["code.co_code"])).raw_bytes(1 << 24)
    after = step.lasti + 2
    return step, "awaiting" if after < len(following) and following[after] == YIELD_FROM else "suspended"


def awaited(rt: Runtime, step: RawFrame, state: str) -> int:
    """The address of the object that a suspended frame awaits, 0 where it awaits none. It lies on top of the frame's own stack.
    From 3.15 on a place in a sequence (a tagged number) may lie above it."""
    if state != "awaiting":
        return 0
    L, t = rt.layout, rt.target
    if "frameobj.f_stacktop" in L:
        return t.u64(t.u64(step.address + L["frameobj.f_stacktop"]) - 8)
    if "frameobj.f_stackdepth" in L:
        depth = t.i32(step.address + L["frameobj.f_stackdepth"])
        return t.u64(t.u64(step.address + L["frameobj.f_valuestack"]) + 8 * (depth - 1)) if depth > 0 else 0
    if "iframe.stackpointer" in L:
        top = t.u64(step.address + L["iframe.stackpointer"])
    else:
        top = step.address + L["iframe.localsplus"] + 8 * t.i32(step.address + L["iframe.stacktop"])
    if top <= step.address + L["iframe.localsplus"]:
        return 0
    found = rt.dialect.untag(t.u64(top - 8))
    if not found and rt.minor.null_below_send:
        found = rt.dialect.untag(t.u64(top - 16))
    return found


def chain(rt: Runtime, address: int, compiled: list[str] | None = None) -> tuple[list[PyFrame], Object | None, bool]:
    """The frames in which a coroutine is suspended: -> (`[PyFrame]` outermost first, the `Object` at the end that is no coroutine
    or None, whether the outermost frame is executing). `compiled`: the names of Cython's coroutines among them, which leave no
    frames, are appended to it."""
    found: list[PyFrame] = []
    seen, executing = set(), False
    while address and address not in seen and len(found) < MAX_CHAIN:
        seen.add(address)
        obj = rt.object(address)
        kind = obj.type.builtin_name
        if kind in _WRAPPERS:
            address = rt.target.u64(address + rt.layout[_WRAPPERS[kind]])
            continue
        cython = _CYTHON.match(obj.type.raw_name)
        if cython is not None and (cython[1] in _COMPILED or cython[1] in _WRAPPERS):
            address = _behind_compiled(obj, cython[1], [] if compiled is None else compiled)
            continue
        if kind not in _GENERATORS:
            return found, obj, executing
        step, state = frame_of(rt, address)
        if step is None:
            break
        executing = executing or state == "executing"
        found.append(PyFrame(rt, step, len(found)))
        if state == "executing":
            break
        address = awaited(rt, step, state)
    return found, None, executing


def _behind_compiled(obj: Object, kind: str, compiled: list[str]) -> int:
    """The address of what a coroutine of Cython, or its wrapper, awaits; 0 where it awaits nothing."""
    if kind in _WRAPPERS:
        return obj.rt.target.u64(obj.address + obj.rt.layout["object.__size"])
    awaited_one, code = (_optional(obj, name) for name in _COMPILED[kind])
    known = obj.rt.code(code.address) if code is not None else None
    compiled.append(f"{known.qualname} ({os.path.basename(known.file)}:{known.first})" if known is not None else kind)
    return awaited_one.address if awaited_one is not None else 0


def _optional(obj: Object, name: str) -> Object | None:
    try:
        found = obj.attr(name)
    except NotFoundError as e:
        log.passed_over(e)  # an async generator of Cython's has no ag_code
        return None
    return found if isinstance(found, Object) else None


# ---- tasks -----------------------------------------------------------------------------------------------------------
class _Reader(Futures):
    def __init__(self, rt: Runtime, shown: Callable[[str], str] = str) -> None:
        super().__init__(rt, shown)
        self.reasons: list[str] = []
        self.by_frame: dict[int, tuple[int | None, list[PyFrame], int]] | None = None  # address: tid, stack, place in it

    def read(self, finished: bool) -> tuple[list[Task], list[str]]:
        rt = self.rt
        module = rt.module("asyncio.tasks")
        if module is None:
            raise NotFoundError(f"{rt.target.describe()} has not imported asyncio: it has no tasks")
        addresses = self._addresses(module)
        running, loops = self.current(module), running_loops(self.rt)
        found = []
        for address in addresses:
            task = Task(address)
            try:
                self.fill(task, running, loops)
            except GdbextError as e:
                task.error = str(e)
                self.reasons.append(f"task {self.shown(task.name) or hex(address)}: {e}")
            if finished or task.state not in ("done", "cancelled"):
                found.append(task)
        _join({task.address: task for task in found})
        found.sort(
            key=lambda task: (task.loop, [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", task.name)][1::2], task.name)
        )
        return found, self.reasons

    # ---- which there are ---------------------------------------------------------------------------------------------
    def _addresses(self, module: Object) -> list[int]:
        found = {}
        for name in ("_all_tasks", "_scheduled_tasks", "_eager_tasks"):
            try:
                held = module.item(name)
            except NotFoundError as e:
                log.passed_over(e)
                continue
            try:
                for address in self._members(held, f"asyncio.tasks.{name}"):
                    found[address] = True
            except GdbextError as e:
                self.reasons.append(f"asyncio.tasks.{name}: {e}")
        L = self.rt.layout
        if "interp.asyncio_tasks_head" in L:
            heads = [th.address + L["tstateimpl.asyncio_tasks_head"] for th in self.rt.states()]
            heads += [interp + L["interp.asyncio_tasks_head"] for interp in self.rt.interpreters()]
            for head in heads:
                try:
                    for address in self._list(head):
                        found[address] = True
                except GdbextError as e:
                    self.reasons.append(f"a list of tasks: {e}")
        return list(found)[:MAX_TASKS]

    def _members(self, held: Object, name: str) -> list[int]:
        """The tasks of a WeakSet (a set of weak references in `data`) or of a plain set. A task that cannot be read is a reason;
        the others are still returned. In a busy loop a new task may be missing from a copy."""
        if held.isa("set"):
            return held.element_addresses(MAX_TASKS)
        L, t, found = self.rt.layout, self.target, []
        for address in held.attr("data").element_addresses(MAX_TASKS):
            try:
                pointer = t.u64(address + L["weakref.wr_object"])
                if pointer and not self.rt.object(pointer).is_none():
                    found.append(pointer)
            except GdbextError as e:
                self.reasons.append(f"a task of {name}: {e}")
        return found

    def _list(self, head: int) -> list[int]:
        """3.14+: the tasks of one of CPython's own linked lists."""
        L, t, seen = self.rt.layout, self.target, {head}
        found: list[int] = []
        node = t.u64(head + L["llistnode.next"])
        while node and node not in seen and len(found) < MAX_TASKS:
            seen.add(node)
            found.append(node - L["task.task_node"])
            node = t.u64(node + L["llistnode.next"])
        return found

    def current(self, module: Object) -> set[int]:
        """{address of a task that is being stepped}"""
        L, t, found = self.rt.layout, self.target, set()
        if "tstateimpl.asyncio_running_task" in L:
            found = {t.u64(th.address + L["tstateimpl.asyncio_running_task"]) for th in self.rt.states()}
        try:
            found |= {value.address for _, value in module.item("_current_tasks").items(MAX_TASKS)}
        except GdbextError as e:
            log.passed_over(e)  # 3.14 has it no more for its own tasks
        return found

    # ---- one task ----------------------------------------------------------------------------------------------------
    def fill(self, task: Task, running: set[int], loops: dict[int, int]) -> None:
        obj = self.rt.object(task.address)
        if not is_task(obj):
            raise LayoutError(f"a {obj.type_name} where a task should be")
        task.name = self.name_of(obj)
        state = self.state_of(obj)
        task.state = {PENDING: "ready", CANCELLED: "cancelled", FINISHED: "done"}[state]
        loop = self.field(obj, "loop")
        task.loop = loop.address if loop is not None else 0
        with log.passing_over(GdbextError):
            task.created = self.created(obj)
        task.tid = loops.get(task.loop)
        coro = self.field(obj, "coro")
        if coro is None or state != PENDING:
            return
        with log.passing_over(GdbextError):
            task.awaited_by = self.awaiters(obj)
        compiled: list[str] = []
        frames, end, executing = chain(self.rt, coro.address, compiled)
        if compiled:
            names = ", ".join(self.shown(name) for name in compiled[:SHOWN]) + (", …" if len(compiled) > SHOWN else "")
            self.reasons.append(f"task {self.shown(task.name)}: in {names}, code of Cython, which leaves no frames")
        if compiled and coro.type.builtin_name not in _GENERATORS:
            task.coroutine = compiled[0].partition(" ")[0]
        elif frames:
            task.coroutine = frames[0].function
        elif end is not None:
            task.coroutine = end.type.qualname
        if executing or task.address in running:
            task.state = "running"
            frames, task.tid = self._on_stack(frames, task.tid)
        else:
            waiter = self.field(obj, "fut_waiter")
            if waiter is not None:
                task.state = "waiting"
                task.waits = self.waits(frames, waiter)
            elif end is not None and not end.isa("_asyncio.Future"):
                task.waits = Waiting("awaitable", f"{end.type.module}.{end.type.qualname}".lstrip("."), end)
            for frame in frames:
                frame.source, frame.tid = lambda: chain(self.rt, coro.address)[0], task.tid
        task.frames = frames[::-1]
        for level, frame in enumerate(task.frames):
            frame.level, frame.stack = level, task.frames

    def created(self, obj: Object) -> list[tuple[str, str, int]]:
        """Where a task was made; [] where asyncio was not in its debug mode."""
        trace = self.field(obj, "source_traceback")
        found = []
        for one in trace.elements(MAX_TRACE) if trace is not None else ():
            function, file, line = (_optional(one, name) for name in ("name", "filename", "lineno"))
            if function is not None and file is not None and line is not None:
                found.append((function.string(LONGEST), file.string(LONGEST), line.integer()))
        return found[::-1]

    def _on_stack(self, frames: list[PyFrame], tid: int | None) -> tuple[list[PyFrame], int | None]:
        """The whole stack of a running task, outermost first: its thread's, down to where its coroutine begins."""
        if self.by_frame is None:
            self.by_frame = {}
            for thread in self.rt.threads():
                try:
                    stack = self.rt.frames(thread)
                except GdbextError as e:
                    log.passed_over(e)
                    continue
                for i, frame in enumerate(stack):
                    self.by_frame[frame.address] = (thread.tid, stack, i)
        found = self.by_frame.get(frames[0].address) if frames else None
        if found is None:
            return frames, tid
        tid, stack, i = found
        frames = [PyFrame(self.rt, f.raw, f.level) for f in reversed(stack[: i + 1])]
        for frame in frames:
            frame.source, frame.tid = stack[0].source, tid
        return frames, tid


def _join(tasks: dict[int, Task]) -> None:
    """Completes `waits.on` and `awaited_by` of all tasks from each other."""
    for task in tasks.values():
        for awaiter in (tasks[address] for address in task.awaited_by if address in tasks):
            waits = awaiter.waits
            if waits is not None and waits.kind in ("future", "asyncio") and task.address not in waits.on:
                waits.on.append(task.address)
    for task in tasks.values():
        for awaited_one in (tasks[address] for address in (task.waits.on if task.waits else ()) if address in tasks):
            if task.address not in awaited_one.awaited_by:
                awaited_one.awaited_by.append(task.address)


def cycles(found: list[Task]) -> list[list[Task]]:
    """`[[Task]]`: tasks that wait for each other in a ring, each ring once."""
    by_address = {task.address: task for task in found}
    rings, done = [], set()
    for start in found:
        path: list[Task] = []
        here: Task | None = start
        while here is not None and here.address not in done and here not in path:
            path.append(here)
            following = [by_address[a] for a in (here.waits.on if here.waits else ()) if a in by_address]
            here = following[0] if len(following) == 1 else None
        if here is not None and here in path:
            rings.append(path[path.index(here) :])
        done |= {task.address for task in path}
    return rings
