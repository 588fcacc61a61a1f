"""Where in its address space a process has any pages, however much of it was never touched: 16 TiB of addresses have 32 GB of
pagemap entries, and a sanitizer maps so much.

PAGEMAP_SCAN (Linux 6.7) passes over what has no page tables. Source: Documentation/admin-guide/mm/pagemap.rst."""

from __future__ import annotations

import fcntl
import struct
import time
from typing import TYPE_CHECKING

from ..errors import GdbextError

if TYPE_CHECKING:
    from typing import Iterator

BIG = 1 << 32  # bytes of addresses that are looked at one by one
SECONDS = 2.0  # for those of one mapping, where the kernel has no PAGEMAP_SCAN
_SCAN = struct.Struct("<12Q")  # struct pm_scan_arg of linux/fs.h
_REGION = struct.Struct("<3Q")
_IOCTL = 0xC0606610  # PAGEMAP_SCAN
_THERE = 1 << 3 | 1 << 4  # PAGE_IS_PRESENT, PAGE_IS_SWAPPED
_REGIONS = 1024
NEAR = 1 << 22  # bytes between regions that are one


def ranges(fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """`[(start, end)]` of what may be populated of a range of pages, by address; the range itself where it is not big. `fd`:
    /proc/PID/pagemap. `GdbextError` where a big one takes too long."""
    if end - start <= BIG:
        yield start, end
        return
    import ctypes

    vector = ctypes.create_string_buffer(_REGION.size * _REGIONS)
    at, low, high = start, 0, 0
    while at < end:
        scan = bytearray(_SCAN.pack(_SCAN.size, 0, at, end, 0, ctypes.addressof(vector), _REGIONS, 0, 0, 0, _THERE, _THERE))
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


def _pieces(start: int, end: int) -> Iterator[tuple[int, int]]:
    """A big range in pieces, as long as there is time."""
    deadline = time.monotonic() + SECONDS
    for at in range(start, end, BIG):
        if time.monotonic() > deadline:
            raise GdbextError(
                f"{end - at >> 30} GiB of addresses from {at:#x} on were not looked at: this kernel cannot pass over them"
            )
        yield at, min(at + BIG, end)
