"""Processes at the ends of chains are read until nothing new is found, whoever was named."""

import pytest
from harness.answers import answer
from harness.subjects import PYTHONS, running


@pytest.mark.parametrize("deep", [3])
def test_a_chain_of_processes_is_followed_to_its_end(deep):
    with running(PYTHONS[0], "deep_pipes.py", str(deep), start_new_session=True) as (_, truth):
        pids = truth["pids"]
        said = answer(f"llm-hang {pids[0]} -wait 0.5 -json")
    (root,) = said["tree"]
    found = []
    while root["children"]:
        (root,) = root["children"]
        found.append(root["place"]["pid"])
    assert found == pids[::-1] and said["ranks_read"] == deep + 1, said["tree"]
    assert said["verdict"] == "starved", said["evidence"]
