"""The objects that frames of a process's threads can reach in a few steps. So it shows which threads may release a lock, fill a
queue or set an event.

Every object is expanded once, and every code object's globals are read once, however many threads run the same code. So the index
is linear in the number of frames.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Iterator, Sequence

from .. import log
from ..cpython import types
from ..cpython.lock_objects import KINDS
from ..cpython.objects import Object
from ..cpython.runtime import Runtime
from ..errors import FaultError, GdbextError
from ..primitives.table import RINGS, of_classes

MAX_REACH = 400  # objects that one frame's variables, or one code's globals, lead to
MAX_FIELDS = 64  # attributes of an object
MAX_METHODS = 256  # of a class
MAX_ITEMS = 32  # members of a container
STEPS = 2
_BUILTIN = "builtin_function_or_method"
_PRIMITIVES = {*KINDS, *RINGS}  # those of C code
_LEAVES = frozenset(("int", "float", "str", "bytes", "bool", "NoneType", "complex", "code"))  # lead nowhere


def references_of(rt: Runtime | None) -> References:
    """The `References` of a process, kept until the process may have run on. A process without Python has no frames, so its
    `References` is empty."""
    if rt is None:
        return References(rt)
    found: References = rt.target.cached("references", lambda: References(rt))
    return found


class References:
    """The objects that frames of one process can name.

    Frames with the same variables share one `Reach`: hundreds of threads of a pool, and calls that pass the same variables on."""

    def __init__(self, rt: Any) -> None:
        self.rt = rt
        self._children: dict[Any, list[tuple[str, Any]]] = {}
        self._globals: dict[int, Reach] = {}
        self._codes: dict[int, frozenset[str]] = {}
        self._methods: dict[int, dict[str, frozenset[str]]] = {}
        self._of_classes: dict[int, list[tuple[str, Any]]] = {}
        self._locals: dict[Any, Reach] = {}
        self.lacks = False  # memory that frames lead to is not there, so that no frame leads to an object is not known
        self._modules: set[int] = set()  # modules met so far: which of their names are read differs by code
        self._frames: dict[int, tuple[Reach, Reach]] = {}

    def reaches(self, frame: Any) -> tuple[Reach, Reach]:
        """The objects that a frame reaches by its variables, and by the globals that its code uses."""
        found = self._frames.get(frame.address)
        if found is None:
            found = self._frames[frame.address] = self._locals_of(frame), self._globals_of(frame)
        return found

    def of_frame(self, frame: Any) -> Iterator[tuple[str, Any]]:
        """(path, Object): the frame's variables, the globals its code uses, and the objects reached from both."""
        for reach in self.reaches(frame):
            yield from reach.named

    def name_of(self, frame: Any, address: int) -> str:
        """The path by which a frame names the object at `address`; '' where it cannot name it."""
        return next((reach.paths[address] for reach in self.reaches(frame) if address in reach.paths), "")

    def names(self, frame: Any) -> frozenset[str]:
        """The names of globals and attributes that a frame's code uses."""
        return self.names_of(frame.code.address)

    def names_of(self, code: int) -> frozenset[str]:
        """The same of the code at an address."""
        if code not in self._codes:
            try:
                held = self.rt.object(self.rt.target.u64(code + self.rt.layout["code.co_names"]))
                self._codes[code] = frozenset(o.string(200) for o in held.elements(1000))
            except GdbextError as e:
                log.passed_over(e)
                self._note(e)
                self._codes[code] = frozenset()
        return self._codes[code]

    def methods(self, obj: Any) -> dict[str, frozenset[str]]:
        """{method: the names of globals and attributes that its code uses} of an object of a class written in Python; {} of a
        known primitive, whose calls its row tells."""
        key = obj.type.address
        if key not in self._methods:
            found: dict[str, frozenset[str]] = {}
            with log.passing_over(GdbextError):
                bases = [base for base in obj.type.bases() if base.is_python]
                for base in reversed(bases if of_classes(base.full_name for base in bases) is None else []):
                    for name, address in list(base.namespace.items())[:MAX_METHODS]:
                        function = self.rt.object(address)
                        if name != "__init__" and function.isa("function"):
                            found[name] = self.names_of(self.rt.target.u64(address + self.rt.layout["func.func_code"]))
            self._methods[key] = found
        return self._methods[key]

    def _locals_of(self, frame: Any) -> Reach:
        try:
            held = [(name, value) for name, value in frame.locals() if isinstance(value, Object)]
            variables = [(name, value) for name, value in held if not self._is_leaf(value)]
        except GdbextError as e:
            log.passed_over(e)
            self._note(e)
            return NOTHING
        if not variables:
            return NOTHING
        names = self.names(frame)
        key = tuple([(name, value.address) for name, value in variables])
        found = self._locals.get(key) or self._locals.get((key, names))
        if found is None:
            found = Reach(self._expand(variables, names))
            of_modules = any(address in self._modules for address in found.paths)
            self._locals[(key, names) if of_modules else key] = found
        return found

    def _globals_of(self, frame: Any) -> Reach:
        key = frame.code.address
        if key not in self._globals:
            self._globals[key] = NOTHING  # what cannot be read names nothing
            names = self.names(frame)
            try:
                held = types.named(frame.rt, frame.globals().dict_entries(), names) if names else []
            except GdbextError as e:
                log.passed_over(e)
                self._note(e)
                held = []
            wanted = [(name, frame.rt.object(value)) for name, value in held]
            self._globals[key] = Reach(self._expand([(name, obj) for name, obj in wanted if not self._is_leaf(obj)], names))
        return self._globals[key]

    def _expand(self, roots: list[tuple[str, Any]], names: frozenset[str]) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = []
        seen: set[int] = set()
        level = roots
        for step in range(STEPS + 1):
            following: list[tuple[str, Any]] = []
            for path, obj in level:
                if obj.address in seen:
                    continue
                if len(found) >= MAX_REACH:
                    return found
                seen.add(obj.address)
                found.append((path, obj))
                if step < STEPS:
                    following += [(path + suffix, child) for suffix, child in self._children_of(obj, names)]
            level = following
        return found

    def _children_of(self, obj: Any, names: frozenset[str]) -> list[tuple[str, Any]]:
        key: Any = obj.address
        found = self._children.get(key)
        if found is None:
            try:
                if obj.isa("module"):
                    self._modules.add(obj.address)
                    key = obj.address, names  # of a module only the names that the code uses
                    found = self._children.get(key)
                if found is None:
                    found = self._read_children(obj, names)
            except GdbextError as e:
                log.passed_over(e)
                self._note(e)
                found = []
            self._children[key] = found
        return found

    def _class_children(self, info: Any) -> list[tuple[str, Any]]:
        """The locks, queues and events that are attributes of a class of Python code or of its bases: instances share them."""
        if info.address not in self._of_classes:
            found: dict[str, Any] = {}
            for base in info.bases() if info.is_python else ():
                for name, address in list(base.namespace.items())[:MAX_METHODS] if base.is_python else ():
                    obj = self.rt.object(address)
                    kind = obj.type.builtin_name
                    known = kind in _PRIMITIVES or not kind and of_classes(one.full_name for one in obj.type.bases()) is not None
                    if known and name not in found:
                        found[name] = obj
            self._of_classes[info.address] = [(f".{name}", obj) for name, obj in found.items()]
        return self._of_classes[info.address]

    def _is_leaf(self, obj: Any) -> bool:
        """Whether an object's type is no lock and leads to none; true also of an object that cannot be read."""
        try:
            kind = obj.type.builtin_name
            if kind == "type":
                return not self._class_children(self.rt.type(obj.address))
            return kind in _LEAVES or kind == "function" and not _closure_of(obj)
        except GdbextError as e:
            log.passed_over(e)
            self._note(e)
            return True

    def _note(self, e: GdbextError) -> None:
        self.lacks = self.lacks or isinstance(e, FaultError)

    def _read_children(self, obj: Any, names: frozenset[str]) -> list[tuple[str, Any]]:
        rt = obj.rt
        if obj.isa("module"):
            return [(f".{name}", rt.object(value)) for name, value in rt.dialect.instance_entries(rt, obj, names)]
        if obj.isa("type"):
            return self._class_children(rt.type(obj.address))
        if obj.type.is_heap or obj.type.builtin_name == "types.SimpleNamespace":
            found = [(f".{name}", value) for name, value in obj.fields()[:MAX_FIELDS] if isinstance(value, Object)]
            found += self._class_children(obj.type)
            if not obj.isa("list", "tuple", "dict"):
                return found
        else:
            found = []
        if obj.isa("list", "tuple"):
            return found + [(f"[{i}]", rt.object(a)) for i, a in enumerate(obj.element_addresses(MAX_ITEMS)) if a]
        if obj.isa("dict"):
            return found + [(f"[{_short(rt, key)}]", rt.object(value)) for key, value in obj.dict_entries(MAX_ITEMS)]
        if obj.type.builtin_name == "function":
            return cells_of(obj)
        if obj.type.builtin_name == _BUILTIN:
            owner = rt.target.u64(obj.address + rt.layout["cfunc.m_self"])
            return [(".__self__", rt.object(owner))] if owner else []
        if obj.type.builtin_name == "method":
            owner = rt.target.u64(obj.address + rt.layout["method.im_self"])
            return [(".__self__", rt.object(owner))] if owner else []
        return []


