"""What a program is for. A main thread or task that is parked, or waits for the end of others, is not blocked: the program is
what its other threads and tasks do."""

from __future__ import annotations

from ..observe.families import Outsider
from ..observe.window import PAGES, RUNS, STILL
from ..stacks.waits import Edge
from .closed import ENDS
from .facts import LOCKS, Facts, Node, ProcessState, ThreadState
from .graph import step
from .nodes import SELECTS, ends_of, from_outside, moves, owed, pool_at_work, standing_loop
from .states import Step

OFTEN = {"SIGALRM", "SIGVTALRM", "SIGPROF", "SIGCHLD", "SIGIO", "SIGPOLL"}  # signals that may come over and over
MANY = 10  # times that descriptors woke a loop in a window: more than a connection does that is only kept alive


def others(f: ProcessState, node: Node = None) -> list[Node]:
    """The threads and tasks of a process, without `node`, its main thread and idle helpers."""
    return [t.node for t in f.threads[1:] if t.python and (t.works or not t.idle)] + [t.node for t in f.tasks if t.node != node]


def parked(facts: Facts, node: Node) -> bool:
    """Whether a thread or task waits for nothing that its program does: its code only sleeps, or it waits for a signal, or for an
    event that a handler of a signal sets."""
    t, task, now, f = facts.thread(node), facts.task(node), step(facts, node), facts.process(node)
    if now.owned and now.edge is None and len(now.nodes) == 1:
        return parked(facts, now.nodes[0])  # the task that a loop runs for
    if now.edge is not None:
        alone = now.edge.kind.endswith("Event") and not (now.edge.named or now.edge.candidates)  # it waits till the program ends
        told = [f.signalled, *(loop.signalled for loop in f.loops)] if f is not None else []
        return not now.edge.ended and (alone or any(now.edge.address in one for one in told))
    if t is None:
        return task is not None and task.kind == "sleep" and task.for_good
    if t.call is None or t.edge is not None:
        return False
    signal = t.call.name in ("pause", "sigwait") and now.end is not None and now.end.outlook == "rests"
    return signal or t.call.name == "nanosleep" and t.for_good


def aims(facts: Facts, node: Node) -> list[Node]:
    """The nodes whose progress is that of a program whose main thread or task is `node`: itself, or what it waits for, along
    waits that name who ends them; where it is parked, all others."""
    found: list[Node] = []
    seen, todo = set(), [node]
    while todo:
        one = todo.pop()
        now, f, t = step(facts, one), facts.process(one), facts.thread(one)
        if one in seen or f is None:
            continue
        seen.add(one)
        if t is not None and (exchanges(facts, t) or takes(t)):
            found.append(one)
        elif t is not None and t.main and t.call is not None and from_outside(t.call) and f.loop_of(t.node[1]) is None:
            found += [one, *others(f, one)]  # it serves by its other threads
        elif parked(facts, one):
            found += others(f, one)
        elif now.nodes and (_known(facts, one, now) or (ends(facts, now.edge) if now.edge is not None else to_end(t, now))):
            todo += now.nodes
        else:
            found.append(one)
    return found


def to_end(t: ThreadState | None, now: Step) -> bool:
    """Whether a wait without an edge is for its owner, or for the end of children."""
    return now.owned or t is not None and t.call is not None and t.call.name == "wait"


def between_rounds(facts: Facts, node: Node) -> bool:
    """Whether a thread or task sleeps between the rounds of a loop that has no way out, so that it waits for no result there; no
    other waits for what it gives, and what its process has started was read."""
    t, task, f = facts.thread(node), facts.task(node), facts.process(node)
    if f is None or not f.children.keys() <= {other.pid for other in facts}:
        return False
    if t is not None:
        asks = t.tries or t.polls or t.denied or t.blocked  # for what others have
        asleep = t.rounds and not t.for_good and t.edge is None and (t.load or 0.0) <= RUNS and not asks
    else:
        asleep = task is not None and task.rounds and not (task.for_good or task.answers) and standing_loop(f, task) is None
    edges = [edge for edge in facts.edges if not ends(facts, edge)]
    return asleep and node not in owed(facts, edges) and not any(node in e.candidates for e in edges if e.kind in LOCKS)


