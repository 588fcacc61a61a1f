"""What a loop asks for, over and over: files, locks, queues, children, futures. A loop that does more asks for nothing."""

import os

import pytest
from harness.heartbeats import within
from harness.subjects import PYTHONS, running

from gdbext.access.proc import ProcTarget
from gdbext.cpython import poll_loops, tasks
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import GdbextError


def stacks(rt):
    """{name of a function: the frames of the thread or task that runs it, innermost first}"""
    found = [rt.frames(thread) for thread in rt.threads()] + [one.frames for one in tasks.tasks(rt)[0]]
    return {frame.function: frames for frames in found for frame in frames}


def found(pid, asks):
    """The names of the functions whose loops are read as `asks` says; none at a moment at which a stack changes."""
    right = set()
    try:
        rt = open_runtime(ProcTarget(pid))
        known = stacks(rt)
        for name, (kind, about) in asks.items():
            poll = poll_loops.of_frames(known[name])
            asked = [(ask.kind, ask.number or ask.object.address) for ask in poll.asks] if poll else []
            assert not asked or kind != "nothing", (name, asked)
            if kind == "nothing" or (kind, about) in asked:
                right.add(name)
    except (GdbextError, KeyError):
        return set()
    return right


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_a_loop_that_only_asks_says_for_what(python):
    with running(python, "asking_threads.py", start_new_session=True) as (_, truth):
        right = set()

        def all_are_right():  # a thread may be between two questions
            right.update(found(truth["pid"], truth["asks"]))
            return right == set(truth["asks"])

        assert within(all_are_right, 60), set(truth["asks"]) - right
