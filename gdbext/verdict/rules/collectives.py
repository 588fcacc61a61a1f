"""Collective operations: ranks that have not come, ranks in different operations, and ranks of several groups that wait for each
other in a ring."""

from __future__ import annotations

import collections
import re
from typing import Any, Iterable, NamedTuple, Sequence

from ...engines import shm_rings
from ...stacks import tree, waits
from ...torch.collectives import Count
from ..facts import Facts, ProcessState, ThreadState, Verdict
from ..gate import waits_end
from ..walk import chain_of, outlook
from ..words import caller_of, describe
from . import absent, in_step, rings
from .absent import MAX_RANKS, SHOWN

SOCKETS = ("listener", "served", "client", "unix")
LOADS = 1 << 20  # bytes: a rank that read more in the window loads something
FROM_ONE = re.compile(r"broadcast|scatter|recv")  # collectives that wait for one rank


def disown(facts: Facts) -> None:
    """Leaves a group to the process that made it: a copy of its variables in another process (a fork, or a child that was given
    the same variables) is no rank."""
    by_pid: dict[int, list[ProcessState]] = {}
    for f in facts:
        by_pid.setdefault(f.pid, []).append(f)
    for f in facts:
        for other in (one for pid in f.ancestors for one in by_pid.get(pid, ())):
            if f.world is None or (f.world, f.node) != (other.world, other.node):
                continue
            copy = other if f.counts and not other.counts else f
            copy.world, copy.counts = None, ()


def groups(facts: Facts) -> list[list[ProcessState]]:
    """Processes that should do the same: the shards of an engine, the ranks of one group; last the engine cores that go in
    step, since a core that has not come may only wait for its workers."""
    found: dict[tuple[str, str], list[ProcessState]] = {}
    jobs = {f.job for f in facts if f.role and f.job}
    for f in facts:
        if f.role in ("worker", "scheduler", "rank") or not f.role and f.world is not None:
            found.setdefault((f.role, f.job if not f.role or len(jobs) > 1 else ""), []).append(f)
    cores = [f for f in facts if in_step.goes(f)]
    return [*found.values(), *([cores] if cores else [])]


def counters(facts: Iterable[ProcessState]) -> list[tuple[str, str, dict[str, int]]]:
    """`[(group, operation, {process: how many it has begun})]` of the groups that have several of the processes as members."""
    found: dict[tuple[str, str, str], dict[str, int]] = {}
    members: dict[tuple[str, str], list[str]] = {}
    for f in facts:
        for count in f.counts:
            key = count.key(f.job)
            members.setdefault(key, []).append(f.name)
            for operation, begun in count.begun.items():
                found.setdefault((*key, operation), {})[f.name] = begun
    return [
        (group, operation, {name: by.get(name, 0) for name in members[job, group]})
        for (job, group, operation), by in found.items()
        if len(members[job, group]) > 1
    ]


def count_lines(facts: Facts) -> list[str]:
    """Evidence of ranks of one group that have begun different numbers of collectives, with the ranks of each number."""
    lines = []
    for group, operation, begun in counters(facts):
        by_count: dict[int, list[str]] = {}
        for name, n in begun.items():
            by_count.setdefault(n, []).append(name)
        if len(by_count) > 1:
            said = [
                f"{tree.rank_set(who)} {'has' if len(who) == 1 else 'have'} begun {n}"
                for n, who in sorted(by_count.items(), reverse=True)
            ]
            lines.append(f"{group}: collectives counted in memory{f' ({operation})' if operation else ''}: " + ", ".join(said))
    return lines


def behind(facts: Iterable[ProcessState], inside: Sequence[Any] | None = None) -> list[ProcessState]:
    """The processes that have begun fewer collectives of a group than most of its ranks, which wait for them. `inside`: (process,
    thread) of those that wait; groups in which none of them does are left out."""
    for group, _, begun in counters(facts):
        if inside is not None and not any(f.name in begun and _is_in(f, t, group) for f, t in inside):
            continue
        most = max(begun.values())
        late = [name for name, n in begun.items() if n < most]
        if late and len(late) < len(begun) - len(late):
            return [f for f in facts if f.name in late and f.main]
    return []


