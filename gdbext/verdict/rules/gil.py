"""The GIL, kept by one thread; in a free-threaded build, one thread that stays attached while another wants all to stop."""

from __future__ import annotations

from ...observe.window import STILL
from ...stacks import waits
from ..closed import closed
from ..facts import LOCKS, Facts, ProcessState, Verdict
from ..words import name_of, waiting


def not_released(facts: Facts) -> Verdict | None:
    """A thread had the GIL in every sample while others asked for it and never got it. A garbage collection does not count: it
    keeps the GIL for its whole run and gives it back. Nor does a thread that runs bytecode, which gives the GIL back on request:
    then the machine had no CPU for the threads that asked."""
    for f in facts:
        if not f.gil_hog:
            continue
        node, waiters = f.gil_hog
        holder = facts.thread(node)
        if holder is None or holder.victim or holder.collects:
            continue
        _, way = waits.root(facts.edges, node)
        if way and way[-1].kind in LOCKS:
            return None  # it holds the GIL and waits for a lock itself: the lock's owner is the culprit
        native = next((n for n in holder.native if n), "")
        if native.startswith("_PyEval_EvalFrame"):
            continue
        many = f"{len(waiters)} threads wait" if len(waiters) != 1 else "1 thread waits"
        wants = f"{many} for it and never got it: "
        if f.free_threaded:
            wants = "a stop of all threads is wanted in every sample and does not come, for want of this thread, by "
        return Verdict(
            "gil",
            [node],
            [
                f"{name_of(facts, node)} {_keeps(f)} in every sample and is in {native or 'native code'}, "
                f"called from {holder.top}",
                wants + ", ".join(name_of(facts, w) for w in waiters[:4]),
                "it uses a CPU meanwhile" if holder.works else f"it does not run meanwhile: it sleeps, or waits, and {_keeps(f)}",
            ],
            waiting(facts, [f]),
        )
    return None


def held_while_blocked(facts: Facts) -> Verdict | None:
    """A thread had the GIL in every sample and did not run: it is blocked in a call that does not release the GIL. A thread that
    wants a CPU in vain, or collects garbage, is not blocked. Of a process in which nothing can end a wait, that says more."""
    found = [
        (f, t)
        for f in facts
        for t in f.threads
        if t.holds
        and not t.moved
        and t.load is not None
        and t.load < STILL
        and f not in facts.once(closed)
        and not (t.victim or t.denied or t.collects)
    ]
    if not found:
        return None
    evidence = [
        f"{name_of(facts, t.node)} {_keeps(f)} in every sample, does not run, and is blocked in "
        f"{next((n for n in t.native if n), 'native code')}, called from {t.top}"
        for f, t in found
    ]
    return Verdict("gil", [t.node for _, t in found], evidence, waiting(facts, [f for f, _ in found]))


def _keeps(f: ProcessState) -> str:
    return "stays attached to the interpreter" if f.free_threaded else "holds the GIL"
