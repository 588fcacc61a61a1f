"""numpy scalars and arrays in a process's memory. numpy itself is only used to print them as it does, where it is here.

Layout: numpy/core/include/numpy/ndarraytypes.h `PyArrayObject_fields` and `PyArray_Descr`, the same from numpy 1.7 to 2.x up to
`type_num`; the item's size follows from the type number, so the fields that moved in 2.0 are not needed.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ...errors import GdbextError
from ...render.text import escape
from ..adapters import Adapter

if TYPE_CHECKING:
    from ..objects import Object
    from ..reprs import Repr
    from ..runtime import Runtime

# type_num -> (name, struct code, bytes)
DTYPES = {
    0: ("bool", "?"),
    1: ("int8", "b"),
    2: ("uint8", "B"),
    3: ("int16", "h"),
    4: ("uint16", "H"),
    5: ("int32", "i"),
    6: ("uint32", "I"),
    7: ("int64", "q"),
    8: ("uint64", "Q"),
    9: ("longlong", "q"),
    10: ("ulonglong", "Q"),
    11: ("float32", "f"),
    12: ("float64", "d"),
    23: ("float16", "e"),
}
MAX_DIMENSIONS = 64
SUMMARIZED = 1000  # numpy itself leaves the middle of a longer array out
_BY_NAME = dict(DTYPES.values())
_BY_NAME.update({"bool_": "?", "int_": "q", "uint": "Q", "longlong": "q", "ulonglong": "Q", "intc": "i", "uintc": "I"})
_COMPLEX = {"complex64": "f", "complex128": "d"}


class Array:
    """An ndarray: `shape` and `strides` (bytes) tuples, `dtype` name or "type N", `code` of struct or None, `data` address."""

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str, code: str | None, data: int) -> None:
        self.shape, self.strides, self.dtype, self.code, self.data = shape, strides, dtype, code, data

    @property
    def size(self) -> int:
        total = 1
        for n in self.shape:
            total *= n
        return total


def _header(obj: Object) -> int:
    return obj.rt.layout["object.__size"]


def is_array(obj: Object) -> bool:
    """Whether an object is a numpy array."""
    return obj.isa("numpy.ndarray")


def read_array(obj: Object) -> Array:
    """`Array` of an ndarray `Object`; `GdbextError` when it is none or makes no sense."""
    if not is_array(obj):
        raise GdbextError(f"the {obj.type_name} at {obj.address:#x} is no numpy array")
    t, at = obj.rt.target, obj.address + _header(obj)
    data, nd, dimensions, strides, _, descr = struct.unpack("<QixxxxQQQQ", t.read(at, 48))
    if not 0 <= nd <= MAX_DIMENSIONS:
        raise GdbextError(f"the numpy array at {obj.address:#x} claims {nd} dimensions")
    shape = struct.unpack(f"<{nd}q", t.read(dimensions, 8 * nd)) if nd else ()
    steps = struct.unpack(f"<{nd}q", t.read(strides, 8 * nd)) if nd else ()
    if any(n < 0 for n in shape):
        raise GdbextError(f"the numpy array at {obj.address:#x} claims the shape {shape}")
    number = t.i32(descr + _header(obj) + 12)
    order = t.u8(descr + _header(obj) + 10)
    name, code = DTYPES.get(number, (f"type {number}", None))
    if order == ord(">"):
        name, code = ">" + name, None
    return Array(shape, steps, name, code, data)


def values(obj: Object, limit: int = 100_000) -> Any:
    """The elements of an array as nested lists, at most `limit`; `GdbextError` for types without plain values."""
    array = read_array(obj)
    code = array.code
    if code is None:
        raise GdbextError(f"the numpy array at {obj.address:#x} holds {array.dtype}, which has no plain values here")
    if array.size > limit:
        raise GdbextError(f"the numpy array at {obj.address:#x} has {array.size} elements, more than {limit}")
    target, width = obj.rt.target, struct.calcsize("<" + code)

    def walk(at: int, depth: int) -> Any:
        if depth == len(array.shape):
            return struct.unpack("<" + code, target.read(at, width))[0]
        count, step = array.shape[depth], array.strides[depth]
        if depth == len(array.shape) - 1 and step == width and count:
            return list(struct.unpack(f"<{count}{code}", target.read(at, count * width)))
        return [walk(at + i * step, depth + 1) for i in range(count)]

    return walk(array.data, 0)


def item(obj: Object, index: int) -> Any:
    """One element by an int index of a one-dimensional array."""
    array = read_array(obj)
    if len(array.shape) != 1 or array.code is None:
        raise GdbextError(
            f"the numpy array at {obj.address:#x} has shape {array.shape}: index it element by element with -save or slices"
        )
    count = array.shape[0]
    if not -count <= index < count:
        raise GdbextError(f"index {index} is outside the numpy array of {count} at {obj.address:#x}")
    at = array.data + (index % count) * array.strides[0]
    return struct.unpack("<" + array.code, obj.rt.target.read(at, struct.calcsize("<" + array.code)))[0]


def scalar(obj: Object) -> Any:
    """The plain value of a numpy scalar (numpy.int64(3) -> 3), None for anything else."""
    name = obj.type.builtin_name
    if not name.startswith("numpy."):
        return None
    code = _BY_NAME.get(name[6:])
    if code is None:
        return None
    return struct.unpack("<" + code, obj.rt.target.read(obj.address + _header(obj), struct.calcsize("<" + code)))[0]


def _version(rt: Runtime) -> tuple[int, ...]:
    """numpy's version; the newest there is where it cannot be told."""

    def read() -> tuple[int, ...]:
        try:
            return tuple(int(p) for p in rt.release(("numpy",)).split(".")[:2])
        except ValueError:
            return (99,)

    found: tuple[int, ...] = rt.target.cached("numpy version", read)
    return found


