"""What Twisted's coroutines and generators wait for (a fake of it; the real one was tried by hand)."""

import os
import sys
from types import SimpleNamespace

import pytest
from harness.answers import answer
from harness.heartbeats import asleep
from harness.subjects import SUBJECTS, spawned

from gdbext.access.proc import ProcTarget
from gdbext.cpython.runtime import open_runtime
from gdbext.stacks import async_waits


@pytest.fixture(params=["crossed", "rest", "odd 1", "odd 2"])
def reactor(request):
    words = [sys.executable, os.path.join(SUBJECTS, "fake_twisted.py"), *request.param.split()]
    with spawned(words, ready="READY") as child:
        assert asleep(child.pid)
        yield request.param, child.pid


SELECTOR = """
import time
class Loop: pass
loop = Loop()
loop._signal_handlers, loop._selector = {}, Loop()
loop._selector._fd_to_key = {3: KEY}
print(id(loop), flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("key", ["(1, 2)", "(1, 2, 3, ())", "(1, 2, 3, (None,))", "()", "None", "(1, 2, 3, [None, 4])"])
def test_a_selectors_key_of_another_form_is_passed_over(key):
    with spawned([sys.executable, "-c", SELECTOR.replace("KEY", key)], ready="") as child:
        loop = SimpleNamespace(address=int(child.said))
        assert async_waits._told_by(open_runtime(ProcTarget(child.pid)), loop) == ({}, {})


def test_tasks_that_wait_for_a_deferred_are_listed_with_what_they_wait_for(reactor):
    kind, pid = reactor
    tasks = answer(f"pytasks -on {pid} -json")["tasks"]
    edges = answer(f"llm-locks {pid} -json")["edges"]
    waits = {(edge["waiter"].get("task", "").split(" ")[0], edge["lock"].partition(" (0x")[0]) for edge in edges}
    if kind == "rest":
        assert not tasks and not waits
    else:
        assert sorted(one["name"] for one in tasks) == ["crosses", "crosses", "takes"], tasks
        assert {lock for task, lock in waits if task == "crosses"} == {"the DeferredLock wanted"}, waits
        assert {lock for task, lock in waits if task == "takes"} == {"an item of the DeferredQueue queue (0 items)"}, waits
        said = answer(f"llm-hang {pid} -wait 0.5 -json")
        assert said["verdict"] not in ("idle", "busy"), said
