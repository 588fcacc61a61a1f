"""The graph of waits. `step` says what a thread or task waits for and who could end that: any of some nodes, every one of them,
nobody, or somebody outside; or what a node does that waits for none. `walk` goes along these steps, and nothing else does.
"""

from __future__ import annotations

import bisect
import signal
from typing import Any, Sequence

from ..engines import shm_rings
from ..observe.system_calls import Call
from ..observe.window import STILL
from ..stacks import ray_actors
from ..stacks.async_waits import CLOSED, RUNNABLE, TaskState
from ..stacks.kept import SUSPENDED
from ..stacks.waits import Edge
from ..torch.collectives import Count
from . import jobs, patterns
from .closed import closed, who_may
from .facts import LOCKS, NATIVE, Facts, Node, ProcessState, ThreadState
from .nodes import (
    SELECTS,
    asks_only,
    asks_others,
    callers,
    from_outside,
    givers_at,
    givers_of,
    in_selector,
    keeps_loop,
    naps,
    other_ends,
    peers_of,
    pool_at_work,
    standing_loop,
    streams_call,
    turns_at_rest,
    waits_for_its_end,
    was_given,
)
from .states import BLOCKED, ENDED, INPUT, MOVES, NOBODY, RUNS, SLEEPS, SPINS, STOPPED, THERE, UNKNOWN, End, Step
from .turns import behind
from .words import AWAITED, called, describe, describe_node, futex_of, kept_line, own_place

_STARTS = ("nanosleep", "wait")  # calls of a thread that starts one child after the other
ASKED_TO_END = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM}
MAX_UNREAD = 8  # workers of a pool that a chain names


def step(facts: Facts, node: Node) -> Step:
    """The `Step` from a thread or task."""
    known: dict[Node, Step] = facts.once(_steps)
    if node not in known:
        found = known[node] = _step(facts, node)
        if found.call is not None and found.edge is None:  # an edge says where
            t, task = facts.thread(node), facts.task(node)
            at = own_place(t) if t is not None and t.python else task.top if task is not None else ""
            found.waits_for += f" in {at}" if at else ""
    return known[node]


def _steps(_: Facts) -> dict[Node, Step]:
    return {}


def _step(facts: Facts, node: Node) -> Step:
    f, t, task = facts.process(node), facts.thread(node), facts.task(node)
    if f is not None and (f.frozen or f.state in ("T", "t")):
        return _does(node, STOPPED, f.frozen or "it is stopped")
    if f is not None and f.state in ("Z", "X"):
        return _does(node, ENDED, f.ended or "the process has ended")
    if f is not None and t is not None:
        return _thread(facts, f, t)
    if f is not None and task is not None:
        return _task(facts, f, task)
    return _does(node, UNKNOWN, "it was not read")


def _does(node: Node, state: str, why: str, kind: str = "") -> Step:
    return Step("", (), End(node, state, why, kind=kind))


def _unknown(waits_for: str, why: str, kind: str = "") -> Step:
    return Step(waits_for, (), End(None, UNKNOWN, why, kind=kind))


