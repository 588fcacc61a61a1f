"""What a program is for. A main thread or task that is parked, or waits for the end of others, is not blocked: the program is
what its other threads and tasks do."""

from __future__ import annotations

from ..stacks.waits import Edge
from .closed import ENDS
from .facts import Facts, Node, ProcessState
from .graph import step
from .nodes import from_outside, pool_at_work


def others(f: ProcessState, node: Node = None) -> list[Node]:
    """The threads and tasks of a process, without `node`, its main thread and idle helpers."""
    return [t.node for t in f.threads[1:] if t.python and not t.idle] + [t.node for t in f.tasks if t.node != node]


def parked(facts: Facts, node: Node) -> bool:
    """Whether a thread or task waits for nothing that its program does: its code only sleeps, or it waits for a signal, or for an
    event that a handler of a signal sets."""
    t, task, now, f = facts.thread(node), facts.task(node), step(facts, node), facts.process(node)
    if now.owned and now.edge is None and len(now.nodes) == 1:
        return parked(facts, now.nodes[0])  # the task that a loop runs for
    if now.edge is not None:
        return f is not None and any(now.edge.address in loop.signalled for loop in f.loops)
    if t is None:
        return task is not None and task.kind == "sleep" and task.for_good
    if t.call is None or t.edge is not None:
        return False
    signal = t.call.name in ("pause", "sigwait") and now.end is not None and now.end.outlook == "rests"
    return signal or t.call.name == "nanosleep" and t.for_good


def aims(facts: Facts, node: Node) -> list[Node]:
    """The nodes whose progress is that of a program whose main thread or task is `node`: itself, or what it waits for to end (a
    join, a gather, work of a pool); where it is parked, all others."""
    found: list[Node] = []
    seen, todo = set(), [node]
    while todo:
        one = todo.pop()
        now, f = step(facts, one), facts.process(one)
        if one in seen or f is None:
            continue
        seen.add(one)
        if parked(facts, one):
            found += others(f, one)
        elif now.nodes and (ends(facts, now.edge) if now.edge is not None else now.owned):
            todo += now.nodes
        else:
            found.append(one)
    return found


def ends(facts: Facts, edge: Edge) -> bool:
    """Whether a wait is for the end of other threads or tasks, or of the work that they do for a pool."""
    if edge.kind != "Future" or edge.pool:
        return edge.kind in ENDS or edge.pool
    f = facts.process(edge.waiter)
    jobs = {t.node for t in pool_at_work(f)} if f is not None else set()
    nodes = [edge.owner] if edge.owner is not None else edge.candidates
    return bool(nodes) and jobs.issuperset(nodes)


def serves(f: ProcessState) -> bool:
    """Whether a thread of it waits for input from outside."""
    return any(t.call is not None and from_outside(t.call) for t in f.threads)
