"""What an asyncio loop has ready and scheduled, and which callback blocks it, read from memory, is what the loop itself says."""

import os

import pytest
from harness.subjects import PYTHONS, running

from gdbext.cpython.event_loops import callbacks_taken, event_loops
from gdbext.cpython.runtime import open_runtime
from gdbext.cpython.tasks import tasks
from gdbext.errors import FaultError
from gdbext.stacks import async_waits, threads
from gdbext.stacks.holders import WITH, Holders


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
    assert (loop.address, loop.ready, len(loop.timers)) == (truth["loop"], truth["ready"], truth["scheduled"])
    assert loop.tid == rt.threads()[0].tid and loop.type.startswith("asyncio.")
    assert sum(t.function == "later" and t.when > 0 for t in loop.timers) == 5
    assert loop.current.function == ("block" if truth["current"] == "block" else loop.current.function) != ""
    assert not loop.current.cancelled and loop.current.when is None
    assert [len(one.timers) for one in event_loops(rt, max_timers=2)] == [2]


def test_the_state_of_a_loop_names_what_blocks_it_and_late_timers(subject):
    rt, truth = subject
    views = threads.read_threads(rt.target, rt, [], native=False)
    clock = max(t.when for t in event_loops(rt)[0].timers)
    (state,) = async_waits.read("P", rt, views, clock + 2).loops
    assert (state.address, state.ready, state.late) == (truth["loop"], truth["ready"], truth["scheduled"])
    assert state.overdue > 2
    assert callbacks_taken(rt) == {truth["loop"]: 2 * truth["ran"]} == {state.address: state.taken}
    assert state.callback == ("block" if truth["current"] == "block" else "")
    assert bool(state.running) == (truth["current"] == "task")
    (state,) = async_waits.read("P", rt, views).loops
    assert (state.late, state.overdue) == (0, 0.0)


def test_loops_that_turned_while_they_were_read_are_read_again(monkeypatch):
    told = []

    def torn_once(*args, **how):
        told.append("again" if told else "first")
        if len(told) == 1:
            raise FaultError(1, 512, "the handle was freed meanwhile")
        return event_loops(*args, **how)

    with running(PYTHONS[-1], "py_loops.py", "callback") as (target, truth):
        monkeypatch.setattr(async_waits, "event_loops", torn_once)
        found = async_waits.read("P", open_runtime(target), [])
        assert ([loop.address for loop in found.loops], found.partial, told) == ([truth["loop"]], [], ["first", "again"])


def test_who_holds_an_asyncio_lock_is_the_task_inside_its_with(subject):
    rt, truth = subject
    found = async_waits.read("P", rt, []).tasks
    holders = Holders([task for task in found if task.state != "running"])
    assert any(truth["holders"].values())
    for address, names in truth["holders"].items():
        assert [task.name for task, _ in holders.of(WITH, int(address))] == names
