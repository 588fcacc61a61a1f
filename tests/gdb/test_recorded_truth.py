"""What a recording keeps of programs whose code, calls, threads and interpreters come and go. Truth by construction."""

import random

import pytest
from harness.subjects import PYTHONS, minor, running

from gdbext.access.proc import ProcTarget
from gdbext.access.remote_memory import BulkReader
from gdbext.answers.recordings import much_dropped
from gdbext.cpython.runtime import open_runtime
from gdbext.observe.bulk_stacks import StackReader, ThreadPlaces
from gdbext.observe.codes import TornError
from gdbext.timeline import sampler
from gdbext.timeline.recording import DROPPED, StackTree


def looks(rec, track, thread):
    """[(function names, outermost first; None: dropped)] of each look at a thread."""
    found = []
    for run in track.runs(thread):
        names = None if run.node == DROPPED else [f.function.rpartition(".")[2] for f in rec.tree.stack(run.node)]
        found += [names] * run.looks
    return found


def recorded(target, enough, seconds=2.0):
    """A recording of at least so many seconds, which ends once `enough(its only process)`: a full machine takes long."""

    def beside(rec, passed):
        if passed >= seconds and enough(rec.processes[0]):
            raise KeyboardInterrupt

    return sampler.record([(ProcTarget(target.pid), "x")], 100.0, 90.0, [], beside=beside)


@pytest.mark.parametrize("python", PYTHONS)
def test_code_and_threads_that_come_and_go_cost_nobody_its_looks(python):
    with running(python, "comes_and_goes.py") as (target, _):
        rec = recorded(target, lambda track: len(track.threads) > 30 and len(track.begins) > 60)
    (track,) = rec.processes
    threads = {name: [looks(rec, track, th) for th in track.threads if th.name == name] for name in ("MainThread", "serve")}
    (main,), (serve,) = threads["MainThread"], threads["serve"]
    assert main.count(None) <= len(main) // 10 and all("step" in names for names in main if names is not None)
    assert serve.count(None) <= len(serve) // 10
    inside = [names for names in serve if names and "work" in names]
    assert inside and all(names[-3:] == ["serve", "<module>", "work"] for names in inside)
    jobs = [
        one
        for th in track.threads
        if th.tid != target.pid and th.name not in ("serve", "starts")
        for one in looks(rec, track, th)
    ]
    assert jobs.count(None) <= len(jobs) // 4, (jobs.count(None), len(jobs))
    assert sum("job" in names for names in jobs if names) > len(jobs) // 2
    assert {names[0] for names in jobs if names} <= {"_bootstrap"}


CALLS = """
def leaf_a(): return sum(range(99))
def leaf_b(): return sum(range(99))
def hot_a(): return leaf_a()
def hot_b(): return leaf_b()
print('{"ready": 1}', flush=True)
while True:
    hot_a(); hot_b()
"""


class Swapped(BulkReader):
    """In a part of the reads one of the two readings of each place shows the other one of two code objects, as where a call ended
    between them and another began."""

    codes, rng, made = {}, random.Random(7), 0

    def read_ranges(self, ranges, total):
        raw = bytearray(super().read_ranges(ranges, total))
        pieces, at = [], 0
        for address, size in zip(ranges[::2], ranges[1::2]):
            pieces.append((address, size, at))
            at += size
        twice = [one for one in pieces if sum(one[:2] == other[:2] for other in pieces) == 2]
        if self.codes and twice and self.rng.random() < 0.5:
            address, size, at = self.rng.choice(twice)
            for word in range(at, at + size - 7, 8):
                code = int.from_bytes(raw[word : word + 8], "little")
                for tag in (0, 1):
                    if code - tag in self.codes:
                        raw[word : word + 8] = (self.codes[code - tag] + tag).to_bytes(8, "little")
                        self.made += 1
        return bytes(raw)