def effective(f: ProcessState) -> ThreadState | None:
    """The thread on which a process's main thread depends: itself, or the end of its chain of joins and locks."""
    if f.main is None:
        return None
    end, _ = waits.root(f.edges, f.main.node)
    return next((t for t in f.threads if t.node == end), f.main)


class _Ahead(NamedTuple):
    """Of a rank that waits in a group: it has begun `number` collectives of `what`, and others that wait `late` fewer: {name: how
    many}."""

    what: str
    number: int
    late: dict[str, int]


def crossed(facts: Facts) -> Verdict | None:
    """Ranks that wait for one another in collectives of different groups. In each group, a rank that has begun more collectives
    waits for a rank that has begun fewer; these waits form a ring."""
    inside = {f.name: (f, t) for f in facts for t in [effective(f)] if t is not None and t.collective and not t.moved}
    ahead: dict[str, list[_Ahead]] = {}
    for group, operation, begun in counters(facts):
        most = max(begun.values())
        late = {name: n for name, n in begun.items() if n < most and name in inside}
        found = _Ahead(f"{group}" + (f" ({operation})" if operation else ""), most, late)
        for name in [name for name, n in begun.items() if late and n == most and name in inside]:
            if _is_in(*inside[name], group):
                ahead.setdefault(name, []).append(found)
    ring = _ring(ahead)
    if not ring:
        return None
    evidence = []
    for (name, one), (after, _) in zip(ring, [*ring[1:], ring[0]]):
        t = inside[name][1]
        evidence.append(
            f"{name} has begun {one.number} collectives of {one.what} and waits in {t.collective}, called from {caller_of(t)}; "
            f"{after} has begun {one.late[after]}"
        )
    names = {name for name, _ in ring}
    closing = "each waits in one group for a rank that waits in another: none of these can end"
    victims = [name for name in inside if name not in names]
    return _looked_at_twice(Verdict("collective", [inside[name][1].node for name, _ in ring], [*evidence, closing], victims))


def _ring(ahead: dict[str, list[_Ahead]]) -> list[tuple[str, _Ahead]]:
    """A shortest ring of ranks through the first that is in one: (name, the group in which it waits for the next); [] where there
    is none. Each group is gone through once for each start."""
    lates = {name for found in ahead.values() for one in found for name in one.late}
    for start in [name for name in ahead if name in lates]:
        came: dict[str, tuple[str, _Ahead]] = {}
        todo, passed = collections.deque([start]), set()
        while todo:
            name = todo.popleft()
            for one in ahead.get(name, ()):
                for after in one.late if one.what not in passed else ():
                    if after == start:
                        ring = [(name, one)]
                        while ring[0][0] != start:
                            ring.insert(0, came[ring[0][0]])
                        return ring
                    if after not in came:
                        came[after] = name, one
                        todo.append(after)
                passed.add(one.what)
    return []


def waiting(facts: Facts) -> Verdict | None:
    """Ranks that are blocked in a collective, and those of their group that are not."""
    for group in groups(facts):
        verdict = _of_group(facts, group)
        if verdict is not None:
            return verdict
    following = followers(facts)
    return _begun_unseen(Facts(f for f in facts if f.name not in following))


def _begun_unseen(facts: Facts) -> Verdict | None:
    """Ranks that are blocked in torch's own code without a collective among their frames (a backward pass that averages
    gradients, for example). They have begun one more collective than others, which have not come to it."""
    if any(c.moved and c.what.startswith("collectives begun") for f in facts for c in f.counters):
        return None
    for group, _, begun in counters(facts):
        most = max(begun.values())
        ahead = [(f, f.main) for f in facts if f.main is not None and begun.get(f.name) == most and _waits_in_torch(f.main)]
        late = [(f, f.main) for f in facts if f.main is not None and begun.get(f.name, most) < most]
        if ahead and late:
            seen = [f"{f.name} has begun {most} collectives of {group} and is in {t.top}" for f, t in ahead]
            return _outside(facts, seen, late, [f.name for f, _ in ahead])
    return None


