"""Memory of another process, much of it or many pieces at once, by process_vm_readv.

One call copies its pieces within microseconds of each other; between separate reads the process runs on. `ReadBuffer` takes large
amounts during a stop, `BulkReader` a few pieces many times a second, `gather` many pieces of one size."""

from __future__ import annotations

import array
import ctypes
import errno
import mmap
import os
import time
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Sequence

from .. import log
from ..errors import FaultError, GdbextError
from .background import background_thread
from .ptrace import IOV_MAX, Iovec, libc

if TYPE_CHECKING:
    from .proc import ProcTarget

FIRST_SIZE = 1 << 16  # bytes of a BulkReader's buffer, at first
CALL = 8 << 20  # bytes that one call copies, unless one range is longer
MAP_POPULATE = 0x8000  # <asm-generic/mman.h>; Python has it since 3.10
HANDS, HANDFUL = 4, 64 << 20  # threads that copy at most, and bytes for each


class ReadBuffer:
    """Space for the bytes of `[(address, size)]`, each below 2 GiB.

    It is made before a process is stopped, so that the stop lasts no longer than the copying."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        self.ranges = list(ranges)
        self.got = [0] * len(self.ranges)
        self._until: float | None = None
        self._late: list[tuple[int, int]] = []
        self._offsets, at = [], 0
        for _, size in self.ranges:
            self._offsets.append(at)
            at += size
        self.size = at
        self._buffer = _populated(at) if at else None
        self._hands = min(HANDS, len(os.sched_getaffinity(0)), 1 + at // HANDFUL)

    def read(self, tid: int, until: float | None = None) -> list[tuple[int, int]]:
        """Fills the buffer from the memory of a thread: process_vm_readv, 1,024 ranges a call. Ranges that cannot be read are
        left out. Several threads copy large amounts at once. -> the ranges that were not read by `until` (monotonic), which are
        left out too"""
        if self._buffer is None:
            return []
        self._until, self._late = until, []
        work = (tid, ctypes.addressof(ctypes.c_char.from_buffer(self._buffer)), iter(self._calls()))
        others = []
        with log.passing_over(GdbextError):  # no thread more: this one does it all
            others += [background_thread(self._read_ranges, *work) for _ in range(self._hands - 1)]
        self._read_ranges(*work)
        for other in others:
            other.join()
        return sorted(self._late)

    def _calls(self) -> list[tuple[int, int]]:
        """`[(first, end)]` of the ranges that are read by one call."""
        found, first, size = [], 0, 0
        for i, (_, own) in enumerate(self.ranges):
            if i > first and (i - first == IOV_MAX or size + own > CALL):
                found.append((first, i))
                first, size = i, 0
            size += own
        return [*found, (first, len(self.ranges))]

    def _read_ranges(self, tid: int, base: int, calls: Iterator[tuple[int, int]]) -> None:
        ranges, offsets, got = self.ranges, self._offsets, self.got
        for first, end in calls:
            i = end if self._is_late() else first
            while i < end:
                iovecs: Any = Iovec * (end - i)
                local = iovecs(*[(base + offset, size) for offset, (_, size) in zip(offsets[i:end], ranges[i:end])])
                done = int(libc.process_vm_readv(tid, local, end - i, iovecs(*ranges[i:end]), end - i, 0))
                if done < 0 and ctypes.get_errno() == errno.ESRCH:
                    return
                while i < end and done >= ranges[i][1]:
                    got[i] = ranges[i][1]
                    done -= got[i]
                    i += 1
                if i < end:  # this one faults, perhaps half-way
                    got[i] = max(done, 0)
                    i += 1
            if self._is_late():
                got[first:end] = [0] * (end - first)
                self._late += ranges[first:end]

    def _is_late(self) -> bool:
        return self._until is not None and time.monotonic() > self._until

    def pieces(self) -> list[tuple[int, memoryview]]:
        """`[(address, memoryview)]`, each as long as could be read."""
        view = memoryview(self._buffer) if self._buffer is not None else memoryview(b"")
        return [(a, view[o : o + g]) for (a, _), o, g in zip(self.ranges, self._offsets, self.got)]


def _populated(size: int) -> mmap.mmap:
    """Memory whose pages are there already. Small ones: where memory is in pieces, the kernel takes seconds to put large ones
    together (0.9 GB: 2.1 to 4 s, small ones 0.5 s), and the copying is as fast into either."""
    return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_POPULATE)


def read_ranges(pid: int, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
    """`[(address, size)]` -> `[bytes]`, each as long as could be read (b"" for nothing)."""
    buffer = ReadBuffer(ranges)
    buffer.read(pid)
    return [bytes(data) for _, data in buffer.pieces()]


def gather(tid: int, addresses: Sequence[int], size: int) -> memoryview | None:
    """`size` bytes at each address, one after the other, from the memory of a thread: process_vm_readv, 1,024 addresses a call.
    None where any of them cannot be read."""
    remote = array.array("Q", bytes(16 * len(addresses)))  # struct iovec: base, length
    try:
        remote[0::2], remote[1::2] = array.array("Q", addresses), array.array("Q", [size]) * len(addresses)
    except OverflowError:
        return None
    found = bytearray(size * len(addresses))
    if not found:
        return memoryview(found)
    base = ctypes.addressof(ctypes.c_char.from_buffer(found))
    for first in range(0, len(addresses), IOV_MAX):
        count = min(IOV_MAX, len(addresses) - first)
        if _copied(tid, base + first * size, count * size, remote, first, count) != count * size:
            return None
    return memoryview(found)


def _copied(tid: int | None, to: int, size: int, ranges: array.array[int], first: int, count: int) -> int:
    """Copies `count` of another process's ranges, a struct iovec each, from the `first` on, one after the other to an address
    here. -> how many of the `size` bytes; -1: see errno"""
    return int(libc.process_vm_readv(tid, ctypes.byref(Iovec(to, size)), 1, ranges.buffer_info()[0] + 16 * first, count, 0))


class BulkReader:
    """Reads scattered memory of the process of a `ProcTarget`. `calls` counts the reads of all kinds."""

    def __init__(self, target: ProcTarget) -> None:
        self.target = target
        self.calls = 0
        self._scattered = True
        self._room = 0
        self._grow(FIRST_SIZE)

    def _grow(self, size: int) -> None:
        self._room = size
        self._buffer = ctypes.create_string_buffer(size)
        self._at = ctypes.addressof(self._buffer)

    def read(self, address: int, size: int) -> bytes:
        """Exactly `size` bytes; `FaultError` where they cannot be read."""
        self.calls += 1
        try:
            found = os.pread(self.target.open_memory().fileno(), size, address)
        except (OSError, OverflowError) as e:
            raise FaultError(address, size, getattr(e, "strerror", "") or "") from None
        if len(found) != size:
            raise FaultError(address, size, "")
        return found

    def read_ranges(self, ranges: Sequence[int], total: int) -> bytes:
        """The bytes of several pieces, one after the other. `ranges`: address, size, address, size …, at most `IOV_MAX` pieces of
        `total` bytes together. `FaultError` where one of them cannot be read."""
        count = len(ranges) // 2
        if self._scattered and count <= IOV_MAX:
            if total > self._room:
                self._grow(2 * total)
            try:
                remote = array.array("Q", ranges)
            except OverflowError:
                raise FaultError(ranges[0], total, "not an address range") from None
            self.calls += 1
            done = _copied(self.target.pid, self._at, total, remote, 0, count)
            if done == total:
                return ctypes.string_at(self._buffer, total)
            if done >= 0 or ctypes.get_errno() == errno.EFAULT:
                raise FaultError(ranges[0], total, "")
            self._scattered = False  # a sandbox may refuse the call where /proc/PID/mem can be read
        return b"".join([self.read(ranges[i], ranges[i + 1]) for i in range(0, len(ranges), 2)])
