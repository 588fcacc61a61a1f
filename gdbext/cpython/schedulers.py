"""The tasks of all schedulers of a process: asyncio's, trio's (anyio's on trio too), gevent's greenlets, Twisted's, as
`tasks.Task`s.

Source: trio/_core/_run.py (`run`, `Runner`, `Task`, `Nursery`), _timeouts.py, _io_epoll.py, _threads.py of trio 0.25 to
0.35.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Iterator, NamedTuple

from .. import log
from ..errors import GdbextError
from . import deferreds, greenlets
from . import tasks as asyncio_tasks
from .frames import PyFrame
from .objects import Object
from .runtime import Runtime
from .task_waits import Waiting
from .tasks import Task, chain

MODULES = ("asyncio.tasks", "trio._core._run", "gevent.hub", deferreds.MODULE)
MAX_TASKS = 100_000
FOREVER = 1e9  # seconds of trio.sleep_forever
_RUN = "trio/_core/_run.py"


class Runner(NamedTuple):
    """A trio loop, or a hub of gevent, that runs: its `address`, the `tid` of its thread, how many tasks are `ready`, the
    address of its `main` task; `timers`: how many deadlines it has. Without any it wakes once a day."""

    address: int
    tid: int
    ready: int
    main: int
    timers: int


_HUB = "gevent/"
_OUTERMOST = ("<module>", "_bootstrap", "_run_module_as_main")


def used(rt: Runtime) -> bool:
    """Whether the process has imported a scheduler of tasks."""
    return rt.has_module(MODULES)


def tasks(rt: Runtime, finished: bool = False, shown: Callable[[str], str] = str) -> tuple[list[Task], list[str]]:
    """As `tasks.tasks`, of all schedulers; `NotFoundError` where there is none."""
    found: list[Task] = []
    reasons: list[str] = []
    if rt.has_module(MODULES[:1]) or not used(rt):
        found, reasons = asyncio_tasks.tasks(rt, finished, shown)
    for runner, tid in _runners(rt):
        try:
            ready = {one.address for one in runner.attr("runq").elements(MAX_TASKS)}
            own = [_task(rt, one, runner, tid, ready) for one in runner.attr("tasks").elements(MAX_TASKS)]
            found += sorted((task for task in own if not task.name.startswith("<")), key=lambda task: task.name)
        except (GdbextError, AttributeError) as e:
            reasons.append(f"the tasks of trio: {e}")
    if rt.has_module(MODULES[2:3]):
        known, why = _greenlets(rt)
        hubs = {one.tid: one.address for one in known if one.type_name == "Hub" and one.tid}
        found += [_greenlet(one, hubs[one.tid]) for one in known if one.tid in hubs and one.state == "suspended" and one.frames]
        reasons += why
    if rt.has_module(MODULES[3:]):
        found += deferreds.tasks(rt)
    return found, reasons


def _greenlets(rt: Runtime) -> tuple[list[greenlets.Greenlet], list[str]]:
    """The greenlets of a process; the heap is walked once a reading, and only where a thread stands in gevent's hub, or in a
    function that neither a program nor a thread begins with: in a greenlet."""

    def found() -> tuple[list[greenlets.Greenlet], list[str]]:
        stacks = [frames for frames in map(rt.frames, rt.threads()) if frames]
        inside = any(str(frames[-1].function).rpartition(".")[2] not in _OUTERMOST for frames in stacks)
        files = (frame.file.replace("\\", "/") for frames in stacks for frame in frames)
        return greenlets.greenlets(rt) if inside or any(_HUB in file for file in files) else ([], [])

    known: tuple[list[greenlets.Greenlet], list[str]] = rt.target.cached(("greenlets of hubs",), found)
    return known


def _greenlet(one: greenlets.Greenlet, hub: int) -> Task:
    """A suspended greenlet as a task of its thread's hub."""
    task = Task(one.address)
    outer = one.frames[-1].function
    task.name, task.coroutine = ("main greenlet" if one.is_main else f"greenlet {outer}"), outer
    task.state, task.loop, task.tid, task.frames = "waiting", hub, one.tid, one.frames
    task.waits = Waiting("greenlet", "an event of its hub")
    return task


def runners(rt: Runtime) -> list[Runner]:
    """The trio loops that run."""
    found = []
    for runner, tid in _runners(rt):
        with log.passing_over(GdbextError, AttributeError):
            main, timers = runner.attr("main_task").address, int(runner.attr("deadlines").attr("_active").integer())
            found.append(Runner(runner.address, tid, runner.attr("runq").len(), main, timers))
    if rt.has_module(MODULES[2:3]):
        known, _ = _greenlets(rt)
        mains = {one.tid: one.address for one in known if one.is_main}
        found += [
            Runner(one.address, one.tid, 0, mains.get(one.tid, 0), 1) for one in known if one.type_name == "Hub" and one.tid
        ]
    return found


def _runners(rt: Runtime) -> Iterator[tuple[Object, int]]:
    """(a trio loop's Runner, the tid of its thread)"""
    for thread in rt.threads() if rt.has_module(MODULES[1:2]) else ():
        with log.passing_over(GdbextError, AttributeError, KeyError):
            for frame in rt.frames(thread):
                if frame.function == "run" and frame.file.replace("\\", "/").endswith(_RUN):
                    runner: Any = dict(frame.locals())["runner"]
                    yield runner, thread.tid
                    break


def _task(rt: Runtime, obj: Object, runner: Object, tid: int, ready: set[int]) -> Task:
    task = Task(obj.address)
    task.name, task.loop, task.tid = obj.attr("name").string(300), runner.address, tid
    frames, _, executing = chain(rt, obj.attr("coro").address)
    task.frames = frames[::-1]
    task.coroutine = frames[0].function if frames else ""
    for level, frame in enumerate(task.frames):
        frame.level, frame.stack, frame.tid = level, task.frames, tid
    task.state = "running" if executing else "ready" if obj.address in ready else "waiting"
    if task.state == "waiting":
        task.waits = _waits(task.frames[:8])
    return task


def _waits(frames: list[PyFrame]) -> Waiting:
    """What a task of trio waits for, by the library's frames."""
    for frame in frames:
        path, name = frame.file.replace("\\", "/"), frame.function.rpartition(".")[2]
        if "/trio/" not in path:
            break
        with log.passing_over(GdbextError, AttributeError, KeyError):
            own: dict[str, Any] = dict(frame.locals())
            if name == "_nested_child_finished":
                children = list(own["self"].attr("_children").elements(MAX_TASKS))
                names = ", ".join(one.attr("name").string(80).rpartition(".")[2] for one in children[:3])
                some = f"{len(children)} tasks of a nursery: {names}" + ", …" * (len(children) > 3)
                return Waiting("group", some, own["self"], [one.address for one in children])
            if path.endswith("/_timeouts.py") and name.startswith("sleep"):
                left = own["seconds"].plain() if "seconds" in own else FOREVER
                seconds = min(float(left), FOREVER) if isinstance(left, (int, float)) and not math.isnan(left) else None
                return Waiting("sleep", f"sleep({left})" if "seconds" in own else name, seconds=seconds)
            if name == "to_thread_run_sync":
                return Waiting("future", "the work of a thread", own["task_register"])
    outer = next((frame for frame in frames if "/trio/" not in frame.file.replace("\\", "/")), None)
    inner = [frame for frame in frames if outer is None or frame.level < outer.level]
    return Waiting("awaitable", inner[-1].function if inner else "an event of its loop")