# ---- threads ---------------------------------------------------------------------------------------------------------
def _thread(facts: Facts, f: ProcessState, t: ThreadState) -> Step:
    if t.state in ("Z", "X"):
        return _does(t.node, ENDED, describe(t))
    loop = f.loop_of(t.node[1])
    selects = loop is not None and in_selector(f, t, loop)
    asking = asks_only(f, loop) if loop is not None and not keeps_loop(f, t, loop) else None
    main = asking.node if asking is not None else loop.main if loop is not None and selects else None
    if main is not None:
        return Step(f"its {main[1]}, in the event loop", [main], owned=True)
    if t.main and f.rings and t.stands_in(shm_rings.waits_in):
        return _ring(facts, f, t)
    if t.main and f.restarts and (t.edge is None or t.edge.kind == "Process") and t.call is not None and t.call.name in _STARTS:
        return Step("a child that does not end at once", (), End(None, ENDED, f.restarts, kind="unknown"))
    if t.edge is not None and t.edge.kind == "GIL":
        return _gil(facts, f, t, t.edge)
    if t.takes_tasks:
        return Step("its next task of Ray", (), End(t.node, INPUT, describe(t)))
    if t.collective and t.still and t.edge is not None and t.edge.kind == "condition":
        return _collective(facts, f, t)  # the native code's own wait for the others
    if t.at_store or t.still and t.find(patterns.STORE_WAITS, "native"):
        found = _at_store(facts, f, t) if t.at_store else _key(facts, f, t)
        found.kind = _by_itself(t) or "unknown"
        return found
    if t.edge is not None and (t.held_up or not t.advanced or t.edge.limit):  # a thread that asks over and over waits too
        found = _edge(facts, t.edge)
        if not t.held_up and t.advanced:
            found.kind = _by_itself(t) or "unknown"
        elif was_given(t.edge, t):
            found.kind = "works"
        return found
    if t.polls and not t.blocked and not t.denied or loop is None and asks_others(f, t):
        found = _call(facts, f, t)
        found.kind = "moves" if t.moved and t.advanced and not t.polls else found.kind
        return found
    does = _by_itself(t)
    if selects and does != "blocked":
        found = _call(facts, f, t)
        kind = found.kind or (found.end.outlook if found.end is not None else "unknown")
        return _alone_does(t, does, kind) if does else found
    if does == "blocked" and t.kernel in AWAITED and t.call is not None and t.call.peers:  # the child has its memory
        found = _processes(facts, f, t.call.peers, "a child of its vfork")
        found.kind = does
        return found
    if does:
        return _alone_does(t, does)
    if t.denied:
        return _does(t.node, UNKNOWN, f"{describe(t)}: it wants a CPU and hardly gets one", "ticks" if t.woke > 1 else "")
    return _collective(facts, f, t) if t.collective else _call(facts, f, t)


def _by_itself(t: ThreadState) -> str:
    """How a thread turns out that waits for none, of `ORDER`; '' where that is for what it waits for to say."""
    if t.blocked:
        return "blocked"
    if t.moved and t.advanced and not t.polls and not turns_at_rest(t):
        return "moves"
    if t.works and not t.polls:
        return "spins" if t.futile and not t.collects and not t.calls else "works"
    return ""


def _alone_does(t: ThreadState, does: str, kind: str = "") -> Step:
    state = {"moves": MOVES, "works": RUNS, "spins": SPINS, "blocked": BLOCKED}[does]
    return _does(t.node, state, kept_line(t) if does == "blocked" else describe(t), kind)


def _ring(facts: Facts, f: ProcessState, t: ThreadState) -> Step:
    """The step of a process that waits at its end of a ring, to the other ends: to the writer, or to the readers that have not
    read its oldest message, each of which has to."""
    writes = bool(t.stands_in(shm_rings.waits_to_write_in))
    ends = [node for ring in f.rings if (ring.reader is None) is writes for node in other_ends(facts, f, ring)]
    moved = "moves" if any(c.moved and " in ring " in c.what for c in f.counters) else ""
    if not ends:
        return _does(t.node, UNKNOWN, t.top, moved)
    said = f"{'room' if writes else 'a message'} in its ring in shared memory"
    return Step(said, list(dict.fromkeys(ends)), None, True, t.still, kind=moved)


def _gil(facts: Facts, f: ProcessState, t: ThreadState, edge: Edge) -> Step:
    """A thread that asks for its turn gets it from each thread that runs Python. A holder that does not run keeps it."""
    keeps = f.gil_hog[0] if f.gil_hog is not None else edge.owner
    holder = facts.thread(keeps)
    does = _by_itself(t)
    if does in ("spins", "blocked"):
        return _alone_does(t, does)
    kind = does or "unknown"
    if holder is not None and holder is not t and (f.gil_hog is not None or holder.still):
        return Step(edge.lock, [holder.node], owned=True, kind=kind)
    return _does(t.node, RUNS, f"{describe(t)}: it asks for its turn", kind)


