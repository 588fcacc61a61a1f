"""What tests/gpu starts its engines with, on vLLM for CPUs: the engine answers, its processes say what is true, the fault
happens."""

import json
import os

import pytest
from harness.answers import answer
from harness.gpu_engine import SUBJECTS, engine_at_work
from harness.subjects import spawned

from gdbext.errors import GdbextError


@pytest.fixture(scope="module")
def engine(torch_python):
    environ = {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
    with engine_at_work(
        "vllm", "--backend", "CPU", "--layers", "1", "--answer", "1500", fault="table", env=environ, python=torch_python
    ) as running:
        yield running


@pytest.mark.drawn(1, group="engines of one file", unit="gpu_subject")
def test_the_engine_answers_and_its_processes_say_what_they_have(engine):
    assert engine.goes_on()
    truths = engine.truths()
    kinds = [{"scheduler", "runner"} & set(truth) for truth in truths.values()]
    assert sorted(map(sorted, kinds)) == [[], ["runner"], ["scheduler"]], truths  # on a CPU the worker is a process of its own
    pid, truth = engine.one("scheduler")
    assert len(truth["scheduler"]["running"]) == 4 and truth["scheduler"]["total"] > truth["scheduler"]["free"] > 0
    worker = engine.one("runner")[1]["runner"]
    assert len(worker["requests"]) == 4 and not worker["v2"]
    assert answer(f"llm-kv -on {pid} -still -json")["num_blocks"] == truth["scheduler"]["total"]


@pytest.mark.drawn(1, group="engines of one file", unit="gpu_subject")
def test_the_fault_happens_and_is_found(engine):
    pid, _ = engine.one("scheduler")
    engine.fall(lasting=True)
    found = {"violations": []}
    for _ in range(20):  # of a process that runs a copy may be torn, or of a moment in which a new row is not harmed yet
        try:
            found = answer(f"llm-kv check -ranks -on {pid} -json")
        except GdbextError:
            continue
        if found["violations"]:
            break
    assert {v["rule"] for v in found["violations"]} == {"worker-table"}, found


def test_two_ranks_one_of_which_leaves_out_a_collective(torch_python):
    words = [torch_python, os.path.join(SUBJECTS, "two_ranks.py"), "skip", "cpu"]
    with spawned(words, ready="{", start_new_session=True) as process:
        pids = json.loads(process.said)["pids"]
        said = answer(f"llm-hang {pids[0]} {pids[1]} -json")
    assert (said["verdict"], [c["pid"] for c in said["culprits"]]) == ("collective", [pids[1]]), said
