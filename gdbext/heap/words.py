"""Words of many small objects at once: with numpy in columns, without it one object after the other.

Both readers give the same answers. A word that cannot be read is 0: a walk over millions of objects of a process that runs on
meets a few. Columns are int64, addresses lie below 2**47.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ..cpython.gc import WINDOW, Windows
from ..errors import FaultError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..access.base import Target

PAGE = 4096
MASK = (1 << WINDOW) - 1
SLOTS = 1024  # windows that are held, a power of two: 64 MiB
MAX_WINDOWS = SLOTS // 2  # that one request for records touches
MAX_TABLE = 1 << 27  # entries of one table; a bigger count is damage
TOP = 1 << 47
LARGE = 8192  # words of a run that is read by itself
CHUNK = 3 << 18  # words of runs that are handed out at once; a multiple of every table's step


def load_numpy() -> Any:
    """numpy, or None where this Python has none."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def mapped_bytes(target: Target) -> int:
    """The bytes of all mappings: no object can take more."""
    return sum(m.end - m.start for m in target.mappings() if m.end <= TOP)


class Columns:
    """Records of the same length: `at`, their addresses, and the words at a byte offset of each; arrays, or plain ints for one
    record."""

    __slots__ = ("at", "_words", "_follow", "_base")

    def __init__(self, at: Any, words: Any, follow: Callable[[Any, int], Columns], base: int = 0) -> None:
        self.at, self._words, self._follow, self._base = at, words, follow, base

    def word(self, offset: int) -> Any:
        """The signed 64-bit words at `offset`, a multiple of 8."""
        return self._words[(offset - self._base) >> 3]

    def u8(self, offset: int) -> Any:
        """The bytes at `offset`."""
        return (self.word(offset & ~7) >> (8 * (offset & 7))) & 255

    def u32(self, offset: int) -> Any:
        """The unsigned 32-bit numbers at `offset`."""
        return (self.word(offset & ~7) >> (8 * (offset & 7))) & 0xFFFFFFFF

    def follow(self, pointers: Any, size: int) -> Columns:
        """The records of `size` bytes that `pointers` lead to."""
        return self._follow(pointers, size)


class Scalar:
    """Reads one record after the other, by the standard library."""

    numpy = None

    def __init__(self, target: Target) -> None:
        self.target, self.windows = target, Windows(target)
        self.total = mapped_bytes(target)

    def _bytes(self, address: int, size: int) -> bytes:
        blob, inside = self.windows.window(address >> WINDOW), address & MASK
        if inside + size <= len(blob):
            return blob[inside : inside + size]
        try:
            return self.target.read(address, size)
        except FaultError:
            return self.target.read_partial(address, size).ljust(size, b"\0")

    def words(self, address: int, count: int) -> tuple[int, ...]:
        """`count` signed words from `address` on."""
        if not PAGE <= address < TOP:
            return (0,) * count
        return struct.unpack(f"<{count}q", self._bytes(address, 8 * count))

    def record(self, address: int, size: int, base: int = 0) -> Columns:
        """`Columns` of the one record from `address + base` to `address + size`."""
        return Columns(address, self.words(address + base, (size - base + 7) >> 3), self.record, base)


