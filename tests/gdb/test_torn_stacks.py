"""Stacks of threads that run on: none is taken for whole that is not. Truth by construction: the root of each thread is known.

Besides what a running program tears by itself, reads are torn on purpose: the word that leads outward from some frame, or to the
innermost one, reads as 0, as it does where that frame has just returned. With GDBEXT_TEST_LONG ten thousand of them for each
interpreter and reader, a fourth for each thread. GDBEXT_TEST_SEED: of what is drawn."""

import contextlib
import os
import random
import time

import pytest
from harness.recordings import said
from harness.subjects import PYTHONS, running

from gdbext.access.proc import ProcTarget
from gdbext.access.remote_memory import BulkReader
from gdbext.cpython import whole_stacks
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import GdbextError
from gdbext.observe.bulk_stacks import StackReader, ThreadPlaces
from gdbext.observe.codes import TornError
from gdbext.timeline import sampler
from gdbext.timeline.recording import DROPPED, StackTree

READ = 100  # stacks of each thread, of each interpreter
SEED = int(os.environ.get("GDBEXT_TEST_SEED", 1))
TORN = 2500 if os.environ.get("GDBEXT_TEST_LONG") else 150  # torn readings among them
ROOTS = {"MainThread": "<module>", "calls": "_bootstrap", "generators": "_bootstrap", "c": "_bootstrap"}


class Torn(ProcTarget):
    """A process in which one of the words `places` reads as 0 in each reading that is drawn to be torn."""

    places, rng, part = (), random.Random(SEED), 0.0
    torn = 0

    def zeroed(self):
        """Draws what the next reading meets."""
        self.now = self.rng.choice(self.places) if self.places and self.rng.random() < self.part else 0

    now = 0

    def _read(self, at, size):
        raw = bytearray(super()._read(at, size))
        if at <= self.now and self.now + 8 <= at + size:
            raw[self.now - at : self.now - at + 8] = bytes(8)
            self.torn += 1
        return raw

    def drop_pages(self):  # before it is read again
        super().drop_pages()
        self.zeroed()

    def invalidate(self):
        super().invalidate()
        self.zeroed()


def links(rt, thread):
    """Where words lead outward from each frame of a thread as it is now, from each that C called, and to the innermost one."""
    L = rt.layout
    key = "frameobj.f_back" if "frameobj.f_back" in L else "iframe.previous"
    steps = list(rt.dialect.walk(rt, thread.address))
    found = [step.address + L[key] for step in steps]
    if rt.version >= (3, 12):  # each activation has a frame of its own, on the C stack
        found += sorted({step.anchor + L[key] for step in steps if step.anchor})
    current = next((thread.address + L[k] for k in ("tstate.frame", "tstate.current_frame") if k in L), None)
    if current is None:
        current = rt.target.u64(thread.address + L["tstate.cframe"]) + L["cframe.current_frame"]
    return [*found, current]


def stacks(rt, thread, count):
    """Function names, outermost first, of stacks that were accepted; and how many were not."""
    found, refused = [], 0
    for _ in range(count):
        rt.target.invalidate()
        try:
            found.append([f.function.rpartition(".")[2] for f in reversed(rt.frames(thread))])
        except GdbextError:
            refused += 1
    return found, refused


@pytest.mark.parametrize("python", PYTHONS)
def test_a_torn_stack_is_never_taken_for_a_whole_one(python, monkeypatch):
    with running(python, "torn_stacks.py") as (plain, truth):
        target = Torn(plain.pid)
        rt = open_runtime(target)
        threads = {name: rt.thread(tid) for name, tid in truth["threads"].items()}
        assert set(threads) == set(ROOTS)
        for name, thread in threads.items():
            monkeypatch.undo()
            target.part, target.places = 0.0, ()
            accepted, refused = stacks(rt, thread, READ)
            assert all(stack and stack[0] == ROOTS[name] for stack in accepted), (name, accepted)
            assert len(accepted) >= READ // 2, (name, refused)
            before, target.part = target.torn, 0.4
            monkeypatch.setattr(whole_stacks, "_rest", lambda rt, thread: None)  # no read of a thread that sleeps is torn
            kept = left = 0
            while target.torn - before < TORN:
                target.places = ()
                target.invalidate()
                try:
                    target.places = links(rt, thread)
                except GdbextError:
                    continue
                accepted, refused = stacks(rt, thread, 20)
                assert all(stack and stack[0] == ROOTS[name] for stack in accepted), (name, accepted)
                kept, left = kept + len(accepted), left + refused
            print(f"{name}: {target.torn - before} readings torn; {kept} stacks accepted, all whole, {left} refused")


