"""Gives gdb's own thread priority while a process runs with a debug register armed. If gdb is killed before it has fetched a
trap, the process gets the trap, and SIGTRAP ends it. On a machine whose CPUs are all busy gdb would fetch it late.

It is the lowest real-time priority, where this user may have it (root; RLIMIT_RTPRIO). Processes that gdb starts do not inherit
it."""

from __future__ import annotations

import os

_before: list[int] = []  # the policy that gdb had, while it comes first; its nice value stays
_refused = False


def first(yes: bool) -> None:
    """Puts the calling thread, gdb's own, before others, or back. Where that is not allowed nothing is done."""
    global _refused
    if _refused or yes == bool(_before):
        return
    try:
        if yes:
            policy = os.sched_getscheduler(0)
            os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
            _before.append(policy)
        else:
            # with RLIMIT_RTPRIO alone that flag may not be cleared (sched(7))
            os.sched_setscheduler(0, _before.pop() | os.SCHED_RESET_ON_FORK, os.sched_param(0))
    except OSError:
        _refused = True
