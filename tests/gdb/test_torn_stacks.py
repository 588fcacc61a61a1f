"""Stacks of threads that run on: none is taken for whole that is not. Truth by construction: the root of each thread is known.

Besides what a running program tears by itself, reads are torn on purpose: the word that leads outward from some frame, or to the
innermost one, reads as 0, as it does where that frame has just returned."""

import random

import pytest
from harness.subjects import PYTHONS, running

from gdbext.access.proc import ProcTarget
from gdbext.cpython import whole_stacks
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import GdbextError

DRAWN, READ = 400, 100  # stacks of each thread, of each interpreter
ROOTS = {"MainThread": "<module>", "calls": "_bootstrap", "generators": "_bootstrap", "c": "_bootstrap"}


class Torn(ProcTarget):
    """A process in which one of the words `places` reads as 0 in each reading that is drawn to be torn."""

    places, rng, part = (), random.Random(1), 0.0
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
    """Where words lead outward from each frame of a thread as it is now, and to the innermost one."""
    L = rt.layout
    key = "frameobj.f_back" if "frameobj.f_back" in L else "iframe.previous"
    steps = list(rt.dialect.walk(rt, thread.address))
    found = [step.address + L[key] for step in steps]
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
            drawn = 0
            while drawn < DRAWN:
                target.places = ()
                target.invalidate()
                try:
                    target.places = links(rt, thread)
                except GdbextError:
                    continue
                accepted, refused = stacks(rt, thread, 20)
                drawn += 20
                assert all(stack and stack[0] == ROOTS[name] for stack in accepted), (name, accepted)
            assert target.torn > before, name


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


@pytest.mark.parametrize("python", PYTHONS)
def test_a_thread_without_a_frame_is_known_to_have_none(python):
    """By construction: the state reads as one that runs no frame, and goes on to."""
    with running(python, "torn_stacks.py") as (plain, truth):
        target = Torn(plain.pid)
        rt = open_runtime(target)
        thread = rt.thread(truth["threads"]["calls"])
        target.places, target.part = links(rt, thread)[-1:], 1.0
        target.invalidate()
        assert rt.frames(thread) == []
        begun = target.torn
        target.invalidate()
        assert rt.frames(thread) == [] and target.torn - begun <= 4, "what is known is not proven again"
        target.part = 0.0
        target.invalidate()
        assert rt.frames(thread)[-1].function.rpartition(".")[2] == "_bootstrap"
