"""asyncio loops that cannot run their ready tasks."""

from __future__ import annotations

from ..facts import Facts, ThreadState, Verdict
from ..nodes import turned
from ..words import describe

LATE = 0.5  # seconds by which a timer of a loop that turns may be late on a machine at full load


def blocked(facts: Facts) -> Verdict | None:
    """A loop's thread stays in one callback or task for the whole window while others need the loop. Others of its tasks or
    callbacks could run, data from clients is unread, or clients are connected while the thread does nothing. A loop that took
    another callback from its queue in the window is not blocked."""
    for f in facts:
        for loop in f.loops:
            t = next((t for t in f.threads if t.node[1] == loop.tid), None)
            waits = loop.ready or loop.overdue >= LATE or f.unread
            if t is None or not waits and not (f.clients and _does_nothing(t)):
                continue
            if t.call is not None and t.call.name in ("epoll", "select", "poll") and not loop.running:
                continue  # it waits in its selector
            if turned(f, t, loop) or t.state in ("T", "t"):
                continue
            keeps = f"task {loop.running}" if loop.running else f"callback {loop.callback}" if loop.callback else "a callback"
            evidence = [f"{keeps} keeps the event loop of {f.name}: {describe(t)}"]
            if loop.ready:
                evidence.append(f"{loop.ready} that could run wait{'s' if loop.ready == 1 else ''}")
            if loop.late:
                evidence.append(f"{loop.late} timer{'s are' if loop.late > 1 else ' is'} due; the first for {loop.overdue:.1f} s")
            if f.unread:
                evidence.append(f"on {f.unread} of its connections something waits to be read or accepted")
            elif f.clients:
                evidence.append(f"{f.clients} connection{'s' if f.clients > 1 else ''} of clients to it")
            return Verdict("loop-blocked", [t.node], evidence, [f.name])
    return None


def _does_nothing(t: ThreadState) -> bool:
    """Whether it is blocked in anything but the wait for the GIL."""
    return t.still and (t.edge is None or t.edge.kind != "GIL")
