"""Which objects the frames of a process's threads can reach in a few steps, and so which threads may release a lock, fill a queue
or set an event.

Every object is expanded once and every code object's globals are looked through once, however many threads run the same code: the
index is linear in the number of frames.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..cpython import dialects
from ..cpython.objects import Object
from ..errors import GdbextError

if TYPE_CHECKING:
    from .threads import ThreadView

MAX_REACH = 400  # objects that one frame's variables, or one code's globals, lead to
MAX_FIELDS = 64  # attributes of an object
MAX_ITEMS = 32  # members of a container
STEPS = 2
_BUILTIN = "builtin_function_or_method"


class References:
    """The objects that frames of one `Runtime` can name."""

    def __init__(self, rt: Any) -> None:
        self.rt = rt
        self._children: dict[tuple[int, frozenset[str]], list[tuple[str, Any]]] = {}
        self._globals: dict[int, list[tuple[str, Any]]] = {}
        self._codes: dict[int, frozenset[str]] = {}
        self._frames: dict[int, list[tuple[str, Any]]] = {}

    def of_frame(self, frame: Any) -> list[tuple[str, Any]]:
        """`[(path, Object)]`: the frame's variables, the globals its code uses, and what hangs on both."""
        found = self._frames.get(frame.address)
        if found is None:
            found = self._frames[frame.address] = self._locals_of(frame) + self._globals_of(frame)
        return found

    def name_of(self, frame: Any, address: int) -> str:
        """The path by which a frame names the object at `address`, '' where it cannot."""
        return next((path for path, obj in self.of_frame(frame) if obj.address == address), "")

    def _names(self, frame: Any) -> frozenset[str]:
        key = frame.code.address
        if key not in self._codes:
            try:
                held = self.rt.object(self.rt.target.u64(key + self.rt.layout["code.co_names"]))
                self._codes[key] = frozenset(o.string(200) for o in held.elements(1000))
            except GdbextError:
                self._codes[key] = frozenset()
        return self._codes[key]

    def _locals_of(self, frame: Any) -> list[tuple[str, Any]]:
        try:
            variables = [(name, value) for name, value in frame.locals() if isinstance(value, Object)]
        except GdbextError:
            return []
        return self._expand(variables, self._names(frame))

    def _globals_of(self, frame: Any) -> list[tuple[str, Any]]:
        key = frame.code.address
        if key not in self._globals:
            self._globals[key] = []  # what cannot be read names nothing
            names = self._names(frame)
            try:
                held = dialects.named(self.rt, frame.globals().dict_entries(), names) if names else []
            except GdbextError:
                held = []
            wanted = [(name, self.rt.object(value)) for name, value in held]
            self._globals[key] = self._expand(wanted, names)
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
        key: tuple[int, frozenset[str]] = (obj.address, frozenset())
        found = self._children.get(key)
        if found is None:
            try:
                if obj.isa("module"):
                    key = (obj.address, names)  # of a module only the names that the code uses
                    found = self._children.get(key)
                if found is None:
                    found = self._read_children(obj, names)
            except GdbextError:
                found = []  # what cannot be read cannot be the lock
            self._children[key] = found
        return found

    def _read_children(self, obj: Any, names: frozenset[str]) -> list[tuple[str, Any]]:
        rt = self.rt
        if obj.isa("module"):
            return [(f".{name}", rt.object(value)) for name, value in rt.dialect.instance_entries(rt, obj, names)]
        named = obj.type.is_heap or obj.type.builtin_name == "types.SimpleNamespace"
        if named and not obj.isa("type"):
            found = [(f".{name}", value) for name, value in obj.fields()[:MAX_FIELDS] if isinstance(value, Object)]
            if not obj.isa("list", "tuple", "dict"):
                return found
        else:
            found = []
        if obj.isa("list", "tuple"):
            return found + [(f"[{i}]", rt.object(a)) for i, a in enumerate(obj.element_addresses(MAX_ITEMS)) if a]
        if obj.isa("dict"):
            return found + [(f"[{_short(rt, key)}]", rt.object(value)) for key, value in obj.dict_entries(MAX_ITEMS)]
        if obj.type.builtin_name == _BUILTIN:
            owner = rt.target.u64(obj.address + rt.layout["cfunc.m_self"])
            return [(".__self__", rt.object(owner))] if owner else []
        if obj.type.builtin_name == "method":
            owner = rt.target.u64(obj.address + rt.layout["method.im_self"])
            return [(".__self__", rt.object(owner))] if owner else []
        if obj.type.builtin_name == "functools.partial":
            return []
        return []


class Reachable:
    """Which threads can reach which object: the index over all frames of all threads, built at its first use."""

    def __init__(self, references: References, threads: list[ThreadView]) -> None:
        self.references, self.threads = references, threads
        self._index: dict[int, list[ThreadView]] | None = None

    def threads_of(self, address: int) -> list[ThreadView]:
        """The threads some frame of which can name the object at `address`."""
        if self._index is None:
            self._index = {}
            for thread in self.threads:
                for address_ in {obj.address for frame in thread.python for _, obj in self.references.of_frame(frame)}:
                    self._index.setdefault(address_, []).append(thread)
        return self._index.get(address, [])


def _short(rt: Any, key: int) -> str:
    """A dict's key for a path: a number, or a short word. Longer text may be a user's and stays out."""
    try:
        text = repr(rt.object(key).plain(1))
    except GdbextError:
        return "…"
    return text if re.fullmatch(r"-?\d{1,20}|'[\w.:-]{1,24}'", text) else "…"
