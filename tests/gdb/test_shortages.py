"""Resources that have run out are in llm-hang's evidence (subjects/shortages.py), and accuse nobody."""

import sys

import pytest
from harness.answers import answer
from harness.situations import ACCUSES
from harness.subjects import running

WORDS = {"descriptors": "40 of 40 descriptors", "accept": "3 connections to", "shm": "of its /dev/shm are free"}


@pytest.mark.parametrize("how", ["hang", "well"])
@pytest.mark.parametrize("what", WORDS)
def test_what_has_run_out_is_evidence(what, how):
    with running(sys.executable, "shortages.py", what, how, start_new_session=True) as (_, truth):
        if not truth["made"]:
            pytest.skip("this user may make no mount of its own")
        said = answer(f"llm-hang {truth['pid']} -wait 0.6 -json")
    assert any(WORDS[what] in line for line in said["evidence"]) is (how == "hang"), said["evidence"]
    assert said["verdict"] not in ACCUSES, said
