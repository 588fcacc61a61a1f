"""A tensor's values as numpy arrays, piece by piece, so that a tensor of any size passes through bounded memory.

Needs numpy in the Python that runs this; callers make sure of that (session/optional_packages.py). A `Source` is a box of
elements that can be read in parts: a tensor in memory (`of_tensor`) or in a file (files.py). A *box* is a tuple of slices, one
per dimension. Types that numpy lacks (bfloat16, float8, float4) are decoded here, by a shift or a table of 256 values. ml_dtypes
would be one more package for gdb's Python, for the same numbers.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, Callable, Iterator, Sequence, Tuple

from ..errors import FaultError, GdbextError
from . import dtypes
from .dtypes import DType
from .tensor import SPARSE, Quantizer, Tensor, host_ranges
from .tensor_kinds import sparse_parts

Box = Tuple[slice, ...]

PIECE = 1 << 20  # bytes of memory read at once, and elements decoded at once: a piece stays in the processor's cache
GAP = 1 << 14  # bytes: a gap between elements of a box, up to which the gap is read too
MAX_RUNS = 1 << 16  # pieces of memory that one box may gather
NUMPY = {
    "uint8": "u1",
    "int8": "i1",
    "int16": "i2",
    "int32": "i4",
    "int64": "i8",
    "uint16": "u2",
    "uint32": "u4",
    "uint64": "u8",
    "float16": "f2",
    "float32": "f4",
    "float64": "f8",
    "bool": "?",
    "complex64": "c8",
    "complex128": "c16",
    "qint8": "i1",
    "quint8": "u1",
    "qint32": "i4",
    "bfloat16": "u2",
    "complex32": "u4",
    "bcomplex32": "u4",
}
_FLOAT4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]  # e2m1, OCP Microscaling v1.0; the low half of a byte comes first


def stored_dtype(dtype: DType) -> Any:
    """numpy's dtype of the bytes that a `DType` is stored as; formats that numpy lacks are unsigned integers."""
    import numpy

    return numpy.dtype("<" + NUMPY.get(dtype.name, f"u{dtype.itemsize}"))


class Source:
    """Elements in a box of `shape`, of `dtype`. `name`: for messages. `boxes()` tile it in memory's order; `read(box)` gives the
    stored elements, `numbers(box)` their values.

    `order`: per dimension the distance of neighbours in memory, in elements (default: row-major). `repeated`: the dimensions
    along which every element is the same (stride 0), so that `distinct()` can leave them out. `decode`: a function of (stored,
    box), see `of_tensor`.
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: DType,
        name: str,
        read: Callable[[Box], Any],
        order: Sequence[int] | None = None,
        *,
        repeated: Sequence[int] = (),
        decode: Callable[[Any, Box], Any] | None = None,
    ) -> None:
        self.shape, self.dtype, self.name, self.read = tuple(shape), dtype, name, read
        self.order = row_major(shape) if order is None else tuple(order)
        self.repeated = tuple(repeated)
        self._decode = decode

    def distinct(self, among: Sequence[int] | None = None) -> tuple[Source, int]:
        """-> (this source with one element along each repeated dimension, how many elements each of those stands for).

        `among`: only these of the repeated dimensions.
        """
        left_out = [d for d in self.repeated if self.shape[d] > 1 and (among is None or d in among)]
        if not left_out:
            return self, 1
        shape = [1 if d in left_out else n for d, n in enumerate(self.shape)]
        times = math.prod(self.shape[d] for d in left_out)
        own = Source(shape, self.dtype, self.name, self.read, self.order, repeated=self.repeated, decode=self._decode)
        return own, times

    @property
    def numel(self) -> int:
        """How many elements there are, repeated ones included."""
        return math.prod(self.shape)

    @property
    def is_row_major(self) -> bool:
        """Whether its boxes come one after the other in row-major order."""
        dims = [d for d in memory_order(self.shape, self.order) if self.shape[d] > 1]
        return dims == sorted(dims)

    @property
    def is_stored(self) -> bool:
        """Whether `read` gives the values themselves, in their dtype's own format."""
        return self._decode is None

    def boxes(self) -> Iterator[Box]:
        """Boxes that cover the shape, of bounded size, in the order in which they lie in memory."""
        return _tile(self.shape, self.order, self.dtype.itemsize)

    def numbers(self, box: Box) -> Any:
        """The elements of a box as numbers: bool, ints, float32/float64 or complex, in the box's own shape."""
        stored = self.read(box)
        return self._decode(stored, box) if self._decode else decode(self.dtype, stored)


