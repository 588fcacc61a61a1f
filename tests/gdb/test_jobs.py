"""Gloo jobs over two machines drawn by a fixed seed: llm-hang may say "unknown", but never accuses who is well, and calls nothing
well that hangs. `scripts/tools/jobs.py SEED COUNT` draws others."""

import contextlib
import os
import shutil
import subprocess

import pytest
from harness import jobs

SEED, COUNT = 4200, 34 if os.environ.get("GDBEXT_TEST_LONG") else 3


@pytest.fixture(scope="module")
def machines():
    lacking = [name for name in ("ip", "nsenter", "unshare") if not shutil.which(name)]
    if os.geteuid() or lacking:
        pytest.skip(f"needs {', '.join(lacking) or 'root'}")
    words = [*jobs.NAMESPACES, "ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1"]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("this machine lets nobody make machines with a cable between them")


@pytest.fixture(scope="module")
def pair(machines, torch_python, tmp_path_factory):
    with contextlib.closing(jobs.Machines(tmp_path_factory.mktemp("machines"), torch_python)) as both:
        yield both


def test_each_job_over_two_machines_is_what_it_is(machines, torch_python):
    found = list(jobs.run(range(SEED, SEED + COUNT), torch_python))
    print("\n".join(jobs.matrix(found)))
    every = [(situation.words(), *one) for situation, each in found for one in each]
    assert not [one for one in every if one[3] == "WRONG"]
    assert sum(one[3] == "right" for one in every) >= 0.85 * len(every) - 1, every  # of few, one may be unknown on a busy machine


@pytest.mark.parametrize("kind, at, odd", [("stage", [0, 0, 1, 1], 2), ("head", [0, 1], 0)])
def test_a_blocked_stage_is_named_and_a_pipeline_without_clients_rests(pair, kind, at, odd):
    job = jobs.Job(kind, at, odd, "all_reduce", f"{jobs.ADDRESSES[0]}:29500", True)
    situation = jobs.Situation("nodes", ["n0", "n1"], [job])
    with pair.lived(situation):
        ((_, verdicts, how, evidence),) = jobs.judged(situation, *pair.ask(situation))
    assert how == "right", (verdicts, evidence)
