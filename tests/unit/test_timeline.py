"""Recordings: kept whole while they are cut, written in other tools' formats, and harmless whatever functions are called."""

import gzip
import json
import tracemalloc

import pytest
from harness.recordings import HOSTILE, acted, did_it, made

from gdbext.errors import GdbextError
from gdbext.timeline import flame, formats, recording, sampler, stalls, steps, store
from gdbext.timeline.recording import GIL, LOCK, RUNNING, Changes, ProcessTrack


def plain_runs(rec):
    return [[tuple(run) for run in p.runs(th)] for p in rec.processes for th in p.threads]


def test_time_is_counted_where_it_was_spent():
    own = flame.stacks(made())
    seconds = {path[-1]: round(s, 6) for path, s in own.items() if path[1] == "MainThread"}
    assert seconds == {"step (loop.py)": 0.2, "work (model.py)": 0.7}  # the torn look is nobody's
    running = flame.stacks(made(), flame.Counted(cpu=True))
    assert round(sum(running.values()), 6) == 0.5
    rows = {name: (round(itself, 6), round(within, 6)) for name, itself, within in flame.functions(own.items())}
    assert rows == {"work (model.py)": (0.7, 0.7), "step (loop.py)": (1.1, 1.8)}
    assert flame.parse_folded(flame.folded(own)) == {path: pytest.approx(s) for path, s in own.items()}


def test_threads_that_rest_are_left_out_but_never_a_main_thread():
    rec = made()
    process = rec.processes[0]
    main, other = process.threads
    process.pid, main.cpu, other.cpu = main.tid, 0.0, 0.009 * process.finish
    assert flame.resting(rec) == 1 and {path[1] for path in flame.stacks(rec, flame.AT_WORK)} == {"MainThread"}
    assert flame.stacks(rec) == flame.stacks(rec, flame.ALL) != flame.stacks(rec, flame.AT_WORK)
    other.cpu = 0.011 * process.finish
    assert flame.resting(rec) == 0 and flame.stacks(rec, flame.AT_WORK) == flame.stacks(rec)


def test_only_the_time_with_the_gil_counts():
    rec = made()
    process = rec.processes[0]
    held = [look for begin, end, who in process.spans(process.gil) if who == 0 for look in range(10) if begin <= look / 10 < end]
    stacks = {path[1]: 0.0 for path in flame.stacks(rec)}
    for path, seconds in flame.stacks(rec, flame.Counted(gil=True)).items():
        stacks[path[1]] += seconds
    torn = [run for run in process.runs(process.threads[0]) if run.node == recording.DROPPED]
    lost = sum(any(run.begin <= look / 10 < run.end for run in torn) for look in held)
    assert held and round(stacks["MainThread"], 6) == round((len(held) - lost) / 10, 6)
    assert sum(stacks.values()) == pytest.approx(stacks["MainThread"])
    count = process.looks_with_gil(0)
    assert [count(a, a + 1) for a in range(10)] == [int(a in held) for a in range(10)]


def test_lines_of_a_function_are_told_apart_where_that_is_asked():
    names = {name for path in flame.stacks(made(), flame.Counted(lines=True)) for name in path[2:]}
    assert names and all(name.rpartition(":")[2].rstrip(")").isdecimal() for name in names)


def test_a_look_after_which_the_recorder_was_late_counts_as_any_other():
    rec = acted([(1, "main slow", RUNNING), (9, "main work", RUNNING)], looks=10)
    rec.processes[0].begins[1:] = type(rec.processes[0].begins)("d", [5 + i / 100 for i in range(9)])
    rec.processes[0].finish = 5.1
    shares = {path[-1]: seconds / 5.1 for path, seconds in flame.stacks(rec).items()}
    assert {name: round(share, 3) for name, share in shares.items()} == {"slow (own.py)": 0.1, "work (own.py)": 0.9}


