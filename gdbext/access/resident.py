"""Which private memory of a process is in use, and which of it a snapshot of a given size holds.

Python's objects lie between everything else, so all private memory is taken, small pieces first. A piece is a mapping, or, in a
mapping that is too big as a whole, one of the big blocks that malloc has mapped by itself (a tensor) or what lies between them.
Sources: Documentation/admin-guide/mm/pagemap.rst; glibc malloc/malloc.c (a block that was mapped by itself begins a page, and its
size has bit 1 set).
"""

from __future__ import annotations

import os
import struct
import time
from typing import TYPE_CHECKING

from . import ptrace
from .model import PAGE

if TYPE_CHECKING:
    from typing import Iterator, Sequence

    from .model import Mapping

CHUNK = 1 << 16  # pagemap entries (256 MiB of addresses) that are read at once
# The upper byte of a pagemap entry: bit 7 in memory, bit 6 in swap, bit 5 a page of the file, or shared.
_OWN = bytes(int(b >> 6 != 0 and not b >> 5 & 1) for b in range(256))
IS_MMAPPED, SIZE_BITS = 2, 7
MIN_BLOCK = 128 << 10  # glibc maps no smaller block by itself
WALK_SECONDS = 2.0  # that looking for blocks in one mapping may take
BATCH = 1024


class Selection:
    """`spans`: `[(start, end)]` of the pages to copy; `left_out`: `[(address, bytes)]` of pieces that were too big; `size`: bytes
    in `spans`."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []
        self.left_out: list[tuple[int, int]] = []
        self.size = 0


def select(tid: int, maps: Sequence[Mapping], limit: int) -> Selection:
    """What to copy of the private memory in use, `limit` bytes at most. `tid`: a thread that has the memory.

    Counted in the kernel's own words, a few hundred MiB of addresses at a time: no list of pages is made of memory that stays
    out."""
    found = Selection()
    private = [m for m in maps if "r" in m.perms and "p" in m.perms and not m.path.startswith(("/dev/", "[v"))]
    try:
        file = open(f"/proc/{tid}/pagemap", "rb", buffering=0)
    except OSError:
        found.left_out = [(m.start, m.end - m.start) for m in private]
        return found
    with file:
        fd = file.fileno()
        pieces: list[tuple[bool, int, int, int]] = []
        for m in private:
            used = used_bytes(fd, m.start, m.end, limit)
            if used > limit:
                pieces += [(block, used_bytes(fd, a, b, limit), a, b) for a, b, block in split(tid, fd, m.start, m.end)]
            else:
                pieces.append((False, used, m.start, m.end))
        for _, used, start, end in sorted(pieces):  # blocks that malloc mapped by themselves come last
            if found.size + used > limit:
                found.left_out.append((start, used_bytes(fd, start, end)))
            elif used:
                found.spans += spans(fd, start, end)
                found.size += used
    found.spans.sort()
    return found


def _entries(fd: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """`(address, one byte for each page)`: 1 where the page is in use and not as in its file."""
    for at in range(start, end, PAGE * CHUNK):
        count = min(CHUNK, (end - at) // PAGE)
        yield at, os.pread(fd, 8 * count, at // PAGE * 8)[7::8].translate(_OWN)


def used_bytes(fd: int, start: int, end: int, enough: int | None = None) -> int:
    """Bytes in use between two addresses; counting ends where they are more than `enough`. `fd`: /proc/PID/pagemap."""
    total = 0
    for _, flags in _entries(fd, start, end):
        total += PAGE * flags.count(1)
        if enough is not None and total > enough:
            break
    return total


def spans(fd: int, start: int, end: int) -> list[tuple[int, int]]:
    """`[(start, end)]` of adjoining pages in use."""
    found: list[tuple[int, int]] = []
    for base, flags in _entries(fd, start, end):
        at = flags.find(1)
        while at >= 0:
            stop = flags.find(0, at)
            stop = len(flags) if stop < 0 else stop
            low, high = base + PAGE * at, base + PAGE * stop
            if found and found[-1][1] == low:
                found[-1] = (found[-1][0], high)
            else:
                found.append((low, high))
            at = flags.find(1, stop)
    return found


def split(tid: int, fd: int, start: int, end: int) -> list[tuple[int, int, bool]]:
    """`[(start, end, whether it is such a block)]`: a mapping cut where malloc's own mapped blocks begin and end.

    Neighbouring mappings become one, so a tensor and Python's arenas may share it. A mapping without such blocks, or with too
    many pages to look at in time, stays whole."""
    deadline, open_at = time.monotonic() + WALK_SECONDS, start
    found: list[tuple[int, int, bool]] = []
    for low, high in spans(fd, start, end):
        at = max(low, open_at)
        while at < high and time.monotonic() < deadline:
            pages = range(at, min(high, at + PAGE * BATCH), PAGE)
            hit = next(_blocks(tid, pages, end), None)
            if hit is None:
                at = pages.stop
                continue
            if hit[0] > open_at:
                found.append((open_at, hit[0], False))
            found.append((*hit, True))
            at = open_at = hit[1]
    return [*found, (open_at, end, False)] if open_at < end else found


def _blocks(tid: int, pages: range, end: int) -> Iterator[tuple[int, int]]:
    """`(start, end)` of the blocks that begin at one of `pages`."""
    for page, words in zip(pages, ptrace.read_ranges(tid, [(page, 16) for page in pages])):
        if len(words) == 16:
            size = struct.unpack_from("<Q", words, 8)[0]
            length = size - (size & SIZE_BITS)
            if size & SIZE_BITS == IS_MMAPPED and length % PAGE == 0 and MIN_BLOCK <= length <= end - page:
                yield page, page + length
