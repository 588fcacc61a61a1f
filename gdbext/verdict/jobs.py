"""The threads that may give the result for which a thread waits at a pool of multiprocessing or a ProcessPoolExecutor."""

from __future__ import annotations

from ..primitives.table import POOLS
from ..stacks.waits import Edge
from .facts import Facts, Node, ThreadState

FILES = tuple(pool.file for pool in POOLS if pool.serves)
HELPERS = tuple(name for pool in POOLS for name in pool.serves)
WORKERS = tuple(name for pool in POOLS if pool.serves for name in pool.works)
LOST = "every worker waits for work, and none of them has it: a worker that has ended may have had it"
GONE = "the pool has no worker any more"


def why_lost(edge: Edge) -> str:
    """Why no one gives the result of `edge`, in words: a thread of the pool's own that has ended takes none in any more."""
    if edge.ended:
        return f"{', '.join(edge.ended)}, which takes the results of the pool in, has ended"
    return LOST if edge.pids or edge.candidates else GONE


def givers(facts: Facts, edge: Edge) -> tuple[list[Node], list[int]]:
    """(the threads that may give the result of `edge`, the pids of workers that were not read). A worker and a thread that hands
    work or results on may, unless it is blocked where it takes the next. Neither: no one can."""
    f = facts.process(edge.waiter)
    helpers = [t for t in f.threads if _inside(t, HELPERS) is not None and t.node != edge.waiter] if f is not None else []
    found = [t.node for t in helpers if not _takes_next(t)]
    mains = {other.pid: other.main for other in facts if other.main is not None and other.main.frames}
    workers = [mains[pid] for pid in edge.pids if pid in mains]
    workers += [t for t in map(facts.thread, edge.candidates) if t is not None]
    found += [t.node for t in workers if not _takes_next(t) or _stopped(facts, t)]
    if not found and not any(t.call is not None and t.call.name == "read" for t in workers):
        found = [t.node for t in workers]  # none of them reads the queue: a lock is between them and the next work
    return found, [pid for pid in edge.pids if pid not in mains]


def _stopped(facts: Facts, t: ThreadState) -> bool:
    f = facts.process(t.node)
    return f is not None and (bool(f.frozen) or f.state in ("T", "t"))


def _inside(t: ThreadState, functions: tuple[str, ...]) -> str | None:
    """The function that the pool's one of `functions` has called; None where the thread is in none."""
    python = [frame for frame in t.frames if frame.kind == "python"]
    for n, frame in enumerate(python):
        if f"/{frame.file}".replace("\\", "/").endswith(FILES) and frame.function.rpartition(".")[2] in functions:
            return python[n - 1].function.rpartition(".")[2] if n else ""
    return None


def _takes_next(t: ThreadState) -> bool:
    """Whether a thread of a pool was blocked during the whole window where it takes the next work or result: what it would take
    it from is empty."""
    inside = _inside(t, (*WORKERS, *HELPERS))
    if inside == "":  # the `get` of a queue of C code; from 3.13 on its lock is not known by its futex
        asleep = t.call is not None and t.call.name == "futex" and not t.call.limited
        takes = t.edge.how == "get" if t.edge is not None else asleep
    else:
        takes = inside in ("get", "recv", "recv_bytes", "wait_result_broken_or_wakeup")
    return takes and t.still and not t.woke
