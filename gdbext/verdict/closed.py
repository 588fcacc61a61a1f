"""Processes that nothing left can move, and who else may end a wait: what a proof that a wait has no end needs."""

from __future__ import annotations

from ..observe.system_calls import Call
from ..primitives import table
from ..stacks.async_waits import RUNNABLE
from ..stacks.waits import Edge
from .facts import LOCKS, Facts, Node, ProcessState, ThreadState
from .nodes import awaited_pids, ends_of, handlers
from .words import futex_of

MAX_NAMED = 3  # threads


def awaited_by(f: ProcessState) -> set[int]:
    """The pids of processes for which a thread of a process waits, with a time limit or without."""
    found = awaited_pids(f)
    for t in f.threads:
        found |= at_other_ends(f, t.call) or set() if t.call is not None and t.call.name in _FILES else set()
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
    for one in f.threads:
        if one.edge is None and one.call is not None and one.call.name == "futex" and one.python and not one.idle:
            waits.append((one.node, futex_of(one)))
            meant = meant or f.main is one
    for t in f.threads:
        full = t.call is not None and t.call.name == "write" and not t.idle  # others may read for as long as the program runs
        if t.edge is None and t.call is not None and (full or t is f.main and t.call.name in ("read", "recv")):
            if at_other_ends(f, t.call) == {f.pid}:
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
    *("mutex", "rwlock", "barrier", "once", "guard", "semaphore", "condition"),  # that of its own threads: see `Call.shared`
    *table.WITHIN,
)


def _is_meant(edge: Edge) -> bool:
    """Whether the wait was meant to end. An event that only the waiter can name is waited for until the program ends."""
    return not edge.kind.endswith("Event") or edge.named


def _needed(facts: Facts, f: ProcessState) -> set[int] | None:
    """The pids of the other processes on which all waits of a process depend; None where something else might end one of them."""
    if f.main is None or f.role or handlers(f) or f.rings or f.unsent or f.state in ("T", "t", "Z", "X"):
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
    loop = f.loop_of(t.node[1])
    limited = t.call is not None and t.call.limited and not (loop is not None and loop.untimed)
    if t.load is None or t.woke or not t.still or limited:
        return None
    if t.call is not None and t.call.shared and not (t.edge is not None and t.edge.shared):
        return None  # a Python object in memory that other processes may share
    if t.edge is not None:
        return _needed_for(facts, t.edge) if t.held_up else None
    if t.call is None:
        return None
    if t.call.name == "wait" and t.call.peers:
        return set(t.call.peers)
    if loop is not None and (loop.ready or loop.running):
        return None
    if t.call.name == "futex":  # of its own process: it is not shared, and has no time limit
        return set()
    return at_other_ends(f, t.call) if t.call.name in _FILES else None


def at_other_ends(f: ProcessState, call: Call) -> set[int] | None:
    """The processes that have the other ends of everything that a call waits for; None where an end is not known."""
    found: set[int] = set()
    if f.hidden:
        return None
    for source in call.sources:
        known = source.kind == "pipe" and not source.is_named or source.kind == "terminal"  # who made it has its other end alone
        known = known or source.kind in ("unix", "served", "client") and (call.name == "write" or not source.unread)
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
    if edge.sharers:
        return set(edge.sharers)
    if edge.shared:
        owner = facts.process(edge.owner) if edge.owner is not None else None
        return {owner.pid} if owner is not None else None
    return set() if edge.kind in WITHIN else None


def reads_its_own_pipe(f: ProcessState, t: ThreadState) -> bool:
    """Whether a thread reads a pipe that only its own process can write."""
    reads = t.call is not None and t.call.name == "read" and [source.kind for source in t.call.sources] == ["pipe"]
    return reads and t.call is not None and at_other_ends(f, t.call) == {f.pid}


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