def _collective(facts: Facts, f: ProcessState, t: ThreadState) -> Step:
    """The step to the members of its group that have begun fewer collectives of it, wherever they are; where none is known to
    have, to those that are in no collective; of a group that is not known, to all ranks of the job that are in none."""
    if t.peer is not None:
        return _peer(facts, f, t)
    said = f"the other ranks in {t.collective}"
    own = next((count for count in f.counts if count.group == t.group), None)
    fewer = _counted(facts, f, own).awaited(sum(own.begun.values()), t) if own is not None else []
    if fewer:
        return Step(said, fewer, None, True, True, kind="unknown")
    others = [node for node in facts.once(_elsewhere).get(own.key(f.job) if own is not None else None, ()) if node != t.node]
    members = bool(others)
    if not members:
        others = [node for node, job in facts.once(_in_none) if node != t.node and (not f.job or job in ("", f.job))]
    return (
        Step(said, others, None, True, members, kind="unknown")
        if others
        else _unknown(said, "no rank that was read is elsewhere")
    )


def _counted(facts: Facts, f: ProcessState, own: Count) -> _Counted:
    """The members of a group of a process, by how many collectives of it they have begun."""
    known: dict[tuple[str, str], _Counted] = facts.once(_by_count)
    return known[own.key(f.job)]


class _Counted:
    """The main threads of a group's members, by how many collectives of it they have begun."""

    def __init__(self, members: Sequence[tuple[ProcessState, Count]]) -> None:
        begun = [(sum(count.begun.values()), f.main) for f, count in members if f.main is not None]
        begun.sort(key=lambda one: one[0])
        self.numbers, self.mains = [n for n, _ in begun], [main for _, main in begun]
        self._known: dict[Any, list[Node]] = {}

    def upto(self, number: int) -> list[Node]:
        """Those that have begun fewer than `number`."""
        if number not in self._known:
            self._known[number] = [main.node for main in self.mains[: bisect.bisect_left(self.numbers, number)]]
        return self._known[number]

    def awaited(self, number: int, t: ThreadState) -> list[Node]:
        """The same for a thread that waits in a collective, without those that wait in the same one: messages between two ranks
        are counted too."""
        key = number, t.group, t.collective
        if key not in self._known:
            few = self.mains[: bisect.bisect_left(self.numbers, number)]
            self._known[key] = [main.node for main in few if (main.group, main.collective) != (t.group, t.collective)]
        return self._known[key]


def _by_count(facts: Facts) -> dict[tuple[str, str], _Counted]:
    return {key: _Counted(members) for key, members in facts.groups.items()}


def _in_none(facts: Facts) -> list[tuple[Node, str]]:
    """(the main thread of a rank that is in no collective, its job)"""
    found = [(t.node, facts.process(t.node)) for t in facts.elsewhere]
    return [(node, f.job) for node, f in found if f is not None]


def _elsewhere(facts: Facts) -> dict[tuple[str, str] | None, list[Node]]:
    """{`Count.key` of a group: the main threads of its members that are in no collective}"""
    found: dict[tuple[str, str] | None, list[Node]] = {}
    for node, _ in facts.once(_in_none):
        f = facts.process(node)
        for count in f.counts if f is not None else ():
            found.setdefault(count.key(f.job if f is not None else ""), []).append(node)
    return found


def _at_store(facts: Facts, f: ProcessState, t: ThreadState) -> Step:
    """The step of a rank that sets up a group: to those that have not come to do so, or to none where all have."""
    late = [node for node in facts.once(_late_at_store).get(f.job, ()) if node[0] != f.name]
    said = f"the other ranks in {t.at_store.function}"
    return Step(said, late, None, True, True) if late else _does(t.node, UNKNOWN, describe(t))


def _late_at_store(facts: Facts) -> dict[str, list[Node]]:
    """{job: the main threads of its ranks that neither set up a group nor are in a collective}"""
    found: dict[str, list[Node]] = {}
    for f in facts:
        if f.world is not None and f.main is not None and not f.main.at_store and not f.main.collective:
            found.setdefault(f.job, []).append(f.main.node)
    return found


