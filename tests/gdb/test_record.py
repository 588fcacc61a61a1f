"""llm-record against processes that say what they did and when: shares of time, states, files, and that nothing is stopped."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from harness import stalls as stall_judge
from harness import terminals
from harness.answers import answer, run
from harness.gdb_run import run_gdb
from harness.recordings import said
from harness.subjects import PYTHONS, running, spawned

from gdbext.access.proc import ProcTarget
from gdbext.errors import GdbextError
from gdbext.timeline import sampler, stalls, steps, store
from gdbext.timeline.recording import DROPPED, LOCK, RUNNING, SLEEP

SECONDS = 1.2


def seen(rec, thread):
    """{function of the subject that is innermost but for `helper` and the like: seconds}, {function: {state: seconds}}"""
    track = rec.processes[0]
    times, states = {}, {}
    for r in track.runs(thread):
        assert r.node != DROPPED or r.end - r.begin < 0.5
        names = [f.function.rpartition(".")[2] for f in rec.tree.stack(r.node)] if r.node != DROPPED else []
        name = next((n for n in names if n in ("run_long", "run_short", "rest", "drains")), "")
        times[name] = times.get(name, 0.0) + r.end - r.begin
        own = states.setdefault(name, {})
        own[r.state] = own.get(r.state, 0.0) + r.end - r.begin
    return times, states


@pytest.mark.parametrize("attributes", [3, 80])
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.drawn(3)
def test_steps_of_a_scheduler_that_waits_nowhere_are_those_that_it_counts(python, attributes):
    with running(python, "busy_steps.py", str(attributes)) as (target, _):
        failed = []
        one = [(ProcTarget(target.pid), "scheduler")]
        for _ in range(3):  # who looks had no processor for longer than several steps: their bounds are nowhere
            rec = sampler.record(one, 100.0, 3.5, failed, realtime=True, schedulers={target.pid})
            begins = rec.processes[0].begins
            gap = max(b - a for a, b in zip(begins, begins[1:])) + 0.011
            if gap < 0.1:
                break
        first, last = rec.clock, time.monotonic()
        made = []
        for line in target.process.stdout:
            made.append((json.loads(line)["begin"] - first, json.loads(line)["end"] - first))
            if made[-1][1] > last - first:
                break
    assert not failed
    found = list(steps.steps(stalls.Finder(rec), rec.processes[0]))
    assert len(found) > 10
    for step in found:  # each ends where one did, and has no rest in it
        nearest = min(range(1, len(made)), key=lambda n, step=step: abs(made[n][1] - step.end))
        over, (begin, end) = made[nearest - 1][1], made[nearest]
        assert abs(end - step.end) < gap, (step, end, gap)
        assert max(over, (over + begin) / 2) - gap < step.begin < begin + gap, (step, over, begin, gap)
    assert any(end - begin > 0.29 for begin, end in made if found[0].begin < begin and end < found[-1].end)
    begin, end, _ = steps.slowest(rec, 1)[0]
    assert end - begin == max(step.end - step.begin for step in found) > 0.29 - gap


@pytest.mark.parametrize("python", PYTHONS)
def test_time_is_seen_where_the_process_says_that_it_was(python):
    with running(python, "timeline.py", "60") as (target, _):
        failed = []
        rec = sampler.record([(ProcTarget(target.pid), "subject")], 100.0, SECONDS, failed, realtime=True)
        ended = time.monotonic()
        truth = said(target, ended - rec.seconds, ended)
    assert not failed and all("real-time priority" in note for note in rec.notes)
    track = rec.processes[0]
    named = {th.name: th for th in track.threads}
    assert set(named) == {"MainThread", "waiter", "asks"}
    times, states = seen(rec, named["MainThread"])
    for what, seconds in truth.items():
        share, own = seconds / rec.seconds, times.get(what, 0.0) / rec.seconds
        # at n looks a share is off by sqrt(p (1 - p) / n); one look takes as long as the machine lets it
        error = 4 * (share * (1 - share) / len(track.begins)) ** 0.5 + 0.03
        assert abs(share - own) < error, (what, share, own, len(track.begins))
    assert states["rest"].get(RUNNING, 0.0) < 0.5 * sum(states["rest"].values())
    waits = list(itertools.dropwhile(lambda run: run.state != LOCK, track.runs(named["waiter"])))  # it may still be on its way
    assert {run.state for run in waits} & {RUNNING, SLEEP} == set()
    assert sum(run.end - run.begin for run in waits) > 0.5 * rec.seconds
    assert track.dropped <= track.samples // 20 and all(a <= b for a, b in zip(track.begins, track.begins[1:]))
    functions = {f.function.rpartition(".")[2] for f in rec.tree.frames}
    assert {"helper", "generator", "nap", "main"} <= functions
    lines = {f.line for f in rec.tree.frames if f.function.rpartition(".")[2] == "run_long"}
    with open(os.path.join(os.path.dirname(__file__), "subjects", "timeline.py")) as f:
        source = f.read().splitlines()
    assert lines <= {
        n for n, text in enumerate(source, 1) if "perf_counter" in text or text.strip() in ("pass", "def run_long(seconds):")
    }


def test_planted_stalls_are_shown_at_their_time_with_their_cause(tmp_path):
    """Few of each kind, on whatever load the machine has: `scripts/bench --record` plants more. What a machine without a free
    processor does to a process is a stall too, and hides others: each kind is to be shown once in a few tries."""
    tries, kinds = [], {*stall_judge.KINDS, "late-rank"}
    while kinds and len(tries) < 5:
        tries.append(stall_judge.judge(PYTHONS[-1], str(tmp_path), 101 + len(tries), each=2, realtime=True))
        kinds -= tries[-1].kinds
    said = "\n".join(map(str, tries))
    assert not kinds and tries[0].planted == 2 * (len(stall_judge.KINDS) + 1), said
    assert sum(t.true for t in tries) >= 0.5 * sum(t.planted for t in tries), said


def test_the_lag_of_uvloop_is_seen(torch_python):
    if subprocess.run([torch_python, "-c", "import uvloop"], check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no uvloop beside this torch")
    for _ in range(5):
        with running(torch_python, "uvloop_blocks.py") as (target, _):
            rec = sampler.record([(ProcTarget(target.pid), "server")], 100.0, 2.5, [], realtime=True)
            target.process.kill()
            truth = [json.loads(line) for line in target.process.stdout if line.startswith('{"begin')]
        track, spans = rec.processes[0], [(one["begin"] - rec.clock, one["end"] - rec.clock) for one in truth]
        whole = [span for span in spans if all(min(abs(at - moment) for at in track.begins) < 0.05 for moment in span)]
        if len(whole) >= 2:  # a recorder that gets no CPU does not see when a callback begins or ends
            break
    assert len(whole) >= 2, spans
    steps.count_loop_lags(rec)
    lags = [(at, lag) for at, lag in track.counters["event loop lag"] if lag > 0.1]
    for begin, end in whole:
        near = [lag for at, lag in lags if abs(at - end) < 0.1]
        assert near and abs(near[0] - (end - begin)) < 0.1, (begin, end, lags)
    assert {s.frame.function for s in stalls.find(rec) if s.cause == "loop"} == {"handler"}


def test_two_recordings_are_compared(tmp_path):
    with running(PYTHONS[-1], "timeline.py", "60") as (target, _):
        run(f"llm-record -for 0.8 -o {tmp_path / 'a.record'} -o {tmp_path / 'b.collapsed'} -cpu {target.pid}")
    found = answer(f"llm-record -diff {tmp_path / 'a.record'} {tmp_path / 'b.collapsed'} -o {tmp_path / 'd.html'}")
    changes = {d["function"].split(" ")[0].rpartition(".")[2]: d["change"] for d in found["differences"]}
    assert changes["rest"] < 0 < changes["run_long"] and "<svg" in (tmp_path / "d.html").read_text()
    for wrong in ("-diff", f"-diff {tmp_path / 'a.record'} {tmp_path / 'none.record'}"):
        with pytest.raises(GdbextError):
            run(f"llm-record {wrong}")


def test_outside_gdb_files_are_written_and_a_recordings_part_is_read(tmp_path):
    with running(PYTHONS[-1], "timeline.py", "60") as (target, _):
        names = [str(tmp_path / name) for name in ("a.record", "a.json.gz", "a.html", "a.speedscope.json", "a.collapsed")]
        words = " ".join(f"-o {name}" for name in names)
        before = os.stat(f"/proc/{target.pid}").st_uid
        found = answer(f"llm-record -for 0.6 -rate 50 {words} {target.pid}")
        assert before == os.stat(f"/proc/{target.pid}").st_uid and target.process.poll() is None
        assert found["files"] == names and all(os.path.getsize(name) > 200 for name in names)
        assert found["samples"] == found["processes"][0]["looks"] * 3 and 0 < found["rate"]["reached"] <= 60
        assert found["cost"]["cpu"] > 0 and abs(sum(f["self"] for f in found["functions"]) - 1) < 0.02
        with pytest.raises(GdbextError, match="there already"):
            run(f"llm-record -for 0.1 -o {names[0]} {target.pid}")
    part = answer(f"llm-record -read {names[0]} -from 0.2 -to 0.4")
    assert 0 < part["processes"][0]["looks"] < found["processes"][0]["looks"] and abs(part["seconds"] - 0.2) < 0.001
    for wrong in ("-o a.pprof 1", "-rate 0 1", "-from 1 1", f"-read {names[0]} 1", f"-read {names[2]}"):
        with pytest.raises(GdbextError):
            run(f"llm-record {wrong}")


def test_what_cannot_be_written_costs_nothing_else(tmp_path, monkeypatch):
    with running(PYTHONS[-1], "timeline.py", "60") as (target, _):
        with pytest.raises(GdbextError, match="no folder that can be written"):
            run(f"llm-record -for 5 -o {tmp_path}/none/a.record {target.pid}")
        whole, lost = tmp_path / "a.record", tmp_path / "a.html"
        own = store.page.page

        def late(*args):
            assert store.read(str(whole)).processes, "what cannot be made again is written first"
            lost.write_text("somebody else's")
            return own(*args)

        monkeypatch.setattr(store.page, "page", late)
        found = answer(f"llm-record -for 0.3 -o {lost} -o {whole} {target.pid}")
    assert found["files"] == [str(whole)] and found["file"] == str(whole) and lost.read_text() == "somebody else's"
    assert [f["label"] for f in found["failed"]] == [str(lost)] and "there already" in found["partial"][0]
    with pytest.raises(GdbextError, match="no sample between"):
        run(f"llm-record -read {whole} -from 5")


def test_a_long_sample_is_dated_again_and_a_break_keeps_the_recording(tmp_path, monkeypatch):
    own, seen = sampler.ProcessSampler._thread, []

    def slow(self, thread, look, now):
        seen.append((thread.track.tid, look, now))
        time.sleep(0.02)
        if len(seen) == 20:
            raise KeyboardInterrupt
        own(self, thread, look, now)

    monkeypatch.setattr(sampler.ProcessSampler, "_thread", slow)
    with running(PYTHONS[-1], "timeline.py", "60") as (target, _):
        rec = sampler.record([(ProcTarget(target.pid), "subject")], 10.0, 20.0, [])
    (track,) = rec.processes
    assert rec.notes == ["ended by ^C"] and track.splits >= 10 and len(track.begins) == len(track.ends) == seen[-1][1]
    assert all(abs(rec.clock + track.begins[look] - now) < 0.005 for _, look, now in seen[:19])
    assert 5 <= len(track.begins) - track.splits <= 7 and rec.reached < len(track.begins) / rec.seconds, (
        "the rate is that of the looks, not of their parts"
    )
    assert abs(time.time() - time.monotonic() - (rec.began - rec.clock)) < 1
    store.write(str(tmp_path / "a.record"), rec)
    assert store.read(str(tmp_path / "a.record")).processes[0].splits == track.splits


@pytest.mark.parametrize(("limit", "count"), [("MAX_LOOKS", 20), ("MAX_RUNS", 350)])
def test_a_recording_that_fills_its_memory_ends_whole_and_says_so(tmp_path, monkeypatch, limit, count):
    monkeypatch.setattr(sampler, limit, count)  # of three threads, each of which counts as 100 runs
    with running(PYTHONS[-1], "timeline.py", "60") as (target, _):
        rec = sampler.record([(ProcTarget(target.pid), "subject")], 100.0, 600.0, [])
    (track,) = rec.processes
    assert rec.seconds < 300 and any("the memory for a recording is full" in note for note in rec.notes)
    kept = len(track.begins) if limit == "MAX_LOOKS" else sum(len(th.looks) for th in track.threads) + len(track.gil) + 300
    assert count <= kept < count + 20
    store.write(str(tmp_path / "a.record"), rec)
    assert len(store.read(str(tmp_path / "a.record")).processes[0].begins) == len(track.begins)


def test_the_recorder_goes_first_and_is_afterwards_as_it_was(monkeypatch):
    before, during = os.sched_getscheduler(0), []
    beside = lambda rec, now: during.append(os.sched_getscheduler(0))  # noqa: E731
    with running(PYTHONS[-1], "timeline.py", "60") as (target, _):
        rec = sampler.record([(ProcTarget(target.pid), "subject")], 50.0, 0.2, [], beside, realtime=True)
        assert set(during) == {os.SCHED_RR | os.SCHED_RESET_ON_FORK} if not rec.notes else {before}
        monkeypatch.setattr(os, "sched_setscheduler", lambda *_: (_ for _ in ()).throw(PermissionError(1, "not permitted")))
        during.clear()
        rec = sampler.record([(ProcTarget(target.pid), "subject")], 50.0, 0.2, [], beside, realtime=True)
    assert len(rec.notes) == 1 and "CAP_SYS_NICE" in rec.notes[0] and set(during) == {before}
    assert os.sched_getscheduler(0) == before


def test_a_process_that_ends_meanwhile_leaves_what_was_seen():
    with running(PYTHONS[0], "timeline.py", "60") as (target, _):
        threading.Timer(0.4, target.process.kill).start()
        rec = sampler.record([(ProcTarget(target.pid), "subject")], 50.0, 20.0, [])
    assert rec.seconds < 10 and rec.notes == ["subject has ended"]
    assert len(rec.processes[0].begins) > 5 and rec.processes[0].threads


def test_in_gdb_it_records_what_gdb_has_not_stopped(gdb_path):
    with running(PYTHONS[-1], "timeline.py", "60") as (target, _):
        done = run_gdb(gdb_path, [f"llm-record -for 0.3 -json {target.pid}"])
        found = done.json()
        assert found["processes"][0]["pid"] == target.pid and found["samples"] > 5
        held = run_gdb(gdb_path, ["llm-record -for 0.3"], arguments=["-p", str(target.pid)])
        assert "gdb holds it stopped" in held.outputs[0]


@pytest.mark.parametrize(
    "waits", ["import time; time.sleep(100)", "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()"]
)
def test_a_process_that_is_held_while_it_waits_is_stopped(waits):
    with spawned([sys.executable, "-c", f"print('up', flush=True)\n{waits}"], ready="up") as child:
        for seconds, number in ((1.2, signal.SIGSTOP), (2.0, signal.SIGCONT)):
            threading.Timer(seconds, child.send_signal, [number]).start()
        said = answer(f"llm-record -for 3 -json {child.pid}")
    assert [stall["cause"] for stall in said["stalls"]] == ["stopped"], said["stalls"]


def test_a_terminal_sees_how_far_a_recording_is_and_nobody_else(tmp_path):
    with running(PYTHONS[-1], "timeline.py", "60") as (target, _):
        words = [sys.executable, "-m", "gdbext", "llm-record", "-for", "1.2", str(target.pid)]
        seen = terminals.shown(words, 100, env={**os.environ, "NO_COLOR": "1"})
        assert b"\rllm-record: 1 of 1.2 s" in seen.data
        assert "of 1.2 s" not in seen.text and seen.lines[0].startswith("1 process, 1.2"), seen.text
        assert b" of 1.2 s" not in terminals.shown([*words, "-json"], 100).data
        assert subprocess.run(words, check=True, capture_output=True, text=True).stderr.count("of 1.2 s") == 0


def test_a_program_is_started_and_recorded_until_it_ends(tmp_path, root):
    """Its output is the terminal's; its status is its own affair; what it did is told as it says."""
    code = "import time\ndef works(until):\n while time.monotonic() < until: sum(range(1000))\n"
    code += (
        "def rests(s): time.sleep(s)\nb = time.monotonic()\nworks(b + 1.0)\nrests(1.0)\nprint(time.monotonic() - b, flush=True)\n"
    )
    path = tmp_path / "x.pb.gz"
    words = [sys.executable, "-m", "gdbext", "record", "--json", "-o", str(path), "--", sys.executable, "-c", code]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 3), done.stderr  # 3: on a full machine rounds were lost
    said, answered = done.stdout.splitlines()
    answered = json.loads(answered)
    shares = {row["function"].partition(" ")[0]: row["total"] * answered["seconds"] for row in answered["functions"]}
    assert answered["seconds"] >= float(said) * 0.9 and path.stat().st_size > 100
    assert abs(shares["works"] - shares["rests"]) < 0.5 * float(said), (shares, said)
    assert answered["processes"][0]["pid"] and not answered["failed"]


