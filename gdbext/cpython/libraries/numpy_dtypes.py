"""numpy's dtypes in a process's memory: the kind of an array's elements.

Layout: numpy/core/include/numpy/ndarraytypes.h: `PyArray_Descr` of numpy 1.x; `PyArray_Descr` and `_PyArray_LegacyDescr` of 2.x.
Both are the same up to `type_num`. `PyArray_ArrayDescr` and `PyArray_DatetimeDTypeMetaData` are the same in all. `Kind.spec` is
an argument for `numpy.dtype()`, so that numpy itself gives the elements and their text.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable

from ...errors import GdbextError
from ...render.text import escape
from . import ml_dtypes

if TYPE_CHECKING:
    from ..runtime import Runtime

NAMES = {
    0: "bool",
    1: "int8",
    2: "uint8",
    3: "int16",
    4: "uint16",
    5: "int32",
    6: "uint32",
    7: "int64",
    8: "uint64",
    9: "longlong",
    10: "ulonglong",
    11: "float32",
    12: "float64",
    13: "longdouble",
    14: "complex64",
    15: "complex128",
    16: "clongdouble",
    17: "object",
    18: "bytes",
    19: "str",
    20: "void",
    21: "datetime64",
    22: "timedelta64",
    23: "float16",
}
LONG = {"longdouble": 13, "float128": 13, "clongdouble": 16, "complex256": 16}  # by the names of their scalars
_CODES = {9: "q", 10: "Q", 13: "g", 16: "G"}  # types whose width is another type's too: numpy tells them apart
_UNITS = ("Y", "M", "W", "", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "generic")
_FIELDS = {  # behind the object's head: (elsize, its bytes, subarray, fields, names, c_metadata)
    False: (16, 4, 24, 32, 40, 64),
    True: (24, 8, 72, 80, 88, 96),
}
_ALIGNED = 0x80  # NPY_ALIGNED_STRUCT
STRINGS = 2056  # NPY_VSTRING: text of any length
MAX_FIELDS, MAX_DEPTH, MAX_SIZE = 4096, 32, 1 << 31


class Kind:
    """The kind of an element.

    `number`: numpy's type number; `name`; `order`: "<" or ">"; `size` in bytes. `fields`: `[(name, Kind, offset)]` of a
    structured one. `shape` and `element`: of an element that is itself an array. `spec`: for `numpy.dtype()`, None for types that
    numpy does not define. `decode`: of such a type that is known here, makes numbers of bytes.
    """

    def __init__(self, number: int, name: str, order: str, size: int, spec: Any) -> None:
        self.number, self.name, self.order, self.size, self.spec = number, name, order, size, spec
        self.fields: list[tuple[str, Kind, int]] = []
        self.shape: tuple[int, ...] = ()
        self.element = self
        self.decode: Callable[[bytes], list[Any]] | None = None


def kind_at(rt: Runtime, descr: int, second: bool, depth: int = 0) -> Kind:
    """The `Kind` of the PyArray_Descr at an address; `second`: numpy 2. `GdbextError` where it makes no sense."""
    t, head = rt.target, descr + rt.layout["object.__size"]
    number = t.i32(head + 12)
    order = ">" if t.u8(head + 10) == ord(">") else "<"
    at, width, subarray, fields, names, metadata = _FIELDS[second]
    size = t.u64(head + at) if width == 8 else t.i32(head + at)
    if not 0 <= size < MAX_SIZE or depth > MAX_DEPTH:
        raise GdbextError(f"the numpy dtype at {descr:#x} claims elements of {size} bytes")
    if number not in NAMES:
        scalar = rt.type(t.u64(head))
        found = Kind(number, "StringDType" if number == STRINGS else escape(scalar.name), order, size, None)
        found.decode = ml_dtypes.decoder(scalar.full_name) if order == "<" else None
        return found
    name = NAMES[number]
    letter = {0: "b", 17: "O", 18: "S", 19: "U", 20: "V", 21: "M", 22: "m"}.get(number) or chr(t.u8(head + 8))
    if number in (21, 22):
        told = t.u64(head + metadata)  # a NpyAuxData, with a head of 32 bytes
        unit = unit_at(rt, told + 32) if told else ""
        name += f"[{unit}]" if unit else ""
        return Kind(number, order * (order == ">") + name, order, size, f"{order}{letter}8" + (f"[{unit}]" if unit else ""))
    if number == 20:
        if t.u64(head + subarray):
            return _array(rt, t.u64(head + subarray), second, size, depth)
        if t.u64(head + names):
            aligned = bool((t.u64(head + 16) if second else t.u8(head + 11)) & _ALIGNED)
            found = _structured(rt, (t.u64(head + fields), t.u64(head + names)), second, size, depth)
            if found.spec is not None:
                found.spec["aligned"] = aligned
            return found
    if number in (18, 19, 20):
        shown = f"{order}U{size // 4}" if number == 19 else f"{letter}{size}"
        return Kind(number, shown, order, size, f"{order}U{size // 4}" if number == 19 else f"|{letter}{size}")
    if number in _CODES:
        return Kind(number, name, order, size, order + _CODES[number] if number < 13 or native(rt) else None)
    return Kind(number, name, order, size, f"{order}{letter}{size}")


def native(rt: Runtime) -> bool:
    """Whether a long double of the process has the format of ours: it depends on the machine."""
    return os.uname().machine.replace("_", "-") == rt.target.arch


def unit_at(rt: Runtime, at: int) -> str:
    """ "25us" of the PyArray_DatetimeMetaData at an address; '' for a generic one."""
    unit, count = rt.target.i32(at), rt.target.i32(at + 4)
    if not 0 <= unit < len(_UNITS) or not _UNITS[unit]:
        raise GdbextError(f"numpy's unit of time at {at:#x} is {unit}")
    name = _UNITS[unit]
    return "" if name == "generic" else name if count == 1 else f"{count}{name}"


def _array(rt: Runtime, subarray: int, second: bool, size: int, depth: int) -> Kind:
    """An element that is an array: `base` and `shape` of a PyArray_ArrayDescr."""
    base = kind_at(rt, rt.target.u64(subarray), second, depth + 1)
    held = rt.object(rt.target.u64(subarray + 8))
    shape = tuple(n.integer() for n in held.elements(64)) if held.isa("tuple") else (held.integer(),)
    found = Kind(20, f"{base.name}{list(shape)}", base.order, size, (base.spec, shape) if base.spec else None)
    found.element, found.shape = base, shape
    return found


def _structured(rt: Runtime, places: tuple[int, int], second: bool, size: int, depth: int) -> Kind:
    """An element with fields; `places`: of the dict of its fields, the tuple of their names."""
    held = {key.string(1000): value for key, value in rt.object(places[0]).items(2 * MAX_FIELDS) if key.isa("str")}
    parts: list[tuple[str, Kind, int]] = []
    titles: list[str | None] = []
    for one in rt.object(places[1]).elements(MAX_FIELDS):
        name = one.string(1000)
        if name not in held:
            raise GdbextError(f"the numpy dtype has no field {escape(name)}")
        told = held[name].elements(3)
        titles.append(told[2].string(1000) if len(told) > 2 and told[2].isa("str") else None)
        parts.append((name, kind_at(rt, told[0].address, second, depth + 1), told[1].integer()))
    spec: Any = {
        "names": [name for name, _, _ in parts],
        "formats": [kind.spec for _, kind, _ in parts],
        "offsets": [offset for _, _, offset in parts],
        "itemsize": size,
    }
    if any(titles):
        spec["titles"] = titles
    if not all(kind.spec for _, kind, _ in parts):
        spec = None
    found = Kind(20, "{" + ", ".join(f"{escape(name)}: {kind.name}" for name, kind, _ in parts) + "}", "<", size, spec)
    found.fields = parts
    return found
