"""Threads of further interpreters in the same process are found, with their frames, locals and modules."""

import os

import pytest
from harness.subjects import PYTHONS, running

from gdbext.cpython.runtime import open_runtime


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_threads_of_subinterpreters_are_listed(python):
    with running(python, "py_subinterpreters.py") as (target, truth):
        rt = open_runtime(target)
        assert len(rt.interpreters()) == 3
        labels = {}
        for thread in rt.threads():
            for frame in rt.frames(thread):
                if frame.function == "parked":
                    assert frame.line == 5
                    labels[dict(frame.locals())["label"].string()] = thread.interp
        assert set(labels) == {"in 0", "in 1"}
        assert len(set(labels.values()) | {rt.threads()[0].interp}) == 3
        assert rt.threads()[0].tid == target.pid
