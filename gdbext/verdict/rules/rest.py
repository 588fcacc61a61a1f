"""Processes at rest: they wait for work, and nothing waits for them."""

from __future__ import annotations

from typing import Sequence

from ...observe.window import STILL
from ...stacks.async_waits import LoopState
from ..facts import Facts, Node, ProcessState, ThreadState, Verdict
from ..fronts import open_at
from ..graph import step
from ..nodes import in_selector, moves, owed, sleeps
from ..purpose import aims, between_rounds, ends, exchanges, gets_on, others, parked, serves, to_end
from ..walk import outlook
from ..words import name_of
from . import collectives, fronts, requests
from .chains import roots
from .rings import rests

SHOWN = 8
_HELPERS = ("multiprocessing/resource_tracker.py", "multiprocessing/forkserver.py")
BEHIND = ("engine-core", "worker", "scheduler")  # the front end
POLLING = (*BEHIND, "frontend")


def idle(facts: Facts) -> Verdict | None:
    """Every main thread rests: its wait can be ended from outside. No other thread and no task waits for something that cannot
    come.

    No exchange is open but of requests that the engine's user keeps back, no connection waits to be accepted and no bytes of one
    are unread, at the first sample and at the last.

    If an engine's requests are known and none is open, a server's task that checks the time over and over rests too."""
    nodes = roots(facts)
    known = requests.custody(facts)
    kept_back, paused = requests.kept_back(facts), requests.paused(facts)
    if any(f.uncalled for f in facts) or not nodes or known or fronts.unserved(facts) or len(open_at(facts)) > len(kept_back):
        return None
    evidence = paused or (["no request is open"] if known is not None else [])
    kept = requests.kept(facts)
    if kept:
        evidence += kept[:SHOWN] + [f"and {len(kept) - SHOWN} more"] * (len(kept) > SHOWN)
    following = collectives.followers(facts)
    for f in facts:
        if f.main is None:
            return None
        why = ""
        if f.name in following:
            why = f"{f.name} waits for the next command in {f.main.collective}"
        elif kept and _polls(facts, f):
            why = f"{f.name} goes round without work: it asks the connector whether they have been read"
        elif f.role and rests(f) and not (known is not None and _helps(f)):
            why = f"{f.name} waits for work in {f.main.top}"
        evidence += [why] * bool(why)
        if why or known is not None and _helps(f):
            nodes = [n for n in nodes if n != f.main.node]
    for node in nodes:
        found = outlook(facts, node)
        if known is not None and found.kind != "rests" and _loop_of(facts, node) is not None:
            continue  # a task of it asks for something else: its main one counts
        if _stays(facts, node, known is not None):
            does = f"{name_of(facts, node)} is parked: its program is what its other threads and tasks do"
            evidence += [does] * (not step(facts, node).nodes)  # the thread of a loop is where its task is
            continue
        if known is None and _goes_round(facts, node):
            evidence.append(f"{name_of(facts, node)} sleeps between the rounds of a loop that has no way out")
            continue
        turns = known is not None and found.kind in ("ticks", "moves") and facts.task(found.culprit) is not None
        if found.kind != "rests" and not turns or known is None and _asked(facts, node):
            return None
        does = "waits for input from outside" if found.kind == "rests" else "polls the clock, and has no work"
        evidence.append(f"{name_of(facts, node)} {does}" + (f": {found.way[-1]}" if found.way else ""))
    if known is not None:  # an engine owes its requests only: helpers that wait for each other do not matter
        return Verdict(
            "idle",
            [],
            [*evidence, "all that is open waits for the user, who has paused the engine" if paused else "nothing is owed"],
        )
    if not _quiet(facts, nodes):
        return None
    return Verdict("idle", [], [*evidence, "nothing runs, and no thread waits for one that cannot come"])


def _quiet(facts: Facts, nodes: Sequence[Node]) -> bool:
    """Whether no thread or task beside the main ones waits for what may not come, and none that its program is for is at work: it
    takes or gives data, changes things, or moves while the main one is parked."""
    if any(f.main is not None and exchanges(facts, f.main) for f in facts):
        return False
    stayed = any(parked(facts, node) for node in nodes)
    beside = [t.node for f in facts for t in f.threads[1:] if _counts(f, t)] + [t.node for f in facts for t in f.tasks]
    if any(f.served - _watched(f) and any((t.edge is not None or t.rounds) and not t.idle for t in f.threads[1:]) for f in facts):
        return False  # nobody reads a client's connection: a thread that waits for something may owe it an answer
    for node in beside:
        t, stays = facts.thread(node), node in nodes and parked(facts, node)
        if not (stays or at_peace(facts, node)):
            return False
        if (
            t is not None
            and (t.load or 0) > STILL
            and (gets_on(facts, t) or exchanges(facts, t) or stayed and moves(facts, node))
        ):
            return False
    return True


