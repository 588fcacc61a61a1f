"""Stepping goes where `sys.settrace` says that the same function went."""

import json
import os
import platform
import re
import subprocess
import sys

import pytest
from harness.breakpoints import FILE, OFF, places, started
from harness.gdb_run import run_gdb
from harness.subjects import PYTHONS

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="debug registers of x86-64")


def steps_of(python):
    """What `sys.settrace` says of the subject's function."""
    said = subprocess.run([python, FILE, "steps"], stdout=subprocess.PIPE, check=True)
    return json.loads(said.stdout)


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_pystep_and_pynext_go_line_by_line_as_settrace_does(python, gdb_path, tmp_path):
    with started(python, tmp_path) as subject:
        truth = steps_of(python)
        inner = [[f, line] for _, f, line, depth in truth if depth == 1]  # of the function itself, calls left out
        nexts = [p for i, p in enumerate(inner) if i == 0 or p != inner[i - 1]]
        whole = [[f, line] for kind, f, line, depth in truth if depth > 0]
        steps = [p for i, p in enumerate(whole) if i == 0 or p != whole[i - 1]]
        commands = ["pybreak stepped", subject.tell("step"), "continue"] + ["pystep"] * (len(steps) - 1)
        commands += [subject.tell("step"), "continue"] + ["pynext"] * (len(nexts) - 1) + ["pynext", "delete"]
        said = run_gdb(gdb_path, commands, ["-p", str(subject.pid)], timeout=300, before=OFF)
    assert places(said.outputs[2 : 2 + len(steps)]) == steps
    assert re.search(r"^\d+\t +\S", said.outputs[3], re.M) and "\\t" not in said.text  # the source line, as gdb's next prints it
    at = 2 + len(steps) + 1
    assert places(said.outputs[at : at + len(nexts)]) == nexts
    assert places(said.outputs[at + len(nexts) : at + len(nexts) + 1])[0][0] == "main"


@pytest.mark.parametrize("python", PYTHONS[:1] + PYTHONS[-1:], ids=os.path.basename)
def test_pyuntil_leaves_a_loop_and_pyfinish_a_function(python, gdb_path, tmp_path):
    with started(python, tmp_path) as subject:
        first = steps_of(python)[0][2]  # `total = 0`
        commands = [
            "pybreak helper",
            f"pybreak breakpoints.py:{first + 2}",
            subject.tell("step"),
            "continue",
            "delete 2",
            "pyuntil",
        ]
        commands += ["continue", "pyfinish", f"pyuntil {first + 10}", "pyfinish", "pyprint 1"]
        said = run_gdb(gdb_path, commands, ["-p", str(subject.pid)], timeout=300, before=OFF)
    found = places(said.outputs[3:10])
    assert found[0] == ["stepped", first + 2] and found[2] == ["stepped", first + 3]
    assert found[3] == ["helper", first + 18] and found[4] == ["stepped", first + 4]
    assert found[5] == ["stepped", first + 10] and found[6][0] == "main"


def test_a_step_waits_for_a_lock_that_another_thread_gives_back(gdb_path, tmp_path):
    """The freeze of stepping one thread alone: `held` is taken by a thread that gives it back only when it runs."""
    with started(sys.executable, tmp_path) as subject:
        commands = [
            "set scheduler-locking on",
            "pybreak waits_for_lock",
            subject.tell("lock"),
            "set scheduler-locking off",
            "continue",
        ]
        commands += ["set scheduler-locking on", "pynext", "pynext", "show scheduler-locking"]
        said = run_gdb(gdb_path, commands, ["-p", str(subject.pid)], timeout=300, before=OFF)
    found = places(said.outputs[4:5] + said.outputs[6:8])
    assert [f for f, _ in found] == ["waits_for_lock"] * 3 and found[2][1] == found[0][1] + 2
    assert '"on"' in said.outputs[8]