def _key(facts: Facts, f: ProcessState, t: ThreadState) -> Step:
    """The step of a rank that waits for a key of its job's store: to the other ranks, any of which may set it."""
    own = f.main.node if f.main is not None else None
    nodes = [node for node in facts.once(_not_at_a_key).get(f.job, ()) if node != own]
    said = "a key of its job's store"
    return Step(said, nodes) if nodes else _unknown(said, "each rank that was read waits for one itself")


def _not_at_a_key(facts: Facts) -> dict[str, list[Node]]:
    """{job: the main threads of its ranks that wait for no key of its store}"""
    found: dict[str, list[Node]] = {}
    for f in facts:
        if f.world is not None and f.main is not None and not f.main.find(patterns.STORE_WAITS, "native"):
            found.setdefault(f.job, []).append(f.main.node)
    return found


def _peer(facts: Facts, f: ProcessState, t: ThreadState) -> Step:
    """The step to the one rank to which a rank sends, or from which it receives."""
    said = f"rank {t.peer} in {t.collective}"
    peers = [one.main.node for one in facts.rank(f.job, t.peer) if one.main is not None]
    return Step(said, peers, None, True, kind="unknown") if peers else _unknown(said, "that rank was not read")


def _late(facts: Facts, f: ProcessState) -> list[Node]:
    """The main threads of the processes that have begun fewer collectives of a group of this job than a process has."""
    return list(dict.fromkeys(node for own in f.counts for node in _counted(facts, f, own).upto(sum(own.begun.values()))))


def _call(facts: Facts, f: ProcessState, t: ThreadState) -> Step:
    found = _in_call(facts, f, t)
    if t.victim:
        found.kind = "unknown"  # other rules say what ranks wait for
    return found


def _in_call(facts: Facts, f: ProcessState, t: ThreadState) -> Step:
    call = t.call
    late = _late(facts, f) if t.does == "device" else []
    if late:
        return Step("its device, and ranks that have begun fewer collectives", late, None, True)
    if call is None or t.does in ("device", "startup"):
        sleeps = call is None and t.does == "sleep"
        return _does(t.node, SLEEPS if sleeps else UNKNOWN, describe(t), "ticks" if t.woke > 1 else "unknown")
    if call.name == "nanosleep":
        long = f", for {call.seconds:.0f} s" if call.seconds >= 1 else ""
        turns = " from time to time" if t.woke else ""
        after = ", and only sleeps again after that" if t.for_good else ""
        for_good = t.for_good and not (t.main and f.signals)  # their handlers run in the main thread
        kind = "ticks" if t.woke or naps(facts, t.node) else "sleeps" if for_good else "unknown"
        return _does(t.node, SLEEPS, f"{describe(t)}: it sleeps{long}{turns}{after}", kind)
    if call.name == "wait" or call.peers:
        return _processes(facts, f, call.peers, "the end of a child")
    if call.name in ("pause", "sigwait"):  # any process may send one: at rest, unless a child may owe it
        kind = "rests" if not f.children or f.requests == [] else "unknown"
        return _does(t.node, INPUT, f"{describe(t)}: it waits for a signal", kind)
    inner = next((x for x in t.frames if x.kind == "python"), None)
    if inner is not None and patterns.TRIO.search(inner.file.replace("\\", "/")):
        kind = "rests" if from_outside(call) else "unknown"
        return _unknown("an event of its trio loop", "the tasks of trio are not read", kind)
    if call.name == "futex" and t.still and (t.python or t.main) and not (t.idle or t.works):
        said, may = futex_of(t), "" if call.shared else who_may(facts, f, t.node)
        if may or call.shared or call.limited:
            return _unknown(said, may or "a process that maps it too may end that")
        return Step(
            said, (), End(None, NOBODY, "all threads of the process wait for one another, with no time limit", kind="unknown")
        )
    if call.name in ("futex", "fcntl", "flock") or not call.sources:
        return _does(t.node, UNKNOWN, describe(t))
    return _sources(facts, f, t.node, call)


