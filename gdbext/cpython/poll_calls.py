"""Calls and attributes that only ask: their value as the objects stand now, and what it rests on.

Source: as of `primitives.table`.
"""

from __future__ import annotations

import os
from typing import Any, Callable

from ..access.procfs import state_of
from ..errors import GdbextError
from ..primitives.model import Primitive, Way
from ..primitives.table import asked_of
from . import callees, poll_files, poll_tasks, primitive_states
from .objects import Object, is_property
from .poll_values import CONTAINERS, RAISES, UNKNOWN, Ask, Awaitable, Bound, Value, entry, kinds_of, plain, truth
from .primitive_states import pid_of
from .types import TYPE


def attribute(owner: Value, name: str) -> Value:
    """`owner.name`, without running code."""
    obj = owner.held
    if not isinstance(obj, Object):
        return Value()
    if obj.isa("module"):
        found = entry(obj.rt.object(obj.rt.target.u64(obj.address + obj.rt.layout["module.md_dict"])), name)
        return Value(found, (Ask("Flag", obj, name, name),)) if found is not None else Value()
    if obj.type.flags & TYPE:
        held = obj.rt.type(obj.address).lookup(name)
        return Value(obj.rt.object(held), (Ask("Flag", obj, name, name),)) if held is not None else Value()
    known = asked_of(kinds_of(obj), name)
    if known is not None and name in known[0].attributes:
        return READERS[known[2]](obj, [], {})
    own = dict(obj.fields()) if obj.type.is_heap else {}
    if name in own:
        return Value(own[name], (Ask("Flag", obj, name, name),))
    held = obj.type.lookup(name)
    if held is None:
        return Value()
    function = obj.rt.object(held)
    if is_property(function):
        getter = obj.rt.object(obj.rt.target.u64(function.address + obj.rt.layout["property.prop_get"]))
        return Value(Bound(obj, name, getter, True))
    if function.isa("function", "method_descriptor"):
        return Value(Bound(obj, name, function))
    if function.type.python_definer("__get__") is not None:
        return Value()
    return Value(function, (Ask("Flag", obj, name, name),)) if obj.type.is_heap else Value()


# ---- calls -----------------------------------------------------------------------------------------------------------
_PURE = frozenset(
    """len bool int float str repr abs min max round isinstance issubclass callable id type print format sum sorted tuple list
    dict set
    posix.getpid posix.getppid posix.sched_yield posix.times
    math.floor math.ceil math.sqrt _random.Random.random random.uniform _thread.get_ident _thread.get_native_id
    math.isnan str.format str.join hex datetime.datetime.now builtins.print""".split()
)
_PAUSES = (
    ("asyncio/tasks.py", ("sleep", "__sleep0")),
    ("threading.py", ("current_thread", "currentThread")),
    ("random.py", ("Random.uniform", "Random.randint", "uniform")),
    ("logging/__init__.py", ("Logger.debug", "Logger.info", "Logger.warning", "Logger.error", "debug", "info", "warning")),
    ("warnings.py", ("warn",)),
)
_FILES = (("genericpath.py", ("exists", "isfile", "isdir", "getsize")), ("posixpath.py", ("lexists", "islink")))
_TESTS = {"exists": os.path.exists, "isfile": os.path.isfile, "isdir": os.path.isdir, "lexists": os.path.lexists,
          "islink": os.path.islink}  # fmt: skip


def called(callee: Value, arguments: list[Value], named: dict[str, Value]) -> Value | None:
    """The value of a call; None for a function of Python code that is not known here. `GdbextError` where it may do more."""
    held = callee.held
    if isinstance(held, Object) and held.isa("method"):
        rt = held.rt
        owner = rt.object(rt.target.u64(held.address + rt.layout["method.im_self"]))
        function = rt.object(rt.target.u64(held.address + rt.layout["method.im_func"]))
        held = Bound(owner, _function_name(function).rpartition(".")[2], function)
        callee = callee._replace(held=held)
    if isinstance(held, Bound):
        known = asked_of(kinds_of(held.owner), held.name)
        if known is not None and held.name not in known[0].attributes:
            return _primitive(held.owner, *known, arguments, named)
        if held.owner.type.builtin_name in CONTAINERS:
            return _of_container(held.owner, held.name)
    function = held.function if isinstance(held, Bound) else held
    if not isinstance(function, Object):
        raise GdbextError("a call of what is not known")
    if function.isa("function"):
        return _of_library(function, arguments, named)
    if function.isa("builtin_function_or_method") and not isinstance(held, Bound):
        rt = function.rt
        bound_to = rt.target.u64(function.address + rt.layout["cfunc.m_self"])
        if bound_to and not rt.object(bound_to).isa("module", "type"):
            return called(Value(Bound(rt.object(bound_to), callees.own_name(function), function)), arguments, named)
    name = callees.name_of(function)
    if name == "len" and arguments and isinstance(arguments[0].held, Object):
        if arguments[0].held.type.builtin_name in CONTAINERS:
            return Value(arguments[0].held.len(), (Ask("Items", arguments[0].held),))
        return Value()
    if name == "bool" and arguments:
        return truth(arguments[0])
    if name in poll_files.FUNCTIONS:
        return poll_files.FUNCTIONS[name](function.rt, arguments, named)
    if name == "time.sleep":
        return Value(None, (Ask("Pause", None),))
    if name.startswith("time."):
        return Value(UNKNOWN, (Ask("Clock", None),))
    if name in _PURE or name.startswith(("math.", "str.", "int.", "float.", "random.", "_random.")):
        return Value(UNKNOWN, tuple(ask for one in arguments for ask in one.asks))
    raise GdbextError(f"a call of {name or 'what is not known'}")


