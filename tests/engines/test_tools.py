"""A debugger that people use opens in a rank of a real engine at work: debugpy, by a call from gdb, and an editor's breakpoint in
it. (The last of the tests with vLLM: debugpy stays in the rank.)"""

import ast
import glob
import json
import os

import pytest
from harness.dap import Dap
from harness.engines import advances, processes
from harness.gdb_run import run_gdb
from tools.environments import existing


def first_line(path, function):
    """The line where the body of a method begins."""
    with open(path, encoding="utf-8") as f:
        found = next(n for n in ast.walk(ast.parse(f.read())) if isinstance(n, ast.FunctionDef) and n.name == function)
    body = found.body[1:] if isinstance(found.body[0], ast.Expr) and isinstance(found.body[0].value, ast.Constant) else found.body
    return body[0].lineno


def site_packages(name):
    return glob.glob(os.path.join(os.path.dirname(os.path.dirname(existing(name))), "lib", "python*", "site-packages"))[0]


def test_a_debugpy_client_stops_a_worker_at_a_line_and_lets_it_go(vllm, gdb_path):
    if not existing("debugpy"):
        pytest.skip("no environment with debugpy: run scripts/test engines, which makes one")
    pid = processes(vllm)["Worker_TP1"]
    commands = [
        "llm-attach -libraries none TP1",
        f"llm-inject -unsafe -timeout 60 -path {site_packages('debugpy')} debugpy TP1",
        "llm-detach",
    ]
    said = run_gdb(gdb_path, commands, timeout=300)
    (line,) = [text for text in said.outputs[1].splitlines() if text.startswith("{")]
    configuration = json.loads(line)
    assert configuration["name"] == "gdbext TP1" and f"TP1 (pid {pid})" in said.outputs[1]
    client = Dap.connect(**configuration["connect"])
    path = os.path.join(site_packages("vllm"), "vllm", "v1", "worker", "gpu_model_runner.py")
    try:
        client.ask("initialize", adapterID="debugpy", pathFormat="path")
        attached = client.send("attach", **configuration)
        client.event("initialized")
        wanted = first_line(path, "execute_model")
        client.ask("setBreakpoints", source={"path": path}, breakpoints=[{"line": wanted}])
        client.ask("configurationDone")
        client.answer(attached)
        stopped = client.event("stopped")
        frames = client.ask("stackTrace", threadId=stopped["threadId"])["stackFrames"]
        assert (stopped["reason"], frames[0]["name"], frames[0]["line"]) == ("breakpoint", "execute_model", wanted)
        assert client.ask("evaluate", expression="type(self).__name__", frameId=frames[0]["id"])["result"] == "'CPUModelRunner'"
        client.ask("disconnect", terminateDebuggee=False)
    finally:
        client.close()
    assert advances(pid)