def _sources(facts: Facts, f: ProcessState, node: Node, call: Call) -> Step:
    """A wait for files, by their kinds and by the processes that have their other ends."""
    said = ", ".join(dict.fromkeys(source.text for source in call.sources[:3])) + (", …" if len(call.sources) > 3 else "")
    said = f"room in {said}" if call.name == "write" else said
    known = [pid for pid in peers_of(f, call) if pid not in behind(facts, node)]
    for others in (f.asker, f.ancestors):  # who has that end too, and hardly uses it
        known = [pid for pid in known if pid not in others] or known
    seen = [pid for pid in known if any(other.pid == pid for other in facts)]
    outside = from_outside(call)
    if outside and not (seen and len(call.sources) == 1) or call.name == "epoll" and f.listens and _is_native(f):
        return Step(said, (), End(node, INPUT, describe_node(facts, node)))
    if call.name == "open":  # no end of the kind was opened since it waits, or it would have come back
        why = "no process has that end of it open; any that sees the file may open it"
        return Step(said, (), End(None, NOBODY, why, kind="unknown"))
    if all(source.comes for source in call.sources) and (not f.children or f.requests == []):  # a child may owe it
        return Step(said, (), End(node, INPUT, describe_node(facts, node)))
    kinds = {source.kind for source in call.sources}
    native = [t.node for t in f.threads if not (t.python or t.main) and t.node != node and t.call is not None and t.call.sources]
    if kinds == {"event"} and native:  # a library's own threads tell it what has come
        return Step(said, native, maybe=native, call=call)
    if kinds <= {"event", "other", "file"}:
        return Step(said, (), End(node, UNKNOWN, describe_node(facts, node)))
    commands = call.name != "write" and bool(known) and all(pid in f.ancestors for pid in known)  # its parent's, which owes none
    commands = commands and not any(waits_for_its_end(other, f) for other in facts if other.pid in known)
    if commands and not seen:
        return Step(said, (), End(node, INPUT, f"it waits for its parent, {known[0]}, which was not read", known[0]))
    own = givers_at(f, node, call)
    if own and not known:
        return Step(said, own, call=call)
    if not known:
        return _alone(facts, f, node, call, said)
    found = _processes(facts, f, known, said, call)
    found.kind = "rests" if outside or commands else found.kind
    return found


def _is_native(f: ProcessState) -> bool:
    return not any(t.python for t in f.threads)


def _alone(facts: Facts, f: ProcessState, node: Node, call: Call, said: str) -> Step:
    """A wait for files of which no other process that was read has the other ends."""
    inodes = {source.inode for source in call.sources} | {peer for source in call.sources for peer in source.peers}
    held = any(pid == f.pid for inode in inodes for pid, _ in f.peers.get(inode, ()))
    if held and call.name != "write" and all(source.is_named for source in call.sources):  # open for both, so that it never ends
        return Step(said, (), End(node, INPUT, "any process that sees it may write there"))
    why = "this process alone is seen to have the other end" if held else "the process at its other end is not seen"
    more = f"; {', '.join(map(str, f.hidden[:8]))} may have it too, and may not be looked at" if f.hidden else ""
    may = who_may(facts, f, node)
    unix = all(source.kind == "unix" and source.peers for source in call.sources)
    piped = any(source.kind == "pipe" for source in call.sources)
    kind = "unknown" if piped or unix else "answer"
    kind = "sleeps" if unix and not (piped or call.limited or f.hidden or callers(f)) else kind  # it alone has the other end
    if held and not may:
        why = "this process alone has the other end, and none of its threads can use it"
        return Step(said, (), End(None, NOBODY, why, kind=kind))
    return _unknown(said, f"{why}{more or (f'; {may}' if held else '')}", kind)


