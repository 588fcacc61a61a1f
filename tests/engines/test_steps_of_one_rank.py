"""One rank stepped through its collectives while both are attached. The other rank has to run meanwhile, or both wait for ever.

A few times; with GDBEXT_TEST_LONG fifty.
"""

import os
import time

import pytest
from harness.engines import pid_of
from harness.gdb_run import run_gdb

TIMES = 50 if os.environ.get("GDBEXT_TEST_LONG") else 3
RANKS = {
    "vllm": ("VLLM::Worker_TP0", "VLLM::Worker_TP1"),
    "sglang": ("sglang::scheduler_TP0", "sglang::scheduler_TP1"),
}
COLLECTIVE = "tensor_model_parallel_all_reduce"


@pytest.mark.drawn(1)
@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_one_of_two_attached_ranks_is_stepped_through_collectives(running, name, gdb_path):
    """`pyfinish` leaves the function that the whole collective is in, `pynext` goes over the line of it."""
    engine = running.get(name)
    first, second = (pid_of(engine, title) for title in RANKS[name])
    step = ["llm-continue", "pynext -json", "pyfinish -json"]
    before = [f"llm-attach -libraries none {first} {second}", f"pybreak -on {second} {COLLECTIVE}"]
    began = time.monotonic()
    said = run_gdb(gdb_path, [*before, *step * TIMES, "delete", "llm-detach"], timeout=300 + 30 * TIMES)
    for number in range(len(before), len(before) + 3 * TIMES, 3):
        assert f"{COLLECTIVE} at" in said.outputs[number], said.outputs[number]
        assert said.json(number + 1)["tid"] == said.json(number + 2)["tid"] == second
        assert said.json(number + 2)["frame"]["function"] != COLLECTIVE
    print(f"\n{name}: {TIMES} times in {time.monotonic() - began:.1f} s")
    done = engine.answered()[1]
    end = time.monotonic() + 300
    while engine.answered()[1] <= done + 4:
        assert time.monotonic() < end, "no answers after the steps"
        time.sleep(0.1)
