"""The nodes that could end a wait, where all of them are known. A proof that a wait has no end needs this; a chain does not.

A knot is a set of threads and tasks that wait during the whole window. Each waits for one of the set, or for any of several that
are all in the set. So nothing outside the set can end any of these waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..primitives import table
from ..stacks.async_waits import RUNNABLE
from ..stacks.waits import Edge
from .facts import LOCKS
from .follow import OUTSIDE, awaited_pids, ends_of, in_selector
from .turns import behind, taken_in_turn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..observe.system_calls import Call
    from .facts import Facts, Node, ProcessState, ThreadState

MAX_NAMED = 3  # threads


def enders(facts: Facts, node: Node) -> tuple[list[Node], bool] | None:
    """(the nodes that could end the wait of a thread or task, whether every one of them has to); None where not all of them are
    known. No nodes: a wait that nothing can end."""
    t, task, f = facts.thread(node), facts.task(node), facts.process(node)
    if f is None:
        return None
    if task is not None:
        if node in f.moved_tasks or task.state != "waiting":
            return None
        if task.edge is not None:
            return _of_edge(facts, f, task.edge)
        return _of_call(facts, f, node, task.call) if task.call is not None else None
    if t is None or t.load is None or f.state in ("Z", "X", "T", "t"):
        return None
    if t.edge is not None:
        return _of_edge(facts, f, t.edge) if t.held_up and not t.denied else None
    if not t.still or t.woke or t.call is None or t.call.limited:
        return None
    loop = f.loop_of(t.node[1])
    if loop is not None and loop.main is not None and in_selector(f, t, loop) and f in facts.once(closed):
        return [loop.main], False
    return _of_call(facts, f, t.node, t.call)


def _of_edge(facts: Facts, f: ProcessState, edge: Edge) -> tuple[list[Node], bool] | None:
    permits = edge.owner is not None and edge.kind.endswith("Semaphore") and f in facts.once(closed)  # they are with these too
    if edge.open or edge.doubted and not permits or edge.limit and edge.kind not in LOCKS:
        return None
    if edge.kind == "Process":
        return _ends_of(facts, f, [edge.pid]) if edge.pid else None
    if edge.every:
        return edge.candidates, True
    if edge.kind in LOCKS or edge.kind in ("GIL", "Thread"):
        if edge.kind == "rwlock" and edge.owner is None and not edge.orphan and f in facts.once(closed):
            return [t.node for t in f.threads if t.node != edge.waiter], False  # it counts its readers: any thread may be one
        turn = edge.kind in LOCKS and taken_in_turn(facts, edge)
        return ([edge.owner], False) if edge.owner is not None and not turn else None
    if edge.kind == "task":
        return (edge.candidates, True) if edge.candidates else None
    if edge.kind == "Future":
        return ([edge.owner], False) if edge.owner is not None else (edge.candidates, False) if edge.pool else None
    return None


def _ends_of(facts: Facts, f: ProcessState, pids: Sequence[int]) -> tuple[list[Node], bool] | None:
    """The main threads of children, for a wait that ends when they end. None where one was not sampled or is gone."""
    mains = [other.main.node for other in facts if other.pid in pids and other.main is not None]
    dead = {pid for pid, _ in f.dead_children}
    return (mains, False) if mains and len(mains) == len(set(pids)) and not dead & set(pids) else None


def _of_call(facts: Facts, f: ProcessState, node: Node, call: Call) -> tuple[list[Node], bool] | None:
    if call.name == "wait":
        return _ends_of(facts, f, call.peers)
    if call.name not in ("read", "recv", "write", "poll", "select") or not call.sources or f.signals or f.hidden:
        return None
    found: list[Node] = []
    for source in call.sources:
        if (
            source.kind in OUTSIDE
            and not source.peers
            or source.kind not in ("pipe", "unix", "served", "client")
            or source.unread
            or source.is_named
        ):
            return None
        able = set(ends_of(f, call, source))
        if able <= {f.pid} and (able or source.kind != "pipe"):
            return None  # only this process has it; or the other end is on another machine, or in a process that cannot be read
        threads = _threads(facts, able, node=node)
        if threads is None:
            return None
        found += threads
    waiting = behind(facts, node)
    return [one for one in dict.fromkeys(found) if getattr(facts.process(one), "pid", 0) not in waiting], False


def _threads(facts: Facts, pids: Iterable[int], node: Node) -> list[Node] | None:
    """All threads of some processes that may act by themselves, without `node`. Idle helpers are left out: they get their work
    from these."""
    found = []
    for pid in pids:
        f = next((one for one in facts if one.pid == pid), None)
        if f is None or not f.threads or f.signals:
            return None
        for t in f.threads:
            served = t.call is not None and any(source.kind in OUTSIDE for source in t.call.sources)
            if t.node != node and (t.main or served or not t.idle):
                found.append(t.node)
    return found


def knot(facts: Facts) -> dict[Node, list[Node]]:
    """{a thread or task of a knot: the nodes that could end its wait}; {} where there is no knot. Threads and tasks that only
    wait for the knot are left out."""
    known = {}
    for node in [t.node for f in facts for t in f.threads] + [t.node for f in facts for t in f.tasks]:
        found = enders(facts, node)
        if found is not None and found[0]:
            known[node] = found
    while True:  # find the largest set in which each waits only for members of the set
        free = [
            node
            for node, (who, every) in known.items()
            if not (any(one in known for one in who) if every else all(one in known for one in who))
        ]
        if not free:
            break
        for node in free:
            del known[node]
    while True:  # drop those that no member waits for
        awaited = {one for who, _ in known.values() for one in who}
        only = [node for node in known if node not in awaited]
        if not only:
            return {node: who for node, (who, _) in known.items()}
        for node in only:
            del known[node]


def awaited_by(f: ProcessState) -> set[int]:
    """The pids of processes for which a thread of a process waits, with a time limit or without."""
    found = awaited_pids(f)
    for t in f.threads:
        found |= _at_other_ends(f, t.call) or set() if t.call is not None and t.call.name in _FILES else set()
    return found


def depends_on(facts: Facts) -> set[int]:
    """The pids of processes without which a sampled process cannot make progress."""
    return {pid for f in facts for pid in _needed(facts, f) or ()}


def acts(facts: Facts, f: ProcessState, t: ThreadState) -> bool:
    """Whether a thread may do something by itself: it runs, has a time limit, or waits for what comes from elsewhere."""
    return _needed_by(facts, f, t) is None


def _acting(facts: Facts) -> dict[int, list[ThreadState]]:
    """{id of a `ProcessState`: its threads that may act by themselves}"""
    return {id(f): [t for t in f.threads if acts(facts, f, t)] for f in facts}


def who_may(facts: Facts, f: ProcessState, node: Node) -> str:
    """What may still end the wait of a thread or task for an object of its own process that no Python frame names, in words; ''
    where it is proven that nothing can: `closed`."""
    if f in facts.once(closed):
        return ""
    others = [t for t in facts.once(_acting)[id(f)] if t.node != node]
    native = sum(not t.python for t in others) + f.unsent
    python = [t for t in others if t.python and not t.idle and f.loop_of(t.node[1]) is None]
    loops = [t for t in others if t.python and f.loop_of(t.node[1]) is not None]
    t = facts.thread(node)
    may = ["its own time limit ends it"] if t is not None and t.edge is None and t.call is not None and t.call.limited else []
    may += [f"the process's own handler of {', '.join(f.signals[:4])} may, which is not read"] if f.signals else []
    may += [f"{native} native thread{'s' * (native != 1)} may"] if native else []
    may += ["a callback of the event loop may"] if loops else []
    if python:
        names = ", ".join(f"{t.node[1]} ({t.name})" if t.name else str(t.node[1]) for t in python[:MAX_NAMED])
        more = f" and {len(python) - MAX_NAMED} more" if len(python) > MAX_NAMED else ""
        may.append(f"thread {names}{more} may, by a way that its frames do not show")
    return "; ".join(may) or "that nothing else ends it is not proven"


def closed(facts: Facts) -> list[ProcessState]:
    """The processes in which no thread is left that could end any wait. No thread of them runs or has a time limit, and they have
    no signal handlers. Each thread waits for another of these processes, or for something that only one of them could give. An
    idle helper waits for work from them."""
    needs = {f.pid: _needed(facts, f) for f in facts}
    left = {pid: needed for pid, needed in needs.items() if needed is not None}
    while True:
        free = [pid for pid, needed in left.items() if not needed <= left.keys()]
        if not free:
            return [f for f in facts if f.pid in left]
        for pid in free:
            del left[pid]


def waits_to_end(f: ProcessState) -> list[tuple[Node, str]]:
    """What the threads and tasks of a process wait for, in words; [] where all of them only wait for the program's own end."""
    edges = [t.edge for t in f.threads if t.edge is not None and not t.idle]
    edges += [task.edge for task in f.tasks if task.edge is not None and f.loop_with(task.loop) is not None]
    waits = [(edge.waiter, _in_words(edge)) for edge in edges]
    meant = any(edge.kind in WITHIN and edge.kind not in ENDS and _is_meant(edge) for edge in edges)
    t = f.main
    if t is not None and t.edge is None and t.call is not None and t.call.name in ("read", "recv", "write"):
        if _at_other_ends(f, t.call) == {f.pid}:
            meant, text = True, ", ".join(source.text for source in t.call.sources)
            waits.insert(0, (t.node, f"{text}, of which it has the other end itself, in {t.top}"))
    return waits if meant else []