def _processes(facts: Facts, f: ProcessState, pids: Sequence[int], said: str, call: Call | None = None) -> Step:
    """A wait that any of some processes can end; `call`: it waits for files that these have."""
    who = ", ".join(map(str, pids[:4]))
    said = f"{said}: process {who}" if pids else said
    nodes = [node for other in facts if other.pid in pids for node in _at_end(other, call)]
    if nodes:
        read = {other.pid for other in facts} | f.ancestors | f.asker | {f.pid, *f.gone, *(pid for pid, _ in f.dead_children)}
        unread = [pid for pid in pids if pid not in read]
        return Step(said, nodes, unread=unread if call is not None else (), pids=pids, call=call)
    kind = "unknown" if pids and all(pid in f.gone for pid in pids) else "answer"
    if pids and f.asker.issuperset(pids):
        return _unknown(said, f"process {who} is gdbext itself, which reads this one", kind)
    gone = [pid for pid in pids if pid in f.gone]
    dead = [what for pid, what in f.dead_children if pid in pids] or ["it is gone"] * len(gone)
    if dead:
        return Step(said, (), End(None, ENDED, f"that process has ended: {dead[0]}", pids[0], kind=kind), pids=pids)
    if not pids:
        return _unknown(said, "which process that is, is not known", kind)
    ran = f.spent(pids)
    did = f"used {ran:.2f} s of CPU meanwhile, and was" if ran > STILL else "was"
    who = ", ".join(called(f, pid) for pid in pids[:4])
    others = [End(None, UNKNOWN, "it was not read", pid) for pid in pids[1:MAX_UNREAD]]
    state, kind = (RUNS, "works") if ran > STILL else (UNKNOWN, kind)
    return Step(said, (), End(None, state, f"process {who} {did} not read", pids[0], others, kind), pids=pids, call=call)


def _at_end(f: ProcessState, call: Call | None) -> list[Node]:
    """The threads of a process that are in a call on one of the pipes of a wait; else those, and the tasks, that can reach the
    other ends of its files, where there are others without those that wait for new clients; else its main thread."""
    inodes = {source.inode for source in call.sources if source.kind == "pipe"} if call is not None else set()
    calls = [(t, t.call) for t in f.threads if t.call is not None and f.loop_of(t.node[1]) is None]  # a loop asks for its tasks
    at = [t.node for t, one in calls if any(source.inode in inodes for source in one.sources)]
    at = at or (givers_at(f, None, call) if call is not None else [])
    accepts = {t.node for t in f.threads if t.call is not None and {source.kind for source in t.call.sources} == {"listener"}}
    accepts |= {task.node for task in f.tasks if task.serves}
    at = [node for node in at if node not in accepts] or at
    if f.main is None or at:
        return at or [(f.name, None)]
    others = [t.node for t in f.threads if not t.idle and t is not f.main] if f.main.node in accepts else []
    return others or [f.main.node]


# ---- what Python names -----------------------------------------------------------------------------------------------
def _edge(facts: Facts, edge: Edge, every: bool = False) -> Step:
    said = edge.lock + (f" in {edge.where}" if edge.where else "")
    found = _of_edge(facts, edge, every, said)
    found.edge = edge
    return found


def _of_edge(facts: Facts, edge: Edge, every: bool, said: str) -> Step:
    f = facts.process(edge.waiter)
    if edge.open and f is not None:
        return Step(said, (), End(_sleeper(facts, f, edge.waiter), THERE, edge.open))
    if edge.kind == "Process" and f is not None:
        kept = _kept_open(f, edge)
        if kept is not None:
            said = f"{said}: process {edge.pid} has ended, and what it wrote to is still open"
            return _processes(facts, f, peers_of(f, kept), said, kept)
        return _processes(facts, f, [edge.pid] if edge.pid else [], said)
    if edge.kind == "Job":
        return _job(facts, edge, said)
    if edge.owner is not None:
        return Step(said, [edge.owner], owned=not edge.doubted)
    if edge.outside or edge.unread and not edge.candidates:
        pid = edge.unread[0] if edge.unread else 0
        return Step(said, (), End(None, UNKNOWN, edge.note, pid, kind="answer" if edge.outside else ""))
    if edge.orphan and not (edge.shared and f is not None and f.signals):
        return Step(said, (), End(None, ENDED, edge.note, kind="" if edge.kind in (*LOCKS, *NATIVE) else "nobody"))
    if (every or edge.every) and edge.candidates:
        return Step(said, edge.candidates, None, True, not edge.doubted)
    if edge.kind == "Value" and f is not None:  # in memory that its children share
        return _processes(facts, f, list(f.children), said)
    able = edge.candidates if edge.pool else givers_of(facts, edge)  # a pool's threads give what they wait for themselves
    nodes = [node for node in able if node not in edge.bystanders] or able
    if nodes:
        named = edge.kind == "task" and not edge.doubted  # it holds them itself
        return Step(said, nodes, owned=edge.pool or named, maybe=edge.bystanders)
    if (
        f is not None and edge.kind == "rwlock" and not edge.orphan and f in facts.once(closed)
    ):  # it counts its readers: any thread may be one
        return Step(said, [t.node for t in f.threads if t.node != edge.waiter], owned=True)
    if edge.how == SUSPENDED and f in facts.once(closed):
        return Step(said, (), End(None, NOBODY, f"{edge.note}, and no thread is left that could go on with it"))
    locked = edge.kind in LOCKS and f is not None and f in facts.once(closed)
    if edge.kind in (*LOCKS, ray_actors.KIND) and not locked or edge.candidates:
        return _unknown(said, edge.note or "all that could end that wait for the same")
    return _no_one(facts, f, edge, said)