@pytest.mark.parametrize("python", PYTHONS)
def test_no_stack_is_recorded_of_a_caller_and_a_callee_of_different_calls(python, tmp_path):
    possible = [["<module>"], *(["<module>", f"hot_{x}", f"leaf_{x}"][:n] for x in "ab" for n in (2, 3))]
    source = tmp_path / "calls.py"
    source.write_text(CALLS)
    with running(python, str(source)) as (target, _):
        rt = open_runtime(ProcTarget(target.pid))
        bulk, tree, thread = Swapped(rt.target), StackTree(), rt.threads()[0]
        reader = StackReader(rt, bulk, tree)
        places = ThreadPlaces(thread.address, rt.target.u64(thread.address + rt.layout["tstate.thread_id"]))
        codes, whole, wrong = {}, 0, 0
        for _ in range(30000):
            if whole > 500 and bulk.made > 200:
                break
            try:
                names = [f.function for f in tree.stack(reader.read(places))]
            except TornError:
                continue
            for code, name in zip(places.chain[::3], names[::-1]):
                codes[name] = code
            if len(codes) < 5 or not bulk.codes:
                bulk.codes = {codes["hot_a"]: codes["hot_b"], codes["hot_b"]: codes["hot_a"]} if len(codes) == 5 else {}
                continue
            whole += 1
            wrong += names not in possible
    assert whole > 500 and bulk.made > 200, (whole, bulk.made)
    assert wrong <= whole // 100, (wrong, whole)  # a call that did end between the two readings may hide what was swapped


EXECS = """
import os, sys, time
def works(seconds):
    end = time.time() + seconds
    while time.time() < end:
        pass
def before():
    print('{"ready": 1}', flush=True)
    works(1.0)
def after():
    works(60)
if len(sys.argv) > 1:
    after()
before()
os.execv(sys.executable, [sys.executable, __file__, "after"])
"""


def test_a_process_that_runs_another_program_is_followed_and_said(tmp_path):
    source = tmp_path / "execs.py"
    source.write_text(EXECS)
    with running(PYTHONS[-1], str(source)) as (target, _):
        found = {}

        def follows(rec, passed):  # until both are seen: on a full machine a start takes long
            seen = {f.function for f in rec.tree.frames}
            if {"before", "after"} <= seen:
                found["after"] = found.get("after", 0) + 1
            if found.get("after", 0) > 30:
                raise KeyboardInterrupt

        rec = sampler.record([(ProcTarget(target.pid), "x")], 100.0, 60.0, [], beside=follows)
    assert [p.pid for p in rec.processes] == [target.pid] * 2
    each = [{names[-2] for th in p.threads for names in looks(rec, p, th) if names and "works" in names} for p in rec.processes]
    assert each == [{"before"}, {"after"}]
    assert any("runs another program" in note and note.endswith("is recorded too") for note in rec.notes), rec.notes


INTERPRETERS = """
import time
from concurrent.futures import InterpreterPoolExecutor
def work():
    import time
    def spins():
        end = time.time() + 60
        while time.time() < end:
            pass
    spins()
if __name__ == "__main__":
    pool = InterpreterPoolExecutor(2)
    each = [pool.submit(work) for _ in range(2)]
    time.sleep(1)
    print('{"ready": 1}', flush=True)
    [one.result() for one in each]
"""


@pytest.mark.parametrize("python", [p for p in PYTHONS if minor(p) >= 14] or [None])
def test_a_thread_that_runs_a_subinterpreter_is_recorded_once(python, tmp_path):
    if python is None:
        pytest.skip("InterpreterPoolExecutor comes with 3.14")
    source = tmp_path / "interpreters.py"
    source.write_text(INTERPRETERS)
    with running(python, str(source)) as (target, _):
        rec = recorded(target, lambda track: min(th.cpu for th in track.threads if th.tid != target.pid) > 0.3)
    (track,) = rec.processes
    assert len({th.tid for th in track.threads}) == len(track.threads) == 3
    for thread in track.threads:
        if thread.tid != target.pid:
            whole = [names for names in looks(rec, track, thread) if names]
            assert {names[0] for names in whole} == {"_bootstrap"}
            assert sum("spins" in names for names in whole) > 0.8 * len(whole), whole[:3]
            assert all(names[-1] == "spins" for names in whole if "spins" in names), "what calls it is around it"


def test_where_a_tenth_was_dropped_the_answer_says_it():
    from harness.recordings import made

    rec = made()
    main = rec.processes[0].threads[0]
    main.cpu = 1.0
    assert much_dropped(rec) == [
        "TP0: 1 of 10 stacks (10 %) changed while they were read and were dropped: shares are of those that were kept"
    ]
    main.nodes[3] = main.nodes[0]
    assert much_dropped(rec) == []
