"""The one gate of every verdict that accuses of withholding: a lock that is kept, a rank that has not come, data or answers that
are not given.

Who is accused may only be slow where it was denied a CPU, or where what it waits for itself moves, works, wakes or sleeps for a
short time: a thread, a task, the process at the other end of a pipe or socket, a process that was not sampled, with all its
descendants. Then nobody is accused. Verdicts on work itself (gil, livelock, loop-blocked, thrash) have their own proofs.

Where it waits for a process that was not sampled, and that one or a descendant of it is stopped, this is who keeps it."""

from __future__ import annotations

import re
from typing import Iterator

from ..observe.families import Outsider
from ..observe.window import SOON, STILL
from ..stacks.python_waits import path_of
from .facts import Facts, Node, ProcessState, ThreadState, Verdict
from .nodes import moves, naps, peers_of
from .states import MOVES, RUNS
from .walk import Chain, chain_of, outlook
from .words import describe_node, name_of

WITHHOLDING = ("lock-held", "collective", "starved", "stuck-requests")
FAIR = 0.5  # part of a CPU: a thread that got as much had its turn, whatever was left of its group's quota
FAR = 30.0  # seconds: a thread that waits with a shorter time limit may have been woken by it
SLOW = "it may only be slow"
_STARTS = re.compile(r"(asyncio/(base_)?subprocess|/subprocess|asyncio/unix_events|multiprocessing/popen_\w+)\.py$")


def judged(facts: Facts, found: Verdict) -> Verdict:
    """A verdict that has passed the gate; "unknown", with why, where who it accuses may only be slow; "stopped", where what that
    one waits for is."""
    if found.kind not in WITHHOLDING or not found.culprits:
        return found
    reasons = [slow(facts, node, found.kind) for node in found.culprits]
    if found.kind == "collective":
        reasons += [denied(facts, t) for f in facts for t in (f.main,) if t is not None and t.collective]
        reasons += [_begins(f) for f in map(facts.process, found.culprits) if f is not None]
    reasons = [reason for reason in dict.fromkeys(reasons) if reason]
    if reasons:
        said = Verdict("unknown", [], [*found.evidence, *(f"{reason}: {SLOW}" for reason in reasons[:4])])
        said.not_asked, said.hosts = found.not_asked, found.hosts
        return said
    return next((one for one in (stopped(facts, node, found) for node in found.culprits) if one is not None), found)


def slow(facts: Facts, node: Node, kind: str = "lock-held") -> str:
    """Why a thread, task or process that keeps others waiting may only be slow, in words; '' where nothing says so."""
    t = facts.thread(node)
    if t is not None and denied(facts, t):
        return denied(facts, t)
    if kind != "stuck-requests":  # an engine's loop goes round while a request stays
        if moves(facts, node):
            return f"{name_of(facts, node)} makes progress"
        if naps(facts, node, SOON):
            return f"{name_of(facts, node)} sleeps for a short time only"
        if t is not None and gets(t):
            return f"{name_of(facts, node)} got what it waited for {t.woke} times meanwhile"
    does = _waits_for(facts, node)
    has = {"lock-held": "has the lock and ", "collective": "has not come and "}.get(kind, "")
    return f"{name_of(facts, node)} {has}waits for {does}" if does else ""


def _begins(f: ProcessState) -> str:
    """In words, that a rank began collectives in the window; or ''."""
    moved = next((c for c in f.counters if c.moved and c.what.startswith("collectives begun")), None)
    return f"{f.name}: {moved.what}: {moved.before} -> {moved.after}" if moved is not None else ""


def denied(facts: Facts, t: ThreadState) -> str:
    """In words, that a thread wanted a CPU and hardly got one, or wanted one while its control group had none left; or ''."""
    f = facts.process(t.node)
    wants = t.state == "R" or t.moved or bool(t.woke) or (t.wanted or t.load or 0.0) > STILL
    if t.denied or f is not None and f.throttled and wants and t.load is not None and t.load < FAIR:
        return f"{name_of(facts, t.node)} wants a CPU and hardly gets one"
    return ""


def gets(t: ThreadState) -> bool:
    """Whether it got, in the window, what it waited for: its wait has no time limit, and it woke. A condition may be notified for
    others."""
    return t.woke > 0 and waits_end(t) and (t.edge is None or t.edge.kind != "Condition")


