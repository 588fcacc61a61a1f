"""The resident memory of a process: the kernel's count for each mapping, divided by content.

Sources: Documentation/filesystems/proc.rst (smaps, status); Objects/obmalloc.c of each minor (pools of pymalloc: 16 KiB, of 4 KiB
until 3.9, each with a header that gives the size of its blocks and how many are used); glibc's malloc/malloc.c and arena.c
(blocks with a mapping of their own; heaps of further arenas begin at multiples of 64 MiB with a pointer to their arena).
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Iterable, Sequence

from .. import log
from ..access import remote_memory
from ..access.base import Target
from ..access.procfs import read_proc, read_syscall, resident_bytes
from ..access.resident import IS_MMAPPED, SIZE_BITS
from ..cpython.runtime import Runtime
from ..errors import GdbextError

if TYPE_CHECKING:
    from ..torch.census import Found

KIB = 1024
PAGE = 4096
HEAP_ALIGNMENT = 64 << 20
MAX_CLASSES = 64  # size classes of pymalloc: multiples of 16 bytes up to 512, a few more leave room
POOL_HEADER = 48
BATCH = 1024  # headers of pools that are read at once
UNKNOWN = "anonymous, unknown"
ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc", "snmalloc", "hoard")  # libraries that take malloc's place, by their names
_HEAD = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ (\S+) (\d+) *(.*)")


class Piece:
    """One mapping: `start`, `end`, `perms`, `path`, its resident bytes, `rss`, and those of them in huge pages, `huge`."""

    __slots__ = ("start", "end", "perms", "path", "rss", "huge")

    def __init__(self, start: int, end: int, perms: str, path: str) -> None:
        self.start, self.end, self.perms, self.path, self.rss, self.huge = start, end, perms, path, 0, 0


def pieces(pid: int) -> list[Piece]:
    """The `Piece`s of a live process; `GdbextError` where the kernel does not give them."""
    found: list[Piece] = []
    for line in read_proc(pid, "smaps").decode("utf-8", "replace").split("\n"):
        head = _HEAD.match(line)
        if head:
            found.append(Piece(int(head[1], 16), int(head[2], 16), head[3], head[6]))
        elif line.startswith("Rss:") and found:
            found[-1].rss = int(line.split()[1]) * KIB
        elif line.startswith("AnonHugePages:") and found:
            found[-1].huge = int(line.split()[1]) * KIB
    return found


def parts(target: Target, rt: Runtime | None, tensors: Sequence[Found] = ()) -> tuple[int, dict[str, int]]:
    """-> (RSS, `{what: resident bytes}`). `rt`: None for a process without Python. `tensors`: their CPU storages are a part of
    their own."""
    if not target.is_live or not target.pid:
        raise GdbextError(f"{target.describe()}: only a live process has resident memory")
    total: dict[str, int] = {}
    stacks = _stack_pointers(target)
    storages = _storages(tensors)
    found = pieces(target.pid)
    for piece in found:
        left = piece.rss
        if not left:
            continue
        own = min(left, sum(_resident(target, *span) for span in _inside(storages, piece)))
        _add(total, "torch: CPU tensors" if _anonymous(piece) else "torch: shared CPU tensors", own)
        left -= own
        if rt is not None and _anonymous(piece) and "w" in piece.perms:
            used, free = _pools(target, rt, piece)
            if used + free > left:
                free = min(free, left)
                used = left - free
            _add(total, "pymalloc: used", used)
            _add(total, "pymalloc: free", free)
            left -= used + free
        _add(total, _what(target, piece, stacks), left)
    rss = resident_bytes(target.pid)
    if not rss:
        raise GdbextError(f"process {target.pid} has no memory of its own (any more)")
    allocator = next((name for name in ALLOCATORS if any(name in module.name for module in target.modules())), "")
    if allocator and UNKNOWN in total:  # its blocks have no mark by which they could be told from any other memory
        total[f"{UNKNOWN}: {allocator}'s heaps are among it"] = total.pop(UNKNOWN)
    return rss, {what: size for what, size in sorted(total.items(), key=lambda t: -t[1]) if size}


def _add(total: dict[str, int], what: str, size: int) -> None:
    total[what] = total.get(what, 0) + size


def _anonymous(piece: Piece) -> bool:
    return not piece.path or piece.path == "[heap]" or piece.path.startswith("[anon")


def _what(target: Target, piece: Piece, stacks: set[int]) -> str:
    """The content of the rest of a mapping, after tensors and pymalloc."""
    path = piece.path
    if path == "[heap]":
        return "malloc: heap"
    if path == "[stack]" or any(piece.start <= sp < piece.end for sp in stacks):
        return "stacks"
    if _anonymous(piece):
        return _anonymous_kind(target, piece)
    if path.startswith(("/dev/shm/", "/memfd:", "/SYSV", "/dev/zero")) or "s" in piece.perms and path.endswith(" (deleted)"):
        return "shared memory"
    if path.startswith("/dev/"):
        return "devices"
    if re.search(r"\.so[.\d]*( \(deleted\))?$", path) or "x" in piece.perms:
        return "libraries"
    return "kernel's own" if path.startswith("[") else "files"


def _anonymous_kind(target: Target, piece: Piece) -> str:
    head = target.read_partial(piece.start, 16)
    if len(head) < 16:
        return UNKNOWN
    first, second = struct.unpack("<QQ", head)
    length = second - (second & SIZE_BITS)
    if second & SIZE_BITS == IS_MMAPPED and length % PAGE == 0 and 0 < length <= piece.end - piece.start:
        return "malloc: blocks of their own"
    if piece.start % HEAP_ALIGNMENT == 0 and first % 8 == 0 and target.mapping_at(first) is not None:
        return "malloc: heaps of threads"
    if "w" in piece.perms and _behind_library(target, piece):
        return "libraries"
    return UNKNOWN


def _behind_library(target: Target, piece: Piece) -> bool:
    """Whether a mapping is the zeroed end of a library's data, which the loader puts right behind it."""
    before = target.mapping_at(piece.start - 1)
    return before is not None and ".so" in before.path


