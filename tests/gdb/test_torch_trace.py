"""Traces that torch.profiler writes: a table of them, and beside a recording of ours on one time base (subjects/profiled.py)."""

import json
import os

import pytest
from harness.answers import answer
from harness.subjects import SUBJECTS, spawned

EARLY = 0.005  # seconds that torch's clock and time.time() may differ by


@pytest.fixture(scope="module")
def profiled(torch_python, tmp_path_factory):
    """-> (the trace, the recording that was made meanwhile, [(begin, end)] of each piece of work)"""
    folder = tmp_path_factory.mktemp("profiled")
    trace, record = str(folder / "trace.json.gz"), str(folder / "own.record")
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    with spawned([torch_python, os.path.join(SUBJECTS, "profiled.py"), trace], ready="{", env=env) as child:
        answer(f"llm-record -for 3 -o {record} {child.pid}")
        child.stdin.write("\n")
        child.stdin.flush()
        pieces = next(json.loads(line) for line in child.stdout if line.startswith("["))
    return trace, record, pieces


def test_the_table_has_what_took_the_time(profiled):
    trace, _, pieces = profiled
    found = answer(f"llm-record -read {trace}")["trace"]
    rows = {(r["category"], r["name"]): r for r in found["rows"]}
    marked = rows["user_annotation", "marked"]
    assert marked["count"] == len(pieces) and marked["total"] >= sum(end - begin for begin, end in pieces)
    assert rows["cpu_op", "aten::mm"]["count"] > len(pieces)
    assert 0 <= marked["self"] <= marked["total"] - rows["cpu_op", "aten::mm"]["self"] / 2
    assert abs(found["began"] - pieces[0][0]) < 60


def test_beside_a_recording_both_are_on_one_time_base(profiled, tmp_path):
    trace, record, pieces = profiled
    path = str(tmp_path / "both.json")
    found = answer(f"llm-record -read {record} -with {trace} -o {path}")
    assert found["beside"][0]["events"] > 10 and not found["partial"]
    with open(path) as f:
        both = json.load(f)
    began, events = both["otherData"]["began"], both["traceEvents"]
    marked = sorted((e["ts"] / 1e6, (e["ts"] + e["dur"]) / 1e6, e["tid"]) for e in events if e["name"] == "marked")
    assert len(marked) == len(pieces) and len({tid for _, _, tid in marked}) == 1 and marked[0][2] >= 1 << 29
    for (begin, end, _), (at, until) in zip(marked, pieces):  # what is marked encloses what the program timed
        assert begin <= at - began + EARLY and end >= until - began - EARLY
    own = [(e["ts"] / 1e6, e["ph"]) for e in events if e["name"] == "marked_work"]
    assert {phase for _, phase in own} == {"B", "E"}
    begins = [at for at, phase in own if phase == "B"]
    inside = [at for at in begins if any(begin - EARLY <= at <= end + EARLY for begin, end, _ in marked)]
    assert len(inside) == len(begins) >= 1


def test_what_cannot_be_put_beside_it_is_named(profiled, tmp_path):
    _, record, _ = profiled
    event = {"ph": "X", "name": "work", "pid": 1, "tid": 1, "ts": 5.0, "dur": 2.0}
    made = {
        "counts from nothing": {"traceEvents": [event]},
        "another time": {"baseTimeNanoseconds": 10**18, "traceEvents": [event]},
        "no trace": {"traceEvents": 7},
        "nothing": {"traceEvents": []},
    }
    said = {}
    for name, plain in made.items():
        path = str(tmp_path / f"{name.replace(' ', '-')}.json")
        with open(path, "w") as f:
            json.dump(plain, f)
        said[name] = " ".join(answer(f"llm-record -read {record} -with {path} -o {tmp_path}/out.json -force")["partial"])
    assert "unknown moment" in said["counts from nothing"] and "of another time" in said["another time"], said
    assert "no trace of torch.profiler" in said["no trace"] and "nothing lasts" in said["nothing"], said