def _in_words(edge: Edge) -> str:
    copies = f"; {edge.note}" if edge.note and edge.kind not in LOCKS and not edge.orphan else ""
    return edge.lock + (f" in {edge.where}" if edge.where else "") + copies


# Kinds of waits that only a thread or task of the same process ends, unless the object is shared; by the end of one of them
ENDS = ("Thread", "task")
_FILES = ("read", "recv", "write", "epoll", "poll", "select")
WITHIN = (
    *ENDS,
    *("rwlock", "barrier", "once", "guard"),  # that of one process's own threads: see `Call.shared`
    *table.WITHIN,
)


def _is_meant(edge: Edge) -> bool:
    """Whether the wait was meant to end. An event that only the waiter can name is waited for until the program ends."""
    return not edge.kind.endswith("Event") or edge.named


def _needed(facts: Facts, f: ProcessState) -> set[int] | None:
    """The pids of the other processes on which all waits of a process depend; None where something else might end one of them."""
    if f.main is None or f.role or f.signals or f.rings or f.unsent or f.state in ("T", "t", "Z", "X"):
        return None
    found: set[int] = set()
    for t in f.threads:
        needed = _needed_by(facts, f, t)
        if needed is None:
            return None
        found |= needed
    return found - {f.pid}


def _needed_by(facts: Facts, f: ProcessState, t: ThreadState) -> set[int] | None:
    """As `_needed`, for one thread."""
    if t.load is None or t.woke or not t.still or t.call is not None and t.call.limited:
        return None
    if t.call is not None and t.call.shared and not (t.edge is not None and t.edge.shared):
        return None  # a Python object in memory that other processes may share
    if t.edge is not None:
        return _needed_for(facts, t.edge) if t.held_up else None
    if t.call is None:
        return None
    if t.call.name == "wait" and t.call.peers:
        return set(t.call.peers)
    loop = f.loop_of(t.node[1])
    if loop is not None and (loop.ready or loop.running):
        return None
    if t.idle and t.call.name == "futex":
        return set()
    return _at_other_ends(f, t.call) if t.call.name in _FILES else None


