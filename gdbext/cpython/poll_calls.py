"""Calls, attributes and conditions that only ask: their value as the objects stand now, and what it rests on.

Source: Lib/threading.py, queue.py, concurrent/futures/_base.py, multiprocessing, subprocess.py, asyncio of each minor.
"""

from __future__ import annotations

import operator
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import log
from ..access.procfs import state_of
from ..errors import GdbextError
from . import callees, value_attributes
from .objects import Object, is_property
from .task_waits import Futures
from .types import TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .frames import Code


class _Word:
    def __init__(self, word: str) -> None:
        self.word = word

    def __repr__(self) -> str:
        return self.word


UNKNOWN, RAISES, NOTHING = _Word("unknown"), _Word("raises"), _Word("nothing")


UNREAD = ("Value", "Connection", "Lock")  # kinds of questions whose answer is not read here


class Ask(NamedTuple):
    """What a loop asks for. `kind`: "Event", "Queue", "Future", "Thread", "Process", "Lock", "Items", "Flag", "File", "Value",
    "Connection", "asyncio.Event" …; `object`: the one that is asked, or the one whose attribute is (a "Flag"); `name`: of the
    attribute or file."""

    kind: str
    object: Any
    text: str = ""
    name: str = ""
    number: int = 0  # a pid, a descriptor, a thread's id

    @property
    def key(self) -> tuple[str, int, str, int]:
        return self.kind, self.object.address if self.object is not None else 0, self.name, self.number


class Value(NamedTuple):
    """A value of the walk: `held`: an `Object`, a plain value, a `Bound`, or `UNKNOWN`; `asks`: what it rests on."""

    held: Any = UNKNOWN
    asks: tuple[Ask, ...] = ()


@dataclass
class Bound:
    """A method of an object. `computes`: the function of a property, which is called at once."""

    owner: Object
    name: str
    function: Any
    computes: bool = False


# ---- names and attributes --------------------------------------------------------------------------------------------
def entry(space: Object, name: str) -> Object | None:
    """An entry of a namespace."""
    try:
        found: Object = space.item(name)
        return found
    except GdbextError as e:
        log.passed_over(e)
        return None


def names(held: Any) -> list[str]:
    """The keywords of a call."""
    return [o.string(200) for o in held.elements(64)] if isinstance(held, Object) and held.isa("tuple") else []


def closure(function: Object, code: Code) -> dict[str, Any]:
    """The variables of the functions around it."""
    rt = function.rt
    cells = rt.target.u64(function.address + rt.layout["func.func_closure"])
    if not cells:
        return {}
    held = rt.object(cells).elements(256)
    free = [name for name, _ in code.variables][-len(held) :] if held else []
    found = {}
    for name, cell in zip(free, held):
        inner = rt.target.u64(cell.address + rt.layout["cell.ob_ref"])
        if inner:
            found[name] = rt.object(inner)
    return found


def bound(function: Object, code: Code, arguments: list[Value], named: dict[str, Value]) -> dict[str, Any]:
    """The variables of a function as it begins, by name."""
    rt = function.rt
    names = [name for name, _ in code.variables][: rt.target.i32(code.address + rt.layout["code.co_argcount"])]
    found: dict[str, Any] = {**dict(zip(names, arguments)), **named, **closure(function, code)}
    if any(name not in found for name in names):
        for name, value in zip(reversed(names), reversed(defaults(function))):
            found.setdefault(name, Value(value))
    return found


def defaults(function: Object) -> list[Any]:
    """The default values of a function's last arguments."""
    held = value_attributes.attribute(function, "__defaults__")
    return [None if one.is_none() else one for one in held.elements(64)] if isinstance(held, Object) and held.isa("tuple") else []


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


def kinds_of(obj: Object) -> list[str]:
    """The full names of an object's classes."""
    return [base.full_name if base.is_heap else base.raw_name for base in obj.type.bases()]


# ---- conditions ------------------------------------------------------------------------------------------------------
_SCALARS = ("bool", "int", "float", "str", "NoneType")
_CONTAINERS = ("list", "dict", "set", "frozenset", "tuple", "collections.deque", "collections.OrderedDict", "bytes")
_COMPARES: Sequence[Callable[[Any, Any], Any]] = (
    operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge
)  # fmt: skip


def plain(held: Any) -> Any:
    """A number, text or None; `UNKNOWN` for anything else."""
    if not isinstance(held, Object):
        return held if held is None or isinstance(held, (bool, int, float, str)) else UNKNOWN
    if held.is_none():
        return None
    if held.isa("str"):
        return held.string(4096)
    return held.plain(1) if held.type.builtin_name in _SCALARS else UNKNOWN


def is_none(value: Value) -> bool | None:
    """Whether it is None; None where that is not known."""
    if isinstance(value.held, (_Word, Bound)):
        return None
    return value.held is None or isinstance(value.held, Object) and bool(value.held.is_none())


