"""Where waits end, those of main threads, of tasks that a loop runs for, and of other threads: at a thread that has ended, that
works and changes nothing, or that is blocked."""

from __future__ import annotations

from ...primitives import table
from ...stacks import ray_actors
from .. import jobs
from ..closed import closed
from ..facts import Facts, Node, ProcessState, ThreadState, Verdict
from ..nodes import callers
from ..walk import Outlook, outlook
from ..words import describe_node, kept_line, name_of

ASKED_ONCE = table.ONCE  # what a loop asks for; a flag or event may be a pause, and a loop's timers set what tasks ask for


def roots(facts: Facts) -> list[Node]:
    """The nodes whose waits count by themselves: main threads, the tasks that loops run for, and what an actor of Ray runs its
    methods in while its main thread takes the next ones."""
    mains = [f.main.node for f in facts if f.main is not None]
    actors = [f for f in facts if f.main is not None and f.main.takes_tasks]
    methods = [t.node for f in actors for t in f.threads[1:] if ray_actors.executes(t.frames)]
    methods += [
        task.node for f in actors for loop in f.loops for task in f.tasks if loop.main is None and task.loop == loop.address
    ]
    return mains + [loop.main for f in facts for loop in f.loops if loop.main is not None] + methods


def outlooks(facts: Facts) -> list[tuple[Node, Outlook]]:
    """`[(root, the outlook of its wait)]`."""
    return [(node, outlook(facts, node)) for node in dict.fromkeys(roots(facts))]


def _victims(facts: Facts, culprit: Node, kind: str) -> list[str]:
    return [name_of(facts, node) for node, o in outlooks(facts) if o.culprit == culprit and o.kind == kind and node != culprit]


def dead_thread(facts: Facts) -> Verdict | None:
    """A thread or task waits for the product of a thread that has ended, and no other can give it. Two kinds of events are left
    out: one that only the waiter can name is waited for until the program ends, and one may be set by a signal handler."""
    for f in facts:
        polls = [(t.node, t.edge) for t in f.threads[:1] if _asks_for_what_is_given_once(f, t)]
        waits = [(t.node, t.edge) for t in f.threads if t.held_up] + [(t.node, t.edge) for t in f.tasks] + polls
        for node, edge in waits:
            if edge is None or not edge.ended or edge.candidates or edge.owner is not None or edge.how == "put":
                continue
            if edge.kind == "Event" and (f.signals or not edge.named) or edge.polls and not _could_only_be(f, node, edge.kind):
                continue
            if edge.kind != "Job" and not f.role and callers(f):
                continue  # native code may call back, and give it
            names = ", ".join(edge.ended[:4])
            several = len(edge.ended) > 1
            none = (
                "no thread that runs can end that wait"
                if f in facts.once(closed)
                else "no frame of a thread that runs leads to it"
            )
            evidence = [
                f"{name_of(facts, node)} waits for {edge.lock} in {edge.where}",
                f"{none}; {names} {'have' if several else 'has'} ended",
            ]
            found = Verdict("dead-thread", [(f"thread {names}", None)], evidence, [name_of(facts, node)])
            found.again = bool(polls) or edge.polls
            return found
    return None


def lost_job(facts: Facts) -> Verdict | None:
    """A thread waits for a result of a pool of processes, and no worker has the work: the one that had it has ended."""
    for f in facts:
        for t in f.threads:
            if t.edge is None or t.edge.kind != "Job" or not t.edge.address or not t.held_up or not t.still:
                continue  # without an address: a pool's own thread
            if any(jobs.givers(facts, t.edge)):
                continue
            evidence = [describe_node(facts, t.node), jobs.why_lost(t.edge)]
            found = Verdict("starved", [], evidence, [name_of(facts, t.node)])
            found.again = True
            return found
    return None


def _could_only_be(f: ProcessState, node: Node, kind: str) -> bool:
    """Whether only a thread that has ended could give what a loop asks for: no handler, no other thread that may call back."""
    others = [t for t in f.threads if t.node != node and not (t.python and t.idle)]
    return kind in ASKED_ONCE and not f.signals and not others


def _asks_for_what_is_given_once(f: ProcessState, t: ThreadState) -> bool:
    """Whether a main thread asks over and over for an item or a result, and none came in the window. Events do not count: one
    with a time limit serves as a pause too. Nor do processes with signal handlers: what a handler gives is not known."""
    came = any(c.moved and c.what.startswith("items through") for c in f.counters)
    return t.edge is not None and t.edge.limit and t.edge.kind in ASKED_ONCE and not f.signals and not came


def livelock(facts: Facts) -> Verdict | None:
    """A main thread, or a task that a loop runs for, waits for a thread that uses a CPU without making progress."""
    for node, found in outlooks(facts):
        if found.kind == "spins" and found.culprit is not None and found.culprit != node:
            line = f"{describe_node(facts, found.culprit)}: it runs but makes no progress"
            return Verdict("livelock", [found.culprit], [*found.way, line], _victims(facts, found.culprit, "spins"))
    return None


def uninterruptible(facts: Facts) -> Verdict | None:
    """A main thread, or one that others wait for, was blocked in the kernel during the whole window."""
    for _, found in outlooks(facts):
        t = facts.thread(found.culprit) if found.kind == "blocked" else None
        if t is not None:
            return Verdict("uninterruptible", [t.node], [*found.way, kept_line(t)], _victims(facts, t.node, "blocked"))
    return None


def starved(facts: Facts) -> Verdict | None:
    """A main thread, or a task that a loop runs for, waits for a thread that sleeps and does nothing else."""
    for node, found in outlooks(facts):
        if found.kind == "sleeps" and found.culprit is not None and found.culprit != node and found.way:
            line = f"could end that wait: {describe_node(facts, found.culprit)}"
            kind = "lock-held" if found.lock else "starved"
            return Verdict(kind, [found.culprit], [*found.way, line], _victims(facts, found.culprit, "sleeps"))
    return None
