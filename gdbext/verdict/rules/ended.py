"""Processes that have ended, are frozen or stopped, or have lost their parent."""

from __future__ import annotations

from ...engines import registry
from ...engines.spec import SCHEDULERS
from ...observe.clocks import WELL
from .. import gate
from ..closed import reads_its_own_pipe
from ..facts import Facts, ProcessState, Verdict
from ..nodes import awaited_pids
from ..walk import chain_of
from ..words import describe_node, name_of, waiting
from .chains import outlooks

_ENDED = {"Z": "is a zombie: it has ended and its parent has not reaped it", "X": "ended while it was sampled"}
_STOPPED = {
    "T": "is stopped (T): SIGSTOP, or a debugger that was killed; SIGCONT makes it run on",
    "t": "is stopped by a tracer (t)",
}


def crashed(facts: Facts) -> Verdict | None:
    """A sampled process that has ended, or a child that its parent waits for. A dead child that nothing waits for is a note
    (`notes`)."""
    died = [(f, *f.died) for f in facts if f.died is not None]
    if died:
        nodes = [(f.name, tid) for f, tid, _ in died]
        evidence = [f"{f.name} died of {what} in {describe_node(facts, (f.name, tid))}" for f, tid, what in died]
        return Verdict("crashed", nodes, evidence, waiting(facts, [f for f, _, _ in died]))
    dead = [f for f in facts if f.state in _ENDED and not (_by_itself(f) and not waiting(facts, [f]))]
    if dead:
        evidence = [f"{f.name} {_ENDED[f.state]}" + (f" ({f.ended})" if f.ended else "") for f in dead]
        return Verdict("crashed", [(f.name, None) for f in dead], evidence, waiting(facts, dead))
    for f in facts:
        asked = {t.edge.pid for t in f.threads if t.edge is not None and (t.edge.limit or t.edge.polls)}
        awaited = awaited_pids(f) - asked | _engines_own(facts, f)  # one that asks for it soon finds that it has ended
        if f.main is not None and f.main.still and len(f.threads) + f.left_out == 1 and reads_its_own_pipe(f, f.main):
            awaited |= {pid for pid, _ in f.dead_children}
        missed = [(pid, what) for pid, what in f.dead_children if pid in awaited]
        if missed:
            found = Verdict(
                "crashed",
                [(f"{what} ({pid})", None) for pid, what in missed],
                [f"{f.name} waits for data of its child {pid}, which has ended: {what}" for pid, what in missed],
                waiting(facts, ()),
            )
            found.children = {f"{what} ({pid})": pid for pid, what in missed}
            return found
    broken = [f for f in facts if f.broken]
    if broken:
        said = [f"{f.name} says of itself: {f.broken}" for f in broken]
        return Verdict("crashed", [(f.name, None) for f in broken], said, waiting(facts, broken))
    return None


def _by_itself(f: ProcessState) -> bool:
    """Whether a process, of no engine, has ended well, or may have: whoever started it has reaped it."""
    return f.state in _ENDED and not f.role and f.ended in (WELL, "")


def over(facts: Facts) -> Verdict | None:
    """Programs that have ended by themselves, while they were watched or before, and that no other one waits for."""
    if not len(facts) or not all(map(_by_itself, facts)):
        return None
    unknown = "how is not known: it has been reaped"
    evidence = [f"{f.name} has ended while it was watched: {f.ended or unknown}" for f in facts]
    return Verdict("idle" if all(f.ended for f in facts) else "unknown", [], evidence)


def stopped_elsewhere(facts: Facts) -> Verdict | None:
    """A main thread, or a task that a loop runs for, waits for a program that was not sampled. That one is stopped, or it does
    nothing and what it has started is."""
    for node, found in outlooks(facts):
        others = gate.outsiders(facts, chain_of(facts, node)) if found.kind in ("answer", "works", "unknown") else ()
        if any(one.stopped and (one.pid in dict(one.stopped) or not one.at_work) for one in others):
            said = gate.stopped(facts, node, Verdict("stopped", [], found.way, [name_of(facts, node)]))
            if said is not None:
                return said
    return None


def notes(facts: Facts) -> list[str]:
    """Children that have ended and that no thread of their parent waits for."""
    return [
        f"{f.name}'s child {pid} ({what}) has ended and was not reaped"
        for f in facts
        for pid, what in f.dead_children
        if pid not in awaited_pids(f)
    ]


def _engines_own(facts: Facts, f: ProcessState) -> set[int]:
    """Dead children that are processes of the engine. They count where the main thread is still: it waits for their answers. They
    also count where no process of their kind is left, whatever the main thread does."""
    if f.main is None or not f.role:
        return set()
    left = any(other.role in SCHEDULERS and other.state not in _ENDED for other in facts)
    if not f.main.still and left:
        return set()
    starts = tuple(start for spec in registry.ENGINES for start, _ in spec.zombies)
    return {pid for pid, what in f.dead_children if what.startswith(starts) or "::" in what.partition(",")[0]}


def frozen(facts: Facts) -> Verdict | None:
    """A process in a frozen control group: no signal and no debugger makes it run on, only a thaw."""
    found = [f for f in facts if f.frozen]
    if not found:
        return None
    how = "(docker pause, systemctl freeze): it runs on when that is thawed"
    evidence = [f"{f.name} is frozen by {f.frozen} {how}" for f in found]
    return Verdict("frozen", [(f.name, None) for f in found], evidence, waiting(facts, found))


def stopped(facts: Facts) -> Verdict | None:
    """A process that is stopped by a signal or a tracer."""
    found = [f for f in facts if f.state in ("T", "t")]
    if not found:
        return None
    evidence = [f"{f.name} {_STOPPED[f.state]}" for f in found]
    return Verdict("stopped", [(f.name, None) for f in found], evidence, waiting(facts, found))


def orphaned(facts: Facts) -> Verdict | None:
    """An engine's processes whose parent is gone and that nothing can reach any more."""
    found = [f for f in facts if f.orphan and f.state not in ("Z", "X")]
    if not found or len(found) < len(facts):
        return None
    return Verdict("orphaned", [(f.name, None) for f in found], [f"{f.name}: {f.orphan}" for f in found])
