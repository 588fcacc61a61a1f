"""The thread of an executor that runs the work of a `concurrent.futures.Future`, or the executor whose queue holds it.

Source: Lib/concurrent/futures/thread.py (`_worker`, `_WorkItem.run`), Modules/_queuemodule.c: `simplequeueobject` has a list and
a position before 3.13, a ring of pointers from 3.13 on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import log
from ..errors import GdbextError
from .python_waits import last_part, path_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..cpython.objects import Object

THREADS = "concurrent/futures/thread.py"
MAX_ITEMS = 4096  # of a queue


class Pools:
    """The thread pools of a process, read at the first call. `running`: {address of a Future: the thread that runs it}; `queued`:
    {address of a Future: all threads of the pool whose queue holds it}."""

    def __init__(self, threads: Sequence[Any]) -> None:
        self._threads = threads
        self._running: dict[int, Any] | None = None
        self._queued: dict[int, list[Any]] = {}

    def running(self, future: int) -> Any:
        """The thread that runs the work of the Future at an address; None where none does."""
        return self._read().get(future)

    def queued(self, future: int) -> list[Any]:
        """The threads of the pool whose queue has the work of the Future at an address; [] where none has it."""
        self._read()
        return self._queued.get(future, [])

    def _read(self) -> dict[int, Any]:
        if self._running is None:
            self._running = {}
            pools: dict[int, tuple[Object, list[Any]]] = {}
            for thread in self._threads:
                for frame in thread.python:
                    if not path_of(frame).endswith(THREADS):
                        continue
                    with log.passing_over(GdbextError, AttributeError, KeyError):
                        name, own = last_part(frame.function), dict(frame.locals())
                        if name == "_worker":
                            pools.setdefault(own["work_queue"].address, (own["work_queue"], []))[1].append(thread)
                        elif name == "run":
                            self._running[own["self"].attr("future").address] = thread
            for queue, workers in pools.values():
                with log.passing_over(GdbextError, AttributeError):
                    for item in items(queue):
                        if not item.is_none():
                            self._queued[item.attr("future").address] = workers
        return self._running


def items(queue: Object) -> list[Object]:
    """The items of a C queue.SimpleQueue, the first one first."""
    if queue.type.builtin_name != "_queue.SimpleQueue":
        raise GdbextError(f"{queue.type_name}: no SimpleQueue of C code")
    rt = queue.rt
    at = queue.address + (32 if rt.layout.free_threaded else 16)
    if rt.version >= (3, 13):
        _, get, pointers, room, count = rt.target.words(at + 8, 5)
        if not 0 <= count <= room or count > MAX_ITEMS or room and get >= room:
            raise GdbextError("the ring of a SimpleQueue does not hold together: it changed meanwhile, or this CPython's differs")
        words = rt.target.words(pointers, room) if count else []
        return [rt.object(words[(get + i) % room]) for i in range(count)]
    _, _, things, first = rt.target.words(at, 4)
    return list(rt.object(things).elements(MAX_ITEMS)[first:])
