"""Python in gdb's own DAP server, by the configuration as `gdbext vscode` prints it: stacks, variables, expressions, thread
names, breakpoints of the gutter, steps; compared with what the subject says of itself."""

import contextlib
import json
import os
import platform
import re
import subprocess
import sys

import pytest
from harness.dap import GdbDap, dap, gdbs_that_speak_dap
from harness.gdb_run import ROOT
from harness.subjects import SUBJECTS, spawned

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="debug registers of x86-64")
FILE = os.path.join(SUBJECTS, "editor.py")
with open(FILE) as _f:
    LINES = {m.group(1): i for i, line in enumerate(_f, 1) for m in [re.search(r"# LINE (\w+)$", line)] if m}


class Editor:
    """What a person does in an editor."""

    def __init__(self, client, subject):
        self.client, self.subject = client, subject
        self.truth = json.loads(subject.said) if subject is not None else {}

    def gutter(self, *wanted, path=FILE):
        """Sets the breakpoints of a file: (line's name, more) -> what the server says of each."""
        lines = [{"line": LINES.get(name, name), **dict(more)} for name, *more in wanted]
        return self.client.ask("setBreakpoints", source={"path": path}, breakpoints=lines)["breakpoints"]

    def attach(self, found, *wanted):
        """As VS Code: the breakpoints before there is a process."""
        self.client.ask("initialize", adapterID="gdb")
        attached = self.client.send("attach", **found)
        said = self.gutter(*wanted) if wanted else []
        self.client.ask("configurationDone")
        self.client.answer(attached)
        assert self.client.event("stopped")["reason"] == "attach"
        return said

    def set_by(self, number):
        """What the server says of a breakpoint once it is set."""
        while True:
            found = self.client.event("breakpoint")["breakpoint"]
            if found["id"] == number and found["verified"]:
                return found

    def go(self, rounds=None):
        if rounds is not None:
            self.subject.stdin.write(f"{rounds}\n")
            self.subject.stdin.flush()
        self.client.ask("continue", threadId=1)
        return self.client.event("stopped")

    def frames(self):
        return self.client.ask("stackTrace", threadId=1)["stackFrames"]

    def where(self):
        top = self.frames()[0]
        return top["name"], top["line"]

    def step(self, request):
        self.client.ask(request, threadId=1)
        assert self.client.event("stopped")["reason"] == "step"
        return self.where()

    def opened(self, reference, **more):
        return self.client.ask("variables", variablesReference=reference, **more)["variables"]

    def evaluate(self, expression, context, frame=None):
        frame = self.frames()[0]["id"] if frame is None else frame
        return self.client.ask("evaluate", expression=expression, frameId=frame, context=context)

    def refused(self, command, **arguments):
        with pytest.raises(AssertionError) as error:
            self.client.ask(command, **arguments)
        return str(error.value)

    def rest(self):
        """Lets it run on, and what it answers."""
        self.client.ask("continue", threadId=1)
        return json.loads(self.subject.stdout.readline())


def printed(pid, gdb):
    """The configuration of gdb's own DAP that `gdbext vscode` prints for a process."""
    words = [sys.executable, "-m", "gdbext", "vscode", "--gdb", gdb, str(pid)]
    said = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    (found,) = [c for c in json.loads(said.stdout)["configurations"] if c["type"] == "gdb"]
    return found


@contextlib.contextmanager
def attached(gdb, *wanted):
    """-> (Editor, what the server said of the breakpoints that it began with)."""
    with spawned([sys.executable, FILE], ready="{", bufsize=1) as subject:
        found = printed(subject.pid, gdb)
        client = GdbDap(found["debuggerPath"], ["-nx", "-iex", "set debuginfod enabled off", *found["debuggerArgs"]])
        try:
            editor = Editor(client, subject)
            yield editor, editor.attach(found, *wanted)
        finally:
            client.close()


@pytest.fixture(scope="module", params=range(len(os.environ.get("GDBEXT_TEST_GDB", "gdb").split(":"))))
def gdb(request):
    gdbs = gdbs_that_speak_dap()
    return gdbs[request.param] if request.param < len(gdbs) else pytest.skip("each gdb that speaks DAP once")


