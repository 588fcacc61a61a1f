"""Threads and tasks that ask over and over for what another one is to give: to move is no progress; a chain says who owes it."""

import os

import pytest
from harness.answers import answer
from harness.subjects import PYTHONS, running

LONG = bool(os.environ.get("GDBEXT_TEST_LONG"))
# (what is asked, what its giver does, seconds between two questions)
HUNG = [
    ("attribute", "sleeps", "0.01"),
    ("child_alive", "blocked", "none"),
    ("task_done", "blocked", "0.1"),
    ("global_flag", "raises", "none"),
]
WELL = [("async_flag", "gives", "none"), ("shared_value", "works", "0.01"), ("poll", "slow", "0")]


def look(python, case):
    with running(python, "pollers.py", *case, start_new_session=True) as (_, truth):
        return truth, answer(f"llm-hang {truth['pid']} -wait 0.8 -json")


def some(python, cases):
    """All of them in a long run; else two, others on each Python."""
    first = 2 * PYTHONS.index(python) % len(cases)
    return cases if LONG else (cases + cases)[first : first + 2]


def ends(said):
    found = [chain["end"] for chain in said["chains"]]
    return [*found, *(one for end in found for one in end.get("any_of", ()))]


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_who_asks_in_vain_is_not_at_work_and_the_chain_names_the_giver(python):
    for case in some(python, HUNG):
        truth, said = look(python, case)
        assert said["verdict"] not in ("busy", "idle"), (case, said["evidence"])
        if case[1] == "raises":
            assert any(end["state"] == "ended" for end in ends(said)), (case, said["chains"])
            assert said["verdict"] in ("unknown", "dead-thread"), (case, said["culprits"])
            continue
        places = [link["place"] for chain in said["chains"] for link in chain["through"]]
        places += [end["place"] for end in ends(said) if end["place"]]
        named = {place.get(key) for place in places for key in ("tid", "pid", "task")}
        assert truth.get("giver", "giver") in named, (case, said["chains"])


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_who_waits_for_one_that_works_accuses_nobody(python):
    for case in some(python, WELL):
        _, said = look(python, case)
        assert said["verdict"] in ("busy", "unknown"), (case, said["verdict"], said["evidence"])
        assert not said["culprits"] or said["verdict"] == "busy", (case, said["culprits"])


@pytest.mark.parametrize("kind", ["attribute", "poll", "async_flag"])
@pytest.mark.parametrize("state", ["raises", "gives"])
def test_who_asks_a_thread_child_or_task_is_at_work_while_it_gives(kind, state):
    _, said = look(PYTHONS[0], (kind, state, "0.02"))
    if state == "gives":
        assert said["verdict"] in ("busy", "unknown") and (not said["culprits"] or said["verdict"] == "busy"), said
    else:
        assert said["verdict"] in ("unknown", "dead-thread", "crashed")[: 2 + (kind == "poll")], said
