"""llm-break's reserved names: at the functions of an engine, shown on a process that has them; a tensor with NaN is real
torch."""

import json
import os
import platform
import re

import pytest
from harness.gdb_run import run_gdb
from harness.releases import release
from harness.subjects import SUBJECTS, spawned

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="debug registers of x86-64")


@pytest.fixture
def subject(torch_python):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    with spawned([torch_python, os.path.join(SUBJECTS, "presets.py")], ready="{", env=env) as process:
        yield json.loads(process.said)["pid"]


def test_step_request_and_nan(subject, gdb_path):
    commands = [
        f"llm-attach -libraries none {subject}",
        "llm-break step",
        "llm-continue",
        "delete",
        "llm-break request req-2",
        "llm-continue",
        "llm-continue",
    ]
    commands += [
        "pyprint request.request_id",  # not req-21's
        "delete",
        "llm-break nan",
        "llm-continue",
        "pyprint logits.dtype",
        "delete",
        "llm-break request",
        "llm-detach",
    ]
    said = run_gdb(gdb_path, commands, timeout=90)
    assert "Scheduler.schedule" in said.outputs[1] and "llm-break 1: Scheduler.schedule at" in said.outputs[2]
    assert len(said.outputs[4].splitlines()) == 2
    assert "if 'req-2' names one of [request.request_id]" in said.outputs[4]
    assert "Scheduler.update_from_output at" in said.outputs[5] and "(req-2-bb)" in said.outputs[5], said.outputs[5]
    assert "Scheduler._free_request at" in said.outputs[6] and "(req-2-bb)" in said.outputs[6]
    assert said.outputs[7] == "'req-2-bb'"
    assert "GPUModelRunner._sample at" in said.outputs[10] and "logits holds 1 NaN, 1 infinite of 16" in said.outputs[10]
    assert "llm-requests lists the ids" in said.outputs[13]


def test_after_nan_in_the_logits_the_first_such_module_is_named(subject, gdb_path):
    commands = [
        f"llm-attach -libraries none {subject}",
        "llm-break nan",
        "llm-continue",
        "llm-continue",
        "llm-continue",
        "pybreak -json",
        "llm-break -layers step",
        "llm-detach",
    ]
    said = run_gdb(gdb_path, commands, timeout=90)
    if "llm-break 2" not in said.outputs[1]:
        pytest.skip("this gdb's Python has no numpy: scripts/test installs it")
    assert "llm-break 2: NaN in a module's output (once the logits held one)  (0 debug registers)" in said.outputs[1]
    assert "logits holds 1 NaN" in said.outputs[2] and "from now on llm-break 2 stops at the first module" in said.outputs[2]
    assert "llm-break 2: 1.0 (Poison) returned 4 NaN of 4 ([2, 2] float32), thread" in said.outputs[3], said.text
    assert "none of its inputs holds a NaN" in said.outputs[3] and "without: args[0] [2, 2] float32" in said.outputs[3]
    assert "llm-break 2: 1.0 (Poison) returned" in said.outputs[4] or "GPUModelRunner._sample" in said.outputs[4]
    assert "-layers goes with nan" in said.outputs[6]


def test_oom_stops_at_preemptions_and_where_the_exception_is_raised(subject, gdb_path):
    commands = [
        f"llm-attach -libraries none {subject}",
        "llm-break oom",
        "llm-continue",
        "pyprint request.request_id",
        "llm-continue",
        "delete",
        "llm-detach",
    ]
    said = run_gdb(gdb_path, commands, timeout=90)
    assert len(said.outputs[1].splitlines()) == 2, said.outputs[1]
    assert "llm-break 2: Scheduler._preempt_request at" in said.outputs[2] and said.outputs[3] == "'req-1-aa'"
    assert re.search(
        r"pycatch 1: (torch\.)?OutOfMemoryError: CUDA out of memory\. Tried .* GPU 0 .* in main at .*presets\.py:\d+",
        said.outputs[4],
    ), said.outputs[4]


def test_oom_stops_in_a_real_scheduler_that_preempts(torch_python, gdb_path):
    commands = [
        f"file {torch_python}",
        f"set args {os.path.join(SUBJECTS, 'vllm_release.py')} {release('vllm', '0.24.0')} 0.24.0",
        "pybreak story",
        "run",
        "llm-break oom",
        "delete 1",
        "continue",
        "pyprint request.status, len(self.running) > 0",
        "pybt -json",
        "kill",
    ]
    said = run_gdb(gdb_path, commands, timeout=300)
    assert "llm-break 3: Scheduler._preempt_request at" in said.outputs[6], said.text
    assert said.outputs[7] == "(<RequestStatus.RUNNING: 5>, True)"
    assert [f["function"] for f in said.json(8)["threads"][0]["frames"]][:4] == [
        "Scheduler._preempt_request",
        "Scheduler.schedule",
        "step",
        "story",
    ]


def test_a_process_without_an_engine_is_told_so(gdb_path):
    with spawned(["sleep", "60"]) as process:
        said = run_gdb(gdb_path, [f"attach {process.pid}", "llm-break step"], timeout=300)
    assert said.outputs[1].startswith("llm-break") and "\n" not in said.outputs[1]
