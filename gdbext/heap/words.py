"""Words of many small objects at once, in numpy's columns.

An unreadable word is 0: a walk over millions of objects of a running process meets a few. Columns are int64; addresses lie below
2**47.
"""

from __future__ import annotations

import bisect
from typing import Any, Callable, Iterator

from .. import log
from ..access.base import Target
from ..cpython.gc import WINDOW
from ..errors import FaultError
from .marks import PAGE, TOP, Sparse, blocks, distinct, runs_of

WIDE = 18  # log2 of the bytes of a window of `Vector`
SLOTS, FEW_SLOTS = 512, 160  # windows that are held: 132 MiB, and 41 MiB where many objects take the memory
TAIL = 8192  # bytes of the next window that are held behind each one
ROW = (1 << WIDE) + TAIL
AT_ONCE = 1 << 17  # records that are read at once, at most
MAX_TABLE = 1 << 27  # entries of one table; a bigger count is damage
NEAR = 1 << 12  # records that are read word by word while they are in the processor's cache
LARGE = TAIL // 8  # words of a run that is read by itself
CHUNK = 3 << 18  # words of runs that are handed out at once; a multiple of every table's step


def mapped_bytes(target: Target) -> int:
    """The bytes of all mappings: no object can take more."""
    return sum(m.end - m.start for m in target.mappings() if m.end <= TOP)


class Columns:
    """Records of the same length: `at`, their addresses, and the words at a byte offset of each, as arrays."""

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

    def take(self, chosen: Any) -> Columns:
        """The records that a mask chooses."""
        return Columns(self.at[chosen], self._words[:, chosen], self._follow, self._base)

    def follow(self, pointers: Any, size: int) -> Columns:
        """The records of `size` bytes to which `pointers` lead."""
        return self._follow(pointers, size)


