"""Programs at their end: who keeps them from ending."""

import os

import pytest
from harness.answers import answer
from harness.heartbeats import asleep
from harness.subjects import PYTHONS, running


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
@pytest.mark.parametrize("how", ["hang", "well"])
@pytest.mark.parametrize("name", ["one thread", "one of several", "pool", "exit handler"])
@pytest.mark.drawn(4)
def test_who_keeps_a_program_from_ending(name, how, python):
    with running(python, "program_ends.py", name, how, start_new_session=True) as (_, truth):
        asleep(truth["pid"], seconds=2)
        said = answer(f"llm-hang {truth['pid']} -wait 0.6 -json")
    chain = next(c for c in said["chains"] if c["waiter"].get("tid") == truth["pid"])
    assert (chain["end"]["place"]["tid"], chain["end"]["state"]) == (truth["end"], truth["state"]), chain
    assert said["verdict"] in truth["right"], (said["verdict"], said["culprits"], said["evidence"])
    if how == "hang":
        assert [c["tid"] for c in said["culprits"]] == [truth["end"]], said["culprits"]
