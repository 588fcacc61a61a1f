"""Type objects of a process: names, bases, namespaces and slots, read once per stop.

Layout facts: Include/cpython/object.h, Objects/typeobject.c and Include/structmember.h of each minor; offsets come from
layouts/cpython.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Callable, Collection, Hashable, Iterable, TypeVar

from .. import log
from ..errors import FaultError, GdbextError, LayoutError
from ..render.text import escape
from . import adapters
from .adapters import Adapter

if TYPE_CHECKING:
    from .objects import Object
    from .runtime import Runtime
T = TypeVar("T")

LONG, LIST, TUPLE, BYTES, STR, DICT, EXCEPTION, TYPE = (1 << n for n in range(24, 32))  # tp_flags: subclass of …
HEAPTYPE, MANAGED_DICT, INLINE_VALUES = 1 << 9, 1 << 4, 1 << 2
MAX_BASES = 256
MAX_NAME = 4096  # characters of an attribute, class or module name that are read
MAX_STATIC_TYPES = 500  # 200 of CPython's own, 10 of extensions, in 3.12 to 3.15

# PyMemberDef types -> struct codes (Include/structmember.h); 6 T_OBJECT, 16 T_OBJECT_EX are pointers to objects.
MEMBER_CODES = {
    0: "<h",
    1: "<i",
    2: "<q",
    3: "<f",
    4: "<d",
    8: "<b",
    9: "<B",
    10: "<H",
    11: "<I",
    12: "<Q",
    14: "<?",
    17: "<q",
    18: "<Q",
    19: "<q",
}
MEMBER_OBJECT, MEMBER_STRING = (6, 16), 5


def named(rt: Runtime, pairs: Iterable[tuple[int, int]], wanted: Collection[str] | None = None) -> list[tuple[str, int]]:
    """`[(key address, value address)]` -> `[(name, value address)]` for the keys that are texts. With `wanted`, only for the
    names in it: most other keys are excluded by their lengths alone."""
    found = []
    names: dict[int, str] = rt.target.cached("attribute names", dict)  # classes and their instances share them
    known: dict[int, int] = rt.target.cached("lengths of attribute names", dict)
    lengths = None if wanted is None else set(map(len, wanted))
    at = rt.layout["ascii.length"]
    for key, value in pairs:
        try:
            name = names.get(key)
            if name is None:
                if lengths is not None:
                    length = known.get(key)
                    if length is None:
                        length = known[key] = rt.target.u64(key + at)
                    if length not in lengths:
                        continue
                name = names[key] = rt.object(key).string(MAX_NAME)
        except GdbextError as e:
            log.passed_over(e)
            continue  # a key that is no str: not an attribute
        if wanted is None or name in wanted:
            found.append((name, value))
    return found


class TypeInfo:
    """The parts of a type object that readers need, read once per stop."""

    def __init__(self, rt: Runtime, address: int) -> None:
        L, t = rt.layout, rt.target
        self.rt, self.address = rt, address
        self._memos: dict[Hashable, Any] = {}
        blob = t.read(address, L["type.__size"])

        def field(key: str) -> int:
            found: int = struct.unpack_from("<q", blob, L[key])[0]
            return found

        self.flags = field("type.tp_flags") & (1 << 64) - 1
        self.basicsize, self.itemsize = field("type.tp_basicsize"), field("type.tp_itemsize")
        self.dictoffset = field("type.tp_dictoffset")
        self.weaklistoffset = field("type.tp_weaklistoffset")
        self.dict_address = field("type.tp_dict") & (1 << 64) - 1
        name = field("type.tp_name") & (1 << 64) - 1
        try:
            self.raw_name = escape(t.cstring(name, 512).decode("utf-8", "replace"))
        except FaultError as e:
            if t.is_live or t.mapping_at(name) is None or self.flags & HEAPTYPE:
                raise
            log.passed_over(e)
            self.raw_name = rt.lost_type_name(address)
        if self.raw_name == "frozendict" and not self.flags & HEAPTYPE:
            self.flags |= DICT  # 3.15: laid out as a dict (pycore_dict.h, PyFrozenDictObject), and not marked as one
        mro = field("type.tp_mro") & (1 << 64) - 1
        self.mro = []
        if mro:
            count = t.i64(mro + L["varobj.ob_size"])
            if not 0 < count <= MAX_BASES:
                raise LayoutError(f"the type at {address:#x} claims {count} bases")
            self.mro = list(t.words(mro + L["tuple.ob_item"], count))
        if not 0 < self.basicsize < 1 << 24:
            raise LayoutError(f"no type object at {address:#x}")

    @property
    def name(self) -> str:
        """tp_name without its module."""
        return self.raw_name.rsplit(".", 1)[-1]

    @property
    def is_heap(self) -> bool:
        return bool(self.flags & HEAPTYPE)

    @property
    def builtin_name(self) -> str:
        """ "float", "collections.deque", …: tp_name of a type that C code defines, '' for a class of Python code."""
        return self.raw_name if not self.is_heap or "." in self.raw_name else ""

    @property
    def is_python(self) -> bool:
        """Whether a `class` statement made it (or `type()`), not C code."""
        return self.is_heap and "." not in self.raw_name

    @property
    def full_name(self) -> str:
        """ "vllm.v1.request.Request": module and qualified name."""
        return self._memo("full name", lambda: f"{self.module}.{self.qualname}" if self.module else self.qualname)

    def python_definer(self, name: str) -> TypeInfo | None:
        """The class of Python code whose method `name` Python would call; None where a C class comes first, or none defines
        it."""

        def find() -> TypeInfo | None:
            c_classes = []
            for base in self.bases():
                if not base.is_python:
                    c_classes.append(base)
                elif name in base.namespace:
                    return None if any(name in c.namespace for c in c_classes) else base
            return None

        return self._memo(("definer", name), find)

    @property
    def adapter(self) -> Callable[[Object], Adapter] | None:
        """The function that makes the `Adapter` of its instances, None where no family is registered for it."""
        return self._memo("adapter", lambda: adapters.maker_for(self))

    def bases(self) -> list[TypeInfo]:
        """`TypeInfo` of each class of the MRO, itself first."""
        return [self.rt.type(a) for a in self.mro] or [self]

    def builtin_bases(self) -> frozenset[str]:
        """`builtin_name` of each class of the MRO."""
        return self._memo("builtin bases", lambda: frozenset(b.builtin_name for b in self.bases()))

    def _memo(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._memos:
            self._memos[key] = make()
        found: T = self._memos[key]
        return found

    @property
    def namespace(self) -> dict[str, int]:
        """`{name: address}` of the class's own dict; {} where it is not to be found."""
        return self._memo("namespace", lambda: dict(named(self.rt, self.entries)))

    @property
    def entries(self) -> list[tuple[int, int]]:
        """[(address of the name, address of the value)] of the class's own dict; [] where it is not to be found."""

        def read() -> list[tuple[int, int]]:
            address = self.dict_address or self._static_dict()
            return list(self.rt.object(address).dict_entries()) if address else []

        return self._memo("entries", read)

    def _static_dict(self) -> int:
        """3.12+: the interpreter keeps the dict of a type that C code defines statically (pycore_typeobject.h). tp_subclasses is
        one more than the type's number in the interpreter's table. 0 where the table does not hold this type there."""
        L, t = self.rt.layout, self.rt.target
        if self.is_heap or "statictype.tp_dict" not in L:
            return 0
        number = t.u64(self.address + L["type.tp_subclasses"])
        if not 0 < number <= MAX_STATIC_TYPES:
            return 0
        interp = self.rt.interpreters()[0]
        for table in ("interp.types.builtins.initialized", "interp.types.for_extensions.initialized", "interp.types.builtins"):
            if table not in L:
                continue
            state = interp + L[table] + (number - 1) * L["statictype.__size"]
            if t.u64(state + L["statictype.type"]) == self.address:
                return t.u64(state + L["statictype.tp_dict"])
        return 0

    def lookup(self, name: str) -> int | None:
        """The address of a class attribute along the MRO, or None."""
        for base in self.bases():
            if name in base.namespace:
                return base.namespace[name]
        return None

    @property
    def slots(self) -> dict[str, tuple[int, int]]:
        """`{name: (offset, kind)}` of every `__slots__` member and C member along the MRO; kind as in structmember.h."""

        def read() -> dict[str, tuple[int, int]]:
            found: dict[str, tuple[int, int]] = {}
            for base in self.bases():
                for name, member in base._own_slots.items():
                    found.setdefault(name, member)
            return found

        return self._memo("slots", read)

    @property
    def _own_slots(self) -> dict[str, tuple[int, int]]:
        """The part of `slots` that the class itself defines. Each class of an MRO is read once for all of its subclasses."""

        def read() -> dict[str, tuple[int, int]]:
            L, t = self.rt.layout, self.rt.target
            found: dict[str, tuple[int, int]] = {}
            for key, address in self.entries:
                try:
                    if self.rt.object(address).type.builtin_name != "member_descriptor":
                        continue
                    member = t.u64(address + L["memberdescr.d_member"])
                    place = t.i64(member + L["memberdef.offset"]), t.i32(member + L["memberdef.type"])
                    found.update({name: place for name, _ in named(self.rt, [(key, address)])})
                except FaultError as e:
                    log.passed_over(e)
                    continue
            return found

        return self._memo("own slots", read)

    @property
    def module(self) -> str:
        """The `__module__` of a class, '' when it has none that is a str."""

        def read() -> str:
            value = self.namespace.get("__module__")
            try:
                if value:
                    return self.rt.object(value).string(MAX_NAME)
            except GdbextError as e:
                log.passed_over(e)
            return self.raw_name.rpartition(".")[0] or ("builtins" if not self.is_heap else "")

        return self._memo("module", read)

    @property
    def qualname(self) -> str:
        """ "Outer.Inner"; the name where it cannot be read."""
        if self.is_heap:
            try:
                return self.rt.object(self.rt.target.u64(self.address + self.rt.layout["heaptype.ht_qualname"])).string(MAX_NAME)
            except GdbextError as e:
                log.passed_over(e)
        return self.name