MARKED = """
import asyncio, threading, time
def spins(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end: sum(range(200))
async def works_a():
    while True: await inner(0.03)
async def works_b():
    while True: await inner(0.01)
async def inner(seconds):
    spins(seconds)
    await asyncio.sleep(0.003)
def fails():
    while True:
        try: {}["missing"]
        except KeyError: handles()
        plain()
def handles(): spins(0.03)
def plain(): time.sleep(0.03)
threading.Thread(target=fails, daemon=True).start()
async def main():
    one, two = (asyncio.create_task(f, name=n) for f, n in ((works_a(), "of-a"), (works_b(), "of-b")))
    print("up", flush=True)
    await asyncio.gather(one, two)
asyncio.run(main())
"""


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.drawn(2)
def test_stacks_name_the_task_that_runs_and_the_exception(python, tmp_path):
    """No stack of one task has the other's name; what fails is recorded while it fails, and nothing else is."""
    with spawned([python, "-c", MARKED], ready="up") as child:
        both = {}
        for option in ("tasks", "failing"):
            path = tmp_path / f"{option}.collapsed"
            asked = f"llm-record -for 1.5 -{option} -o {path} -o {tmp_path}/{option}.record {child.pid}"
            done, _ = answer(asked), both.setdefault(option, path.read_text())
            assert done["stalls"] == [] if option == "failing" else done["functions"]
    of_a, of_b = ([line for line in both["tasks"].splitlines() if f"works_{n} " in line] for n in "ab")
    assert of_a and of_b
    wrong = [x for lines, own in ((of_a, "of-a"), (of_b, "of-b")) for x in lines if f"task {own};works" not in x and "task" in x]
    named = [line for line in of_a + of_b if ";task of-" in line]
    assert not wrong and len(named) >= 2, both["tasks"]
    lines = both["failing"].splitlines()
    assert lines and all(";handles KeyError " in line or ";raises KeyError " in line for line in lines), lines
    assert any("handles " in line.partition(";handles KeyError")[0] for line in lines), lines
    assert not any("plain " in line or "works_" in line for line in lines), lines
    read = answer(f"llm-record -read {tmp_path}/failing.record")
    assert read["functions"] and not read["stalls"]
