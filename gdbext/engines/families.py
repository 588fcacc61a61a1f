"""Groups the processes that were found into running engines, and marks their faults."""

from __future__ import annotations

import re
from typing import Any, Callable

from ..access.proctable import ProcTable
from ..cpython.runtime import Runtime
from .adopted import lost_parent
from .rank import Rank
from .registry import SPECS
from .spec import SCHEDULERS

ORPHANS = ("engine-core", "worker", "scheduler", "detokenizer", "rank", "coordinator", "child", "api-server")
_RINGS = re.compile(r" /dev/shm/(psm_\w+)")
_ROLE_ORDER = ("frontend", "api-server", "coordinator", "backend", "engine-core", "scheduler", "detokenizer", "worker", "rank")


def sort_key(rank: Rank) -> tuple[Any, ...]:
    """The sort key of a rank among those of its engine."""
    role = _ROLE_ORDER.index(rank.role) if rank.role in _ROLE_ORDER else len(_ROLE_ORDER)
    numbers = [rank.label_ranks.get(g, 0) for g in ("dp", "pp", "pcp", "tp", "local")]
    if rank.replica is not None:
        numbers[0] = rank.replica
    return (
        "fork" in rank.marks,
        role,
        "zombie" in rank.marks,
        numbers,
        rank.ranks.get("world", 0),
        rank.process.started,
        rank.pid,
    )


def mark(ranks: dict[int, Rank], table: ProcTable, runtime_of: Callable[[int], Runtime] | None) -> None:
    """Fills in each rank's parent, and marks faults: orphans, stopped, dead and forked processes. `runtime_of`: as
    `discover.survey` has it."""
    for rank in ranks.values():
        rank.parent = ranks.get(rank.ppid)
    for rank in ranks.values():
        process = rank.process
        if rank.parent is not None and rank.parent.engine != rank.engine:
            rank.parent = None
        if process.single and rank.parent is not None and rank.parent.process.cmdline == process.cmdline and rank.prefix:
            _inherited(rank)
        if rank.role in ORPHANS and rank.parent is None and (rank.origin in ("title", "comm") or process.is_spawned):
            gone = lost_parent(process, table, runtime_of)
            if gone:
                rank.mark("orphan", gone)
        if rank.parent is not None and rank.parent.process.exits and rank.role in ORPHANS:
            rank.mark("orphan", f"its parent {rank.ppid} has ended")
        if process.state in "Tt":
            rank.mark("stopped", "stopped by a tracer" if process.state == "t" else "")
        if process.state in "ZX":
            rank.mark("zombie")
            signal = process.exit_status & 0x7F
            if signal:
                rank.mark("crashed", f"killed by signal {signal}")
            elif process.exit_status >> 8:
                rank.mark("crashed", f"exited with status {process.exit_status >> 8}")
        rank.notes = [n for n in rank.notes if n]


def _inherited(rank: Rank) -> None:
    """Handles a child with exactly its parent's title: the parent has forked it, and it has set no title of its own."""
    if SPECS[rank.engine].inherits_title(rank):
        return
    if rank.role != "engine-core" and rank.rank_source != "memory":
        rank.mark("fork", f"forked from {rank.ppid}, with that one's title")


def _share_a_ring(one: Rank, other: Rank) -> bool:
    """Whether two processes map the same memory of multiprocessing.shared_memory, whose names are random."""
    return one is not other and not {*_RINGS.findall(one.process.maps())}.isdisjoint(_RINGS.findall(other.process.maps()))


def families(ranks: dict[int, Rank]) -> list[list[Rank]]:
    """The ranks of each running engine, the oldest engine first: processes that started one another, orphans of one process
    group, and workers that something else has started (Ray's raylet), by the rings that they share with one engine."""
    top: dict[int, int] = {}

    def find(pid: int) -> int:
        while top.setdefault(pid, pid) != pid:
            pid = top[pid]
        return pid

    for rank in ranks.values():
        find(rank.pid)
        if rank.parent is not None:
            top[find(rank.pid)] = find(rank.parent.pid)
    jobs: dict[tuple[str, str], int] = {}
    for rank in ranks.values():
        place = SPECS[rank.engine].meets_at(rank.process)
        if place:
            top[find(rank.pid)] = find(jobs.setdefault((rank.engine, place), rank.pid))
    lost: dict[Any, int] = {}
    for rank in sorted(ranks.values(), key=lambda r: r.pid):
        if rank.parent is None and (rank.orphan or rank.zombie):
            key = (rank.engine, rank.prefix, rank.process.pgrp, rank.process.session)
            if key in lost:
                top[find(rank.pid)] = find(lost[key])
            else:
                lost[key] = rank.pid
    whole: dict[Any, set[int]] = {}  # families with a living top, by process group: the only one of a group is an orphan's family
    for rank in ranks.values():
        if rank.parent is None and not rank.orphan:
            whole.setdefault((rank.engine, rank.process.pgrp, rank.process.session), set()).add(find(rank.pid))
    for (name, _, pgrp, session), pid in lost.items():
        found = whole.get((name, pgrp, session), ())
        if len(found) == 1:
            top[find(pid)] = find(next(iter(found)))
    for rank in ranks.values():
        if rank.parent is None and rank.role == "worker":
            found = {find(core.pid) for core in ranks.values() if core.role in SCHEDULERS and core.engine == rank.engine}
            shared = {pid for pid in found if any(_share_a_ring(rank, r) for r in ranks.values() if find(r.pid) == pid)}
            if len(shared) == 1:
                top[find(rank.pid)] = shared.pop()
    groups: dict[int, list[Rank]] = {}
    for rank in ranks.values():
        groups.setdefault(find(rank.pid), []).append(rank)
    return sorted(groups.values(), key=lambda g: min((r.process.started, r.pid) for r in g))
