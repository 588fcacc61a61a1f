"""The thread of an executor that runs the work of a `concurrent.futures.Future`, the executor whose queue holds it, or the worker
processes that may have it.

Source: Lib/concurrent/futures/thread.py (`_worker`, `_WorkItem.run`), process.py (`_ExecutorManagerThread`).
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

from .. import log
from ..cpython.objects import Object
from ..cpython.simple_queues import items
from ..cpython.task_waits import chained, free_variables, is_task
from ..cpython.tasks import running_loops
from ..errors import GdbextError
from ..primitives.table import EXECUTORS, PROCESSES
from .python_waits import last_part, path_of
from .waits import Edge

MAX_CALLBACKS = 16  # of a future
MAX_PENDING = 4096  # jobs of a pool of processes


def task_behind(rt: Any, future: int) -> int:
    """The address of the asyncio task whose end a thread's Future passes on (run_coroutine_threadsafe); 0 for none."""
    with log.passing_over(GdbextError, AttributeError):
        callbacks = rt.object(future).attr("_done_callbacks").elements(MAX_CALLBACKS)
        return next((one.address for one in map(chained, callbacks) if one is not None and is_task(one)), 0)
    return 0


def loop_of(rt: Any, future: int) -> int:
    """The thread id of the event loop in whose queue a callback stands that is to begin the work of a Future; 0 for none."""
    with log.passing_over(GdbextError, AttributeError):
        for address, tid in running_loops(rt).items():
            for handle in rt.object(address).attr("_ready").elements(MAX_PENDING):
                callback = handle.attr("_callback")
                if callback.isa("function") and any(one.address == future for one in free_variables(callback).values()):
                    return tid
    return 0


class Pools:
    """The pools of a process, read at the first call. `running`: {address of a Future: the thread that runs it}; `queued`:
    {address of a Future: all threads of the pool whose queue holds it}; `workers`: {address of a Future: the pids of the pool of
    processes that has it}."""

    def __init__(self, threads: Sequence[Any]) -> None:
        self._threads = threads
        self._running: dict[int, Any] | None = None
        self._queued: dict[int, list[Any]] = {}
        self._workers: dict[int, list[int]] = {}

    def running(self, future: int) -> Any:
        """The thread that runs the work of the Future at an address; None where none does."""
        return self._read().get(future)

    def queued(self, future: int) -> list[Any]:
        """The threads of the pool whose queue has the work of the Future at an address; [] where none has it."""
        self._read()
        return self._queued.get(future, [])

    def workers(self, future: int) -> list[int]:
        """The pids of the workers of the pool that has the work of the Future at an address; [] where none has it."""
        self._read()
        return self._workers.get(future, [])

    def give(self, edge: Edge, future: int, node: Callable[[Any], Any]) -> bool:
        """Whether a pool has the work of the Future that `edge` waits for. Sets the node that runs it, or all that may run it."""
        runs, may, pids = self.running(future), self.queued(future), self.workers(future)
        if runs is not None:
            edge.owner = node(runs)
        elif may:
            edge.candidates, edge.pool = [node(th) for th in may], True
            edge.lock += f", in the queue of a pool of {len(may)} thread{'s' * (len(may) != 1)}"
        elif pids:
            edge.kind, edge.pids = "Job", pids
            edge.lock += f", work of a pool of {len(pids)} process{'es' * (len(pids) != 1)}"
        return runs is not None or bool(may or pids)

    def awaited(self, manager: Any) -> list[int]:
        """The pids of the workers for whose results the thread of an executor of processes waits; [] where it waits for none."""
        for frame in manager.python:
            if path_of(frame).endswith(PROCESSES) and last_part(frame.function) == "run":
                return self._pending(dict(frame.locals())["self"])[1]
        return []

    def _pending(self, manager: Any) -> tuple[list[int], list[int]]:
        """([address of the Future of each job that is pending], the pids of the workers, 0 for one that is not known here; []
        where no job is)"""
        futures = [job.attr("future").address for _, job in manager.attr("pending_work_items").items(MAX_PENDING)]
        here = manager.rt.target.pid_here
        pids = [here(pid.integer()) for pid, _ in manager.attr("processes").items(MAX_PENDING)] if futures else []
        return futures, pids

    def _read(self) -> dict[int, Any]:
        if self._running is None:
            self._running = {}
            pools: dict[int, tuple[Object, str, list[Any]]] = {}
            for thread in self._threads:
                for frame in thread.python:
                    if path_of(frame).endswith(PROCESSES) and last_part(frame.function) == "run":
                        with log.passing_over(GdbextError, AttributeError, KeyError):
                            futures, pids = self._pending(dict(frame.locals())["self"])
                            self._workers.update(dict.fromkeys(futures, pids))
                    self._add(thread, frame, pools)
            for queue, future, workers in pools.values():
                with log.passing_over(GdbextError, AttributeError):
                    for item in items(queue):
                        if not item.is_none():
                            self._queued[item.attr(future).address] = workers
        return self._running

    def _add(self, thread: Any, frame: Any, pools: dict[int, tuple[Object, str, list[Any]]]) -> None:
        """Notes the job that a frame of a thread runs, or the queue from which it takes jobs."""
        pool = next((one for file, one in EXECUTORS.items() if path_of(frame).endswith(file)), None)
        name = last_part(frame.function)
        if pool is None or self._running is None or name not in (*pool.works, pool.runs):
            return
        with log.passing_over(GdbextError, AttributeError, KeyError):
            own = dict(frame.locals())
            if name == pool.runs:
                self._running[own["self"].attr(pool.future).address] = thread
            else:
                pools.setdefault(own[pool.queue].address, (own[pool.queue], pool.future, []))[2].append(thread)
