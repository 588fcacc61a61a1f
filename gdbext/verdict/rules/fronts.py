"""What is not served: exchanges that a front end has and the engine does not, connections that wait to be accepted, bytes of a
connection that are not read."""

from __future__ import annotations

from ...observe.system_calls import Source
from ...observe.window import LONG
from ...requests.model import MOVING
from ..facts import Facts, Node, ProcessState, ThreadState, Verdict
from ..fronts import node_of, open_at
from ..nodes import sleeps
from ..walk import outlook
from ..words import describe, describe_node, name_of
from . import requests

SHOWN = 4
NEVER = ("spins", "sleeps", "blocked", "dead")  # kinds of an `Outlook` that its culprit does not end by itself


def kept(facts: Facts) -> Verdict | None:
    """Exchanges that their front end cannot give to the engine: the wait of each ends at one thread, which sleeps, is blocked in
    the kernel, or runs and changes nothing."""
    for r in requests.custody(facts) or ():
        node = node_of(facts, r)
        if node is None or r.verdict == MOVING:
            continue
        found = outlook(facts, node)
        if found.culprit in (None, node) or not (
            found.kind in NEVER or found.kind == "unknown" and _sleeps_long(facts, found.culprit)
        ):
            continue
        alike = [o for o in requests.custody(facts) or () if _ends_at(facts, node_of(facts, o), found.culprit)]
        evidence = [*(requests.line(o) for o in alike[:SHOWN]), *found.way, describe_node(facts, found.culprit)]
        verdict = Verdict("stuck-requests", [found.culprit], evidence, [o.request_id for o in alike])
        verdict.again = True
        return verdict
    return None


def _ends_at(facts: Facts, node: Node, culprit: Node) -> bool:
    return node is not None and outlook(facts, node).culprit == culprit


def _sleeps_long(facts: Facts, node: Node) -> bool:
    t = facts.thread(node)
    return t is not None and sleeps(facts, node) and t.call is not None and t.call.seconds >= LONG and t.still and not t.woke


def unaccepted(facts: Facts) -> Verdict | None:
    """Connections wait to be accepted at the first sample and at the last, and the one thread that could accept them has read one
    client's connection all the time: they are behind that client, which says nothing."""
    for f in facts:
        for source in f.waiting:
            if source.kind != "listener" or source.inode not in f.waited:
                continue
            holders = {pid for pid, _ in f.peers.get(source.inode, ())}
            reads = _reader(f, source) if holders <= {f.pid} else None
            if reads is None or reads.call is None:
                continue
            read = reads.call.sources[0]
            pids = {pid for inode in read.peers for pid, _ in f.peers.get(inode, ())} - {f.pid}
            clients = [p.main.node for p in facts if p.pid in pids and p.main is not None]
            if any(outlook(facts, node).kind in ("moves", "works") for node in clients):
                continue  # it may only be slow
            who = (
                f"process {', '.join(map(str, sorted(pids)))}"
                if pids
                else "on another machine, or in a process that cannot be seen"
            )
            evidence = [
                line_of(f, source),
                f"{describe(reads)}: it has waited for one client since the first sample, and reads nothing from it",
                f"they are behind client {read.far}".rstrip() + f": {who}",
            ]
            verdict = Verdict("starved", clients, evidence, [name_of(facts, reads.node)])
            verdict.again = True
            return verdict
    return None


def _reader(f: ProcessState, listener: Source) -> ThreadState | None:
    """The thread that serves a listener and waits for one client instead; None where it is not known, or another one accepts."""
    calls = [(t, t.call) for t in f.threads if t.call is not None]
    if f.loops or any(
        source.kind == "listener" and source.inode == listener.inode for _, call in calls for source in call.sources
    ):
        return None
    mine = [
        t
        for t, call in calls
        if call.name in ("read", "recv") and not call.limited and t.still and not t.woke
        if len(call.sources) == 1 and call.sources[0].kind == "served" and not call.sources[0].unread
        if call.sources[0].text.endswith(listener.text.rpartition(" ")[2])
    ]
    mains = [t for t in mine if t.main]
    return mains[0] if mains else mine[0] if len(mine) == 1 else None


def line_of(f: ProcessState, source: Source) -> str:
    """What waits at one of a process's sockets, in words."""
    if source.kind != "listener":
        return f"{f.name}: {source.unread} bytes of {source.text} are not read"
    text = source.text if source.unread > 1 else source.text.replace("connections", "connection", 1)
    return f"{f.name}: {source.unread} {text} wait{'s' * (source.unread == 1)} to be accepted"


def lines(facts: Facts) -> list[str]:
    """What waits to be taken in, as evidence."""
    return [line_of(f, source) for f in facts for source in f.waiting[:SHOWN]]


def front_lines(facts: Facts) -> list[str]:
    """The open exchanges, as evidence: those that the engine does not know; where no engine's requests are known, all."""
    if requests.custody(facts) is None:
        return [f"a request is open: {describe_node(facts, node)}" for node in open_at(facts)[:SHOWN]]
    found = [r for r in requests.custody(facts) or () if getattr(r, "exchange", None) is not None and r.verdict != MOVING]
    more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return [f"request {r.request_id} is in the front end: {'; '.join(r.evidence)}" for r in found[:SHOWN]] + more


def unserved(facts: Facts) -> bool:
    """Whether something waits to be taken in."""
    return any(f.waiting for f in facts)
