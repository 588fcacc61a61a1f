"""Requests: those that make no progress although no thread is stuck by itself."""

from __future__ import annotations

from typing import Any

from ..facts import Facts, Node, Verdict
from ..walk import chain_of

SURE = ("lost", "zombie", "never-fits", "behind")  # stuck, even while others move
SHOWN = 8


def custody(facts: Facts) -> list[Any] | None:
    """The open requests of the processes' engine (`requests.model.Tracked`), None where they are not known. The engine owes
    nothing to those that its user keeps it from serving."""
    known = next((f.requests for f in facts if f.requests is not None), None)
    return None if known is None else [r for r in known if r.verdict != "kept" and not r.paused]


def kept(facts: Facts) -> list[str]:
    """One line for each request that has ended and whose blocks are kept for readers elsewhere. An engine with such requests goes
    round and asks its connector: its empty steps are no progress."""
    known = next((f.requests for f in facts if f.requests is not None), None) or ()
    return [f"request {r.request_id} has ended: {'; '.join(r.evidence)}" for r in known if r.verdict == "kept"]


def kept_back(facts: Facts) -> list[Any]:
    """The requests that wait because the engine's user has paused it."""
    known = next((f.requests for f in facts if f.requests is not None), None) or ()
    return [r for r in known if r.paused]


def paused(facts: Facts) -> list[str]:
    """One line for all of these."""
    found = kept_back(facts)
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    names = ", ".join(r.request_id for r in found[:SHOWN])
    return [f"{names}{more}: parked, waits for {found[0].waits_for}"] if found else []


def queued(facts: Facts) -> list[str]:
    """One line for all requests that are queued because blocks are kept for readers elsewhere."""
    found = [r for r in custody(facts) or () if r.verdict == "queued" and r.evidence]
    more = f", and so do {len(found) - 1} more" if len(found) > 1 else ""
    return [f"request {r.request_id} is queued: {'; '.join(r.evidence)}{more}" for r in found[:1]]


def moving(facts: Facts) -> bool:
    """Whether a request moved between the two readings."""
    return any(r.verdict == "moving" for r in custody(facts) or ())


def thrash(facts: Facts) -> Verdict | None:
    """Requests that are preempted over and over while none gives a token: their scheduler works, and its work is undone."""
    found = [r for r in custody(facts) or [] if r.verdict == "thrash"]
    if not found or moving(facts):
        return None
    by_pid = {f.pid: f for f in facts if f.pid}
    mains = [by_pid[r.at.pid].main for r in found if r.at is not None and r.at.pid in by_pid]
    nodes = [main.node for main in mains if main is not None]
    verdict = Verdict("thrash", nodes, [line(r) for r in found[:SHOWN]], [r.request_id for r in found[:SHOWN]])
    verdict.again = True
    return verdict


def stuck(facts: Facts) -> Verdict | None:
    """Requests whose answer cannot come; where none of the engine's requests moves, also those that wait for something that does
    not come."""
    known = custody(facts) or []
    found = [r for r in known if r.verdict in SURE and r.sure or not moving(facts) and r.verdict in (*SURE, "parked")]
    if not found:
        return None
    by_pid = {f.pid: f.name for f in facts if f.pid}
    names = {f.name for f in facts}
    culprits = []
    for r in found:
        if r.holder is not None:
            name = by_pid.get(r.holder.pid, r.holder.label)
            known_thread = name in names and facts.thread((name, r.holder.tid)) is not None
            node = name, r.holder.tid if known_thread else None
            culprits.append(_acts(facts, node) if known_thread and r.verdict == "behind" else node)
    evidence = [line(r) for r in found[:SHOWN]]
    if len(found) > SHOWN:
        evidence.append(f"and {len(found) - SHOWN} more")
    return Verdict("stuck-requests", culprits, evidence, [r.request_id for r in found[:SHOWN]])


def _acts(facts: Facts, node: Node) -> Node:
    """Who must act for a thread that has requests: it, or the last thread on its way to another process for which it waits."""
    chain = chain_of(facts, node)
    way = [one for one in (*(one for one, _ in chain.through), chain.end.node) if facts.thread(one) is not None]
    return way[-1] if any(one is not None and node is not None and one[0] != node[0] for one in way) else node


def line(r: Any) -> str:
    """A request that does not move, as evidence."""
    at = f" at {r.at.label}" if r.at is not None else ""
    wait = f", waits for {r.waits_for}" if r.waits_for else ""
    age = f", for {r.age:.0f} s" if r.age is not None else ""
    why = f": {r.evidence[-1]}" if r.evidence else ""
    return f"request {r.request_id} is {r.verdict}{at}{wait}{age}{why}"