def test_frames_variables_and_threads_are_what_the_subject_says(gdb):
    with attached(gdb, ("call", ("condition", "number == 2"))) as (editor, _):
        threads = editor.client.ask("threads")["threads"]
        assert sorted(t["name"] for t in threads) == editor.truth["threads"]
        names = [f["name"] for f in editor.frames()]
        assert names[-2:] == ["main", "<module>"] and "Machine.turn" not in names
        stopped = editor.go(4)
        assert stopped["reason"] == "breakpoint" and stopped["threadId"] == 1
        found = [(f["name"], f["line"]) for f in editor.frames()]
        assert found[0] == ("Machine.turn", LINES["call"]) and found[-1][0] == "<module>", found
        local, outside = editor.client.ask("scopes", frameId=editor.frames()[0]["id"])["scopes"]
        rows = {row["name"]: row for row in editor.opened(local["variablesReference"])}
        assert sorted(rows) == ["number", "self"] and rows["number"]["value"] == "2"
        _compare(editor, rows["self"], editor.truth["self"], 3)
        assert {"LIMIT", "helper", "Machine"} <= {row["name"] for row in editor.opened(outside["variablesReference"])}


def _compare(editor, row, told, depth):
    """A row, and what opens below it, are what the subject says; its expression evaluates to the same."""
    whole = told["repr"].replace("\x1b", "\\x1b")
    assert row["value"] == whole or row["value"].endswith(("...", "...]", "...)", "...}")), (row, whole)
    assert row["type"] == told["type"] and (row["variablesReference"] > 0) == told["opens"], row
    if "evaluateName" in row:
        assert editor.evaluate(row["evaluateName"], "variables")["result"] == row["value"]
    if told["inside"] is None or not depth or not told["opens"]:
        return
    expected, found = list(told["inside"].items()), editor.opened(row["variablesReference"])
    while found[-1]["name"] == "…":  # the next page
        found += editor.opened(found.pop()["variablesReference"])
    assert [r["name"] for r in found] == [name for name, _ in expected]
    for one, (_, inner) in list(zip(found, expected))[:20]:
        _compare(editor, one, inner, depth - 1)


def test_expressions_in_each_context(gdb):
    with attached(gdb, ("after",)) as (editor, _):
        native = editor.frames()[0]["id"]
        assert editor.evaluate("1 + 1", "watch", native)["result"] == "2"  # gdb's own
        editor.go(1)
        for context in ("hover", "watch", "variables", "clipboard", "repl"):
            said = editor.evaluate("self.point.x + doubled", context)
            assert (said["result"], said["type"], said["variablesReference"]) == ("3", "int", 0)
        opens = editor.evaluate("self.parts['first'].tags", "hover")
        assert [r["value"] for r in editor.opened(opens["variablesReference"])] == ["'a part'", "'a part \\x1b[31m'"]
        frame = editor.frames()[0]["id"]
        assert "nosuch" in editor.refused("evaluate", expression="nosuch.x", frameId=frame, context="hover")
        outer = next(f["id"] for f in editor.frames() if f["name"] == "main")
        assert editor.evaluate("machine.point.y", "watch", outer)["result"] == "-4"
        # the console: what gdb knows as a command is gdb's, and ours act in the selected frame
        editor.client.repl("set style enabled off")
        assert "number = 0" in editor.evaluate("pylocals", "repl")["result"]
        assert "machine = " in editor.evaluate("pylocals", "repl", outer)["result"]
        assert editor.evaluate("len(self.many)", "repl")["result"] == "1000"
        assert "$1 = 3" in editor.evaluate("print 1+2", "repl")["result"]
        # nothing is written
        local = editor.client.ask("scopes", frameId=frame)["scopes"][0]["variablesReference"]
        assert "never written" in editor.refused("setVariable", variablesReference=local, name="number", value="7")
        assert "never written" in editor.refused("setExpression", expression="number", value="7", frameId=frame)
        editor.gutter()
        assert editor.rest() == [7]
        with_old = editor.refused("variables", variablesReference=local)
        assert "notStopped" in with_old or "has run since" in with_old


