"""The path that leads to an object: the shortest one of attributes and items, from a frame's variable or a module's global.

The search goes breadth first from the given roots, until everything wanted is found or a budget is spent. Paths are expressions
of this pack (expressions.py). Dicts, lists, tuples, deques, attributes and slots are followed; objects that only running code
would reach are not.
"""

from __future__ import annotations

import collections
import struct
from typing import Any, Collection, Iterable, Iterator

from .. import log
from ..errors import GdbextError
from .frames import PyFrame
from .gc import WINDOW, Windows
from .objects import Object
from .runtime import Runtime
from .types import BYTES, DICT, LIST, LONG, MEMBER_OBJECT, STR, TUPLE, TYPE, TypeInfo

MAX_EDGES = 150_000  # followed per search, which bounds it to about a second
MAX_WIDE = 20_000  # members of one container
MASK = (1 << WINDOW) - 1
_WORD = struct.Struct("<Q").unpack_from
_LEAVES = STR | LONG | BYTES | TYPE


class Root:
    """The beginning of a path. `text`: an expression for the object at `address`. `note`: the place, where it is not selected
    now."""

    __slots__ = ("_text", "address", "note", "_shown")

    def __init__(self, text: str | None, address: int, note: str = "", shown: str = "") -> None:
        self._text, self.address, self.note, self._shown = text, address, note, shown or text

    @property
    def text(self) -> str | None:
        return self._text

    @property
    def shown(self) -> str | None:
        return self._shown


class Path:
    """`text`: the expression. `shown`: the same with names (`self.x` where `text` has an address). `note`: the frame in which it
    begins."""

    __slots__ = ("text", "shown", "note")

    def __init__(self, text: str, shown: str, note: str) -> None:
        self.text, self.shown, self.note = text, shown, note


def frame_roots(frames: Iterable[tuple[PyFrame, bool]]) -> list[Root]:
    """`[Root]` of the variables of `frames`: (PyFrame, whether it is selected). An incomplete frame has none."""
    found: list[Root] = []
    for frame, selected in frames:
        try:
            found += _variables(frame, selected)
        except GdbextError as e:
            log.passed_over(e)
            continue
    return found


def _variables(frame: PyFrame, selected: bool) -> list[Root]:
    """`[Root]` of a frame's variables. In a frame that is not selected they go by address, because their names mean other objects
    in the selected one. A module's variables go by the module."""
    found, module = [], _module_of(frame)
    for name, value in frame.locals():
        if value is None or not name.isidentifier():
            continue
        if module:
            found.append(Root(f"{module}:{name}", value.address))
        elif selected:
            found.append(Root(name, value.address))
        else:
            found.append(Root(f"({value.address:#x})", value.address, f"frame {frame.level}, {frame.function}", name))
    return found


def _module_of(frame: PyFrame) -> str:
    """The name of the module whose body a frame runs, '' for any other frame."""
    own, rt = frame.namespace(), frame.rt
    try:
        name = frame.globals().item("__name__").string(200)
        contents = rt.module(name)
    except GdbextError as e:
        log.passed_over(e)
        return ""
    same = own is not None and contents is not None and own.address == contents.address
    return name if same and all(p.isidentifier() for p in name.split(".")) else ""


class ModuleRoot(Root):
    """A module's global whose name, the str at `key`, is read only if a path begins here."""

    __slots__ = ("rt", "module", "key")

    def __init__(self, rt: Runtime, module: str, key: int, address: int) -> None:
        self.rt, self.module, self.key, self.address, self.note = rt, module, key, address, ""

    @property
    def text(self) -> str | None:
        name = _text(self.rt, self.key)
        return f"{self.module}:{name}" if name is not None and name.isidentifier() else None

    @property
    def shown(self) -> str | None:
        return self.text


def module_roots(rt: Runtime, last: Collection[str] = ("torch", "numpy", "sympy", "transformers")) -> Iterator[ModuleRoot]:
    """Yields a `Root` for every global of every module: `__main__` first, the packages of `last` at the end."""
    modules = rt.modules()
    for name in sorted(modules, key=lambda n: (n != "__main__", n.partition(".")[0] in last)):
        if not all(part.isidentifier() for part in name.split(".")):
            continue
        try:
            contents = rt.module_dict(modules[name])
            pairs = contents.dict_entries(MAX_WIDE) if contents is not None else ()
        except GdbextError as e:
            log.passed_over(e)
            continue
        for key, value in pairs:
            yield ModuleRoot(rt, name, key, value)


def _text(rt: Runtime, address: int) -> str | None:
    """The str at an address, once per stop; None for another object."""
    memo: dict[int, str | None] = rt.target.cached("short strings", dict)
    if address not in memo:
        try:
            memo[address] = rt.object(address).string(200)
        except GdbextError as e:
            log.passed_over(e)
            memo[address] = None
    return memo[address]


