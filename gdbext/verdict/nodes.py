"""What one node of the graph of waits does by itself, and which processes, threads and tasks have the other ends of its files."""

from __future__ import annotations

from typing import Iterable

from ..engines.shm_rings import Ring
from ..observe.system_calls import Call, Source
from ..observe.window import LONG, STILL
from ..primitives.table import EXECUTORS
from ..stacks import file_ends, ray_actors
from ..stacks.async_waits import LoopState, TaskState
from ..stacks.waits import Edge
from .facts import Facts, Node, ProcessState, ThreadState

OUTSIDE = ("listener", "served", "terminal")
SELECTS = ("epoll", "select", "poll")


def moves(facts: Facts, node: Node) -> bool:
    """Whether a thread or task makes progress, rather than repeating itself in one place."""
    t = facts.thread(node)
    if t is not None:
        return t.moved and t.advanced
    return any(node in f.moved_tasks for f in facts)


def naps(facts: Facts, node: Node, soon: float = LONG) -> bool:
    """Whether a thread or task is in one sleep that ends soon (seconds), rather than in one sleep after the other."""
    t, task = facts.thread(node), facts.task(node)
    if t is not None:
        return t.call is not None and t.call.name == "nanosleep" and not t.woke and 0 < t.call.seconds < soon
    f = facts.process(node)
    if f is None or task is None or standing_loop(f, task) is not None:
        return False
    return task.kind == "sleep" and (task.seconds or 0.0) < soon


def standing_loop(f: ProcessState, task: TaskState) -> ThreadState | None:
    """The thread of a task's event loop, where one callback keeps it: no task of it wakes. Else None."""
    loop = f.loop_with(task.loop)
    thread = next((t for t in f.threads if loop is not None and t.node[1] == loop.tid), None)
    return thread if loop is not None and thread is not None and keeps_loop(f, thread, loop) else None


def keeps_loop(f: ProcessState, t: ThreadState, loop: LoopState) -> bool:
    """Whether the loop of a thread is known not to have turned, and the thread is elsewhere than in its selector."""
    if in_selector(f, t, loop) or loop.turned is None and not (t.works or t.edge is not None and t.held_up):
        return False
    return not turned(f, t, loop)


def turned(f: ProcessState, t: ThreadState, loop: LoopState) -> bool:
    """Whether a loop took another callback in the window. Of one that is not read (uvloop's), whether anything of its tasks
    says so."""
    if loop.turned is not None:
        return loop.turned
    if any(c.moved for c in f.counters if "asyncio" in c.what) or f.moved_tasks:
        return True
    return t.moved and any(task.yields for task in f.tasks if task.loop == loop.address)


def sleeps(facts: Facts, node: Node) -> bool:
    """Whether a thread or task is in a sleep."""
    t, task = facts.thread(node), facts.task(node)
    if t is not None:
        return t.edge is None and t.call is not None and t.call.name == "nanosleep"
    return task is not None and task.kind == "sleep"


def in_selector(f: ProcessState, t: ThreadState, loop: LoopState) -> bool:
    """Whether the thread of a loop is in the loop's own selector: a task that runs may be in a call of the same name."""
    selects = t.call is not None and t.call.name in SELECTS
    return selects and not any(task.loop == loop.address and task.state == "running" for task in f.tasks)


def asks_only(f: ProcessState, loop: LoopState) -> TaskState | None:
    """A task of a loop that only asks, over and over: the one that the loop runs for, or another; None where any goes on."""
    tasks = [task for task in f.tasks if task.loop == loop.address]
    if any(task.node in f.moved_tasks and task.kind != "sleep" for task in tasks):
        return None
    asks = [task for task in tasks if task.edge is not None and task.edge.polls]
    return next((task for task in asks if task.node == loop.main), asks[0] if asks else None)


def asks_others(f: ProcessState, t: ThreadState) -> bool:
    """Whether a thread asks over and over for what other processes have to give, and nothing came."""
    return t.asks_anew and t.call is not None and not from_outside(t.call) and bool(peers_of(f, t.call))


def was_given(edge: Edge, t: ThreadState) -> bool:
    """Whether a thread that waits without a time limit woke in the window. Then it got what it waited for, and the giver of the
    last item is to give the next one. A condition does not count: it may be notified for other waiters."""
    limited = edge.limit or t.call is not None and t.call.limited
    return edge.kind != "Condition" and not limited and not t.held_up


def turns_at_rest(t: ThreadState) -> bool:
    """Whether it waits with a time limit for input that nothing owes, hardly runs, and begins anew: a server's loop that checks
    from time to time whether it is to end."""
    call = t.call
    if t.edge is not None or call is None or not call.limited or call.name not in SELECTS:
        return False
    return from_outside(call) and (t.load is None or t.load <= STILL)


def from_outside(call: Call) -> bool:
    """Whether a call waits for something that may come from outside, which no process here owes. One that writes owes itself."""
    return call.name != "write" and any(source.kind in OUTSIDE for source in call.sources)


