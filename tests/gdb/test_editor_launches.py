"""The configurations of `gdbext vscode -launch` start a process that stands for an engine: as cpptools does through MI, as an
editor does through gdb's own DAP and through debugpy's adapter; our commands work there, in its children too."""

import json
import os
import platform
import subprocess
import sys

import pytest
from harness.dap import Dap, GdbDap, gdbs_that_speak_dap
from harness.gdb_run import ROOT, fetched
from harness.mi import Mi, data
from harness.subjects import SUBJECTS
from tools.environments import existing

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="debug registers of x86-64")
ENGINE = os.path.join(SUBJECTS, "family.py")
WORDS = [ENGINE, "--model", "a model"]
FIRST, LAST = "pybreak step if n == 1 and i == 1", "pybreak step if n == 9"  # in the forked child; in the process itself


def printed(kind, gdb, folder, python=sys.executable):
    """The configuration of type `kind` that starts the engine, with what VS Code fills in."""
    said = subprocess.run(
        [sys.executable, "-m", "gdbext", "vscode", "--gdb", gdb, "-launch", python, *WORDS],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=ROOT,
    )
    (found,) = [c for c in json.loads(said.stdout)["configurations"] if c["type"] == kind and "coreDumpPath" not in c]
    assert found["request"] == "launch"
    return {**found, "cwd": found["cwd"].replace("${workspaceFolder}", str(folder))}


def launched(mi, found, arguments):
    """What cpptools asks gdb for a launch, in its order (MIEngine, DebuggedProcess.GetInitializeCommands), up to the stop at the
    entry."""
    mi.ask("-gdb-set mi-async on")
    for command in [c["text"] for c in found.get("setupCommands", ())] + found.get("initCommands", []):
        assert mi.setup(command) == "done"
    mi.console("set pagination off")
    mi.console("set style enabled off")
    assert mi.ask(f"-environment-cd {found['cwd']}")[0] == "done"
    assert mi.ask(f"-file-exec-and-symbols {found['program']}")[0] == "done"
    assert mi.ask(f"-exec-arguments {arguments}")[0] == "done"
    assert found["stopAtEntry"] is True and mi.ask("-break-insert -t main")[0].startswith("done")
    assert mi.ask("-exec-run")[0] == "running"
    assert 'reason="breakpoint-hit"' in mi.wait("*stopped")


def was_started_as_asked(mi, folder):
    """Our commands answer, and the process has the words and the folder of the configuration."""
    assert data(mi.console("pyprint sys:argv -json")[1])["repr"] == repr(WORDS)
    tid = data(mi.console("pythreads -json")[1])["threads"][0]["tid"]
    assert os.readlink(f"/proc/{tid}/cwd") == str(folder)


def test_cpptools_starts_an_engine_and_stops_in_its_child(gdb_path, tmp_path):
    found = printed("cppdbg", gdb_path, tmp_path)
    mi = Mi(found["miDebuggerPath"], lazily=False)
    try:
        launched(mi, found, " ".join(json.dumps(word) for word in found["args"]))
        assert mi.console("llm-follow on")[0] == "done" and "pending" in mi.console(FIRST)[1]
        mi.ask("-exec-continue --all")
        assert 'reason="access-watchpoint-trigger"' in mi.wait("*stopped")
        assert data(mi.console("pyprint n, i -json")[1])["repr"] == "(1, 1)"
        assert len(data(mi.console("llm-follow -json")[1])["processes"]) == 2
    finally:
        mi.close()


def test_cpptools_starts_an_engine_with_its_words_and_folder(gdb_path, tmp_path):
    found = printed("cppdbg", gdb_path, tmp_path)
    mi = Mi(found["miDebuggerPath"], lazily=False)
    try:
        launched(mi, found, " ".join(json.dumps(word) for word in found["args"]))
        assert "pending" in mi.console(LAST)[1]
        mi.ask("-exec-continue")
        assert 'reason="access-watchpoint-trigger"' in mi.wait("*stopped")
        assert data(mi.console("pyprint n, i -json")[1])["repr"] == "(9, 9)"
        assert [f["function"] for f in data(mi.console("pybt -json")[1])["threads"][0]["frames"]] == ["step", "<module>"]
        was_started_as_asked(mi, tmp_path)
    finally:
        mi.close()


