"""A process that ends while it is read is said to have ended, not to have a Python of another layout."""

import os
import signal
import sys

import pytest
from harness.answers import answer
from harness.subjects import running, spawned, unlimited_core

from gdbext.access.proc import ProcTarget
from gdbext.cpython.runtime import Runtime, open_runtime
from gdbext.engines.processes import ProcessRef
from gdbext.engines.targets import Targets
from gdbext.errors import NotFoundError
from gdbext.stacks import snapshots, threads


def test_a_process_that_ends_while_it_is_opened(monkeypatch):
    with running(sys.executable, "gil_states.py") as (target, _):
        found = Runtime._modules_address

        def ends(self, head):
            address = found(self, head)
            target.process.kill()
            target.process.wait()
            self.target.invalidate()
            return address

        monkeypatch.setattr(Runtime, "_modules_address", ends)
        with pytest.raises(NotFoundError, match="has ended: nothing of it can be read any more"):
            open_runtime(ProcTarget(target.pid))


def test_a_process_that_ends_while_it_is_copied():
    with running(sys.executable, "gil_states.py") as (target, _):
        (taken,) = snapshots.take_snapshots([ProcessRef(target.pid)], Targets())
        target.process.kill()
        target.process.wait()
        assert threads.view_of(taken).rt is not None  # it was copied whole before
        taken.target.invalidate()
        taken.target._read = lambda at, size: bytes(size)
        with pytest.raises(NotFoundError, match="has ended while it was copied"):
            threads.view_of(taken)


OVERFLOWS = "import sys; sys.setrecursionlimit(10**9); globals()['f'] = lambda n: list(map(f, [n])); f(1)"


@pytest.mark.parametrize("how", ["import ctypes; ctypes.string_at(8)", "import os; os.abort()", OVERFLOWS, ""])
def test_a_core_of_an_error_is_a_crash_and_one_that_was_asked_for_is_not(tmp_path, how):
    """The thread that died is named; a SIGABRT that somebody sends to get a core says nothing about the process."""
    code = (
        "import threading, time\n"
        "def late():\n    print(threading.get_native_id(), flush=True)\n"
        "    time.sleep(1 if {how!r} else 1000)\n    exec({how!r})\n"
        "t = threading.Thread(target=late, name='late')\nt.start()\nt.join()\n"
    ).format(how=how)
    with spawned([sys.executable, "-c", code], ready="", cwd=tmp_path, preexec_fn=unlimited_core) as process:
        if not how:
            process.send_signal(signal.SIGABRT)
        process.wait(60)
        core = next((str(tmp_path / name) for name in os.listdir(tmp_path) if name.startswith("core")), None)
        if core is None:
            pytest.skip("the kernel writes no cores into the working folder here")
        said = answer(f"llm-hang {core} -json")
        assert (said["verdict"] == "crashed") == bool(how)
        if how:
            assert [c["tid"] for c in said["culprits"]] == [int(process.said)]
            assert ("SIGABRT" if "abort" in how else "SIGSEGV at address 0x") in said["evidence"][0]
            assert ("just below its stack: an overflow" in said["evidence"][0]) == (how == OVERFLOWS), said["evidence"]
