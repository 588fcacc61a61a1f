"""What an editor sees: gdb driven by MI as VS Code's cpptools does it, and by gdb's own DAP, with the pack loaded."""

import json
import os
import platform
import re
import subprocess
import sys

import pytest
from harness.breakpoints import LINES, started
from harness.dap import GdbDap, dap, gdbs_that_speak_dap
from harness.gdb_run import INIT, ROOT
from harness.mi import Mi, data
from harness.subjects import SUBJECTS, spawned

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="debug registers of x86-64")


def test_stacks_tensors_and_stops_reach_an_editor_through_mi(gdb_path, tmp_path):
    with started(sys.executable, tmp_path) as subject:
        mi = Mi(gdb_path)
        try:
            mi.console(f"source {INIT}")
            mi.console("set style enabled off")
            result, _ = mi.ask(f"-target-attach {subject.pid}")
            assert result.startswith("done")
            _, text = mi.console("pybt -json")
            frames = data(text)["threads"][0]["frames"]
            assert [f["function"] for f in frames] == ["told", "main", "<module>"] and frames[0]["file"].endswith(
                "breakpoints.py"
            )
            _, text = mi.console("pybreak work")
            assert "pybreak 1:" in text
            result, text = mi.console("pyprint nosuch")
            assert result.startswith("error") and "nosuch" in result
            mi.wait("*stopped")  # of the attach
            with open(subject.go + ".new", "w") as f:
                f.write("run")
            os.rename(subject.go + ".new", subject.go)
            mi.ask("-exec-continue")
            stopped = mi.wait("*stopped")
            assert 'reason="access-watchpoint-trigger"' in stopped and re.search(r'thread-id="\d+"', stopped), stopped
            _, text = mi.console("pylocals -json")
            assert [v["name"] for v in data(text)["locals"]] == ["number"]
            result, _ = mi.ask("-stack-list-frames 0 3")
            assert result.startswith("done,stack=[frame={")
        finally:
            mi.close()


def test_a_python_breakpoint_set_through_dap_stops_with_a_reason(tmp_path):
    for gdb in gdbs_that_speak_dap():
        with started(sys.executable, tmp_path) as subject:
            client = dap(gdb)
            try:
                client.ask("initialize", adapterID="test")
                attached = client.send("attach", pid=subject.pid)
                client.ask("configurationDone")
                client.answer(attached)
                assert client.event("stopped")["reason"] == "attach"
                client.repl("set style enabled off")
                assert client.repl("pybreak work").startswith("pybreak 1: ")
                with open(subject.go + ".new", "w") as f:
                    f.write("run")
                os.rename(subject.go + ".new", subject.go)
                client.ask("continue", threadId=1)
                stopped = client.event("stopped")
                assert stopped["reason"] == "breakpoint" and stopped["threadId"] == 1 and stopped["allThreadsStopped"], stopped
                assert client.repl("pylocals").strip() == "number = 0" and re.match(
                    rf"work at .*breakpoints\.py:{LINES['work']}, thread", client.repl("pynext")
                )
                assert client.event("stopped")["reason"] == "step"
                assert client.repl("pyprint number, step").strip() == "(0, 1)"
            finally:
                client.close()


TENSOR = "pytensor -json slotted.kept"


def printed(pid, gdb):
    """{type: configuration} that `python -m gdbext vscode` prints for a process."""
    said = subprocess.run(
        [sys.executable, "-m", "gdbext", "vscode", "--gdb", gdb, str(pid)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return {c["type"]: c for c in json.loads(said.stdout)["configurations"] if c["request"] == "attach"}


@pytest.fixture
def tensors(torch_python, tmp_path):
    """A process with tensors, which answers `leaked` when it is told to go on."""
    words = [torch_python, os.path.join(SUBJECTS, "tensors_live.py"), str(tmp_path / "truth.json")]
    with spawned(words, ready="ready", bufsize=1) as process:
        yield process
        process.stdin.write("go on\n")
        assert process.stdout.readline() == "leaked\n"


def test_the_printed_cppdbg_configuration_attaches_and_shows_a_tensor(gdb_path, tensors):
    found = printed(tensors.pid, gdb_path)["cppdbg"]
    mi = Mi(found["miDebuggerPath"])
    try:
        for command in found["setupCommands"]:
            assert mi.setup(command["text"]) == "done"
        assert mi.ask(f"-file-exec-and-symbols {found['program']}")[0] == "done"
        assert mi.ask(f"-target-attach {found['processId']}")[0].startswith("done")
        result, text = mi.console(TENSOR)
        assert result == "done" and data(text)["shape"] == [2, 3] and data(text)["dtype"] == "torch.float32"
        assert "<module>" in mi.console("pybt")[1]
        assert 'func="<module>"' in mi.ask("-stack-list-frames")[0]
        assert mi.ask("-target-detach")[0] == "done"
    finally:
        mi.close()


def test_the_printed_dap_configuration_attaches_and_shows_a_tensor(tensors):
    for gdb in gdbs_that_speak_dap():
        found = printed(tensors.pid, gdb)["gdb"]
        client = GdbDap(found["debuggerPath"], ["-nx", *found["debuggerArgs"]])
        try:
            client.ask("initialize", adapterID="gdb")
            attached = client.send("attach", **found)
            client.ask("configurationDone")
            client.answer(attached)
            assert client.event("stopped")["reason"] == "attach"
            assert data(client.repl(TENSOR))["shape"] == [2, 3] and "<module>" in client.repl("pybt")
            client.ask("disconnect", terminateDebuggee=False)
        finally:
            client.close()