def test_nsights_cuda_gdb_starts_an_engine(tmp_path):
    """cuda-gdb 11.8 has no hardware breakpoints in Python, and says so at once; one of its own stops where Python ends."""
    found = printed(
        "cuda-gdb", fetched("cuda-gdb", "bin", "cuda-gdb") or pytest.skip("no cuda-gdb: run scripts/get-cuda"), tmp_path
    )
    mi = Mi(found["debuggerPath"], lazily=False)
    try:
        launched(mi, found, found["args"])
        result, _ = mi.console(LAST)
        assert result.startswith("error") and "nothing can wait for an import" in result
        assert mi.ask("-break-insert Py_FinalizeEx")[0].startswith("done")
        mi.ask("-exec-continue")
        assert 'reason="breakpoint-hit"' in mi.wait("*stopped")
        was_started_as_asked(mi, tmp_path)
    finally:
        mi.close()


def test_gdbs_own_dap_starts_an_engine(tmp_path):
    for gdb in gdbs_that_speak_dap():
        found = printed("gdb", gdb, tmp_path)
        client = GdbDap(found["debuggerPath"], ["-nx", "-iex", "set debuginfod enabled off", *found["debuggerArgs"]])
        try:
            client.ask("initialize", adapterID="gdb")
            launch = client.send("launch", **found)
            client.ask("configurationDone")
            client.answer(launch)
            assert client.event("stopped")["reason"]
            client.repl("set style enabled off")
            assert "pending" in client.repl(LAST)
            client.ask("continue", threadId=1)
            assert client.event("stopped")["reason"] == "breakpoint"
            assert client.repl("pyprint n, i").strip() == "(9, 9)"
            assert client.repl("pyprint sys:argv").strip() == repr(WORDS)
            pid = data(client.repl("pybt -json"))["threads"][0]["pid"]
            assert os.readlink(f"/proc/{pid}/cwd") == str(tmp_path)
        finally:
            client.close()


def outside(*words):
    """What a command of ours answers beside the debugger, without gdb."""
    said = subprocess.run([sys.executable, "-m", "gdbext", *words, "--json"], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    return json.loads(said.stdout)


def test_debugpys_adapter_starts_an_engine_with_its_subprocesses(gdb_path, tmp_path):
    """Both children are told to the editor, which attaches to each as it would; one stops at a line, and our commands read it."""
    python = existing("debugpy")
    if not python:
        pytest.skip("no environment with debugpy: run scripts/test gdb, which makes one")
    found = printed("debugpy", gdb_path, tmp_path, python)
    with open(ENGINE) as f:
        line = next(i for i, text in enumerate(f, 1) if "LINE step" in text)

    def session(client, configuration):
        client.ask("initialize", adapterID="debugpy", pathFormat="path")
        request = client.send(configuration["request"], **{k: v for k, v in configuration.items() if k != "request"})
        client.event("initialized")
        wanted = [{"line": line, "condition": "i == 1"}]
        assert client.ask("setBreakpoints", source={"path": ENGINE}, breakpoints=wanted)["breakpoints"][0]["verified"]
        client.ask("configurationDone")
        client.answer(request)

    words = [found["python"], "-m", "debugpy.adapter"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as adapter:
        parent = Dap(adapter.stdout, adapter.stdin)
        try:
            session(parent, found)
            asked = parent.event("debugpyAttach")
            pid = asked["subProcessId"]
            child = Dap.connect(asked["connect"]["host"], asked["connect"]["port"])
            session(child, asked)
            assert child.event("stopped")["reason"] == "breakpoint"
            read = outside("pyprint", "-on", str(pid), "-frame", "step", "n, i, value")
            assert read["repr"] == "(1, 1, 11)", read
            assert os.readlink(f"/proc/{pid}/cwd") == str(tmp_path)
            child.close()
        finally:
            parent.ask("disconnect", terminateDebuggee=True)
            adapter.kill()