def got_round(facts: Facts, t: ThreadState, given: set[Node]) -> bool:
    """Whether a thread that sleeps between such rounds did something in one: an item came or went, it changed its variables and
    is not among those whose gifts are awaited, or the process, of which it is the only thread, read or wrote."""
    f = facts.process(t.node)
    if f is None or not (t.rounds and t.woke):
        return False
    if moves(facts, t.node) and t.node not in given:
        return True
    came = any(c.moved and c.what.startswith("items through") for c in f.counters)
    return came or f.sole is t and f.read + f.wrote > 0


def _known(facts: Facts, node: Node, now: Step) -> bool:
    """Whether each of the nodes of a wait has to act, or there is one alone: who owns it, its rank, its process."""
    t = facts.thread(node)
    given = t is not None and (t.collective or now.edge is not None and not t.held_up)  # it got others of what it waits for
    if now.kind and not given or now.unread:
        return False
    return now.owned or now.every or len(now.nodes) == 1 and now.nodes[0] not in now.maybe


def outsiders(facts: Facts, node: Node) -> list[Outsider]:
    """The processes that were not sampled, for whose end or output a thread or task waits, where these are at work with all that
    they have started; [] where any of them is not."""
    now, f = step(facts, node), facts.process(node)
    end = now.end
    sources = now.call.sources if now.call is not None else []
    if f is None or end is None or end.outlook != "works" or any(source.kind not in ("pipe", "child") for source in sources):
        return []  # a server is at work for others too
    found = [f.others[pid] for pid in (one.pid for one in (end, *end.any_of)) if pid in f.others]
    return found if any(one.computes for one in found) else []


def gets_on(facts: Facts, t: ThreadState) -> bool:
    """Whether a thread that runs fills new memory; or, as the only one of its process, changes something: what it can reach, or a
    file."""
    f = facts.process(t.node)
    if t.works and t.took > PAGES and not t.handles:
        return True
    if f is None or not alone(f, t):
        return False  # another may have changed it
    return t.alters or t.works and bool(t.moved or t.woke) and f.sole is t and f.wrote > 0 and not t.handles


def alone(f: ProcessState, t: ThreadState) -> bool:
    """Whether no other thread of its process moved, woke or ran."""
    return not any(one.woke or one.moved or (one.load or 0.0) > STILL for one in f.threads if one is not t)


def takes(t: ThreadState) -> bool:
    """Whether a thread got locks or items over and over: it went to sleep for them more than once, moved, and such a wait has no
    time limit."""
    edge = t.edge
    return (
        edge is not None and not (edge.limit or edge.polls) and edge.kind not in ("GIL", "Condition") and t.moved and t.woke > 1
    )


def exchanges(facts: Facts, t: ThreadState) -> bool:
    """Whether a thread got or gave data in the window: it waits without a time limit at a pipe or connection, and went to sleep
    there anew."""
    f, call = facts.process(t.node), t.call
    if f is None or call is None or t.edge is not None or call.limited or not t.woke or t.main and OFTEN & set(f.signals):
        return False  # a timer's signal may have woken it
    if call.name in SELECTS:  # no timer woke it, so its descriptors did
        if any(source.kind == "event" or f.pid in ends_of(f, call, source) for source in call.sources):
            return False  # its own threads may have
        return t.woke > 1 and (t.load or 0.0) > STILL or t.woke > MANY
    own = alone(f, t)  # what a process reads and writes is counted for all of its threads; what is received is not
    counted = {"read": f.read * own, "write": f.wrote * own, "recv": t.woke}
    return counted.get(call.name, 0) > 0 and all(source.kind in ("pipe", "client", "unix", "served") for source in call.sources)


def ends(facts: Facts, edge: Edge) -> bool:
    """Whether a wait is for the end of other threads or tasks, or of the work that they do for a pool."""
    if edge.kind != "Future" or edge.pool:
        return edge.kind in ENDS or edge.pool and edge.kind not in LOCKS  # a permit is given back before that
    f = facts.process(edge.waiter)
    jobs = {t.node for t in pool_at_work(f)} if f is not None else set()
    nodes = [edge.owner] if edge.owner is not None else edge.candidates
    return bool(nodes) and jobs.issuperset(nodes)


def serves(f: ProcessState) -> bool:
    """Whether a thread of it waits for input from outside."""
    return any(t.call is not None and from_outside(t.call) for t in f.threads)
