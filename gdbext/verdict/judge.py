"""The verdicts on several processes. Each engine, group of ranks or lone process is judged apart, and the gravest verdict comes
first.

A verdict names no culprit rather than the wrong one.
"""

from __future__ import annotations

import re
from typing import Iterable

from .. import log
from . import gate
from .facts import Facts, ProcessState, Verdict
from .kinds import GRAVITY, LASTING, QUIET
from .rules import ORDER, absent, collectives, fronts, in_step, requests
from .rules.chains import roots
from .rules.collectives import count_lines
from .rules.ended import notes
from .rules.rings import lines as ring_lines
from .walk import outlook
from .words import describe, name_of

_PERIODS = re.compile(r"[\d,]+ of [\d,]+ periods: \d+ %")  # of a quota: each look at it has other numbers


NO_REASON = "nothing that was read shows why it is blocked here"
ONE_LOOK = "looked at once: whether it lasts is not known"


def judge(processes: Iterable[ProcessState]) -> list[Verdict]:
    """One `Verdict` for each engine, group or lone process, the gravest first."""
    facts = Facts(processes)
    collectives.disown(facts)
    absent.adopt(facts)
    found = []
    for number, group in enumerate(families(facts)):
        verdict = judge_group(group)
        verdict.processes = [f.name for f in group]
        verdict.engine = next((f.engine for f in group if f.engine), "")
        verdict.group = str(next((f.family for f in group if f.family is not None), number))
        found.append(verdict)
    return sorted(found, key=lambda v: GRAVITY.index(v.kind))


