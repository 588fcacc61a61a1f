"""The kernel's own counters of a process's memory, and what of it keeps growing over minutes, for a watch that stays."""

from __future__ import annotations

import collections

from ..access.procfs import read_proc, status_field
from . import grown

COUNTERS = {"anonymous": b"RssAnon", "files": b"RssFile", "shared memory": b"RssShmem", "locked": b"VmLck"}
KIB = 1024
EVERY, KEPT = 5.0, 120  # seconds between two readings, and how many are kept: ten minutes
RECENT, LEAST = 120.0, 60.0  # seconds: what has grown for so long counts too; what is seen for less long is not judged


def counters(pid: int) -> dict[str, int]:
    """{kind: bytes} by the kernel's own counters, in some 50 us: what `grown.rates` takes two of."""
    status = read_proc(pid, "status")
    found = {kind: status_field(status, name).split() for kind, name in COUNTERS.items()}
    return {kind: int(words[0]) * KIB for kind, words in found.items() if words}


class Growth:
    """The last ten minutes of one process. `grows`: {kind: bytes a minute by which it keeps growing, 0: it does not}; None before
    it was seen for a minute."""

    def __init__(self, pid: int) -> None:
        self._pid, self._next = pid, 0.0
        self._series: collections.deque[tuple[float, dict[str, int]]] = collections.deque(maxlen=KEPT)
        self.grows: dict[str, int] | None = None

    def look(self, now: float) -> None:
        """Reads the counters, if it is time; errors as of `read_proc`."""
        if now < self._next:
            return
        self._next = now + EVERY
        self.take(now, counters(self._pid))

    def take(self, now: float, counted: dict[str, int]) -> None:
        """Takes in one reading."""
        self._series.append((now, counted))
        if now - self._series[0][0] >= LEAST:
            self.grows = {kind: max(self._grown(kind, since) for since in (0.0, now - RECENT)) for kind in counted}

    def _grown(self, kind: str, since: float) -> int:
        own = [(at, float(kinds.get(kind, 0))) for at, kinds in self._series if at >= since]
        span = own[-1][0] - own[0][0]
        if span < LEAST:
            return 0
        whole = sum(self._series[-1][1].values())
        return int(60 * grown.keeps_growing(own, max(grown.LEAST, grown.least_of(whole, span))) / span)
