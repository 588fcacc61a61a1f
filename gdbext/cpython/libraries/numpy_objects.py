"""numpy scalars and arrays in a process's memory. numpy itself is only used to print them as it does, where it is here.

Layout: numpy/core/include/numpy/ndarraytypes.h `PyArrayObject_fields`; of dtypes see `numpy_dtypes`.
"""

from __future__ import annotations

import itertools
import re
import struct
from typing import TYPE_CHECKING, Any, Iterator

from ...errors import GdbextError, NotFoundError
from ...render.text import escape
from ..adapters import Adapter
from ..objects import Object
from .numpy_dtypes import LONG, Kind, kind_at, native, unit_at

if TYPE_CHECKING:
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
    14: ("complex64", "ff"),
    15: ("complex128", "dd"),
    23: ("float16", "e"),
}
OBJECT = 17  # numpy's number of the type
EDGE = 3  # elements at each end of a dimension that numpy shows of a long array
MAX_DIMENSIONS = 64
MAX_ELEMENTS = 100_000
SUMMARIZED = 1000  # numpy itself leaves the middle of a longer array out
_BY_NAME = dict(DTYPES.values())
_BY_NAME.update({"bool_": "?", "int_": "q", "uint": "Q", "longlong": "q", "ulonglong": "Q", "intc": "i", "uintc": "I"})
_SHOWN = {"longlong": "int64", "ulonglong": "uint64", "float128": "longdouble", "complex256": "clongdouble"}  # by numpy 2
_TIMES = {"datetime64": "M8", "timedelta64": "m8"}
_COMPLEX = {"complex64": "f", "complex128": "d"}


class Array:
    """An ndarray, or a part of one: `shape` and `strides` (bytes) tuples, `kind`: its `Kind`, `data` address.

    `dtype`: its name; `code`: struct codes of an element, None for no number; `order`: "<" or ">"."""

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], kind: Kind, data: int) -> None:
        self.shape, self.strides, self.kind, self.data = shape, strides, kind, data
        known: tuple[str, str | None] = DTYPES.get(kind.number, (kind.name, None))
        name, self.code = known
        self.order = kind.order
        self.dtype = ">" + name if self.code is not None and kind.order == ">" else name

    def part(self, key: Any) -> Array:
        """The result of basic indexing: ints, slices and ... for dimensions. One element has a shape of (). The name of a field
        selects that field of each element. `NotFoundError` outside of it."""
        if isinstance(key, str) and self.kind.fields:
            return self._field(key)
        keys = list(key) if isinstance(key, tuple) else [key]
        if any(k is not Ellipsis and not isinstance(k, (int, slice)) or isinstance(k, bool) for k in keys):
            raise GdbextError("a numpy array is indexed by whole numbers, slices and ... here")
        at = next((i for i, k in enumerate(keys) if k is Ellipsis), len(keys))
        given = len(keys) - (at < len(keys))
        if given > len(self.shape):
            raise NotFoundError(f"{given} indices for a numpy array of {len(self.shape)} dimensions")
        keys[at : at + 1] = [slice(None)] * (len(self.shape) - given)
        shape, strides, data = [], [], self.data
        for k, count, step in zip(keys, self.shape, self.strides):
            if isinstance(k, slice):
                places = range(count)[k]
                data += (places.start if places else 0) * step
                shape.append(len(places))
                strides.append(step * places.step)
            elif -count <= k < count:
                data += k % count * step
            else:
                raise NotFoundError(f"index {k} is outside a dimension of {count}")
        return Array(tuple(shape), tuple(strides), self.kind, data)

    def _field(self, name: str) -> Array:
        """Of structured elements one field."""
        found = next((f for f in self.kind.fields if f[0] == name), None)
        if found is None:
            raise NotFoundError(f"no field {name!r} of this numpy array: it has {', '.join(f[0] for f in self.kind.fields[:20])}")
        _, kind, offset = found
        shape, strides = self.shape, self.strides
        while kind.shape:  # an array in each element, and maybe others in that one's
            steps = [kind.element.size]
            for n in kind.shape[:0:-1]:
                steps.insert(0, steps[0] * n)
            shape, strides, kind = shape + kind.shape, strides + tuple(steps), kind.element
        return Array(shape, strides, kind, self.data + offset)

    def raw(self, rt: Runtime, limit: int = MAX_ELEMENTS) -> bytes:
        """The bytes of its elements in row-major order, at most `limit` elements."""
        if self.size > limit:
            raise GdbextError(f"the numpy array at {self.data:#x} has {self.size} elements, more than {limit}")
        width = self.kind.size

        def walk(at: int, depth: int) -> Iterator[bytes]:
            if depth == len(self.shape):
                yield rt.target.read(at, width)
                return
            count, step = self.shape[depth], self.strides[depth]
            if depth == len(self.shape) - 1 and step == width and count:
                yield rt.target.read(at, count * width)
                return
            for i in range(count):
                yield from walk(at + i * step, depth + 1)

        return b"".join(walk(self.data, 0)) if self.size and width else b""

    def elements(self, rt: Runtime, limit: int = MAX_ELEMENTS) -> Any:
        """Its elements as nested lists, at most `limit`; the bare element for a shape of (). `GdbextError` where they are no
        plain numbers."""
        if not self.has_numbers:
            raise GdbextError(f"the numpy array at {self.data:#x} holds {self.dtype}, which has no plain values here")
        if self.size > limit:
            raise GdbextError(f"the numpy array at {self.data:#x} has {self.size} elements, more than {limit}")
        width = self.kind.size

        def walk(at: int, depth: int) -> Any:
            if depth == len(self.shape):
                return self._numbers(rt.target.read(at, width))[0]
            count, step = self.shape[depth], self.strides[depth]
            if depth == len(self.shape) - 1 and step == width and count:
                return self._numbers(rt.target.read(at, count * width))
            return [walk(at + i * step, depth + 1) for i in range(count)]

        return walk(self.data, 0)

    @property
    def has_numbers(self) -> bool:
        """Whether its elements are plain numbers."""
        return self.code is not None or self.kind.decode is not None

    def _numbers(self, blob: bytes) -> list[Any]:
        if self.code is None:
            return self.kind.decode(blob) if self.kind.decode is not None else []
        letter, parts = self.code[0], len(self.code)
        found = struct.unpack(f"{self.order}{len(blob) // struct.calcsize('<' + letter)}{letter}", blob)
        return [complex(*found[i : i + 2]) for i in range(0, len(found), 2)] if parts == 2 else list(found)

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
    return Array(shape, steps, kind_at(obj.rt, descr, version(obj.rt) >= (2,)), data)


