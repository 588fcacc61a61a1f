"""The private memory of a process that is in use, and the part of it that a snapshot of a given size holds.

Python's objects are scattered over all private memory, so all of it is taken, small pieces first. A piece is normally a mapping.
A mapping that is too big as a whole is cut into the big blocks that malloc has mapped by itself (tensors) and the memory between
them. Sources: Documentation/admin-guide/mm/pagemap.rst; glibc malloc/malloc.c (a block that was mapped by itself begins a page,
and its size has bit 1 set).
"""

from __future__ import annotations

import bisect
import itertools
import struct
import time
from typing import Iterator, Sequence

from .. import log
from ..errors import GdbextError
from . import pagemap, remote_memory
from .model import PAGE, Mapping

CHUNK = 1 << 16  # pagemap entries (256 MiB of addresses, with pages of 4 KiB) that are read at once
IS_MMAPPED, SIZE_BITS = 2, 7
MIN_BLOCK = 128 << 10  # glibc maps no smaller block by itself
WALK_SECONDS = 2.0  # that looking for blocks in one mapping may take
BATCH = 1024
SHARED = ("/dev/shm/", "/dev/zero", "/memfd:", "/SYSV")  # memory, no file and no device
BLOCK = 64  # pages that are compared at once
MAX_SPANS = 1 << 20  # pieces that one mapping is cut into at most
SMALL = 32 << 20  # bytes of it in a snapshot that was not asked for more: mappings that are small as a whole
EVERYTHING = 1 << 62  # bytes: also what is shared with other processes


