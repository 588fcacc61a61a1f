"""llm-hang looks at a process once: what it says of the process's requests is read at the samples of its threads, not beside
them. On STAND-INS of SGLang's processes (subjects/requests_sglang.py), titled as they are."""

import contextlib
import json
import os
import sys

import pytest
from harness.answers import answer
from harness.heartbeats import asleep
from harness.subjects import SUBJECTS, spawned

from gdbext.access.proc import ProcTarget
from gdbext.cpython.runtime import Runtime, open_runtime
from gdbext.errors import GdbextError
from gdbext.observe.loop import rounds
from gdbext.observe.observer import Observer, thread_sample
from gdbext.observe.window import ThreadWindow
from gdbext.requests import collect

TITLED = """
import runpy, setproctitle, sys
setproctitle.setproctitle(sys.argv[1])
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
TITLES = {"server": "sglang::tokenizer_worker:1", "scheduler": "sglang::scheduler_TP0", "detokenizer": "sglang::detokenizer"}


@contextlib.contextmanager
def engine():
    """-> {role: pid} of an engine that has lost its one request: all of its processes wait."""
    subject = os.path.join(SUBJECTS, "requests_sglang.py")
    with contextlib.ExitStack() as stack:
        words = [sys.executable, "-c", TITLED]
        ranks = {r: stack.enter_context(spawned([*words, title, subject, r], ready="{")) for r, title in TITLES.items()}
        pids = {role: process.pid for role, process in ranks.items()}
        asleep(*pids.values())
        yield pids


@pytest.fixture
def readings(monkeypatch):
    """[(pid, whether a sample was being taken)] of each time that the threads of a running process are listed, in order; the same
    of the looks at an engine's requests: their samples of threads, by pid."""
    found, looks, within, windows = [], [], [], {}
    listed, sample, looks_at = Runtime._threads, Observer.sample, collect.looks_at

    def taken(observer, **more):
        within.append(observer)
        windows[observer.pid] = observer.window
        try:
            sample(observer, **more)
        finally:
            within.pop()

    def spied(rt):
        if rt.target.kind == "proc":
            found.append((rt.target.pid, bool(within)))
        return listed(rt)

    def looked(engine):
        looks.append(looks_at(engine)[0])
        return looks[-1], []

    monkeypatch.setattr(Observer, "sample", taken)
    monkeypatch.setattr(Runtime, "_threads", spied)
    monkeypatch.setattr(collect, "looks_at", looked)
    return found, looks, windows


def test_requests_of_a_process_are_read_at_a_sample_of_its_threads(readings):
    found, looks, windows = readings
    with engine() as pids:
        said = answer(f"llm-hang {' '.join(map(str, pids.values()))} -json")
    assert said["verdict"] == "stuck-requests" and [r["verdict"] for r in said["requests"]] == ["lost"], said
    assert len(looks) >= 2 and not any(one.notes for each in looks for one in each), looks
    for role, pid in pids.items():
        mine = [sampled for at, sampled in found if at == pid]
        assert mine.count(True) >= len(looks), (role, mine)
        assert mine.count(False) <= 1, (role, mine)  # what the last sample is compared by
        stacks = windows[pid].thread(pid).stacks
        for one in (one for each in looks for one in each if one.pid == pid):
            samples = {keeper.sample.stack for keeper in one.keepers.values() if keeper.sample is not None}
            assert samples and all(any(whole[: len(s)] == s for whole in stacks) for s in samples), role


def test_a_process_at_rest_without_requests_is_read_once(readings):
    found, _, _ = readings
    with spawned([sys.executable, "-c", "print('ready', flush=True); input()"], ready="ready") as process:
        asleep(process.pid)
        said = answer(f"llm-hang {process.pid} -json")
    assert said["verdict"] == "idle", said
    assert [sampled for pid, sampled in found if pid == process.pid] in ([True], [True, False]), found


class Movers:
    """One more consumer of samples, as CONTRIBUTING.md tells how to write it: the threads of a process that move."""

    def __init__(self, pid):
        self.rt, self.samples = open_runtime(ProcTarget(pid)), {}

    def sample(self):
        self.rt.target.invalidate()
        for thread in self.rt.threads():
            with contextlib.suppress(GdbextError):  # one that runs on may be torn: then the next sample tells
                self.samples.setdefault(thread.tid, []).append(thread_sample(self.rt, thread))

    def moved(self):
        return {tid for tid, samples in self.samples.items() if ThreadWindow.of(samples).moved}


BUSY = """
import json, threading
tids = {}
def counts():
    tids["counts"] = threading.get_native_id()
    told.set()
    n = 0
    while True:
        n += 1
told = threading.Event()
threading.Thread(target=counts, daemon=True).start()
told.wait()
tids["waits"] = threading.get_native_id()
print(json.dumps(tids), flush=True)
input()
"""


def test_a_further_consumer_of_samples_is_one_class():
    with spawned([sys.executable, "-c", BUSY], ready="{") as process:
        said, consumer = json.loads(process.said), Movers(process.pid)
        for _ in rounds(0.02, count=1000, rest=lambda took: 0.02):
            consumer.sample()
            if consumer.moved() and len(consumer.samples[said["waits"]]) > 3:
                break
        ran = ThreadWindow.of(consumer.samples[said["counts"]]).ran
    assert consumer.moved() == {said["counts"]} and ran > 0
