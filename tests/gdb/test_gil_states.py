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
