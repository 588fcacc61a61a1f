"""The holder of a running process's GIL, and the threads that waited for it, over several samples.

A free-threaded build has none. There, threads that stay attached while another wants all threads to stop count as holders."""

from __future__ import annotations

import time

from ..access.model import Thread
from ..cpython import gil, world
from ..cpython.runtime import Runtime
from .loop import Collector, collect, need_running


class Samples:
    """The result of `count` samples of a running process.

    * `held`: {tid: samples in which it held the GIL}
    * `waited`: {tid: samples in which it waited for it}
    * `unknown`: {tid: samples in which it ran and may have wanted it}
    * `free`: samples in which no thread held it
    * `switches`: the values of the lock's own count of switches
    * `seconds`: how long the samples took
    * `disabled`: it has no GIL in use
    """

    def __init__(self) -> None:
        self.count, self.free, self.seconds, self.disabled = 0, 0, 0.0, False
        self.held: dict[int, int] = {}
        self.waited: dict[int, int] = {}
        self.unknown: dict[int, int] = {}
        self.switches: set[int] = set()

    def __add__(self, other: Samples) -> Samples:
        both = Samples()
        both.count, both.free, both.seconds = self.count + other.count, self.free + other.free, self.seconds + other.seconds
        both.switches, both.disabled = self.switches | other.switches, self.disabled or other.disabled
        parts = ((both.held, self.held, other.held), (both.waited, self.waited, other.waited))
        for mine, one, two in (*parts, (both.unknown, self.unknown, other.unknown)):
            mine.update({tid: one.get(tid, 0) + two.get(tid, 0) for tid in (*one, *two)})
        return both

    def starved(self) -> list[int]:
        """tids that waited for the lock and never held it in a sample, the one that waited longest first."""
        return sorted((tid for tid in self.waited if tid not in self.held), key=lambda tid: -self.waited[tid])


class GilCollector(Collector):
    """Samples the GIL of a process that runs, read through /proc; `GdbextError` where it is stopped."""

    def __init__(self, rt: Runtime) -> None:
        need_running(rt.target, "the GIL")
        self.rt, self.found, self._began = rt, Samples(), time.monotonic()
        # the tid is enough here: no file is read for each thread
        self._known = [(py, Thread(py.tid)) for py in rt.states() if py.tid]
        self._tids = {py.address: py.tid for py in rt.states()}
        self._interps = sorted({py.interp for py, _ in self._known})

    def sample(self) -> None:
        rt, found, tids = self.rt, self.found, self._tids
        rt.target.invalidate()
        holders = [rt.gil(interp) for interp in self._interps]
        found.count += 1
        owners = {tids.get(address, 0) for said, address in holders if said == "held"}
        if any(said == "disabled" for said, _ in holders):
            stop, found.disabled = world.wanted_stop(rt), True
            owners |= {py.tid for py in stop.attached} if stop is not None else set()
            stand: dict[int, bool | None] = {tids.get(stop.wants, 0): True} if stop is not None else {}
            found.switches.add(0)
        else:
            stand = {py.tid: gil.stands(rt, py, th) for py, th in self._known}
            found.switches.add(sum(gil.switches(rt, interp) for interp in self._interps))
        found.free += not owners
        for tid in owners:
            found.held[tid] = found.held.get(tid, 0) + 1
        for tid, waiting in stand.items():
            if tid not in owners and waiting is not False:
                of = found.unknown if waiting is None else found.waited
                of[tid] = of.get(tid, 0) + 1

    def end(self) -> None:
        self.found.seconds = time.monotonic() - self._began


def sample(rt: Runtime, count: int, interval: float = 0.005) -> Samples:
    """`count` samples. `interval`: seconds, on average: not in step with the switch interval of the process."""
    one = GilCollector(rt)
    collect([one], interval, count=count, jitter=0.5, rest=lambda took: interval / 2)
    return one.found
