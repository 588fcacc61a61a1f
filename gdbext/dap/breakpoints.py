"""A breakpoint in a `.py` file is a `pybreak`, a log point a `pylog`. Also the messages to a client about stops and
breakpoints."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Iterable, Iterator

import gdb

from .. import log
from ..control import follow, hw_breakpoints, pylog
from ..control.events import listen
from ..control.hw_breakpoints import Process
from ..control.pybreak import PyBreakpoint, Where, watch_imports
from ..errors import GdbextError, NotFoundError
from ..render.text import one_line
from ..session.gdb_only import check_condition, labels_of_attached
from ..session.gdb_session import session
from . import server

if TYPE_CHECKING:
    from .server import Body

    Wanted = tuple[int, str, str, str]  # line, condition, hit condition, log message

NEVER = 1 << 62  # passes

_sources: dict[str, dict[Wanted, PyBreakpoint]] = {}  # the breakpoints of each file
_leaving: list[PyBreakpoint] = []  # no longer wanted, to be removed at the next stop
_reached: set[tuple[int, int]] = set()  # (number of a breakpoint, pid): it was set there, or waits there


class _State:
    launches = False  # the client starts the process
    quiet = False  # breakpoints that are set here are in the answer
    stops: list[Body] | None = None  # of the step at work, kept back


# ---- the gutter ------------------------------------------------------------------------------------------------------
def set_breakpoints(source: Body, breakpoints: Any = (), **_: Any) -> Body | None:
    """Sets the breakpoints of a `.py` file as the client wants them; other files are gdb's own."""
    path = source.get("path") or ""
    if not path.endswith(".py"):
        return None
    listen(stop=_on_stop)
    if _told not in PyBreakpoint.when_armed:
        PyBreakpoint.when_armed.append(_told)
    wanted = [_key(one) for one in breakpoints]
    held = _sources.setdefault(path, {})
    _State.quiet = True
    try:
        _leaving.extend(held.pop(key) for key in list(held) if key not in wanted)
        if not server.is_running():
            _remove()  # first: a process has four debug registers
        for point in _leaving:
            point.count = NEVER  # of a process that runs they are cleared at its next stop
        return {"breakpoints": [_set(path, key, held) for key in wanted]}
    finally:
        _State.quiet = False


def _remove() -> None:
    while _leaving:
        point = _leaving.pop()
        if point.number in PyBreakpoint.points:
            point.take_back()


def _fresh(inferior: Any, points: Iterable[PyBreakpoint]) -> list[PyBreakpoint]:
    """Those of `points` that are not set in a process yet."""
    return [p for p in points if inferior.pid and p.number in PyBreakpoint.points and (p.number, inferior.pid) not in _reached]


def _key(one: Body) -> Wanted:
    fields = (one.get(name) or "" for name in ("condition", "hitCondition", "logMessage"))
    return (server.line_of_client(one["line"]), *fields)  # type: ignore[return-value]


def _set(path: str, key: Wanted, held: dict[Wanted, PyBreakpoint]) -> Body:
    point = held.get(key)
    try:
        if point is None or point.number not in PyBreakpoint.points:
            point = _make(path, key)
            held[key] = point
    except (GdbextError, gdb.error) as e:
        held.pop(key, None)
        text = one_line(str(e))
        return {"verified": False, "reason": "failed", "message": text, "line": server.line_to_client(key[0])}
    return descriptor(point)


def _make(path: str, key: Wanted) -> PyBreakpoint:
    line, condition, passes, message = key
    check_condition(condition, "breakpoint")
    if passes and (not passes.strip().isdigit() or int(passes) < 1):
        raise GdbextError(f"hit count {passes!r}: a number N stops from the Nth pass on")
    where, count = Where(f"{path}:{line}"), int(passes or 1)
    if message:
        point: PyBreakpoint = pylog.Logpoint(where, message, condition, count, "", pace=pylog.Pace())
    else:
        point = PyBreakpoint("pybreak", where, condition, count)
    if server.is_running():  # no register is touched before it is stopped
        point.register()
        return point
    processes = _processes()
    point.set_in(processes)
    _reached.update((point.number, process.pid) for process in processes)
    return point


def _processes() -> list[Process]:
    """The processes to set a breakpoint in; [] before there is one."""
    if any(i.pid for i in gdb.inferiors()):
        return list(follow.processes(labels_of_attached(session)))
    if _State.launches:
        follow.watch_starts()
    return []