def _function_name(function: Object) -> str:
    rt = function.rt
    if not function.isa("function"):
        return callees.own_name(function)
    return str(rt.object(rt.target.u64(function.address + rt.layout["func.func_qualname"])).string(300))


def _of_library(function: Object, arguments: list[Value], named: dict[str, Value]) -> Value | None:
    """A function of the standard library that only asks or pauses; None for others."""
    rt = function.rt
    code = rt.code(rt.target.u64(function.address + rt.layout["func.func_code"]))
    name, file = _function_name(function), str(code.file).replace("\\", "/")
    file = file[len("<frozen ") : -1] + ".py" if file.startswith("<frozen ") else file
    if file.endswith(poll_tasks.FILE) and name in poll_tasks.LIMITED:
        return (poll_tasks.wait if name == "wait" else poll_tasks.wait_for)(arguments, named)
    if file.endswith("multiprocessing/connection.py") and name == "wait":
        return poll_files.connections(arguments, named)
    if any(file.endswith(end) and name in known for end, known in _PAUSES):
        return Value(UNKNOWN, (Ask("Pause", None),) if name in ("sleep", "__sleep0") else ())
    if any(file.endswith(end) and name in known for end, known in _FILES) and arguments:
        path = plain(arguments[0].held)
        if not isinstance(path, str):
            return Value(UNKNOWN)
        root = f"/proc/{rt.target.pid}/{'root' if path.startswith('/') else 'cwd/'}{path}"
        test = _TESTS.get(name)
        return Value(test(root) if test is not None else UNKNOWN, (Ask("File", None, f"the file {path}", path),))
    return None


def _of_container(owner: Object, name: str) -> Value:
    ask = (Ask("Items", owner),)
    if name in ("popleft", "pop", "popitem") and not owner.len():
        return Value(RAISES, ask)
    if name in ("get", "keys", "values", "items", "copy", "count", "index", "__len__", "__contains__", "join", "format"):
        return Value(UNKNOWN, ask)
    raise GdbextError(f"a call of {name}, which changes what it is called on")


def _primitive(obj: Object, row: Primitive, way: Way | None, how: str, arguments: list[Value], named: dict[str, Value]) -> Value:
    """A call of a primitive that only asks, as its row says how; what takes something is a question while there is nothing."""
    if how in READERS or way is None:
        return READERS[how](obj, arguments, named)
    part = obj.attr(row.object) if row.object else obj
    asks: tuple[Ask, ...] = (Ask(row.kind, part, row=row, way=way),)
    if how == "count":
        return Value(primitive_states.count(part, row), asks)
    is_ready = primitive_states.ready(part, row, way)
    if how in ("is", "not"):
        return Value(is_ready == (how == "is"), asks)
    if is_ready is not False:
        raise GdbextError("it takes what it asks for")
    if how == "awaits":
        return Value(Awaitable(asks))
    if how == "timeout":
        _limited([Value(True), *arguments], named)
    elif how == "blocking":
        _limited(arguments, named, "blocking")
        return Value(False, (*asks, Ask("Pause", None)))
    elif how != "nowait":
        _limited(arguments[how == "block1" :], named)
    return Value(RAISES, asks)


def _thread(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    ident = primitive_states.held(obj, "_ident")
    registered = obj.rt.registered_threads().get(ident) if isinstance(ident, int) else None
    return Value(registered is not None and registered.address == obj.address, (Ask("Thread", obj, "", "", ident or 0),))


def _child_alive(obj: Object) -> tuple[bool, tuple[Ask, ...]]:
    pid = pid_of(obj)
    if not pid:
        raise GdbextError("no process here is known to be its child")
    return state_of(pid) not in ("", "Z", "X"), (Ask("Process", obj, "", "", pid),)


def _alive(obj: Object, *_: Any) -> Value:
    return Value(*_child_alive(obj))


def _exit_status(obj: Object, *_: Any) -> Value:
    alive, asks = _child_alive(obj)
    return Value(None if alive else UNKNOWN, asks)


def _connection(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    return Value(UNKNOWN, (Ask("Connection", obj, "", "", int(obj.attr("_handle").integer())),))


def _limited(arguments: list[Value], named: dict[str, Value], block: str = "block") -> None:
    """`GdbextError` for a call that may wait without a time limit."""
    blocks = plain((arguments[0] if arguments else named.get(block, Value(True))).held)
    limit = plain((arguments[1] if len(arguments) > 1 else named.get("timeout", Value(None))).held)
    if blocks is not False and blocks != 0 and (limit is None or limit is UNKNOWN or limit == -1):
        raise GdbextError("it waits in the call itself")


def _shared_queue(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    _limited(arguments, named)
    return Value(RAISES, _connection(obj.attr("_reader"), [], {}).asks)


def _wait_for_child(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    limit = (arguments[0] if arguments else named.get("timeout", Value(None))).held
    alive, asks = _child_alive(obj)
    if limit is None or plain(limit) is None or not alive:
        raise GdbextError("it waits in the call itself, or the child has ended")
    return Value(RAISES, asks)


def _shared(obj: Object, *_: Any) -> Value:
    return Value(UNKNOWN, (Ask("Value", obj), Ask("Pause", None)))


def _pause(*_: Any) -> Value:
    return Value(UNKNOWN, (Ask("Pause", None),))


READERS: dict[str, Callable[[Object, list[Value], dict[str, Value]], Value]] = {
    "pause": _pause,
    "thread": _thread,
    "child": _alive,
    "status": _exit_status,
    "wait_child": _wait_for_child,
    "connection": _connection,
    "reader": _shared_queue,
    "shared": _shared,
    "semaphore": poll_files.semaphore,
    "selector": poll_files.selector,
    "poll": poll_files.poll_object,
    "epoll": poll_files.epoll_object,
    "socket": poll_files.socket,
}
