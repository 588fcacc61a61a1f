"""Cores of arm64 interpreters that qemu's user mode wrote, read on another architecture, outside gdb and in it. (Beside this file
`scripts/test arm` runs those of tests/gdb on objects, frames and layouts with such cores.)"""

import json
import os
import subprocess
import sys
import time

import pytest
from harness.answers import answer
from harness.gdb_run import ROOT, run_gdb
from harness.subjects import PYTHONS, SUBJECTS, running, spawned


@pytest.fixture(scope="module", params=PYTHONS, ids=os.path.basename)
def subject(request):
    with running(request.param, "py_stacks.py") as found:
        yield found


def python_stacks(data):
    return {
        str(thread["tid"]): [(f["function"], f["file"], f["line"]) for f in thread["frames"] if f["kind"] == "python"]
        for thread in data["threads"]
    }


def test_every_python_frame_stands_in_the_merged_stacks(subject, gdb_path):
    target, truth = subject
    wanted = {tid: [tuple(f[:3]) for f in frames] for tid, frames in truth["threads"].items()}
    assert target.arch == "aarch64" and len(wanted) == 24 and sum(map(len, wanted.values())) > 600
    done = run_gdb(gdb_path, ["llm-bt -all -json"], ["-core", target.path])
    for said in (answer(f"llm-bt -all -on {target.path} -json"), done.json(0)):
        found = python_stacks(said)
        assert {tid: found.get(tid) for tid in wanted} == wanted


def test_every_native_stack_is_followed_to_its_start_without_a_guess(subject):
    target, _ = subject
    threads = target.threads()
    assert len(threads) == 25
    for thread in threads:
        frames = target.unwind(thread)
        assert len(frames) > 10 and all(f.reliable for f in frames), frames
        assert any(f.function == "_PyEval_EvalFrameDefault" for f in frames)
        assert frames[-1].function == ("_start" if thread.tid == target.pid else "") and frames[-1].library, frames[-1]


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_who_holds_the_gil_and_who_waits_for_it(python, gdb_path):
    with running(python, "gil_states.py") as (target, said):
        truth = {int(tid): state for tid, (_, state) in said.items()}
        assert {"holds", "waits", "none"} <= set(truth.values())
        done = run_gdb(gdb_path, ["pythreads -json"], ["-core", target.path])
        for data in (answer(f"pythreads -on {target.path} -json"), done.json(0)):
            assert {thread["tid"]: thread["gil"] for thread in data["threads"]} == truth


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_a_core_of_another_architecture_is_read_on_aarch64(python, tmp_path):
    """The pack itself runs on an arm64 interpreter; the process that was copied is of the machine on which the tests run."""
    with spawned([sys.executable, os.path.join(SUBJECTS, "py_stacks.py")], ready="{") as process:
        truth = json.loads(process.said)["threads"]
        time.sleep(1)
        taken = answer(f"llm-snapshot {process.pid} -o {tmp_path}/core -json")
    assert taken["failed"] == []
    words = [python, "-m", "gdbext", "llm-bt", "-all", "-on", f"{tmp_path}/core", "-json"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    found = python_stacks(json.loads(done.stdout))
    assert len(truth) == 24 and {tid: found.get(tid) for tid in truth} == {
        tid: [tuple(f[:3]) for f in frames] for tid, frames in truth.items()
    }
