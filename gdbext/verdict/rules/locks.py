"""Locks: rings of waits, and a lock that is kept. Threads and asyncio tasks are treated alike."""

from __future__ import annotations

from ...stacks import waits
from ...stacks.waits import Edge
from .. import gate, turns
from ..facts import LOCKS, Facts, Node, Verdict
from ..graph import step
from ..states import INPUT
from ..walk import chain_of, outlook
from ..words import blocked, describe_node, name_of, waiting
from . import requests
from .chains import roots

CHAIN = (*LOCKS, "GIL", "Thread", "task")
MINUTES = 600.0  # seconds
OWED = ("answer", "spins", "sleeps", "blocked", "dead", "nobody")  # outlooks


def _held_up(facts: Facts, node: Node) -> bool:
    """Whether a thread or task waited for its edge during the whole window."""
    t = facts.thread(node)
    if t is not None:
        return t.held_up
    return facts.task(node) is not None and not any(node in f.moved_tasks for f in facts)


def cycle(facts: Facts) -> Verdict | None:
    """Threads or tasks that wait for one another in a ring during the whole window."""
    steps = [step(facts, e.waiter) for e in facts.edges if _held_up(facts, e.waiter)]
    found = waits.cycles(one.edge for one in steps if one.edge is not None and one.owned and one.nodes)
    if not found:
        return None
    nodes = [e.waiter for c in found for e in c]
    evidence = [waits.sentence(c, lambda n: name_of(facts, n)) for c in found]
    evidence += [f"{name_of(facts, e.waiter)} is in {e.where}" for c in found for e in c if e.where]
    return Verdict("lock-cycle", nodes, evidence, blocked(facts, nodes))


def held(facts: Facts) -> Verdict | None:
    """A lock that blocks a thread or task which did not move. The culprit is the end of its chain of owners."""
    edges, found = facts.edges, []
    for f in facts:
        waiters = [(not t.main, t.node, t.edge) for t in f.threads] + [(True, t.node, t.edge) for t in f.tasks]
        for helper, node, edge in waiters:
            if edge is None or edge.kind not in CHAIN or not _held_up(facts, node):
                continue
            kept = _kept(facts, edges, node, helper)
            if kept is not None:
                found.append((helper, f.name, f, *kept))
    if not found:
        return None
    found.sort(key=lambda x: (x[0], x[1]))
    ill = (one for one in found if one[3].owner is None or not gate.slow(facts, one[5]))
    _, _, f, last, way, end = next(ill, found[0])
    evidence, locked = [], [e for e in way if e.kind in LOCKS][-1]
    for e in way:
        evidence += [f"{name_of(facts, e.waiter)} waits for {e.lock} in {e.where}"] if e.kind in CHAIN or e is last else []
        evidence += [f"{name_of(facts, e.owner)} has it{f': {e.note}' if e.note else ''}"] if e is locked and e.owner else []
    if last.owner is None:
        evidence.append(last.note)
        holder = [] if last.shared is not None else [(f.name, None)]  # of a shared one another process had it, and has ended
        return Verdict("lock-held", holder, evidence, waiting(facts, [f]) + blocked(facts, [], {last.address}))
    evidence.append(describe_node(facts, end))
    return Verdict("lock-held", [end], evidence, waiting(facts, [f]) + blocked(facts, [end]))


def _only_rests(facts: Facts, node: Node) -> bool:
    """Whether no known thread or process owes it what it waits for."""
    return turns.gets_for_all(facts, node) or outlook(facts, node).kind not in OWED


def _keeps_nothing(facts: Facts, edge: Edge) -> bool:
    """Whether the owner of a lock is known to rest, and no main thread, loop or request waits for the lock: threads that read
    from one giver in turn, a standby for a thread that serves. A giver that sleeps for minutes rests; for hours, it may not."""
    node = edge.owner
    t, task = facts.thread(node), facts.task(node)
    if t is not None and not t.still or t is None and task is None or requests.custody(facts):
        return False
    chain = chain_of(facts, node)
    call = t.call if t is not None else None
    serves = call is not None and (call.name in ("pause", "sigwait") or {s.kind for s in call.sources} == {"listener"})
    givers = list(gate.outsiders(facts, chain)) if not chain.through and turns.in_one_place(facts, edge) else []
    if chain.end.state == INPUT and not chain.through:
        rests = serves or task is not None and task.serves
    else:
        rests = bool(givers) and all(0 < one.sleeps <= MINUTES and not one.stopped for one in givers)
    wanted = turns.wanted_by(facts, edge)
    paths = [[root, *chain_of(facts, root).nodes] for root in roots(facts)]
    return rests and not any(waiter in path for path in paths for waiter in wanted)


def _kept(facts: Facts, edges: list[Edge], node: Node, helper: bool) -> tuple[Edge, list[Edge], Node] | None:
    """(the last lock of the chain from `node`, the chain, the lock's owner); None where no owner can be the culprit."""
    end, way = waits.root(edges, node)
    last = way[-1]
    locked = [e for e in way if e.kind in LOCKS]
    if not locked or any(not _held_up(facts, e.waiter) for e in way):
        return None
    if last.owner is None and last.kind not in LOCKS and last.kind != "GIL":
        last = locked[-1]  # its owner waits for something that has no owner: a queue, an event
        end = last.owner
    if last.kind == "GIL" or last.owner is None and (not last.orphan or last.doubted):
        return None  # its owner is not known, or its own code may free it
    f = facts.process(last.waiter)
    if last.owner is None and last.shared and f is not None and f.signals:
        return None  # a handler may release it
    if last.polls and helper:
        return None  # it may only try
    if turns.taken_in_turn(facts, locked[-1]) and _only_rests(facts, locked[-1].owner) or _keeps_nothing(facts, locked[-1]):
        return None
    keeper = facts.thread(locked[-1].owner)
    if keeper is not None and keeper.woke and locked[-1].polls and not locked[-1].in_one_call:
        return None  # it may have given it back in between, and taken it again
    owner = facts.thread(end) if last.owner is not None else None
    if owner is not None and (owner.victim or owner.works or owner.denied):
        return None  # its owner waits for other ranks, works (another rule's case) or wants a CPU
    if owner is not None and helper and not owner.still:
        return None
    return last, way, end
