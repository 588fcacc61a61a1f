"""Rings in shared memory, through which an engine's core and its workers talk: readers that have not read, workers that do not
answer."""

from __future__ import annotations

from typing import Any, Sequence

from ...engines import registry, shm_rings
from ...stacks import tree
from ..facts import Facts, ProcessState, Verdict
from ..words import describe


def ends(facts: Facts) -> dict[str, tuple[Any, dict[int, Any]]]:
    """{name of a ring: ((the `ProcessState` of its writer, its end) or None, {reader's number: (ProcessState, end)})}"""
    writers: dict[str, Any] = {}
    readers: dict[str, dict[int, Any]] = {}
    for f in facts:
        for ring in f.rings:
            readers.setdefault(ring.name, {})
            if ring.reader is None:
                writers[ring.name] = (f, ring)
            else:
                readers[ring.name][ring.reader] = (f, ring)
    return {name: (writers.get(name), readers[name]) for name in readers}


def lines(facts: Facts) -> list[str]:
    """The contents of the rings, as evidence: the readers that have not read, and the writers that cannot write before that."""
    return [line for name, (writer, readers) in ends(facts).items() for line in _lines(name, writer, readers)]


def _lines(name: str, writer: Any, readers: dict[int, Any]) -> list[str]:
    ring = writer[1] if writer else next(iter(readers.values()))[1]

    def called(numbers: Sequence[int]) -> str:
        return tree.rank_set([readers[i][0].name if i in readers else f"reader {i}" for i in numbers])

    by_count: dict[int, list[int]] = {}
    for i, count in enumerate(ring.unread):
        by_count.setdefault(count, []).append(i)
    behind = [
        f"{called(who)} {'has' if len(who) == 1 else 'have'} {n} message{'s' * (n != 1)} of it unread"
        for n, who in sorted(by_count.items())
        if n
    ]
    title = f"{writer[0].name if writer else 'an unknown process'}'s ring {name}"
    if behind:
        rest = [f"{called(by_count[0])} all read"] if 0 in by_count else []
        stuck = [f"its writer cannot write before {called(ring.full)} has read"] if writer and ring.full else []
        return [f"{title}: " + ", ".join(behind + rest + stuck)]
    return [f"{title}: {called(range(len(ring.unread)))} have read all that was written"] if ring.hands_out_work else []


def starved(facts: Facts) -> Verdict | None:
    """The first of three cases: a full ring whose writer waits for a reader; an engine core that waits for the answer of a worker
    which does not wait for work; workers that wait for a core which is blocked elsewhere."""
    return _full(facts) or _absent_worker(facts) or _absent_core(facts)


def _starved(late: list[Any], facts: Facts, evidence: list[str], more: Sequence[Any] = ()) -> Verdict:
    nodes = [f.main.node for f in late] + list(more)
    return Verdict("starved", nodes, evidence + [describe(f.main) for f in late], [f.name for f in facts if f not in late])


def _full(facts: Facts) -> Verdict | None:
    for writer, readers in ends(facts).values():
        if not writer or not writer[0].main or not writer[1].full:
            continue
        main = writer[0].main
        if main.stands_in(shm_rings.waits_to_write_in):
            late = [readers[i][0] for i in writer[1].full if i in readers and readers[i][0].main]
            if not all(f.main.still and f.main.woke <= 1 for f in late):
                continue  # they come to read it, or may when the machine has a CPU for them
            unknown = [(f"reader {i}", None) for i in writer[1].full if i not in readers]
            return _starved(late, facts, [describe(main)], unknown)
    return None


def _absent_worker(facts: Facts) -> Verdict | None:
    cores = [
        f
        for f in facts
        if f.role == "engine-core"
        and f.main
        and any(t.stands_in(registry.waits_for_answer_in) or t.stands_in(shm_rings.waits_in) for t in f.threads)
    ]
    workers = [f for f in facts if f.role == "worker" and f.main]
    late = [f for f in workers if f.main and not f.main.stands_in(shm_rings.waits_in) and f.main.still]
    late = [f for f in late if any(None in (c.replica, f.replica) or c.replica == f.replica for c in cores)]
    if not cores or not late:
        return None
    return _starved(late, facts, [f"{c.name} waits for its workers: {c.main.top}" for c in cores if c.main])


def _absent_core(facts: Facts) -> Verdict | None:
    workers = [f for f in facts if f.role == "worker" and f.main]
    waiting = [f for f in workers if f.main and f.main.stands_in(shm_rings.waits_in)]
    if not waiting or len(waiting) < len(workers):
        return None
    stuck = [f for f in facts if f.role == "engine-core" and f.main and f.main.still and not f.main.victim and not rests(f)]
    if not stuck:
        return None
    return _starved(stuck, facts, [f"{tree.rank_set([f.name for f in waiting])} wait for the core's next step"])


def rests(f: ProcessState) -> bool:
    """Whether the main thread of an engine's process is where such a process waits for work."""
    spec = registry.spec_of(f.engine)
    specs = [spec] if spec is not None else list(registry.ENGINES)
    return f.main is not None and any(f.main.stands_in(lambda name, one=one: one.rests_in(f.role, name)) for one in specs)
