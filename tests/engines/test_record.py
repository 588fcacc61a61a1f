"""llm-record of a real engine at work: a rank that stands still for a while makes one step long, and is told in it."""

import os
import random
import signal
import threading
import time

import pytest
from harness.answers import answer
from harness.engines import pid_of

STOOD = 1.5  # seconds: several of its steps, on a loaded machine too


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    "name,title,scheduler", [("vllm", "VLLM::Worker_TP1", "EngineCore"), ("sglang", "sglang::scheduler_TP0", "TP")]
)
def test_the_slowest_step_is_the_one_in_which_a_rank_stood_still(running, name, title, scheduler):
    pid, stood = pid_of(running.get(name), title), []

    def stand_still():
        while not any(os.path.realpath(f"/proc/self/fd/{n}") == f"/proc/{pid}/mem" for n in os.listdir("/proc/self/fd")):
            time.sleep(0.05)
        time.sleep(random.uniform(2.5, 4.0))
        os.kill(pid, signal.SIGSTOP)
        stood.append(time.monotonic())
        time.sleep(STOOD)
        stood.append(time.monotonic())
        os.kill(pid, signal.SIGCONT)

    beside = threading.Thread(target=stand_still, daemon=True)
    beside.start()
    try:
        said = answer("llm-record -for 9 -slowest 1 all -json")
    finally:
        beside.join()
    (step,) = said["slowest"]
    ranks = {rank["pid"]: rank for rank in step["ranks"]}
    gap = max(p["longest_gap"] for p in said["processes"])
    assert step["seconds"] > stood[1] - stood[0] - 2 * gap, (step, stood, gap)
    assert step["label"].startswith(scheduler) and set(ranks) == {p["pid"] for p in said["processes"]}
    assert ranks[pid]["state"] == "stopped" and all(r["state"] != "stopped" for r in ranks.values() if r["pid"] != pid), step
    assert step["late"][0] == ranks[pid]["label"] and any(s["why"] == "stopped" for s in step["stalls"]), step
    long = {s["pid"] for s in step["stalls"] if s["cause"] == "late-rank" and s["seconds"] > STOOD / 2}
    assert long == {pid}, ("only it held the others for so long; on a loaded machine another may be late for a moment", step)
    counted = next(p["counters"] for p in said["processes"] if p["label"].startswith(scheduler))
    assert {"requests running", "tokens a second"} <= set(counted), counted
