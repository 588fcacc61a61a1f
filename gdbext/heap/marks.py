"""Tables over the address space, with numpy: which addresses are known, and their place among others.

This module and its users choose from columns by `take` of places. That costs half of `column[places]` and a quarter of
`column[mask]`.

The space is cut into chunks of 1 MiB, of which a process uses few. In a chunk, a bit for each 8 bytes says what is known.
"""

from __future__ import annotations

import ctypes
from typing import Any, Iterator

PAGE = 4096
TOP = 1 << 47  # addresses lie below
CHUNK = 20  # log2 of the bytes of a chunk
GRAIN = 3  # log2 of the bytes that have one bit
ROW = 1 << CHUNK - GRAIN - 6  # words of bits of one chunk
HIGH = 33  # log2 of the bytes of a part of the address space that has a table of its own
BLOCK = 1 << 16  # values per step: intermediate results stay in the processor's cache
SLOTS = 18  # log2 of the places of a table of numbers


def give_back() -> None:
    """Makes the C library return freed memory to the system. By itself it keeps hundreds of MiB of pieces below 32 MiB."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        pass  # another C library than glibc


def blocks(count: int, size: int = 1 << 18) -> Iterator[slice]:
    """Slices of `count` values, each so small that intermediate results take hardly any memory."""
    return (slice(first, min(first + size, count)) for first in range(0, count, size))


def runs_of(np: Any, values: Any) -> Any:
    """`values` without those that equal the one before. In a nearly sorted column most do."""
    keep = np.empty(len(values), dtype=bool)
    keep[:1] = True
    np.not_equal(values[1:], values[:-1], out=keep[1:])
    return values[keep]


def distinct(np: Any, values: Any) -> Any:
    """The different `values`, sorted. np.unique uses a hash table, which takes ten times as long for addresses."""
    return runs_of(np, np.sort(values))


class Sparse:
    """A small number, or -1, for each block of 2**shift bytes of the address space, most of which has none."""

    def __init__(self, np: Any, shift: int) -> None:
        self.np, self._inside = np, HIGH - shift
        self._tops = np.zeros(TOP >> HIGH, dtype=np.int64)  # where the table of each part begins in the next one
        self._leaves = np.full(1 << self._inside, -1, dtype=np.int32)

    def _places(self, blocks: Any) -> Any:
        return self._tops.take(blocks >> self._inside) + (blocks & ((1 << self._inside) - 1))

    def of(self, blocks: Any) -> Any:
        """The number of each block."""
        return self._leaves.take(self._places(blocks))

    def put(self, blocks: Any, numbers: Any) -> None:
        """Sets the numbers of blocks."""
        np = self.np
        for top in distinct(np, blocks >> self._inside).tolist():
            if not self._tops[top]:
                self._tops[top] = len(self._leaves)
                self._leaves = np.concatenate([self._leaves, np.full(1 << self._inside, -1, dtype=np.int32)])
        self._leaves[self._places(blocks)] = numbers


class Seen:
    """A set of addresses, multiples of 8."""

    def __init__(self, np: Any) -> None:
        self.np, self._count = np, 0
        self._chunks = Sparse(np, CHUNK)
        self._bits = np.zeros((1, ROW), dtype=np.uint64)  # the first is that of chunks where nothing is

    def _place(self, addresses: Any) -> tuple[Any, Any]:
        np = self.np
        grain = (addresses & ((1 << CHUNK) - 1)) >> GRAIN
        return (self._chunks.of(addresses >> CHUNK).astype(np.int64) + 1) * ROW + (grain >> 6), np.uint64(1) << (
            grain & 63
        ).astype(np.uint64)

    def of(self, addresses: Any) -> Any:
        """Which of the addresses are in it."""
        np, bits = self.np, self._bits.reshape(-1)
        found = np.empty(len(addresses), dtype=bool)
        for at in range(0, len(addresses), BLOCK):
            word, bit = self._place(addresses[at : at + BLOCK])
            np.not_equal(bits.take(word) & bit, 0, out=found[at : at + BLOCK])
        return found

    def add(self, addresses: Any) -> None:
        """Adds sorted, different addresses."""
        np = self.np
        if not len(addresses):
            return
        chunks = runs_of(np, addresses >> CHUNK)
        chunks = chunks[self._chunks.of(chunks) < 0]
        self._chunks.put(chunks, np.arange(self._count, self._count + len(chunks)))
        self._count += len(chunks)
        if self._count >= len(self._bits):
            more = max(self._count + 1 - len(self._bits), len(self._bits) >> 2)
            self._bits = np.concatenate([self._bits, np.zeros((more, ROW), dtype=np.uint64)])
        word, bit = self._place(addresses)
        starts = np.flatnonzero(np.diff(word, prepend=-1))
        self._bits.reshape(-1)[word[starts]] |= np.bitwise_or.reduceat(bit, starts)


class Places:
    """The places of addresses among sorted, different ones, multiples of 8. In addition to the bits it keeps, for each word of
    bits, the number of bits before it."""

    def __init__(self, np: Any, addresses: Any) -> None:
        self.np = np
        cuts = _cuts(np, addresses)
        rows = np.zeros((max(len(cuts), 2), ROW), dtype=np.uint64)  # the last is that of chunks where nothing is
        self._chunks = Sparse(np, CHUNK)
        self._chunks.put(addresses[cuts[:-1]] >> CHUNK, np.arange(len(cuts) - 1))
        marks = np.zeros(ROW << 6, dtype=np.uint8)
        for slot, (start, end) in enumerate(zip(cuts, cuts[1:])):
            marks[:] = 0
            marks[(addresses[start:end] & ((1 << CHUNK) - 1)) >> GRAIN] = 1
            rows[slot] = np.packbits(marks, bitorder="little").view(np.uint64)
        self._bits = rows.reshape(-1)
        counts = _ones(np, self._bits)
        self._before = (np.cumsum(counts, dtype=np.int64) - counts).astype(np.int32)

    def find(self, addresses: Any) -> Any:
        """The index of each address, -1 where it is missing. Addresses must lie between 0 and `TOP`."""
        np = self.np
        found = np.empty(len(addresses), dtype=np.int32)
        one = np.uint64(1)
        for at in range(0, len(addresses), BLOCK):
            some = addresses[at : at + BLOCK]
            grain = (some & ((1 << CHUNK) - 1)) >> GRAIN
            word = self._chunks.of(some >> CHUNK).astype(np.int64) * ROW + (grain >> 6)
            bits, bit = self._bits.take(word), one << (grain & 63).astype(np.uint64)
            there = (bits & bit != 0) & (some & ((1 << GRAIN) - 1) == 0)
            found[at : at + BLOCK] = np.where(there, self._before.take(word) + _ones(np, bits & (bit - one)), -1)
        return found


def _cuts(np: Any, addresses: Any) -> list[int]:
    """Where the addresses of each chunk begin among sorted ones, and where the last ones end; [0] where there are none."""
    found, at, count = [0], 0, len(addresses)
    while at < count:
        end = ((int(addresses[at]) >> CHUNK) + 1) << CHUNK
        at += int(np.searchsorted(addresses[at : at + (1 << CHUNK - GRAIN)], end))
        found.append(at)
    return found


def _ones(np: Any, words: Any) -> Any:
    """How many bits of each word are set."""
    if hasattr(np, "bitwise_count"):  # numpy 2
        return np.bitwise_count(words).astype(np.int32)
    n = np.uint64
    words = words - ((words >> n(1)) & n(0x5555555555555555))
    words = (words & n(0x3333333333333333)) + ((words >> n(2)) & n(0x3333333333333333))
    words = (words + (words >> n(4))) & n(0x0F0F0F0F0F0F0F0F)
    return ((words * n(0x0101010101010101)) >> n(56)).astype(np.int32)


class Numbers:
    """Small numbers for the different values of columns: `values[number]`. A table gives them; for values that compete for one
    place of it a dict does."""

    def __init__(self, np: Any) -> None:
        self.np = np
        self.values: list[int] = []
        self._known: dict[int, int] = {}
        self._keys = np.full(1 << SLOTS, -1, dtype=np.int64)
        self._numbers = np.zeros(1 << SLOTS, dtype=np.int32)

    def of(self, column: Any) -> Any:
        """The number of each value of a column."""
        np = self.np
        found = np.empty(len(column), dtype=np.int32)
        for at in range(0, len(column), BLOCK):
            some = column[at : at + BLOCK]
            slots = self._slots(some)
            numbers = self._numbers.take(slots)
            others = np.flatnonzero(self._keys.take(slots) != some)
            if len(others):
                unique, inverse = np.unique(some[others], return_inverse=True)
                numbers[others] = np.array([self._number(value) for value in unique.tolist()], dtype=np.int32)[inverse]
            found[at : at + BLOCK] = numbers
        return found

    def find(self, column: Any) -> Any:
        """As `of`, but -1 where a value has no number, or another value has its place in the table."""
        np = self.np
        slots = self._slots(column)
        return np.where(self._keys.take(slots) == column, self._numbers.take(slots), -1)

    def _slots(self, values: Any) -> Any:
        return ((values >> 4) * 0x1E3779B97F4A7C15 >> 40) & ((1 << SLOTS) - 1)

    def _number(self, value: int) -> int:
        number = self._known.get(value)
        if number is None:
            number = self._known[value] = len(self.values)
            self.values.append(value)
            slot = int(self._slots(self.np.array([value], dtype=self.np.int64))[0])
            if self._keys[slot] < 0:
                self._keys[slot], self._numbers[slot] = value, number
        return number
