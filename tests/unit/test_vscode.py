"""The launch.json that `python -m gdbext vscode` prints: what each debugger's extension asks for, one of each kind for every
rank."""

import json
import os

import pytest

from gdbext.errors import GdbextError
from gdbext.setup import vscode
from gdbext.setup.gdbs import Gdb

ASKED = {  # type -> the attributes of an attach that its extension knows
    "cppdbg": {"processId", "program", "MIMode", "miDebuggerPath", "setupCommands"},
    "gdb": {"pid", "program", "debuggerPath", "debuggerArgs"},
    "cuda-gdb": {"processId", "program", "debuggerPath", "initCommands"},
    "debugpy": {"connect", "justMyCode"},
}
ON = "enable frame-filter global gdbext-python"


def a_gdb(version=(17, 2), python=(3, 11), path="/usr/bin/gdb"):
    return Gdb(path, f"GNU gdb {version}", version, python, "")


def test_each_rank_by_each_debugger(monkeypatch):
    monkeypatch.setattr(vscode, "ranks", lambda what: [("TP0", 41, "/usr/bin/python3"), ("TP1", 42, "/usr/bin/python3")])
    said = json.loads(vscode.configurations(a_gdb(), "/opt/cuda/bin/cuda-gdb", "all"))
    attaches = [c for c in said["configurations"] if c["request"] == "attach"]
    assert [c["type"] for c in attaches] == list(ASKED) * 2 and len({c["name"] for c in attaches}) == 8
    for one in attaches:
        assert set(one) == ASKED[one["type"]] | {"name", "type", "request"}
    assert [c["connect"]["port"] for c in attaches if c["type"] == "debugpy"] == [5678, 5679]
    assert attaches[7]["name"] == "gdbext: TP1, debugpy, after llm-inject -unsafe -port 5679 debugpy TP1"
    assert (attaches[4]["processId"], attaches[5]["pid"], attaches[6]["processId"]) == ("42", 42, "42")
    (core,) = [c for c in said["configurations"] if c["request"] == "launch"]
    assert core["coreDumpPath"] == "${input:core}" and said["inputs"][0]["id"] == "core"


@pytest.mark.parametrize("command", [(), ("python3", "serve.py"), ("python3 serve.py",)])
@pytest.mark.parametrize("cuda", ["cuda-gdb", ""])
@pytest.mark.parametrize("version, python, dap", [((13, 1), (3, 11), False), ((14, 1), None, False), ((14, 1), (3, 11), True)])
def test_only_what_that_gdb_can_do_is_printed(version, python, dap, cuda, command):
    said = json.loads(vscode.configurations(a_gdb(version, python), cuda, command=command, pick=True))["configurations"]
    assert [c["type"] for c in said] == ["cppdbg", *["gdb"] * dap, *["cuda-gdb"] * bool(cuda), "debugpy", "cppdbg"]
    assert not command or said[0]["args"] == ["serve.py"]
    for one in said:
        commands = [c["text"] for c in one.get("setupCommands", ())] + one.get("debuggerArgs", []) + one.get("initCommands", [])
        ours = [n for n, text in enumerate(commands) if text.startswith("source ")]
        if one["type"] == "debugpy" or python is None and one["type"] == "cppdbg":
            assert not ours and ON not in commands
        else:
            assert len(ours) == 1 and commands.index(ON) > ours[0]  # what the pack declares is enabled after it is loaded
        assert ("-enable-frame-filters" in commands) == (one["type"] == "cppdbg" and python is not None)


def test_a_process_by_its_pid_and_what_is_none():
    assert vscode.ranks(str(os.getpid())) == [(str(os.getpid()), os.getpid(), os.readlink("/proc/self/exe"))]
    with pytest.raises(GdbextError, match="nosuch"):
        vscode.ranks("nosuch")
    with pytest.raises(GdbextError, match="is a core file"):
        vscode.ranks(__file__)


def test_a_path_that_the_editor_would_take_for_a_command_is_refused(monkeypatch):
    monkeypatch.setattr(os, "readlink", lambda path: "/tmp/${command:workbench.action.terminal.new}/python3")
    with pytest.raises(GdbextError, match="for a command of its own"):
        vscode.ranks(str(os.getpid()))


def test_the_picker_asks_for_the_pid():
    said = json.loads(vscode.configurations(a_gdb(path="gdb"), "cuda-gdb", pick=True))
    pids = [c.get("processId", c.get("pid")) for c in said["configurations"] if c["type"] in ("cppdbg", "gdb", "cuda-gdb")]
    assert pids == ["${command:pickProcess}", "${command:pickProcess}", "${command:cuda.pickProcess}", None]


@pytest.mark.parametrize(
    "command, program, args",
    [
        (["python3", "serve.py", "--tp", "2"], {"program": "serve.py"}, ["--tp", "2"]),
        (["python3", "-m", "engine.server", "--port", "1"], {"module": "engine.server"}, ["--port", "1"]),
    ],
)
def test_an_engine_is_started_by_each_debugger(command, program, args):
    said = json.loads(vscode.configurations(a_gdb(), "cuda-gdb", command=command))
    native, dap, nsight, debugpy, core = said["configurations"]
    assert [c["request"] for c in said["configurations"]] == ["launch"] * 5 and core["name"].endswith("a core")
    assert (
        native["program"] == debugpy["python"]
        and native["args"] == dap["args"] == command[1:]
        and nsight["args"] == " ".join(command[1:])
    )
    assert "source" in " ".join(dap["debuggerArgs"]) and debugpy["subProcess"] is True
    assert {**debugpy, **program} == debugpy and debugpy["args"] == args


def test_a_start_script_is_given_to_python(tmp_path):
    script = tmp_path / "serve"
    script.write_text("#!/usr/bin/python3\n")
    script.chmod(0o755)
    said = json.loads(vscode.configurations(a_gdb(path="gdb"), "cuda-gdb", command=[str(script), "serve", "a model"]))[
        "configurations"
    ]
    assert said[0]["program"] == vscode.PYTHON and said[0]["args"] == [str(script), "serve", "a model"]
    assert (
        said[2]["args"].endswith("serve 'a model'")
        and said[3]["program"] == str(script)
        and said[3]["args"] == ["serve", "a model"]
    )
    with pytest.raises(GdbextError, match="there is no program 'no-such-engine'"):
        vscode.configurations(a_gdb(path="gdb"), "cuda-gdb", command=["no-such-engine serve a"])
