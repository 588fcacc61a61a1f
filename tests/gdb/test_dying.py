"""A process that ends while it is read is said to have ended, not to have a Python of another layout."""

import sys

import pytest
from harness.subjects import running

from gdbext.access.proc import ProcTarget
from gdbext.cpython.runtime import Runtime, open_runtime
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
        with snapshots.take_snapshots([target.pid], Targets()) as (taken,):
            target.process.kill()
            target.process.wait()
            assert threads.view_of(taken).rt is not None  # it was copied whole before
            taken.target.invalidate()
            taken.target._read = lambda at, size: bytes(size)
            with pytest.raises(NotFoundError, match="has ended while it was copied"):
                threads.view_of(taken)