def waits_end(t: ThreadState) -> bool:
    """Whether its waits for others end: it got locks, items or answers in the window. A sleep and a wait with a time limit end by
    themselves and do not count, nor do the pauses of a loop that only asks."""
    if t.waited:
        return True
    if t.edge is not None:
        return not (t.edge.limit or t.edge.polls) and t.edge.kind != "GIL"
    if t.does == "device":
        return True
    if t.call is None:
        return False
    if t.call.name == "poll" and t.call.sources:
        return not t.call.limited or t.call.seconds > FAR
    return t.call.name in ("read", "recv", "accept", "wait", "futex") and not t.call.limited


def _waits_for(facts: Facts, node: Node) -> str:
    """What a thread or task waits for, where that is at work, in words; else ''."""
    found = outlook(facts, node)
    if found.kind in ("moves", "works") and found.culprit not in (None, node):
        return f"{name_of(facts, found.culprit)}, which is at work"
    chain = chain_of(facts, node)
    ends = [end.node for end in (chain.end, *chain.end.any_of) if end.state in (MOVES, RUNS)]
    for one in [*(one for one, _ in chain.through), *ends, chain.end.node]:
        if one is None or one == node:
            continue
        why = _goes_on(facts, one) or ("is at work" if one in ends else "")
        if why:
            return f"{name_of(facts, one)}, which {why}"
    for one in outsiders(facts, chain):
        if one.at_work:
            return f"{one.name}, {one.at_work}"
    return ""


def _goes_on(facts: Facts, node: Node) -> str:
    """Why a thread or task that another waits for may go on by itself, in words; else ''."""
    t, task = facts.thread(node), facts.task(node)
    if t is None:
        return "sleeps for a short time only" if task is not None and naps(facts, node, SOON) else ""
    if denied(facts, t):
        return "wants a CPU and hardly gets one"
    if gets(t) or moves(facts, node):
        return "is at work"
    short = t.call is not None and t.call.name == "nanosleep" and 0 < t.call.seconds <= SOON and not t.for_good
    return "sleeps for a short time only" if short and not t.polls else ""


def outsiders(facts: Facts, chain: Chain) -> Iterator[Outsider]:
    """The processes that were not sampled and for which a node of a chain waits, each with its descendants."""
    for node in dict.fromkeys([chain.waiter, *chain.nodes]):
        f = facts.process(node)
        if f is not None:
            yield from (f.others[pid] for pid in _awaited(facts, f, node) if pid in f.others)


def _asks_by_naps(t: ThreadState) -> bool:
    """Whether a thread naps between two looks at something that no object names: a file, a flag."""
    return t.edge is None and t.call is not None and t.call.name == "nanosleep" and t.call.seconds <= SOON and bool(t.woke)


def _awaited(facts: Facts, f: ProcessState, node: Node) -> list[int]:
    """The pids for which a thread or task waits, or which have the other end of what it waits for. Where it stands in code that
    starts programs and names none of these, any that its process has started."""
    t, task = facts.thread(node), facts.task(node)
    one = t or task
    if one is None:
        return []
    pids = [] if one.edge is None else [one.edge.pid, *one.edge.pids, *one.edge.unread]
    if one.call is not None and f.loop_of(node[1]) is None:
        pids += [*one.call.peers, *peers_of(f, one.call)]
    frames = t.frames if t is not None else task.python if task is not None else ()
    starts = any(_STARTS.search(path_of(frame)) for frame in frames)
    if not any(pids) and (starts or t is not None and _asks_by_naps(t)):
        pids = list(f.children)
    return [pid for pid in dict.fromkeys(pids) if pid and pid not in f.ancestors]


def stopped(facts: Facts, node: Node, found: Verdict) -> Verdict | None:
    """The verdict on a stopped process that was not sampled and for which `node` waits, or None."""
    stopped = {pid: (one, program) for one in outsiders(facts, chain_of(facts, node)) for pid, program in one.stopped}
    if not stopped:
        return None
    names = {f"{program} ({pid})": pid for pid, (_, program) in stopped.items()}
    lines = []
    for pid, (one, program) in stopped.items():
        which = f", and {program} ({pid}), which that started," if pid != one.pid else ", which"
        lines.append(f"{describe_node(facts, node)}: it waits for {one.name}{which} is stopped (T): SIGCONT makes it run on")
    said = Verdict("stopped", [(name, None) for name in names], [*found.evidence, *lines], found.victims)
    said.children = names
    return said