def _waits_in_torch(t: ThreadState) -> bool:
    """Whether it is blocked in C++ code called by torch's own Python code, and Python names no wait."""
    inner = next((f for f in t.frames if f.kind == "python"), None)
    named = t.edge is not None and t.edge.kind != "condition"
    return t.still and inner is not None and "/torch/" in inner.file.replace("\\", "/") and not named


def followers(facts: Facts) -> set[str]:
    """Names of ranks that wait for the next command of a rank that waits for input from outside: they rest as it does."""
    found: set[str] = set()
    for group in groups(facts):
        inside, outside = _divided(group)
        if inside and outside and not absent.missing(group) and _awaits_input(facts, inside, outside):
            found |= {f.name for f, _ in inside}
    return found


def _divided(group: Sequence[ProcessState]) -> tuple[list[Any], list[Any]]:
    """`[(process, the thread on which it depends)]` of those that are blocked in a collective, and of those that are not."""
    found: tuple[list[Any], list[Any]] = ([], [])
    for f in group:
        t = effective(f)
        if t is not None:
            found[0 if t.collective and not t.moved else 1].append((f, t))
    return found


def _of_group(facts: Facts, group: Sequence[ProcessState]) -> Verdict | None:
    inside, outside = _divided(group)
    if not inside:
        return None
    ops: dict[Any, list[tuple[ProcessState, ThreadState]]] = {}
    for f, t in inside:
        ops.setdefault((t.collective, caller_of(t)), []).append((f, t))
    seen = [
        f"{tree.rank_set([f.name for f, _ in fs])} wait{'s' if len(fs) == 1 else ''} in {op}, called from {at}"
        for (op, at), fs in ops.items()
    ]
    victims = [f.name for f, _ in inside]
    of_group = Facts(group)
    (late, peers), met = _awaited(of_group, inside), _met(of_group, inside)
    awaited = late | peers
    if awaited:  # a rank that is not in the groups in which they wait does not matter
        outside = [(f, t) for f, t in outside if f.name in awaited] or outside
    elif met is not None:
        outside = []  # by the counts, who has to come has come, or was not looked at
    else:  # nor does one of a replica of its own
        outside = [(f, t) for f, t in outside if any(in_step.meet(f, other) for other, _ in inside)]
    if outside and _awaits_input(facts, inside, outside):
        return None
    if outside:
        rested = [(f, t) for f, t in outside if f.name in peers - late and _awaits_command(f, t)]
        if len(rested) == len(outside):
            line = "wait for their next command: they have sent before, or were not told to"
            return Verdict("unknown", [], [*seen, f"{tree.rank_set([f.name for f, _ in rested])} {line}"])
        outside = in_step.responsible(facts, [pair for pair in outside if pair not in rested])
        return _outside(facts, seen, outside, victims) if outside else None
    doubtful = absent.doubtful(group, seen)
    if doubtful is not None:
        return doubtful
    gone = absent.missing(group)
    if gone and in_step.place_of(group[0]):
        return _not_asked(group, gone, seen)
    if met is not None and met[1]:
        names = list(met[1])[:SHOWN]
        at = [f"{name} is on a node that was not asked ({met[1][name]})" for name in names if met[1][name]]
        found = Verdict("unknown", [], [*seen, *at, f"not asked: {', '.join(names)}"])
        found.not_asked, found.hosts = names, {name: met[1][name] for name in names if met[1][name]}
        return found
    replicas = in_step.not_there(facts)
    if replicas:
        found = Verdict(
            "unknown", [], [*seen, f"data-parallel ranks that go in step with these were not asked: {replicas[:SHOWN]}"]
        )
        found.not_asked = [f"DP{rank}" for rank in replicas]
        return found
    return _different(group, ops, seen, victims)


