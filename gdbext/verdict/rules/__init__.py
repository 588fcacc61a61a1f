"""The rules, each a function of the facts of one group of processes that gives a `Verdict` or None.

Their order is in `ORDER`. What blocks a process by itself (its end, a stop, a ring of locks, the GIL, a lock that is kept) comes
before what it only waits for (a collective, a device, a queue), since those who wait in a collective are victims of the one that
is not there. Who is at work or at rest is asked last: nothing that waits in vain may be called either.
"""

from __future__ import annotations

from . import asyncio_loops, chains, collectives, contradictions, device, ended, gil, load, locks, requests, rest, rings, startup

ORDER = (
    ended.crashed,
    ended.frozen,
    ended.stopped,
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
    contradictions.nobody,
    chains.livelock,
    chains.uninterruptible,
    chains.starved,
    ended.orphaned,
    requests.thrash,
    requests.stuck,
    load.busy,
    rest.idle,
)
