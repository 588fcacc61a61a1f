"""The effect of a thread that runs: a key of everything it could change. The key stays equal while the thread changes nothing.

The key is made of the objects that its innermost calls can reach: their variables, the globals that their code names, and the
objects that both reach by attributes that the code names. The key is known only where these objects can be read: Python's own
values and containers, instances of classes written in Python, locks. A tensor, a file, an object of an extension, or too many
objects may hide a change: then there is no key.
"""

from __future__ import annotations

from typing import Any, Callable, Collection, Hashable, Iterator, NamedTuple, Sequence

from .. import log
from ..access.procfs import read_stat
from ..cpython import codes, types
from ..cpython.bytecode import loops_over
from ..cpython.objects import Object
from ..cpython.runtime import Runtime
from ..cpython.types import TypeInfo
from ..errors import GdbextError
from .stack_keys import FrameKey

MAX_OBJECTS = 400
MAX_ITEMS = 200  # of a container
MAX_RAW = 256  # bytes of an object itself, characters, digits
HEADER = 16  # bytes: the reference count, which changes when the object is only used, and the type
_BY_VALUE: dict[str, Callable[[Object], Hashable]] = {
    "int": lambda obj: obj.integer(MAX_RAW),
    "float": lambda obj: obj.floating().hex(),
    "str": lambda obj: (obj.len(), obj.string(MAX_RAW)),
    "bytes": lambda obj: (obj.len(), obj.raw_bytes(MAX_RAW)),
}  # by value: a new object often has the address of the last one
_CONSTANT = frozenset(
    ("bool", "NoneType", "ellipsis", "code", "wrapper_descriptor", "method_descriptor", "getset_descriptor", "member_descriptor",
     "method-wrapper")
)  # fmt: skip
_LOCKS = frozenset(("_thread.lock", "_thread.RLock"))  # to acquire and release one changes nothing
_ITERATORS = ("iterator", "itertools.count", "itertools.cycle", "enumerate", "reversed")
_CONTAINERS = frozenset(
    ("tuple", "list", "dict", "set", "frozenset", "collections.deque", "collections.OrderedDict", "object", "")
)
_BY_ANY_NAME = {"getattr", "setattr", "delattr", "vars", "eval", "exec", "globals", "locals", "attrgetter", "methodcaller",
                "__dict__", "__getattribute__", "__setattr__"}  # fmt: skip
_OF_PYTHON = frozenset(
    ("builtins", "time", "math", "operator", "_operator", "itertools", "_thread", "_collections", "_functools", "posix", "sys")
)  # modules in C whose functions have no hidden state


class Effect(NamedTuple):
    """A thread at one sample. `state`: the key of the objects it can reach, None where not known; `ran`: clock ticks that it has
    run; `kernel`: how many of them in the kernel (proc(5))."""

    state: Hashable | None
    ran: int
    kernel: int


def of_thread(rt: Runtime, pid: int, tid: int, frames: Sequence[Any], stacks: Sequence[Any]) -> Effect | None:
    """The `Effect` of a thread whose calls now are `frames`, after `stacks` (`observe.stack_keys`, these the last). None where it
    was at one instruction in all of them and that may be a call of C: changes made there cannot be seen.

    Source: the process as it is now."""
    if not frames:
        return None
    whole = [stack for stack in stacks if stack and isinstance(stack[0], FrameKey)]
    outer = 0
    for each in zip(*map(reversed, whole)):
        if len({(one.code, one.lasti) for one in each}) > 1:
            break
        outer += 1
    try:
        if all(len(stack) == outer for stack in whole):
            if not codes.brief_at(frames[0].code, frames[0].raw.lasti):
                return None
            outer -= 1
        turning = max(len(frames) - outer, 1)
        loops = [n for n, frame in enumerate(frames) if loops_over(frame.code, frame.raw.lasti)]
        inner = [n for n in loops if n < turning] or loops[:1]  # the loops that turn
        reached = _Reached(rt, [frames[n] for n in sorted({*range(turning), *inner})])
        state: Hashable | None = (*reached.facts(), *(reached.around(frames[n]) for n in loops if n not in inner))
    except (GdbextError, RecursionError) as e:
        log.passed_over(e)
        state = None
    try:
        own, kernel = read_stat(pid, tid).ticks
        return Effect(state, own + kernel, kernel)
    except GdbextError as e:
        log.passed_over(e)
        return None


class Hidden(GdbextError):
    """An object was reached that may change without this being seen."""


