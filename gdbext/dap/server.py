"""The parts of gdb's DAP server that Python's part uses: its table of requests, its threads, its events.

gdb's handlers are in a table by the request's name and run in a thread of their own (gdb/python/lib/gdb/dap/server.py). Each of
ours is called first, in gdb's thread, and leaves requests that do not concern Python to gdb. If one of ours fails, that is
reported once, by name, and gdb's own answer is given. Missing parts of a gdb are noticed at their first use.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any, Callable

import gdb

from .. import log
from ..errors import GdbextError
from ..render.text import one_line

if TYPE_CHECKING:
    Body = dict[str, Any]


def _of_gdb(module: str, *names: str) -> Any:
    """The first of `names` that a module of gdb's DAP server has; `GdbextError` where it has none of them."""
    found = importlib.import_module(f"gdb.dap.{module}")
    for name in names:
        if hasattr(found, name):
            return getattr(found, name)
    raise GdbextError(f"gdb.dap.{module} of this gdb has no {names[0]}")


def _thread_function(name: str) -> Any:
    """`send_gdb` and `send_gdb_with_response`, which gdb 14 has in the code that starts the server."""
    try:
        return _of_gdb("server", name)
    except GdbextError as e:
        log.passed_over(e)
        return _of_gdb("startup", name)


def refused(text: str) -> Exception:
    """The exception whose text the client gets as the answer to its request."""
    kind: Callable[[str], Exception] = _of_gdb("startup", "DAPException")
    return kind(text)


def send(event: str, body: Body) -> None:
    """Sends an event to the client."""
    _of_gdb("server", "send_event")(event, body)


def say(text: str) -> None:
    """Prints a line in the client's console."""
    send("output", {"category": "console", "output": text + "\n"})


def is_running() -> bool:
    """Whether gdb takes the process to be running."""
    return bool(importlib.import_module("gdb.dap.events").inferior_running)


def frame(number: int) -> Any:
    """The frame decorator that the client knows by a number; its thread is selected."""
    return _of_gdb("frames", "frame_for_id")(number)


def first_frame(newest: Any) -> Any:
    """A thread's innermost frame, as the enabled frame filters make it."""
    return next(iter(importlib.import_module("gdb.frames").frame_iterator(newest, 0, -1)), None)


def line_to_client(line: int) -> int:
    """A line as the client counts lines."""
    return int(_of_gdb("server", "export_line")(line))


def line_of_client(line: int) -> int:
    """A line of the client's, counted from 1."""
    return int(_of_gdb("server", "import_line")(line))


class Later:
    """An answer without a body, after which `work` runs in gdb's thread."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work

    def start(self) -> None:
        """Has the server do it once the answer is sent."""
        post = functools.partial(_thread_function("send_gdb"), self.work)
        try:
            _of_gdb("server", "call_function_later")(post)
        except GdbextError as e:
            log.passed_over(e)
            post()


_failed: set[str] = set()


def _off(name: str, error: Exception) -> None:
    """Reports once that Python has no part in the answers to a request."""
    text = f"gdbext: no Python in {name}: {one_line(str(error)) or type(error).__name__}"
    log.note(text)
    if name not in _failed:
        _failed.add(name)
        say(text)


def before(name: str, ours: Callable[..., Body | Later | None], stopped: bool = True) -> None:
    """`ours` answers the request `name` in gdb's thread; where it returns None, gdb's own handler does. `stopped`: only for a
    stopped process."""
    table = _of_gdb("server", "_commands")
    theirs, ask = table[name], _thread_function("send_gdb_with_response")

    @functools.wraps(theirs)
    def handler(**arguments: Any) -> Any:
        found = None
        try:
            if not (stopped and is_running()):
                found = ask(lambda: _expected(ours, arguments))
        except _of_gdb("startup", "DAPException"):
            raise
        except Exception as e:  # any error: gdb's own answer is better than none
            _off(name, e)
        if isinstance(found, Later):
            found.start()
            return None
        return theirs(**arguments) if found is None else found

    table[name] = handler


def _expected(ours: Callable[..., Any], arguments: Body) -> Any:
    """The answer of `ours`; an expected failure is the client's answer."""
    try:
        return ours(**arguments)
    except (GdbextError, gdb.error) as e:
        raise refused(one_line(str(e))) from None


def after(name: str, ours: Callable[[Body], None]) -> None:
    """`ours`, in gdb's thread, changes the body of gdb's answer to the request `name`."""
    table = _of_gdb("server", "_commands")
    theirs, ask = table[name], _thread_function("send_gdb_with_response")

    @functools.wraps(theirs)
    def handler(**arguments: Any) -> Any:
        body = theirs(**arguments)
        try:
            ask(lambda: ours(body))
        except Exception as e:  # as above
            _off(name, e)
        return body

    table[name] = handler


def on_events(change: Callable[[str, Body], Body | None]) -> None:
    """`change(event, body)` gives the body to send for an event about stops or breakpoints; None for an event that is not
    sent."""
    for module in map(importlib.import_module, ("gdb.dap.events", "gdb.dap.breakpoint")):
        for name in ("send_event", "send_event_maybe_later"):
            if hasattr(module, name):
                setattr(module, name, functools.partial(_send_changed, change, getattr(module, name)))


def _send_changed(change: Callable[[str, Body], Body | None], theirs: Callable[..., None], event: str, body: Any = None) -> None:
    found = body
    if isinstance(body, dict):
        try:
            found = change(event, body)
        except Exception as e:  # as above
            _off(f"the event {event}", e)
        if found is None:
            return
    theirs(event, found)
