"""Arrays of jax and cupy: their type, shape and dtype, and where their data are. Their elements are not read.

Both keep these in fields of a C++ object, which no table of offsets describes. They are found among the object's words by what
they must be: a jax array has one `ShapedArray` (jaxlib, py_array.h: PyArray_Storage), a cupy array a numpy dtype, a
MemoryPointer, and two vectors of as many numbers, of which those of the shape multiply to the size in front of them
(cupy/_core/core.pxd: _ndarray_base; cupy/cuda/memory.pxd: MemoryPointer).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ... import log
from ...access.model import PAGE
from ...errors import GdbextError, LayoutError
from ...render.text import escape
from ..adapters import Adapter
from . import numpy_dtypes, numpy_objects

if TYPE_CHECKING:
    from ..reprs import Repr

WORDS = 32  # of an object, in which the fields are
MAX_DIMENSIONS = 64


class DeviceArray(Adapter):
    """`shape`; `dtype`, a name; `place`, text."""

    library = ""
    reprs = None  # the text is a description: the class's own repr shows elements

    def fields(self) -> tuple[tuple[int, ...], str, str]:
        """(shape, dtype, place); `LayoutError` where these are not found."""
        raise NotImplementedError

    def text(self, printer: Repr, depth: int) -> str:
        shape, dtype, place = self.fields()
        return f"<{self.library}.{escape(self.own.type.name)} shape {shape} {dtype} {place}>"

    def attribute(self, name: str) -> Any:
        if name not in ("shape", "dtype", "ndim", "size"):
            return NotImplemented
        shape, dtype, _ = self.fields()
        return {"shape": shape, "dtype": dtype, "ndim": len(shape), "size": math.prod(shape)}[name]

    def length(self) -> Any:
        shape = self.fields()[0]
        return shape[0] if shape else NotImplemented

    def _held(self) -> list[tuple[int, str]]:
        """[(index of a word, full name of the type of the object it points to)]; no other words."""
        obj, found = self.object, []
        assert obj is not None
        for i, word in enumerate(self._words()):
            if i > 1 and word >= PAGE and not word & 7 and not word >> 47:
                try:
                    found.append((i, obj.rt.object(word).type.full_name))
                except (GdbextError, UnicodeError) as e:
                    log.note("no object at %#x: %s", word, e)
        return found

    def _words(self) -> tuple[int, ...]:
        obj = self.own
        size = obj.rt.target.u64(obj.type.address + obj.rt.layout["type.tp_basicsize"])
        return obj.rt.target.words(obj.address, min(size // 8, WORDS))

    def _dtype(self, address: int) -> str:
        return numpy_dtypes.kind_at(self.own.rt, address, numpy_objects.version(self.own.rt) >= (2,)).name

    def _unknown(self) -> LayoutError:
        obj = self.own
        return LayoutError(f"the {escape(obj.type.full_name)} at {obj.address:#x} does not have the fields that are known of it")


class JaxArray(DeviceArray):
    """A `jaxlib` ArrayImpl."""

    library = "jax"

    def fields(self) -> tuple[tuple[int, ...], str, str]:
        obj, words, held = self.object, self._words(), self._held()
        assert obj is not None
        avals = [words[i] for i, name in held if name.endswith(".ShapedArray")]
        if len(set(avals)) != 1:
            raise self._unknown()
        aval = obj.rt.object(avals[0])
        shape = tuple(n.integer() for n in aval.attr("shape").elements(MAX_DIMENSIONS))
        sharding = next((name.rpartition(".")[2] for _, name in held if name.endswith("Sharding")), "")
        place = f"at {obj.address:#x}" + (f" with a {escape(sharding)}" if sharding else "")
        return shape, self._dtype(aval.attr("dtype").address), place


class CupyArray(DeviceArray):
    """A cupy ndarray, or an instance of a subclass."""

    library = "cupy"

    def fields(self) -> tuple[tuple[int, ...], str, str]:
        obj, words, held = self.object, self._words(), self._held()
        assert obj is not None
        pointers = [words[i] for i, name in held if name.endswith(".MemoryPointer")]
        dtypes = [words[i] for i, name in held if name.startswith("numpy.dtype")]
        shape = next(filter(None, (self._shape(words, i) for i in range(2, len(words) - 6))), None)
        if len(pointers) != 1 or len(dtypes) != 1 or shape is None:
            raise self._unknown()
        at, device = obj.rt.target.u64(pointers[0] + 24), obj.rt.target.i32(pointers[0] + 32)
        return shape[0], self._dtype(dtypes[0]), f"at {at:#x} on device {device}"

    def _shape(self, words: tuple[int, ...], i: int) -> tuple[tuple[int, ...]] | None:
        """(the shape,) where word `i` is an array's size, and two vectors follow: the shape and the strides."""
        sizes = [words[at + 1] - words[at] for at in (i + 1, i + 4)]
        ordered = all(words[at] <= words[at + 1] <= words[at + 2] and not words[at] & 7 for at in (i + 1, i + 4))
        if not ordered or sizes[0] != sizes[1] or sizes[0] & 7 or sizes[0] > 8 * MAX_DIMENSIONS:
            return None
        try:
            shape = self.own.rt.target.words(words[i + 1], sizes[0] // 8) if sizes[0] else ()
        except GdbextError as e:
            log.passed_over(e)
            return None
        return (shape,) if math.prod(shape) == words[i] else None