def _not_asked(group: Sequence[ProcessState], gone: Sequence[int], seen: list[str]) -> Verdict:
    """An "unknown" verdict: ranks that were not sampled are no culprits."""
    place, letters = in_step.place_of(group[0]), absent.letters_of(group)
    found = Verdict("unknown", [], [*seen, *absent.lines(group, gone, place[1] if place else 0)])
    found.not_asked = [f"{letters}{r}" for r in gone]
    found.hosts = absent.named(absent.hosts_of(group, gone), gone, letters)
    return found


def _is_in(f: ProcessState, t: ThreadState, group: str) -> bool:
    """Whether a thread that waits for others may do so in a group: it is not known to be in another one, nor to wait for one rank
    alone. Messages between two ranks are counted too, so the ranks of a pipeline's group need not have the same counts."""
    return t.peer is None and (t.group == group or not any(c.group == t.group for c in f.counts))


def _awaited(facts: Facts, inside: Sequence[Any]) -> tuple[set[str], set[str]]:
    """-> (names of the ranks that have begun fewer collectives of a group than a rank that waits in one, which waits for them; of
    those to which a rank sends, or from which it receives)"""
    found: set[str] = set()
    names = {f.name for f, _ in inside}
    for called, _, begun in counters(facts):
        most = max(begun.values())
        if any(begun.get(f.name) == most and _is_in(f, t, called) for f, t in inside):
            found |= {name for name, n in begun.items() if n < most and name not in names}
    return found, {one.name for f, t in inside for one in facts.rank(f.job, t.peer)} - names


def _met(facts: Facts, inside: Sequence[Any]) -> tuple[set[str], dict[str, str]] | None:
    """-> (names of the processes with which those that wait would meet, {"rank N of GROUP" of each that was not looked at: the
    address of its machine, '' where that is not known}). None where one of them waits in a group that is not known. Each group is
    looked at once."""
    names: set[str] = set()
    gone: dict[str, str] = {}
    met: set[tuple[str, str]] = set()
    for f, t in inside:
        if t.peer is not None:
            others = facts.rank(f.job, t.peer)
            if not others and any(other.number is None for other in facts):
                return None
            names |= {other.name for other in others}
            if not others:
                gone[f"rank {t.peer}"] = absent.hosts_of(list(facts), [t.peer]).get(t.peer, "")
            continue
        if "monitored" in t.collective:  # it is not counted
            return None
        own = [one for one in f.counts if one.group == t.group]
        if {one.key(f.job) for one in own} <= met and own:
            continue
        met |= {one.key(f.job) for one in own}
        found = _members(facts, own[0], own[0].key(f.job)) if own else None
        if found is None:
            return None
        names |= found[0]
        gone.update(found[1])
    return names, gone


def _members(facts: Facts, count: Count, key: tuple[str, str]) -> tuple[set[str], dict[str, str]] | None:
    """As `_met`, of one group. None where its ranks or its size are not known."""
    own = {(c.rank, c.size): other for other, c in facts.groups.get(key, ())}
    ranks, sizes = {rank for rank, _ in own}, {size for _, size in own}
    if len(sizes) != 1 or None in ranks or max(sizes) > MAX_RANKS:
        return None
    here, gone = {count.hosts.get(rank) for rank in ranks if rank is not None}, {}
    for rank in (rank for rank in range(max(sizes)) if rank not in ranks):
        host = count.hosts.get(rank, "")
        gone[f"rank {rank} of {count.group}"] = host if host not in here else ""
    return {other.name for other in own.values()}, gone


def _awaits_command(f: ProcessState, t: ThreadState) -> bool:
    """Whether a rank waits for its next command. One that sends may have sent before: nothing tells that it has not."""
    return rings.rests(f) or bool(t.stands_in(shm_rings.waits_in))


