"""Observations that contradict each other, or prove that a wait has no end: rings of any waits, loops that sleep though they have
work, waits for an object that is there, waits that nothing left can end."""

from __future__ import annotations

from typing import Iterator

from ...access.proctable import is_fork
from ...stacks.async_waits import LoopState, TaskState
from ..closed import awaited_by, closed, waits_to_end
from ..facts import Facts, ProcessState, ThreadState, Verdict
from ..graph import step
from ..walk import chain_of, knot
from ..words import describe, describe_node, name_of

SHOWN = 8
_WORKER = "multiprocessing/process.py", "_bootstrap"  # the outermost Python function of a process that multiprocessing began
_SELECTS = ("epoll", "select", "poll")


def ring(facts: Facts) -> Verdict | None:
    """Threads, tasks and processes that wait for one another in a ring: through locks, joins, pools, pipes and children."""
    nodes = knot(facts)
    if not nodes:
        return None
    evidence = []
    for node in list(nodes)[:SHOWN]:
        who = ", ".join(name_of(facts, one) for one in nodes[node][:SHOWN])
        evidence.append(f"{name_of(facts, node)} waits for {step(facts, node).waits_for}: for {who}")
    evidence.append("none of them can continue, and nothing else can end one of these waits")
    waiters = [e.waiter for e in facts.edges if e.waiter not in nodes]
    victims = [name_of(facts, node) for node in waiters if chain_of(facts, node).end.node in nodes]
    return Verdict("lock-cycle", nodes, evidence, victims[:SHOWN])


def asleep(facts: Facts) -> Verdict | None:
    """A loop that sleeps in its selector during the whole window though a callback or task of it could run. Another thread gave
    it that work and did not wake it."""
    for f in facts:
        for loop, t in _sleeping_loops(f):
            given = [task for task in f.tasks if task.loop == loop.address and _could_go_on(f, task)]
            if not loop.ready and not given:
                continue
            count = loop.ready or len(given)
            evidence = [
                f"{describe(t)}: its event loop sleeps in its selector, though {count} of its callbacks or tasks could run",
                "another thread wakes a loop only by call_soon_threadsafe or run_coroutine_threadsafe",
            ]
            evidence += [
                f"{describe_node(facts, task.node)}: {task.edge.open}" for task in given[:SHOWN] if task.edge is not None
            ]
            found = Verdict("loop-blocked", [t.node], evidence, [name_of(facts, task.node) for task in given[:SHOWN]])
            found.again = True
            return found
    return None


def _sleeping_loops(f: ProcessState) -> Iterator[tuple[LoopState, ThreadState]]:
    for loop in f.loops:
        t = next((t for t in f.threads if t.node[1] == loop.tid), None)
        if t is None or t.load is None or t.woke or not t.still or loop.turned or loop.running:
            continue
        if t.call is not None and t.call.name in _SELECTS:
            yield loop, t


def _could_go_on(f: ProcessState, task: TaskState) -> bool:
    return task.state == "waiting" and task.edge is not None and bool(task.edge.open) and task.node not in f.moved_tasks


def there(facts: Facts) -> Verdict | None:
    """A thread that sleeps though the object of its wait is there: an item in the queue, an event that is set, a future that is
    done."""
    for f in facts:
        for t in f.threads:
            if t.edge is None or not t.edge.open or t.load is None or t.woke or not t.held_up or not t.still:
                continue
            evidence = [f"{describe(t)}: {t.edge.open}", "it was not woken, and is still blocked"]
            found = Verdict("starved", [t.node], evidence)
            found.again = True
            return found
    return None


def _is_missed(facts: Facts, f: ProcessState, stand: list[ProcessState]) -> bool:
    """Whether it matters that a process stands: a worker of another process is at rest all the same where that one goes on and
    does not wait for it."""
    pids = {one.pid for one in stand}
    parents = {one.pid for one in facts} & f.ancestors
    works_for = (
        parents
        or f.main is not None
        and any(x.kind == "python" and x.file.endswith(_WORKER[0]) and x.function.endswith(_WORKER[1]) for x in f.main.frames)
    )
    return not works_for or bool(pids & f.ancestors) or any(f.pid in awaited_by(one) for one in facts if one.pid not in pids)


def _fork(facts: Facts, f: ProcessState) -> str:
    """Of a process with one thread that seems to be a fork of one with several: that it lacks the others."""
    parent = next((one for one in facts if one.pid in f.ancestors and is_fork(one.program, f.program)), None)
    if parent is None or len(parent.threads) + parent.left_out < 2 or len(f.threads) + f.left_out > 1:
        return ""
    return f"; {f.name} seems to be a fork of {parent.name}, whose other threads were not copied"


def nobody(facts: Facts) -> Verdict | None:
    """Processes in which every thread waits for something that only one of their own threads and tasks could give."""
    stand = closed(facts)
    waits = [wait for f in stand if _is_missed(facts, f, stand) for wait in waits_to_end(f)][:SHOWN]
    if not waits:
        return None
    evidence = [f"{name_of(facts, node)} waits for {what}" for node, what in waits]
    alone = len(stand) == 1 and len(stand[0].threads) + stand[0].left_out == 1 and not stand[0].loops
    names = ", ".join(f.name for f in stand[:SHOWN])
    why = (
        "it is the only thread of its process"
        if alone
        else f"all threads and tasks of {names} wait for what none of them provides"
    )
    why += "".join(_fork(facts, f) for f in stand)
    return Verdict("starved", [], [*evidence, f"{why}: nothing can end that wait"], [name_of(facts, node) for node, _ in waits])