def test_breakpoints_of_the_gutter_are_set_moved_and_removed(gdb):
    with attached(gdb, ("call", ("condition", "number == 2")), ("helper", ("hitCondition", "5"))) as (editor, said):
        assert [b["verified"] for b in said] == [False, False] and len({b["id"] for b in said}) == 2
        changed = [editor.client.event("breakpoint")["breakpoint"] for _ in said]
        assert {b["id"]: (b["verified"], b["line"]) for b in changed} == {
            said[0]["id"]: (True, LINES["call"]),
            said[1]["id"]: (True, LINES["helper"]),
        }
        assert editor.go(9)["hitBreakpointIds"] == [said[0]["id"]]
        assert editor.evaluate("number", "watch")["result"] == "2"
        assert editor.go()["hitBreakpointIds"] == [said[1]["id"]]  # from the fifth pass on
        assert editor.evaluate("value", "watch")["result"] == "4"
        kept, moved = editor.gutter(("helper", ("hitCondition", "5")), ("return",))
        assert kept["id"] == said[1]["id"] and moved["verified"] and moved["line"] == LINES["return"]
        assert editor.go()["hitBreakpointIds"] == [moved["id"]] and editor.where() == ("Machine.turn", LINES["return"])
        assert editor.go()["hitBreakpointIds"] == [kept["id"]]
        bad, good = editor.gutter(("return", ("condition", "1 +")), ("after", ("logMessage", "of {number}: {doubled}")))
        assert not bad["verified"] and "condition" in bad["message"] and good["verified"]
        assert editor.gutter(("return", ("hitCondition", "many")))[0]["message"].startswith("hit count")
        (logged,) = editor.gutter(("after", ("logMessage", "of {number}: {doubled}")))
        assert logged["verified"] and editor.rest() == [7 + 2 * n for n in range(9)]
        texts = ""
        while "of 8: 16" not in texts:
            texts += editor.client.event("output")["output"]
        assert "of 5: 10" in texts and "of 4" not in texts
        # while it runs: what goes stops nothing more, what comes is set at the next stop
        (waits,) = editor.gutter(("return",))
        assert not waits["verified"] and "pause it once" in waits["message"]
        editor.client.ask("pause", threadId=1)
        assert editor.client.event("stopped")["reason"] == "pause"
        assert editor.set_by(waits["id"])["line"] == LINES["return"]
        assert editor.go(1)["hitBreakpointIds"] == [waits["id"]]
        assert editor.rest() == [7] and editor.gutter() == []
        editor.subject.stdin.write("2\n")
        assert json.loads(editor.subject.stdout.readline()) == [7, 9]
        editor.client.ask("pause", threadId=1)
        editor.client.event("stopped")
        assert "no Python breakpoints" in editor.client.repl("pybreak")


def test_steps_go_by_lines_of_python(gdb):
    with attached(gdb, ("call",)) as (editor, _):
        editor.go(1)
        assert editor.step("next") == ("Machine.turn", LINES["after"])
        assert editor.step("next") == ("Machine.turn", LINES["return"])
        editor.gutter(("helper",))
        editor.subject.stdin.write("1\n")
        editor.client.ask("continue", threadId=1)
        assert editor.client.event("stopped")["reason"] == "breakpoint" and editor.where() == ("helper", LINES["helper"])
        assert editor.step("stepOut") == ("Machine.turn", LINES["call"])
        told = ""
        while "returned 0" not in told:
            told += editor.client.event("output")["output"]
        assert editor.step("next") == ("Machine.turn", LINES["after"])
        editor.gutter(("return",))
        editor.client.ask("next", threadId=1)  # onto a breakpoint
        assert editor.client.event("stopped")["reason"] in ("breakpoint", "step") and editor.where()[1] == LINES["return"]
        editor.gutter(("call",))
        editor.subject.stdin.write("1\n")
        editor.go()
        assert editor.where() == ("Machine.turn", LINES["call"])
        assert editor.step("stepIn") == ("helper", LINES["helper"])
        # a step that cannot begin says why, and the client is not left waiting
        editor.gutter(("call",), ("after",), ("return",), ("helper",))
        editor.client.ask("next", threadId=1)
        assert editor.client.event("stopped")["reason"] == "step" and editor.where() == ("helper", LINES["helper"])
        editor.gutter()
        assert json.loads(editor.subject.stdout.readline()) == [7] and editor.rest() == [7]


