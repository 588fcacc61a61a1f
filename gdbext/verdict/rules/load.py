"""Processes that work and make progress."""

from __future__ import annotations

from typing import Sequence

from ...engines import registry
from ...observe.window import PAGES, RUNS, STILL
from ...primitives import table
from ..closed import turns_in_vain
from ..facts import LOCKS, Facts, Node, ThreadState, Verdict
from ..fronts import open_at
from ..gate import waits_end
from ..nodes import moves, owed, peers_of
from ..purpose import aims, ends, exchanges, gets_on, got_round, others, outsiders, parked, takes
from ..walk import outlook
from ..words import name_of
from . import fronts, requests
from .chains import roots
from .rest import at_peace
from .rings import rests

SHOWN = 4


def busy(facts: Facts) -> Verdict | None:
    """Every main thread, and every task that a loop runs for, makes progress or waits for one that does, and something was seen
    to move. Other threads that work, tick or collect garbage say nothing about these, unless these wait for their end, or are
    parked."""
    nodes = roots(facts)
    if not nodes:
        return None
    if requests.moving(facts):
        return _engine(facts)
    if requests.custody(facts) or requests.kept(facts) or fronts.refuses(facts):
        return None  # requests are open and none moves; who moves asks whether blocks have been read, or accepts in vain
    found = [(node, outlook(facts, node)) for node in nodes]
    goes = [node for node, o in found if o.kind == "moves"]
    collecting = [t for f in facts for t in f.threads[:1] if t.collects and t.works and t.node not in owed(facts)]
    if collecting and all(o.kind in ("moves", "rests", "works") for _, o in found):
        line = f"the garbage collector runs: {name_of(facts, collecting[0].node)} in {collecting[0].top}"
        return Verdict("busy", [collecting[0].node], [line])
    counted = [c for f in facts for c in f.counters if c.moved]
    moving = [t for t in map(facts.thread, goes) if t is not None]
    working = [t for t in moving if t.node not in owed(facts) and _at_work(facts, t)]
    giving = _givers(facts, working)
    stands = any(o.kind not in ("moves", "rests") and not (o.kind == "ticks" and node in giving) for node, o in found)
    over: list[str] = []
    if not goes or stands or not (counted or working):
        working, over = _led(facts, nodes)
        if not working and not over:
            return None
    evidence = [f"{c.label}: {c.what}: {c.before} -> {c.after}" for c in counted[:8]]
    evidence += [_line(facts, t) for t in working[:SHOWN]] + over
    shown: list[Node] = [t.node for t in working[:SHOWN]]
    said = Verdict("busy", shown, evidence)
    said.unread = bool(over)
    return said


def _led(facts: Facts, nodes: Sequence[Node]) -> tuple[list[ThreadState], list[str]]:
    """(the threads at work, the processes at work that were not sampled, in words) of programs whose main threads wait for these,
    or are parked; ([], []) where any thread or task waits for what may not come. One from which nothing comes and that hardly
    runs may only try again and again, and one whose result is awaited, not its end, may give what nobody waits for."""
    led = list(dict.fromkeys(one for node in nodes for one in aims(facts, node)))
    all_but = [one for f in facts for one in others(f) if not (one in nodes and parked(facts, one))]
    all_but = list(dict.fromkeys(leaf for one in all_but for leaf in aims(facts, one)))
    over = {one: outsiders(facts, one) for one in [*led, *all_but]}
    getting = [t for t in map(facts.thread, led) if t is not None and (exchanges(facts, t) or takes(t))]
    behind = owed(facts, [e for t in (t for f in facts for t in f.threads) for e in [t.edge] if e is not None and t.held_up])
    turns = [t for t in map(facts.thread, [*led, *all_but]) if t is not None and t.moved and t.woke > 1 and t.node not in behind]
    good = {t.node for t in [*getting, *turns] if not (t.polls or t.tries or t.denied or t.blocked)}
    if not all(over[one] or one in good or at_peace(facts, one) for one in [*led, *all_but]):
        return [], []
    if not all(moves(facts, one) or one in good or over.get(one) for one in open_at(facts)):
        return [], []  # whoever sent that request waits, whatever else goes on
    given = owed(facts, [e for e in facts.edges if not ends(facts, e) and e.kind not in LOCKS])
    moving = [t for t in map(facts.thread, led) if t is not None and (moves(facts, t.node) or gets_on(facts, t))]
    came = {f.name for f in facts for c in f.counters if c.moved and c.what.startswith("items through")}
    wrote = {f.name for f in facts if f.wrote}
    working = [t for t in moving if t.node[0] in came and t.node not in given]
    working += [
        t
        for t in moving
        if t not in working and _at_work(facts, t, True) and t.node not in given
        if t.works or t.rounds or t.node[0] in wrote or _shares(facts, t)
    ]
    working += [t for t in getting if t not in working and t.node not in given]
    serving = [t for t in map(facts.thread, open_at(facts)) if t is not None and moves(facts, t.node) and _at_work(facts, t)]
    working += [t for t in serving if t not in working]
    working += [t for t in map(facts.thread, led) if t is not None and t not in working and got_round(facts, t, given)]
    tasks = [task for task in map(facts.task, led) if task is not None and task.kind != "sleep" and moves(facts, task.node)]
    going = [f"{name_of(facts, task.node)} goes on: {task.text}" for task in tasks[:SHOWN]]
    said = [f"{name_of(facts, one)} waits for {who.name}, {who.at_work}" for one in led for who in over[one] if who.computes]
    return working, going + said


