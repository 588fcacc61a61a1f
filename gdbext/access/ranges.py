"""Ranges of pages: writable ones, adjoining ones, and the part of each thread's stack to copy."""

from __future__ import annotations

import bisect
from typing import Iterable, Sequence

from . import ptrace
from .model import PAGE, Mapping

STACK_BYTES = 256 << 10  # of each thread's stack, from the stack pointer up
RED_ZONE = 128  # below it: System V ABI x86-64, 3.2.2
MAX_RUN = 8 << 20  # bytes copied as one piece
ARENA = 1 << 20


class Writable:
    """`page in Writable(maps)`: whether a page lies in writable memory."""

    def __init__(self, maps: Iterable[Mapping]) -> None:
        self.spans = sorted((m.start, m.end) for m in maps if "w" in m.perms)
        self.starts = [s for s, _ in self.spans]

    def __contains__(self, page: int) -> bool:
        i = bisect.bisect_right(self.starts, page) - 1
        return i >= 0 and page < self.spans[i][1]


def stack_ranges(registers: Iterable[bytes], arch: str, ends: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """`[(address, size)]` of the innermost part of each thread's stack. `ends`: (start, end) of the mappings, by address."""
    found, starts = [], [start for start, _ in ends]
    for raw in registers:
        known = ptrace.decode_registers(raw, arch)
        if known:
            sp = known[ptrace.STACK_POINTER[arch]]
            low = sp - RED_ZONE & -PAGE
            i = bisect.bisect_right(starts, sp) - 1  # the process is paused meanwhile: no search through all mappings
            end = ends[i][1] if i >= 0 and sp < ends[i][1] else low + STACK_BYTES
            found.append((low, min(end - low, STACK_BYTES)))
    return found


def runs(pages: Iterable[int]) -> list[tuple[int, int]]:
    """`[(start, end)]` of adjoining pages."""
    found: list[tuple[int, int]] = []
    for page in sorted(pages):
        if found and found[-1][1] == page:
            found[-1] = (found[-1][0], page + PAGE)
        else:
            found.append((page, page + PAGE))
    return found


def joined(parts: Iterable[tuple[int, int]], most: int = MAX_RUN) -> list[tuple[int, int]]:
    """`[(start, end)]` that may overlap -> `[(address, size)]` that do not, each of `most` bytes at most."""
    found: list[tuple[int, int]] = []
    at = 0
    for start, end in sorted(parts):
        start = max(start, at)
        while start < end:
            size = min(end - start, most)
            found.append((start, size))
            start += size
        at = max(at, end)
    return found


def near_first(parts: Iterable[tuple[int, int]], pages: Iterable[int]) -> list[tuple[int, int]]:
    """As `joined`, those first that lie next to one of `pages`: CPython makes objects in arenas of 1 MiB (obmalloc.c), so those
    that were made meanwhile are likely to lie there."""
    near = {page // ARENA for page in pages}
    return sorted(joined(parts, ARENA), key=lambda part: near.isdisjoint((part[0] // ARENA, (part[0] + part[1] - 1) // ARENA)))
