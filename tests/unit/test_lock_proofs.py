"""A thread that has ended could have ended a wait; that no other can is said where all that others lead to was read."""

from types import SimpleNamespace as Made

import pytest

from gdbext.errors import FaultError, LayoutError
from gdbext.stacks import locks
from gdbext.stacks.references import Reach, References


class Odd:
    """A variable whose memory is damaged, or is not in the copy."""

    def __init__(self, error):
        self.address, self.error = 16, error

    @property
    def type(self):
        raise self.error


def frame(function, file="/app/work.py", cut=False):
    return Made(function=function, file=file, is_cut=cut)


def library(*names):
    return [frame(f"Thread.{name}", "/usr/lib/python3.11/threading.py") for name in names]


@pytest.mark.parametrize("error, lacks", [(FaultError(16, 8), True), (LayoutError("no type"), False)])
def test_memory_that_is_not_there_is_remembered(error, lacks):
    references = References(None)
    assert references._is_leaf(Odd(error)) and references.lacks is lacks


@pytest.mark.parametrize(
    "python, error, hides",
    [
        ([frame("work"), *library("run", "_bootstrap_inner", "_bootstrap")], "", False),
        (library("wait", "run", "_bootstrap_inner", "_bootstrap"), "", False),
        (library("run", "_bootstrap_inner", "_bootstrap"), "", False),
        ([frame("main")], "", False),
        ([], "", False),
        ([], "its frames changed", True),
        ([frame("deep", cut=True)], "", True),
        (library("set", "_bootstrap_inner", "_bootstrap"), "", True),
        (library("_bootstrap"), "", True),
    ],
)
def test_a_thread_that_has_not_begun_its_work_may_do_anything(python, error, hides):
    thread = Made(python=python, error=error)
    assert locks._hides_its_work(thread) is hides
    finder = locks.Finder.__new__(locks.Finder)
    finder.references, finder._ended = Made(lacks=False, reaches=lambda one: [Reach([("giver", Made(address=9))])]), {}
    finder._is_ended_thread, finder.view = (lambda obj: True), Made(threads=[thread])
    named = locks.text
    locks.text = lambda obj, name: "giver"
    try:
        assert finder._ended_threads(Made(python=[frame("main")])) == ([] if hides else ["giver"])
        finder.references.lacks = True
        assert finder._ended_threads(Made(python=[frame("main")])) == []
    finally:
        locks.text = named
