"""Follows a wait to its end: from a thread or a task to those that could end its wait, and on from there.

The answer is an `Outlook`. If any of several can end a wait, its outlook is the best of theirs; if all must act, it is the worst.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..engines import shm_rings
from ..observe.system_calls import Call, Source
from ..observe.window import LONG, STILL
from ..stacks import file_ends, ray_actors
from . import jobs
from .facts import LOCKS, NATIVE
from .heirs import inherited
from .turns import behind, taken_in_turn
from .words import called, describe_node, name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..engines.shm_rings import Ring
    from ..stacks.async_waits import LoopState, TaskState
    from ..stacks.waits import Edge
    from .facts import Facts, Node, ProcessState, ThreadState

# From good to bad:
# "moves": it makes progress
# "rests": it waits for input from outside that nothing owes
# "ticks": it wakes from time to time and does nothing else, so the object it waits for is not known
# "works": it runs, and what it should change is not known
# "unknown": also of one that is to go on when its sleep ends
# "answer": a process that was not sampled owes an answer
# "spins": it runs and changes nothing
# "sleeps": it sleeps and never does anything else, or has a lock meanwhile
# "blocked": it is in the kernel, uninterruptibly
# "dead": the thread that should end the wait has ended
# "nobody": no thread that could end the wait was found
GOOD = ("moves", "rests")
ORDER = ("moves", "rests", "ticks", "works", "unknown", "answer", "spins", "sleeps", "blocked", "dead", "nobody")
OUTSIDE = ("listener", "served", "terminal")
MAX_WAY = 100  # threads and tasks, one behind the other
MAX_GIVERS = 64  # of a wait: where more could end it, those that wait themselves are not followed


@dataclass
class Outlook:
    """`kind` of `ORDER`; `culprit`: the node at the end of the chain, None where there is none; `way`: the waits in words, from
    the first; `ended`: names of threads that could have ended the wait and have ended themselves."""

    kind: str
    culprit: Node = None
    way: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    lock: bool = False  # the culprit has a lock that is waited for

    @property
    def rank(self) -> int:
        return ORDER.index(self.kind)


class _Way:
    """The `nodes` from the start of the search to the present node. `known`: outlooks found on the way, so that a node with
    several waiters is followed once."""

    def __init__(self, nodes: frozenset[Node] = frozenset(), known: dict[Node, Outlook] | None = None) -> None:
        self.nodes, self.known = nodes, {} if known is None else known

    def __contains__(self, node: Node) -> bool:
        return node in self.nodes

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def over(self, node: Node) -> _Way:
        return _Way(self.nodes | {node}, self.known)


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
    return task is not None and task.kind == "sleep" and (task.seconds or 0.0) < soon


def sleeps(facts: Facts, node: Node) -> bool:
    """Whether a thread or task is in a sleep."""
    t, task = facts.thread(node), facts.task(node)
    if t is not None:
        return t.edge is None and t.call is not None and t.call.name == "nanosleep"
    return task is not None and task.kind == "sleep"


def outlook(facts: Facts, node: Node, seen: _Way | None = None) -> Outlook:
    """The `Outlook` of the wait that a thread or task is in; `seen`: the nodes by which the search came here."""
    seen = seen or _Way()
    if node in seen or len(seen.nodes) >= MAX_WAY:
        return Outlook("unknown")  # they wait for each other; if each owns what the next wants, `rules.locks.cycle` reports it
    if node not in seen.known:
        seen.known[node] = _outlook(facts, node, seen.over(node))
    return replace(seen.known[node])


def _outlook(facts: Facts, node: Node, seen: _Way) -> Outlook:
    t = facts.thread(node)
    if t is not None:
        return _thread(facts, t, seen)
    task = facts.task(node)
    f = facts.process(node)
    if task is None or f is None:
        return Outlook("unknown")
    if node in f.moved_tasks:
        others = any(t.node in f.moved_tasks and t.loop == task.loop and t.kind != "sleep" for t in f.tasks)
        return Outlook("moves" if task.kind != "sleep" or others else "ticks", node)
    if task.edge is not None and task.edge.polls:
        return _edge(facts, task.edge, seen, False)
    loop = next((one for one in f.loops if one.address == task.loop), None)
    thread = next((t for t in f.threads if loop is not None and t.node[1] == loop.tid), None)
    if task.state == "running" and thread is not None:
        return outlook(facts, thread.node, seen)
    if task.state == "ready":
        return outlook(facts, thread.node, seen) if thread is not None else Outlook("unknown")
    if task.edge is not None:
        return _edge(facts, task.edge, seen, len(task.on) > 1 and task.kind != "as_completed")
    if task.kind == "sleep":
        served = f.listens or thread is not None and thread.call is not None and from_outside(thread.call)
        return Outlook("ticks" if naps(facts, node) or served else "sleeps" if task.for_good else "unknown", node)
    if task.kind == "executor":
        found = _executor(facts, f, seen)
        return Outlook(found.kind, found.culprit, [f"{name_of(facts, node)} waits for {task.text}", *found.way], found.ended)
    if task.serves:
        return Outlook("rests", node)
    said = f"{name_of(facts, node)} waits for {task.text}"
    call = task.call or streams_call(f, task, thread)
    if call is not None:
        found = _sources(facts, f, node, call, seen)
        return Outlook(found.kind, found.culprit, [said, *found.way], found.ended)
    return Outlook("answer" if task.descriptor >= 0 else "unknown", None, [said])


def streams_call(f: ProcessState, task: TaskState, thread: ThreadState | None) -> Call | None:
    """The call of a task that reads a stream whose transport is not Python code (uvloop's). The call reads the only socket that
    the loop waits for and that has an end in another process; None where there are several."""
    if "Stream" not in task.text or thread is None or thread.call is None or thread.call.name != "epoll":
        return None
    far = [source for source in thread.call.sources if peers_of(f, Call("recv", [source]))]
    return Call("recv", far) if len(far) == 1 else None


def _executor(facts: Facts, f: ProcessState, seen: _Way) -> Outlook:
    """The outlook of work that a loop has given to a pool's threads."""
    return _any(facts, [t.node for t in pool_at_work(f)], seen)


def pool_at_work(f: ProcessState) -> list[ThreadState]:
    """The threads of executors that have work."""
    return [t for t in f.threads if not t.idle and any(x.file.endswith("concurrent/futures/thread.py") for x in t.frames)]


def _thread(facts: Facts, t: ThreadState, seen: _Way) -> Outlook:
    f = facts.process(t.node)
    if f is None:
        return Outlook("unknown")
    loop = f.loop_of(t.node[1])
    if loop is not None and (in_selector(f, t, loop) or asks_only(f, loop)):
        return _loop(facts, f, t, seen)
    if t.main and f.rings and t.stands_in(shm_rings.waits_in):
        return _ring(facts, f, t, seen)
    if t.takes_tasks:
        return Outlook("rests", t.node)
    asks = t.edge is not None and t.edge.kind == "GIL"  # for its turn, which Python gives it; a kept GIL is `rules.gil`'s
    if t.edge is not None and not asks and (t.held_up or not t.advanced):
        if _was_given(t.edge, t):
            return Outlook("works", t.node)
        found = _edge(facts, t.edge, seen, False)
        spins = t.polls and t.works and t.futile and found.kind in ("unknown", "nobody", "dead", "answer")
        return Outlook("spins", t.node) if spins and not t.main else found
    if t.blocked:
        return Outlook("blocked", t.node)
    if t.moved and t.advanced and not t.polls and not _turns_at_rest(t):
        return Outlook("moves", t.node)
    if t.works and not t.polls:
        return Outlook("spins" if t.futile and not t.collects and not t.calls else "works", t.node)
    if t.denied or asks:
        return Outlook("unknown", t.node)
    return _call(facts, f, t, seen)


def in_selector(f: ProcessState, t: ThreadState, loop: LoopState) -> bool:
    """Whether the thread of a loop is in the loop's own selector: a task that runs may be in a call of the same name."""
    selects = t.call is not None and t.call.name in ("epoll", "select", "poll")
    return selects and not any(task.loop == loop.address and task.state == "running" for task in f.tasks)


def asks_only(f: ProcessState, loop: LoopState) -> TaskState | None:
    """A task of a loop that only asks, over and over: the one that the loop runs for, or another; None where any goes on."""
    tasks = [task for task in f.tasks if task.loop == loop.address]
    if any(task.node in f.moved_tasks and task.kind != "sleep" for task in tasks):
        return None
    asks = [task for task in tasks if task.edge is not None and task.edge.polls]
    return next((task for task in asks if task.node == loop.main), asks[0] if asks else None)


def _was_given(edge: Edge, t: ThreadState) -> bool:
    """Whether a thread that waits without a time limit woke in the window. Then it got what it waited for, and the giver of the
    last item is to give the next one. A condition does not count: it may be notified for other waiters."""
    limited = edge.limit or t.call is not None and t.call.limited
    return edge.kind != "Condition" and not limited and not t.held_up


def _turns_at_rest(t: ThreadState) -> bool:
    """Whether it waits with a time limit for input that nothing owes, hardly runs, and begins anew: a server's loop that checks
    from time to time whether it is to end."""
    call = t.call
    if t.edge is not None or call is None or not call.limited or call.name not in ("epoll", "select", "poll"):
        return False
    return from_outside(call) and (t.load is None or t.load <= STILL)


def from_outside(call: Call) -> bool:
    """Whether a call waits for something that may come from outside, which no process here owes."""
    return any(source.kind in OUTSIDE for source in call.sources)


def _ring(facts: Facts, f: ProcessState, t: ThreadState, seen: _Way) -> Outlook:
    """The outlook of a process that waits at its end of a ring. It waits for the other ends: for the writer's next message, or
    for the readers that have not read its oldest one."""
    if any(c.moved and " in ring " in c.what for c in f.counters):
        return Outlook("moves", t.node)
    writes = bool(t.stands_in(shm_rings.waits_to_write_in))
    nodes: list[Node] = []
    for ring in f.rings:
        if (ring.reader is None) is writes:
            nodes += other_ends(facts, f, ring)
    if not nodes:
        return Outlook("unknown", t.node)
    outlooks = [outlook(facts, node, seen) for node in dict.fromkeys(nodes)]
    worst = max(outlooks, key=lambda o: o.rank)  # each reader has to read
    said = f"{name_of(facts, t.node)} waits for {'room' if writes else 'a message'} in a ring"
    return Outlook(worst.kind, worst.culprit, [said, *worst.way], worst.ended, worst.lock)


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


def _loop(facts: Facts, f: ProcessState, t: ThreadState, seen: _Way) -> Outlook:
    """A loop that is blocked in its selector has the outlook of the task that it runs for."""
    loop = f.loop_of(t.node[1])
    asks = asks_only(f, loop) if loop is not None else None
    if loop is not None and (loop.main is not None or asks is not None):
        return outlook(facts, loop.main if asks is None else asks.node, seen)
    return _call(facts, f, t, seen)


def _edge(facts: Facts, edge: Edge, seen: _Way, every: bool) -> Outlook:
    said = f"{name_of(facts, edge.waiter)} waits for {edge.lock}" + (f" in {edge.where}" if edge.where else "")
    if edge.kind == "Process":
        found = _child(facts, edge, seen)
    elif edge.kind == "Job":
        nodes, unread = jobs.givers(facts, edge)
        found = _any(facts, nodes, seen) if nodes else Outlook("answer" if unread else "dead")
    elif edge.owner is not None:
        found = outlook(facts, edge.owner, seen)
        keeps = edge.kind in LOCKS and found.culprit == edge.owner
        if keeps and found.kind == "unknown" and sleeps(facts, edge.owner):
            found.kind = "sleeps"  # it may give the lock back after that; until then it keeps others from moving
        found.lock = found.lock or keeps
    elif edge.outside:
        found = Outlook("answer", None, [edge.note])
    elif every or edge.every:
        found = _all(facts, edge, seen)
    elif edge.kind in (*LOCKS, *NATIVE, ray_actors.KIND) and not edge.candidates:
        found = Outlook("unknown")
    else:
        givers = givers_of(facts, edge)
        found = _any(facts, givers, seen, edge.bystanders) if givers or not edge.candidates else Outlook("unknown")
        if found.kind == "nobody":
            found.ended = edge.ended
        f = facts.process(edge.waiter)
        handled = edge.polls and f is not None and bool(f.signals)  # a handler may give what a loop asks for
        if (edge.doubted or handled) and found.kind not in GOOD:
            found = Outlook("unknown", None, found.way)
    if edge.kind in LOCKS and found.kind == "rests" and not taken_in_turn(facts, edge):
        found = Outlook("unknown", None, found.way)  # a thread that rests with a lock that others want does not give it back
    if edge.limit and found.kind in ("nobody", "sleeps", "blocked", "unknown") and edge.kind not in LOCKS:
        found = Outlook("unknown", None, found.way, found.ended)
    return Outlook(found.kind, found.culprit, [said, *found.way], found.ended, found.lock)


def givers_of(facts: Facts, edge: Edge) -> list[Node]:
    """The candidates without those that wait for the very same object: another one has to act first."""
    f = facts.process(edge.waiter)
    if f is None or not edge.address:
        return edge.candidates
    same = {t.node for t in f.threads if t.edge is not None and t.edge.address == edge.address and t.held_up}
    return [node for node in edge.candidates if node not in same]


def _waits(facts: Facts, node: Node) -> bool:
    one = facts.thread(node) or facts.task(node)
    return one is not None and one.edge is not None


def _any(facts: Facts, nodes: Sequence[Node], seen: _Way, bystanders: Sequence[Node] = ()) -> Outlook:
    """The outlook where any of `nodes` can end the wait: the best of theirs. Whether a `bystander` that is blocked would end it
    is not known."""
    found = []
    for node in nodes:
        if node not in seen:
            many = len(nodes) > MAX_GIVERS and _waits(facts, node)
            one = Outlook("unknown") if many else outlook(facts, node, seen)
            found.append(Outlook("unknown") if node in bystanders and one.rank > ORDER.index("unknown") else one)
    if not found:
        return Outlook("unknown" if nodes else "nobody")
    best = min(found, key=lambda o: o.rank)
    bad = [o for o in found if o.kind == best.kind and o.culprit is not None]
    if best.kind in ("spins", "sleeps", "blocked", "dead") and len({o.culprit for o in bad}) > 1:
        return Outlook("unknown", None, [describe_node(facts, o.culprit) for o in bad[:4]])
    return best


def _all(facts: Facts, edge: Edge, seen: _Way) -> Outlook:
    """The outlook where all candidates must act: the worst of theirs. One that sleeps for good beside one that waits for input
    from outside only keeps its program alive."""
    found = [outlook(facts, c, seen) for c in edge.candidates]
    worst = max(found, key=lambda o: o.rank)
    alive = worst.kind == "sleeps" and any(o.kind == "rests" for o in found)
    if alive or edge.doubted and worst.kind not in GOOD:
        return Outlook("unknown", None, worst.way)
    return worst


def _child(facts: Facts, edge: Edge, seen: _Way) -> Outlook:
    return _pids(facts, [edge.pid] if edge.pid else [], facts.process(edge.waiter), seen)


def _pids(facts: Facts, pids: Sequence[int], f: ProcessState | None, seen: _Way) -> Outlook:
    """The outlook of a wait that any of some processes can end."""
    pids = [pid for pid in pids if f is None or pid not in f.asker]
    read = {p.pid: p.main for p in facts if p.pid in pids and p.main is not None}
    left = [pid for pid in pids if pid not in read]
    way: list[str] = []
    if read:
        best = min((outlook(facts, main.node, seen) for main in read.values()), key=lambda o: o.rank)
        who = name_of(facts, f.main.node) if f is not None and f.main is not None else "it"
        last = facts.process(best.culprit) if best.culprit is not None else None
        if best.kind == "sleeps" and last is not None and any(t.node != best.culprit and not t.idle for t in last.threads):
            best = Outlook("unknown", best.culprit, best.way)  # it only keeps its process alive: another thread may do the work
        way = [f"{who} waits for process {', '.join(main.node[0] for main in read.values())}", *best.way]
        if best.kind in ("moves", "ticks", "works") or not any(f is None or pid not in f.gone for pid in left):
            return Outlook(best.kind, best.culprit, way, best.ended)
    if f is None or not pids:
        return Outlook("answer", None, way)
    ran = {pid: f.spent([pid]) for pid in left}
    if sum(ran.values()) > STILL:
        busiest = max(ran, key=lambda pid: ran[pid])
        way.append(f"process {busiest} used {ran[busiest]:.2f} s of CPU meanwhile, with what it started")
        return Outlook("works", None, way)
    there = [pid for pid in left if pid not in f.gone]
    asks = [f"process {called(f, pid)} was not asked: name that one too" for pid in there[:4]]
    return Outlook("answer" if there else "unknown", None, way + (asks or [f"process {pid} has ended" for pid in left[:4]]))


def _call(facts: Facts, f: ProcessState, t: ThreadState, seen: _Way) -> Outlook:
    """The outlook of a thread whose wait Python does not name, by the system call that it is in."""
    call = t.call
    if t.victim or call is None:
        return Outlook("ticks" if t.woke > 1 and not t.victim else "unknown", t.node if t.still else None)
    if call.name == "nanosleep":
        for_good = t.for_good and not (t.main and f.signals)  # their handlers run in the main thread
        return Outlook("ticks" if t.woke > 0 or naps(facts, t.node) else "sleeps" if for_good else "unknown", t.node)
    if call.name == "wait" or call.peers:
        return _pids(facts, call.peers, f, seen)
    if call.name in ("pause", "sigwait"):  # any process may send one: at rest, unless a child may owe it
        return Outlook("rests" if not f.children or f.requests == [] else "unknown", t.node)
    return _sources(facts, f, t.node, call, seen)


def _sources(facts: Facts, f: ProcessState, node: Node, call: Call, seen: _Way) -> Outlook:
    """The outlook of a wait for files, by their kinds and by the processes that have their other ends."""
    kinds = {source.kind for source in call.sources}
    if not kinds:
        return Outlook("unknown", node)
    if from_outside(call) or call.name == "epoll" and f.listens and not any(t.python for t in f.threads):
        return Outlook("rests", node)
    if kinds <= {"event", "other", "file", "fifo"}:
        return Outlook("unknown", node)
    pids = peers_of(f, call)
    own = givers_at(f, node, call) if not pids else []
    if own:
        found = _any(facts, own, seen)
        said = f"{name_of(facts, node)} waits for {call.sources[0].text}"
        return Outlook(found.kind if found.kind in GOOD else "unknown", None, [said, *found.way])
    fellows = behind(facts, node) if kinds == {"pipe"} and call.name != "write" else set()
    pids = [pid for pid in pids if pid not in fellows]
    if any(p.pid in pids and any(n[0] == p.name for n in seen) for p in facts):
        return Outlook("unknown")  # that one waits for this one
    if kinds == {"unix"} and all(source.peers for source in call.sources) and not pids:
        return Outlook("unknown" if call.limited or f.hidden or callers(f) else "sleeps", node)  # it alone has the other end
    if pids and all(pid in f.ancestors for pid in pids):
        return Outlook("rests")  # its parent's commands
    if "pipe" in kinds and not pids:
        return Outlook("unknown")
    mine = [pid for pid in pids if pid not in f.ancestors]
    found = _pids(facts, mine, f, seen)
    if found.kind == "rests" and any(source.pending for source in call.sources):
        return Outlook("answer", None, found.way)  # who rests has not accepted it
    return _without_heirs(facts, f, call, mine, found, seen) if kinds == {"pipe"} else found


def _without_heirs(facts: Facts, f: ProcessState, call: Call, pids: Sequence[int], found: Outlook, seen: _Way) -> Outlook:
    """The outlook `found` of a wait for a pipe of which some processes have the other end. One that merely inherited it gives
    nothing: that one need not act, and that it rests does not mean that the others owe nothing. Where nobody else has the end or
    can open it, it is the giver."""
    if found.kind in ("moves", "works", "unknown", "answer"):
        return found
    heirs = {p.pid: p for p in facts if p.pid in pids and inherited(p, call)}
    held = {pid for source in call.sources for pid in ends_of(f, call, source)}
    if held <= heirs.keys() and not any(source.is_named for source in call.sources):
        return found
    if found.kind != "rests":
        last = facts.process(found.culprit) if found.culprit is not None else None
        return Outlook("unknown", None, found.way) if last in heirs.values() else found
    givers = [pid for pid in pids if pid not in heirs]
    known = [p.main.node for p in facts if p.pid in givers and p.main is not None]
    if len(known) == len(givers) > 0 and all(outlook(facts, node, seen).kind == "rests" for node in known):
        return found
    return Outlook("unknown" if len(known) == len(givers) else "answer", None, found.way)


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


def owed(facts: Facts) -> set[Node]:
    """Threads and tasks that others wait for. An actor's method owes its result only when it ends."""
    found: set[Node] = set()
    for e in facts.edges:
        if e.kind == ray_actors.KIND:
            continue
        if e.owner is not None:
            found.add(e.owner)
        elif len(e.candidates) == 1 or e.kind == "task":
            found |= set(e.candidates)
    return found
