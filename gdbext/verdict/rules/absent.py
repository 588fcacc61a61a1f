"""Ranks of a job that were not looked at: which they are and, as far as those that were looked at know, on which machines."""

from __future__ import annotations

from typing import Iterable, Mapping, Sequence

from ...stacks import tree
from ..facts import Facts, ProcessState, ThreadState, Verdict
from . import in_step

MAX_RANKS, SHOWN = 1 << 16, 32
NOT_BLOCKED = "nothing here is known to be blocked"


def place_of(f: ProcessState) -> tuple[int, int] | None:
    """(rank, size) of a process among those with which it meets, or among all of its job; None where not known."""
    default = next(((c.rank, c.size) for c in f.counts if c.default and c.rank is not None), None)
    return in_step.place_of(f) or default


def adopt(facts: Facts) -> None:
    """Makes a rank of each process that its environment makes one of a job whose ranks were read, and that has not come to meet
    them; tells each process of a job which ranks of it were read, so that none of these is said to be elsewhere. What a rank has
    started has the same environment and is none."""
    jobs: dict[str, list[ProcessState]] = {}
    for f in facts:
        if f.job and (f.world or f.stands_for):
            jobs.setdefault(f.job, []).append(f)
    for group in jobs.values():
        known = {f.world for f in group if f.world}
        pids = {f.pid for f in group if f.world or f.stands_for}
        for f in group:
            fits = f.stands_for is not None and f.world is None and f.stands_for[1] in {size for _, size in known}
            if fits and f.stands_for not in known and not f.role and not pids & f.ancestors:
                f.world = f.stands_for
        here = {place[0] for f in group for place in (f.world, f.stands_for) if place}
        sizes = {place[1] for f in group for place in (f.world, f.stands_for) if place}
        maybe = {f.world[0]: f.name for f in facts if f.world and not f.job and f.world[1] in sizes and f.world[0] not in here}
        here |= maybe.keys()
        for f in group:
            f.here, f.maybe = here, maybe


def doubtful(group: Sequence[ProcessState], seen: list[str]) -> Verdict | None:
    """An "unknown" verdict where a rank that has not come may be a process that was read and whose job is not known."""
    maybe = {rank: name for f in group for rank, name in f.maybe.items()}
    if not maybe:
        return None
    names = ", ".join(list(maybe.values())[:SHOWN])
    return Verdict("unknown", [], [*seen, f"{names}: of which job could not be read: whether these wait for it is not known"])


def missing(group: Sequence[ProcessState]) -> list[int]:
    """Ranks of the group that are not among the sampled processes, where the group's size is known; [] where all are there."""
    worlds = [place for place in map(in_step.place_of, group) if place]
    here = set().union(*{id(f.here): f.here for f in group if not in_step.goes(f)}.values())
    return [rank for rank in _gone(worlds) if rank not in here] if len(worlds) == len(group) else []


def _gone(places: Sequence[tuple[int, int]]) -> list[int]:
    there, sizes = {rank for rank, _ in places}, {size for _, size in places}
    return [r for r in range(max(sizes)) if r not in there] if len(sizes) == 1 and max(sizes) < MAX_RANKS else []


def letters_of(group: Sequence[ProcessState]) -> str:
    """What stands before the numbers of a group's ranks."""
    return "DP" if in_step.goes(group[0]) else "R"


def hosts_of(group: Sequence[ProcessState], ranks: Iterable[int]) -> dict[int, str]:
    """{one of `ranks`: the address of its machine}, where that is known and is none of a machine that was asked."""
    cores = in_step.goes(group[0])
    known: dict[int, str] = {}
    maps = [f.in_step.hosts if cores and f.in_step is not None else f.hosts for f in group]
    for hosts in {id(hosts): hosts for hosts in maps}.values():  # many processes have the same
        known.update(hosts)
    asked = {known.get(place[0]) for place in map(place_of, group) if place}
    return {rank: known[rank] for rank in ranks if rank in known and known[rank] not in asked}


