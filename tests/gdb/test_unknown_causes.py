"""GDBEXT_LOG=debug names why llm-hang says "unknown": of three processes with the same verdict three causes."""

import json
import os
import subprocess
import sys

import pytest
from harness.gdb_run import run_gdb
from harness.subjects import running

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CAUSES = {
    "never_released": ("stacks/locks.py", "no thread owns the Lock lock, which thread {tid} waits for"),
    "futex_of_c": ("stacks/locks.py", "thread {tid} waits for the futex 0x"),
    "damaged_layout": ("cpython/runtime.py", "sys.modules is no dict"),
}


def logged(pid, *words, **env):
    """-> (llm-hang's JSON, the log's lines)"""
    line = [sys.executable, "-m", "gdbext", "llm-hang", str(pid), "-wait", "1", "-json", *words]
    done = subprocess.run(line, cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True)
    return json.loads(done.stdout), [line for line in done.stderr.splitlines() if line.startswith("gdbext: ")]


@pytest.mark.parametrize("reason", CAUSES)
def test_the_log_names_the_cause_of_an_unknown(reason):
    with running(sys.executable, "unknowns.py", reason) as (target, said):
        data, lines = logged(target.pid, GDBEXT_LOG="debug")
        asked, same = logged(target.pid, "-debug")
        _, none = logged(target.pid)
    assert data["verdict"] == asked["verdict"] == "unknown"
    room, cause = CAUSES[reason]
    for found in (lines, same):
        assert any(line.startswith(f"gdbext: {room}:") and cause.format(**said) in line for line in found), found
        assert any("verdict/judge.py" in line and f"{target.pid}: no rule applies" in line for line in found)
        for other, (_, text) in CAUSES.items():
            assert other == reason or not any(text.format(**said) in line for line in found), (other, found)
    assert none == []


def test_in_gdb_debug_lasts_as_long_as_its_command(gdb_path):
    state = "python import os, gdbext.log; print('on', gdbext.log.enabled(), 'GDBEXT_LOG' in os.environ)"
    with running(sys.executable, "unknowns.py", "never_released") as (target, said):
        done = run_gdb(gdb_path, [f"llm-locks {target.pid} -debug -json", state, f"llm-locks {target.pid} -json"])
    assert CAUSES["never_released"][1].format(**said) in done.text
    assert done.outputs[1].splitlines()[-1] == "on False False"
    first, second = done.json(0), done.json(2)
    assert first["edges"] == second["edges"] and len(first["edges"]) == 1
