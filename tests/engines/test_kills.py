"""A real vLLM at work whose looks are killed at random moments, and ended with their whole control group, gdb and guard too:
after each it answers requests that were asked afterwards, nobody traces it, and nothing is left. A sample; with
GDBEXT_TEST_LONG 30 kills and 6 ends of a group."""

import os

import pytest
from harness import kills
from harness.engines import processes

LONG = bool(os.environ.get("GDBEXT_TEST_LONG"))
STEP = "EngineCoreProc._process_engine_step"
SLOWER = 4.0  # than small programs: a process of vLLM has some 600 MB and 150 libraries


@pytest.fixture
def ranks(vllm, truth, tmp_path):
    """Its processes: the scheduler's, the frontend's, the workers'."""
    found = processes(vllm)
    pids = [found.pop("EngineCore"), found.pop("frontend"), *found.values()]
    assert len(pids) == 4, found
    return [kills.Rank(vllm, pid, truth, str(tmp_path), asked=pid == pids[0]) for pid in pids]


def test_random_kills_leave_a_real_engine_answering(ranks, gdb_path, tmp_path):
    count = 30 if LONG else 3
    rounds = kills.Rounds(gdb_path, str(tmp_path), 2611, subjects=ranks, step=STEP, slower=SLOWER)
    try:
        for number in range(count):
            rounds.run(number)
    finally:
        rounds.end()
        print(f"{sum(rounds.counts.values())} kills, {len(rounds.wrong)} wrong", *sorted(rounds.counts.items()), sep="\n  ")
    assert not rounds.wrong and sum(rounds.counts.values()) == count, rounds.wrong


@pytest.mark.parametrize("name", sorted(kills.GROUP) if LONG else ["llm-continue-all"])
def test_the_end_of_a_whole_control_group_leaves_a_real_engine_answering(ranks, gdb_path, tmp_path, name):
    said = [
        kills.end_of_a_group(gdb_path, str(tmp_path), seed, name, ranks[:2], SLOWER)
        for seed in range(2611, 2613 if LONG and name == "llm-continue" else 2612)
    ]
    print(f"{name}: {len(said)} ends of a group, {sum(map(bool, said))} wrong")
    assert not any(said), said
