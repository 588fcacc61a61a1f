"""Reads many pieces of a running process's memory in one call: process_vm_readv where it may be used, else a read for each piece.

One call copies them within microseconds of each other; between separate reads the process runs on.
"""

from __future__ import annotations

import array
import ctypes
import errno
import os
from typing import TYPE_CHECKING

from ..errors import FaultError
from .ptrace import IOV_MAX, libc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .proc import ProcTarget

_FIRST_SIZE = 1 << 16


class BulkReader:
    """Reads scattered memory of the process of a `ProcTarget`. `calls` counts the reads of all kinds."""

    def __init__(self, target: ProcTarget) -> None:
        self.target = target
        self.calls = 0
        self._scattered = True
        self._room = 0
        self._grow(_FIRST_SIZE)

    def _grow(self, size: int) -> None:
        self._room = size
        self._buffer = ctypes.create_string_buffer(size)
        self._local = array.array("Q", [ctypes.addressof(self._buffer), size])
        self._local_at = self._local.buffer_info()[0]

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
            self._local[1] = total
            try:
                remote = array.array("Q", ranges)
            except OverflowError:
                raise FaultError(ranges[0], total, "not an address range") from None
            self.calls += 1
            done = libc.process_vm_readv(self.target.pid, self._local_at, 1, remote.buffer_info()[0], count, 0)
            if done == total:
                return ctypes.string_at(self._buffer, total)
            if done >= 0 or ctypes.get_errno() == errno.EFAULT:
                raise FaultError(ranges[0], total, "")
            self._scattered = False  # a sandbox may refuse the call where /proc/PID/mem can be read
        return b"".join([self.read(ranges[i], ranges[i + 1]) for i in range(0, len(ranges), 2)])
