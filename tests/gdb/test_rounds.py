"""Which loops have no way out: what a program says of its own threads and tasks, which it names so."""

import os

import pytest
from harness.heartbeats import within
from harness.subjects import PYTHONS, running

from gdbext.access.proc import ProcTarget
from gdbext.cpython import rounds, tasks
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import GdbextError


def said(pid):
    """{name: whether its loop has no way out} of threads (by their own function) and tasks"""
    rt, found = open_runtime(ProcTarget(pid)), {}
    for thread in rt.threads():
        frames = rt.frames(thread)
        own = [frame.function for frame in frames if frame.file.endswith("rounds.py")]
        found[own[-1] if own else ""] = rounds.goes_round(frames)
    return {**found, **{one.name: rounds.goes_round(one.frames) for one in tasks.tasks(rt)[0]}}


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_a_loop_goes_round_for_ever_where_it_has_no_way_out(python):
    with running(python, "rounds.py") as (target, truth):
        wrong = {}

        def all_are_right():  # a stack may change while it is read
            try:
                found = said(target.pid)
            except GdbextError:
                return False
            wrong.clear()
            wrong.update({name: found.get(name) for name, goes in truth["goes"].items() if found.get(name) is not goes})
            return not wrong

        assert within(all_are_right, 60), wrong