class Selection:
    """`spans`: `[(start, end)]` of the pages to copy; `left_out`: `[(address, bytes)]` of pieces that were too big; `size`: bytes
    in `spans`."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []
        self.left_out: list[tuple[int, int]] = []
        self.size = 0


class Growth:
    """The pages of a process's private writable mappings that come into use from now on. Mappings larger than `limit` bytes are
    left out: a GiB takes some milliseconds. `maps`: the memory map as it is now."""

    def __init__(self, tid: int, maps: Sequence[Mapping], limit: int = 4 << 30) -> None:
        self._tid, self._limit = tid, limit
        self._known = dict(self._blocks(maps))

    def _blocks(self, maps: Sequence[Mapping]) -> Iterator[tuple[int, bytes]]:
        """`(address, one byte for each page)` of aligned pieces of BLOCK pages; nothing where the pagemap may not be read."""
        with log.passing_over(OSError, GdbextError), open(f"/proc/{self._tid}/pagemap", "rb", buffering=0) as file:
            for m in maps:
                if m.perms != "rw-p" or m.end - m.start > self._limit or "/dev/" in m.path:
                    continue
                block = BLOCK * pagemap.KERNEL_PAGE
                low, high = m.start // block * block, -(-m.end // block) * block
                for at, flags in pagemap.entries(file.fileno(), low, high, pagemap.OWN, CHUNK):
                    for i in range(0, len(flags), BLOCK):
                        yield at + pagemap.KERNEL_PAGE * i, flags[i : i + BLOCK]

    def spans(self, maps: Sequence[Mapping]) -> list[tuple[int, int]]:
        """`[(start, end)]` of the pages that have come into use; `maps`: the memory map as it is now. It takes milliseconds, so
        it may run while the process is paused."""
        found = []
        for base, flags in dict(self._blocks(maps)).items():  # two mappings may share a piece
            before = self._known.get(base, b"")
            if flags != before:
                new = [base + pagemap.KERNEL_PAGE * i for i, (a, b) in enumerate(zip(flags, before or bytes(BLOCK))) if a > b]
                found += [(page, page + pagemap.KERNEL_PAGE) for page in new]
        return found


def select(tid: int, maps: Sequence[Mapping], limit: int) -> Selection:
    """Selects private memory in use to copy, at most `limit` bytes; with `EVERYTHING` also shared memory. `tid`: a thread that
    has the memory.

    The pages are counted by pagemap entries, a few hundred MiB of addresses at a time. Memory that is not copied needs no list of
    its pages."""
    found = Selection()
    private = [m for m in maps if "r" in m.perms and "p" in m.perms and not m.path.startswith(("/dev/", "[v"))]
    shared = [m for m in maps if limit >= EVERYTHING and m.perms.startswith("rw-s") and m.path.startswith(SHARED)]
    try:
        file = open(f"/proc/{tid}/pagemap", "rb", buffering=0)
    except OSError:
        found.left_out = [(m.start, m.end - m.start) for m in private + shared]
        return found
    with file:
        fd = file.fileno()
        pieces: list[tuple[bool, int, int, list[tuple[int, int]]]] = []  # (is a block, bytes, address, spans)
        for m in private:
            used = spans(fd, m.start, m.end, limit)
            if used is not None:
                pieces.append((False, _size(used), m.start, used))
            else:
                parts = spans(fd, m.start, m.end)
                if parts is None:
                    found.left_out.append((m.start, m.end - m.start))
                elif limit == SMALL:
                    found.left_out.append((m.start, _size(parts)))
                else:
                    pieces += split(tid, parts, m.start, m.end)
        for m in shared:
            used = spans(fd, m.start, m.end, table=pagemap.THERE)
            pieces.append((True, _size(used or []), m.start, used or []))
    for _, size, start, used in sorted(pieces):  # blocks that malloc mapped by themselves come last
        if found.size + size > limit:
            found.left_out.append((start, size))
        else:
            found.spans += used
            found.size += size
    found.spans.sort()
    return found


def _size(parts: Sequence[tuple[int, int]]) -> int:
    return sum(end - start for start, end in parts)


def spans(fd: int, start: int, end: int, enough: int | None = None, table: bytes = pagemap.OWN) -> list[tuple[int, int]] | None:
    """`[(start, end)]` of adjoining pages in use. None as soon as they are more than `enough` bytes, or more than `MAX_SPANS`, or
    where the search takes too long. `fd`: /proc/PID/pagemap; `table`: of pagemap.py, which pages count."""
    try:
        return _spans(fd, start, end, enough, table)
    except GdbextError as e:
        log.passed_over(e)
        return None


def _spans(fd: int, start: int, end: int, enough: int | None, table: bytes) -> list[tuple[int, int]] | None:
    found: list[tuple[int, int]] = []
    total = 0
    for base, flags in pagemap.entries(fd, start, end, table, CHUNK):
        total += pagemap.KERNEL_PAGE * flags.count(1)
        if enough is not None and total > enough:
            return None
        at = flags.find(1)
        while at >= 0:
            stop = flags.find(0, at)
            stop = len(flags) if stop < 0 else stop
            low, high = base + pagemap.KERNEL_PAGE * at, base + pagemap.KERNEL_PAGE * stop
            if found and found[-1][1] == low:
                found[-1] = (found[-1][0], high)
            else:
                found.append((low, high))
            at = flags.find(1, stop)
        if len(found) > MAX_SPANS:
            return None
    return found


def split(tid: int, used: Sequence[tuple[int, int]], start: int, end: int) -> list[tuple[bool, int, int, list[tuple[int, int]]]]:
    """`[(whether it is such a block, bytes, address, spans)]`: a mapping cut where malloc's own mapped blocks begin and end.

    `used`: its pages in use. The kernel joins neighbouring mappings, so a tensor and Python's arenas may share one. A mapping
    without such blocks, or with too many pages for the time limit, stays whole."""
    deadline, open_at = time.monotonic() + WALK_SECONDS, start
    cuts: list[tuple[int, int, bool]] = []
    for low, high in used:
        at = max(low, open_at)
        while at < high and time.monotonic() < deadline:
            pages = range(at, min(high, at + PAGE * BATCH), PAGE)
            hit = next(_blocks(tid, pages, end), None)
            if hit is None:
                at = pages.stop
                continue
            if hit[0] > open_at:
                cuts.append((open_at, hit[0], False))
            cuts.append((*hit, True))
            at = open_at = hit[1]
    if open_at < end:
        cuts.append((open_at, end, False))
    found, ends = [], [b for _, b in used]
    for low, high, block in cuts:
        first = bisect.bisect_right(ends, low)
        inside = [(max(a, low), min(b, high)) for a, b in itertools.takewhile(lambda span: span[0] < high, used[first:])]
        found.append((block, _size(inside), low, inside))
    return found


def _blocks(tid: int, pages: range, end: int) -> Iterator[tuple[int, int]]:
    """`(start, end)` of the blocks that begin at one of `pages`."""
    for page, words in zip(pages, remote_memory.read_ranges(tid, [(page, 16) for page in pages])):
        if len(words) == 16:
            size = struct.unpack_from("<Q", words, 8)[0]
            length = size - (size & SIZE_BITS)
            if size & SIZE_BITS == IS_MMAPPED and length % PAGE == 0 and MIN_BLOCK <= length <= end - page:
                yield page, page + length
