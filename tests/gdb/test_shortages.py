"""Resources that have run out are in llm-hang's evidence (subjects/shortages.py), and accuse nobody."""

import os
import sys

import pytest
from harness import cgroups
from harness.answers import answer
from harness.situations import ACCUSES
from harness.subjects import running, spawned

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


@pytest.mark.parametrize("quota", [1000, 100_000])
def test_a_quota_of_cpu_time_that_is_used_up_is_evidence(quota):
    with cgroups.made(cgroups.hierarchy("cpu")) as folder:
        if "cpu.max" in os.listdir(folder):
            cgroups.write(folder + "/cpu.max", f"{quota} 10000")
        else:
            cgroups.write(folder + "/cpu.cfs_period_us", 10_000)
            cgroups.write(folder + "/cpu.cfs_quota_us", quota)
        spin = [sys.executable, "-c", "print('ready', flush=True)\nwhile True: pass"]
        with spawned(spin, "ready", preexec_fn=cgroups.joining(folder)) as process:
            said = answer(f"llm-hang {process.pid} -wait 1 -json")
    found = [line for line in said["evidence"] if "throttled in" in line]
    assert bool(found) is (quota == 1000), said["evidence"]
    assert not found or "may use 10 % of a CPU" in found[0], found
    assert said["verdict"] in ("busy", "unknown"), said