def _no_one(facts: Facts, f: ProcessState | None, edge: Edge, said: str) -> Step:
    """A wait that no node was found to end: who may all the same, or that nobody can."""
    tells = next((loop.calls[edge.address] for loop in f.loops if edge.address in loop.calls), None) if f is not None else None
    if f is not None and tells is not None:
        return _sources(facts, f, edge.waiter, tells)
    told = [f.signalled, *(loop.signalled for loop in f.loops)] if f is not None else []
    signals = [one[edge.address] for one in told if edge.address in one]
    if signals and not edge.ended and (set(signals) <= ASKED_TO_END or f is None or not f.children):  # a child may owe another
        return Step(said, (), End(edge.waiter, INPUT, "a handler of a signal tells it"))
    note = f"; {edge.note}" if edge.note and edge.kind not in NATIVE else ""  # of these it says who else may
    if edge.ended:
        gone = f"{', '.join(edge.ended[:4])}, which could have ended that, has ended"
        if f is not None and callers(f) and not f.role:
            return _unknown(said, f"{gone}; {who_may(facts, f, edge.waiter)}", "nobody")
        return Step(said, (), End(None, ENDED, gone, kind="" if edge.kind in NATIVE else "nobody"))
    if edge.kind == "File":
        return _unknown(said, edge.note, "nobody")
    if edge.kind == "Future":
        return _unknown(said, f"no frame that was read has it: work queued in a loop or pool is in no frame{note}", "nobody")
    may = who_may(facts, f, edge.waiter) if f is not None else "its process was not read"
    if may and edge.kind in NATIVE:
        return _unknown(said, "; ".join(filter(None, (edge.note, may))))
    if may:
        return _unknown(said, f"no Python frame that was read names it{note}; {may}", "nobody")
    return Step(said, (), End(None, NOBODY, f"no thread and no task can end that: all of them wait too{note}"))


def _kept_open(f: ProcessState, edge: Edge) -> Call | None:
    """The pipes that a task reads of a child that has ended, as a call: asyncio takes the child's end only when all of them are
    closed, and others have their writing ends (asyncio/base_subprocess.py, `_try_finish`)."""
    task = next((task for task in f.tasks if task.node == edge.waiter), None)
    loop = f.loop_with(task.loop) if task is not None and edge.pid in f.gone else None
    thread = next((t for t in f.threads if loop is not None and t.node[1] == loop.tid), None)
    if thread is None or thread.call is None:
        return None
    pipes = [one for one in thread.call.sources if one.kind == "pipe" and peers_of(f, Call("read", [one]))]
    return Call("read", pipes) if pipes else None


