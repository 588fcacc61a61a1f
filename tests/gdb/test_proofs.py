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