class Vector:
    """Reads many records at once into numpy's arrays.

    Memory is read in windows, which are kept, because objects and their parts lie near each other. Each window is followed by the
    beginning of the next one, so that a record lies in one piece. Beyond `slots` windows, the least recently used one is
    replaced.
    """

    def __init__(self, target: Target, numpy: Any) -> None:
        np = numpy
        self.target, self.numpy = target, numpy
        self.total, self.slots = mapped_bytes(target), FEW_SLOTS
        self._held, self._wanted, self._clock = np.full(SLOTS, -1, dtype=np.int64), np.zeros(SLOTS, dtype=np.int64), 0
        self._slots = Sparse(np, WIDE)
        self._data = np.zeros((SLOTS, ROW), dtype=np.uint8)
        self._words = self._data.reshape(-1).view("<i8")
        maps = [(m.start, m.end) for m in target.mappings() if m.end <= TOP]
        if target.is_stopped:
            maps = [span for start, end in maps for span in target.populated(start, end)]
        joined = [i for i, (start, _) in enumerate(maps) if not i or maps[i - 1][1] != start]
        self._spans = [(maps[i][0], maps[end - 1][1]) for i, end in zip(joined, [*joined, len(maps)][1:])]
        self._starts = np.array([start for start, _ in self._spans], dtype=np.int64)
        self._ends = np.array([end for _, end in self._spans], dtype=np.int64)

    def mapped(self, addresses: Any) -> Any:
        """A mask of the addresses that lie in the process's memory."""
        np = self.numpy
        if not len(self._starts):
            return np.zeros(len(addresses), dtype=bool)
        place = np.searchsorted(self._starts, addresses, side="right") - 1
        return (place >= 0) & (addresses < self._ends[place])

    def touches(self, starts: Any, size: int) -> Any:
        """A mask of the ranges of `size` bytes from `starts` on that have memory in them."""
        np = self.numpy
        place = np.searchsorted(self._ends, starts, side="right")
        return np.append(self._starts, TOP)[place] < starts + size

    def batches(self, addresses: Any) -> Iterator[slice]:
        """Slices of sorted `addresses` whose records fit into half of the windows. The other half is for the memory to which they
        lead."""
        np, count, room = self.numpy, len(addresses), self.slots >> 1
        for first in range(0, count, AT_ONCE):
            windows = addresses[first : first + AT_ONCE] >> WIDE
            cuts = (np.flatnonzero(windows[1:] != windows[:-1]) + 1)[room - 1 :: room]
            ends = [0, *cuts.tolist(), len(windows)]
            yield from (slice(first + start, first + end) for start, end in zip(ends, ends[1:]))

    def _places(self, addresses: Any) -> Any:
        """Indexes into the kept words, for addresses in at most `slots` windows."""
        np = self.numpy
        windows = addresses >> WIDE
        ids = distinct(np, runs_of(np, windows))
        slots = self._slots.of(ids)
        self._clock += 1
        self._wanted[slots[slots >= 0]] = self._clock
        missing = ids[slots < 0]
        if len(missing):
            own = np.argsort(self._wanted[: self.slots], kind="stable")[: len(missing)]
            former = self._held[own]
            self._slots.put(former[former >= 0], -1)
            self._held[own], self._wanted[own] = missing, self._clock
            self._slots.put(missing, own)
            for slot, number in zip(own.tolist(), missing.tolist()):
                self.read_into(self._data[slot], number << WIDE, ROW)
        return self._slots.of(windows) * np.int64(ROW >> 3) + ((addresses & ((1 << WIDE) - 1)) >> 3)

    def _records(self, addresses: Any, count: int) -> Any:
        """`count` words from each address on, one row for each place in a record."""
        places = self._places(addresses)
        found = self.numpy.empty((count, len(places)), dtype=self.numpy.int64)
        for block in blocks(len(places), NEAR):
            at = places[block]
            for i in range(count):
                self.numpy.take(self._words, at, out=found[i, block], mode="clip")
                at += 1
        return found

    def read_into(self, data: Any, address: int, size: int) -> None:
        """Reads `size` bytes into `data`; unreadable bytes are 0."""
        spans, view, done = self._spans, memoryview(data), address
        i = max(bisect.bisect_right(spans, (address, TOP)) - 1, 0)
        while i < len(spans) and spans[i][0] < address + size:
            start, end = max(address, spans[i][0]), min(address + size, spans[i][1])
            if start < end:
                data[done - address : start - address] = 0
                self._read_mapped(view[start - address : end - address], start, end - start)
                done = end
            i += 1
        data[done - address : size] = 0

    def _read_mapped(self, view: memoryview, address: int, size: int) -> None:
        """As `read_into`, for one mapping. It reads around an unreadable part in ever smaller steps."""
        try:
            self.target.read_into(address, view)
        except FaultError as e:
            log.passed_over(e)
            step = 1 << WINDOW if size > 1 << WINDOW else PAGE
            if size <= PAGE:
                view[:] = bytes(size)
            else:
                for at in range(0, size, step):
                    self._read_mapped(view[at : at + step], address + at, min(step, size - at))

    def record(self, addresses: Any, size: int, base: int = 0) -> Columns:
        """`Columns` of the records from `addresses + base` to `addresses + size`, in any order."""
        np = self.numpy
        count = (size - base + 7) >> 3
        good = np.where(_plausible(addresses), addresses, 0)
        order = None
        if len(good) > 1 and not (good[1:] >= good[:-1]).all():
            order = np.argsort(good)
            good = good[order]
        out = np.zeros((count, len(good)), dtype=np.int64)
        first = int(np.searchsorted(good, 1))  # those that are no address read as zeros
        for part in self.batches(good[first:]):
            at = good[first:][part] + base
            place = slice(first + part.start, first + part.stop)
            out[:, place if order is None else order[place]] = self._records(at, count)
        return Columns(addresses, out, self.record, base)

    def columns(self, addresses: Any, size: int, base: int) -> Columns:
        """As `record`, of sorted addresses of objects in one batch."""
        return Columns(addresses, self._records(addresses + base, (size - base + 7) >> 3), self.record, base)

    def runs(self, starts: Any, counts: Any, step: int = 1, picks: tuple[int, ...] = (0,)) -> Iterator[tuple[Any, Any]]:
        """Yields (index of each word's run, the word). A run is `counts` records of `step` words from `starts` on; `picks`: the
        words of each record that are yielded. Runs come in the order of their addresses."""
        np = self.numpy
        counts = np.where(_plausible(starts) & (counts > 0) & (counts < MAX_TABLE), counts, 0)
        index = np.flatnonzero(counts)
        index = index[np.argsort(starts[index])]
        large = counts[index] * step > LARGE
        for i in index[large].tolist():
            total = int(counts[i]) * step
            for at in range(0, total, CHUNK):
                blob = self.target.read_partial(int(starts[i]) + 8 * at, 8 * min(CHUNK, total - at))
                words = np.frombuffer(blob[: len(blob) & ~7], dtype="<i8")
                for pick in picks:
                    found = words[pick::step]
                    yield np.full(len(found), i, dtype=np.int64), found
        index = index[~large]
        for part in self.batches(starts[index]):
            mine = index[part]
            ends = np.cumsum(counts[mine])
            cuts = np.searchsorted(ends, np.arange(CHUNK, int(ends[-1]) + CHUNK, CHUNK)) + 1 if len(mine) else ()
            for first, last in zip([0, *cuts], cuts):
                if first < last:
                    yield from self._small(mine[first:last], starts, counts, step, picks)

    def _small(self, mine: Any, starts: Any, counts: Any, step: int, picks: tuple[int, ...]) -> Iterator[tuple[Any, Any]]:
        np = self.numpy
        length = counts[mine]
        ends = np.cumsum(length)
        places = np.repeat(self._places(starts[mine]) - step * (ends - length), length)
        places += np.arange(0, step * len(places), step)
        owners = np.repeat(mine, length)
        found = [self._words.take(places + pick) for pick in picks]  # all at once: the caller may read further windows
        for words in found:
            yield owners, words


def _plausible(addresses: Any) -> Any:
    return (addresses >= PAGE) & (addresses < TOP) & (addresses & 7 == 0)
