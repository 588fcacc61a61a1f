"""llm-record -native: native frames where processes say that they are, and no process stays stopped, whatever becomes of the
recorder or of the process."""

import functools
import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from harness.answers import answer
from harness.gdb_run import run_gdb
from harness.heartbeats import ROUNDS, eventually, heartbeats, stop
from harness.recordings import said
from harness.subjects import PYTHONS, running

from gdbext.access import ptrace
from gdbext.access.holder import LIMIT, Holder
from gdbext.access.proc import ProcTarget
from gdbext.timeline import flame, sampler, store
from gdbext.timeline.native import NativeSampler
from gdbext.timeline.recording import DROPPED, LOCK

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def looks(pid, count, rate=50.0, also=lambda looks, holder: None):
    """A recording of so many looks, however long they take on this machine; `also` is asked after each round."""

    def beside(rec, _):
        also(len(rec.processes[0].begins), holder)
        if len(rec.processes[0].begins) >= count:
            raise KeyboardInterrupt

    with Holder() as holder:
        how = functools.partial(NativeSampler, holder=holder)
        return sampler.record([(ProcTarget(pid), "subject")], rate, 300.0, [], beside, sampler_of=how)


def recorder(pid, seconds=60, rate=100):
    """-> Popen of a recorder, with whatever it starts in a session of its own."""
    words = [sys.executable, "-m", "gdbext", "llm-record", "-native", "-for", str(seconds), "-rate", str(rate), str(pid)]
    nowhere = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(words, cwd=ROOT, start_new_session=True, **nowhere)


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return list(map(int, f.read().split()))


def between(stack, outer):
    """The frames that the subject's function `outer` calls."""
    names = [f.function.rpartition(".")[2] for f in stack]
    return stack[names.index(outer) + 1 :] if outer in names else None


@pytest.mark.parametrize("python", PYTHONS)
def test_native_frames_stand_where_the_process_says_that_it_was(python, tmp_path):
    with running(python, "native_time.py", "60") as (target, _):
        rec = looks(target.pid, 80)
        truth = said(target, rec.clock, rec.clock + rec.seconds)
    store.write(str(tmp_path / "a.record"), rec)
    assert list(store.read(str(tmp_path / "a.record")).processes[0].pauses) == [round(p, 6) for p in rec.processes[0].pauses]
    (track,) = rec.processes
    main, asks = (next(th for th in track.threads if th.name == name) for name in ("MainThread", "asks"))
    counted, wrong = dict.fromkeys(truth, 0), []
    for run in track.runs(main):
        if run.node == DROPPED:
            continue
        stack = rec.tree.stack(run.node)
        for what in truth:
            inner = between(stack, what)
            if inner is None:
                continue
            counted[what] += run.looks
            if not any(f.native for f in stack):
                continue  # it could not be stopped in time: that is counted
            python_calls = [f.function for f in inner if not f.native]
            libc = [os.path.basename(f.file).startswith("libc") for f in inner if f.native]
            if what == "counts":  # it calls into nothing that lasts, but for the GIL
                good = not python_calls
            elif what == "sorts":  # a callback is called by libc
                good = "compare" not in python_calls or any(libc[: [f.native for f in inner].index(False)])
            elif what == "strings":
                good = not python_calls and (any(libc) or not libc)
            else:
                good = any(libc) and run.state != LOCK
            if not good:
                wrong.append((what, run.state, inner))
    seen = sum(counted.values())
    assert seen > 0.6 * len(track.begins) and len(wrong) <= 0.05 * len(main.looks), (counted, wrong[:5])
    for what, seconds in truth.items():
        share, own = seconds / sum(truth.values()), counted[what] / seen
        assert abs(share - own) < 4 * (share * (1 - share) / len(track.begins)) ** 0.5 + 0.05, (what, truth, counted)
    assert not {LOCK} & set(asks.states[2:]), "a nap that was begun anew after a stop is a nap"
    assert len(track.pauses) == len(track.begins) and 0 < sum(track.pauses) < 0.5 * rec.seconds
    assert track.unstopped <= 0.5 * track.samples and track.dropped <= 0.05 * track.samples


def test_a_waiting_thread_is_not_stopped_again_formats_have_both_frames(tmp_path):
    with running(PYTHONS[-1], "native_time.py", "60") as (target, _):
        names = [str(tmp_path / f"a.{ending}") for ending in ("record", "json", "speedscope.json", "html")]
        answer(f"llm-record -native -rate 20 -for 4 {' '.join('-o ' + n for n in names)} {target.pid}")
    rec = store.read(names[0])
    waiter = next(th for th in rec.processes[0].threads if th.name == "waiter")
    assert waiter.looks[-1] < len(rec.processes[0].begins) / 2, "once it was copied where it waits it stands"
    assert rec.tree.stack(waiter.nodes[-1])[-1].native
    with open(names[1]) as f:
        events = json.load(f)["traceEvents"]
    assert {e["cat"] for e in events if e["ph"] == "B"} == {"python", "native"}
    assert all("line" not in e["args"] for e in events if e.get("cat") == "native")
    assert max(e["args"]["value"] for e in events if e["name"] == "ms paused") > 0
    with open(names[2]) as f:
        frames = json.load(f)["shared"]["frames"]
    assert {"line" in f for f in frames} == {True, False} and all(f.get("line", 1) >= 0 for f in frames)
    with open(names[3]) as f:
        assert "paused: " in f.read()
    part = answer(f"llm-record -read {names[0]} -from 1 -to 3")
    assert 0 < part["processes"][0]["native"]["stops"] <= 41
    assert any(name.endswith("(libc.so.6)") for path in flame.stacks(rec) for name in path)


