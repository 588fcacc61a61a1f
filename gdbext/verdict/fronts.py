"""Exchanges that a server has taken and not answered, among the facts: the task or thread that has each."""

from __future__ import annotations

from typing import Any

from ..engines import exchanges
from .facts import Facts, Node


def node_of(facts: Facts, r: Any) -> Node:
    """The task or thread that has an exchange (`requests.model.Tracked`); None for a request that the engine knows."""
    exchange = getattr(r, "exchange", None)
    if exchange is None or r.at is None:
        return None
    f = next((f for f in facts if f.name == r.at.label), None)
    if f is None:
        return None
    tasks = [task for task in f.tasks if f"task {exchange.task}" == task.node[1].partition(" 0x")[0]] if exchange.task else []
    task = next((task for task in tasks if task.address == exchange.address), tasks[0] if len(tasks) == 1 else None)
    if task is not None:
        return task.node
    return next((t.node for t in f.threads if t.node[1] == r.at.tid and not exchange.task), None)


def open_at(facts: Facts) -> list[Node]:
    """The tasks and threads that serve an exchange and do not wait for its client."""
    tasks = [(task.node, task.python) for f in facts for task in f.tasks]
    threads = [(t.node, [one for one in t.frames if one.kind == "python"]) for f in facts for t in f.threads if not t.idle]
    found = [(node, frames, exchanges.served(frames), node in dict(tasks)) for node, frames in [*tasks, *threads]]
    own = [(node, frames) for node, frames, one, is_task in found if one is not None and (is_task or not one[0].by_task)]
    return [node for node, frames in own if not exchanges.waits_for_client(frames)]
