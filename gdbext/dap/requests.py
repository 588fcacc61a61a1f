"""Python's answers to a client of gdb's DAP server: scopes and variables of a Python frame, expressions, names of threads, steps.

The protocol: https://microsoft.github.io/debug-adapter-protocol/specification. gdb's frame filter gives the Python frames.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Callable

import gdb

from .. import log
from ..access import libraries
from ..access.cli_gdb import command
from ..answers.children import PAGE, Variable, of_names
from ..control import pylog
from ..cpython import resolution
from ..cpython.frames import PyFrame
from ..cpython.reprs import NORMAL
from ..engines.sensitive_names import names_for, shown_name
from ..errors import GdbextError
from ..frame_filters.python import PythonFrame
from ..render.text import one_line
from ..session.gdb_session import session
from ..session.session import register_adapters
from . import breakpoints, server
from .server import Later

if TYPE_CHECKING:
    from .server import Body

FIRST = 1 << 30  # of our references to variables: gdb's count from 1
READ_ONLY = {"attributes": ["readOnly"]}
COMMANDS = {"next": "pynext", "stepIn": "pystep", "stepOut": "pyfinish"}

_opened: list[Callable[[int, int], list[Body]]] = []  # by reference: a function for the rows below it
_names: dict[int, str] = {}  # of threads by tid, as they were at the last stop
_walked: set[int] = set()  # threads whose libraries are read, since the last stop
_console: list[int] = []  # the frame that the console was last used in


def register() -> None:
    """Puts Python's answers before gdb's. A request that this gdb does not know has none."""
    register_adapters()
    pylog.write = lambda text: server.say(text.rstrip("\n"))
    gdb.events.cont.connect(_forget)
    found: list[tuple[Any, ...]] = [
        (server.before, "stackTrace", read_libraries),
        (server.before, "scopes", scopes),
        (server.before, "variables", variables),
        (server.before, "evaluate", evaluate),
        (server.before, "setVariable", refuse_variable),
        (server.before, "setExpression", refuse_expression),
        (server.after, "threads", name_threads),
        (server.before, "setBreakpoints", breakpoints.set_breakpoints, False),
        (server.before, "launch", breakpoints.launch, False),
        (server.before, "configurationDone", breakpoints.start, False),
    ]
    found += [(server.before, name, _stepper(command)) for name, command in COMMANDS.items()]
    for place, name, *rest in found:
        try:
            place(name, *rest)
        except (GdbextError, KeyError) as e:
            gdb.write(f"gdbext: this gdb's DAP server has no {name} that is known here, so no Python in it ({e})\n", gdb.STDERR)
    server.on_events(breakpoints.change_event)


def _forget(_: Any) -> None:
    _opened.clear()
    _walked.clear()
    _console.clear()


def read_libraries(threadId: int, startFrame: int = 0, **_: Any) -> None:
    """With `auto-solib-add off`, as in launch.json: reads the symbols of the libraries that a thread's stack needs, before gdb
    walks it."""
    thread = _thread(threadId)
    if thread is not None and startFrame == 0 and not gdb.parameter("auto-solib-add") and threadId not in _walked:
        _walked.add(threadId)
        thread.switch()
        libraries.load_for([thread])


def _thread(number: int) -> Any:
    return next((t for i in gdb.inferiors() for t in i.threads() if t.global_num == number), None)


def _python(frame_id: int | None) -> PyFrame | None:
    """The Python frame that a client's number names; None for another one."""
    found = server.frame(frame_id) if frame_id is not None else None
    return found.python if isinstance(found, PythonFrame) else None


# ---- variables -------------------------------------------------------------------------------------------------------
def _reference(rows: Callable[[int, int], list[Body]]) -> int:
    _opened.append(rows)
    return FIRST + len(_opened) - 1


def scopes(frameId: int, **_: Any) -> Body | None:
    """A Python frame's locals and globals."""
    frame = _python(frameId)
    if frame is None:
        return None
    private = names_for(frame.rt)

    def local(start: int, count: int) -> list[Body]:
        return _page(of_names(frame.locals(), private), start, count)

    def outside(start: int, count: int) -> list[Body]:
        pairs = [(key.string(1000), value) for key, value in frame.globals().items() if key.isa("str")]
        return _page(of_names(pairs, private), start, count)

    found = [{"name": "Locals", "presentationHint": "locals", "expensive": False, "variablesReference": _reference(local)}]
    if frame.namespace() is None:  # a module's or class body's locals are its namespace
        found.append({"name": "Globals", "expensive": True, "variablesReference": _reference(outside)})
    return {"scopes": found}


def _page(found: list[Variable], start: int, count: int) -> list[Body]:
    return _rows(found[start : start + count], len(found), start, lambda at, many: _page(found, at, many))


def _rows(shown: list[Variable], total: int, start: int, more: Callable[[int, int], list[Body]]) -> list[Body]:
    """The rows of a page, and one that opens the next."""
    taken: dict[str, int] = {}
    rows = []
    for one in shown:
        taken[one.name] = taken.get(one.name, 0) + 1
        again = f" #{taken[one.name]}" if taken[one.name] > 1 else ""  # names are to differ
        rows.append({"name": one.name + again, "value": one.text, **_described(one)})
    end = start + len(shown)
    if shown and end < total:
        rest = _reference(lambda at, many: more(end + at, many))
        rows.append({"name": "…", "value": f"{total - end} more", "presentationHint": READ_ONLY, "variablesReference": rest})
    return rows