class Vector:
    """Reads many records at once into numpy's arrays: what they touch is read window by window and held, as objects and what
    belongs to them lie near each other. A window's slot is its number modulo `SLOTS`, so that windows that follow each other in
    memory do so here; behind the last slot stands a copy of the first."""

    def __init__(self, target: Target, numpy: Any) -> None:
        self.target, self.numpy = target, numpy
        self.total = mapped_bytes(target)
        self._held = numpy.full(SLOTS, -1, dtype=numpy.int64)
        self._data = numpy.zeros((SLOTS + 1) << WINDOW, dtype=numpy.uint8)
        maps = [(m.start, m.end) for m in target.mappings() if m.end <= TOP]
        joined = [i for i, (start, _) in enumerate(maps) if not i or maps[i - 1][1] != start]
        self._starts = numpy.array([maps[i][0] for i in joined], dtype=numpy.int64)
        self._ends = numpy.array([maps[i - 1][1] for i in [*joined, len(maps)][1:]], dtype=numpy.int64)

    def mapped(self, addresses: Any) -> Any:
        """Which of these addresses lie in the process's memory."""
        np = self.numpy
        if not len(self._starts):
            return np.zeros(len(addresses), dtype=bool)
        place = np.searchsorted(self._starts, addresses, side="right") - 1
        return (place >= 0) & (addresses < self._ends[place])

    def batches(self, addresses: Any) -> Iterator[slice]:
        """Slices of sorted `addresses` whose records lie in so few windows that they can be held at once."""
        np, count = self.numpy, len(addresses)
        cuts = np.flatnonzero(np.diff(addresses >> WINDOW)) + 1
        starts = [0, *cuts[MAX_WINDOWS - 1 :: MAX_WINDOWS].tolist(), count]
        for start, end in zip(starts, starts[1:]):
            for first in range(start, end, 1 << 19):
                yield slice(first, min(end, first + (1 << 19)))

    def image(self, first: Any, last: Any) -> _Image:
        """The memory that records from `first` to `last` (columns of addresses) lie in, until the next image is asked for."""
        np = self.numpy
        ids = distinct(np, np.concatenate([_runs(np, first >> WINDOW), _runs(np, last >> WINDOW)]))
        slots = ids & (SLOTS - 1)
        if len(ids) > SLOTS or len(distinct(np, slots)) < len(ids):
            return _Image(np, self._apart(ids), ids)
        missing = ids[self._held[slots] != ids]
        self._held[missing & (SLOTS - 1)] = missing
        self._fill(self._data, missing, missing & (SLOTS - 1))
        if len(missing):
            self._data[SLOTS << WINDOW :] = self._data[: 1 << WINDOW]
        return _Image(np, self._data, None)

    def _apart(self, ids: Any) -> Any:
        """These windows one behind the other, where two of them have the same slot."""
        np = self.numpy
        data = np.empty(len(ids) << WINDOW, dtype=np.uint8)
        self._fill(data, ids, np.arange(len(ids)))
        return data

    def _fill(self, data: Any, ids: Any, slots: Any) -> None:
        """Reads the windows `ids` to their `slots`, those that follow each other at once."""
        np = self.numpy
        cuts = np.flatnonzero((np.diff(ids) != 1) | (np.diff(slots) != 1)) + 1
        for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(ids)]):
            if end > start:
                place, size = int(slots[start]) << WINDOW, (end - start) << WINDOW
                data[place : place + size] = 0
                self.read_into(data[place : place + size], int(ids[start]) << WINDOW, size)

    def read_into(self, data: Any, address: int, size: int) -> None:
        """Reads what there is of `size` bytes into `data`; what cannot be read stays as it is."""
        np = self.numpy
        i = int(np.searchsorted(self._ends, address, side="right"))
        while i < len(self._starts) and self._starts[i] < address + size:
            start, end = max(address, int(self._starts[i])), min(address + size, int(self._ends[i]))
            self._read_mapped(data[start - address : end - address], start, end - start)
            i += 1

    def _read_mapped(self, data: Any, address: int, size: int) -> None:
        """As `read_into`, of one mapping: where a part of it cannot be read, in ever smaller steps."""
        try:
            data[:] = self.numpy.frombuffer(self.target.read(address, size), dtype=self.numpy.uint8)
        except FaultError:
            step = 1 << WINDOW if size > 1 << WINDOW else PAGE
            if size > PAGE:
                for at in range(0, size, step):
                    self._read_mapped(data[at : at + step], address + at, min(step, size - at))

    def record(self, addresses: Any, size: int, base: int = 0) -> Columns:
        """`Columns` of the records from `addresses + base` to `addresses + size`, in any order."""
        np = self.numpy
        count = (size - base + 7) >> 3
        good = np.where(_plausible(addresses), addresses, 0)
        order = None
        if len(good) > 1 and not (good[1:] >= good[:-1]).all():
            order = np.argsort(good, kind="stable")
            good = good[order]
        out = np.zeros((count, len(good)), dtype=np.int64)
        first = int(np.searchsorted(good, 1))  # those that are no address read as zeros
        for part in self.batches(good[first:]):
            at = good[first:][part] + base
            place = slice(first + part.start, first + part.stop)
            out[:, place if order is None else order[place]] = self.image(at, at + 8 * count - 1).records(at, count)
        return Columns(addresses, out, self.record, base)

    def columns(self, addresses: Any, size: int, base: int) -> Columns:
        """As `record`, of sorted addresses of objects in one batch."""
        at, count = addresses + base, (size - base + 7) >> 3
        return Columns(addresses, self.image(at, at + 8 * count - 1).records(at, count), self.record, base)

    def runs(self, starts: Any, counts: Any) -> Iterator[tuple[Any, Any, Any]]:
        """Yields (index of the run that each word is of, its place in the run, the word) of runs of `counts` words from `starts`
        on, run by run in the order of their addresses."""
        np = self.numpy
        counts = np.where(_plausible(starts) & (counts > 0) & (counts < 3 * MAX_TABLE), counts, 0)
        index = np.flatnonzero(counts)
        index = index[np.argsort(starts[index], kind="stable")]
        large = counts[index] > LARGE
        for i in index[large].tolist():
            for at in range(0, int(counts[i]), CHUNK):
                size = 8 * min(CHUNK, int(counts[i]) - at)
                words = np.frombuffer(_readable(self.target, int(starts[i]) + 8 * at, size), dtype="<i8")
                yield np.full(len(words), i, dtype=np.int64), np.arange(at, at + len(words)), words
        index = index[~large]
        for part in self.batches(starts[index]):
            mine = index[part]
            ends = np.cumsum(counts[mine])
            cuts = np.searchsorted(ends, np.arange(CHUNK, int(ends[-1]) + CHUNK, CHUNK)) + 1 if len(mine) else ()
            for first, last in zip([0, *cuts], cuts):
                if first < last:
                    yield self._small(mine[first:last], starts, counts)

    def _small(self, mine: Any, starts: Any, counts: Any) -> tuple[Any, Any, Any]:
        np = self.numpy
        begin, length = starts[mine], counts[mine]
        image = self.image(begin, begin + 8 * length - 1)
        ends = np.cumsum(length)
        inside = np.arange(int(ends[-1])) - np.repeat(ends - length, length)
        return np.repeat(mine, length), inside, image.words[np.repeat(image.places(begin), length) + inside]


