"""The rules. Each is a function of the facts of one group of processes; it gives a `Verdict` or None.

`ORDER` is their order. First comes what blocks a process by itself: its end, a stop, a ring of locks, the GIL, a lock that is
kept. Then comes what a process only waits for: a collective, a device, a queue. The reason: ranks in a collective are victims of
the rank that has not come. Work and rest come last: a process that waits in vain must not be called either.
"""

from __future__ import annotations

from . import (
    asyncio_loops,
    chains,
    collectives,
    contradictions,
    device,
    ended,
    fronts,
    gil,
    load,
    locks,
    requests,
    rest,
    rings,
    startup,
    untraced,
)

ORDER = (
    ended.crashed,
    ended.over,
    ended.frozen,
    ended.stopped,
    untraced.waits,
    locks.cycle,
    contradictions.ring,
    gil.not_released,
    locks.held,
    asyncio_loops.blocked,
    contradictions.asleep,
    contradictions.there,
    startup.starting,
    collectives.crossed,
    collectives.waiting,
    device.waiting,
    gil.held_while_blocked,
    rings.starved,
    chains.dead_thread,
    chains.lost_job,
    contradictions.nobody,
    chains.livelock,
    chains.uninterruptible,
    chains.starved,
    ended.stopped_elsewhere,
    ended.orphaned,
    requests.thrash,
    requests.stuck,
    fronts.kept,
    fronts.unaccepted,
    load.busy,
    rest.idle,
)