class TornBulk(BulkReader):
    """In each reading that is drawn to be torn, one of the words `places` reads as 0, in all pieces that hold it."""

    places, rng, part, torn = (), random.Random(SEED + 1), 0.0, 0

    def read_ranges(self, ranges, total):
        raw = bytearray(super().read_ranges(ranges, total))
        if self.places and self.rng.random() < self.part:
            now, base = self.rng.choice(self.places), 0
            for start, size in zip(ranges[::2], ranges[1::2]):
                if start <= now <= start + size - 8:
                    raw[base + now - start : base + now - start + 8] = bytes(8)
                    self.torn += 1
                base += size
        return bytes(raw)


@pytest.mark.parametrize("python", PYTHONS)
def test_a_torn_stack_is_never_recorded(python):
    """As above, of the reader that looks a hundred times a second."""
    with running(python, "torn_stacks.py") as (plain, truth):
        rt = open_runtime(ProcTarget(plain.pid))
        bulk, tree = TornBulk(rt.target), StackTree()
        reader = StackReader(rt, bulk, tree)
        for name, tid in truth["threads"].items():
            thread, bulk.part = rt.thread(tid), 0.0
            places = ThreadPlaces(thread.address, rt.target.u64(thread.address + rt.layout["tstate.thread_id"]))
            while places.roots.known is None:  # each thread runs all the time: no reading is of one that sleeps
                recorded(reader, places, 1)
            bulk.part, before, accepted = 0.4, bulk.torn, []
            while len(accepted) < TORN or bulk.torn - before < TORN:
                rt.target.invalidate()
                bulk.places = ()
                with contextlib.suppress(GdbextError):
                    bulk.places = links(rt, thread)
                accepted += recorded(reader, places, 20)
            stacks = [tree.stack(node) for node in accepted]
            roots = {stack[0].function.rpartition(".")[2] if stack else "" for stack in stacks}
            assert roots == {ROOTS[name]}, (name, roots)
            print(f"{name}: {bulk.torn - before} readings torn, {len(accepted)} stacks recorded, all whole")


def recorded(reader, places, count):
    """The nodes of the stacks, of `count`, that were accepted."""
    found = []
    for _ in range(count):
        with contextlib.suppress(TornError):
            found.append(reader.read(places))
    return found


@pytest.mark.parametrize("python", PYTHONS)
def test_a_recording_of_a_server_of_coroutines_is_whole(python):
    with running(python, "torn_shares.py", "600") as (target, _):
        rec = sampler.record([(ProcTarget(target.pid), "server")], 100.0, 3.0, [], realtime=True)
        ended = time.monotonic()
        truth = said(target, ended - rec.seconds, ended)
    (track,) = rec.processes
    assert track.dropped <= track.samples // 20
    spent = dict.fromkeys(truth, 0.0)
    seen = 0.0
    for thread in track.threads:
        for run in track.runs(thread):
            names = [f.function.rpartition(".")[2] for f in rec.tree.stack(run.node)] if run.node != DROPPED else None
            if names is None:
                continue
            assert names and names[0] == ROOTS.get(thread.name, "_bootstrap"), (thread.name, names)
            if thread.name == "MainThread":
                seen += run.end - run.begin
                what = next((name for name in names if name in truth), "rest")
                spent[what] += run.end - run.begin
    for what, seconds in truth.items():
        share, own = seconds / rec.seconds, spent[what] / seen
        error = 4 * (share * (1 - share) / len(track.begins)) ** 0.5 + 0.03  # as in test_record
        print(f"{what}: {own:.1%} of the time seen, {share:.1%} by the program itself")
        assert abs(share - own) < error, (what, share, own, truth, spent)


