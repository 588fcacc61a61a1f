"""A process that ends while it is read: the answer is that it ended, not that its Python has another layout."""

import re
import signal
import subprocess
import sys
import time

import pytest

from gdbext.access.proc import ProcTarget
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import GdbextError, NotFoundError


class Dying(ProcTarget):
    """Its process is killed before the read number `left`."""

    left = 0

    def _read(self, at, size):
        if not self.left:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(120)
        self.left -= 1
        return super()._read(at, size)


def dying(left, reap):
    process = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    process.stdout.readline()
    target = Dying(process.pid)
    target.left, target.process = left, process if reap else Unreaped(process)
    return process, target


class Unreaped:
    """Kills a process and leaves it a zombie."""

    def __init__(self, process):
        self.process = process

    def send_signal(self, number):
        self.process.send_signal(number)

    def wait(self, limit):
        for _ in range(1000 * limit):
            with open(f"/proc/{self.process.pid}/stat") as f:
                if f.read().rpartition(")")[2].split()[0] == "Z":
                    return
            time.sleep(0.001)
        raise AssertionError("it did not end")


@pytest.mark.parametrize("reap", [True, False], ids=["gone", "zombie"])
def test_it_is_said_that_the_process_ended_whenever_it_does(reap):
    said = []
    for left in range(0, 40, 3):
        process, target = dying(left, reap)
        try:
            with pytest.raises(NotFoundError, match=rf"^process {process.pid} (has ended|does not exist)") as failure:
                open_runtime(target)
                target.invalidate()
                target.left = 0  # the layout was proved before it ended: the next time it is opened it has
                open_runtime(target)
            said.append(str(failure.value))
            assert not re.search("layout|core", said[-1])
        finally:
            target.close()
            process.kill()
            process.communicate()
    assert len(said) == 14


def test_a_process_that_lives_is_not_said_to_have_ended(monkeypatch):
    process, target = dying(-1, True)
    try:
        rt = open_runtime(target)
        target.invalidate()
        monkeypatch.setitem(rt.layout.offsets, "tstate.interp", rt.layout["tstate.interp"] + 8)
        with pytest.raises(GdbextError, match="does not have the layout"):
            open_runtime(target)
    finally:
        target.close()
        process.kill()
        process.communicate()