def test_a_cut_has_what_was_in_it():
    rec = made()
    part = rec.cut(0.25, 0.85)
    process = part.processes[0]
    assert [round(t, 3) for t in process.begins] == [0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    for whole, own in zip(rec.processes[0].threads, process.threads):
        at = {
            look: (run.node, run.state)
            for look in range(3, 9)
            for run in rec.processes[0].runs(whole)
            if run.begin <= look / 10 < run.end
        }
        assert [at[look] for look in range(3, 9)] == [
            (run.node, run.state) for run in process.runs(own) for _ in range(run.looks)
        ]
    assert (process.samples, process.dropped) == (12, 1)
    assert process.kept == [(0, 3, 0)]
    assert list(process.gc) == [(0, 1), (1, 0)] and list(process.gil) == [(0, 0), (3, -1)]
    assert process.counters == {"work": [(0.5, 2.0)]}
    nothing = rec.cut(5.0, 6.0)
    assert not nothing.processes[0].begins and flame.stacks(nothing) == {}


def test_a_full_tree_cuts_stacks_off_and_says_so(monkeypatch):
    monkeypatch.setattr(recording, "MAX_NODES", 2)
    tree = recording.StackTree()
    outer = tree.child(0, tree.frame("outer", "a.py", 1))
    assert tree.child(outer, tree.frame("inner", "a.py", 2)) == outer and tree.full
    assert [f.function for f in tree.stack(outer)] == ["outer"]
    monkeypatch.setattr(recording, "MAX_FRAMES", 2)
    assert tree.frame("third", "a.py", 3) == tree.frame("fourth", "a.py", 4) and len(tree.frames) == 3


def test_the_fullest_recording_has_its_place_in_memory():
    """Looks and runs are what their arrays take; nodes, frames and threads are measured, a few for all."""
    track, thread = recording.ProcessTrack("TP0", 1), recording.ThreadTrack(1, "main")
    look = sum(each.itemsize for each in (track.begins, track.ends, track.pauses))
    run = sum(each.itemsize for each in (thread.looks, thread.nodes, thread.states))
    tracemalloc.start()
    try:
        tree, count = recording.StackTree(), recording.MAX_NODES // 50
        for number in range(count):
            node = tree.child(0, tree.frame(f"function_{number // 2}", f"/some/where/module_{number}.py", number))
            assert node == number + 1
        nodes = tracemalloc.get_traced_memory()[0] * 50
        threads = [recording.ThreadTrack(number, f"Thread-{number}") for number in range(1000)]
        for one in threads:
            assert one.add(0, 1, RUNNING)
        each = (tracemalloc.get_traced_memory()[0] - nodes / 50) / len(threads)
    finally:
        tracemalloc.stop()
    assert each < 2 * sampler.PER_THREAD * run, each
    assert recording.MAX_LOOKS * look + recording.MAX_RUNS * run + nodes < 400 << 20


def test_an_interrupted_sample_is_dated_again_and_halves_are_dropped():
    rec = made()
    process = rec.processes[0]
    process.finish = 1.5
    process.begins.append(1.0)
    process.threads[0].add(10, 1, RUNNING)
    process.split(1.2)
    assert rec.reached == pytest.approx(11 / 1.5) and process.threads[0].nodes[-1] == 1
    process.threads[0].add(11, 2, RUNNING)
    process.gil.append((11, 1))
    process.threads[0].looks.append(12)  # ^C in the middle of all this: the look that began at 1.2 has no end
    process.drop_halves()
    assert len(process.begins) == len(process.ends) == 11 and list(process.threads[0].looks)[-1] == 10
    assert list(process.gil)[-1] == (6, -1)
    assert [round(r.end, 3) for r in process.runs(process.threads[0])][-1] == 1.5


# ---- stalls --------------------------------------------------------------------------------------------------------------
LOOP = "run_forever@asyncio/base_events.py _run_once@asyncio/base_events.py _run@asyncio/events.py"
UVLOOP = "run@uvloop/__init__.py run@asyncio/runners.py Runner.run@asyncio/runners.py"  # its loop shows no calls of its own
WORK = [(5, "main work", RUNNING), (5, "main rest", recording.SLEEP)]


@pytest.mark.parametrize(
    "middle, found",
    [
        ([(20, "main slow", RUNNING)], ("spin", "slow")),
        ([(6, "main slow", RUNNING), (3, "main slow helper", RUNNING), (11, "main slow", GIL)], ("spin", "slow")),
        ([(20, "main slow", recording.QUEUED)], ("processor", "slow")),
        ([(20, "main locked", LOCK)], ("lock", "locked")),
        ([(2, "main slow", RUNNING), (9, "main slow", GIL), (9, "main slow", recording.QUEUED)], None),
        ([(4, "main save", recording.DISK), (16, "main save", RUNNING)], ("disk", "save")),
        ([(18, "main save", RUNNING), (2, "main save", recording.DISK)], ("disk", "save")),
        ([(8, "main save", recording.LOCK), (10, "main save", recording.SLEEP), (2, "main save", recording.DISK)], None),
        ([(12, "main locked", LOCK), (8, "main locked", GIL)], ("lock", "locked")),
        ([(20, f"{LOOP} handler sleep_in", recording.SLEEP)], ("loop", "sleep_in")),
        ([(10, f"{LOOP} handler a", RUNNING), (10, f"{LOOP} other a", RUNNING)], ("loop", "a")),
        ([(20, f"{UVLOOP} handler sleep_in", recording.SLEEP)], ("loop", "sleep_in")),
        ([(20, UVLOOP, recording.POLL)], None),
        ([(20, f"{LOOP.partition(' ')[0]} select@selectors.py", recording.POLL)], None),
        ([(20, "main wait@threading.py", LOCK)], None),
        ([(20, "main get@queue.py", LOCK)], None),
        ([(20, "main recv", recording.NETWORK)], None),
        ([(20, "main rest", recording.SLEEP)], None),
        ([(6, "main a", RUNNING), (7, "main b", RUNNING), (7, "main c", RUNNING)], None),
        ([(8, "main slow", RUNNING), (12, "main rest", recording.SLEEP)], None),
    ],
)
def test_a_stall_has_its_cause_and_what_is_none_is_none(middle, found):
    rec = acted([*WORK * 4, *middle, *WORK * 4])
    shown = [(s.cause, s.frame.function, round(s.begin, 2)) for s in stalls.find(rec)]
    if found and found[0] == "loop" and found[1] == "a":
        assert shown and {s[:2] for s in shown} == {found}, "each of two callbacks, not one of both"
    else:
        assert shown == ([(*found, 0.4)] if found else [])


def test_one_that_wakes_to_ask_for_the_gil_again_waits_for_it():
    asks = [(40, "other ask", recording.SLEEP), *[(1, "other ask", GIL), (1, "other ask", RUNNING)] * 10, (40, "other ask", GIL)]
    work = [*WORK * 4, (20, "main slow", recording.SLEEP), *WORK * 4]
    (stall,) = stalls.find(acted(work, asks, kept=[(40, 60, 0)]))
    assert (stall.cause, stall.thread.tid, stall.frame.function) == ("gil", 1, "slow")
    runs = [(40, "other ask", recording.SLEEP), (20, "other ask", RUNNING), (40, "other ask", recording.SLEEP)]
    assert "gil" not in {s.cause for s in stalls.find(acted(work, runs, kept=[(40, 60, 0)]))}


@pytest.mark.parametrize("ran, found", [(0.19, ["spin"]), (0.02, []), (0.0, ["spin"])])
def test_what_the_kernel_did_not_see_run_was_only_ready_to(ran, found):
    rec = acted([*WORK * 4, (20, "main slow", RUNNING), *WORK * 4])
    rec.processes[0].threads[0].cpu = ran  # 0: this kernel counts nothing
    assert [s.cause for s in stalls.find(rec)] == found


def test_what_was_hardly_looked_at_is_no_stall():
    rec = acted([*WORK * 4, (20, "main slow", RUNNING), *WORK * 4])
    process = rec.processes[0]
    process.threads[0].looks, process.threads[0].nodes = process.threads[0].looks[:9], process.threads[0].nodes[:9]
    process.begins[42:] = process.begins[42:43]  # the recorder got no processor after it had seen two looks of it
    process.begins[42] = 0.58
    assert stalls.find(rec) == []


def test_a_rank_that_spins_for_another_waits():
    spin = f"main sched_yield@{'vllm/distributed/utils.py'}"
    rec = acted([*WORK * 4, (20, spin, RUNNING), *WORK * 4])
    assert stalls.find(rec) == []


def test_the_lag_of_a_loop_is_counted():
    idle = f"{LOOP.rpartition(' ')[0]} select@selectors.py"
    rec = acted(
        [(10, idle, recording.POLL), (20, f"{LOOP} handler a", RUNNING), (10, idle, recording.POLL), (60, "other", RUNNING)]
    )
    steps.count_loop_lags(rec)
    lags = [(round(at, 2), round(lag, 2)) for at, lag in rec.processes[0].counters["event loop lag"]]
    assert lags == [(0.1, 0.0), (0.3, 0.2), (0.3, 0.0)]


def test_the_lag_of_a_loop_that_is_not_python_is_that_of_its_callbacks():
    did = [(10, UVLOOP, recording.POLL), (20, f"{UVLOOP} wrapper@uvloop/__init__.py serve handler", RUNNING)]
    rec = acted([*did, (10, UVLOOP, recording.POLL), (10, "main serve", RUNNING), (50, UVLOOP, recording.POLL)])
    steps.count_loop_lags(rec)
    lags = [(round(at, 2), round(lag, 2)) for at, lag in rec.processes[0].counters["event loop lag"]]
    assert lags == [(0.1, 0.0), (0.3, 0.2), (0.3, 0.0)], "what no run function called is not known to be a callback"
    shown = [(s.cause, s.frame.function) for s in stalls.find(rec)]
    assert ("loop", "handler") in shown


def test_a_collection_is_that_of_the_thread_that_has_the_gil():
    rec = acted([(100, "main wait@threading.py", LOCK)], [(100, "other asks", RUNNING)], gc=[(0, 0), (40, 1), (60, 0)])
    (stall,) = (s for s in stalls.find(rec) if s.cause == "gc")
    assert stall.thread.tid == 2, "the one that runs, where nobody has it"
    rec.processes[0].gil = Changes([(0, -1), (45, 0), (60, 1)])
    (stall,) = (s for s in stalls.find(rec) if s.cause == "gc")
    assert stall.thread.tid == 1


def test_a_step_is_what_is_done_between_two_waits():
    rest, work = (5, "main rest", recording.NETWORK), [(3, "main step plan", RUNNING), (7, "main step run", RUNNING)]
    rec = acted([*work, rest, *work, rest, *work, rest, *work], looks=55)
    events = [e for e in formats.chrome_events(rec) if e.get("cat") == "step"]
    assert [(e["ts"], e["dur"]) for e in events] == [(150000.0, 100000.0), (300000.0, 100000.0)], "whole ones only"
    assert {e["args"]["longest in"].partition(" ")[0] for e in events} == {"run"}
    assert [
        e["args"]["name"] for e in formats.chrome_events(rec) if e["name"] == "thread_name" and e["tid"] == events[0]["tid"]
    ] == ["steps"]


def test_what_a_rank_did_in_a_step_is_not_what_it_did_before():
    """It stood in the same calls already, and waited there."""
    rec = acted([(5, "main work", RUNNING), (40, "main meet", LOCK), (15, "main meet", recording.STOPPED), *WORK * 4])
    ((_, frame, state, part),) = steps.what_others_did(rec, 0.44, 0.62)
    assert (frame.function, state) == ("meet", recording.STOPPED) and 0.8 < part < 1
    assert [s for _, _, s, _ in steps.what_others_did(rec, 0.1, 0.62)] == [LOCK]


def test_a_collection_and_a_kept_gil_explain_what_stands_meanwhile():
    work = [*WORK * 4, (20, "main slow", RUNNING), *WORK * 4]
    waits = [(40, "other ask", recording.SLEEP), (20, "other ask", GIL), (40, "other ask", recording.SLEEP)]
    (stall,) = stalls.find(acted(work, waits, gc=[(0, 0), (40, 1), (60, 0)]))
    assert (stall.cause, stall.frame.function, stall.thread.tid) == ("gc", "slow", 1)
    (stall,) = stalls.find(acted(work, waits, kept=[(40, 60, 0)]))
    assert (stall.cause, stall.frame.function, round(stall.end - stall.begin, 2)) == ("gil", "slow", 0.2)
    assert [s.cause for s in stalls.find(acted(work, [(100, "other ask", recording.SLEEP)], kept=[(40, 60, 0)]))] == ["spin"]


def test_the_rank_that_others_wait_for_is_the_late_one_and_why():
    step = [(5, "main work", RUNNING), (3, "main meet", recording.NETWORK)]
    waits = [*step * 4, (5, "main work", RUNNING), (25, "main meet", recording.NETWORK), *step * 4]
    late = [*step * 4, (29, "main slow", RUNNING), (1, "main meet", recording.NETWORK), *step * 4]
    rec = acted(waits, label="R0", looks=94)
    for number, did in ((1, waits), (2, late)):
        process = ProcessTrack(f"R{number}", 10 + number)
        process.begins, process.ends, process.finish = rec.processes[0].begins, rec.processes[0].ends, 0.94
        process.threads, process.gc = [did_it(rec, did, 10 + number)], Changes([(0, 0)])
        rec.processes.append(process)
    (stall,) = stalls.find(rec)
    assert (stall.cause, stall.process.label, set(stall.waiting), stall.why) == ("late-rank", "R2", {"R0", "R1"}, "spin")
    assert stall.frame.function == "slow" and round(stall.begin, 2) == 0.37
    (begin, end, process) = steps.slowest(rec, 1)[0]
    assert process not in steps.without(rec)
    busy = acted([(90, "main work", RUNNING)])
    assert steps.without(busy) == busy.processes and steps.slowest(busy, 1) == []
    assert (round(begin, 2), round(end, 2), process.label) == (0.32, 0.61, "R2")
    did = {p.label: f.function for p, f, _, _ in steps.what_others_did(rec, begin, end)}
    assert did == {"R0": "meet", "R1": "meet", "R2": "slow"}
    events = [e for e in formats.chrome_events(rec, [stall]) if e.get("cat") == "stall"]
    assert [(e["name"], e["pid"], e["args"]["waiting"]) for e in events] == [("stall: late-rank", 12, "R0 R1")]


@pytest.mark.parametrize("ran,held,why", [(24, 12, "spin"), (12, 24, "stopped")])
def test_a_late_rank_was_late_for_what_it_did_for_most_of_the_time(ran, held, why):
    step = [(5, "main work", RUNNING), (3, "main meet", recording.NETWORK)]
    rec = acted([*step * 4, (5, "main work", RUNNING), (31, "main meet", recording.NETWORK), *step * 4], label="R0", looks=100)
    process = ProcessTrack("R1", 11)
    process.begins, process.ends, process.finish = rec.processes[0].begins, rec.processes[0].ends, 1.0
    late = [*step * 4, (ran, "main slow", RUNNING), (held, "main plan", recording.STOPPED), *step * 4]
    process.threads, process.gc = [did_it(rec, late, 11)], Changes([(0, 0)])
    rec.processes.append(process)
    (stall,) = [s for s in stalls.find(rec) if s.cause == "late-rank"]
    assert (stall.process.label, stall.waiting, stall.why) == ("R1", ("R0",), why)


@pytest.mark.parametrize("state,stall", [(RUNNING, "spin"), (LOCK, "lock")])
def test_a_rank_stopped_where_ranks_meet_is_late_until_it_goes_on(state, stall):
    step = [(5, "main work", RUNNING), (3, "main reduce", state)]
    stands = [*step * 4, (5, "main work", RUNNING), (30, "main reduce", recording.STOPPED), *step * 4]
    alone = [(stall, "R0", (), ""), ("stopped", "R1", (), "")]
    for before, length, place, said in (
        (5, 30, "main reduce", [("late-rank", "R1", ("R0",), "stopped")]),
        (0, 35, "main reduce", [("late-rank", "R1", ("R0",), "stopped")]),
        (5, 30, "main prefill reduce", [("late-rank", "R1", ("R0",), "stopped")]),
        (5, 14, "main reduce", alone),
        (5, 30, "main plan", alone if state == LOCK else [("late-rank", "R1", ("R0",), "stopped")]),
    ):
        rec = acted([*step * 4, (before, "main work", RUNNING), (length, place, state), *step * 6], label="R0", looks=99)
        process = ProcessTrack("R1", 11)
        process.begins, process.ends, process.finish = rec.processes[0].begins, rec.processes[0].ends, 0.99
        process.threads, process.gc = [did_it(rec, stands, 11)], Changes([(0, 0)])
        rec.processes.append(process)
        found = sorted((s.cause, s.process.label, s.waiting, s.why) for s in stalls.find(rec))
        assert found == said, (place, found)


@pytest.mark.parametrize("state,said", [(recording.STOPPED, [("stopped", "R1")]), (recording.NETWORK, [("late-rank", "R0")])])
def test_a_rank_that_is_held_where_ranks_meet_waits_for_nobody(state, said):
    """What another did meanwhile, and ended as it went on, did not keep it."""
    step = [(5, "main work", RUNNING), (3, "main meet", recording.NETWORK)]
    at_work = [*step * 4, (5, "main work", RUNNING), (30, "main plan", recording.POLL), *step * 4]
    rec = acted(at_work, label="R0", looks=95)
    process = ProcessTrack("R1", 11)
    process.begins, process.ends, process.finish = rec.processes[0].begins, rec.processes[0].ends, 0.95
    held = did_it(rec, [*step * 4, (5, "main work", RUNNING), (30, "main meet", state), *step * 4], 11)
    process.threads, process.gc = [held], Changes([(0, 0)])
    rec.processes.append(process)
    assert [(s.cause, s.process.label) for s in stalls.find(rec)] == said


# ---- files ---------------------------------------------------------------------------------------------------------------
def test_a_recording_comes_back_as_it_was(tmp_path):
    rec = made(HOSTILE)
    path = str(tmp_path / "a.record")
    store.write(path, rec)
    again = store.read(path)
    assert plain_runs(again) == plain_runs(rec) and again.tree.frames == rec.tree.frames
    for name in ("gil", "gc"):
        assert list(getattr(again.processes[0], name)) == list(getattr(rec.processes[0], name)), name
    for name in ("kept", "counters", "samples", "dropped", "finish", "label", "pid"):
        assert getattr(again.processes[0], name) == getattr(rec.processes[0], name), name
    with pytest.raises(GdbextError, match="there already"):
        store.write(path, rec)


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.speedscope.json", "a.collapsed", "a.html"])
def test_the_ending_chooses_the_format(tmp_path, name):
    path = str(tmp_path / name)
    store.write(path, made())
    with (gzip.open if name.endswith(".gz") else open)(path, "rt", encoding="utf-8") as f:
        text = f.read()
    said = {"a.html": text.startswith("<!doctype html>"), "a.collapsed": "work (model.py) 700\n" in text}
    if "json" in name:
        said[name] = ("traceEvents" if "speedscope" not in name else "profiles") in json.loads(text)
    assert said[name]


def test_what_is_no_recording_is_refused(tmp_path):
    path = str(tmp_path / "a.record")
    store.write(path, made())
    with gzip.open(path, "rb") as f:
        plain = json.loads(f.read())
    damaged = [
        b"no gzip",
        gzip.compress(b"no json"),
        gzip.compress(b"{}"),
        gzip.compress(json.dumps({**plain, "gdbext-record": 99}).encode()),
        gzip.compress(json.dumps({**plain, "parents": [5] * len(plain["parents"])}).encode()),
        gzip.compress(json.dumps({**plain, "frames": [["f", "g"]]}).encode()),
    ]
    for key, value in (("gil", [[0, 7]]), ("threads", [{**plain["processes"][0]["threads"][0], "nodes": [77] * 5}])):
        damaged.append(gzip.compress(json.dumps({**plain, "processes": [{**plain["processes"][0], key: value}]}).encode()))
    for i, data in enumerate(damaged):
        other = tmp_path / f"{i}.record"
        other.write_bytes(data)
        with pytest.raises(GdbextError):
            store.read(str(other))
    with pytest.raises(GdbextError):
        store.check_ending("a.pprof")
    for count in ("²", "9" * 5000, "-1", "x"):
        with pytest.raises(GdbextError, match="no line of collapsed stacks"):
            flame.parse_folded(f"p;t;f {count}\n")