def families(facts: Facts) -> list[list[ProcessState]]:
    """The processes in groups: those of one engine, ranks of one group, parents and children, and those that wait for each
    other's locks, pipes or sockets."""
    parent = list(range(len(facts)))

    def top(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    def join(i: int, j: int) -> None:
        parent[max(top(i), top(j))] = min(top(i), top(j))

    by_key: dict[object, int] = {}
    by_name = {f.name: i for i, f in enumerate(facts)}
    by_pid = {f.pid: i for i, f in enumerate(facts) if f.pid}
    rings = {ring.name for f in facts for ring in f.rings}
    for i, f in enumerate(facts):
        keys: list[object] = [("family", f.family)] if f.family is not None else []
        if f.family is None and f.role:
            keys.append("role")  # made up without families: one engine
        if f.family is None or f.node:
            keys += _groups_of(f)
        keys += [("ring", name) for name in {ring.name for ring in f.rings} | (f.shared & rings)]
        for key in keys:
            join(i, by_key.setdefault(key, i))
        for pid in [*f.children, *(pid for peers in f.peers.values() for pid, _ in peers)]:
            if pid in by_pid and _linked(f, facts[by_pid[pid]]):
                join(i, by_pid[pid])
    by_birth = {f.born: i for i, f in enumerate(facts) if f.born is not None}
    for i, f in enumerate(facts):
        if f.parent is not None and f.parent in by_birth:
            join(i, by_birth[f.parent])
    by_node = {t.node: i for i, f in enumerate(facts) for t in f.threads}
    for i, f in enumerate(facts):
        for other in (node for e in f.edges for node in (e.owner, *e.candidates) if node is not None):
            if other in by_node or other[0] != f.name and other[0] in by_name:
                join(i, by_node[other] if other in by_node else by_name[other[0]])
    groups: dict[int, list[ProcessState]] = {}
    for i, f in enumerate(facts):
        groups.setdefault(top(i), []).append(f)
    return list(groups.values())


def _groups_of(f: ProcessState) -> list[object]:
    """Keys that ranks of one job share with no other job: the address of their store, connections, a communicator's number. The
    torch groups of unrelated jobs have the same names and sizes, so these are no keys."""
    keys: list[object] = [("link", link) for link in f.links or ()]
    if f.job:
        keys.append(("job", f.job))
    return keys + [("group", c.group) for c in f.counts if c.unique]


def _linked(f: ProcessState, other: ProcessState) -> bool:
    """Whether parent and child, or two ends of a pipe or socket, are judged together. Two engines that one launcher started are
    not; a child of a lone process is judged with it."""
    return f.family is None or other.family is None or f.family == other.family


def judge_group(processes: Iterable[ProcessState]) -> Verdict:
    """The `Verdict` on processes that belong together: the first rule that applies."""
    facts = Facts(processes)
    slow: Verdict | None = None
    for rule in ORDER:
        found = rule(facts)
        if found is None:
            continue
        passed = found if found.from_outside else gate.judged(facts, found)
        late = rule is not collectives.waiting and any(line.endswith(gate.SLOW) for line in found.evidence)
        if passed.kind == "unknown" and (passed is not found or late):  # a rank that runs may never come
            slow = slow or passed
            continue
        if slow is not None and passed.kind in QUIET:
            if passed.kind == "idle":
                continue  # who keeps others waiting is at work
            passed.evidence = list(dict.fromkeys([*slow.evidence, *passed.evidence]))
        found = passed
        log.note("%s: %s, by %s; what stands before it in ORDER does not apply", _names(facts), found.kind, rule.__qualname__)
        found = _at_one_look(facts, found)
        more = absent.note(facts, found) + _shortages(facts)
        if found.kind not in QUIET:
            more = count_lines(facts) + in_step.lines(facts) + ring_lines(facts) + notes(facts) + more
        found.evidence += [line for line in more if line not in found.evidence]
        return found
    log.note(
        "%s: no rule applies: %s", _names(facts), [f"{rule.__module__.rpartition('.')[2]}.{rule.__name__}" for rule in ORDER]
    )
    return _unknown(facts, slow)


def _at_one_look(facts: Facts, found: Verdict) -> Verdict:
    """The verdict. "unknown" with its evidence where it needs a state that lasts, and those it rests on were looked at once, in a
    core or a stopped process: a healthy lock has a holder too, and each step waits for its kernels."""
    if found.kind not in LASTING or found.from_outside:
        return found
    blamed = [t for t in map(facts.thread, found.culprits) if t is not None]
    if not all(t.load is None for t in blamed or (t for f in facts for t in f.threads)):
        return found
    said = Verdict("unknown", [], [*found.evidence, ONE_LOOK])
    said.if_it_lasts = found
    return said


def _names(facts: Facts) -> str:
    return ", ".join(f.name for f in facts)


def _unknown(facts: Facts, slow: Verdict | None = None) -> Verdict:
    """`slow`: what the gate has made of a verdict on one that may only be slow."""
    evidence = [*(slow.evidence if slow is not None else ()), *_shortages(facts)]
    evidence += [f"{name_of(facts, e.waiter)} waits for {e.lock}: {e.note}; name that one too" for e in facts.edges if e.outside]
    for node in roots(facts):
        found = outlook(facts, node)
        evidence += found.way
        if found.kind == "spins" and found.culprit == node:
            evidence.append(f"{name_of(facts, node)} runs; whether it makes progress is not known")
    paused = requests.paused(facts)
    evidence += fronts.front_lines(facts) + paused + requests.queued(facts)
    evidence += [describe(f.main) for f in facts if f.main]
    more = count_lines(facts) + in_step.lines(facts) + ring_lines(facts) + notes(facts) + _timers(facts)
    closing = [NO_REASON if _is_blocked(facts) else absent.NOT_BLOCKED] if slow is None and not paused else []
    return Verdict("unknown", [], [*evidence, *more, *closing])


def _is_blocked(facts: Facts) -> bool:
    """Whether a main thread, or a task that a loop runs for, stood where it is or only asked. Of one look that is not known."""
    for node in roots(facts):
        t, f = facts.thread(node), facts.process(node)
        if t.still or t.polls or t.tries if t is not None else f is not None and node not in f.moved_tasks:
            return True
    return False


def _shortages(facts: Facts) -> list[str]:
    """What processes have run out of; processes of one control group in one line, with the numbers of the last that was read."""
    said: dict[str, tuple[list[str], str]] = {}
    for f in facts:
        for line in f.short:
            names, _ = said.get(_PERIODS.sub("", line), ([], ""))
            said[_PERIODS.sub("", line)] = [*names, f.name], line
    return [f"{', '.join(names)}: {line}" for names, line in said.values()] + fronts.lines(facts)


def _timers(facts: Facts) -> list[str]:
    """Threads that move while others are blocked: their movement says nothing about the others."""
    found = [t for f in facts for t in f.threads[1:] if t.moved]
    return [f"{describe(t)}: that says nothing about the others" for t in found[:2]]