def lines(group: Sequence[ProcessState], ranks: Sequence[int], size: int) -> list[str]:
    """Evidence of ranks that were not asked: their machines, or that those are not known."""
    hosts, letters, said = hosts_of(group, ranks), letters_of(group), []
    for host in dict.fromkeys(hosts.values()):
        said.append(f"{_are([r for r in ranks if hosts.get(r) == host], size, letters)} on a node that was not asked ({host})")
    left = [rank for rank in ranks if rank not in hosts]
    if left:
        who = _are(left, size, letters, "was", "were")
        one = len(left) == 1
        said.append(
            f"{who} not asked: {'it has' if one else 'they have'} ended, or {'is' if one else 'are'} elsewhere or not named here"
        )
    return [*said, *nodes_of(group, ranks)]


def _are(ranks: Sequence[int], size: int, letters: str, one: str = "is", many: str = "are") -> str:
    names = tree.rank_set([f"{letters}{r}" for r in ranks])
    return f"rank {ranks[0]} of {size} {one}" if len(ranks) == 1 else f"{names} of {size} ranks {many}"


def nodes_of(group: Sequence[ProcessState], absent: Sequence[int]) -> list[str]:
    """One line for each node all of whose ranks are absent, where each node has the same number of ranks."""
    each = {(f.per_node, f.world[1]) for f in group if f.world}
    count, size = each.pop() if len(each) == 1 else (0, 0)
    nodes = range(size // count) if count and size % count == 0 and size < MAX_RANKS else range(0)
    gone = [node for node in nodes if set(range(node * count, (node + 1) * count)) <= set(absent)]
    return [
        f"{tree.rank_set([f'R{node * count + i}' for i in range(count)])}: on node {node} of {len(nodes)}, not asked"
        for node in gone
    ]


def note(facts: Facts, found: Verdict) -> list[str]:
    """Evidence of the ranks that were not looked at, for a verdict that does not depend on them; none where a process could not
    be read, which may be such a rank."""
    if found.not_asked or any(f.why for f in facts):
        return []
    jobs: dict[str, list[ProcessState]] = {}
    for f in facts:
        if f.job and place_of(f) and not in_step.goes(f):
            jobs.setdefault(f.job, []).append(f)
    said = []
    for group in jobs.values():
        places = [place for place in map(place_of, group) if place]
        gone = [rank for rank in _gone(places) if rank not in group[0].here]
        said += lines(group, gone, places[0][1]) if gone else []
    return said


def all_there(group: Sequence[ProcessState], inside: Sequence[tuple[ProcessState, ThreadState]]) -> list[str]:
    """What is said where each rank that was read waits in the same operation. That the cause is in none of their stacks is known
    of a collective alone, whose groups are known, where each rank has begun as many of it as the others."""
    moved = [c for f in group for c in f.counters if c.moved and c.what.startswith("collectives begun")]
    if moved:
        one = moved[0]
        return [f"they come and go: {one.label} has {one.what} {one.before} -> {one.after}; {NOT_BLOCKED}"]
    peers = [f"{f.name} waits for rank {t.peer}" for f, t in inside if t.peer is not None]
    if peers:
        sent = "what one has sent before (isend) may be on its way"
        return [f"messages between two ranks: {'; '.join(peers[:SHOWN])}; who has to send does not follow from that: {sent}"]
    counts = [[sum(c.begun.values()) for c in f.counts if c.group == t.group] for f, t in inside]
    if not all(t.group for _, t in inside) or len({tuple(count) for count in counts}) != 1 or not counts[0]:
        return ["every rank that was read is there; whether all of them wait in the same one is not known"]
    return [
        "every rank that was read is there, and each has begun as many: the cause is not in these processes' stacks "
        "(the network, the device, or unequal shapes)"
    ]


def named(hosts: Mapping[int, str], ranks: Iterable[int], letters: str) -> dict[str, str]:
    """{name of a rank: the address of its machine}"""
    return {f"{letters}{rank}": hosts[rank] for rank in ranks if rank in hosts}
