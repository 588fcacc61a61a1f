"""Breakpoints in bytecode where CPython's JIT (3.14 and later) compiles what is hot: that passes are missed is said when one is
set."""

import json
import os
import platform

import pytest
from harness.breakpoints import OFF
from harness.gdb_run import run_gdb
from harness.subjects import PYTHONS, SUBJECTS, spawned

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="debug registers of x86-64")


@pytest.mark.parametrize("wanted", ["1", "0"])
@pytest.mark.parametrize("python", PYTHONS[-3:], ids=os.path.basename)
def test_a_jit_is_named_when_a_breakpoint_is_set(python, wanted, gdb_path):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    with spawned([python, f"{SUBJECTS}/hot.py"], ready="{", env={**env, "PYTHON_JIT": wanted}) as process:
        truth = json.loads(process.said)
        ask = ['pylog -json hot.py:11 "{i}"', "pybreak -json hot.py:12", "delete"]
        said = run_gdb(gdb_path, ask, ["-p", str(truth["pid"])], before=OFF)
    for number in (0, 1):
        doubts = [d for d in said.json(number)["partial"] if "JIT" in d]
        assert len(doubts) == truth["jit"], said.text
        if truth["jit"]:
            assert "PYTHON_JIT=0" in doubts[0] and "(0 functions" not in doubts[0]
