"""The working set of a reader: the pages that it reads of a running process are recorded, copied in one stop, and read again from
the copy."""

from __future__ import annotations

import time
from typing import Sequence

from ..errors import FaultError
from .base import Target
from .model import PAGE, Mapping, ReadLog, Thread
from .proc import ProcTarget

MAX_PAGES = 1 << 14


def pages_of(address: int, size: int) -> range:
    """Addresses of the pages that hold a range."""
    return range(address & -PAGE, address + size, PAGE)


class _Logged(Target):
    """A Target that notes which bytes are asked for, where its log wants to know (`ReadLog.marks`)."""

    read_log: ReadLog

    def read(self, address: int, size: int) -> bytes:
        """As `Target.read`."""
        data = super().read(address, size)
        if self.read_log.marks is not None:
            self.read_log.mark(address, size)
        return data

    def u64(self, address: int) -> int:
        """As `Target.u64`."""
        if self.read_log.marks is not None:
            self.read_log.mark(address, 8)
        return super().u64(address)

    def cstring(self, address: int, limit: int = 4096) -> bytes:
        """As `Target.cstring`, which reads more than it gives."""
        marks, self.read_log.marks = self.read_log.marks, None
        try:
            found = super().cstring(address, limit)
        finally:
            self.read_log.marks = marks
        self.read_log.mark(address, len(found) + 1)
        return found


class Recorder(_Logged, ProcTarget):
    """The running process; its log gathers the pages that a reader asks for, `limit` of them at most.

    With a `deadline` (monotonic) every read after it faults, and `copies` holds the memory that was read, by page."""

    def __init__(self, pid: int, *, limit: int = MAX_PAGES) -> None:
        super().__init__(pid)
        self.read_log = ReadLog()
        self.limit = limit
        self.deadline: float | None = None
        self.copies: dict[int, bytes] = {}

    def gather(self, addresses: Sequence[int], size: int) -> None:
        """None: each page that is read is to be known."""

    def _read(self, address: int, size: int) -> bytes:
        if len(self.read_log.pages) > self.limit or (self.deadline and time.monotonic() > self.deadline):
            raise FaultError(address, size, "enough for one snapshot")
        pages = pages_of(address, size)
        data = super()._read(pages[0], PAGE * len(pages))  # where a byte can be read, all of its page can
        self.read_log.pages.update(pages)
        if self.deadline:
            for i, page in enumerate(pages):
                self.copies[page] = data[i * PAGE : (i + 1) * PAGE]
        return data[address - pages[0] : address - pages[0] + size]

    def _read_away(self, address: int, size: int) -> bytes:
        """A read of a page that is not in memory. With a deadline the process is paused: the read does not wait."""
        if self.deadline:
            raise FaultError(address, size, "not in memory")
        return super()._read_away(address, size)


class Copy(_Logged):
    """The copied memory. Memory that cannot change (read-only mappings) still comes from the process; the log's `missed` gathers
    all other pages that it lacks, `pages` all that are read."""

    kind = "snapshot"

    def __init__(
        self, live: ProcTarget, memory: dict[int, bytes | memoryview], maps: list[Mapping], stopped: Sequence[Thread]
    ) -> None:
        super().__init__()
        self.pid, self.arch = live.pid, live.arch
        self.live, self.memory, self.maps, self.stopped = live, memory, maps, stopped
        self.read_log = ReadLog(of_copy=True)

    def _read(self, address: int, size: int) -> bytes:
        pages = pages_of(address, size)
        self.read_log.pages.update(pages)
        complete = True
        for page in pages:
            if page in self.memory:
                continue
            m = self.mapping_at(page)
            if m is None:
                raise FaultError(address, size)
            if "w" in m.perms:
                self.read_log.missed.add(page)
                complete = False
            else:
                self.memory[page] = self.live.read(page, PAGE)
        if not complete:
            raise FaultError(address, size, "not copied")
        first = pages[0]
        return b"".join(self.memory[p] for p in pages)[address - first : address - first + size]

    def _mappings(self) -> list[Mapping]:
        return self.maps

    def _threads(self) -> list[Thread]:
        return list(self.stopped)  # also those that have ended since

    def root(self) -> str:
        """The process's root folder."""
        return self.live.root()

    def cwd(self) -> str:
        """As the process's."""
        return self.live.cwd()

    def argv(self) -> list[str]:
        """As the process's."""
        return self.live.argv()
