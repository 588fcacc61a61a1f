"""The graph of waits, on facts drawn at random: a verdict and the chains that are printed beside it never disagree."""

from collections import Counter

import pytest
from harness.drawn_facts import facts_of

from gdbext.verdict import judge, states
from gdbext.verdict.graph import step
from gdbext.verdict.rules import locks
from gdbext.verdict.states import RING
from gdbext.verdict.walk import chain_of, outlook

ACCUSED = {"spins": states.SPINS, "sleeps": states.SLEEPS, "blocked": states.BLOCKED}
WAITS = ("lock-held", "starved", "livelock", "uninterruptible")


def nodes_of(facts):
    return [t.node for f in facts for t in f.threads] + [t.node for f in facts for t in f.tasks]


def ends_of(end):
    return [end, *(each for one in end.any_of for each in ends_of(one))]


@pytest.mark.parametrize("seed", range(3))
def test_whom_an_outlook_accuses_is_at_the_chains_end(seed):
    found = Counter()
    for number in range(1000 * seed, 1000 * seed + 400):
        facts = facts_of(number)
        for node in nodes_of(facts):
            said, ends = outlook(facts, node), ends_of(chain_of(facts, node).end)
            state = ACCUSED.get(said.kind)
            if state is None:
                continue
            found[said.kind] += 1
            agree = any((one.node, one.state) == (said.culprit, state) for one in ends)
            proven = any(one.state == RING for one in ends) or any(one.kind == "sleeps" for one in ends)  # alone with both ends
            assert agree or proven, (number, node, said, ends[0])
    assert all(found[kind] > 10 for kind in ACCUSED), found


def test_a_ring_of_locks_is_the_ring_of_each_chain():
    rings = 0
    for number in range(2000):
        facts = facts_of(number)
        said = locks.cycle(facts)
        for node in said.culprits if said is not None else ():
            rings += 1
            assert chain_of(facts, node).end.state == RING, (number, node)
    assert rings > 100


def test_whom_a_verdict_names_a_chain_ends_at():
    """Of one that waits itself the chain goes on, and who has an object that is there is asked for no other."""
    found = Counter()
    for number in range(1500):
        facts = facts_of(number)
        said = judge.judge_group(facts)
        if said.kind not in WAITS:
            continue
        for culprit in said.culprits:
            if facts.thread(culprit) is not None or facts.task(culprit) is not None:
                found[said.kind] += 1
                ends = [one for node in nodes_of(facts) for one in ends_of(chain_of(facts, node).end)]
                assert any(one.node == culprit for one in ends) or step(facts, culprit).waits_for, (number, said)
    assert all(found[kind] > 2 for kind in WAITS), found
