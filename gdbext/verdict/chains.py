"""Every wait as a chain. A chain starts at a thread, task or request that waits. It follows the threads that could end each wait,
up to the last one, and says what that one does. Pure: it reads facts alone. A chain only shows dependencies; a verdict names a
culprit."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..requests.model import KEPT, MOVING, NEVER_FITS
from . import fronts
from .enders import closed, knot, who_may
from .steps import ENDED, INPUT, MOVES, NOBODY, RING, RUNS, SEVERAL, UNKNOWN, End, Step, short, step
from .words import name_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .facts import Facts, Node, ThreadState

MAX_CHAINS = 48  # kinds of chains
MAX_LINKS = 32
MAX_GIVERS = 8  # of a wait that any of several could end, each followed
MAX_ALSO = 8  # named of those that wait alike
MAX_WAITERS = 2000
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")


@dataclass
class Chain:
    """The chain of one wait. `waiter` waits for `waits_for`; `through`: [(node in between, the object it waits for)]; `end`: the
    last node. `count`: how many wait alike; `also`: some of them; `request`: the id of a request that waits."""

    waiter: Node
    waits_for: str
    through: list[tuple[Node, str]]
    end: End
    count: int = 1
    also: list[Node] = field(default_factory=list)
    request: str = ""
    rests: bool = False  # a helper that waits for work

    @property
    def nodes(self) -> list[Node]:
        """The nodes of the chain, without the waiter."""
        ends = [end.node for end in (self.end, *self.end.any_of)]
        return [node for node in [*(node for node, _ in self.through), *ends] if node is not None]

    @property
    def unseen(self) -> list[int]:
        """The pids at its end, or at one of its ends, that were not sampled and owe what the chain waits for."""
        return [end.pid for end in (self.end, *self.end.any_of) if end.pid and end.state in (RUNS, UNKNOWN)]


def chain_of(facts: Facts, node: Node, first: Step | None = None) -> Chain:
    """The chain from a thread or task; `first`: its first step, where that is known."""
    links, end = _walk(facts, node, first, {}, MAX_GIVERS)
    return Chain(node, links[0][1] if links else "", links[1:], end)


def _walk(
    facts: Facts, node: Node, first: Step | None, before: Mapping[Node, bool], width: int
) -> tuple[list[tuple[Node, str]], End]:
    """-> ([(node, the object it waits for)], the end). `before`: {a node that was passed already: whether its wait is `owned`};
    `width`: how many givers are followed."""
    links: list[tuple[Node, str]] = []
    passed = dict(before)
    while True:
        now = first or step(facts, node)
        first = None
        if not now.waits_for:
            return links, now.end or End(node, UNKNOWN)
        links.append((node, now.waits_for))
        if now.end is not None:
            return links, now.end
        passed[node] = now.owned
        nodes = [n for n in now.nodes if n not in passed]
        if not nodes:
            return links, _ring(facts, passed, node, now.nodes)
        if len(links) >= MAX_LINKS:
            return links, End(None, UNKNOWN, f"the chain is longer than {MAX_LINKS}")
        if len(nodes) == 1 and not now.unread:
            node = nodes[0]
            continue
        more, end = _branch(facts, nodes, passed, width, now.every, now.unread)
        return links + more, end


def _ring(facts: Facts, passed: Mapping[Node, bool], last: Node, back: Sequence[Node]) -> End:
    """The end of a chain whose `last` wait is for nodes earlier in the chain. It is a ring where nothing else could end one of
    the waits round it: each is for what the next one owns, or `enders` proves it."""
    node = next(iter(back), None)
    order = list(passed)
    for one in order[order.index(node) :] if node in passed else []:
        if not passed[one] and one not in facts.once(knot) and facts.process(one) not in facts.once(closed):
            f = facts.process(one)
            may = who_may(facts, f, one) if f is not None else "its process was not read"
            turn = "" if node == last else f"{name_of(facts, node)} waits for it in turn, but "
            return End(one, UNKNOWN, f"{turn}others could end the wait of {name_of(facts, one)}: {may}")
    return End(node, RING, "it waits for itself" if node == last else "that one waits for it in turn")


def _branch(
    facts: Facts, nodes: Sequence[Node], passed: Mapping[Node, bool], width: int, every: bool, unread: Sequence[int] = ()
) -> tuple[list[tuple[Node, str]], End]:
    """The rest of a chain where several could end a wait. If all of their chains have the same end, the rest is one of these
    chains; else it is the list of their ends. Where `every` one must act, those that make progress are left out."""
    found = [_walk(facts, node, None, passed, width // 2) for node in nodes[: max(width, 1)]]
    if every and any(end.state not in (MOVES, INPUT) for _, end in found):
        found = [one for one in found if one[1].state not in (MOVES, INPUT)]
    ends: dict[Any, tuple[list[tuple[Node, str]], End]] = {}
    for more, end in found:
        key = (end.node, end.pid, end.state) if end.node is not None or end.pid else (end.state, end.why)
        ends.setdefault(key, (more, end))
    if len(ends) == 1 and len(nodes) <= max(width, 1) and not unread:
        return next(iter(ends.values()))
    several = [end for _, end in ends.values()]
    left = len(nodes) - len(found)
    why = "; ".join(short(facts, end) for end in several[:4]) + (f"; and {left} more" if left > 0 else "")
    why += f"; {len(unread)} not read: {', '.join(map(str, unread[:4]))}{', …' * (len(unread) > 4)}" if unread else ""
    several += [End(None, UNKNOWN, "it was not read", pid) for pid in unread[:MAX_GIVERS]]
    return [], End(None, SEVERAL, f"any of {len(nodes) + len(unread)}: {why}", 0, several)


def chains_of(facts: Facts, requests: Iterable[Any] = ()) -> list[Chain]:
    """The chains of everything that waits, folded by kind, `MAX_CHAINS` at most. Those of an engine's roles and of main threads
    come first."""
    found: dict[Any, Chain] = {}
    for chain in [*_of_threads(facts), *_of_requests(facts, requests)]:
        end = chain.end
        way = chain.waits_for, *(text for _, text in chain.through)
        last = end.state, end.pid, end.node if end.node != chain.waiter else None
        first = found.setdefault((bool(chain.request), chain.rests, _NUMBERS.sub("#", "\n".join(way)), last), chain)
        if first is not chain:
            first.count += 1
            if len(first.also) < MAX_ALSO and not chain.request:
                first.also.append(chain.waiter)
    return list(found.values())[:MAX_CHAINS]


def _of_threads(facts: Facts) -> list[Chain]:
    roles = sorted(facts, key=lambda f: not f.role)
    mains = [f.main.node for f in roles if f.main is not None]
    loops = [loop.main for f in roles for loop in f.loops if loop.main is not None]
    threads = [t for f in roles for t in f.threads[1:] if not t.idle and (t.edge is not None or t.call is not None)]
    tasks = [t.node for f in roles for t in f.tasks if t.state != "running"]
    order = [t.node for t in threads if t.python] + tasks + [t.node for t in threads if not t.python]
    nodes = list(dict.fromkeys([*mains, *loops, *order]))[:MAX_WAITERS]
    found = []
    for node in nodes:
        chain = chain_of(facts, node)
        if chain.waits_for:
            found.append(chain)
        elif node in mains and chain.end.state not in (MOVES, ENDED):
            found.append(Chain(node, "", [], chain.end))
    return found + [_resting(t) for f in roles for t in f.threads[1:] if t.idle and t.python]


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
