"""Python objects as bytes: types, attributes, containers, read without a call into the process.

An `Object` is an address and the `Runtime` it belongs to. Counts and pointers read from the process are bounded: a container
that claims more than memory holds raises `FaultError`/`LayoutError`, never a wrong answer. Layout facts: CPython's
Include/cpython/*.h and Objects/dictobject.c, setobject.c, typeobject.c of each minor; offsets come from layouts/cpython.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Iterable

from .. import log
from ..errors import GdbextError, LayoutError, MissingError, NotFoundError
from . import getsets
from .adapters import Adapter
from .spending import brief
from .types import (
    BYTES,
    DICT,
    LIST,
    LONG,
    MAX_NAME,
    MEMBER_CODES,
    MEMBER_OBJECT,
    MEMBER_STRING,
    STR,
    TUPLE,
    TYPE,
    TypeInfo,
    named,
)

if TYPE_CHECKING:
    from .runtime import Runtime

MAX_ITEMS = 20_000_000  # no list, dict or string of an engine is longer; a bigger count is damage
DEQUE_BLOCK = 64  # Modules/_collectionsmodule.c BLOCKLEN


class Object:
    """A Python object at `address`."""

    __slots__ = ("rt", "address", "under", "_type")

    def __init__(self, rt: Runtime, address: int) -> None:
        self.rt, self.address, self.under = rt, address, ""  # under: the name by which an expression reached it (hiding.py)
        self._type: TypeInfo | None = None

    def __repr__(self) -> str:
        return f"Object({self.address:#x})"

    # ---- type ----------------------------------------------------------------------------------------------------
    @property
    def type(self) -> TypeInfo:
        """Its `TypeInfo`; `LayoutError` where no object can be."""
        if self._type is None:
            pointer = self.rt.target.u64(self.address + self.rt.layout["object.ob_type"])
            if self.address % 8 or pointer % 8 or not pointer:
                raise LayoutError(f"no Python object at {self.address:#x}")
            self._type = self.rt.type(pointer)
        return self._type

    @property
    def type_name(self) -> str:
        """The class's own name, without its module."""
        return self.type.name

    @property
    def adapter(self) -> Adapter | None:
        """The `Adapter` that answers for objects of its family, None for those that need none."""
        make = self.type.adapter
        return None if make is None else make(self)

    def isa(self, *names: str) -> bool:
        """Whether a builtin (C) type of one of these tp_names is among its bases."""
        return not self.type.builtin_bases().isdisjoint(names)

    def is_none(self) -> bool:
        return self.type.builtin_name == "NoneType"

    def mro_names(self) -> list[str]:
        """tp_name of each class along the MRO."""
        return [b.raw_name for b in self.type.bases()]

    def _need(self, flag: int, what: str) -> None:
        if not self.type.flags & flag:
            raise LayoutError(f"the {self.type_name} at {self.address:#x} is no {what}")

    # ---- scalars -------------------------------------------------------------------------------------------------
    def integer(self, max_digits: int = 1 << 20) -> int:
        """An int of any size (bool too); `LayoutError` for another type."""
        self._need(LONG, "int")
        L, t = self.rt.layout, self.rt.target
        if "long.long_value.lv_tag" in L:
            tag = t.u64(self.address + L["long.long_value.lv_tag"])
            sign, count, at = (1, 0, -1, 0)[tag & 3], tag >> 3, self.address + L["long.long_value.ob_digit"]
        else:
            raw = t.i64(self.address + L["varobj.ob_size"])
            sign, count, at = (raw > 0) - (raw < 0), abs(raw), self.address + L["long.ob_digit"]
        if count > max_digits:
            raise LayoutError(f"the int at {self.address:#x} claims {count} digits")
        if not sign or not count:
            return 0
        digits = struct.unpack(f"<{count}I", t.read(at, 4 * count))
        if count < 16:
            value = 0
            for digit in reversed(digits):
                value = value << 30 | digit
        else:  # 30-bit digits packed into one string of bits, so that huge ints stay linear
            value = int("".join(format(d, "030b") for d in reversed(digits)), 2)
        return sign * value

    def boolean(self) -> bool:
        if self.type.builtin_name != "bool":
            raise LayoutError(f"the {self.type_name} at {self.address:#x} is no bool")
        return self.integer() != 0

    def floating(self) -> float:
        if not self.isa("float"):
            raise LayoutError(f"the {self.type_name} at {self.address:#x} is no float")
        return self.rt.target.f64(self.address + self.rt.layout["float.ob_fval"])

    def complex(self) -> Any:
        """A complex number; `GdbextError` for another type."""
        if not self.isa("complex"):
            raise LayoutError(f"the {self.type_name} at {self.address:#x} is no complex")
        at = self.address + self.rt.layout["complex.cval"]
        return complex(*struct.unpack("<2d", self.rt.target.read(at, 16)))

    def string(self, limit: int | None = None) -> str:
        """A str, at most `limit` characters of it; `GdbextError` for another type."""
        self._need(STR, "str")
        at, length, kind = self.characters()
        if limit is not None:
            length = min(length, limit)
        if not length:
            return ""
        raw = self.rt.target.read(at, length * kind)
        if kind == 1:
            return raw.decode("latin-1")
        try:
            text = raw.decode("utf-16-le" if kind == 2 else "utf-32-le", "surrogatepass")
        except UnicodeDecodeError:
            raise LayoutError(f"no str at {self.address:#x}: it holds what is no character") from None
        # Two surrogates side by side are two characters of a str, where the decoder makes one of them.
        return text if len(text) == length else "".join(map(chr, struct.unpack(f"<{length}H", raw)))

    def characters(self) -> tuple[int, int, int]:
        """(address, count, bytes of each) of the characters of a str or of bytes."""
        L, t = self.rt.layout, self.rt.target
        if self.type.flags & BYTES:
            return self.address + L["bytes.ob_sval"], self.len(), 1
        self._need(STR, "str")
        length = t.u64(self.address + L["ascii.length"])
        if length > MAX_ITEMS * 50:
            raise LayoutError(f"the str at {self.address:#x} claims {length} characters")
        state = t.u32(self.address + L["ascii.state"])
        kind, compact, ascii_ = self.rt.dialect.string_bits(state)
        if kind not in (1, 2, 4):
            raise LayoutError(f"no str at {self.address:#x}: its kind is {kind}")
        inside = L["ascii.__size"] if ascii_ else L["compactunicode.__size"]
        return self.address + inside if compact else t.u64(self.address + L["unicode.data"]), length, kind

    def raw_bytes(self, limit: int | None = None) -> bytes:
        """The content of bytes or a bytearray."""
        L, t = self.rt.layout, self.rt.target
        size = t.i64(self.address + L["varobj.ob_size"])
        if not 0 <= size <= MAX_ITEMS * 50:
            raise LayoutError(f"the {self.type_name} at {self.address:#x} claims {size} bytes")
        size = size if limit is None else min(size, limit)
        if self.type.flags & BYTES:
            return t.read(self.address + L["bytes.ob_sval"], size)
        if self.isa("bytearray"):
            return t.read(t.u64(self.address + L["bytearray.ob_start"]), size) if size else b""
        raise LayoutError(f"the {self.type_name} at {self.address:#x} is no bytes")

    # ---- containers ----------------------------------------------------------------------------------------------
    def len(self) -> int:
        """`len()` of a str, bytes, list, tuple, dict, set, deque; `GdbextError` for another type."""
        L, t, flags = self.rt.layout, self.rt.target, self.type.flags
        if flags & STR:
            return t.u64(self.address + L["ascii.length"])
        if flags & DICT:
            return t.u64(self.address + L["dict.ma_used"])
        if flags & (LIST | TUPLE | BYTES) or self.isa("bytearray", "array.array"):
            return t.i64(self.address + L["varobj.ob_size"])
        if self.isa("set", "frozenset"):
            return t.u64(self.address + L["set.used"])
        if self.isa("collections.deque"):
            return t.i64(self.address + L["varobj.ob_size"])
        if self.isa("mappingproxy"):
            return self.rt.object(t.u64(self.address + L["mappingproxy.mapping"])).len()
        raise GdbextError(f"the {self.type_name} at {self.address:#x} has no length that can be read")

    def elements(self, limit: int = MAX_ITEMS) -> list[Object]:
        """The members of a list, tuple, set, frozenset, deque, or a dict's keys, as `Object`s; at most `limit`."""
        return [self.rt.object(a) for a in self.element_addresses(limit)]

    def first(self, count: int) -> list[Object]:
        """The first `count` members, of a tuple that has a known form; `LayoutError` where there are fewer."""
        found = self.elements(count)
        if len(found) < count:
            raise LayoutError(f"the {self.type_name} at {self.address:#x} has {len(found)} items, not {count}")
        return found

    def element_addresses(self, limit: int = MAX_ITEMS) -> list[int]:
        """As `elements`: their addresses."""
        L, t, flags = self.rt.layout, self.rt.target, self.type.flags
        if flags & (LIST | TUPLE):
            count = t.i64(self.address + L["varobj.ob_size"])
            if not 0 <= count <= MAX_ITEMS:
                raise LayoutError(f"the {self.type_name} at {self.address:#x} claims {count} items")
            count = min(count, limit)
            at = self.address + L["tuple.ob_item"] if flags & TUPLE else t.u64(self.address + L["list.ob_item"])
            return list(t.words(at, count)) if count else []
        if flags & DICT:
            return [k for k, _ in self.ordered_entries(limit)]
        if self.isa("set", "frozenset"):
            return self._set_members(limit)
        if self.isa("collections.deque"):
            return self._deque_members(limit)
        raise GdbextError(f"the {self.type_name} at {self.address:#x} cannot be iterated by reading memory")

    def _set_members(self, limit: int) -> list[int]:
        L, t = self.rt.layout, self.rt.target
        mask = t.u64(self.address + L["set.mask"])
        if mask > MAX_ITEMS * 4:
            raise LayoutError(f"the set at {self.address:#x} claims {mask + 1} places")
        table = t.words(t.u64(self.address + L["set.table"]), 2 * (mask + 1))
        found = []
        for key, hash_ in zip(table[::2], table[1::2]):
            if key and hash_ != (1 << 64) - 1:  # hash -1 marks the dummy of a deleted member
                found.append(key)
                if len(found) >= limit:
                    break
        return found

    def _deque_members(self, limit: int) -> list[int]:
        L, t = self.rt.layout, self.rt.target
        count = t.i64(self.address + L["varobj.ob_size"])
        if not 0 <= count <= MAX_ITEMS:
            raise LayoutError(f"the deque at {self.address:#x} claims {count} items")
        block, index = t.u64(self.address + L["deque.leftblock"]), t.u64(self.address + L["deque.leftindex"])
        found: list[int] = []
        count = min(count, limit)
        while len(found) < count:
            if index > DEQUE_BLOCK:
                raise LayoutError(f"the deque at {self.address:#x} is damaged: index {index}")
            words = t.words(block, DEQUE_BLOCK + 2)
            found += words[1 + index : 1 + DEQUE_BLOCK][: count - len(found)]
            block, index = words[DEQUE_BLOCK + 1], 0
        return found

    def ordered_entries(self, limit: int = MAX_ITEMS) -> list[tuple[int, int]]:
        """`dict_entries` in the order of iteration. For an OrderedDict that is the order of its linked list of nodes."""
        if not self.isa("collections.OrderedDict"):
            return self.dict_entries(limit)
        L, t = self.rt.layout, self.rt.target
        held, node = dict(self.dict_entries()), t.u64(self.address + L["odict.od_first"])
        order: list[int] = []
        while node and len(order) < min(len(held), limit):
            order.append(t.u64(node + L["odictnode.key"]))
            node = t.u64(node + L["odictnode.next"])
        return [(k, held[k]) for k in order if k in held]

    def range(self) -> Any:
        """The equal `range` of a range."""
        if not self.isa("range"):
            raise LayoutError(f"the {self.type_name} at {self.address:#x} is no range")
        L, t = self.rt.layout, self.rt.target
        return range(*(self.rt.object(t.u64(self.address + L[f"range.{k}"])).integer() for k in ("start", "stop", "step")))

    def dict_entries(self, limit: int = MAX_ITEMS) -> list[tuple[int, int]]:
        """`[(key address, value address)]` of a dict in its own order."""
        self._need(DICT, "dict")
        L, t = self.rt.layout, self.rt.target
        keys, values = t.u64(self.address + L["dict.ma_keys"]), t.u64(self.address + L["dict.ma_values"])
        return self.rt.dialect.dict_entries(self.rt, keys, values, limit)

    def array_numbers(self, start: int, stop: int) -> tuple[str, list[Any]]:
        """(type code, the elements from `start` to `stop` as plain numbers) of an array.array. The code names their width."""
        L, t = self.rt.layout, self.rt.target
        descr = t.u64(self.address + L["array.ob_descr"])
        code = chr(t.u8(descr + L["arraydescr.typecode"]))
        stop = min(stop, self.len())
        if code not in "bBuwhHiIlLqQfd" or not 0 <= self.len() < 1 << 40:
            raise LayoutError(f"no array.array at {self.address:#x}")
        plain = {"l": "q", "L": "Q", "u": "I", "w": "I"}.get(code, code)
        step = struct.calcsize("<" + plain)
        if step != t.i32(descr + L["arraydescr.itemsize"]):
            raise LayoutError(f"the array.array at {self.address:#x} has elements of another width than its type code says")
        if start >= stop:
            return code, []
        raw = t.read(t.u64(self.address + L["array.ob_item"]) + start * step, (stop - start) * step)
        return code, list(struct.unpack(f"<{stop - start}{plain}", raw))

    def items(self, limit: int = MAX_ITEMS) -> list[tuple[Object, Object]]:
        """`[(Object, Object)]` of a dict (or a mappingproxy of one) in the order of iteration."""
        if self.isa("mappingproxy"):
            return self.rt.object(self.rt.target.u64(self.address + self.rt.layout["mappingproxy.mapping"])).items(limit)
        return [(self.rt.object(k), self.rt.object(v)) for k, v in self.ordered_entries(limit)]

    def item(self, key: Any) -> Any:
        """`self[key]` of a dict by a plain Python key, of a list, tuple or deque by index; `NotFoundError` otherwise."""
        if self.type.flags & DICT or self.isa("mappingproxy"):
            if isinstance(key, str) and len(key) <= MAX_NAME and self.type.flags & DICT:
                held = (self.rt.object(value) for _, value in named(self.rt, self.dict_entries(), (key,)))
            else:
                held = (v for k, v in self.items() if k.equals(key))
            for value in held:
                return value
            raise NotFoundError(f"the {self.type_name} at {self.address:#x} has no key {brief(key)}")
        if not isinstance(key, int):
            raise GdbextError(f"the {self.type_name} at {self.address:#x} has no items by {type(key).__name__}")
        count = self.len()
        if not -count <= key < count:
            raise NotFoundError(f"index {key} is outside the {self.type_name} of {count} at {self.address:#x}")
        index = key + count if key < 0 else key
        if self.isa("array.array"):
            return self.array_numbers(index, index + 1)[1][0]
        L, t, flags = self.rt.layout, self.rt.target, self.type.flags
        if flags & (LIST | TUPLE):  # one element, however long the list is
            at = self.address + L["tuple.ob_item"] if flags & TUPLE else t.u64(self.address + L["list.ob_item"])
            return self.rt.object(t.u64(at + 8 * index))
        found = self.element_addresses(index + 1)
        if len(found) <= index:
            raise LayoutError(f"the {self.type_name} at {self.address:#x} claims {count} items and has {len(found)}")
        return self.rt.object(found[index])

    def equals(self, plain: Any) -> bool:
        """Whether it equals a plain Python value (str, bytes, int, float, bool, None, or a tuple of those)."""
        try:
            if isinstance(plain, Object):
                return self.address == plain.address or bool(self.plain() == plain.plain())
            if isinstance(plain, str):  # the length first: most keys of a dict are not even as long
                length = self.rt.target.u64(self.address + self.rt.layout["ascii.length"])
                return length == len(plain) and bool(self.type.flags & STR) and self.string() == plain
            return bool(self.plain() == plain)
        except GdbextError:  # an object of another kind: the usual answer, not a loss
            return False

    def plain(self, depth: int = 8) -> Any:
        """The equal Python value of a None, bool, int, float, str or bytes, or of a tuple of these at most `depth` deep;
        `GdbextError` for any other object."""
        flags, name = self.type.flags, self.type.builtin_name
        if name == "NoneType":
            return None
        if name == "bool":
            return self.boolean()
        if flags & LONG:
            return self.integer()
        if flags & STR:
            return self.string()
        if flags & BYTES:
            return self.raw_bytes()
        if self.isa("float"):
            return self.floating()
        if flags & TUPLE and depth:
            return tuple(o.plain(depth - 1) for o in self.elements(10000))
        adapter = self.adapter
        if adapter is not None:
            value = adapter.plain()
            if value is not NotImplemented:
                return value
        raise GdbextError(f"the {self.type_name} at {self.address:#x} has no plain value")

    # ---- attributes ----------------------------------------------------------------------------------------------
    def instance_entries(self) -> list[tuple[str, int]]:
        """`[(name, address)]` of the instance's own `__dict__`, wherever this CPython keeps it; [] when it has none."""
        return self.rt.dialect.instance_entries(self.rt, self)

    def fields(self) -> list[tuple[str, Any]]:
        """`[(name, value)]`: instance dict, then slots that are set. Values are `Object`s or plain numbers and strings."""
        found = [(n, self.rt.object(a)) for n, a in self.instance_entries()]
        if self.type.is_heap:
            taken = {"__weakref__", "__dict__", *(n for n, _ in found)}
            for name, (offset, kind) in sorted(self.type.slots.items(), key=lambda s: s[1][0]):
                if name not in taken:
                    value = self._member(offset, kind)
                    if value is not None:
                        found.append((name, value))
        return found

    def _member(self, offset: int, kind: int) -> Any:
        t = self.rt.target
        if kind in MEMBER_OBJECT:
            pointer = t.u64(self.address + offset)
            return self.rt.object(pointer) if pointer else None
        if kind == MEMBER_STRING:
            pointer = t.u64(self.address + offset)
            return t.cstring(pointer).decode("utf-8", "replace") if pointer else None
        code = MEMBER_CODES.get(kind)
        return struct.unpack(code, t.read(self.address + offset, struct.calcsize(code)))[0] if code else None

    def metaclass_member(self, name: str) -> Any:
        """For a class: the C member that its metaclass defines; `NotFoundError` where it defines none that is set."""
        slots = self.type.slots
        found = self._member(*slots[name]) if name in slots else None
        if found is None:
            raise NotFoundError(f"the class at {self.address:#x} has no {name}")
        return found

    def attr(self, name: str) -> Any:
        """`self.name` by reading: instance dict, slots, class attributes along the MRO, a property's backing field `_name`.

        -> `Object`, or a plain value for C members that are no objects. `NotFoundError` when there is none; `GdbextError`
        for a property that only running code could answer.
        """
        adapter = self.adapter
        if adapter is not None:
            known = adapter.attribute(name)
            if known is not NotImplemented:
                return known
        own = dict(self.instance_entries())
        if name in own:
            return self.rt.object(own[name])
        special = self._special(name, own)
        if special is not NotImplemented:
            return special
        if self.type.flags & TYPE:
            found = self.rt.type(self.address).lookup(name)
            if found is not None:
                return self._of_class(self.rt.object(found))
        found = self.type.lookup(name)
        if found is None:
            found_there = adapter.missing_attribute(name) if adapter is not None else NotImplemented
            if found_there is not NotImplemented:
                return found_there
            self.rt.target.missed(self.type, name)
            text, names = f"the {self.type_name} at {self.address:#x} has no attribute {name}", [*own, *self.type.slots]
            raise MissingError(text, lambda: _close_to(name, names))
        return self._described(name, self.rt.object(found), own)

    def _of_class(self, value: Object) -> Any:
        """A class's own attribute as access through the class gives it: itself, or the object that a staticmethod wraps."""
        if value.type.builtin_name == "staticmethod":
            return self.rt.object(self.rt.target.u64(value.address + self.rt.layout["object.__size"]))
        return value

    def _described(self, name: str, value: Object, own: dict[str, int]) -> Any:
        """The value of an attribute whose class entry is `value`: a C member, a getset, a property's backing field, or `value`
        itself."""
        kind, slots = value.type.builtin_name, self.type.slots
        if kind == "member_descriptor" and name in slots:
            member = self._member(*slots[name])
            if member is None:
                raise NotFoundError(f"the slot {name} of the {self.type_name} at {self.address:#x} is not set")
            return member
        if kind in ("getset_descriptor", "member_descriptor"):
            known = getsets.read(self, name)
            if known is NotImplemented:
                raise GdbextError(
                    f"{name} of the {self.type_name} at {self.address:#x} is computed by a call, which reading cannot make"
                )
            return known
        if kind == "staticmethod":
            return self._of_class(value)
        if is_property(value):
            for backing in self.backing_names(name):
                if backing in own:
                    return self.rt.object(own[backing])
                if backing in slots:
                    member = self._member(*slots[backing])
                    if member is not None:
                        return member
            raise GdbextError(
                f"{name} of the {self.type_name} at {self.address:#x} is a property that only running its code can answer"
            )
        return value

    def backing_names(self, name: str) -> tuple[str, ...]:
        """The fields that a property of this name is likely to return."""
        return "_" + name, f"_{name}_", f"_{self.type.name.lstrip('_')}__{name}"

    def _special(self, name: str, own: dict[str, int]) -> Any:
        if name == "__class__":
            return self.rt.object(self.type.address)
        if name == "__dict__":
            pointer = self.rt.dialect.dict_pointer(self.rt, self)
            if pointer:
                return self.rt.object(pointer)
            if own:
                return {n: self.rt.object(a) for n, a in own.items()}
        if self.type.flags & TUPLE and self.type.is_heap:
            names = self.namedtuple_fields()
            if name in names:
                return self.item(names.index(name))
        if self.type.flags & TYPE and name in ("__name__", "__qualname__", "__module__", "__mro__"):
            return getsets.read(self, name)
        return NotImplemented

    def namedtuple_fields(self) -> list[str]:
        """The field names of a namedtuple, [] for any other tuple."""
        found = self.type.lookup("_fields")
        try:
            return [o.string(MAX_NAME) for o in self.rt.object(found).elements(1000)] if found else []
        except GdbextError as e:
            log.passed_over(e)
            return []


def _close_to(name: str, among: Iterable[str]) -> str:
    """Names close to that of a missing attribute, or the names that exist."""
    import difflib  # only here: 10 ms that a start of gdb need not spend

    names = [n for n in among if n.isidentifier()]
    close = difflib.get_close_matches(name, names, 3)
    if close:
        return "; did you mean " + ", ".join(close) + "?"
    return f"; it has {', '.join(names[:12])}{', …' if len(names) > 12 else ''}" if names else ""


def is_property(value: Object) -> bool:
    """Whether a class attribute is a property: Python's own, or of a type with such a name."""
    return value.isa("property", "functools.cached_property") or bool(
        value.type.lookup("__get__") and "property" in value.type_name.lower()
    )