def _asked(facts: Facts, node: Node) -> bool:
    """Whether a thread waits, for as long as it takes, at a connection that it opened itself to a server that was read: that the
    server rests does not mean that it owes no answer."""
    t, now = facts.thread(node), step(facts, node)
    if t is None or t.call is None or t.call.limited or t.call.name not in ("recv", "read") or not now.pids:
        return False
    return all(source.kind == "client" and source.tcp for source in t.call.sources)


def _watched(f: ProcessState) -> set[int]:
    """The inodes of the files at which threads of a process wait."""
    return {source.inode for t in f.threads if t.call is not None for source in t.call.sources}


def _stays(facts: Facts, node: Node, engine: bool) -> bool:
    """Whether a main thread or task only keeps its program alive, which serves others, or is an engine that owes nothing: then it
    may be in one long sleep, or wait for an event, too. One that sleeps over and over may ask for something in between."""
    f, t, now = facts.process(node), facts.thread(node), step(facts, node)
    if now.owned and now.edge is None and len(now.nodes) == 1:
        return _stays(facts, now.nodes[0], engine)
    event = now.edge is not None and now.edge.kind.endswith("Event") and not now.nodes
    event = event and f is not None and f.role not in BEHIND
    if engine and (event or t is not None and t.still and not t.woke and sleeps(facts, node)):
        return True
    if not parked(facts, node) or f is None:
        return False
    return engine or serves(f) or any(between_rounds(facts, one) for one in others(f, node))


def _goes_round(facts: Facts, node: Node) -> bool:
    """Whether a main thread or task, or all for whose end it waits, sleep between their rounds or rest."""
    now = step(facts, node)
    waits = ends(facts, now.edge) if now.edge is not None else to_end(facts.thread(node), now)
    if not (waits or between_rounds(facts, node)):
        return False
    leaves = aims(facts, node)
    turns = [leaf for leaf in leaves if between_rounds(facts, leaf)]
    return bool(turns) and all(leaf in turns or outlook(facts, leaf).kind == "rests" for leaf in leaves)


def _helps(f: ProcessState) -> bool:
    """Whether it is a multiprocessing helper that waits for messages of an engine's processes and owes them nothing."""
    main = f.main
    if f.role or main is None or not main.still or main.call is None or main.call.name not in ("read", "select", "poll", "epoll"):
        return False
    return any(frame.file.replace("\\", "/").endswith(_HELPERS) for frame in main.frames)


def _polls(facts: Facts, f: ProcessState) -> bool:
    """Whether a core or worker that keeps blocks for readers elsewhere goes round: its main thread moves, or waits for a thread
    of the engine that moves."""
    return f.role in POLLING and f.main is not None and outlook(facts, f.main.node).kind in ("moves", "ticks", "rests")


def _loop_of(facts: Facts, node: Node) -> LoopState | None:
    """The event loop in whose selector a thread is: the tasks count by themselves."""
    f, t = facts.process(node), facts.thread(node)
    loop = f.loop_of(node[1]) if f is not None and t is not None else None
    return loop if f is not None and t is not None and loop is not None and in_selector(f, t, loop) and not loop.ready else None


def _counts(f: ProcessState, t: ThreadState) -> bool:
    native = f.main is not None and not f.main.python
    return t.edge is not None or t.works if native else t.python and not t.idle


def at_peace(facts: Facts, node: Node) -> bool:
    """Whether a thread or task waits for nothing that cannot come."""
    t, loop = facts.thread(node), _loop_of(facts, node)
    if t is not None and t.still and loop is not None and loop.main is None:
        return True
    found, task = outlook(facts, node), facts.task(node)
    if not parked(facts, node) and _goes_round(facts, node):
        return True
    if task is not None and task.answers and task.edge is not None and found.kind == "rests":
        return False  # what a client that is answered waits for is owed
    if found.kind == "works" and found.culprit == node and node not in owed(facts):
        return t is not None and (t.collects or gets_on(facts, t) or t.moved and t.woke > 1)
    edge = t.edge if t is not None else None
    if t is not None and edge is not None and not (t.main or edge.ended) and found.kind in ("nobody", "unknown"):
        givers = step(facts, node).nodes
        item = edge.how == "get" and (found.kind == "nobody" or bool(givers) and all(parked(facts, one) for one in givers))
        later = edge.kind == "Event" and bool(edge.limit) and not t.tries  # a timer
        if item or later:
            return node not in owed(facts)  # a worker that nothing waits for, and there are no items
    return found.kind in ("rests", "ticks", "moves")