def _givers(facts: Facts, working: Sequence[ThreadState]) -> set[Node]:
    """Main threads of the processes that gave something to the working threads in the window. Between two gifts, such a thread
    looks like a timer."""
    pids: set[int] = set()
    for f in facts:
        calls = [t.call for t in f.threads[:1] if t in working and t.call is not None and waits_end(t)]
        calls += [task.call for task in f.tasks if task.node in f.moved_tasks and task.call is not None]
        if f.moved_tasks:  # a loop whose transports are not Python code (uvloop's) shows its sockets in its selector only
            calls += [t.call for t in f.threads if t.call is not None and t.call.name == "epoll"]
        for call in calls:
            pids |= {*peers_of(f, call), *call.peers}
        if any(c.moved and " in ring " in c.what for c in f.counters):
            names = {ring.name for ring in f.rings}
            pids |= {other.pid for other in facts if names & (other.shared | {ring.name for ring in other.rings})}
    found = {f.main.node for f in facts if f.main is not None and f.pid in pids}
    if any(waits_end(t) for t in working):  # processes that take turns with them, for example at a lock between processes
        found |= {f.main.node for f in facts if f.main is not None and f.main.moved and not f.role}
    return found


def _engine(facts: Facts) -> Verdict:
    """The verdict on an engine that has requests which moved."""
    known = requests.custody(facts) or []
    moved = [r.request_id for r in known if r.verdict == "moving"]
    counted = [c for f in facts for c in f.counters if c.moved]
    line = f"{len(moved)} of {len(known)} open requests moved: {', '.join(moved[:SHOWN])}"
    working = [t.node for f in facts for t in f.threads[:1] if t.works]
    return Verdict("busy", working[:SHOWN], [line, *(f"{c.label}: {c.what}: {c.before} -> {c.after}" for c in counted[:8])])


def _at_work(facts: Facts, t: ThreadState, led: bool = False) -> bool:
    """Whether a thread is at work: it runs, and its variables change. `led`: no other of its program waits in vain."""
    f = next(f for f in facts if t in f.threads)
    if f.role and (rests(f) or registry.spec_of(f.engine) is not None):
        return False  # the progress of an engine's process shows in its counters
    if not (t.advanced or gets_on(facts, t)) or t.polls or t.tries or turns_in_vain(f, t):
        return False
    came = any(c.moved and c.what.startswith("items through") for c in f.counters)
    if not came and any(frame.kind == "python" and frame.file.endswith(table.QUEUES) for frame in t.frames):
        return False  # it asks a queue over and over, and no item comes
    if t.call is not None and t.call.name == "nanosleep" and not (f.wrote or led and t.rounds) and (t.load or 0) <= RUNS:
        return False  # it naps between its turns, and nothing comes from them: it may only try again and again
    return t.load is None or t.load > STILL or waits_end(t)


def _shares(facts: Facts, t: ThreadState) -> bool:
    """Whether a thread has its part of what its process runs: several of its threads take turns, at a lock or the GIL."""
    f = facts.process(t.node)
    loads = [one.load or 0.0 for one in f.threads if (one.load or 0.0) > STILL] if f is not None else []
    return len(loads) > 1 and sum(loads) > RUNS and (t.load or 0.0) * 2 >= sum(loads) / len(loads)


def _line(facts: Facts, t: ThreadState) -> str:
    if t.call is not None and exchanges(facts, t):
        return f"{name_of(facts, t.node)} gets on with {t.call.sources[0].text}: {t.woke} times meanwhile, in {t.top}"
    if not (t.moved or t.advanced) and t.took > PAGES:
        return f"{name_of(facts, t.node)} fills new memory, {t.took} pages meanwhile, in {t.top}"
    load = f" and used {100 * t.load:.0f} % CPU" if t.load is not None else ""
    return f"{name_of(facts, t.node)} moves from sample to sample{load}, last in {t.top}"
