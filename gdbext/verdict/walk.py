"""The one walk along the graph of waits (`graph.step`). A chain is what is met on the way. An `Outlook` is a fold over the same
steps, with the doubts that a verdict needs.

If any of several can end a wait, its outlook is the best of theirs. If all must act (a join, a gather), it is the worst.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Iterable, Iterator, Mapping, Sequence

from ..observe.system_calls import Call
from ..observe.window import STILL
from ..stacks.waits import Edge
from .closed import at_other_ends, closed, who_may
from .facts import LOCKS, NATIVE, Facts, Node, ProcessState, ThreadState
from .graph import step
from .heirs import inherited
from .nodes import OUTSIDE, ends_of, handlers, sleeps
from .purpose import parked
from .states import INPUT, MOVES, ORDER, RING, RUNS, SEVERAL, SLEEPS, SPINS, UNKNOWN, End, Step, short
from .turns import behind, taken_in_turn
from .words import called, describe_node, name_of

GOOD = ("moves", "rests")
IN_VAIN = ("unknown", "answer", "dead", "nobody")
MAX_WAY = 100  # threads and tasks, one behind the other
MAX_FOLLOWED = 64  # of a wait: where more could end it, those that wait themselves are not followed
MAX_LINKS = 32  # of a chain, with all of its branches up to there
MAX_GIVERS = 8  # of a wait that any of several could end, each followed by a chain


@dataclass
class Outlook:
    """How a wait turns out. `kind` of `ORDER`; `culprit`: the node at its end, None where there is none; `way`: the waits,
    in words; `ended`: names of threads that could have ended the wait and have ended themselves."""

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


# ---- the fold --------------------------------------------------------------------------------------------------------
def outlook(facts: Facts, node: Node, seen: _Way | None = None) -> Outlook:
    """The `Outlook` of the wait that a thread or task is in; `seen`: the nodes by which the search came here."""
    seen = seen or _Way()
    if node in seen or len(seen.nodes) >= MAX_WAY:
        return Outlook("unknown")  # they wait for each other; if each owns what the next wants, `rules.locks.cycle` reports it
    if node not in seen.known:
        seen.known[node] = _outlook(facts, node, seen.over(node))
    return replace(seen.known[node])


def _outlook(facts: Facts, node: Node, seen: _Way) -> Outlook:
    now = step(facts, node)
    found = Outlook(now.kind, node) if now.kind else _at_end(facts, node, now) if now.end else _beyond(facts, node, now, seen)
    found = _doubted(facts, node, now, found, seen) if not now.kind else found
    if not now.waits_for:
        return found
    return replace(found, way=[f"{name_of(facts, node)} waits for {now.waits_for}", *found.way])


def _at_end(facts: Facts, node: Node, now: Step) -> Outlook:
    """The outlook of a node that waits for none, or whose wait none that was read could end."""
    end, f = now.end, facts.process(node)
    assert end is not None
    found = Outlook(end.outlook, node if end.node is None and end.outlook == "sleeps" else end.node)
    if found.kind == "nobody" and now.edge is not None:
        found.ended = now.edge.ended
    if found.kind == "answer" and end.pid and f is not None:
        pids = [one.pid for one in (end, *end.any_of) if one.pid not in f.gone]
        found.way = [f"process {called(f, pid)} was not asked: name that one too" for pid in pids[:4]]
    elif end.node is None and found.kind in ("answer", "works"):
        found.way = [end.why]
    return found


def _beyond(facts: Facts, node: Node, now: Step, seen: _Way) -> Outlook:
    """The outlook of a wait by those that could end it."""
    f = facts.process(node)
    if now.every:
        found = [outlook(facts, one, seen) for one in now.nodes]
        worst = max(found, key=lambda o: o.rank) if found else Outlook("unknown")
        # one that sleeps for good beside one that waits for input from outside only keeps its program alive
        alive = now.edge is not None and worst.kind == "sleeps" and any(o.kind == "rests" for o in found)
        return Outlook("unknown", None, worst.way) if alive else worst
    if now.pids and f is not None:
        return _of_processes(facts, f, now, seen)
    return _any(facts, now, seen)


def _any(facts: Facts, now: Step, seen: _Way) -> Outlook:
    """The best of the outlooks of those that could end a wait; where several are equally bad, none of them is named."""
    found = []
    for node in [*now.nodes, *(one for one in now.maybe if one not in now.nodes)]:
        if node not in seen:
            many = len(now.nodes) > MAX_FOLLOWED and bool(step(facts, node).edge)
            one = Outlook("unknown") if many else outlook(facts, node, seen)
            if one.kind == "rests" and not now.owned and one.culprit is not None and parked(facts, one.culprit):
                one = Outlook("unknown")  # one that only waits to be asked to end gives nothing
            found.append(Outlook("unknown") if node in now.maybe and one.rank > ORDER.index("unknown") else one)
    best = min(found, key=lambda o: o.rank, default=Outlook("unknown"))
    bad = [o for o in found if o.kind == best.kind and o.culprit is not None]
    if best.kind in ("spins", "sleeps", "blocked", "dead") and len({o.culprit for o in bad}) > 1:
        return Outlook("unknown", None, [describe_node(facts, o.culprit) for o in bad[:4]])
    return best


def _of_processes(facts: Facts, f: ProcessState, now: Step, seen: _Way) -> Outlook:
    """The outlook of a wait that any of some processes can end, of which at least one was read."""
    if now.call is not None and any(one[0] == gone[0] for one in now.nodes for gone in seen):
        return Outlook("unknown")  # that one waits for this one
    best = _any(facts, now, seen)
    last = facts.process(best.culprit) if best.culprit is not None else None
    if best.kind == "sleeps" and last is not None and any(t.node != best.culprit and not t.idle for t in last.threads):
        best = Outlook("unknown", best.culprit, best.way)  # it only keeps its process alive: another thread may do the work
    read = {other.pid for other in facts}
    left = [pid for pid in now.pids if pid not in read | f.asker and pid not in f.gone]
    if best.kind in ("moves", "ticks", "works") or not left:
        return best
    ran = f.spent(left)
    if ran > STILL:
        return Outlook("works", None, [*best.way, f"process {left[0]} used {ran:.2f} s of CPU meanwhile, and was not read"])
    asks = [f"process {called(f, pid)} was not asked: name that one too" for pid in left[:4]]
    return Outlook("answer", None, [*best.way, *asks])


def _doubted(facts: Facts, node: Node, now: Step, found: Outlook, seen: _Way) -> Outlook:
    """An outlook with what speaks against it: then it is "unknown", for a verdict accuses nobody then."""
    unknown = Outlook("unknown", None, found.way)
    if now.edge is not None:
        if found.kind in IN_VAIN and spins(facts, now.edge.waiter):
            return Outlook("spins", now.edge.waiter)
        return _doubted_edge(facts, now, now.edge, found)
    if now.call is None or now.end is not None:
        return found
    if not now.pids:
        if found.kind == "rests" and any(_asks_another(facts, one) for one in now.maybe):
            return unknown  # an answer may be owed
        return unknown if found.kind not in GOOD else replace(found, culprit=None)  # that it can reach the end proves nothing
    if found.kind == "rests" and any(source.pending for source in now.call.sources):
        return Outlook("answer", None, found.way)  # who rests has not accepted it
    f = facts.process(node)
    pipes = all(source.kind == "pipe" for source in now.call.sources)
    return _without_heirs(facts, f, now, found, seen) if pipes and f is not None else found


def _asks_another(facts: Facts, node: Node) -> bool:
    """Whether a thread waits for other processes too, that are no clients of its own."""
    f, t = facts.process(node), facts.thread(node)
    if f is None or t is None or t.call is None:
        return False
    own = [source for source in t.call.sources if source.kind not in (*OUTSIDE, "event")]
    return any(pid != f.pid for source in own for pid in ends_of(f, t.call, source))


def spins(facts: Facts, node: Node) -> bool:
    """Whether a thread that asks over and over changes nothing: that is what it does where nobody is known to answer. A main
    thread may be meant to."""
    t = facts.thread(node)
    return t is not None and not t.main and t.polls and t.works and t.futile


def _doubted_edge(facts: Facts, now: Step, edge: Edge, found: Outlook) -> Outlook:
    unknown = Outlook("unknown", None, found.way)
    if edge.owner is not None and now.nodes:
        keeps = edge.kind in LOCKS and found.culprit == edge.owner
        does = step(facts, edge.owner).end
        if keeps and found.kind == "unknown" and sleeps(facts, edge.owner) and does is not None and does.state == SLEEPS:
            found.kind = "sleeps"  # it may give the lock back after that; until then it keeps others from moving
        found.lock = found.lock or keeps
    elif found.kind not in GOOD and not now.pids and not (now.end is not None and found.kind == "answer"):
        f = facts.process(edge.waiter)
        handled = not now.every and edge.polls and f is not None and bool(f.signals)  # a handler may give what a loop asks for
        counted = edge.kind == "rwlock" and not edge.candidates  # any may be one of its readers
        if edge.doubted or handled or counted:
            return unknown
    if edge.kind == "Value" and found.kind not in GOOD:
        return unknown
    if edge.kind in (*LOCKS, *NATIVE) and found.kind == "rests" and not taken_in_turn(facts, edge):
        return unknown  # a thread that rests with a lock that others want does not give it back
    if edge.limit and found.kind in ("nobody", "sleeps", "blocked", "unknown") and edge.kind not in LOCKS:
        return replace(unknown, ended=found.ended)
    return found


def _without_heirs(facts: Facts, f: ProcessState, now: Step, found: Outlook, seen: _Way) -> Outlook:
    """The outlook `found` of a wait for a pipe of which some processes have the other end. One that merely inherited it gives
    nothing: that one need not act, and that it rests does not mean that the others owe nothing. Where nobody else has the end or
    can open it, it is the giver."""
    call = now.call
    if call is None or found.kind in ("moves", "works", "unknown", "answer"):
        return found
    heirs = {p.pid: p for p in facts if p.pid in now.pids and inherited(p, call)}
    held = {pid for source in call.sources for pid in ends_of(f, call, source)}
    if held <= heirs.keys() and not any(source.is_named for source in call.sources):
        return found
    if found.kind != "rests":
        last = facts.process(found.culprit) if found.culprit is not None else None
        return Outlook("unknown", None, found.way) if last in heirs.values() else found
    givers = [pid for pid in now.pids if pid not in heirs]
    if not givers and held & f.ancestors <= {p.pid for p in facts}:  # its parent's commands: who inherited the end is to rest too
        givers = [*heirs, *(held & f.ancestors)]
    known = [p.main.node for p in facts if p.pid in givers and p.main is not None]
    if len(known) == len(givers) > 0 and all(outlook(facts, node, seen).kind == "rests" for node in known):
        return found
    return Outlook("unknown" if len(known) == len(givers) else "answer", None, found.way)


# ---- the chain -------------------------------------------------------------------------------------------------------
@dataclass
class Chain:
    """The chain of one wait. `waiter` waits for `waits_for`; `through`: [(node in between, the object it waits for)]; `end`: the
    last node. `count`: how many wait alike; `also`: some of them; `request`: the id of a request that waits."""

    waiter: Node
    waits_for: str
    through: list[tuple[Node, str]]
    end: End
    count: int = 1
    also: list[Node] = field(default_factory=list)
    request: str = ""
    rests: bool = False  # a helper that waits for work

    @property
    def nodes(self) -> list[Node]:
        """The nodes of the chain, without the waiter."""
        ends = [end.node for end in (self.end, *self.end.any_of)]
        return [node for node in [*(node for node, _ in self.through), *ends] if node is not None]

    @property
    def unseen(self) -> list[int]:
        """The pids at its end, or at one of its ends, that were not sampled and owe what the chain waits for."""
        return [end.pid for end in (self.end, *self.end.any_of) if end.pid and end.state in (RUNS, UNKNOWN)]


def chain_of(facts: Facts, node: Node) -> Chain:
    """The chain from a thread or task."""
    links, end = _walk(facts, node, {}, MAX_GIVERS)
    return Chain(node, links[0][1] if links else "", links[1:], end)


def _walk(facts: Facts, node: Node, before: Mapping[Node, bool], width: int) -> tuple[list[tuple[Node, str]], End]:
    links, end = _along(facts, node, before, width)
    for i, (one, _) in reversed(list(enumerate(links)) if end.state != RING else []):
        edge = step(facts, one).edge
        if edge is None or not spins(facts, edge.waiter):
            continue
        seen = _Way(frozenset([*before, *(passed for passed, _ in links[:i])]))
        if outlook(facts, one, seen).culprit == edge.waiter:
            return links[: i + 1], End(edge.waiter, SPINS, describe_node(facts, edge.waiter))
    return links, end


def _along(facts: Facts, node: Node, before: Mapping[Node, bool], width: int) -> tuple[list[tuple[Node, str]], End]:
    """-> ([(node, the object it waits for)], the end). `before`: {a node that was passed already: whether its wait is `owned`};
    `width`: how many givers are followed."""
    links: list[tuple[Node, str]] = []
    passed = dict(before)
    while True:
        now = step(facts, node)
        if not now.waits_for:
            return links, now.end or End(node, UNKNOWN)
        links.append((node, now.waits_for))
        if now.end is not None:
            return links, now.end
        passed[node] = now.owned
        nodes = [n for n in now.nodes if n not in passed]
        if not nodes:
            return links, _ring(facts, passed, node, now.nodes)
        if len(passed) >= MAX_LINKS:
            return links, End(None, UNKNOWN, f"the chain is longer than {MAX_LINKS}")
        if len(nodes) == 1 and not now.unread:
            node = nodes[0]
            continue
        more, end = _branch(facts, nodes, passed, width, now.every, now.unread)
        return links + more, end


def _ring(facts: Facts, passed: Mapping[Node, bool], last: Node, back: Sequence[Node]) -> End:
    """The end of a chain whose `last` wait is for nodes earlier in the chain. It is a ring where nothing else could end one of
    the waits round it: each is for what the next one owns, or `enders` proves it."""
    node = next(iter(back), None)
    order = list(passed)
    for one in order[order.index(node) :] if node in passed else []:
        if not passed[one] and one not in facts.once(knot) and facts.process(one) not in facts.once(closed):
            f = facts.process(one)
            may = who_may(facts, f, one) if f is not None else "its process was not read"
            turn = "" if node == last else f"{name_of(facts, node)} waits for it in turn, but "
            return End(one, UNKNOWN, f"{turn}others could end the wait of {name_of(facts, one)}: {may}")
    return End(node, RING, "it waits for itself" if node == last else "that one waits for it in turn")


def _branch(
    facts: Facts, nodes: Sequence[Node], passed: Mapping[Node, bool], width: int, every: bool, unread: Sequence[int] = ()
) -> tuple[list[tuple[Node, str]], End]:
    """The rest of a chain where several could end a wait. If all of their chains have the same end, the rest is one of these
    chains; else it is the list of their ends. Where `every` one must act, those that make progress are left out."""
    if not width:  # deep enough
        return [], End(None, SEVERAL, f"{'all' if every else 'any'} of {len(nodes) + len(unread)}")
    found = [_walk(facts, node, passed, width // 2) for node in nodes[:width]]
    if every and any(end.state not in (MOVES, INPUT) for _, end in found):
        found = [one for one in found if one[1].state not in (MOVES, INPUT)]
    ends: dict[Any, tuple[list[tuple[Node, str]], End]] = {}
    for more, end in found:
        key = (end.node, end.pid, end.state) if end.node is not None or end.pid else (end.state, end.why)
        ends.setdefault(key, (more, end))
    if len(ends) == 1 and len(nodes) <= width and not unread:
        return next(iter(ends.values()))
    several = [end for _, end in ends.values()]
    left = len(nodes) - len(found)
    why = "; ".join(short(facts, end) for end in several[:4]) + (f"; and {left} more" if left > 0 else "")
    why += f"; {len(unread)} not read: {', '.join(map(str, unread[:4]))}{', …' * (len(unread) > 4)}" if unread else ""
    several += [End(None, UNKNOWN, "it was not read", pid) for pid in unread[:MAX_GIVERS]]
    return [], End(None, SEVERAL, f"{'all' if every else 'any'} of {len(nodes) + len(unread)}: {why}", 0, several)


# ---- what is proven --------------------------------------------------------------------------------------------------
def enders(facts: Facts, node: Node) -> tuple[Sequence[Node], bool] | None:
    """(the nodes that could end the wait of a thread or task, whether every one of them has to), where they are all that could
    during the whole window; None where that is not known."""
    now, f, t, task = step(facts, node), facts.process(node), facts.thread(node), facts.task(node)
    if f is None or not now.nodes or not (_stands(t) if t is not None else task is not None and task.state == "waiting"):
        return None
    edge, proven = now.edge, f in facts.once(closed)
    if edge is not None and (
        edge.limit and edge.kind not in LOCKS or edge.kind in ("Job", "Value") or taken_in_turn(facts, edge)
    ):
        return None
    if now.call is not None:
        return _at_files(facts, f, node, now.call) if edge is None and not (handlers(f) or f.hidden) else None
    if now.pids:
        read = {other.pid for other in facts if other.main is not None} - {pid for pid, _ in f.dead_children}
        return (now.nodes, False) if set(now.pids) <= read else None
    if edge is not None:
        permits = edge.owner is not None and edge.kind.endswith("Semaphore") and proven  # these have the others too
        return (now.nodes, now.every) if (now.owned or permits) and not taken_in_turn(facts, edge) else None
    turn = t is not None and (t.edge.kind == "GIL" if t.edge is not None else proven and not now.kind)  # or its loop's task
    return (now.nodes, False) if now.owned and turn else None


def _stands(t: ThreadState) -> bool:
    """Whether a thread was in one wait during the whole window, which no time limit of its own ends."""
    if t.edge is not None:
        return t.load is not None and t.held_up and not t.denied
    return t.load is not None and t.still and not t.woke and t.call is not None and not t.call.limited


def _at_files(facts: Facts, f: ProcessState, node: Node, call: Call) -> tuple[list[Node], bool] | None:
    """As `enders`, of a wait for files: all threads of the processes that have their other ends."""
    pids = at_other_ends(f, call) if call.name in ("read", "recv", "write", "poll", "select") else None
    if pids is None or pids <= {f.pid}:
        return None  # only this process has it; or the other end is on another machine, or in a process that cannot be read
    found, waiting = _threads(facts, pids, node=node), behind(facts, node)
    if found is None:
        return None
    return [one for one in found if getattr(facts.process(one), "pid", 0) not in waiting], False


def _threads(facts: Facts, pids: Iterable[int], node: Node) -> list[Node] | None:
    """All threads of some processes that may act by themselves, without `node`. Idle helpers are left out: they get their work
    from these."""
    found = []
    for pid in pids:
        f = next((one for one in facts if one.pid == pid), None)
        if f is None or not f.threads or handlers(f):
            return None
        for t in f.threads:
            served = t.call is not None and any(source.kind in OUTSIDE for source in t.call.sources)
            if t.node != node and (t.main or served or not t.idle):
                found.append(t.node)
    return found


def knot(facts: Facts) -> dict[Node, Sequence[Node]]:
    """{a thread or task of a knot: the nodes that could end its wait}; {} where there is no knot. Each of a knot waits during the
    whole window, for one of it or for any of several that are all in it, so nothing outside can end one of these waits. Those
    that only wait for the knot are left out."""
    nodes = [t.node for f in facts for t in f.threads] + [t.node for f in facts for t in f.tasks]
    known = {node: found for node in nodes for found in [enders(facts, node)] if found is not None}
    while True:
        awaited = {one for who, _ in known.values() for one in who}
        free = [
            node
            for node, (who, every) in known.items()
            if node not in awaited or not (any if every else all)(one in known for one in who)
        ]
        if not free:
            return {node: who for node, (who, _) in known.items()}
        for node in free:
            del known[node]