def _awaits_input(facts: Facts, inside: Sequence[Any], outside: Sequence[Any]) -> bool:
    """Whether all wait for one rank's next command (a broadcast, for example), while the ranks that are not there wait for
    clients at a socket. A rank that reads a pipe or a file does not count: it waits for data that was to come."""
    from_one = all(FROM_ONE.search(t.collective) for _, t in inside)
    return from_one and all(outlook(facts, t.node).kind == "rests" and _serves(facts, t) for _, t in outside)


def _serves(facts: Facts, t: ThreadState) -> bool:
    """Whether a thread waits at a socket, or for an item that another thread gets from a socket."""
    givers = [facts.thread(node) for node in t.edge.candidates] if t.edge is not None else []
    calls = [one.call for one in (t, *givers) if one is not None and one.call is not None]
    return any(source.kind in SOCKETS for call in calls for source in call.sources)


def _only_slow(facts: Facts, f: ProcessState, t: ThreadState) -> bool:
    """Whether a rank that has not come may still come. It reads, got what it waited for, or wants a CPU that it did not get; or a
    thread that it waits for moved or woke. A sleep that ended does not count."""
    if f.read > LOADS or any(_reads(one) or one.denied or one.woke and waits_end(one) for one in {t, f.main or t}):
        return True
    nodes = {t.node, f.main.node if f.main else t.node}
    if any(outlook(facts, node).kind == "moves" for node in nodes):
        return True
    chains = [chain_of(facts, node) for node in nodes]
    behind = [facts.thread(node) for chain in chains for node in chain.nodes if node not in nodes]
    return any(one.moved or one.works or one.denied or one.woke or _reads(one) for one in behind if one is not None)


def _reads(t: ThreadState) -> bool:
    """Whether it reads a file."""
    return t.state == "D" or t.call is not None and any(source.kind == "file" for source in t.call.sources)


def _outside(
    facts: Facts, seen: list[str], outside: list[tuple[ProcessState, ThreadState]], victims: list[str]
) -> Verdict | None:
    if any(t.collective and t.moved for _, t in outside):
        return None  # some go in and out of it: they make progress
    evidence = seen + [f"{f.name} has not come to it: {describe(t)}" for f, t in outside]
    if any(t.works for _, t in outside):
        if any(c.moved for f, _ in outside for c in f.counters) or any(t.advanced for _, t in outside):
            return Verdict("unknown", [], [*evidence, "it is running: it may only be slow"])
        evidence.append("it runs but makes no progress")
    slow = [f.name for f, t in outside if _only_slow(facts, f, t)]
    if slow:
        evidence.append(f"{tree.rank_set(slow)} {'moves' if len(slow) == 1 else 'move'}: it may only be slow")
        return Verdict("unknown", [], evidence)
    return Verdict("collective", [t.node for _, t in outside], evidence, victims)


def _looked_at_twice(found: Verdict) -> Verdict:
    """A verdict that compares ranks: they were copied at different moments, so it stands if a second look at all agrees."""
    found.again = True
    return found


def _different(group: Sequence[ProcessState], ops: dict[Any, Any], seen: list[str], victims: list[str]) -> Verdict:
    late = behind(group, [pair for pairs in ops.values() for pair in pairs])
    if late and len(ops) > 1:
        names = {f.name for f in late}
        nodes = [f.main.node for f in late if f.main]
        line = "it has begun fewer than the others: it skipped one"
        return _looked_at_twice(Verdict("collective", nodes, [*seen, line], [v for v in victims if v not in names]))
    most = max(len(fs) for fs in ops.values())
    less = [pair for fs in ops.values() for pair in fs if len(fs) < most]
    if len(ops) > 1 and (len({op for op, _ in ops}) > 1 or less):
        culprits = less or [pair for fs in ops.values() for pair in fs]
        names = {f.name for f, _ in culprits}
        line = "they are in different collectives: none of these can end"
        found = Verdict("collective", [t.node for _, t in culprits], [*seen, line], [v for v in victims if v not in names])
        return _looked_at_twice(found)
    return Verdict("unknown", [], [*seen, *absent.all_there(group, [pair for pairs in ops.values() for pair in pairs])])
