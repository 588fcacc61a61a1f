"""Which stops last: a signal's do, also where a reader holds the process for a moment when it is asked."""

import pytest

from gdbext.access import ptrace

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
