"""The one loop in which running processes are sampled: when each round of samples is due, and what takes them (`Collector`)."""

from __future__ import annotations

import math
import random
import time
from abc import ABC, abstractmethod
from typing import Any, Callable, Iterator, Sequence

from ..access.base import Target
from ..errors import GdbextError


class Collector(ABC):
    """What takes samples of one running process, and what came of them. `collect` calls `sample` in each round, then `end`."""

    @abstractmethod
    def sample(self) -> None:
        """Takes one sample, now. Nothing is stopped, so what two reads say may be of two moments."""

    def end(self) -> None:  # noqa: B027
        """Called after the last round: what is read once, or computed of all samples."""


def collect(collectors: Sequence[Collector], interval: float, **when: Any) -> None:
    """Samples until the end, all collectors in each round. `when`: as for `rounds`, `count=` or `seconds=` at least."""
    for _ in rounds(interval, **when):
        for one in collectors:
            one.sample()
    for one in collectors:
        one.end()


def need_running(target: Target, what: str) -> None:
    """`GdbextError` for memory that cannot change: of a core, or of a process that gdb holds."""
    if target.is_stopped:
        raise GdbextError(
            f"{target.describe()} is stopped: {what} can be sampled only while it runs; "
            f"detach, then add -on {target.pid or 'PID'}"
        )


def rounds(
    interval: float,
    *,
    count: int | None = None,
    seconds: float | None = None,
    jitter: float = 0.0,
    rest: Callable[[float], float] = lambda took: 0.0,
    wait: Callable[[float], object] = time.sleep,
) -> Iterator[float]:
    """Yields the seconds since the beginning whenever a round of samples is due. With `count`: one round each `interval` seconds,
    `count` of them. With `seconds`: rounds during that time, the last one at its end; a round that falls due during another is
    left out.

    `jitter`: the part of the interval by which a round may be early or late, so as not to be in step with the sampled process.
    `rest(took)`: seconds without a sample after a round that took so long. `wait(seconds)` waits, and ends the loop where it
    returns true."""
    began, number = time.monotonic(), 0
    while True:
        start = time.monotonic() - began
        yield start
        now, number = time.monotonic() - began, number + 1
        end = seconds if seconds is not None else math.inf
        if now >= end or number == count:
            return
        if count is None:  # a round may be late, or early by its jitter, or because its wait was cut short
            number = min(max(number, int(now / interval)), int(now / interval) + 2)
        due = (number + random.uniform(-jitter, jitter)) * interval
        pause = min(max(due - now, rest(now - start)), end - now)
        if pause > 0 and wait(pause):
            return