def _at_other_ends(f: ProcessState, call: Call) -> set[int] | None:
    """The processes that have the other ends of everything that a call waits for; None where an end is not known."""
    found: set[int] = set()
    if f.hidden:
        return None
    for source in call.sources:
        known = source.kind == "pipe" and not source.is_named or source.kind in ("unix", "served", "client") and not source.unread
        ends = set(ends_of(f, call, source)) if known else set()
        if not ends:
            return None
        found |= ends
    return found or None


def _needed_for(facts: Facts, edge: Edge) -> set[int] | None:
    """As `_needed`, for one wait."""
    if edge.limit or edge.open or edge.polls:
        return None
    if edge.kind == "Process":
        return {edge.pid} if edge.pid else None
    if edge.kind == "Job":
        return set(edge.pids)
    if edge.shared:
        owner = facts.process(edge.owner) if edge.owner is not None else None
        return {owner.pid} if owner is not None else None
    return set() if edge.kind in WITHIN else None


def reads_its_own_pipe(f: ProcessState, t: ThreadState) -> bool:
    """Whether a thread reads a pipe that only its own process can write."""
    reads = t.call is not None and t.call.name == "read" and [source.kind for source in t.call.sources] == ["pipe"]
    return reads and t.call is not None and _at_other_ends(f, t.call) == {f.pid}


def turns_in_vain(f: ProcessState, t: ThreadState) -> bool:
    """Whether a thread's event loop runs one task over and over and nothing of the task changes: it yields by sleep(0) and asks
    again. No task of the loop makes progress meanwhile. Of a loop that could not be read, the tasks count that have none."""
    loop = f.loop_of(t.node[1])
    if loop is not None:
        loops = {loop.address}
    elif any(frame.file.endswith("asyncio/base_events.py") for frame in t.frames):
        loops = {task.loop for task in f.tasks} - {one.address for one in f.loops}
    else:
        loops = set()
    tasks = [task for task in f.tasks if task.loop in loops and task.kind != "sleep"]
    moved = any(task.node in f.moved_tasks for task in tasks)
    return not moved and any(task.state in RUNNABLE for task in tasks)
