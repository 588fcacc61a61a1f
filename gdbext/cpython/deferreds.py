"""The coroutines and generators of Twisted that wait for a Deferred, as tasks of the thread that runs the reactor.

Source: twisted/internet/defer.py (`_inlineCallbacks`, `Deferred.callbacks`) and base.py (`mainLoop`) of Twisted 26.10.
"""

from __future__ import annotations

from typing import Iterator

from .. import log
from ..errors import GdbextError
from . import gc
from .objects import Object
from .runtime import Runtime
from .task_waits import Waiting
from .tasks import Task, chain

MODULE = "twisted.internet.defer"
MAX_WALKED, MAX_TASKS = 3_000_000, 20_000  # objects of the heap; tasks among them
_REACTOR = "twisted/internet/base.py"
_STEPS = ("generator", "coroutine")


def tasks(rt: Runtime) -> list[Task]:
    """Those that wait, in the order of their names; none where no thread stands in a reactor, or the heap cannot be walked."""
    found: dict[int, Task] = {}
    tid = _reactors_thread(rt)
    if tid is not None:
        with log.passing_over(GdbextError):  # a free-threaded build has no lists to walk
            for deferred in _deferreds(rt):
                with log.passing_over(GdbextError, AttributeError):
                    for step in _resumed(deferred):
                        found[step.address] = _task(rt, step, deferred, tid)
    return sorted((one for one in found.values() if one.frames), key=lambda one: (one.name, one.address))


def _reactors_thread(rt: Runtime) -> int | None:
    for thread in rt.threads():
        with log.passing_over(GdbextError):
            for frame in rt.frames(thread):
                if frame.function.endswith("mainLoop") and frame.file.replace("\\", "/").endswith(_REACTOR):
                    return thread.tid
    return None


def _deferreds(rt: Runtime) -> Iterator[Object]:
    kinds: dict[int, bool] = {}
    for count, (address, kind) in enumerate(gc.tracked(rt)):
        if kind not in kinds:
            kinds[kind] = False
            with log.passing_over(GdbextError):
                kinds[kind] = any(one.name == "Deferred" and one.module == MODULE for one in rt.type(kind).bases())
        if kinds[kind]:
            yield rt.object(address)
        if count >= MAX_WALKED:
            return


def _resumed(deferred: Object) -> Iterator[Object]:
    """The coroutines and generators that go on when a Deferred fires: `callbacks` has ((call, arguments, keywords), the same for
    a failure), and `_inlineCallbacks` adds its generator as an argument."""
    for entry in deferred.attr("callbacks").elements(16):
        with log.passing_over(GdbextError):  # one of another form hides no other
            arguments = entry.first(1)[0].first(3)[1]
            yield from [one for one in arguments.elements(4) if one.type.builtin_name in _STEPS]


def _task(rt: Runtime, step: Object, deferred: Object, tid: int) -> Task:
    task = Task(step.address)
    frames, _, executing = chain(rt, step.address)
    task.frames, task.tid = frames[::-1], tid
    task.name = task.coroutine = frames[0].function if frames else ""
    for level, frame in enumerate(task.frames):
        frame.level, frame.stack, frame.tid = level, task.frames, tid
    task.state = "running" if executing else "waiting"
    task.waits = Waiting("future", "a Deferred", deferred) if not executing else None
    return task
