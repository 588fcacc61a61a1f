"""The end of a program: whom `threading._shutdown` waits for.

Source: Lib/threading.py. Before 3.13 it takes the lock of each thread's state in turn; from 3.13 on C code joins each thread that
is no daemon, and no frame shows which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import log
from .python_waits import last_part, path_of
from .waits import Edge

if TYPE_CHECKING:
    from .threads import ProcessView, ThreadView

SHOWN = 4  # names


def shutdown_edge(view: ProcessView, thread: ThreadView) -> Edge | None:
    """The edge of a main thread whose program has ended, to the threads that are no daemons and run on; all of them have to end.
    None where it stands elsewhere, or none is seen."""
    inner = thread.python[0] if thread.python else None
    if (
        inner is None
        or view.rt is None
        or last_part(inner.function) != "_shutdown"
        or not path_of(inner).endswith("threading.py")
    ):
        return None
    waited = []
    for ident, obj in view.rt.registered_threads().items():
        other = view.by_ident(ident)
        with log.passing_over():
            if other is not None and other is not thread and not obj.attr("_daemonic").boolean():
                waited.append(other)
    if not waited:
        return None
    names = ", ".join(other.name or str(other.tid) for other in waited[:SHOWN]) + (", …" if len(waited) > SHOWN else "")
    what = f"the end of {'thread' if len(waited) == 1 else f'{len(waited)} threads'} {names}, no daemon{'s' * (len(waited) > 1)}"
    note = "the program has come to its end"
    edge = Edge((view.name, thread.tid), what, "Thread", note=note, where=f"_shutdown (threading.py:{inner.line})", every=True)
    edge.candidates = [(view.name, other.tid) for other in waited]
    edge.owner = edge.candidates[0] if len(waited) == 1 else None
    return edge
