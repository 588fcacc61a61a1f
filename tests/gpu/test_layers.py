"""On real hardware: llm-layers on a model whose tensors are on a GPU."""

import pytest

OFF = ["set auto-solib-add off"]


@pytest.fixture
def asked(standing, cuda_gdb):
    """-> function: how the subject runs, a command -> the command's JSON while the subject runs once; it runs to its end"""

    def ask(how, command):
        with standing("cuda_layers.py", how) as (process, truth):
            go = f"shell echo > /proc/{process.pid}/fd/0"
            said = cuda_gdb([go, command, "detach"], ["-p", str(process.pid)], before=OFF, timeout=200)
            assert process.stdout.readline() == "done\n", said.text
        return said.json(1)

    return ask


def test_values_are_not_made_up(asked):
    """A GPU's kernels run after the calls that launched them: when a module returns, its output may not be computed."""
    rows = asked("eager", "llm-layers -json")["modules"]
    assert len(rows) == 7 and rows[-1]["path"] == ""
    assert all(row["hash"] is None and "the memory of cuda:0" in row["why"] for row in rows), rows


@pytest.mark.parametrize("how, word", [("compiled", "compiled"), ("graph", "in a CUDA graph")])
def test_what_python_does_not_call_is_said(asked, how, word):
    assert word in " ".join(asked(how, "llm-layers -json -for 5")["partial"])