def stopped(pid):
    return [tid for tid in ptrace.tids(pid) if ptrace.thread_state(pid, tid) in ("T", "t")]


def test_a_recorder_killed_at_any_moment_leaves_every_process_running(tmp_path):
    with heartbeats(tmp_path, 1) as (beat,):
        for _ in range(ROUNDS):
            one = recorder(beat.pid)
            eventually(lambda: children(one.pid), "the process that stops threads")  # noqa: B023
            (helper,) = children(one.pid)
            time.sleep(random.random())
            one.kill()
            one.communicate(timeout=60)
            eventually(lambda: not os.path.exists(f"/proc/{helper}"), "the end of what it started")  # noqa: B023
            assert beat.runs(), "all its threads run on"


def test_what_stops_threads_is_killed_and_another_takes_its_place():
    def kills(count, holder):
        if count == 5:
            os.kill(holder.pid, signal.SIGKILL)

    with running(PYTHONS[-1], "native_time.py", "60") as (target, _):
        rec = looks(target.pid, 10, also=kills)
        assert not ptrace.tracers(target.pid) and not stopped(target.pid)
    (track,) = rec.processes
    assert not any("has ended" in note for note in rec.notes) and len(track.begins) == 10, rec.notes
    assert any(track.pauses[:5]) and any(track.pauses[6:]), "another one has taken its place"


def test_a_process_that_another_tracer_holds_has_frames_and_a_note(tmp_path):
    with running(PYTHONS[-1], "native_time.py", "60") as (target, _):
        stop(target.process)
        answer(f"llm-record -native -for 0.5 -o {tmp_path / 'a.record'} {target.pid}")
        assert ptrace.is_stopped(target.pid), "who was stopped before stays so"
        target.process.send_signal(signal.SIGCONT)
        with ptrace.Stopped(target.pid):
            one = recorder(target.pid, 1, 10)
            out, _ = one.communicate(timeout=60)
        assert one.returncode == 3 and f"already traced by process {os.getpid()}" in out and "without native frames" in out
        before = target.process.stdout.readline()
        assert before and target.process.stdout.readline()


def test_a_process_that_ends_in_the_middle_leaves_what_was_seen():
    with running(PYTHONS[0], "native_time.py", "60") as (target, _):
        rec = looks(target.pid, 10**6, also=lambda count, _: count == 5 and target.process.kill())
    assert rec.notes == ["subject has ended"] and 5 <= len(rec.processes[0].begins) < 100 and any(rec.processes[0].pauses)


def test_threads_that_are_not_let_go_in_time_run_on():
    with running(PYTHONS[-1], "native_time.py", "60") as (target, _), Holder() as holder:
        with holder.held(target.pid, [target.pid]) as held:
            assert set(held.registers) == {target.pid}
            eventually(lambda: not stopped(target.pid), "a process that runs on")
        assert held.over and held.seconds >= LIMIT
        with holder.held(target.pid, [2**22 + 1]) as held:
            pass
        assert not held.registers and not held.over and not held.seconds
        target.process.kill()
        target.process.wait()
        with holder.held(target.pid, [target.pid]) as held:
            assert not held.registers
    assert holder.cpu > 0


def test_who_holds_threads_is_killed_while_it_does():
    """They run on, and another one takes its place."""
    with running(PYTHONS[-1], "native_time.py", "60") as (target, _), Holder() as holder:
        with holder.held(target.pid, [target.pid]) as held:
            os.kill(holder.pid, signal.SIGKILL)
            eventually(lambda: not stopped(target.pid), "a process that runs on")
        assert held.over
        with holder.held(target.pid, [target.pid]) as held:
            assert set(held.registers) == {target.pid}


def test_in_gdb_it_works_alike(gdb_path):
    with running(PYTHONS[-1], "native_time.py", "60") as (target, _):
        found = run_gdb(gdb_path, [f"llm-record -native -rate 50 -for 4 -json {target.pid}"]).json()
        assert found["processes"][0]["native"]["stops"] > 1 and not found["failed"]
        held = run_gdb(gdb_path, ["llm-record -native -for 0.3"], arguments=["-p", str(target.pid)])
        assert "gdb holds it stopped" in held.outputs[0]