def truth(value: Value) -> Value:
    """Its truth."""
    known = plain(value.held)
    if known is not UNKNOWN:
        return Value(bool(known), value.asks)
    held = value.held
    if isinstance(held, Bound):
        return Value(True)
    if not isinstance(held, Object):
        return Value(UNKNOWN, value.asks)
    if held.type.builtin_name in _CONTAINERS:
        asks = (*value.asks, Ask("Items", held)) if held.type.builtin_name != "tuple" else value.asks
        return Value(bool(held.len()), asks)
    if all(held.type.lookup(name) is None for name in ("__bool__", "__len__")):
        return Value(True, value.asks)
    return Value(held.isa("function", "module", "type") or UNKNOWN, value.asks)


def compared(which: int, left: Value, right: Value) -> Value:
    """A comparison of two plain values."""
    a, b, asks = plain(left.held), plain(right.held), left.asks + right.asks
    if a is UNKNOWN or b is UNKNOWN or which >= len(_COMPARES):
        return Value(UNKNOWN, asks)
    try:
        return Value(bool(_COMPARES[which](a, b)), asks)
    except TypeError:
        return Value(UNKNOWN, asks)


def identical(left: Value, right: Value, negated: bool) -> Value:
    """`is` and `is not`."""
    asks = left.asks + right.asks
    if any(isinstance(one.held, (_Word, Bound)) for one in (left, right)):
        return Value(UNKNOWN, asks)
    a, b = (0 if one.held is None or one.held.is_none() else one.held.address for one in map(_as_object, (left, right)))
    return Value((a == b) != negated, asks)


def _as_object(value: Value) -> Value:
    if value.held is None or isinstance(value.held, Object):
        return value
    raise GdbextError("a number is compared by `is`")


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
        if held.owner.type.builtin_name in _CONTAINERS:
            return _of_container(held.owner, held.name)
    function = held.function if isinstance(held, Bound) else held
    if not isinstance(function, Object):
        raise GdbextError("a call of what is not known")
    if function.isa("function"):
        return _of_library(function, arguments)
    if function.isa("builtin_function_or_method") and not isinstance(held, Bound):
        rt = function.rt
        bound_to = rt.target.u64(function.address + rt.layout["cfunc.m_self"])
        if bound_to and not rt.object(bound_to).isa("module", "type"):
            return called(Value(Bound(rt.object(bound_to), callees._own_name(function), function)), arguments, named)
    name = callees._name(function)
    if name == "len" and arguments and isinstance(arguments[0].held, Object):
        if arguments[0].held.type.builtin_name in _CONTAINERS:
            return Value(arguments[0].held.len(), (Ask("Items", arguments[0].held),))
        return Value()
    if name == "bool" and arguments:
        return truth(arguments[0])
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
        return callees._own_name(function)
    return str(rt.object(rt.target.u64(function.address + rt.layout["func.func_qualname"])).string(300))


def _of_library(function: Object, arguments: list[Value]) -> Value | None:
    """A function of the standard library that only asks or pauses; None for others."""
    rt = function.rt
    code = rt.code(rt.target.u64(function.address + rt.layout["func.func_code"]))
    name, file = _function_name(function), str(code.file).replace("\\", "/")
    file = file[len("<frozen ") : -1] + ".py" if file.startswith("<frozen ") else file
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
    blocks = plain((arguments[0] if arguments else named.get("block", Value(True))).held)
    limit = plain((arguments[1] if len(arguments) > 1 else named.get("timeout", Value(None))).held)
    if blocks is not False and limit is None:
        raise GdbextError("it waits in the queue itself")
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


def _pid_of(obj: Object) -> int:
    try:
        found = obj.attr("_popen")
        if isinstance(found, Object) and not found.is_none():
            return int(found.attr("pid").integer())
    except GdbextError as e:
        log.passed_over(e)
    return int(obj.attr("pid").integer())


def _child_alive(obj: Object) -> tuple[bool, tuple[Ask, ...]]:
    pid = _pid_of(obj)
    return state_of(pid) not in ("", "Z", "X"), (Ask("Process", obj, "", "", pid),)


def _alive(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    return Value(*_child_alive(obj))


def _exit_status(obj: Object, *_: Any) -> Value:
    alive, asks = _child_alive(obj)
    return Value(None if alive else UNKNOWN, asks)


def _connection(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    return Value(UNKNOWN, (Ask("Connection", obj, "", "", int(obj.attr("_handle").integer())),))


def _locked(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    return Value(UNKNOWN, (Ask("Lock", obj),))


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
_METHODS["multiprocessing.connection._ConnectionBase", "poll"] = _connection
_ATTRIBUTES: dict[tuple[str, str], Callable[[Object], Value]] = {
    ("subprocess.Popen", "returncode"): _exit_status,
    ("multiprocessing.process.BaseProcess", "exitcode"): _exit_status,
    ("multiprocessing.sharedctypes.SynchronizedBase", "value"): _shared,
}
