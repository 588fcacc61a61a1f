"""A process that ends while it is read is said to have ended, not to have a Python of another layout."""

import sys

import pytest
from harness.subjects import running

from gdbext.access.proc import ProcTarget
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import GdbextError, NotFoundError
from gdbext.stacks import snapshots, threads


class Ending(ProcTarget):
    """A process that ends as soon as the interpreter's first structures were read: what follows reads as zeros, as a memory that is being given back."""

    process, reads_left = None, 40

    def _read(self, at, size):
        raw = super()._read(at, size) if self.reads_left > 0 else bytes(size)
        self.reads_left -= 1
        if self.reads_left == 0:
            self.process.kill()
            self.process.wait()
        return raw


def test_a_process_that_ends_while_it_is_opened():
    """Wherever in the opening it ends: never a word about layouts."""
    said = set()
    for reads in range(1, 60, 3):
        with running(sys.executable, "gil_states.py") as (target, _):
            ending = Ending(target.pid)
            ending.process, ending.reads_left = target.process, reads
            try:
                open_runtime(ending)
            except GdbextError as e:
                said.add(str(e))
            ending.close()
    assert said
    assert not [text for text in said if "layout" in text], said


def test_a_process_that_ends_while_it_is_copied():
    with running(sys.executable, "gil_states.py") as (target, _):
        with snapshots.take_snapshots([target.pid]) as (taken,):
            target.process.kill()
            target.process.wait()
            assert threads.view_of(taken).rt is not None  # it was copied whole before
            taken.target.invalidate()
            taken.target._read = lambda at, size: bytes(size)
            with pytest.raises(NotFoundError, match="has ended while it was copied"):
                threads.view_of(taken)