def _stack_pointers(target: Target) -> set[int]:
    """A word inside the stack of each thread for which the kernel gives one (kstkesp is 0 for a running thread)."""
    found = set()
    for thread in target.threads():
        try:
            waits = read_syscall(target.pid or thread.tid, thread.tid)
        except GdbextError as e:
            log.passed_over(e)
            continue
        if waits is not None:
            found.add(waits.sp)
    return found


# ---- tensors ---------------------------------------------------------------------------------------------------------
def _storages(tensors: Iterable[Found]) -> list[tuple[int, int]]:
    """[(start, end)] of the storages on the CPU, each once, none overlapping another."""
    spans: dict[int, int] = {}
    for found in tensors:
        t = found.tensor
        if t.device == "cpu" and t.storage_data and t.storage_bytes:
            spans[t.storage_data] = max(spans.get(t.storage_data, 0), t.storage_data + t.storage_bytes)
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans.items()):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _inside(spans: list[tuple[int, int]], piece: Piece) -> list[tuple[int, int]]:
    return [(max(a, piece.start), min(b, piece.end)) for a, b in spans if a < piece.end and b > piece.start]


def _resident(target: Target, start: int, end: int) -> int:
    """Bytes of a range in pages that hold something."""
    first, last = start & -PAGE, (end + PAGE - 1) & -PAGE
    return sum(max(0, min(end, b) - max(start, a)) for a, b in target.populated(first, last))


# ---- pymalloc --------------------------------------------------------------------------------------------------------
def _pools(target: Target, rt: Runtime, piece: Piece) -> tuple[int, int]:
    """(bytes of blocks in use, bytes of the rest) of the pools in a mapping.

    A pool counts only if its header is consistent: size class, blocks in use, and how far blocks were handed out.
    """
    size = rt.minor.pool_size
    used = free = 0
    for start, end in target.populated(piece.start, piece.end):
        first = (start + size - 1) & -size
        for base in range(first, end, size * BATCH):
            places = range(base, min(end, base + size * BATCH), size)
            for at, head in zip(places, remote_memory.read_ranges(target.pid or 0, [(at, POOL_HEADER) for at in places])):
                taken = pool_in_use(head, at, size)
                if taken is not None:
                    used += taken
                    free += min(size, end - at) - min(taken, end - at)
    return used, free


def pool_in_use(head: bytes, at: int, size: int) -> int | None:
    """Bytes of the blocks in use of a pool at `at`; None where its header is inconsistent."""
    if len(head) != POOL_HEADER:
        return None
    count, _, block, following, _, _, index, offset, most = struct.unpack("<IIQQQIIII", head)
    step = (index + 1) << 4
    if index >= MAX_CLASSES or most != size - step or not POOL_HEADER <= offset <= size or not following:
        return None
    if count * step > size - POOL_HEADER or block and block & -size != at:
        return None
    return int(count * step)
