"""The table of a trace: self and total of nested events, on several threads, of a function that calls itself; hostile traces."""

import json

import pytest

from gdbext.errors import GdbextError
from gdbext.timeline import torch_trace


def event(name, ts, dur, tid=1, **more):
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur, **more}


def read(tmp_path, plain):
    path = tmp_path / "t.json"
    path.write_text(plain if isinstance(plain, str) else json.dumps(plain))
    return torch_trace.read(str(path))


def test_self_is_without_what_lies_inside(tmp_path):
    events = [event("outer", 0, 100), event("inner", 10, 30), event("inner", 50, 30), event("inner", 20, 5, tid=2)]
    events += [event("again", 200, 50), event("again", 210, 20), event("across", 240, 60)]
    rows = {r["name"]: r for r in torch_trace.table(read(tmp_path, {"baseTimeNanoseconds": 0, "traceEvents": events}))}
    micro = {name: tuple(round(r[k] * 1e6) for k in ("self", "total", "count")) for name, r in rows.items()}
    assert {n: (s, t) for n, (s, t, _) in micro.items()} == {
        "outer": (40, 100),
        "inner": (65, 65),
        "again": (50, 50),
        "across": (60, 60),
    }
    assert rows["inner"]["count"] == 3 and rows["again"]["count"] == 2


def test_times_without_a_base_count_from_the_epoch_or_from_nothing(tmp_path):
    assert read(tmp_path, {"traceEvents": [event("a", 1.7e15, 5)]}).began == 1.7e9
    assert not read(tmp_path, {"traceEvents": [event("a", 17, 5)]}).has_base


@pytest.mark.parametrize(
    "plain",
    [
        "[1, 2",
        "{}",
        "[]",
        {"traceEvents": 3},
        {"traceEvents": [event("a", "x", 1)]},
        {"traceEvents": [event("a", 1, -5)]},
        {"traceEvents": [event("a", 1, 1, tid=[])]},
        {"traceEvents": [{"ph": "X"}]},
        '{"traceEvents": [' + '{"ph": "X", "args": ' * 2000,
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(tmp_path, plain):
    with pytest.raises(GdbextError) as e:
        read(tmp_path, plain)
    assert "\n" not in str(e.value)


def test_names_are_escaped_and_short(tmp_path):
    trace = read(tmp_path, {"baseTimeNanoseconds": 0, "traceEvents": [event("\x1b[2J" + "x" * 999, 0, 1)]})
    name = torch_trace.table(trace)[0]["name"]
    assert "\x1b" not in name and len(name) < 250
    assert "\x1b" not in json.dumps(list(torch_trace.chrome_events(trace, 0.0, {})))