def pool_at_work(f: ProcessState) -> list[ThreadState]:
    """The threads of executors that have work."""
    return [t for t in f.threads if not t.idle and any(f"/{x.file}".endswith(tuple(EXECUTORS)) for x in t.frames)]


def streams_call(f: ProcessState, task: TaskState, thread: ThreadState | None) -> Call | None:
    """The call of a task that reads a stream whose transport is not Python code (uvloop's). The call reads the only socket that
    the loop waits for and that has an end in another process; None where there are several."""
    if "Stream" not in task.text or thread is None or thread.call is None or thread.call.name != "epoll":
        return None
    far = [source for source in thread.call.sources if peers_of(f, Call("recv", [source]))]
    return Call("recv", far) if len(far) == 1 else None


def other_ends(facts: Facts, f: ProcessState, ring: Ring) -> list[Node]:
    """Main threads of the processes that a process waits for at its end of a ring. Where none of their frames names the other
    end, the process that has the same memory is taken, if there is one only."""
    others = [other for other in facts if other is not f and other.main is not None]
    known, unknown = [], []
    for other in others:
        ends = [end for end in other.rings if end.name == ring.name]
        if any(end.reader in ring.full if ring.reader is None else end.reader is None for end in ends):
            known.append(other)
        elif not ends and ring.name in other.shared:
            unknown.append(other)
    return [other.main.node for other in known or (unknown if len(unknown) == 1 else ()) if other.main is not None]


def givers_of(facts: Facts, edge: Edge) -> list[Node]:
    """The candidates without those that wait for the very same object: another one has to act first."""
    f = facts.process(edge.waiter)
    if f is None or not edge.address:
        return edge.candidates
    same = {t.node for t in f.threads if t.edge is not None and t.edge.address == edge.address and t.held_up}
    same |= {t.node for t in f.tasks if t.kind == "greenlet" and t.edge is not None and t.edge.address == edge.address}
    return [node for node in edge.candidates if node not in same]


def handlers(f: ProcessState) -> list[str]:
    """The signals whose own handlers may end a wait of a process. A shell's of SIGCHLD ends only its wait for children."""
    return [name for name in f.signals if name != "SIGCHLD" or any(t.python for t in f.threads)]


def callers(f: ProcessState) -> int:
    """How many threads of native code alone may act by themselves, and so may call back into Python: all but those that wait in
    a futex without a time limit."""
    waits = [t.call is not None and t.call.name == "futex" and not t.call.limited for t in f.threads if not (t.python or t.main)]
    return f.unsent + waits.count(False)


def givers_at(f: ProcessState, node: Node, call: Call) -> list[Node]:
    """The threads and tasks of a process, without `node`, that can reach the other ends of what a call waits for."""
    ends = (end for source in call.sources for end in file_ends.ends_of(call, source))
    return [one for one in dict.fromkeys(one for end in ends for one in f.at_ends.get(end, ())) if one != node]


def peers_of(f: ProcessState, call: Call) -> list[int]:
    """The pids that have the other end of what a call waits for. Of a pipe: the writers, or the readers where the call writes."""
    return list(dict.fromkeys(pid for source in call.sources for pid in ends_of(f, call, source) if pid != f.pid))


def ends_of(f: ProcessState, call: Call, source: Source) -> list[int]:
    """The pids that have the other end of one file that a call waits for, its own too. Of a pipe: the writers, or the readers if
    the call writes."""
    pipe, writing = source.kind == "pipe", call.name == "write"
    held = (end for inode in ([source.inode] if pipe else source.peers) for end in f.peers.get(inode, ()))
    return [pid for pid, writes in held if not pipe or writes is not writing]


def awaited_pids(f: ProcessState) -> set[int]:
    """Children that a thread of the process waits for: by wait(2), by a join, or for the data that they write."""
    found: set[int] = set()
    for t in f.threads:
        if t.edge is not None and t.edge.pid:
            found.add(t.edge.pid)
        if t.call is not None and t.call.name == "wait":
            found |= set(t.call.peers)
    return found


def owed(facts: Facts, edges: Iterable[Edge] | None = None) -> set[Node]:
    """Threads and tasks that others wait for, by some `edges` or by all. An actor's method owes its result only when it ends."""
    found: set[Node] = set()
    for e in facts.edges if edges is None else edges:
        if e.kind == ray_actors.KIND:
            continue
        if e.owner is not None:
            found.add(e.owner)
        elif len(e.candidates) == 1 or e.kind == "task":
            found |= set(e.candidates)
    return found


def waits_for_its_end(parent: ProcessState, f: ProcessState) -> bool:
    """Whether the only thread of a parent waits for the end of a process: it gives that no command meanwhile."""
    call = parent.main.call if parent.main is not None else None
    return call is not None and call.name == "wait" and f.pid in call.peers and parent.sole is parent.main
