"""Threads that wait for work in the place of all: consumers of one queue, a server's threads round one accept(), workers of an
idle pool.

One of them has the lock and waits for the next item; the others wait for that lock in the same function. The holder keeps nothing
that the others could use meanwhile. Where another thread wants the lock for something else, or the holder does something else,
the lock counts as held.
"""

from __future__ import annotations

import re
from typing import Any, Sequence

from ..primitives.table import ASYNCIO, LIBRARY, TAKES
from ..stacks.python_waits import last_part, path_of
from ..stacks.waits import Edge
from .facts import LOCKS, Facts, Node

_ENTERS = ("__enter__", "__aenter__", "acquire")
_LOCKS = re.compile(r"lock|mutex", re.I)  # of native code, on the way to a mutex
_WAITS = ("input", "queue", "event", "ring")


def same_lock(e: Edge) -> Any:
    """A key that is equal for two edges of one lock."""
    return e.shared if e.shared is not None else (e.waiter[0], e.address)


def taken_in_turn(facts: Facts, edge: Edge) -> bool:
    """Whether the owner of a lock waits for work in the very place where all that want the lock would wait for it."""
    return edge.owner is not None and edge.kind in LOCKS and _waits(facts, edge.owner) and in_one_place(facts, edge)


def in_one_place(facts: Facts, edge: Edge) -> bool:
    """Whether all that want a lock want it in functions in which its owner is: they will do what it does."""
    inside = set(_places(facts, edge.owner))
    return all(_place(facts, waiter) in inside for waiter in wanted_by(facts, edge))


def wanted_by(facts: Facts, edge: Edge) -> list[Node]:
    """The threads and tasks that wait for the lock of an edge."""
    return [e.waiter for e in facts.edges if same_lock(e) == same_lock(edge)]


def gets_for_all(facts: Facts, node: Node) -> bool:
    """Whether a thread receives from a multiprocessing queue, whose own lock it has meanwhile. The queue's producers owe it
    nothing while there are no items."""
    return any(path.endswith(TAKES.file) and last_part(name) in TAKES.functions for path, name in _places(facts, node))


def behind(facts: Facts, node: Node) -> set[int]:
    """Pids of processes that wait for a lock whose owner waits for work in the place of all."""
    names = {e.waiter[0] for e in facts.edges if e.owner == node and taken_in_turn(facts, e)}
    return {f.pid for f in facts if f.name in names}


def _waits(facts: Facts, node: Node) -> bool:
    t, task = facts.thread(node), facts.task(node)
    if t is not None:
        return not t.works and not t.moved and t.does in _WAITS
    return task is not None and task.state == "waiting" and task.kind not in ("sleep", "executor")


def _frames(facts: Facts, node: Node) -> Sequence[Any]:
    t, task = facts.thread(node), facts.task(node)
    return t.frames if t is not None else task.python if task is not None else ()


def _key(frame: Any) -> tuple[str, str]:
    return path_of(frame), frame.function or ""


def _places(facts: Facts, node: Node) -> list[tuple[str, str]]:
    return [_key(f) for f in _frames(facts, node) if f.function]


def _place(facts: Facts, node: Node) -> tuple[str, str] | None:
    """The function that wants the lock: the innermost that does not belong to the lock."""
    t = facts.thread(node)
    frames = _frames(facts, node)
    if t is not None and t.edge is not None and t.edge.kind in ("mutex", "rwlock"):
        libc = ("libc.so.6", "libpthread.so.0")
        return next((_key(f) for f in frames if f.kind == "python" or not _of_lock(f) and not path_of(f).endswith(libc)), None)
    for f in frames:
        path, name = _key(f)
        if getattr(f, "kind", "python") == "native" or name.rpartition(".")[2] in _ENTERS and path.endswith((*LIBRARY, *ASYNCIO)):
            continue
        return path, name
    return None


def _of_lock(frame: Any) -> bool:
    return not frame.function or bool(_LOCKS.search(frame.function))
