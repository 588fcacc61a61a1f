"""Calls and attributes that only ask: their value as the objects stand now, and what it rests on.

Source: Lib/threading.py, queue.py, concurrent/futures/_base.py, multiprocessing, subprocess.py, asyncio of each minor.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..access.procfs import state_of
from ..errors import GdbextError
from . import callees, lock_objects, poll_files, poll_tasks
from .child_waits import pid_of
from .objects import Object, is_property
from .poll_values import CONTAINERS, RAISES, UNKNOWN, Ask, Bound, Value, entry, kinds_of, plain, truth
from .simple_queues import items
from .task_waits import Futures
from .types import TYPE

if TYPE_CHECKING:
    from collections.abc import Callable


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
    kinds = kinds_of(obj)
    for kind in kinds:
        known = _ATTRIBUTES.get((kind, name))
        if known is not None:
            return known(obj)
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
    ("threading.py", ("Condition.wait", "current_thread", "currentThread")),
    ("random.py", ("Random.uniform", "Random.randint", "uniform")),
    ("logging/__init__.py", ("Logger.debug", "Logger.info", "Logger.warning", "Logger.error", "debug", "info", "warning")),
    ("warnings.py", ("warn",)),
    ("threading.py", ("Thread.join",)),
    ("process.py", ("BaseProcess.join",)),
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
        for kind in kinds_of(held.owner):
            known = _METHODS.get((kind, held.name))
            if known is not None:
                return known(held.owner, arguments, named)
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
        return Value(UNKNOWN, (Ask("Pause", None),) if name in ("sleep", "__sleep0", "Condition.wait", "Thread.join") else ())
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


def _field(obj: Object, name: str) -> Any:
    value = obj.attr(name)
    return plain(value) if isinstance(value, Object) else value


def _event(attribute_: str, kind: str) -> Callable[..., Value]:
    return lambda obj, arguments, named: Value(bool(_field(obj, attribute_)), (Ask(kind, obj),))


def _size(obj: Object) -> int:
    fields = dict(obj.fields())
    held = fields.get("queue") or fields.get("_queue")
    if not isinstance(held, Object):
        raise GdbextError("a queue whose items cannot be counted")
    return held.len()


def _queue(kind: str, of: Callable[[int], Any]) -> Callable[..., Value]:
    return lambda obj, arguments, named: Value(of(_size(obj)), (Ask(kind, obj),))


def _get(kind: str) -> Callable[..., Value]:
    def get(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
        if _size(obj):
            raise GdbextError("it takes an item")
        return Value(RAISES, (Ask(kind, obj),))

    return get


def _limited_get(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    _limited(arguments, named)
    return _get("Queue")(obj, arguments, named)


def _future(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    return Value(Futures(obj.rt).state_of(obj) != "PENDING", (Ask("asyncio.Future", obj),))


def _job(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    return Value(_field(obj, "_state") not in ("PENDING", "RUNNING"), (Ask("Future", obj),))


def _job_result(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    limit = plain((arguments[0] if arguments else named.get("timeout", Value(None))).held)
    if limit is None or _field(obj, "_state") not in ("PENDING", "RUNNING"):
        raise GdbextError("it waits in the future itself, or takes its result")
    return Value(RAISES, (Ask("Future", obj),))


def _thread(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    ident = _field(obj, "_ident")
    registered = obj.rt.registered_threads().get(ident) if isinstance(ident, int) else None
    return Value(registered is not None and registered.address == obj.address, (Ask("Thread", obj, "", "", ident or 0),))


def _child_alive(obj: Object) -> tuple[bool, tuple[Ask, ...]]:
    pid = pid_of(obj)
    if not pid:
        raise GdbextError("no process here is known to be its child")
    return state_of(pid) not in ("", "Z", "X"), (Ask("Process", obj, "", "", pid),)


def _alive(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    return Value(*_child_alive(obj))


def _exit_status(obj: Object, *_: Any) -> Value:
    alive, asks = _child_alive(obj)
    return Value(None if alive else UNKNOWN, asks)


def _connection(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    return Value(UNKNOWN, (Ask("Connection", obj, "", "", int(obj.attr("_handle").integer())),))


def _acquire(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    """A lock that is asked for without a wait, or with a time limit; the time passes in vain while it is held."""
    _limited(arguments, named, "blocking")
    held = lock_objects.read(obj)
    if held is None or not held.locked:
        raise GdbextError("it takes the lock")
    return Value(False, (Ask(held.kind, obj), Ask("Pause", None)))


def _is_locked(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    held = lock_objects.read(obj)
    return Value(held.locked, (Ask(held.kind, obj),)) if held is not None else Value()


def _semaphore(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    _limited(arguments, named, "blocking")
    if _field(obj, "_value") != 0:
        raise GdbextError("it takes the semaphore")
    return Value(False, (Ask("Semaphore", obj), Ask("Pause", None)))


def _limited(arguments: list[Value], named: dict[str, Value], block: str = "block") -> None:
    """`GdbextError` for a call that may wait without a time limit."""
    blocks = plain((arguments[0] if arguments else named.get(block, Value(True))).held)
    limit = plain((arguments[1] if len(arguments) > 1 else named.get("timeout", Value(None))).held)
    if blocks is not False and blocks != 0 and (limit is None or limit is UNKNOWN or limit == -1):
        raise GdbextError("it waits in the call itself")


def _simple(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    _limited(arguments, named)
    return _simple_nowait(obj, arguments, named)


def _simple_nowait(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    if items(obj):
        raise GdbextError("it takes an item")
    return Value(RAISES, (Ask("Queue", obj), Ask("Pause", None)))


def _shared_queue(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    _limited(arguments, named)
    return Value(RAISES, _connection(obj.attr("_reader"), [], {}).asks)


def _wait_for_child(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    limit = (arguments[0] if arguments else named.get("timeout", Value(None))).held
    alive, asks = _child_alive(obj)
    if limit is None or plain(limit) is None or not alive:
        raise GdbextError("it waits in the call itself, or the child has ended")
    return Value(RAISES, asks)


def _shared(obj: Object) -> Value:
    return Value(UNKNOWN, (Ask("Value", obj),))


def _pause(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    return Value(UNKNOWN, (Ask("Pause", None),))


_METHODS: dict[tuple[str, str], Callable[..., Value]] = {}
for _kind in ("queue.Queue", "queue.LifoQueue", "queue.PriorityQueue"):
    _METHODS[_kind, "empty"] = _queue("Queue", lambda n: n == 0)
    _METHODS[_kind, "qsize"] = _queue("Queue", lambda n: n)
    _METHODS[_kind, "get_nowait"] = _get("Queue")
    _METHODS[_kind, "get"] = _limited_get
_METHODS["asyncio.queues.Queue", "empty"] = _queue("asyncio.Queue", lambda n: n == 0)
_METHODS["asyncio.queues.Queue", "qsize"] = _queue("asyncio.Queue", lambda n: n)
_METHODS["asyncio.queues.Queue", "get_nowait"] = _get("asyncio.Queue")
for _name in ("is_set", "isSet", "wait"):
    _METHODS["threading.Event", _name] = _event("_flag", "Event")
_METHODS["asyncio.locks.Event", "is_set"] = _event("_value", "asyncio.Event")
_METHODS["concurrent.futures._base.Future", "done"] = _job
_METHODS["concurrent.futures._base.Future", "result"] = _job_result
_METHODS["concurrent.futures._base.Future", "exception"] = _job_result
for _kind in ("_asyncio.Future", "_asyncio.Task", "asyncio.futures.Future", "asyncio.tasks.Task"):
    _METHODS[_kind, "done"] = _future
    _METHODS[_kind, "cancelled"] = _future
_METHODS["threading.Thread", "is_alive"] = _thread
_METHODS["threading.Thread", "join"] = _METHODS["multiprocessing.process.BaseProcess", "join"] = _pause
_METHODS["threading.Condition", "wait"] = _pause
_METHODS["multiprocessing.process.BaseProcess", "is_alive"] = _alive
_METHODS["subprocess.Popen", "poll"] = _exit_status
_METHODS["subprocess.Popen", "wait"] = _wait_for_child
_METHODS["_thread.lock", "acquire"] = _METHODS["_thread.RLock", "acquire"] = _acquire
_METHODS["_thread.lock", "locked"] = _METHODS["_thread.RLock", "locked"] = _is_locked
_METHODS["threading.Semaphore", "acquire"] = _semaphore
_METHODS["_queue.SimpleQueue", "get"] = _simple
_METHODS["_queue.SimpleQueue", "get_nowait"] = _simple_nowait
_METHODS["_queue.SimpleQueue", "empty"] = lambda obj, *_: Value(not items(obj), (Ask("Queue", obj),))
_METHODS["_queue.SimpleQueue", "qsize"] = lambda obj, *_: Value(len(items(obj)), (Ask("Queue", obj),))
_METHODS["multiprocessing.queues.Queue", "get"] = _shared_queue
_METHODS["multiprocessing.synchronize.Event", "wait"] = lambda obj, *_: Value(UNKNOWN, (Ask("Value", obj), Ask("Pause", None)))
_METHODS["_multiprocessing.SemLock", "acquire"] = poll_files.semaphore
_METHODS.update(poll_files.METHODS)
_METHODS.update(poll_tasks.METHODS)
_METHODS["multiprocessing.connection._ConnectionBase", "poll"] = _connection
_ATTRIBUTES: dict[tuple[str, str], Callable[[Object], Value]] = {
    ("subprocess.Popen", "returncode"): _exit_status,
    ("multiprocessing.process.BaseProcess", "exitcode"): _exit_status,
    ("multiprocessing.sharedctypes.SynchronizedBase", "value"): _shared,
}