def objects(obj: Object) -> Iterator[tuple[tuple[int, ...], int]]:
    """The elements of an array of objects: (indices, address); none of another array, or one whose rows do not follow each
    other."""
    array = read_array(obj)
    steps: list[int] = []
    step = 8
    for n in reversed(array.shape):
        steps.insert(0, step)
        step *= n
    if array.kind.number == OBJECT and tuple(steps) == array.strides and array.size <= MAX_ELEMENTS:
        words = obj.rt.target.words(array.data, array.size) if array.size else ()
        yield from zip(itertools.product(*map(range, array.shape)), words)


def values(obj: Object, limit: int = MAX_ELEMENTS) -> Any:
    """The elements of an array as nested lists, at most `limit`; `GdbextError` for types without plain values."""
    return read_array(obj).elements(obj.rt, limit)


def item(obj: Object, index: int) -> Any:
    """One element by an int index of a one-dimensional array."""
    array = read_array(obj)
    if len(array.shape) != 1:
        raise GdbextError(f"the numpy array at {obj.address:#x} has shape {array.shape}: give an index for each dimension")
    return array.part(index).elements(obj.rt)


def scalar(obj: Object) -> Any:
    """The plain value of a numpy scalar (numpy.int64(3) -> 3), None for anything else."""
    name = obj.type.builtin_name
    if not name.startswith("numpy."):
        return None
    code = _BY_NAME.get(name[6:])
    if code is None:
        return None
    return struct.unpack("<" + code, obj.rt.target.read(obj.address + _header(obj), struct.calcsize("<" + code)))[0]


def version(rt: Runtime) -> tuple[int, ...]:
    """numpy's version; the newest known one where it cannot be read."""

    def read() -> tuple[int, ...]:
        try:
            return tuple(int(p) for p in rt.release(("numpy",)).split(".")[:2])
        except ValueError:
            return (99,)

    found: tuple[int, ...] = rt.target.cached("numpy version", read)
    return found


def _numpy() -> Any:
    """numpy, where the Python that runs this has it, else None. It is imported here because it takes longer to load than the
    whole pack."""
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


