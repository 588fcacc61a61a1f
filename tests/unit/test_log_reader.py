"""Logs read by a helper: none that is not answered for holds a watch up, and what was written last is kept."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from harness import adverse
from harness.gdb_run import ROOT
from harness.heartbeats import eventually
from harness.subjects import spawned

from gdbext.engines.processes import ProcessRef
from gdbext.observe import log_reader, logs
from gdbext.observe.log_reader import Logs
from gdbext.watch import beside, loop, ring
from gdbext.watch.beside import LOG, TRACEBACK, Beside

CANARY = "canary4711"
WAITS = [sys.executable, "-c", "print('up', flush=True)\nimport time\nwhile True: time.sleep(0.05)"]
# Each line that comes is a failure, logged as Python does; the last one ends it.
FAILS = """
import os, signal, sys, traceback
def fails():
    raise RuntimeError('canary4711')
print('up', flush=True)
for line in sys.stdin:
    try:
        fails()
    except RuntimeError:
        traceback.print_exc()
    if line.strip() == 'end':
        os.kill(os.getpid(), signal.SIGKILL)
    print('logged', flush=True)
"""


def traceback_of(path, line=1, function="dump", error="ValueError"):
    return f'Traceback (most recent call last):\n  File "{path}", line {line}, in {function}\n{error}: {CANARY}\n'


# ---- what a look costs -----------------------------------------------------------------------------------------------
def test_a_dear_look_is_not_the_last_one_for_hours(tmp_path, monkeypatch):
    with open(tmp_path / "log", "w") as out, contextlib.closing(Logs()) as shared, spawned(WAITS, "up", stderr=out) as child:
        one, kept, now = Beside(child.pid, shared), ring.Ring(1 << 18), 1000.0
        one.look(now, now, kept, None)
        clock = itertools.count(0.0, 100.0)
        monkeypatch.setattr(time, "thread_time", lambda: next(clock))
        one.look(now + beside.LATEST, now, kept, None)  # of 100 s of a CPU
        print("INFO", file=out, flush=True)
        one.look(now + 2 * beside.LATEST, now, kept, None)
    assert [what for _, what, _ in kept.notes] == [LOG]


# ---- file servers that do not answer -----------------------------------------------------------------------------------
def test_a_watch_ends_in_time_though_a_log_is_not_answered_for(tmp_path):
    with adverse.silent(str(tmp_path / "mount")) as server:
        out = os.open(tmp_path / "mount" / "log", os.O_WRONLY)
        with spawned(WAITS, ready="up", stderr=out) as process:
            os.close(out)
            server.quiet()
            words = [
                sys.executable,
                "-m",
                "gdbext",
                "watch",
                str(process.pid),
                "-for",
                "3",
                "-after",
                "60",
                "-o",
                tmp_path / "out",
            ]
            with spawned(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as watch:
                try:
                    watch.wait(90)
                finally:
                    server.kill()  # else the watch cannot be ended either
    assert watch.returncode == 0


def test_a_log_that_is_not_answered_for_keeps_no_other_from_being_read(tmp_path, monkeypatch):
    monkeypatch.setattr(log_reader, "PATIENCE", 0.3)
    with contextlib.ExitStack() as stack:
        shared = stack.enter_context(contextlib.closing(Logs()))
        server = stack.enter_context(adverse.silent(str(tmp_path / "mount")))
        bad, good = os.open(tmp_path / "mount" / "log", os.O_WRONLY), open(tmp_path / "log", "w")
        one, two = (stack.enter_context(spawned(WAITS, ready="up", stderr=out)) for out in (bad, good))
        os.close(bad)
        stack.callback(server.kill)  # else who has a file of it open cannot end
        first, second = shared.join(one.pid), shared.join(two.pid)
        assert shared.read(first).levels == {}
        server.quiet()
        good.write("ERROR\n")
        good.flush()
        assert shared.read(first) is None and shared.read(first) is None
        assert shared.read(second).levels == {"ERROR": 1}
        asked = []
        monkeypatch.setattr(shared, "_ask", lambda *words: asked.append(words))
        assert shared.read(first) is None and not asked  # for a while


def test_a_source_that_is_not_answered_for_blinds_no_look_but_one(tmp_path, monkeypatch):
    monkeypatch.setattr(log_reader, "PATIENCE", 0.3)
    with contextlib.ExitStack() as stack:
        shared = stack.enter_context(contextlib.closing(Logs()))
        server = stack.enter_context(adverse.silent(str(tmp_path / "mount")))
        out = stack.enter_context(open(tmp_path / "log", "w"))
        key = shared.join(stack.enter_context(spawned(WAITS, ready="up", stderr=out)).pid)
        server.quiet()
        print("ERROR\n" + traceback_of(tmp_path / "mount" / "x.py"), file=out, flush=True)
        assert shared.read(key) is None
        monkeypatch.setattr(log_reader, "AGAIN", 0.0)
        assert shared.read(key).levels == {"ERROR": 1}
        print("WARNING\n" + traceback_of(json.__file__), file=out, flush=True)
        assert shared.read(key)[:2] == ({"WARNING": 1}, [logs.Traceback(("dump (__init__.py:1)",), "ValueError")])


def test_a_reader_that_was_killed_is_replaced_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(log_reader, "AGAIN", 0.0)
    with open(tmp_path / "log", "w") as out, contextlib.closing(Logs()) as shared, spawned(WAITS, "up", stderr=out) as child:
        key = shared.join(child.pid)
        print("ERROR", file=out, flush=True)
        assert shared.read(key).levels == {"ERROR": 1}
        os.kill(shared._helper.pid, signal.SIGKILL)
        print("WARNING", file=out, flush=True)
        assert shared.read(key) is None and shared.read(key).levels == {"WARNING": 1}


# ---- what was written last ---------------------------------------------------------------------------------------------
class Failing:
    """Programs that fail, in one log, and a watch over them."""

    def __init__(self, folder, stack, number, said=None):
        self.out = stack.enter_context(open(folder / "log", "w"))
        self.all = [
            stack.enter_context(spawned([sys.executable, self.script(folder)], "up", stderr=self.out)) for _ in range(number)
        ]
        hands = loop.Hands(lambda *_: said(self) if said else None, lambda refs: "", lambda *_: None)
        refs = [ProcessRef(one.pid, f"TP{at}") for at, one in enumerate(self.all)]
        self.watch = loop.Watch(refs, None, hands, loop.Settings(after=60.0, poll=0.05))
        stack.callback(self.watch.followed.close)

    @staticmethod
    def script(folder):
        (folder / "fails.py").write_text(FAILS)
        return folder / "fails.py"

    def fail(self, number, end=False):
        print("end" if end else "go", file=self.all[number].stdin, flush=True)
        if not end:
            assert self.all[number].stdout.readline() == "logged\n"
            return
        eventually(lambda: not self.all[number].stdout.read(), "its end")
        os.waitid(os.P_PID, self.all[number].pid, os.WEXITED | os.WNOWAIT)

    def noted(self):
        """{label: how many tracebacks its history has}, of those that have one."""
        told = {one["label"]: one["notes"] for one in self.watch.history()["ranks"]}
        assert CANARY not in repr(told)
        frames = [n[2]["frames"] for notes in told.values() for n in notes if n[1] == TRACEBACK]
        assert all(one[-1].startswith("fails (fails.py:") for one in frames)
        return {label: sum(n[1] == TRACEBACK for n in notes) for label, notes in told.items() if notes}


def test_the_last_traceback_is_kept_of_what_dies_while_it_is_examined(tmp_path):
    with contextlib.ExitStack() as stack:
        of = Failing(tmp_path, stack, 2, lambda of: of.fail(1, True) if of.all[1].poll() is None else None)
        of.watch.take()
        of.fail(0, True)
        of.watch.take()
        assert of.noted() == {"TP0": 1, "TP1": 1}


@pytest.mark.parametrize("every", [0.0, 1000.0])
@pytest.mark.parametrize("dies", [0, 1])
def test_of_one_log_of_several_nothing_is_lost_when_one_ends(tmp_path, dies, every, monkeypatch):
    """Whether it is the one that reads, and however seldom that reads: at an end what was written last is read, and another one
    reads on from there."""
    monkeypatch.setattr(beside, "EVERY", every)
    monkeypatch.setattr(beside, "PART", 1.0)
    with contextlib.ExitStack() as stack:
        of = Failing(tmp_path, stack, 3)
        of.watch.take()
        of.fail(dies, True)
        of.watch.take()
        assert sum(of.noted().values()) == 1 and (not every or of.noted() == {f"TP{dies}": 1})
        of.fail(2)
        of.watch.take()
        assert sum(of.noted().values()) == (1 if every else 2)
        of.fail(2, True)
        of.watch.take()
        assert sum(of.noted().values()) == 3
