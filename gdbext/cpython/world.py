"""The stop of all threads that a free-threaded CPython makes for its collector and others ("stop the world").

A thread state is attached while its thread runs bytecode, or C code that may touch objects. A thread that comes to bytecode while
a stop is wanted suspends itself; one that is detached counts as stopped. The thread that wants the stop waits for the rest. So a
thread that stays attached in C code holds all others up, as one that keeps the GIL does in other builds. Source:
Python/pystate.c (stop_the_world), Include/internal/pycore_interp.h and pycore_pystate.h of 3.13 to 3.15.
"""

from __future__ import annotations

from typing import NamedTuple

from .runtime import PyThread, Runtime

ATTACHED = 1  # of tstate.state: _Py_THREAD_ATTACHED


class Stop(NamedTuple):
    """A stop that is wanted and has not come. `wants`: the address of the thread state that wants it; `attached`: the states
    that have not stopped."""

    wants: int
    attached: list[PyThread]


def wanted_stop(rt: Runtime) -> Stop | None:
    """The first `Stop` of an interpreter of a free-threaded process; None where there is none, and in other builds."""
    if not rt.layout.free_threaded:
        return None
    L, t = rt.layout, rt.target
    for interp in rt.interpreters():
        place = interp + L["interp.stoptheworld"]
        wants = t.u64(place + L["worldstop.requester"])
        if wants and t.u8(place + L["worldstop.requested"]) and not t.u8(place + L["worldstop.world_stopped"]):
            others = [py for py in rt.states() if py.interp == interp and py.address != wants]
            return Stop(wants, [py for py in others if t.i32(py.address + L["tstate.state"]) == ATTACHED])
    return None