class _Kinds:
    """How the objects of each type are followed: a function (search, object) or None, determined once per type."""

    def __init__(self, rt: Runtime) -> None:
        self.rt = rt
        self.known: dict[int, Any] = {}
        self.window, self.type_at = Windows(rt.target).window, rt.layout["object.ob_type"]

    def of(self, address: int) -> Any:
        at = address + self.type_at
        blob, inside = self.window(at >> WINDOW), at & MASK
        try:
            pointer = _WORD(blob, inside)[0] if inside + 8 <= len(blob) else self.rt.target.u64(at)
        except GdbextError as e:
            log.passed_over(e)
            return None
        if pointer not in self.known:
            try:
                self.known[pointer] = self._classify(self.rt.type(pointer)) if pointer % 8 == 0 and pointer else None
            except GdbextError as e:
                log.passed_over(e)
                self.known[pointer] = None
        return self.known[pointer]

    def _classify(self, info: TypeInfo) -> Any:
        if info.flags & _LEAVES or info.builtin_name in (
            "NoneType",
            "float",
            "module",
            "code",
            "function",
            "builtin_function_or_method",
        ):
            return None
        if info.flags & DICT:
            return _dict
        if info.flags & (LIST | TUPLE) or "collections.deque" in info.builtin_bases():
            return _sequence
        return _instance if info.is_heap else None


def key_text(rt: Runtime, address: int) -> str | None:
    """The text of a dict's key inside brackets; None for a key that cannot stand in an expression."""
    text = _text(rt, address)
    if text is not None:
        return repr(text) if len(text) < 200 and text.isprintable() else None
    try:
        value = rt.object(address).plain()
    except GdbextError as e:
        log.passed_over(e)
        return None
    return repr(value) if isinstance(value, (int, tuple)) else None


def _dict(rt: Runtime, obj: Object) -> Iterator[tuple[int, Any]]:
    for key, value in obj.dict_entries(MAX_WIDE):
        yield value, ("[", key)


def _sequence(rt: Runtime, obj: Object) -> Iterator[tuple[int, Any]]:
    for i, value in enumerate(obj.element_addresses(MAX_WIDE)):
        yield value, ("#", i)


def _instance(rt: Runtime, obj: Object) -> Iterator[tuple[int, Any]]:
    pairs = rt.dialect.instance_pairs(rt, obj)
    own = {_text(rt, key): value for key, value in pairs}
    adapter = obj.adapter
    tables = adapter.tables if adapter is not None else ()
    for name, value in own.items():
        if name in tables and rt.object(value).type.flags & DICT:
            for key, member in rt.object(value).dict_entries(MAX_WIDE):
                text = _text(rt, key)
                if text is not None:
                    plain = text.isidentifier() and text not in own
                    yield member, (".", text) if plain else (".", f"{name}[{text!r}]")
        elif name is not None and name.isidentifier():
            yield value, (".", name)
    for name, (offset, kind) in obj.type.slots.items():
        if kind in MEMBER_OBJECT and name not in ("__weakref__", "__dict__") and name not in own:
            value = rt.target.u64(obj.address + offset)
            if value:
                yield value, (".", name)


def find(rt: Runtime, wanted: Iterable[int], roots: Iterable[Root], max_edges: int = MAX_EDGES) -> dict[int, Path]:
    """-> {address: `Path`} for those addresses in `wanted` that are reached from `roots`, the nearest first."""
    kinds, left = _Kinds(rt), set(wanted)
    parents: dict[int, tuple[Any, Any]] = {}  # address -> (parent's address or Root, step)
    queue: collections.deque[int] = collections.deque()
    edges = 0

    def reach(value: int, parent: Any, step: Any) -> None:
        if value in parents:
            return
        followed = kinds.of(value) is not None
        if followed or value in left:
            parents[value] = (parent, step)
            left.discard(value)
        if followed:
            queue.append(value)

    for root in roots:
        edges += 1
        if not left or edges > max_edges // 2:
            break
        reach(root.address, root, None)
    while queue and left and edges < max_edges:
        address = queue.popleft()
        try:
            for value, step in kinds.of(address)(rt, rt.object(address)):
                edges += 1
                if value:
                    reach(value, address, step)
        except GdbextError as e:
            log.passed_over(e)
            continue  # damaged, or changed while it is read: other objects can still be found
    found = {}
    for address in wanted:
        path = _path(rt, parents, address)
        if path is not None:
            found[address] = path
    return found


def _path(rt: Runtime, parents: dict[int, tuple[Any, Any]], address: int) -> Path | None:
    steps: list[str] = []
    at = address
    while at in parents:
        parent, step = parents[at]
        if isinstance(parent, Root):
            if parent.text is None:
                return None
            tail, text = "".join(reversed(steps)), parent.text
            return Path(text + tail, (parent.shown or text) + tail, parent.note)
        kind, what = step
        if kind == "[":
            what = key_text(rt, what)
            if what is None:
                return None
        steps.append(f".{what}" if kind == "." else f"[{what}]")
        at = parent
    return None