def _job(facts: Facts, edge: Edge, said: str) -> Step:
    f = facts.process(edge.waiter)
    nodes, unread = jobs.givers(facts, edge)
    if nodes:
        return Step(said, nodes, owned=not unread)
    if f is not None and f.restarts:
        return Step(said, (), End(None, ENDED, f.restarts, kind="dead"))
    if unread:
        others = [End(None, UNKNOWN, "it was not read", pid) for pid in unread[1:MAX_UNREAD]]
        who = ", ".join(str(pid) if pid else "that is not known here by its number" for pid in unread[:4])
        return Step(said, (), End(None, UNKNOWN, f"process {who} not read", unread[0], others, "answer"))
    return Step(said, (), End(None, ENDED, jobs.why_lost(edge), kind="dead"))


def _sleeper(facts: Facts, f: ProcessState, waiter: Node) -> Node:
    """The node that was not woken: the thread, or the thread of the task's loop."""
    task = facts.task(waiter)
    tid = next((loop.tid for loop in f.loops if task is not None and loop.address == task.loop), 0)
    return (waiter[0], tid) if tid else waiter


# ---- tasks -----------------------------------------------------------------------------------------------------------
def _task(facts: Facts, f: ProcessState, task: TaskState) -> Step:
    loop = next((one for one in f.loops if one.address == task.loop), None)
    thread = next((t for t in f.threads if loop is not None and t.node[1] == loop.tid), None)
    node, text = task.node, describe_node(facts, task.node)
    if task.edge is not None and task.edge.polls and task.edge.shared:
        return _edge(facts, task.edge)
    if task.stranded and task.state != "running":
        state = ENDED if task.stranded == CLOSED else UNKNOWN
        return _does(node, state, f"{text}: {task.stranded}: it is not run")
    if node in f.moved_tasks:
        others = any(t.node in f.moved_tasks and t.loop == task.loop and t.kind != "sleep" for t in f.tasks)
        kind = "moves" if task.kind != "sleep" or others else "ticks"
        return _does(node, SLEEPS if task.kind == "sleep" else MOVES, text, kind)
    if task.edge is not None and task.edge.polls:
        return _edge(facts, task.edge)
    if task.state in RUNNABLE and thread is not None and loop is not None and loop.turned:
        if _by_itself(thread) == "spins":
            return _does(thread.node, SPINS, describe(thread))
        kind = "moves" if _by_itself(thread) == "moves" else "works"
        return _does(node, RUNS, f"{text}: it yields and is run again, and nothing of it changes", kind)
    if task.state == "running" and thread is not None:
        return step(facts, thread.node)
    if task.state == "ready":
        if thread is None:
            return _unknown("its turn in the event loop", "no thread runs that loop")
        if thread.call is not None and thread.call.name in SELECTS:
            return Step("its turn in the event loop", (), End(thread.node, THERE, f"{describe(thread)}: the loop sleeps"))
        return Step("its turn in the event loop", [thread.node], owned=True)
    if task.edge is not None:
        return _edge(facts, task.edge, len(task.on) > 1 and task.kind != "as_completed")
    if task.kind == "sleep":
        stands = standing_loop(f, task)
        if stands is not None:
            return Step(f"its turn in the event loop: {task.text or text}", [stands.node], owned=True)
        served = f.listens or thread is not None and thread.call is not None and from_outside(thread.call)
        kind = "ticks" if naps(facts, node) or served else "sleeps" if task.for_good else "unknown"
        return _does(node, SLEEPS, text + (" (a short one)" if naps(facts, node) else ""), kind)
    if task.kind == "executor":
        pool = [t.node for t in pool_at_work(f)]
        said = task.text or "work of a pool"
        return Step(said, pool) if pool else _unknown(said, "no thread of a pool runs", "nobody")
    if task.serves:
        return Step(task.text, (), End(node, INPUT, text))
    if loop is not None and task.future in loop.lost:
        why = "its descriptor was closed while the event loop watched it: no event of it comes any more"
        return Step(f"{task.text} in {task.top}", (), End(None, NOBODY, why, kind="unknown"))
    call = task.call or (loop.calls.get(task.future) if loop is not None else None) or streams_call(f, task, thread)
    if call is not None:
        return _sources(facts, f, node, call)
    why = f"what could end that is not known: {text}" if text else ""
    return _unknown(task.text or "an unknown object", why, "answer" if task.descriptor >= 0 else "")
