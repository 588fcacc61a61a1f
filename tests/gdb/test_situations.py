"""Situations drawn by a fixed seed: llm-hang may say "unknown", but never that a hung one is at work or at rest, and
never accuse the wrong one. `scripts/tools/situations.py SEED COUNT` draws others; docs/verdicts.md has the matrix."""

import os

import pytest
from harness import situations
from harness.answers import answer
from harness.heartbeats import asleep
from harness.samples import some
from harness.subjects import GREEN, PYTHONS, running

SEED, COUNT = 4242, 16
LONG = bool(os.environ.get("GDBEXT_TEST_LONG"))
FIELD = [
    *("lock by a generator, sleeping", "process pool, behind a lock", "asked of a loop, sleeping", "thread pool, sleeping"),
    *(
        "server in the process, behind a lock",
        "lock by a stack, receiving",
        "future of a loop, sleeping",
        "pool beside, sleeping",
    ),
]
OTHERS = [
    *("pipe of two children, sleeping", "terminal, sleeping", "datagrams, stopped", "end of a child, sleeping"),
    *("named FIFO, receiving", "database in the process, sleeping", "file lock in the process, sleeping"),
]
GATES = [
    *("a lock over a program, working", "an import over its output, working", "a file lock over a system, coming and going"),
    *("turns over a pipe, napping", "a task's lock over a program, working", "an rlock over a service, working"),
]
GATES_HUNG = [
    *("a lock over a program, stopped", "an import over its output, asleep", "a file lock over a system, at a dead pipe"),
    *("turns over a pipe, stopped", "a task's lock over a program, locked", "an rlock over a service, asleep"),
]
PROGRAMS = [
    *("workers of a queue, at work", "workers of a queue, at rest", "workers of a queue, dead", "parked main, at work"),
    *("a server that waits to be stopped, at work", "a server that waits to be stopped, at rest"),
    *("a server that waits to be stopped, future", "callbacks of a loop, at rest", "a loop and a program, at work"),
    *("ranks that read commands, at rest", "ranks that read commands, at work", "ranks that read commands, stopped"),
    *("servers that were forked, at rest", "consumers of a queue of processes, at rest", "end of a program, at work"),
    *("output of a program, at work", "output of a program, stopped", "a threading server, behind a lock"),
    *("taken by turns, at work", "taken by turns, behind a lock", "a pool of processes, at rest", "ranks of gloo, at rest"),
    *("rounds by the clock, at work", "rounds by the clock, at rest", "rounds by the clock, future"),
    *("an event of a handler, at rest", "an event of a handler, behind a lock"),
]
HELD = [
    *("O_EXCL in handler, dead", "mkdir in function, sleeping", "flock without a wait, behind a lock", "full backlog, sleeping"),
    *("link in function, elsewhere", "lock in a generator, sleeping", "lock after an exception, exception"),
    *("lock of a task that is not run, closed", "lock in a generator by hand, itself", "O_EXCL in a task, sleeping"),
]
HELD_WELL = ["O_EXCL in function, slow", "flock without a wait, slow", "lock in a generator, slow", "O_EXCL in a task, slow"]
WELL = ["lock by a generator, slow", "process pool, slow", "thread pool, slow", "datagrams, late", "signal, resting"]


def turns(python, kinds):
    """All of them in a long run, and on the first Python; else two, others on each."""
    first = 2 * PYTHONS.index(python)
    return kinds if LONG or not first else [kinds[(first + n) % len(kinds)] for n in range(2)]


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.rpartition("/")[2])
def test_the_chain_of_a_wait_of_the_second_family_ends_where_it_truly_does(python):
    found = list(situations.run(turns(python, FIELD) + (OTHERS if python == PYTHONS[0] else []), python=python))
    print("\n".join(situations.matrix(found)))
    assert not [o for o in found if o.how not in ("right", "unknown") or o.end != "named"]


def test_nobody_is_accused_where_such_a_wait_ends():
    drawn = [f"f{SEED + n}" for n in range(60)] if LONG else []
    found = list(situations.run(WELL + drawn))
    print("\n".join(situations.matrix(found)))
    assert not [o for o in found if o.how in ("WRONG", "left out")]
    assert not LONG or sum(o.end == "named" for o in found) >= 0.9 * sum(o.hung for o in found)


def test_programs_that_are_well_are_told_to_be_busy_or_idle():
    """The fifth family: four of five at least."""
    drawn = [f"p{SEED + n}" for n in range(60)] if LONG else []
    found = list(situations.run(some(PROGRAMS, 7, "programs") + drawn))
    print("\n".join(situations.matrix(found)))
    assert not [o for o in found if o.how == "WRONG"]
    well = [o for o in found if not o.hung and o.how != "left out"]
    assert sum(o.verdict in ("busy", "idle") for o in well) >= 0.8 * len(well) - 1, well