ENDS = """
import atexit, sys, threading
def leaf():
    return 1
def works():
    while True:
        leaf()
def reads():
    sys.stdin.readline()
    over.append(1)
atexit.register(works)
over = []
threading.Thread(target=reads).start()
print('{"ready": 1}', flush=True)
while not over:
    leaf()
"""


@pytest.mark.parametrize("python", PYTHONS)
def test_a_root_that_another_follows_is_recorded_too(python, tmp_path):
    """The main thread's module ends, and what `atexit` calls becomes its root."""
    source = tmp_path / "ends.py"
    source.write_text(ENDS)
    with running(python, str(source)) as (target, _):
        told = []

        def ends(rec, passed):
            if passed > 0.5 and not told:
                told.append(target.process.stdin.write("\n"))
                target.process.stdin.flush()

        rec = sampler.record([(ProcTarget(target.pid), "ends")], 100.0, 1.5, [], beside=ends)
    (track,) = rec.processes
    main = next(th for th in track.threads if th.tid == target.pid)
    stacks = [rec.tree.stack(run.node) for run in track.runs(main) if run.node != DROPPED]
    roots = [stack[0].function.rpartition(".")[2] for stack in stacks if stack]
    assert set(roots) == {"<module>", "works"} and roots.index("works") == roots.count("<module>"), roots
    assert track.dropped <= track.samples // 10


@pytest.mark.parametrize("python", PYTHONS)
def test_a_thread_that_goes_on_without_a_frame_is_recorded_so(python):
    with running(python, "torn_stacks.py") as (plain, truth):
        rt = open_runtime(ProcTarget(plain.pid))
        bulk, thread = TornBulk(rt.target), rt.thread(truth["threads"]["calls"])
        reader = StackReader(rt, bulk, StackTree())
        places = ThreadPlaces(thread.address, rt.target.u64(thread.address + rt.layout["tstate.thread_id"]))
        while not recorded(reader, places, 1):
            pass
        bulk.places, bulk.part = links(rt, thread)[-1:], 1.0
        while not (found := recorded(reader, places, 1)):
            pass
        assert found == [0] == recorded(reader, places, 1)
        bulk.part = 0.0
        while not (found := recorded(reader, places, 1)):
            pass
        assert found[0] != 0


IDLE = """
import threading, time
def rests(said=""):
    print(said, end="", flush=True)
    time.sleep(900)
for i in range(20):
    threading.Thread(target=rests, daemon=True).start()
rests('{"ready": 1}\\n')
"""


@pytest.mark.parametrize("python", PYTHONS)
def test_threads_that_sleep_are_whole_at_once(python, tmp_path):
    source = tmp_path / "idle.py"
    source.write_text(IDLE)
    with running(python, str(source)) as (target, _):
        rt = open_runtime(target)
        for thread in rt.threads():
            names = [f.function.rpartition(".")[2] for f in rt.frames(thread)]
            assert names[0] == "rests" and names[-1] in ("<module>", "_bootstrap")


def _first_accepted(rt, thread):
    """The frames of the first reading that is believed: on a full machine the time of one command is too short for a proof."""
    for _ in range(100):
        rt.target.invalidate()
        with contextlib.suppress(GdbextError):
            return rt.frames(thread)
    raise AssertionError("no reading was believed")


@pytest.mark.parametrize("python", PYTHONS)
def test_a_thread_without_a_frame_is_known_to_have_none(python):
    """By construction: the state reads as one that runs no frame, and goes on to."""
    with running(python, "torn_stacks.py") as (plain, truth):
        target = Torn(plain.pid)
        rt = open_runtime(target)
        thread = rt.thread(truth["threads"]["calls"])
        target.places, target.part = links(rt, thread)[-1:], 1.0
        assert _first_accepted(rt, thread) == []
        begun = target.torn
        target.invalidate()
        assert rt.frames(thread) == [] and target.torn - begun <= 4, "what is known is not proven again"
        target.part = 0.0
        accepted, refused = stacks(rt, thread, READ)  # on a full machine some are refused until the root is known again
        assert accepted and all(stack[0] == "_bootstrap" for stack in accepted), (accepted, refused)
