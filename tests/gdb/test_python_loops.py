"""What an asyncio loop has ready and scheduled, and which callback blocks it, read from memory, is what the loop itself says."""

import os

import pytest
from harness.subjects import PYTHONS, running

from gdbext.cpython.event_loops import event_loops, held_by, state_of
from gdbext.cpython.runtime import open_runtime
from gdbext.cpython.tasks import tasks


@pytest.fixture(
    scope="module",
    params=[(p, how) for p in PYTHONS for how in ("callback", "task")],
    ids=lambda p: f"{os.path.basename(p[0])}-{p[1]}",
)
def subject(request):
    python, how = request.param
    with running(python, "py_loops.py", how) as (target, truth):
        yield open_runtime(target), truth


def test_the_loop_says_what_is_ready_what_is_scheduled_and_what_runs(subject):
    rt, truth = subject
    (loop,) = event_loops(rt, tasks(rt)[0])
    assert (loop.address, loop.ready, loop.scheduled, loop.error) == (truth["loop"], truth["ready"], truth["scheduled"], "")
    assert loop.tid == rt.threads()[0].tid and loop.type.startswith("asyncio.")
    assert [c.function.rpartition(".")[2] for c in loop.ready_callbacks] == [n.rpartition(".")[2] for n in truth["callbacks"]]
    assert len(loop.timers) == loop.scheduled and sum(t.function == "later" and t.when > 0 for t in loop.timers) == 5
    assert loop.frame.code.name == "_run"
    if truth["current"] == "task":
        assert loop.current.task == truth["blocked"] != 0
    else:
        assert loop.current.function == "block" and loop.current.task == 0
    assert not any(c.cancelled for c in loop.ready_callbacks)


def test_who_holds_an_asyncio_lock_is_the_task_inside_its_with(subject):
    rt, truth = subject
    owners = {str(address): [t.name for t in found] for address, found in held_by(tasks(rt)[0]).items()}
    for address, names in truth["holders"].items():
        assert owners[address] == names


def test_locks_events_and_queues_say_their_state(subject):
    rt, truth = subject
    for address, state in truth["states"].items():
        assert state_of(rt.object(int(address))) == state
    assert state_of(rt.object(truth["loop"])) == {}
