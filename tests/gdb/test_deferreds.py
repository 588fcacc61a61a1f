"""What Twisted's coroutines and generators wait for (a fake of it; the real one was tried by hand)."""

import os
import sys

import pytest
from harness.answers import answer
from harness.heartbeats import asleep
from harness.subjects import SUBJECTS, spawned


@pytest.fixture(params=["crossed", "rest"])
def reactor(request):
    with spawned([sys.executable, os.path.join(SUBJECTS, "fake_twisted.py"), request.param], ready="READY") as child:
        assert asleep(child.pid)
        yield request.param, child.pid


def test_tasks_that_wait_for_a_deferred_are_listed_with_what_they_wait_for(reactor):
    kind, pid = reactor
    tasks = answer(f"pytasks -on {pid} -json")["tasks"]
    waits = {(edge["waiter"].get("task", "").split(" ")[0], edge["lock"]) for edge in answer(f"llm-locks {pid} -json")["edges"]}
    if kind == "rest":
        assert not tasks and not waits
    else:
        assert sorted(one["name"] for one in tasks) == ["crosses", "crosses", "takes"], tasks
        assert {lock for task, lock in waits if task == "crosses"} == {"the DeferredLock wanted"}, waits
        assert {lock for task, lock in waits if task == "takes"} == {"an item of the DeferredQueue queue (0 items)"}, waits
        said = answer(f"llm-hang {pid} -wait 0.5 -json")
        assert said["verdict"] not in ("idle", "busy"), said