class Reach:
    """The objects reached from some variables. `named`: `[(path, Object)]`, the nearest first; `paths`: {address: path}."""

    def __init__(self, named: list[tuple[str, Any]]) -> None:
        self.named = named
        self.paths: dict[int, str] = {obj.address: path for path, obj in named}


NOTHING = Reach([])


class Reachable:
    """Which agents can reach which object: an index over the frames of the agents asked about so far. An agent is a thread or an
    asyncio task: anything with `python` frames."""

    def __init__(self, references: References, agents: Sequence[Any]) -> None:
        self.references, self.agents = references, agents
        self._left = list(agents)  # not in the index yet
        self._holders: dict[Reach, list[Any]] = {}
        self._by_address: dict[int, list[Reach]] = {}
        self._found: dict[int, list[Any]] = {}  # answers of the index, until it grows

    def agents_of(self, address: int, but: Callable[[Any], bool]) -> list[Any]:
        """The agents with a frame that can name the object at `address`. Agents for which `but` is true are left out, and their
        frames are not read."""
        asked = [agent for agent in self._left if not but(agent)]
        if asked:
            new = {id(agent) for agent in asked}
            self._left = [agent for agent in self._left if id(agent) not in new]
            for agent in asked:
                self._add(agent)
            self._found.clear()
        if address not in self._found:
            found = {id(agent) for reach in self._by_address.get(address, ()) for agent in self._holders[reach]}
            self._found[address] = [agent for agent in self.agents if id(agent) in found] if found else []
        return [agent for agent in self._found[address] if not but(agent)]

    def _add(self, agent: Any) -> None:
        for reach in {reach: True for frame in agent.python for reach in self.references.reaches(frame)}:
            if reach not in self._holders:
                self._holders[reach] = []
                for address in reach.paths:
                    self._by_address.setdefault(address, []).append(reach)
            self._holders[reach].append(agent)


def _closure_of(function: Any) -> int:
    """The address of the tuple of a function's cells, 0 where it has none."""
    return int(function.rt.target.u64(function.address + function.rt.layout["func.func_closure"]))


def cells_of(function: Any) -> list[tuple[str, Any]]:
    """The variables of the functions around a function: of a callback, what it was made for."""
    rt = function.rt
    cells = _closure_of(function)
    held = (
        [rt.target.u64(cell + rt.layout["cell.ob_ref"]) for cell in rt.object(cells).element_addresses(MAX_ITEMS)]
        if cells
        else []
    )
    return [(f"[{i}]", rt.object(inner)) for i, inner in enumerate(held) if inner]


def _short(rt: Any, key: int) -> str:
    """A dict's key for a path: a number, or a short word. Longer text may be a user's and stays out."""
    try:
        text = repr(rt.object(key).plain(1))
    except GdbextError as e:
        log.passed_over(e)
        return "…"
    return text if re.fullmatch(r"-?\d{1,20}|'[\w.:-]{1,24}'", text) else "…"
