"""Hangs that what is seen proves, each beside its healthy twin, which nobody is accused of."""

import os

import pytest
from harness.answers import answer
from harness.heartbeats import asleep
from harness.subjects import PYTHONS, running

NAMES = (
    "pool of its own", "lock and worker", "child that cannot write", "each waits for the other", "inherited ends", "socket pair",
    "answers left in a queue", "loop, item", "loop, event", "loop, callback", "flag", "item there", "event set", "own pipe",
    "dead child", "nobody, event", "nobody, queue", "nobody, condition", "nobody, future",
)  # fmt: skip
OF_PYTHON = ("pool of its own", "lock and worker", "loop, item", "loop, callback", "flag", "item there", "nobody, queue")


def proved(name, how, python, asked=True):
    with running(python, "proofs.py", name, how, start_new_session=True) as (_, truth):
        asleep(truth["pid"], seconds=0.3)
        pids = [truth["pid"], *(truth["pids"] if asked else [])]
        said = answer(f"llm-hang {' '.join(map(str, pids))} -wait 0.6 -json")
    assert said["verdict"] in truth["right"], (said["verdict"], said["culprits"], said["evidence"], truth)
    if truth["culprits"] is not None:
        assert sorted(c["tid"] for c in said["culprits"]) == sorted(truth["culprits"]), (
            said["culprits"],
            said["evidence"],
            truth,
        )
    if how == "well":
        assert not said["victims"]


@pytest.mark.parametrize("how", ["hang", "well"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.drawn(5)
def test_what_proves_a_hang_and_what_is_only_slow(name, how):
    proved(name, how, PYTHONS[0])


@pytest.mark.parametrize("python", PYTHONS[1:], ids=os.path.basename)
@pytest.mark.parametrize("how", ["hang", "well"])
@pytest.mark.parametrize("name", OF_PYTHON)
@pytest.mark.drawn(6)
def test_each_python_tells_it(name, how, python):
    proved(name, how, python)


@pytest.mark.parametrize("how", ["hang", "well"])
@pytest.mark.parametrize("name", ["child that cannot write", "each waits for the other", "answers left in a queue", "dead child"])
@pytest.mark.drawn(4)
def test_children_and_holders_of_the_other_end_are_sampled_too(name, how):
    proved(name, how, PYTHONS[0], asked=False)


def asked(*words):
    with running(PYTHONS[0], "asks_again.py", *words, start_new_session=True) as (_, truth):
        said = answer(f"llm-hang {truth['pid']} -wait 0.6 -json")
    mine = [c for c in said["chains"] if c["waiter"]["tid"] == truth["pid"]]
    return said, mine[0] if mine else None


def test_who_asks_again_and_again_for_an_item_of_a_thread_that_has_ended():
    said, chain = asked("queue", "thread", "dead")
    assert said["verdict"] in ("dead-thread", "unknown"), said
    assert chain is None or chain["end"]["state"] == "ended", said


@pytest.mark.parametrize("how", ["event", "flag", "future"])
def test_who_asks_for_a_flag_that_nobody_sets_any_more_is_not_at_work(how):
    said, chain = asked(how, "thread", "dead")
    assert said["verdict"] in ("dead-thread", "unknown"), said
    if how == "event":
        assert chain["end"]["state"] == "ended" and "Thread" in chain["end"]["why"], chain


@pytest.mark.parametrize("giver", ["child", "task"])
def test_who_asks_a_child_or_task_that_has_ended_is_not_at_work(giver):
    assert asked("queue", giver, "dead")[0]["verdict"] in ("unknown", "crashed", "dead-thread")


@pytest.mark.parametrize("words", ["queue thread", "event thread", "flag thread", "spin thread", "queue child", "queue task"])
def test_nobody_is_accused_where_the_giver_lives(words):
    said, _ = asked(*words.split(), "well")
    assert said["verdict"] in ("busy", "unknown") and not said["culprits"] or said["verdict"] == "busy", said


@pytest.mark.parametrize("how", ["queue", "event"])
def test_a_signals_handler_may_give_what_no_thread_can(how):
    said, chain = asked(how, "thread", "dead", "handled")
    assert said["verdict"] == "unknown", said
    assert chain is None or chain["end"]["state"] in ("ended", "unknown"), chain  # None: it was seen between two questions alone
