"""pythreads, pybt and llm-bt say the same of who has the GIL and who waits for it, and it is true, also of an interpreter without
symbols."""

import json
import os
import time

import pytest
from harness.answers import answer
from harness.gdb_run import run_gdb
from harness.subjects import PYTHONS, copy, running

COMMANDS = ("pythreads", "pybt -all", "llm-bt -all")


def until_kept(pid, tid):
    """Waits until the thread that keeps the GIL sleeps with it, and the others have had the time to want it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with open(f"/proc/{pid}/task/{tid}/syscall") as f:
            if f.read().split()[0] in ("230", "115"):  # clock_nanosleep of x86-64 and of aarch64
                time.sleep(0.05)
                return
        time.sleep(0.01)
    raise AssertionError("nobody came to keep the GIL")


def states(data):
    return {th["tid"]: th["gil"] for th in data["threads"]}


@pytest.mark.parametrize("stripped", [False, True], ids=["symbols", "stripped"])
@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_one_answer_about_the_gil(python, stripped, tmp_path, gdb_path):
    argv, env, _ = copy(python, tmp_path, strip=stripped)
    with running(argv, "gil_states.py", env=env) as (target, said):
        truth = {int(tid): state for tid, (_, state) in said.items()}
        until_kept(target.pid, next(tid for tid, state in truth.items() if state == "holds"))
        core = str(tmp_path / "snapshot")
        answer(f"llm-snapshot {target.pid} -o {core}")
        told = {command: states(answer(f"{command} -on {core}")) for command in COMMANDS}
        done = run_gdb(gdb_path, [f"{command} -json" for command in COMMANDS], ["-p", str(target.pid)])
        told.update({f"{command} in gdb": states(done.json(i)) for i, command in enumerate(COMMANDS)})
        unstopped = answer(f"pythreads -on {target.pid}")
    for command, found in told.items():
        assert found == truth, f"{command}: {json.dumps(found)} is not {json.dumps(truth)}"
    assert not [reason for reason in unstopped["partial"] if "GIL" in reason]
    assert [tid for tid, state in states(unstopped).items() if state == "holds"] == [
        tid for tid in truth if truth[tid] == "holds"
    ]


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_none_is_said_of_threads_that_want_no_gil_alone(count, python):
    with running(python, "gil_spinning.py", str(count)) as (target, truth):
        looks = [answer(f"pythreads -on {target.pid}") for _ in range(4)]
        sampled = answer(f"pythreads -samples 100 -on {target.pid}")["threads"]
    wants = [tid for tid, state in truth.items() if state == "wants"]
    for look in looks:
        told = {str(th["tid"]): th["gil"] for th in look["threads"]}
        assert not [tid for tid in wants if told[tid] == "none"], told
        assert {told[tid] for tid in truth if tid not in wants} == {"none"}, told
        assert bool([why for why in look["partial"] if "GIL" in why or "want" in why]) == ("unknown" in told.values())
    for th in sampled:
        seen = th["held"] + th["waited"] + th["unknown"]
        assert seen == (100 if str(th["tid"]) in wants else 0), th
