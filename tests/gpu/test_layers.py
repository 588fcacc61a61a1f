"""On real hardware: llm-layers on a model whose tensors are on a GPU."""

import os

import pytest

OFF = ["set auto-solib-add off"]


@pytest.fixture
def asked(standing, cuda_gdb):
    """-> function: how the subject runs, a command -> the command's JSON while the subject runs once; it runs to its end"""

    def ask(how, command, **env):
        with standing("cuda_layers.py", how, env={**os.environ, **env}) as (process, truth):
            go = f"shell echo > /proc/{process.pid}/fd/0"
            said = cuda_gdb([go, command, "detach"], ["-p", str(process.pid)], before=OFF, timeout=200)
            assert process.stdout.readline() == "done\n", said.text
        return said.json(1), truth

    return ask


def test_values_are_not_made_up(asked):
    """A GPU's kernels run after the calls that launched them: when a module returns, its output may not be computed."""
    rows = asked("eager", "llm-layers -json")[0]["modules"]
    assert len(rows) == 7 and rows[-1]["path"] == ""
    assert all(row["hash"] is None and "CUDA_LAUNCH_BLOCKING=1" in row["why"] for row in rows), rows


def test_values_are_what_hooks_saw_where_launches_block(asked):
    said, truth = asked("eager", "llm-layers -json", CUDA_LAUNCH_BLOCKING="1")
    assert {row["path"]: row["hash"] for row in said["modules"]} == truth["hashes"] and len(truth["hashes"]) == 7
    assert all(row["nan"] == 0 and -1 <= row["min"] < row["max"] <= 1 for row in said["modules"] if "linear" not in row["path"])


@pytest.mark.parametrize("how, word", [("compiled", "compiled"), ("graph", "in a CUDA graph")])
def test_what_python_does_not_call_is_said(asked, how, word):
    assert word in " ".join(asked(how, "llm-layers -json -for 5")[0]["partial"])
