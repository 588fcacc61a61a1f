"""Which memory of a process is in memory, so that reading it waits for nobody.

Source: Linux, Documentation/admin-guide/mm/pagemap.rst.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Iterable

KERNEL_PAGE = os.sysconf("SC_PAGE_SIZE")  # what one pagemap entry stands for
_ABSENT = bytes(int(not b >> 7) for b in range(256))  # by the upper byte of an entry: not in memory


class Presence:
    """What is in memory of a process; where its pagemap may not be read, all of it. `tid`: a thread that has the memory."""

    def __init__(self, tid: int) -> None:
        try:
            self._file = os.open(f"/proc/{tid}/pagemap", os.O_RDONLY)
        except OSError:
            self._file = -1

    def absent(self, address: int, size: int) -> bytes:
        """One byte for each page that a range touches: 1 where it is not in memory; b"" where all are."""
        if self._file < 0 or size <= 0:
            return b""
        first = address // KERNEL_PAGE
        count = (address + size - 1) // KERNEL_PAGE - first + 1
        try:
            flags = os.pread(self._file, 8 * count, 8 * first)[7::8].translate(_ABSENT)
        except (OSError, OverflowError):
            return b""
        return flags if 1 in flags else b""

    def split(self, ranges: Iterable[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """`[(address, size)]`, of whole pages -> (those in memory, those that are not)."""
        here: list[tuple[int, int]] = []
        away: list[tuple[int, int]] = []
        for address, size in ranges:
            flags = self.absent(address, size)
            at = 0
            while at < len(flags):
                end = flags.find(1 - flags[at], at)
                end = len(flags) if end < 0 else end
                (away if flags[at] else here).append((address + at * KERNEL_PAGE, (end - at) * KERNEL_PAGE))
                at = end
            if not flags:
                here.append((address, size))
        return here, away

    def close(self) -> None:
        """Closes it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
