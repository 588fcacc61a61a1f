"""Reads pages that may never arrive.

A read of a page that is not in memory waits for the page's source: a disk, a file server (FUSE, NFS), another process
(userfaultfd). Nothing ends that wait. So a process of its own reads such pages (`pagemap.Presence` says which these are). It is
left behind where they do not arrive."""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import time

from ..errors import AwayError, FaultError, GdbextError
from . import helpers

MODULE = "gdbext.access.fetcher"
PATIENCE = 1.0  # seconds that a page is waited for
STARVED = 20  # times PATIENCE that a helper may want a CPU
LOST = 3  # helpers left behind at the same time; with so many no page is asked for any more
AGAIN = 60.0  # seconds after which a page that did not arrive is asked for again
MOST = 16 << 20  # bytes of one request
REQUEST = struct.Struct("<QQQ")  # pid, address, size


class Fetcher:
    """Asks the helper of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._owner = os.getpid()
        self._helper: helpers.Helper | None = None
        self._lost: list[tuple[int, int, int, float]] = []  # (pid, start, end, when) of memory that did not arrive
        self._left_behind: list[helpers.Helper] = []

    def read(self, pid: int, address: int, size: int, span: tuple[int, int]) -> bytes:
        """`size` bytes of a process; `FaultError` where they cannot be read, `AwayError` where they do not arrive. `span`: the
        mapping that they lie in. Once one absent page of it did not arrive, no other absent page of it is asked for."""
        with self._lock:
            if self._owner != os.getpid():  # this is a copy of the process that had the helper
                self._forget()
            if self._is_lost(pid, span):
                raise AwayError(address, size, AWAY)
            parts = []
            for at in range(0, size, MOST):
                parts.append(self._ask(pid, address + at, min(MOST, size - at), span))
            return b"".join(parts)

    def _is_lost(self, pid: int, span: tuple[int, int]) -> bool:
        self._left_behind = [one for one in self._left_behind if not one.is_gone()]
        recent = time.monotonic() - AGAIN
        self._lost = [one for one in self._lost if one[3] > recent]
        here = [one for one in self._lost if one[0] == pid and one[1] < span[1] and span[0] < one[2]]
        return bool(here) or len(self._left_behind) >= LOST

    def _ask(self, pid: int, address: int, size: int, span: tuple[int, int]) -> bytes:
        for _ in range(2):
            try:
                helper = self._helper or helpers.Helper(MODULE, serve)
            except GdbextError as e:
                raise AwayError(address, size, f"the page is not in memory, and {e}") from None
            try:
                if self._helper is None:
                    self._helper = helper
                    helper.receive(helpers.START)  # it is there
                helper.send(REQUEST.pack(pid, address, size))
                found = helper.answer(PATIENCE, STARVED)
            except EOFError:
                helper.end()  # it was killed
                self._helper = None
                continue
            except TimeoutError:
                helper.end(0)
                self._left_behind.append(helper)
                self._helper = None
                self._lost.append((pid, *span, time.monotonic()))
                raise AwayError(address, size, AWAY) from None
            if len(found) == size:
                return found
            break
        raise FaultError(address, size)


AWAY = f"the page is not in memory, and its source did not deliver it in {PATIENCE:g} s"
fetcher = Fetcher()


def serve(channel: helpers.Channel) -> None:
    """The process: it says b"" once it is there; each request is answered by the bytes, b"" where they cannot be read."""
    channel.send(b"")
    while True:
        pid, address, size = REQUEST.unpack(channel.receive())
        found = b""
        with contextlib.suppress(OSError, OverflowError), open(f"/proc/{pid}/mem", "rb", buffering=0) as f:
            while len(found) < size:
                more = os.pread(f.fileno(), size - len(found), address + len(found))
                if not more:
                    break
                found += more
        channel.send(found if len(found) == size else b"")


def main() -> int:
    """The process, started as a module."""
    return helpers.run(serve)
