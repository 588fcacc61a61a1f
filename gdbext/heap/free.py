"""What allocators hold free of a running process's memory: a page that one place in the code touched first may be another's now.

glibc gives a freed block to the next one who asks: it lies in `top`, the end of its arena, or in a list of free chunks, the bins.
Python's allocator has pools without an object in them. Nothing is believed that is not consistent in itself.

Sources: malloc/malloc.c (struct malloc_state from 2.27 on, chunks and bins) and arena.c (heap_info) of glibc;
Objects/obmalloc.c (pools) of CPython.
"""

from __future__ import annotations

import collections
import os
import random
import struct
from typing import Iterable, Sequence

from .. import log
from ..access.base import Target
from ..access.pagemap import Presence
from ..access.remote_memory import read_ranges
from ..access.resident import SIZE_BITS
from ..cpython.runtime import Runtime
from ..errors import GdbextError
from .calls import LIBC
from .resident import HEAP_ALIGNMENT, POOL_HEADER, pool_in_use

TOP, BINS, SYSTEM = 96, 112, 2184  # struct malloc_state: its members' places
PAIRS = 127  # bins: two words each
MAX_HEAP = 1 << 40  # bytes
LARGE = 2 * 4096  # bytes of a free chunk that is taken in
MAX_ARENAS, MAX_CHUNKS, MAX_POOLS = 512, 400, 512
AHEAD = 160 << 10  # bytes: M_TOP_PAD and a little
OFTEN = 0.3  # of the looks
FIRST_LARGE = 63  # of the bins: chunks of 1024 bytes and more


class Free:
    """Of one process. `spans`: [(begin, end)] of free memory in glibc's arenas as of the last look."""

    def __init__(self, target: Target, rt: Runtime | None, presence: Presence) -> None:
        self._target, self._rt, self._presence, self._main = target, rt, presence, 0
        self.spans: list[tuple[int, int]] = []
        self._looks: collections.Counter[int] = collections.Counter()  # by arena
        self._ample: collections.Counter[int] = collections.Counter()  # those with a large free piece
        self._sizes: dict[int, tuple[int, int]] = {}  # bytes of an arena at the first and at the last look

    def look(self, heaps: Sequence[int]) -> None:
        """Reads the arenas again. `heaps`: where the mappings of threads' arenas begin."""
        self._target.drop_pages()
        found: list[tuple[int, int]] = []
        if not self._main:
            with log.passing_over(GdbextError, struct.error):
                self._main = self._main_arena()
        arenas = set()
        for heap in heaps[:MAX_ARENAS]:
            with log.passing_over(GdbextError):
                arenas.add(self._target.u64(heap))
        for arena in {self._main, *arenas} - {0}:
            with log.passing_over(GdbextError, struct.error):
                own = self._free_of(arena)
                self._looks[arena] += 1
                self._ample[arena] += any(end - begin > AHEAD for begin, end in own)
                found += own
        self.spans = sorted(found)

    def free(self, addresses: Iterable[int]) -> list[bool]:
        """Of each address: whether what is there was given back, to the kernel or to an allocator."""
        addresses = list(addresses)
        rt = self._rt
        pools: list[bytes] = []
        if rt is not None:
            size = rt.minor.pool_size
            pools = read_ranges(self._target.pid or 0, [(at & -size, POOL_HEADER) for at in addresses])
        found = []
        for number, at in enumerate(addresses):
            empty = rt is not None and pool_in_use(pools[number], at & -rt.minor.pool_size, rt.minor.pool_size) == 0
            found.append(empty or any(a <= at < b for a, b in self.spans) or self._presence.absent(at, 1))
        return found

    def pools(self, spans: Sequence[tuple[int, int]]) -> tuple[float, float]:
        """(bytes of pools of Python's allocator, those of them without an object), by chance ones of these spans."""
        whole = sum(end - begin for begin, end in spans)
        if self._rt is None or not whole:
            return 0.0, 0.0
        size = self._rt.minor.pool_size
        chosen = random.choices(spans, [end - begin for begin, end in spans], k=MAX_POOLS)
        places = [random.randrange(begin, end) & -size for begin, end in chosen]
        heads = read_ranges(self._target.pid or 0, [(at, POOL_HEADER) for at in places])
        used = [pool_in_use(head, at, size) for head, at in zip(heads, places)]
        each = whole / MAX_POOLS
        return each * sum(one is not None for one in used), each * sum(one == 0 for one in used)

    def often(self, main: bool) -> bool:
        """Whether the arenas that have grown, the brk heap's or those of threads, often had more free in one piece than malloc
        takes in advance: whoever makes them grow wants more than that, and others may keep parts of what it frees."""
        grown = {arena for arena, (first, last) in self._sizes.items() if last > first and (arena == self._main) == main}
        return any(self._ample[arena] > OFTEN * self._looks[arena] for arena in grown)

    def _main_arena(self) -> int:
        """Where libc has its first arena: bins that are empty point to themselves; its top ends where the brk heap does."""
        target = self._target
        heap = next((m for m in target.mappings() if m.path == "[heap]"), None)
        if heap is None:
            return 0
        for mapping in target.mappings():
            if "w" not in mapping.perms or not LIBC.match(os.path.basename(mapping.path)):
                continue
            data = target.read_partial(mapping.start, mapping.end - mapping.start)
            words = struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8])
            for number in range(BINS // 8, len(words) - 1):
                at = mapping.start + 8 * number
                if words[number] != at - 16 or words[number + 1] != at - 16:
                    continue
                for before in range(PAIRS):  # the first bins may have chunks
                    arena = at - 16 * before - BINS
                    index = (arena - mapping.start + TOP) // 8
                    if index < 0:
                        break
                    top = words[index]
                    if heap.start <= top < heap.start + MAX_HEAP and self._end(top) % 4096 == 0 and top < self._end(top):
                        return arena
        return 0

    def _end(self, chunk: int) -> int:
        size = self._target.u64(chunk + 8)
        return chunk + size - (size & SIZE_BITS)

    def _free_of(self, arena: int) -> list[tuple[int, int]]:
        target = self._target
        state = target.read(arena, SYSTEM + 8)
        (top,) = struct.unpack_from("<Q", state, TOP)
        end = self._end(top)
        if end % 4096 or not 0 < end - top < MAX_HEAP:
            return []
        (size,) = struct.unpack_from("<Q", state, SYSTEM)
        self._sizes[arena] = self._sizes.get(arena, (size, 0))[0], size
        found = [(top + 16, end)]
        bins = struct.unpack_from(f"<{2 * PAIRS}Q", state, BINS)
        for pair in (0, *range(FIRST_LARGE, PAIRS)):
            head, at = arena + BINS + 16 * pair - 16, bins[2 * pair]
            count = 0
            while at != head and count < MAX_CHUNKS:
                size, following, back = target.words(at + 8, 3)
                if not count and back != head:
                    break  # it is being changed
                end = at + size - (size & SIZE_BITS)
                if end - at >= LARGE:
                    found.append((at + 32, end))
                at, count = following, count + 1
        return found


def arenas_of(starts: Iterable[int]) -> list[int]:
    """Those of the mappings' beginnings at which a heap of an arena may begin."""
    return [start for start in starts if start % HEAP_ALIGNMENT == 0]
