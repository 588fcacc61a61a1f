"""The facts of `sampling.ProcessSamples`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..observe.window import LEAST
from .facts import ProcessState, ThreadState

if TYPE_CHECKING:
    from ..stacks.sampling import ProcessSamples
    from ..stacks.threads import ThreadView
    from ..stacks.waits import Edge

MIN_GIL_LOOKS = 6
SHM = "/dev/shm/"


def facts_of(s: ProcessSamples) -> ProcessState:
    """The `ProcessState` of one process's samples."""
    rank = s.rank
    facts = ProcessState(
        s.name,
        rank.role if rank is not None else "",
        s.state or "?",
        why=s.why,
        pid=s.pid,
        engine=rank.engine if rank is not None else "",
        family=rank.family if rank is not None else None,
        ended=s.ended,
        frozen=s.frozen,
        died=s.died,
        ancestors=s.ancestors,
        children=s.children,
        dead_children=s.ended_children,
        peers=s.holders,
        counters=s.counters,
        clients=s.clients,
        unread=s.unread,
        signals=s.signals,
    )
    if rank is not None and getattr(rank, "is_left", False):
        why = "its parent is gone" if rank.orphan else f"its parent {rank.ppid} is an orphan"
        facts.orphan = why + (f"; it holds {held}" if (held := holds(s)) else "")
    if s.view is None:
        return facts
    edges = {e.waiter: e for e in s.edges}
    facts.threads = [_thread(s, th, edges.get((s.view.name, th.tid))) for th in s.view.threads]
    facts.world, facts.links, facts.rings, facts.counts = s.world, s.links, s.rings, s.counts
    facts.shared = {m.path.split(" ")[0][len(SHM) :] for m in s.view.target.mappings() if m.path.startswith(SHM)}
    facts.tasks, facts.loops, facts.moved_tasks = s.tasks.tasks, s.tasks.loops, s.moved_tasks
    facts.gil_hog = _unreleased_gil(s, facts.threads)
    return facts


def _thread(s: ProcessSamples, th: ThreadView, edge: Edge | None) -> ThreadState:
    tid = th.tid
    seen, gil = s.window.thread(tid), s.window.gil
    return ThreadState(
        (s.view.name, tid),
        th.name,
        th is s.view.main,
        th.frames,
        bool(th.python),
        th.idle,
        seen.moved,
        seen.advanced,
        load=s.window.load(seen.ran),
        woke=seen.woke,
        state=seen.after.state if seen.after else th.state or "S",
        edge=edge,
        native=[n.function for n in th.native],
        holds=bool(gil and gil.count and gil.held.get(tid, 0) == gil.count and len(gil.switches) == 1),
        wanted=s.window.load(seen.wanted),
        call=s.calls.get(tid),
        waited=s.window.waited and th is s.view.main,
        futile=seen.futile,
        kernel=s.kernel.get(tid, ""),
    )


def _unreleased_gil(s: ProcessSamples, found: list[ThreadState]) -> tuple[object, list[object]] | None:
    """(node, waiters) where one thread held the GIL all the while, by the lock's own count, and others waited at half of
    the looks or more: a waiter asks again every 5 ms, and on a machine at work it is some time until it waits again. Python makes
    a thread give the GIL back after 5 ms when another asks, so one that runs and never does is in C code; one that was not given
    a processor is no such thread."""
    got = s.window.gil
    if got is None or got.count < MIN_GIL_LOOKS or got.free or len(got.held) != 1 or len(got.switches) != 1:
        return None
    tid = next(iter(got.held))
    waiters = [t for t, n in got.waited.items() if n >= 0.5 * got.count and t not in got.held]
    seen = s.window.thread(tid)
    holder = next((t for t in found if t.node[1] == tid), None)
    if not waiters or holder is None or holder.moved:
        return None
    if seen.after is not None and seen.after.state == "R" and (seen.ran or 0.0) < LEAST:
        return None
    return holder.node, [(s.view.name, t) for t in waiters]


def holds(s: ProcessSamples) -> str:
    """What an orphaned process still holds: memory, shared memory, ports, device files."""
    from .possessions import of_process

    return of_process(s.pid)