def _with_addresses(numpy: Any, dtype: Any) -> Any:
    """A numpy dtype with numbers where objects are."""
    if dtype.subdtype:
        return numpy.dtype((_with_addresses(numpy, dtype.subdtype[0]), dtype.shape))
    if not dtype.names:
        return numpy.dtype("<u8") if dtype.hasobject else dtype
    formats = [_with_addresses(numpy, dtype.fields[n][0]) for n in dtype.names]
    offsets = [dtype.fields[n][1] for n in dtype.names]
    return numpy.dtype({"names": dtype.names, "formats": formats, "offsets": offsets, "itemsize": dtype.itemsize})


class _Shown:
    """Prints as an object of the process."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class ScalarAdapter(Adapter):
    """numpy.float32(0.5) and the like, numpy.str_ and numpy.bytes_ too."""

    def plain(self) -> Any:
        found = scalar(self.object) if self.object is not None else None
        return NotImplemented if found is None else found

    def text(self, printer: Repr, depth: int) -> Any:
        obj = self.own
        name = obj.type.builtin_name[6:]
        if name in ("str_", "bytes_"):
            text = printer.string(obj) if name == "str_" else printer.bytes(obj)
        elif name in _COMPLEX:
            text = self._complex(obj, name)
        elif name in _TIMES or name in LONG:
            numpy = None if printer.one_line else _numpy()
            return NotImplemented if numpy is None else self._by_numpy(obj, name, numpy)
        else:
            value = scalar(obj)
            if value is None:
                return NotImplemented
            numpy = None if printer.one_line or not isinstance(value, float) else _numpy()
            code = _BY_NAME[name]
            text = repr(value) if not isinstance(value, float) else _shortest(value, code)
            if numpy is not None:  # it writes large and small ones in ways of its own
                text = str(numpy.dtype(code).type(value))
            if code == "?" and version(obj.rt) >= (2,):
                return f"np.{text}_"
        return f"np.{_SHOWN.get(name, name)}({text})" if version(obj.rt) >= (2,) else text

    def _by_numpy(self, obj: Object, name: str, numpy: Any) -> Any:
        """The text of a date, a duration or a long double: numpy makes it of the bytes. NotImplemented where the long doubles of
        the process have another format than ours."""
        rt, at, new = obj.rt, obj.address + _header(obj), version(obj.rt) >= (2,)
        if name in _TIMES:
            unit = unit_at(rt, at + 8)
            value = numpy.frombuffer(rt.target.read(at, 8), f"{_TIMES[name]}[{unit}]" if unit else _TIMES[name])[0]
            return ("np." if new else "numpy.") + repr(value).partition(".")[2]
        if not native(rt):
            return NotImplemented
        name = _SHOWN.get(name, name)
        dtype = numpy.dtype(name)
        text = str(numpy.frombuffer(rt.target.read(at, dtype.itemsize), dtype)[0])
        return f"np.{name}({text.strip('()')!r})" if new else text

    def _complex(self, obj: Object, name: str) -> str:
        code = _COMPLEX[name]
        parts = struct.unpack(f"<2{code}", obj.rt.target.read(obj.address + _header(obj), 2 * struct.calcsize("<" + code)))
        real, imaginary = (_shortest(v, code)[:-2] if _shortest(v, code).endswith(".0") else _shortest(v, code) for v in parts)
        text = f"{imaginary}j" if real == "0" else f"{real}{'' if imaginary.startswith('-') else '+'}{imaginary}j"
        return text if real == "0" or version(obj.rt) >= (2,) else f"({text})"


class ArrayAdapter(Adapter):
    """An ndarray, or a part of one (`array`): numpy's own text where numpy is here, else its shape, type and few values."""

    type_name = "numpy.ndarray"

    def __init__(self, obj: Object, array: Array | None = None) -> None:
        super().__init__(obj if array is None else None)
        self.held, self.rt = obj, obj.rt
        self._array = array

    @property
    def array(self) -> Array:
        """The `Array` of this ndarray."""
        return self._array if self._array is not None else read_array(self.held)

    def text(self, printer: Repr, depth: int) -> str:
        array, name = self.array, escape(self.held.type.name)
        about = f"numpy.{name} shape {array.shape} {array.dtype} at {array.data:#x}"
        numpy = None if printer.one_line else _numpy()
        if numpy is None:
            if not array.has_numbers or array.size > min(printer.limits.items, SUMMARIZED):
                return f"<{about}>"
            return f"<{about}: {array.elements(self.rt) if array.size else []!r}>"
        if not array.kind.spec and array.kind.decode is None:
            return f"<{about}>"
        text = self._of_numpy(numpy, name, array, printer, depth)
        printer.multiline = printer.multiline or "\n" in text
        return text

    def _of_numpy(self, numpy: Any, name: str, array: Array, printer: Repr, depth: int) -> str:
        """The text of `numpy.array_repr` for a whole array. For a long one, only the elements at its edges are read."""
        decode = array.kind.decode
        dtype = numpy.dtype(array.kind.spec if decode is None else object)
        long = array.size > SUMMARIZED
        shape = tuple(min(n, 2 * EDGE + 1) for n in array.shape) if long else array.shape
        raw = b"".join(self._edges(array)) if long else array.raw(self.rt)
        if decode is not None:
            made = numpy.empty(len(raw) // array.kind.size, object)
            made[:] = [_Shown(f"{value:g}" if isinstance(value, float) else str(value)) for value in decode(raw)]
        elif dtype.hasobject:
            made = self._objects(numpy, dtype, raw, printer, depth)
        else:
            made = numpy.frombuffer(raw, dtype) if raw else numpy.empty(array.size, dtype)
        made = made.reshape(shape) if name == "ndarray" else made.reshape(shape).view(type(name, (numpy.ndarray,), {}))
        if not long:
            text = str(numpy.array_repr(made))
        else:
            with numpy.printoptions(threshold=0, edgeitems=EDGE):
                text = str(numpy.array_repr(made)).replace(f"shape={shape}", f"shape={array.shape}")
        if decode is None:
            return text
        before, extra = re.fullmatch(r"(.*,)\s+((?:shape=\([\d, ]*\), )?dtype=)object\)", text, re.S).groups()  # type: ignore[union-attr]
        extra += f"{array.dtype})" if array.dtype.isalnum() else f"{array.dtype!r})"
        room = numpy.get_printoptions()["linewidth"] - len(before) + before.rfind("\n") + 1
        return before + (" " if len(extra) < room else "\n" + " " * (text.index("(") + 1)) + extra

    def _objects(self, numpy: Any, dtype: Any, raw: bytes, printer: Repr, depth: int) -> Any:
        """Elements that are objects of the process, or have such as fields, replaced by ones with the same text."""
        numbers = numpy.frombuffer(raw, _with_addresses(numpy, dtype))

        def shown(value: Any, of: Any) -> Any:
            if of.names:
                return tuple(shown(value[n], of.fields[n][0]) for n in of.names)
            if of.subdtype:
                return [shown(v, of.subdtype[0]) for v in value.ravel()]
            if not of.hasobject:
                return value
            if not value:
                return _Shown("None")
            held = self.rt.object(int(value))
            text = printer.show(held, depth + 1)
            return _Shown(f"list({text})" if held.type.builtin_name == "list" else text)  # core/arrayprint.py _object_format

        made = numpy.empty(len(numbers), dtype)
        for i, value in enumerate(numbers):
            made[i] = shown(value, dtype)
        return made

    def _edges(self, array: Array) -> Iterator[bytes]:
        """The bytes of the elements that numpy shows of a long array, and of one element where it shows dots."""
        if not array.shape:
            yield array.raw(self.rt)
            return
        count = array.shape[0]
        places = range(count) if count <= 2 * EDGE else [*range(EDGE + 1), *range(count - EDGE, count)]
        for i in places:
            yield from self._edges(array.part(i))

    def attribute(self, name: str) -> Any:
        if name not in ("shape", "strides", "dtype", "size", "ndim", "T"):
            return NotImplemented
        array = self.array
        if name == "T":
            turned = Array(array.shape[::-1], array.strides[::-1], array.kind, array.data)
            return ArrayAdapter(self.held, turned)
        return len(array.shape) if name == "ndim" else getattr(array, name)

    def length(self) -> int:
        shape = self.array.shape
        if not shape:
            raise GdbextError(f"the numpy array at {self.held.address:#x} has no dimension, so no length")
        return int(shape[0])

    def item(self, key: Any) -> Any:
        found = self.array.part(key)
        if not found.shape and found.kind.number == OBJECT and not isinstance(key, str):
            held = self.rt.target.u64(found.data)
            return self.rt.object(held) if held else None
        plain = not found.shape and found.has_numbers and not isinstance(key, str)
        return found.elements(self.rt) if plain else ArrayAdapter(self.held, found)

    def members(self, limit: int) -> list[Any]:
        return [self.item(i) for i in range(min(self.length(), limit))]