def test_nobody_is_accused_wrongly_and_nothing_hung_is_called_well():
    found = list(situations.run(some(range(SEED, SEED + COUNT), COUNT // 2, "seeds")))
    print("\n".join(situations.matrix(found)))
    assert not [o for o in found if o.how == "WRONG"]
    assert sum(o.how == "right" for o in found) >= len(found) // 2, found


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.rpartition("/")[2])
def test_a_worker_is_a_livelock_only_where_nothing_of_it_changes(python):
    """Whatever of its calls and values that Python shows."""
    states = ["calling", "asking calls"]
    if python == PYTHONS[0] or LONG:  # each spins for seconds
        states += some(["counting", "writing", "asking"], 1, "workers")
    found = list(situations.run([f"worker, {state}" for state in states], python=python))
    print("\n".join(situations.matrix(found)))
    assert not [o for o in found if o.how not in ("right", "unknown")]
    assert [o for o in found if o.verdict == "livelock"], found  # one alone may have moved on at the last look


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.rpartition("/")[2])
def test_a_sleep_between_two_items_is_not_accused_an_endless_one_is(python):
    """By whatever it sleeps (subjects/situation_sleepers.py); a holder keeps others from its lock meanwhile."""
    of, states = ("a queue", "a pipe", "a task"), ("asking", "for good")
    if python == PYTHONS[0]:
        of += ("room", "an event", "a condition", "a job", "a child", "a service", "a lock")
        states += ("feeding", "late")
    every = [f"sleeper of {it}, {state}" for it in of for state in states]
    found = list(situations.run(some(every, 20, "sleepers"), python=python))
    print("\n".join(situations.matrix(found)))
    assert not [o for o in found if o.how != "right" and "idle" not in o.right]
    assert not [o for o in found if o.how == "WRONG"]


@pytest.mark.parametrize("well", [True, False], ids=["at work", "hung"])
def test_who_waits_under_a_lock_for_one_at_work_is_not_accused(well):
    """Its hung twin is: whoever keeps the lock, or what is stopped."""
    words = GATES if well else GATES_HUNG
    drawn = [f"g{SEED + n}" for n in range(40)] if LONG and well else []
    found = list(situations.run(some(words, 3, "gates") + drawn))
    print("\n".join(situations.matrix(found)))
    assert not [o for o in found if o.how not in ("right", "unknown")]
    assert well or sum(o.how == "right" for o in found) >= len(found) - 1, found


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.rpartition("/")[2])
def test_what_no_frame_has_and_what_is_tried_again_is_told(python):
    """Lock files, a lock that a generator keeps: with its end; nobody is accused of those that are taken in turn."""
    drawn = [f"h{SEED + n}" for n in range(40)] if LONG else []
    found = list(situations.run(turns(python, HELD) + turns(python, HELD_WELL)[:2] + drawn, python=python))
    print("\n".join(situations.matrix(found)))
    assert not [o for o in found if o.how not in ("right", "unknown") or o.hung and o.end != "named" and not LONG]


@pytest.mark.skipif(not GREEN, reason="no interpreter that has trio")
def test_tasks_of_trio_are_told_and_listed():
    words = [f"trio {it}, {does}" for it in ("lock", "limiter", "channel", "event") for does in ("sleeping", "behind a task")]
    found = list(situations.run([*some(words, 3, "trio"), "trio semaphore, slow"], python=GREEN[0]))
    print("\n".join(situations.matrix(found)))
    assert not [o for o in found if o.how not in ("right", "unknown") or o.hung and o.end != "named"]
    with running(GREEN[0], "situations.py", "trio channel, sleeping") as (target, _):
        asleep(target.pid)
        tasks = {task["name"]: task for task in answer(f"pytasks -on {target.pid} -json")["tasks"]}
    assert {"ender", "waiter"} <= set(tasks) and tasks["ender"]["waits"]["kind"] == "sleep"
    assert "waiter" in [frame["function"].rpartition(".")[2] for frame in tasks["waiter"]["frames"]]


@pytest.mark.skipif("GDBEXT_TEST_TORCH_PYTHON" not in os.environ, reason="no interpreter that has anyio and httpx")
def test_who_has_the_permits_of_a_limiter_is_told():
    words = [
        f"{it}, {does}" for it in ("anyio limiter", "httpx pool", "aiohttp connector") for does in ("sleeping", "behind a task")
    ]
    found = list(situations.run([*some(words, 2, "permits"), "anyio lock, slow"], python=os.environ["GDBEXT_TEST_TORCH_PYTHON"]))
    print("\n".join(situations.matrix(found)))
    assert not [o for o in found if o.how not in ("right", "unknown") or o.hung and not o.end]


def test_a_file_shows_one_moment_and_accuses_nothing_that_takes_time():
    """What holds a lock, or keeps a job, may give it the moment after; the chain names it all the same."""
    words = ["rlock, slow", "rlock, sleeping", "lock, slow", "lock, spinning", "queue, slow", "queue, sleeping"]
    found = list(situations.run(words, kept=True))
    print("\n".join(situations.matrix(found)))
    assert len([o for o in found if o.hung]) == 3 and not [o for o in found if o.how in ("left out", "WRONG")], found
    assert all(o.end == "named" for o in found if o.hung), found