def _numpy() -> Any:
    """numpy, where the Python that runs this has it, else None. Here and not above: it takes longer to load than all of the
    pack."""
    try:
        import numpy

        return numpy
    except ImportError:
        return None


def _shortest(value: float, code: str) -> str:
    """The shortest text that gives the same float of this width back."""
    if code == "d" or value - value != 0:
        return repr(value)
    for digits in range(1, 18):
        text = repr(float(f"{value:.{digits}g}"))
        try:
            if struct.pack("<" + code, float(text)) == struct.pack("<" + code, value):
                return text
        except OverflowError:  # rounded up out of this width
            continue
    return repr(value)


class ScalarAdapter(Adapter):
    """numpy.float32(0.5) and the like, numpy.str_ and numpy.bytes_ too."""

    def plain(self) -> Any:
        found = scalar(self.object) if self.object is not None else None
        return NotImplemented if found is None else found

    def text(self, printer: Repr, depth: int) -> Any:
        obj = self.object
        assert obj is not None
        name = obj.type.builtin_name[6:]
        if name in ("str_", "bytes_"):
            text = printer.string(obj) if name == "str_" else printer.bytes(obj)
        elif name in _COMPLEX:
            text = self._complex(obj, name)
        else:
            value = scalar(obj)
            if value is None:
                return NotImplemented
            numpy = None if printer.one_line or not isinstance(value, float) else _numpy()
            code = _BY_NAME[name]
            text = repr(value) if not isinstance(value, float) else _shortest(value, code)
            if numpy is not None:  # it writes large and small ones in ways of its own
                text = str(numpy.dtype(code).type(value))
            if code == "?" and _version(obj.rt) >= (2,):
                return f"np.{text}_"
        return f"np.{name}({text})" if _version(obj.rt) >= (2,) else text

    def _complex(self, obj: Object, name: str) -> str:
        code = _COMPLEX[name]
        parts = struct.unpack(f"<2{code}", obj.rt.target.read(obj.address + _header(obj), 2 * struct.calcsize("<" + code)))
        real, imaginary = (_shortest(v, code)[:-2] if _shortest(v, code).endswith(".0") else _shortest(v, code) for v in parts)
        text = f"{imaginary}j" if real == "0" else f"{real}{'' if imaginary.startswith('-') else '+'}{imaginary}j"
        return text if real == "0" or _version(obj.rt) >= (2,) else f"({text})"


class ArrayAdapter(Adapter):
    """An ndarray: numpy's own text where numpy is here and the array is small, else its shape, type and few values."""

    def __init__(self, obj: Object) -> None:
        super().__init__(obj)
        self.held = obj

    def text(self, printer: Repr, depth: int) -> str:
        array, name = read_array(self.held), escape(self.held.type.name)
        about = f"numpy.{name} shape {array.shape} {array.dtype} at {array.data:#x}"
        if array.code is None or array.size > min(printer.limits.items, SUMMARIZED):
            return f"<{about}>"
        numbers = values(self.held) if array.size else []
        numpy = None if printer.one_line else _numpy()
        if numpy is None:
            return f"<{about}: {numbers!r}>"
        made = numpy.array(numbers, dtype=array.dtype).reshape(array.shape)
        text: str = numpy.array_repr(made if name == "ndarray" else made.view(type(name, (numpy.ndarray,), {})))
        printer.multiline = printer.multiline or "\n" in text
        return text

    def attribute(self, name: str) -> Any:
        if name not in ("shape", "strides", "dtype", "size", "ndim"):
            return NotImplemented
        array = read_array(self.held)
        return len(array.shape) if name == "ndim" else getattr(array, name)

    def length(self) -> int:
        shape = read_array(self.held).shape
        if not shape:
            raise GdbextError(f"the numpy array at {self.held.address:#x} has no dimension, so no length")
        return int(shape[0])

    def item(self, key: Any) -> Any:
        return values(self.held)[key] if isinstance(key, slice) else item(self.held, key)

    def members(self, limit: int) -> list[Any]:
        found: list[Any] = values(self.held)
        return found[:limit]
