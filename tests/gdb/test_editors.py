"""What an editor sees: gdb driven by MI as VS Code's cpptools does it, and by gdb's own DAP, with the pack loaded."""

import json
import os
import platform
import re
import subprocess
import sys

import pytest

from gdbrun import INIT
from test_frame_filter import Dap, gdbs_that_speak_dap
from test_pybreak import started

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="debug registers of x86-64")


class Mi:
    """One gdb in MI mode: `ask(command)` -> (result record, console text); `wait(start)` -> the next record that begins so."""

    def __init__(self, gdb):
        line = [gdb, "-nx", "-q", "--interpreter=mi", "-iex", "set debuginfod enabled off", "-iex", "set auto-load off", "-iex", "set auto-solib-add off"]
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.token, self.early = 0, []

    def ask(self, command):
        self.token += 1
        self.process.stdin.write(f"{self.token}{command}\n")
        console = []
        for line in self.process.stdout:
            if line.startswith(f"{self.token}^"):
                return line.strip().partition("^")[2], "".join(console)
            if line.startswith("~"):
                console.append(json.loads(line[1:].replace("\\e", "\\u001b")))
            elif line.startswith("*"):
                self.early.append(line.strip())
        raise AssertionError("gdb ended")

    def console(self, command):
        return self.ask(f"-interpreter-exec console {json.dumps(command)}")

    def wait(self, start):
        for line in list(self.early):
            self.early.remove(line)
            if line.startswith(start):
                return line
        for line in self.process.stdout:
            if line.startswith(start):
                return line.strip()
        raise AssertionError("gdb ended")


def data(text):
    """The one line of JSON among what gdb printed."""
    (line,) = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(line)


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
            assert [f["function"] for f in frames] == ["told", "main", "<module>"] and frames[0]["file"].endswith("breakpoints.py")
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
            mi.process.kill()
            mi.process.communicate()


def test_a_python_breakpoint_set_through_dap_stops_the_thread_with_a_reason(tmp_path):
    for gdb in gdbs_that_speak_dap():
        with started(sys.executable, tmp_path) as subject:
            dap = Dap(gdb)
            repl = lambda text, dap=dap: dap.ask("evaluate", expression=text, context="repl")["result"]  # noqa: E731
            try:
                dap.ask("initialize", adapterID="test")
                attached = dap.send("attach", pid=subject.pid)
                dap.ask("configurationDone")
                dap.answer(attached)
                assert dap.event("stopped")["reason"] == "attach"
                repl("set style enabled off")
                assert repl("pybreak work").startswith("pybreak 1: ")
                with open(subject.go + ".new", "w") as f:
                    f.write("run")
                os.rename(subject.go + ".new", subject.go)
                dap.ask("continue", threadId=1)
                stopped = dap.event("stopped")
                assert stopped["reason"] == "data breakpoint" and stopped["threadId"] == 1 and stopped["allThreadsStopped"], stopped
                assert repl("pylocals").strip() == "number = 0" and re.match(r"work at .*breakpoints\.py:26, thread", repl("pynext"))
                assert dap.event("stopped")["reason"] == "data breakpoint"
                assert repl("pyprint number, step").strip() == "(0, 1)"
            finally:
                dap.process.kill()
                dap.process.communicate()
