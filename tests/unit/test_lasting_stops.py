"""Which stops last: a signal's do, also where a reader holds the process for a moment when it is asked."""

import os

import pytest

from gdbext.access import holder, ptrace
from gdbext.errors import UnstoppableError

HELD, SIGNAL, RUNS, GONE = ("t", 7), ("T", 0), ("S", 0), None


@pytest.mark.parametrize(
    ("seen", "tracer"),
    [
        ([SIGNAL], 0),
        ([HELD, SIGNAL], 0),  # a collector has let it go: what had stopped it before still does
        ([HELD, HELD, SIGNAL], 0),
        ([HELD], 7),  # a debugger, for good
        ([HELD, RUNS], None),
        ([HELD, ("t", 8)], None),  # one reader after the other
        ([HELD, ("t", 0), RUNS], None),  # between its release and its next step it may still look traced
        ([HELD, GONE], None),
        ([RUNS], None),
    ],
)
def test_a_stop_lasts_where_a_signal_made_it_or_one_tracer_keeps_it(seen, tracer, monkeypatch):
    said, now = list(seen), [0.0]

    def status(pid):
        one = said.pop(0) if len(said) > 1 else said[0]
        return one and {"state": one[0], "tracer": one[1]}

    monkeypatch.setattr(ptrace, "status", status)
    monkeypatch.setattr(ptrace.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(ptrace.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    found = ptrace.lasting_stops([1])
    assert (found[1]["tracer"] if 1 in found else None) == tracer


@pytest.mark.parametrize(
    "stays, first, short, limit, pause",
    [
        ("/job", False, -1, 0.25, 0.15),  # it was used up often, though not now
        ("/job", False, 0, 0.25, 0.25),  # there is CPU time enough
        ("/job", False, 3, 0.25, 0.15),  # a period of 0.1 s may have to be waited for
        ("/job", False, 3, 0.05, None),
        ("/job", True, 3, 0.25, 0.25),  # real-time: a quota does not count
        ("", False, 3, 0.25, 0.25),  # it is where the engine gets its CPU time
    ],
)
def test_a_stop_ends_in_time_where_the_commands_cpu_time_is_used_up(monkeypatch, stays, first, short, limit, pause):
    quotas = [("/job", 5000, 100_000, 90, 1)]
    monkeypatch.setattr(holder.cgroups, "quotas", lambda pid: quotas)
    monkeypatch.setattr(holder.cgroups, "move_to", lambda pid, names: stays)
    monkeypatch.setattr(holder.own_end, "is_frozen", lambda pid: False)
    monkeypatch.setattr(holder.os, "sched_getscheduler", lambda pid: os.SCHED_FIFO if first else os.SCHED_OTHER)
    monkeypatch.setattr(holder, "_come_first", lambda: lambda: None)
    one = holder._Requests(None)
    one._leave(os.getpid())
    quotas[0] = ("/job", 5000, 100_000, 100, 1 + short) if short >= 0 else ("/job", 5000, 100_000, 15, 1)
    if pause is None:
        with pytest.raises(UnstoppableError, match="has used its CPU time up .*/job: 5000 µs in 100000 µs"):
            one._bounded(limit)
    else:
        assert one._bounded(limit) == pytest.approx(pause)