def descriptor(point: PyBreakpoint) -> Body:
    """A breakpoint as the protocol describes it: verified where it is set in a process."""
    path, line = point.where.file, point.where.line
    if point.places:
        line = point.places[0].line
        path = path if os.path.isabs(path) else point.places[0].code.file
    body: Body = {"id": point.number, "verified": not point.pending}
    if path and line is not None:
        body.update(line=server.line_to_client(line), source={"name": os.path.basename(path), "path": path})
    if point.pending:
        waits = "for the process to stop: pause it once" if server.is_running() else "for Python to load this file"
        body.update(reason="pending", message=f"waits {waits}")
    return body


def _told(point: PyBreakpoint) -> None:
    """Informs the client that a breakpoint has got a place, perhaps inside stop()."""
    if not _State.quiet:
        server.send("breakpoint", {"reason": "changed", "breakpoint": descriptor(point)})


# ---- new processes ---------------------------------------------------------------------------------------------------
def launch(**_: Any) -> None:
    """Prepares for a process that the client will start and that runs Python later."""
    _State.launches = True
    start()


def start(**_: Any) -> None:
    """Watches, as the process starts, for the place where it begins to run Python."""
    if _State.launches and any(_sources.values()) and not any(i.pid for i in gdb.inferiors()):
        follow.watch_starts()


def _on_stop(_: Any) -> None:
    if _leaving or any(_sources.values()):
        gdb.post_event(_at_stop)


def _at_stop() -> None:
    if not server.is_running():  # else it went on: the next stop counts
        _remove()
        _set_in_new()


def _set_in_new() -> None:
    """Sets the waiting breakpoints in each process that gdb has attached since, or that ran when they were requested."""
    waiting = [p for held in _sources.values() for p in held.values()]
    labels: dict[int, str] | None = None
    for inferior in gdb.inferiors():
        fresh = _fresh(inferior, waiting)
        if not fresh or any(t.is_running() for t in inferior.threads()):
            continue
        labels = labels_of_attached(session) if labels is None else labels
        try:
            process = Process.of(inferior, labels.get(inferior.pid, ""))
        except NotFoundError as e:
            log.passed_over(e)  # it does not run Python yet
            follow.processes(labels)
            continue
        except GdbextError as e:
            server.say(f"breakpoints in Python: {one_line(str(e))}")
            _reached.update((p.number, inferior.pid) for p in fresh)
            continue
        for point in fresh:
            _reached.add((point.number, inferior.pid))
            try:
                point.start_in(process)
            except (GdbextError, gdb.error) as e:
                body = {**descriptor(point), "reason": "failed", "message": one_line(str(e))}
                server.send("breakpoint", {"reason": "changed", "breakpoint": body})
        try:
            watch_imports()
        except GdbextError as e:
            server.say(f"breakpoints in Python: {one_line(str(e))}")


# ---- events ----------------------------------------------------------------------------------------------------------
def change_event(event: str, body: Body) -> Body | None:
    """The body to send for an event of gdb's; None for one that is not for the client."""
    if event == "breakpoint":
        return _breakpoint_event(body)
    if event == "stopped":
        body = _stop(body)
        if _State.stops is not None:
            _State.stops.append(body)
            return None
    return None if event == "continued" and _State.stops is not None else body


def _breakpoint_event(body: Body) -> Body | None:
    number = body["breakpoint"].get("id", 0)
    if number < 0 or _State.quiet:  # a debug register's
        return None
    point = PyBreakpoint.points.get(number)
    return body if point is None or body["reason"] == "removed" else {**body, "breakpoint": descriptor(point)}


def _stop(body: Body) -> Body:
    """Reports a stop at one of our debug registers as a stop of its breakpoint, or as the end of a step."""
    numbers = body.get("hitBreakpointIds", [])
    registers = [n for n in numbers if n < 0]
    if not registers:
        return body
    points = PyBreakpoint.points.items()
    ours = [n for n, point in points if any(t.number in registers for t in point.hw_breakpoints if t.is_valid())]
    found = [n for n in numbers if n > 0] + ours
    body = {**body, "reason": "breakpoint" if found else "step", "hitBreakpointIds": found}
    if not found:
        del body["hitBreakpointIds"]
    return body


@contextlib.contextmanager
def one_stop() -> Iterator[list[Body]]:
    """Keeps back the stops of a block that resumes the process: a step may take several."""
    stops: list[Body] = []
    _State.stops = stops
    try:
        yield stops
    finally:
        _State.stops = None
        hw_breakpoints.sweep()