def memory_order(shape: Sequence[int], order: Sequence[int]) -> list[int]:
    """The dimensions from the widest in memory to the narrowest; boxes come in the row-major order of these."""
    return sorted(range(len(shape)), key=lambda d: -abs(order[d]))


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides, in elements, of a contiguous tensor of this shape."""
    steps, step = [], 1
    for n in reversed(shape):
        steps.append(step)
        step *= max(n, 1)
    return tuple(reversed(steps))


def _tile(shape: Sequence[int], order: Sequence[int], itemsize: int) -> Iterator[Box]:
    """Boxes that cover `shape`, the widest dimension in memory outermost. Each holds at most `PIECE` bytes. They come from a span
    of memory of that size, or from up to `MAX_RUNS` places that lie further apart."""
    if not math.prod(shape):
        return
    limit = PIECE // max(1, itemsize)
    dims = memory_order(shape, order)
    span = count = 1  # of the dimensions that a box holds whole: their span in memory, and their elements

    def apart(d: int) -> bool:
        return (abs(order[d]) - span) * itemsize > GAP

    while dims:
        d = dims[-1]
        wide = span if apart(d) else span + (shape[d] - 1) * abs(order[d])
        if count * shape[d] > (min(limit, MAX_RUNS) if apart(d) else limit) or wide > limit:
            break
        dims.pop()
        span, count = wide, count * shape[d]
    box = [slice(0, n) for n in shape]
    if not dims:
        yield tuple(box)
        return
    split = dims.pop()
    step = (min(limit, MAX_RUNS) if apart(split) else limit) // count
    if order[split] and not apart(split):
        step = min(step, (limit - span) // abs(order[split]) + 1)
    step = max(1, step)
    for outer in itertools.product(*[range(shape[d]) for d in dims]):
        for d, i in zip(dims, outer):
            box[d] = slice(i, i + 1)
        for start in range(0, shape[split], step):
            box[split] = slice(start, min(start + step, shape[split]))
            yield tuple(box)


# ---- a tensor in memory ------------------------------------------------------------------------------------------------
def of_tensor(tensor: Tensor) -> Source:
    """The `Source` of a `Tensor` whose values can be read; otherwise `GdbextError` with the reason.

    Conjugate and negative views are resolved; quantized elements come as float32. Of a sparse tensor, the values that it stores.
    """
    name = tensor.name
    if tensor.unavailable:
        raise GdbextError(f"{name}: {tensor.unavailable}")
    if tensor.device.startswith("meta"):
        raise GdbextError(f"{name}: a meta tensor has no values")
    if tensor.kind in SPARSE:
        return of_tensor(sparse_parts(tensor)[-1][1])

    def numbers(stored: Any, box: Box) -> Any:
        found = decode(tensor.dtype, stored)
        if tensor.is_neg:
            found = -found
        if tensor.is_conj:
            found = found.conj()
        return _dequantize(tensor.quantizer, found, box) if tensor.quantizer else found

    channels = tensor.quantizer.axis if tensor.quantizer else None  # a stored element means a different number in each channel
    repeated = [d for d, step in enumerate(tensor.stride or ()) if step == 0 and d != channels]
    decoded = None if resolved(tensor) else numbers
    read = tensor.reader or functools.partial(read_box, tensor)
    return Source(tensor.shape or (), tensor.dtype, name, read, tensor.stride, repeated=repeated, decode=decoded)


def resolved(tensor: Tensor) -> bool:
    """Whether the stored bytes of a tensor are its values: no conjugate or negative view, not quantized."""
    return not (tensor.is_neg or tensor.is_conj or tensor.quantizer)


class Placed:
    """Where elements lie, for `read_box`: the description that a `Tensor` gives of its memory, but for other bytes (a file's).

    `target` reads them. `storage_data` is the address of the storage, of `storage_bytes` bytes; `stride` counts elements.
    """

    is_zero = False

    def __init__(
        self, target: Any, name: str, dtype: DType, stride: Sequence[int], storage_data: int, storage_bytes: int
    ) -> None:
        self.target, self.name, self.dtype, self.stride = target, name, dtype, stride
        self.storage_data, self.storage_bytes, self.storage_offset = storage_data, storage_bytes, 0

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[Any]:
        """As of a `Tensor`."""
        return host_ranges(self.target, ranges)


def read_box(tensor: Tensor | Placed, box: Box) -> Any:
    """The stored elements of a box, in its own shape. `GdbextError` where they cannot be read."""
    import numpy

    kind, size = stored_dtype(tensor.dtype), tensor.dtype.itemsize
    shape = [b.stop - b.start for b in box]
    if tensor.is_zero:
        return numpy.zeros(shape, kind)
    stride = tensor.stride or ()
    far, near, span = [], [], 1
    for d in sorted(range(len(shape)), key=lambda d: abs(stride[d])):
        if shape[d] > 1 and (abs(stride[d]) - span) * size > GAP:
            far.append(d)
        else:
            near.append(d)
            span += (shape[d] - 1) * abs(stride[d])
    near.sort()
    if span * size > 2 * PIECE:  # a box cut for another tensor's order: its span here is read in halves
        d = max(near, key=lambda d: (shape[d] - 1) * abs(stride[d]))
        middle = (box[d].start + box[d].stop) // 2
        halves = [box[:d] + (part,) + box[d + 1 :] for part in (slice(box[d].start, middle), slice(middle, box[d].stop))]
        return numpy.concatenate([read_box(tensor, half) for half in halves], d)
    start = tensor.storage_offset + sum(b.start * s for b, s in zip(box, stride))
    lengths = [(shape[d] - 1) * stride[d] for d in near]
    low, high = start + sum(n for n in lengths if n < 0), start + sum(n for n in lengths if n > 0) + 1
    outer = list(itertools.product(*[range(shape[d]) for d in far]))
    offsets = [sum(i * stride[d] for i, d in zip(index, far)) for index in outer]
    ranges = [((low + o) * size, (high + o) * size) for o in offsets]
    for a, b in ranges:
        if a < 0 or (tensor.storage_bytes is not None and b > tensor.storage_bytes):
            raise GdbextError(f"the {tensor.name} reaches outside its storage of {tensor.storage_bytes} bytes")
    found = []
    for (a, b), blob in zip(ranges, tensor.read_ranges([(tensor.storage_data + a, b - a) for a, b in ranges])):
        if blob is None:
            raise FaultError(tensor.storage_data + a, b - a, "the tensor's memory was freed, or the core left it out")
        flat = numpy.frombuffer(blob, kind)
        part = numpy.lib.stride_tricks.as_strided(
            flat[start - low :], [shape[d] for d in near], [stride[d] * size for d in near], writeable=False
        )
        found.append(part)
    if not far:
        return found[0].reshape(shape)
    whole = numpy.stack(found).reshape([shape[d] for d in far] + [shape[d] for d in near])
    order = far + near
    return whole.transpose([order.index(d) for d in range(len(shape))])


# ---- decoding ----------------------------------------------------------------------------------------------------------
@functools.lru_cache(maxsize=None)
def _values_of(name: str) -> Any:
    """The value of each pattern of bits of a small dtype."""
    import numpy

    return numpy.array(dtypes.TABLES[name], numpy.float32)


def decode(dtype: DType, stored: Any) -> Any:
    """Stored elements -> numbers. `GdbextError` for bits that are no numbers to torch either."""
    import numpy

    name = dtype.name
    if name == "bfloat16":
        return numpy.left_shift(stored.astype(numpy.uint32), numpy.uint32(16)).view(
            numpy.float32
        )  # a scalar stays one of 32 bits
    if name in ("complex32", "bcomplex32"):
        half = numpy.ascontiguousarray(stored).view(numpy.uint16).reshape(stored.shape + (2,))
        parts = (
            decode(dtypes.DTYPES["bfloat16"], half) if name == "bcomplex32" else half.view(numpy.float16).astype(numpy.float32)
        )
        return parts.view(numpy.complex64)[..., 0]
    if name in dtypes.TABLES:
        return _values_of(name)[stored]
    if name == "float4_e2m1fn_x2":
        signed = numpy.array(_FLOAT4 + [-v for v in _FLOAT4], numpy.float32)
        return numpy.stack([signed[stored & 15], signed[stored >> 4]], -1)
    if dtype.kind == "raw":
        raise GdbextError(f"torch.{name} holds bits, no numbers that torch computes with: its repr shows them")
    if name == "bool":
        return stored.view(numpy.uint8) != 0
    return stored


def _dequantize(quantizer: Quantizer, stored: Any, box: Box) -> Any:
    """(stored - zero point) * scale in float32, as torch computes it; one pair per index of `axis` where there is one."""
    import numpy

    q = quantizer
    if q.axis is None:
        scale, zero = numpy.float32(q.scales), q.zero_points
    elif isinstance(q.pick, int):
        scale, zero = numpy.float32(q.scales[q.pick]), q.zero_points[q.pick]
    else:
        channels = range(len(q.scales)) if q.pick is None else q.pick
        wide = [1] * len(box)
        wide[q.axis] = -1
        scale = numpy.array([q.scales[c] for c in channels], numpy.float32)[box[q.axis]].reshape(wide)
        zero = numpy.array([q.zero_points[c] for c in channels])[box[q.axis]].reshape(wide)
    return ((stored.astype(numpy.int64) - zero) * scale).astype(numpy.float32)