def _runs(np: Any, values: Any) -> Any:
    """`values` without those that equal the one before: most of a nearly sorted column's."""
    keep = np.empty(len(values), dtype=bool)
    keep[:1] = True
    np.not_equal(values[1:], values[:-1], out=keep[1:])
    return values[keep]


def distinct(np: Any, values: Any) -> Any:
    """The different `values`, sorted. np.unique does it through a hash table, which takes ten times as long for addresses."""
    return _runs(np, np.sort(values))


def _plausible(addresses: Any) -> Any:
    return (addresses >= PAGE) & (addresses < TOP) & (addresses & 7 == 0)


def _readable(target: Target, address: int, size: int) -> bytes:
    """`size` bytes, or the whole words of them that can be read."""
    try:
        return target.read(address, size)
    except FaultError:
        blob = target.read_partial(address, size)
        return blob[: len(blob) & ~7]


class _Image:
    """The windows that some records lie in: in their slots, or (`ids`) one behind the other."""

    def __init__(self, np: Any, data: Any, ids: Any) -> None:
        self.np, self.words, self.ids = np, data.view("<i8"), ids

    def records(self, addresses: Any, count: int) -> Any:
        """`count` words from each address on, one row for each place."""
        place = self.places(addresses)
        return self.words[place + self.np.arange(count)[:, None]]

    def places(self, addresses: Any) -> Any:
        """Indexes into `words` of addresses that lie in these windows."""
        number = addresses >> WINDOW
        where = number & (SLOTS - 1) if self.ids is None else self.np.searchsorted(self.ids, number)
        return (where << (WINDOW - 3)) + ((addresses & MASK) >> 3)
