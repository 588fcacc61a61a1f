"""How a process ended (a core), or that it is ending, and what delays the end.

Python/pylifecycle.c, Py_FinalizeEx: threading._shutdown joins the threads that are no daemons. Then the callbacks of atexit run.
Then the interpreter counts as finalizing and takes its modules apart, which calls `__del__`. Last come exit(3)'s handlers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Sequence

from .. import log
from ..access.base import Target
from ..access.snapshot import CoreFileTarget, Death
from ..cpython.runtime import Runtime, all_runtimes
from ..errors import GdbextError
from ..render.text import thread_text
from . import cxx_exceptions
from .cxx_exceptions import Thrown
from .threads import ThreadView
from .waits import Edge

SHOWN = 4  # names of threads
EXIT = frozenset(("exit", "__run_exit_handlers", "__cxa_finalize"))
STAGES = {
    "signal": "it died",
    "joins": "the interpreter is ending: threading._shutdown waits for threads that are no daemons",
    "atexit": "the interpreter is ending: callbacks of atexit run",
    "finalizing": "the interpreter is ending: it clears its modules",
    "exit-handlers": "the process is ending: handlers of exit() run",
}


@dataclass
class Ending:
    """One process's end. `kind`: a key of `STAGES`; `thread`: the one in which the end happens, None where it was not read;
    `waits_for`: the threads that delay it; `death`, `thrown` (the C++ exception that nothing caught): of a core."""

    kind: str
    thread: ThreadView | None = None
    waits_for: list[ThreadView] = field(default_factory=list)
    death: Death | None = None
    thrown: Thrown | None = None

    @property
    def text(self) -> str:
        """One line: the stage of the end, and what delays it."""
        if self.death is not None:
            return f"it died of {self.death.text}, in thread {self.death.tid}"
        if self.kind == "joins":
            return f"{STAGES[self.kind]}: " + (", ".join(map(_standing, self.waits_for)) or "which ones is not known")
        return STAGES[self.kind] + (f": {_standing(self.thread)}" if self.thread is not None else "")


def _standing(thread: ThreadView) -> str:
    top = thread.top
    return thread_text(thread.tid, thread.name) + (f", which is in {top}" if top is not None else "")


def read(target: Target, rt: Runtime | None, views: Sequence[ThreadView]) -> Ending | None:
    """How a process ended or is ending; None where its threads `views` show no end."""
    death = target.death() if isinstance(target, CoreFileTarget) else None
    if death is not None:
        at = next((th for th in views if th.tid == death.tid), None)
        return Ending("signal", at, death=death, thrown=cxx_exceptions.thrown(target, at) if at is not None else None)
    if rt is None:
        return _exits(views)
    try:
        return _of_python(target, views) or _exits(views)
    except GdbextError as e:
        log.passed_over(e)
        return _exits(views)


def _of_python(target: Target, views: Sequence[ThreadView]) -> Ending | None:
    """The end of the first CPython that is ending. From 3.10 on, `finalizing` of its main interpreter is set before the joins.
    Where it is not set, the Python frame of the joins and the native frame of Py_FinalizeEx show the end."""
    joining = next((th for th in views if th.python and _shuts_down(th)), None)
    if joining is not None:
        return Ending("joins", joining, _joined(joining, views))
    for rt in all_runtimes(target):
        finalizing = target.u64(rt.address + rt.layout["runtime._finalizing"])
        if finalizing:
            own = (th for th in views if th.py and finalizing in [address for address, _ in th.py.states])
            return Ending("finalizing", next(own, None))
        called = (th for th in views if any(native.function == "Py_FinalizeEx" for native in th.native))
        at = next(called, None)
        if at is not None or target.i32(rt.interpreters()[0] + rt.layout["interp.finalizing"]):
            return Ending("atexit", at or next((th for th in views if th.tid == target.pid), None))
    return None


def _exits(views: Sequence[ThreadView]) -> Ending | None:
    at = next((th for th in views if {native.function for native in th.native} & EXIT), None)
    return Ending("exit-handlers", at) if at is not None else None


def _shuts_down(thread: ThreadView) -> bool:
    outermost = thread.python[-1]
    return outermost.function.endswith("_shutdown") and outermost.file.endswith("threading.py")


def _joined(joining: ThreadView, views: Sequence[ThreadView]) -> list[ThreadView]:
    """The threads that `threading` knows and that are no daemons."""
    own: Any = joining.py
    daemon = daemons(own.rt)
    return [th for th in views if th is not joining and daemon.get(th.ident) is False]


def shutdown_edge(process: str, thread: ThreadView, views: Sequence[ThreadView]) -> Edge | None:
    """The edge of a thread whose innermost frame is `threading._shutdown`, to the threads that it joins: all of them have to end.
    None where it is elsewhere, or joins none."""
    inner = thread.python[0] if thread.python else None
    if inner is None or not inner.function.endswith("_shutdown") or not inner.file.endswith("threading.py"):
        return None
    joined = _joined(thread, views)
    if not joined:
        return None
    names = ", ".join(th.name or str(th.tid) for th in joined[:SHOWN]) + (", …" if len(joined) > SHOWN else "")
    what = f"the end of {'thread' if len(joined) == 1 else f'{len(joined)} threads'} {names}, no daemon{'s' * (len(joined) > 1)}"
    edge = Edge((process, thread.tid), what, "Thread", where=f"_shutdown (threading.py:{inner.line})", every=True)
    edge.candidates = [(process, th.tid) for th in joined]
    edge.owner = edge.candidates[0] if len(joined) == 1 else None
    return edge


def daemons(rt: Runtime) -> dict[int, bool]:
    """{pthread id: whether `threading` calls it a daemon}; {} where it was never imported."""
    found, module = {}, rt.module("threading")
    try:
        for key, value in module.item("_active").items() if module else ():
            found[key.integer()] = value.attr("_daemonic").boolean()
    except GdbextError as e:
        log.passed_over(e)  # a table in the middle of an update; thread names are read the same way
    return found
