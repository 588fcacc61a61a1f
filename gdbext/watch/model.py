"""What the watch hands on: the numbers of one look, and its events. Exporters read these; they read no process.

No user's content: no request's text, header or id, no argument, no environment.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any, Callable

from ..errors import GdbextError

# ---- kinds of events ---------------------------------------------------------------------------------------------------
STARTED = "started"  # the watch: {"processes"}
CAME = "came"  # a process is followed from now on: {"label", "pid", "engine", "instead_of": pid or None, "at_first": bool}
LEFT = "left"  # it ended of itself or is no longer asked for: {"label", "pid", "engine", "why", "signal"}
DIED = "died"  # it ended while work was owed, or by a signal: as LEFT, with "oom": bool, "stack": its last frames
STALLED = "stalled"  # no progress for longer than the limit: {"engine", "labels", "why", "seconds", "limit"}
VERDICT = "verdict"  # what llm-hang said of it: {"engine", "verdict", "sentence", "culprits", "seconds": since progress ended};
# of boxes of several machines also "machines": how many, "file": their folder
RECOVERED = "recovered"  # progress again: {"engine", "verdict", "seconds": how long there was none}
BOX = "box"  # a box was written: {"file", "bytes", "why", "snapshots", "partial"}
NO_BOX = "no-box"  # none was written: {"why"}
ASKED = "asked"  # a watch of another machine asks for a box of this moment: {"host", "why"}
LOST = "lost"  # the watch cannot read something any longer: {"label", "pid", "why"}
ENDED = "ended"  # the watch itself: {"why", "looks", "events"}
KINDS = (STARTED, CAME, LEFT, DIED, STALLED, VERDICT, RECOVERED, BOX, NO_BOX, ASKED, LOST, ENDED)


@dataclass
class RankLook:
    """One process at one look. None: not known.

    * `label`, `pid`, `role`, `engine`: of llm-ranks; "" for a program of no engine. `engine` is the instance's name
    * `state`: of the main thread as in proc(5), "" where the process has died (told for ten minutes, or until its label is back)
    * `place`: the innermost Python function of the main thread, "" where it has no Python frames
    * `stood`: seconds for which its main thread has been in one place, without those in which it waited for a CPU
    * `cpu`: processors used since the look before; `queued`: of its threads' waiting for one, the same way
    * `rss`: bytes; `grows`: {kind of memory: bytes a minute by which it keeps growing over the last minutes, 0: it does not}
    * `steps`: the engine's own counter in this process; `lag`: how many steps behind the first of its engine's ranks
    * `gil`: label of the thread that holds the GIL, "" for none
    * `box`: bytes that its history takes in memory"""

    label: str
    pid: int
    role: str = ""
    engine: str = ""
    state: str = ""
    place: str = ""
    stood: float = 0.0
    cpu: float | None = None
    queued: float | None = None
    rss: int | None = None
    steps: int | None = None
    lag: int | None = None
    gil: str = ""
    box: int = 0
    grows: dict[str, int] | None = None

    @property
    def growing(self) -> int | None:
        """Bytes a minute of all kinds of memory that keep growing; what is locked is of another kind too."""
        return sum(more for kind, more in self.grows.items() if kind != "locked") if self.grows is not None else None


@dataclass
class EngineLook:
    """One engine at one look. None: not known.

    * `running`, `waiting`: requests in its schedulers
    * `tokens`, `steps`, `preemptions`: counted since the watch follows it, never falling
    * `owed`: it has open requests; `stood`: seconds for which nothing of it moved while that was so
    * `limit`: seconds of standing at which it is judged, by what its steps have taken so far
    * `oldest`: seconds for which the request that waits longest has not moved
    * `kv_use`: the part of its KV blocks in use, 0 to 1
    * `verdict`: of the last examination, "" while there is progress"""

    name: str
    labels: list[str] = field(default_factory=list)
    running: int | None = None
    waiting: int | None = None
    tokens: int = 0
    steps: int = 0
    preemptions: int | None = None
    owed: bool = False
    stood: float = 0.0
    limit: float = 0.0
    oldest: float | None = None
    kv_use: float | None = None
    verdict: str = ""


@dataclass
class Look:
    """Everything at one time.

    * `number`: from 1; `time`: seconds since the epoch; `clock`: on the monotonic clock
    * `throttled`: seconds for which the processes' cgroups were denied a CPU by their quota, since the watch began
    * `took`, `cost`: CPU seconds of the watch for this look, and in all; `memory`: its resident bytes
    * `box`: bytes of history in memory; `stalls`, `boxes`: how many so far"""

    number: int
    time: float
    clock: float
    ranks: list[RankLook] = field(default_factory=list)
    engines: list[EngineLook] = field(default_factory=list)
    throttled: float | None = None
    took: float = 0.0
    cost: float = 0.0
    memory: int = 0
    box: int = 0
    stalls: int = 0
    boxes: int = 0

    def data(self) -> dict[str, Any]:
        """The same as plain values for JSON."""
        return asdict(self)


@dataclass
class Event:
    """Something happened: its `kind` (one of `KINDS`), plain `data`, and when, in seconds since the epoch."""

    kind: str
    data: dict[str, Any]
    time: float = field(default_factory=time.time)


def reason(error: Exception) -> str:
    """An error in words that hold no content of a process: of one that nobody expected its kind."""
    return str(error) if isinstance(error, (GdbextError, OSError)) else type(error).__name__


# what the watch calls, each in its own thread and in order; neither may take long nor raise
OnEvent = Callable[[Event], None]
OnLook = Callable[[Look], None]
