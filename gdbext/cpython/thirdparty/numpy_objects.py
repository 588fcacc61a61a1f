"""numpy scalars and arrays in a process's memory; no numpy is needed here.

Layout: numpy/core/include/numpy/ndarraytypes.h `PyArrayObject_fields` and `PyArray_Descr`, the same from numpy 1.7 to 2.x up to
`type_num`; the item's size follows from the type number, so the fields that moved in 2.0 are not needed.
"""

import struct

from ...errors import FaultError, GdbextError
from ...render.text import escape
from . import numpy_text

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
_BY_NAME = {name: code for name, code in DTYPES.values()}
_BY_NAME.update({"bool_": "?", "int_": "q", "uint": "Q", "longlong": "q", "ulonglong": "Q", "intc": "i", "uintc": "I"})


class Array:
    """An ndarray: `shape` and `strides` (bytes) tuples, `dtype` name or "type N", `code` of struct or None, `data` address."""

    def __init__(self, shape, strides, dtype, code, data):
        self.shape, self.strides, self.dtype, self.code, self.data = shape, strides, dtype, code, data

    @property
    def size(self):
        total = 1
        for n in self.shape:
            total *= n
        return total


def _header(obj):
    return obj.rt.layout["object.__size"]


def is_array(obj):
    return obj.isa("numpy.ndarray")


def read_array(obj):
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


def values(obj, limit=100_000):
    """The elements of an array as nested lists, at most `limit`; `GdbextError` for types without plain values."""
    array = read_array(obj)
    if array.code is None:
        raise GdbextError(f"the numpy array at {obj.address:#x} holds {array.dtype}, which has no plain values here")
    if array.size > limit:
        raise GdbextError(f"the numpy array at {obj.address:#x} has {array.size} elements, more than {limit}")
    target, width = obj.rt.target, struct.calcsize("<" + array.code)

    def walk(at, depth):
        if depth == len(array.shape):
            return struct.unpack("<" + array.code, target.read(at, width))[0]
        count, step = array.shape[depth], array.strides[depth]
        if depth == len(array.shape) - 1 and step == width and count:
            return list(struct.unpack(f"<{count}{array.code}", target.read(at, count * width)))
        return [walk(at + i * step, depth + 1) for i in range(count)]

    return walk(array.data, 0)


def item(obj, index):
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


def scalar(obj):
    """The plain value of a numpy scalar (numpy.int64(3) -> 3), None for anything else."""
    name = obj.type.builtin_name
    if not name.startswith("numpy."):
        return None
    code = _BY_NAME.get(name[6:])
    if code is None:
        return None
    return struct.unpack("<" + code, obj.rt.target.read(obj.address + _header(obj), struct.calcsize("<" + code)))[0]


def _version(rt):
    """numpy's version as a tuple of ints; the newest there is where it cannot be told."""

    def read():
        module = rt.module("numpy")
        try:
            return tuple(int(p) for p in module.item("__version__").string(60).split(".")[:2]) if module is not None else (99,)
        except (GdbextError, ValueError):
            return (99,)

    return rt.target.cached("numpy version", read)


def _modern(rt):
    """numpy 2 writes np.float64(1.5) where 1.x wrote 1.5."""
    return _version(rt) >= (2,)


def _shortest(value, code):
    """The shortest text that gives the same float of this width back."""
    if code == "d" or value != value or value in (float("inf"), float("-inf")):
        return repr(value)
    for digits in range(1, 18):
        text = repr(float(f"{value:.{digits}g}"))
        try:
            if struct.pack("<" + code, float(text)) == struct.pack("<" + code, value):
                return text
        except OverflowError:  # rounded up out of this width
            continue
    return repr(value)


def wrapped(obj, text):
    """`text`, the repr of a str or bytes; as numpy writes it where `obj` is one of numpy's."""
    name = obj.type.builtin_name
    return f"np.{name[6:]}({text})" if name in ("numpy.str_", "numpy.bytes_") and _modern(obj.rt) else text


def _complex_text(obj):
    """The repr of a numpy complex scalar, '' for anything else."""
    name = obj.type.builtin_name
    code = {"numpy.complex64": "f", "numpy.complex128": "d"}.get(name)
    if code is None:
        return ""
    parts = struct.unpack(f"<2{code}", obj.rt.target.read(obj.address + _header(obj), 2 * struct.calcsize("<" + code)))
    real, imaginary = (_shortest(v, code)[:-2] if _shortest(v, code).endswith(".0") else _shortest(v, code) for v in parts)
    sign = "" if imaginary.startswith("-") else "+"
    text = f"{imaginary}j" if real == "0" else f"{real}{sign}{imaginary}j"
    if _modern(obj.rt):
        return f"np.{name[6:]}({text})"
    return text if real == "0" else f"({text})"


def shown(obj, items=40):
    """The repr of a numpy scalar or of an array of at most `items` plain numbers, a description of any other array, '' for anything
    else."""
    try:
        value = scalar(obj)
        if value is not None:
            code = _BY_NAME[obj.type.builtin_name[6:]]
            text = (
                numpy_text.number(value, code, _version(obj.rt), _shortest(value, code))
                if isinstance(value, float)
                else repr(value)
            )
            name = "bool" if code == "?" else obj.type.builtin_name[6:]
            if not _modern(obj.rt):
                return text
            return f"np.{text}_" if code == "?" else f"np.{name}({text})"
        if is_array(obj):
            return _array_text(obj, items)
        return _complex_text(obj)
    except (FaultError, struct.error):
        pass
    return ""


def _array_text(obj, items):
    array, name = read_array(obj), escape(obj.type.name)
    if array.code is None or array.size > min(items, SUMMARIZED):
        return f"<numpy.{name} shape {array.shape} {array.dtype} at {array.data:#x}>"
    held = values(obj) if array.size else []
    return numpy_text.text(
        "array" if name == "ndarray" else name, array.shape, array.dtype, array.code, held, _version(obj.rt), _shortest
    )
