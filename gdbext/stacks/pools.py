"""The thread of an executor that runs the work of a `concurrent.futures.Future`, or the executor whose queue holds it.

Source: Lib/concurrent/futures/thread.py (`_worker`, `_WorkItem.run`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import log
from ..cpython.simple_queues import items
from ..errors import GdbextError
from .python_waits import last_part, path_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..cpython.objects import Object

THREADS = "concurrent/futures/thread.py"


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
