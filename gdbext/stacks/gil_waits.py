"""The edge of a thread that waits for the GIL, or, in a free-threaded build, for all other threads to stop."""

from __future__ import annotations

from ..cpython import gil, world
from ..cpython.runtime import PyThread
from .threads import ProcessView, ThreadView
from .waits import Edge


def edge_of(view: ProcessView, thread: ThreadView, py: PyThread, futex: int) -> Edge | None:
    """The edge of a thread; None where it waits for neither. `futex`: the address that it waits on, 0 for none."""
    start, end = gil.gil_range(py.rt, py.interp)
    if futex and start <= futex < end:
        return _gil(view, thread, py)
    stop = world.wanted_stop(py.rt)
    if stop is not None and stop.wants in (address for address, _ in py.states):
        return _stop(view, thread, stop)
    return None


def _gil(view: ProcessView, thread: ThreadView, py: PyThread) -> Edge:
    said, holder = py.rt.gil(py.interp)
    owner = None
    if said == "held":
        owner = next((th for th in view.threads if th.py is not None and holder in (a for a, _ in th.py.states)), None)
    note = "" if owner or said != "held" else "the thread state that holds it belongs to no thread of this process"
    held_by = (view.name, owner.tid) if owner else None
    return Edge((view.name, thread.tid), "the GIL", "GIL", held_by, note=note, where=str(thread.top or ""))


def _stop(view: ProcessView, thread: ThreadView, stop: world.Stop) -> Edge:
    tids = {py.tid for py in stop.attached}
    attached = [(view.name, th.tid) for th in view.threads if th.tid in tids]
    edge = Edge((view.name, thread.tid), "the stop of all other threads", "GIL", where=str(thread.top or ""))
    edge.owner, edge.candidates = (attached[0], []) if len(attached) == 1 else (None, list(attached))
    edge.note = "" if attached else "none is attached any more"
    return edge
