"""Every wait as a chain. A chain starts at a thread, task or request that waits. It follows the threads that could end each wait,
up to the last one, and says what that one does. Pure: it reads facts alone. A chain only shows dependencies; a verdict names a
culprit."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Iterable

from ..requests.model import KEPT, MOVING, NEVER_FITS
from . import fronts
from .facts import Facts, Node, ThreadState
from .graph import step
from .states import ENDED, INPUT, MOVES, NOBODY, RING, UNKNOWN, End
from .walk import Chain, chain_of

MAX_CHAINS = 48  # kinds of chains
MAX_ALSO = 8  # named of those that wait alike
MAX_WAITERS = 2000
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")


def chains_of(facts: Facts, requests: Iterable[Any] = (), ahead: Iterable[Node] = ()) -> list[Chain]:
    """The chains of everything that waits, folded by kind, `MAX_CHAINS` at most. Those of the nodes in `ahead` come first, then
    those of an engine's roles and of main threads."""
    found: dict[Any, Chain] = {}
    for chain in [*_of_threads(facts, ahead), *_of_requests(facts, requests)]:
        end = chain.end
        way = chain.waits_for, *(text for _, text in chain.through)
        last = end.state, end.pid, end.node if end.node != chain.waiter else None
        first = found.setdefault((bool(chain.request), chain.rests, _NUMBERS.sub("#", "\n".join(way)), last), chain)
        if first is not chain:
            first.count += 1
            if len(first.also) < MAX_ALSO and not chain.request:
                first.also.append(chain.waiter)
    return list(found.values())[:MAX_CHAINS]


def _of_threads(facts: Facts, ahead: Iterable[Node]) -> list[Chain]:
    roles = sorted(facts, key=lambda f: not f.role)
    mains = [f.main.node for f in roles if f.main is not None]
    loops = [loop.main for f in roles for loop in f.loops if loop.main is not None]
    threads = [t for f in roles for t in f.threads[1:] if not t.idle and (t.edge is not None or t.call is not None)]
    tasks = [t.node for f in roles for t in f.tasks if t.state != "running"]
    order = [t.node for t in threads if t.python] + tasks + [t.node for t in threads if not t.python]
    known = {*mains, *loops, *order}
    nodes = list(dict.fromkeys([*(node for node in ahead if node in known), *mains, *loops, *order]))[:MAX_WAITERS]
    found: list[Chain] = []
    alike: dict[tuple[str, int], Chain] = {}  # by what they wait for, and the list of those that could end that
    for node in nodes:
        now = step(facts, node)
        chain = _as(facts, alike.get((now.waits_for, id(now.nodes))), node) or chain_of(facts, node)
        alike.setdefault((now.waits_for, id(now.nodes)), chain)
        if chain.waits_for:
            found.append(chain)
        elif node in mains and chain.end.state not in (MOVES, ENDED):
            found.append(Chain(node, "", [], chain.end))
    return found + [_resting(t) for f in roles for t in f.threads[1:] if t.idle and t.python]


def _as(facts: Facts, other: Chain | None, node: Node) -> Chain | None:
    """The chain from a node that waits for the very same as the one from which another goes; None where it may be another one."""
    if other is None or not other.through or node in other.nodes:
        return None
    end = other.end
    if end.node == other.waiter:  # a ring, or it reaches back to its start
        last = step(facts, other.through[-1][0])
        if end.state != RING or node not in last.nodes:
            return None
        end = replace(end, node=node)
    return Chain(node, other.waits_for, other.through, end)


def _resting(t: ThreadState) -> Chain:
    """The chain of a pool's worker that waits where it gets its work."""
    return Chain(t.node, f"work in {t.top}", [], End(t.node, INPUT, "it is idle"), rests=True)


def _of_requests(facts: Facts, requests: Iterable[Any]) -> list[Chain]:
    return [chain_of_request(facts, r) for r in requests if r.verdict not in (MOVING, KEPT)]


def chain_of_request(facts: Facts, r: Any) -> Chain:
    """The chain of one request (`requests.model.Tracked`): from the process that has it, along those that must act."""
    served = fronts.node_of(facts, r)
    if served is not None:
        chain = chain_of(facts, served)
        return Chain(served, chain.waits_for, chain.through, chain.end, request=r.request_id)
    at = (r.at.label, r.at.tid) if r.at is not None else (r.request_id, None)
    said = r.waits_for or (f"the next step of {r.at.label}" if r.at is not None else "an unknown object")
    if r.behind:
        said += f", behind {', '.join(r.behind[:4])}"
    node = _holder(facts, r.holder or r.at)
    if node is None or r.verdict == NEVER_FITS:
        end = End(None, NOBODY if r.verdict == NEVER_FITS else UNKNOWN, r.evidence[-1] if r.evidence else r.verdict)
        return Chain(at, said, [], end, request=r.request_id)
    chain = chain_of(facts, node)
    through = ([(node, chain.waits_for)] if chain.waits_for else []) + chain.through
    return Chain(at, said, through, chain.end, request=r.request_id)


def _holder(facts: Facts, place: Any) -> Node:
    """The thread of a request's holder; the main thread of its process where the holder names none."""
    if place is None:
        return None
    if place.tid is not None and facts.thread((place.label, place.tid)) is not None:
        return (place.label, place.tid)
    return next((f.main.node for f in facts if f.name == place.label and f.main is not None), None)
