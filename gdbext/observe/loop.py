"""The one loop in which running processes are sampled: when each round of samples is due."""

from __future__ import annotations

import math
import random
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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
