"""Which pages of a process hold something, and which are in memory, so that a read of them does not wait.

For a big mapping this module first finds the parts that have any pages. 16 TiB of addresses have 32 GB of pagemap entries, and a
sanitizer maps that much without touching it. PAGEMAP_SCAN (Linux 6.7) skips addresses without page tables. A guard page
(MADV_GUARD_INSTALL, Linux 6.13: the ends of thread stacks of glibc 2.42) looks as if it were in swap; it holds nothing.

Source: Linux, Documentation/admin-guide/mm/pagemap.rst."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import time
from typing import Callable, Iterable, Iterator

from ..errors import GdbextError

KERNEL_PAGE = os.sysconf("SC_PAGE_SIZE")  # bytes of one pagemap entry
_PRESENT, _SWAPPED, _FILE_OR_SHARED, _GUARD = 1 << 7, 1 << 6, 1 << 5, 1 << 2  # in the upper byte of an entry


def _table(flag: Callable[[int], bool]) -> bytes:
    return bytes(int(flag(b)) for b in range(256))


THERE = _table(lambda b: b & (_PRESENT | _SWAPPED) != 0 and not b & _GUARD)  # holds something, in memory or in swap
OWN = _table(lambda b: THERE[b] == 1 and not b & _FILE_OR_SHARED)  # and not as in its file
_ABSENT = _table(lambda b: not b & _PRESENT)
_HERE, _AWAY, _NOTHING = 0, 1, 2
_WHERE = bytes(_NOTHING if b & _GUARD else _ABSENT[b] for b in range(256))
_RUNS = re.compile(rb"\x00+|\x01+|\x02+").finditer
BIG = 1 << 32  # bytes of addresses that are examined one by one
SECONDS = 2.0  # for those of one mapping, where the kernel has no PAGEMAP_SCAN
_SCAN = struct.Struct("<12Q")  # struct pm_scan_arg of linux/fs.h
_REGION = struct.Struct("<3Q")
_IOCTL = 0xC0606610  # PAGEMAP_SCAN
_SCANNED = 1 << 3 | 1 << 4  # PAGE_IS_PRESENT, PAGE_IS_SWAPPED
_REGIONS = 1024
_TOGETHER = 64  # pages
NEAR = 1 << 22  # bytes between regions that are one


class Presence:
    """Which pages of a process are in memory; all of them where its pagemap may not be read. `tid`: a thread that has the
    memory."""

    def __init__(self, tid: int) -> None:
        try:
            self._file = os.open(f"/proc/{tid}/pagemap", os.O_RDONLY)
        except OSError:
            self._file = -1

    def _flags(self, address: int, size: int, table: bytes) -> bytes:
        """One byte for each page that a range touches, by `table`; b"" where it is not known."""
        if self._file < 0 or size <= 0:
            return b""
        first = address // KERNEL_PAGE
        count = (address + size - 1) // KERNEL_PAGE - first + 1
        try:
            return os.pread(self._file, 8 * count, 8 * first)[7::8].translate(table)
        except (OSError, OverflowError):
            return b""

    def absent(self, address: int, size: int) -> bool:
        """Whether a page that a range touches is not in memory."""
        return 1 in self._flags(address, size, _ABSENT)

    def any_absent(self, pages: Iterable[int]) -> bool:
        """Whether one of many pages, each given by its number, is not in memory. Near ones are looked up together."""
        first, span = 0, b""
        for page in sorted(pages):
            if not 0 <= page - first < len(span):
                first, span = page, self._flags(page * KERNEL_PAGE, _TOGETHER * KERNEL_PAGE, _ABSENT)
            if span[page - first : page - first + 1] == b"\1":
                return True
        return False

    def split(self, ranges: Iterable[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """`[(address, size)]`, of whole pages -> (those in memory, those that are not); guard pages are in neither."""
        parts: tuple[list[tuple[int, int]], ...] = [], [], []
        for address, size in ranges:
            flags = self._flags(address, size, _WHERE)
            for run in _RUNS(flags):
                parts[flags[run.start()]].append((address + run.start() * KERNEL_PAGE, len(run.group()) * KERNEL_PAGE))
            if not flags:
                parts[_HERE].append((address, size))
        return parts[_HERE], parts[_AWAY]

    def close(self) -> None:
        """Closes it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    __del__ = close  # a Target ends with its last reference, without a call of `close`


def ranges(fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """`[(start, end)]` of the parts of a range of pages that may be populated, by address; the range itself unless it is big.
    `fd`: /proc/PID/pagemap. `GdbextError` where a big range takes too long."""
    if end - start <= BIG:
        yield start, end
        return
    import ctypes

    vector = ctypes.create_string_buffer(_REGION.size * _REGIONS)
    at, low, high = start, 0, 0
    while at < end:
        scan = bytearray(_SCAN.pack(_SCAN.size, 0, at, end, 0, ctypes.addressof(vector), _REGIONS, 0, 0, 0, _SCANNED, _SCANNED))
        try:
            count = fcntl.ioctl(fd, _IOCTL, scan)
        except OSError:
            yield from _pieces(at, end)
            return
        for first, last, _ in _REGION.iter_unpack(vector.raw[: _REGION.size * count]):
            if high and first - high <= NEAR:
                high = last
                continue
            if high:
                yield low, high
            low, high = first, last
        walked = _SCAN.unpack(scan)[4]
        if walked <= at:
            break
        at = walked
    if high:
        yield low, high


def chunks(fd: int, start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """`ranges`, in pieces of at most `size` bytes, whole pages."""
    for low, high in ranges(fd, start, end):
        yield from ((at, min(at + size, high)) for at in range(low, high, size))


def entries(fd: int, start: int, end: int, table: bytes, count: int) -> Iterator[tuple[int, bytes]]:
    """`(address, one byte for each page)`, by `table`, of at most `count` pages at once. Addresses without page tables are left
    out. `GdbextError` where the entries cannot be read, because the process ends for example."""
    for at, stop in chunks(fd, start, end, KERNEL_PAGE * count):
        size = (stop - at) // KERNEL_PAGE * 8
        found = os.pread(fd, size, at // KERNEL_PAGE * 8)
        if len(found) != size:
            raise GdbextError(f"the pages from {at:#x} on are not known")
        yield at, found[7::8].translate(table)


def _pieces(start: int, end: int) -> Iterator[tuple[int, int]]:
    """A big range in pieces, as long as there is time."""
    deadline = time.monotonic() + SECONDS
    for at in range(start, end, BIG):
        if time.monotonic() > deadline:
            raise GdbextError(f"{end - at >> 30} GiB of addresses from {at:#x} on were not read: this kernel cannot skip them")
        yield at, min(at + BIG, end)