def test_a_step_that_waits_for_the_world_can_be_paused(gdb):
    with attached(gdb, ("return",)) as (editor, _):
        editor.go(1)
        editor.gutter()
        while editor.step("next") != ("main", LINES["rounds"] - 1):
            pass
        editor.client.ask("next", threadId=1)  # onto the next line of stdin, which does not come
        state = ""
        while state != "S":  # it runs, and waits
            with open(f"/proc/{editor.subject.pid}/stat") as f:
                state = f.read().rpartition(") ")[2][0]
        editor.client.ask("pause", threadId=1)
        assert editor.client.event("stopped")["reason"] == "pause"
        editor.subject.stdin.write("1\n")
        assert editor.step("next") == ("main", LINES["rounds"])


def test_a_step_from_native_code_whose_source_is_not_here_ends_in_python(gdb):
    """The process waits in the C library when it is attached to: `next` goes to the next line of Python that runs."""
    with attached(gdb) as (editor, _):
        assert editor.where()[0] not in ("main", "<module>")
        editor.subject.stdin.write("1\n")
        assert editor.step("next") == ("main", LINES["rounds"])
        assert editor.rest() == [7]


def test_whatever_of_ours_fails_leaves_gdbs_answer(gdb):
    with spawned([sys.executable, FILE], ready="{", bufsize=1) as subject:
        client = dap(gdb)
        try:
            editor = Editor(client, subject)
            editor.attach({"pid": subject.pid}, ("call",))
            for name in ("names_for", "Variable", "shown_name", "_steps_in_python"):
                client.repl(f"python import gdbext.dap.requests as r; r.{name} = None")
            client.repl("python import gdbext.dap.breakpoints as b; b.Where = b.descriptor = None")
            assert editor.go(1)["threadId"] == 1
            assert {t["id"] for t in client.ask("threads")["threads"]} == {1, 2, 3}
            top = editor.frames()[0]
            assert top["name"] == "Machine.turn" and client.ask("scopes", frameId=top["id"])["scopes"]
            assert client.ask("setBreakpoints", source={"path": FILE}, breakpoints=[{"line": 3}])["breakpoints"][0]["id"]
            said = ""
            while "no Python in setBreakpoints" not in said:
                said += client.event("output")["output"]
            assert "no Python in scopes" in said
        finally:
            client.close()


def test_a_breakpoint_waits_for_a_process_that_the_editor_starts(gdb, tmp_path):
    """As `gdbext vscode -launch` prints it; the breakpoint comes before the process, or while that has not come to Python."""
    words = [
        sys.executable,
        "-m",
        "gdbext",
        "vscode",
        "--gdb",
        gdb,
        "-launch",
        sys.executable,
        os.path.join(SUBJECTS, "family.py"),
    ]
    said = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    (found,) = [c for c in json.loads(said.stdout)["configurations"] if c["type"] == "gdb"]
    path = found["args"][0]
    with open(path) as f:
        line = next(i for i, text in enumerate(f, 1) if "LINE step" in text)
    for entry in (True, False):
        client = GdbDap(found["debuggerPath"], ["-nx", "-iex", "set debuginfod enabled off", *found["debuggerArgs"]])
        try:
            editor = Editor(client, None)
            client.ask("initialize", adapterID="gdb")
            launch = client.send("launch", **{**found, "cwd": str(tmp_path), "stopOnEntry": entry})
            (waits,) = editor.gutter((line, ("condition", "n == 9")), path=path)
            assert not waits["verified"]
            client.ask("configurationDone")
            client.answer(launch)
            if entry:
                client.event("stopped")
                client.ask("continue", threadId=1)
            assert client.event("stopped")["hitBreakpointIds"] == [waits["id"]]
            assert editor.where()[1] == line and editor.evaluate("n", "hover")["result"] == "9"
        finally:
            client.close()


def test_a_file_that_is_not_pythons_is_gdbs(gdb):
    with attached(gdb) as (editor, _):
        (said,) = editor.gutter((3,), path="/nowhere/native.cpp")
        assert not said["verified"] and "pybreak" not in editor.client.repl("info breakpoints")