class _Reached:
    """The objects that functions in `frames` can reach through the names in their code."""

    def __init__(self, rt: Runtime, frames: Sequence[Any]) -> None:
        self.rt, self.frames = rt, frames
        self.names: set[str] = set()
        for frame in frames:
            self._names_of(frame.code.address)

    def facts(self) -> tuple[Hashable, ...]:
        """For each reached object its value or, for one that can change, (address, its own memory). Raises `Hidden`."""
        while True:  # a function reached later may name objects that were left out
            names = len(self.names)
            self.seen: set[int] = set()
            found = tuple(self._walk())
            if len(self.names) == names:
                return found

    def _walk(self) -> Iterator[Hashable]:
        self.todo: list[Object] = []
        for frame in self.frames:
            self.todo += [value for _, value in frame.locals() if isinstance(value, Object)]
            self.todo += self._globals(frame.globals())
        while self.todo:
            obj = self.todo.pop()
            if obj.address in self.seen:
                continue
            if len(self.seen) >= MAX_OBJECTS:
                raise Hidden("too many objects")
            self.seen.add(obj.address)
            yield self._own(obj)
            self.todo += self._within(obj)

    def around(self, frame: Any) -> Hashable:
        """The variables of a function further out, and the attributes of their instances that it names. The function may change
        these even if all samples fall within one turn of its loop."""
        values = [value for _, value in frame.locals() if isinstance(value, Object)]
        names = {o.string(200) for o in self._tuple(frame.code.address, "co_names")}
        for value in values[:]:
            if value.type.is_python:
                values += [v for name, v in value.fields() if name in names and isinstance(v, Object)]
        return tuple(map(self._own, values))

    def _own(self, obj: Object) -> Hashable:
        name = obj.type.builtin_name
        if name in _LOCKS:
            return obj.address
        if name in _BY_VALUE:
            return _BY_VALUE[name](obj)
        size = min(max(obj.type.basicsize, HEADER + 8), MAX_RAW)
        return obj.address, self.rt.target.read(obj.address + HEADER, size - HEADER)

    def _globals(self, found: Object) -> list[Object]:
        """The values of the globals that the code names; each dict only once in a walk."""
        if found.address in self.seen:
            return []
        self.seen.add(found.address)
        return [self.rt.object(value) for _, value in types.named(self.rt, found.dict_entries(), self.names)]

    def _names_of(self, code: int) -> None:
        """Adds the names in a function's code, and in the code inside it: of its lambdas and comprehensions."""
        self.names.update(o.string(200) for o in self._tuple(code, "co_names"))
        if self.names & _BY_ANY_NAME:
            raise Hidden("attributes that no code names")
        for const in self._tuple(code, "co_consts"):
            if const.type.builtin_name == "code":
                self._names_of(const.address)

    def _tuple(self, code: int, field: str) -> list[Object]:
        return self.rt.object(self.rt.target.u64(code + self.rt.layout[f"code.{field}"])).elements(1000)

    def _within(self, obj: Object) -> list[Object]:
        rt, name = self.rt, obj.type.builtin_name
        if name in _CONSTANT or name in _BY_VALUE or name in _LOCKS or name.endswith(_ITERATORS):
            return []
        if name == "function":
            self._names_of(rt.target.u64(obj.address + rt.layout["func.func_code"]))
            own = rt.object(rt.target.u64(obj.address + rt.layout["func.func_globals"]))
            return self._at(obj, "func.func_closure") + self._globals(own)
        if name == "cell":
            return self._at(obj, "cell.ob_ref")
        if name == "method":
            return self._at(obj, "method.im_self") + self._at(obj, "method.im_func")
        if name == "builtin_function_or_method":
            return self._at(obj, "cfunc.m_self")
        if name == "module":
            if not self._is_python(obj) and obj.attr("__name__").string(80) not in _OF_PYTHON:
                raise Hidden("a module of an extension")
            return [rt.object(value) for _, value in rt.dialect.instance_entries(rt, obj, self.names)]
        if obj.isa("type"):
            return self._class(rt.type(obj.address), passed=())
        return self._members(obj)

    def _at(self, obj: Object, field: str) -> list[Object]:
        value = self.rt.target.u64(obj.address + self.rt.layout[field])
        return [self.rt.object(value)] if value else []

    @staticmethod
    def _is_python(module: Object) -> bool:
        return any(name == "__file__" and isinstance(v, Object) and v.isa("str") and v.string(4096).endswith((".py", ".pyc"))
                   for name, v in module.fields())  # fmt: skip

    def _class(self, info: TypeInfo, passed: Collection[str] = ("__init__",)) -> list[Object]:
        """The attributes of a Python class that the code names, and its functions that are called without a name (`__next__`),
        except for `passed`. They are read as they are now, not as a `TypeInfo` remembers them. `__init__` is passed over by
        default: code that has only instances makes none."""
        if not info.is_python or not info.dict_address:
            return []
        entries = self.rt.object(info.dict_address).dict_entries()
        values = [(name, self.rt.object(value)) for name, value in types.named(self.rt, entries)]
        unnamed = [v for name, v in values if name[:2] == "__" and name not in passed and v.type.builtin_name == "function"]
        return [value for name, value in values if name in self.names] + unnamed

    def _members(self, obj: Object) -> list[Object]:
        rt = self.rt
        if not obj.type.builtin_bases() <= _CONTAINERS:
            raise Hidden(f"a {obj.type.builtin_name}")
        found: list[Object] = []
        if obj.isa("dict"):
            entries = obj.dict_entries(MAX_ITEMS + 1)
            found += [rt.object(a) for entry in entries for a in entry]
        elif obj.isa("list", "tuple", "set", "frozenset", "collections.deque"):
            found += [rt.object(a) for a in obj.element_addresses(MAX_ITEMS + 1) if a]
        if len(found) > 2 * MAX_ITEMS:
            raise Hidden("too many members")
        if obj.type.is_heap:
            found += [value for name, value in obj.fields() if name in self.names and isinstance(value, Object)]
            for info in obj.type.bases():
                found += self._class(info)
        return found
