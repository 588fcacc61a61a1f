"""Ranks of vLLM that go in step, on a STAND-IN: what the reader says of a core, of the coordinator and of a server that waits for
cores is what each has of itself."""

import dataclasses
import sys

import pytest
from harness.subjects import running

from gdbext.cpython.runtime import open_runtime
from gdbext.engines.objects import in_frames
from gdbext.engines.registry import SPECS
from gdbext.engines.vllm import waves


class Role:
    label, role = "x", "coordinator"

    def __init__(self, pid):
        self.pid = pid


@pytest.mark.parametrize("seed", range(4))
def test_each_is_as_far_as_it_says_of_itself(seed):
    with running(sys.executable, "waves_vllm.py", str(seed)) as (target, truth):
        rt = open_runtime(target)
        core = waves.of_core(in_frames(rt, {"DPEngineCoreProc": ""}))
        look = SPECS["vllm"].requests.look(rt, Role(target.pid))
        found = {"core": core, "coordinator": look.in_step, "start": waves.awaited(rt)}
        assert {name: list(dataclasses.astuple(one))[: len(truth[name])] for name, one in found.items()} == truth


def test_a_coordinator_that_only_balances_load_goes_in_no_step():
    with running(sys.executable, "waves_vllm.py", "7", "dense") as (target, _):
        assert waves.of_coordinator(open_runtime(target)) is None
