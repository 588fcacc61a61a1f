"""Chains of waits, as the subjects that make them say."""

import os

import pytest
from harness.answers import answer
from harness.heartbeats import asleep
from harness.subjects import PYTHONS, running


def first_chain(said, truth):
    return next(c for c in said["chains"] if c["waiter"].get("tid") == truth["links"][0] and not c["waiter"].get("task"))


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.drawn(6)
def test_a_chain_goes_from_each_to_the_next_and_describes_the_last(seed, python):
    with running(python, "wait_chains.py", str(seed), start_new_session=True) as (_, truth):
        asleep(truth["pid"], seconds=0.3)
        for _ in range(20):
            got = answer(f"llm-hang {' '.join(map(str, [truth['pid'], *truth['pids']]))} -wait 0.6 -json")
            chain = first_chain(got, truth)
            if chain["end"]["state"] != "unknown" or "wants a CPU" not in chain["end"]["why"]:
                break  # on a full machine a thread that works may get no CPU: that is said, and asked again
    passed = [link["place"]["tid"] for link in chain["through"]]
    end = chain["end"]
    assert passed in (truth["links"][1:], truth["links"][1:-1]), (truth["drawn"], chain)
    assert truth["end"] in (end["place"]["tid"], end["place"]["pid"]), (truth["drawn"], chain)
    assert end["state"] == truth["state"] or truth["state"] == "moves" and end["state"] == "runs", (truth["drawn"], end)


@pytest.mark.parametrize("how", ["loader", "select", "poll"])
@pytest.mark.parametrize("what", ["stuck", "gives"])
@pytest.mark.drawn(3)
def test_who_only_asks_its_children_waits_for_them_though_it_moves(how, what):
    with running(PYTHONS[0], "asking_parents.py", how, what, start_new_session=True) as (_, truth):
        asleep(truth["pids"][0], seconds=0.3)
        got = answer(f"llm-hang {truth['pid']} -wait 0.6 -json")
    chains = [c for c in got["chains"] if c["waiter"].get("tid") == truth["pid"] and c["waits_for"].startswith("pipe")]
    assert got["culprits"] == [] and len(chains) == (what == "stuck"), (how, what, got["verdict"], got["chains"])
    if chains:
        ends = {one["place"]["pid"]: one["state"] for one in chains[0]["end"]["any_of"]}
        some = truth["pids"] if how != "poll" else [pid for pid in truth["pids"] if pid in ends] or truth["pids"]
        assert ends == dict.fromkeys(some, "sleeps"), (truth, chains)