def _described(one: Variable) -> Body:
    """A variable's fields other than its name and text."""
    named, indexed = one.counts()
    total = named + indexed
    body: Body = {"type": one.kind, "variablesReference": 0, "presentationHint": READ_ONLY}
    if total:

        def rows(start: int, count: int) -> list[Body]:
            return _rows(one.children(start, count), total, start, rows)

        body["variablesReference"] = _reference(rows)
    if one.exact and one.path:
        body["evaluateName"] = one.path
    return body


def variables(variablesReference: int, start: int = 0, count: int = 0, **_: Any) -> Body | None:
    """The rows below one of our references."""
    number = variablesReference - FIRST
    if number < 0:
        return None
    if number >= len(_opened):
        raise GdbextError("this variable was shown at an earlier stop: the process has run since")
    return {"variables": _opened[number](start, min(count, PAGE) if count else PAGE)}


def refuse_variable(variablesReference: int, **_: Any) -> None:
    """Refuses to write to a Python variable."""
    if variablesReference >= FIRST:
        raise GdbextError("Python variables are read, never written")


def refuse_expression(frameId: int | None = None, **_: Any) -> None:
    """As above, for the names of an expression."""
    if _python(frameId) is not None:
        raise GdbextError("Python variables are read, never written")


# ---- expressions -----------------------------------------------------------------------------------------------------
def evaluate(expression: str, frameId: int | None = None, context: str = "variables", **_: Any) -> Body | None:
    """The value of a Python expression in a Python frame. In the console a text that is a command of gdb goes to gdb; our
    commands then act in the frame that the client has selected."""
    frame = _python(frameId)
    if frame is None:
        return None
    level = frame.stack.index(frame)
    if context == "repl":
        if not _is_python(expression):
            if _console != [frameId]:
                _console[:] = [frameId or 0]
                session.select(level)
            return None
    private = names_for(frame.rt)
    value = resolution.resolve(frame.rt, expression, frame.stack, level=level, last=session.last, private=private).value
    if context == "repl":
        session.last = value
    shown = Variable("", value, expression, private)
    text = shown.text if context == "variables" else shown.shown(NORMAL)[0]
    return {"result": text, **_described(shown)}


def _is_python(text: str) -> bool:
    """Whether a line of the console is no command of gdb's: `self.x`, `s[0]` are Python though `s` is a command."""
    word = re.match(r"\s*([A-Za-z_]\w*)(.?)", text, re.S)
    if word is None:
        return bool(re.match(r"\s*[\d('\"\[{$~+-]", text))
    if word.group(2) in (".", "["):
        return True
    try:
        gdb.execute(command("help {}", word.group(1)), to_string=True)
    except gdb.error as e:
        return "ndefined command" in str(e)
    return False


# ---- threads ---------------------------------------------------------------------------------------------------------
def name_threads(body: Body) -> None:
    """Names the threads as Python's `threading` does. The threads of a running process keep the names of its last stop."""
    if not server.is_running():
        _names.clear()
        try:
            rt = session.runtime()
            _names.update({t.tid: shown_name(rt, rt.thread_name(t)) for t in rt.threads() if t.tid and rt.thread_name(t)})
        except GdbextError as e:
            log.passed_over(e)  # no CPython here
    tids = {t.global_num: t.ptid[1] or t.ptid[2] for i in gdb.inferiors() for t in i.threads()}
    for thread in body["threads"]:
        name = _names.get(tids.get(thread["id"], 0))
        if name:
            thread["name"] = one_line(name)


# ---- steps -----------------------------------------------------------------------------------------------------------
def _stepper(name: str) -> Callable[..., Later | None]:
    def step(threadId: int, granularity: str = "statement", **_: Any) -> Later | None:
        if granularity == "instruction" or not _steps_in_python(threadId):
            return None
        return server.Later(lambda: _step(name))

    return step


def _steps_in_python(thread_id: int) -> bool:
    """Selects a thread. -> whether its innermost frame is Python's, or one that Python called and whose source is not on this
    machine"""
    thread = _thread(thread_id)
    if thread is None:
        return False
    thread.switch()
    newest = gdb.newest_frame()
    newest.select()
    if isinstance(server.first_frame(newest), PythonFrame):
        return True
    source = newest.find_sal().symtab
    if source is not None and os.path.exists(source.fullname()):
        return False
    try:
        return bool(session.frames())
    except GdbextError as e:
        log.passed_over(e)
        return False


def _step(name: str) -> None:
    """One step, by the command `name`; the client gets one stop, at its end."""
    said = ""
    with breakpoints.one_stop() as stops:
        try:
            session.select(0)
            said = gdb.execute(command("{}", name), to_string=True)
        except (GdbextError, gdb.GdbError, gdb.error) as e:
            server.say(one_line(str(e)))
    for line in said.splitlines():
        if line.startswith("returned "):
            server.say(line)
    thread = gdb.selected_thread()
    if stops:
        server.send("stopped", stops[-1])
    elif thread is not None:  # it did not begin
        server.send("stopped", {"reason": "step", "threadId": thread.global_num, "allThreadsStopped": True})
