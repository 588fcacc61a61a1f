"""`gdb --args` of a real vLLM with two ranks: a breakpoint that was set before anything ran stops in a worker; then the engine
answers its requests as if nothing had been.

Runs with GDBEXT_TEST_FOLLOW=1 only: three minutes, and gdb itself does not always live through it. gdb 13 and 16 hang where one
process ends while another waits for its vfork (subprocess, multiprocessing's spawn); the 18.1 of scripts/get-gdbs can end in a
sort of its own at an exec."""

import json
import os
import platform

import pytest
from harness.gdb_run import INIT
from tools.engines import start_vllm
from tools.environments import existing

pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="debug registers of x86-64"),
    pytest.mark.skipif(
        not os.environ.get("GDBEXT_TEST_FOLLOW"), reason="three minutes, and gdb's own races: set GDBEXT_TEST_FOLLOW=1"
    ),
]

# gdb stops everything when one process ends; at a terminal llm-follow goes on by itself, a script does it like this.
SCRIPT = """
import gdb, json
from gdbext.control import follow, pybreak

gdb.execute("llm-follow on")
gdb.execute("pybreak -rank TP1 GPUModelRunner.execute_model")
gdb.execute("run")
while not any(point.hits for point in pybreak.listed()) and follow.go_on():
    pass
said = {name: json.loads(gdb.execute(name + " -json", to_string=True)) for name in ("llm-follow", "pybt", "pybreak", "pylocals")}
said["pid"] = gdb.selected_inferior().pid
with open(TOLD, "w") as f:
    json.dump(said, f)
gdb.execute("delete")
while follow.go_on():
    pass
"""


def test_a_pending_breakpoint_stops_in_a_worker_and_the_engine_goes_on(running, gdb_path, tmp_path):
    if not existing("vllm"):
        pytest.skip("no environment for vllm: run scripts/test engines, which makes it")
    running.stop()
    script, told = tmp_path / "follow.py", tmp_path / "told"
    script.write_text(SCRIPT.replace("TOLD", repr(str(told))))
    gdb = [
        gdb_path,
        "-nx",
        "-q",
        "-batch",
        "-iex",
        "set debuginfod enabled off",
        "-iex",
        "set auto-load off",
        "-ex",
        f"source {INIT}",
        "-ex",
        f"source {script}",
    ]
    with start_vllm(args=["--rest", "--requests", "1"], under=[*gdb, "--args"]) as engine:
        engine.wait_ready(900)  # every request was answered
        said = json.loads(told.read_text())
        ranks = {p["label"]: p["pid"] for p in said["llm-follow"]["processes"]}
        assert {"EngineCore", "TP0", "TP1"} <= set(ranks) and said["pid"] == ranks["TP1"]
        assert said["pybreak"]["breakpoints"][0]["hits"] == 1 and not said["pybreak"]["breakpoints"][0]["pending"]
        functions = [f["function"] for f in said["pybt"]["threads"][0]["frames"]]
        assert functions[0] == "GPUModelRunner.execute_model" and "WorkerProc.worker_busy_loop" in functions
        assert "scheduler_output" in [v["name"] for v in said["pylocals"]["locals"]]
