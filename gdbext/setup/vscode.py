"""`python -m gdbext vscode [WHAT]`: what to put into VS Code's launch.json.

Attributes: Microsoft's C/C++ extension (cppdbg), NVIDIA's Nsight Visual Studio Code Edition (cuda-gdb; its package.json),
debugpy's extension (debugpy), and gdb's own Debug Adapter Protocol (attach in gdb/python/lib/gdb/dap/launch.py; `type` gdb is
what editors call it that start `gdb -i=dap` themselves: debuggerPath and debuggerArgs say how)."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Sequence
from typing import Any

from .. import log
from ..access.permission import permission_hint
from ..commands.llm_inject import attach_configuration
from ..errors import GdbextError
from ..session.session import Session
from .unpack import init_script

PYTHON = "${command:python.interpreterPath}"  # VS Code fills it in
PORT = 5678  # debugpy's habit; the next rank's is one higher
CORE = {"id": "core", "type": "promptString", "description": "core file"}


def commands() -> tuple[str, str]:
    """The step of gdb's start that loads the pack: what it is for, and the command."""
    return "gdbext's commands", f"source {init_script()}"


def load() -> list[tuple[str, str]]:
    """The steps of gdb's start before it attaches to an engine."""
    return [("libraries are loaded as the stacks need them: an engine has hundreds", "set auto-solib-add off"), commands()]


def configurations(gdb: str, cuda_gdb: str, what: str = "", command: Sequence[str] = (), pick: bool = False) -> str:
    """The text of a launch.json: for each rank that `what` names (every one for nothing) four ways to attach, and one to open a
    core; for a `command` that starts an engine four ways to start it instead.

    `gdb`, `cuda_gdb`: paths. `pick`, or without any rank: VS Code's process picker asks for the pid. `GdbextError` where `what`
    or the command's program is not there."""
    if command:
        found = start(gdb, cuda_gdb, command)
    else:
        named = [("a rank", None, PYTHON)] if pick else ranks(what)
        found = [c for number, (name, pid, exe) in enumerate(named) for c in attach(gdb, cuda_gdb, name, pid, exe, number)]
    core = {"request": "launch", "coreDumpPath": "${input:core}", "cwd": "${workspaceFolder}", **cppdbg(gdb, PYTHON)}
    found.append({"name": "gdbext: open a core", **core})
    return json.dumps({"version": "0.2.0", "configurations": found, "inputs": [CORE]}, indent=2)


def start(gdb: str, cuda_gdb: str, command: Sequence[str]) -> list[dict[str, Any]]:
    """The four configurations that start `command`, a program and its arguments.

    Debuggers of native code stop before the first line of Python, so that `llm-follow on`, which keeps the processes that the
    engine starts, and the first breakpoints can be typed in their console: cppdbg and Nsight at `main` (not at all where the
    interpreter is stripped of that name), gdb's own DAP at the first instruction (gdb 15 and later; 14 goes on)."""
    program = shutil.which(command[0])
    if program is None:
        raise GdbextError(
            f"-launch: there is no program {command[0]!r} to start; give the engine's command line, such as: python3 serve.py"
        )
    with open(program, "rb") as f:
        script = f.read(2) == b"#!"  # pip's start scripts and pyenv's shims: debuggers want the interpreter behind them
    words, python = list(command[1:]), os.path.basename(command[0]).startswith("python")
    if script:
        words, program = (words if python else [program, *words]), PYTHON
    common = {"request": "launch", "args": words, "cwd": "${workspaceFolder}"}
    dap = ["-i=dap", "-iex", commands()[1]]  # auto-solib-add stays on: gdb finds by it where Python begins in each process
    name = f"gdbext: start {os.path.basename(command[0])}"
    debugpy = {"type": "debugpy", "justMyCode": False, "subProcess": True, **common}
    if python or script:
        debugpy["python"] = program
        if words[:1] == ["-m"] and len(words) > 1:
            debugpy.update(module=words[1], args=words[2:])
        else:
            debugpy.update(program=words[0] if words else "", args=words[1:])
    else:
        debugpy["program"] = program
    return [
        {"name": f"{name}, gdb", "stopAtEntry": True, **common, **cppdbg(gdb, program, [commands()])},
        {
            "name": f"{name}, gdb's own DAP",
            "type": "gdb",
            "program": program,
            "debuggerPath": gdb,
            "debuggerArgs": dap,
            "stopOnEntry": True,
            **common,
        },
        {
            "name": f"{name}, Nsight",
            "type": "cuda-gdb",
            "program": program,
            "debuggerPath": cuda_gdb,
            "initCommands": [commands()[1]],
            "stopAtEntry": True,
            **common,
            "args": " ".join(map(shlex.quote, words)),
        },
        {"name": f"{name}, debugpy with its subprocesses", **debugpy},
    ]


def ranks(what: str) -> list[tuple[str, int | None, str]]:
    """`[(name, pid, path of the executable)]`; one whose pid VS Code asks for where `what` is empty and no engine runs."""
    session = Session()
    try:
        found = session.resolve(what or "all")
    except GdbextError as e:
        log.passed_over(e)
        if what:
            raise
        return [("a rank", None, PYTHON)]
    answer: list[tuple[str, int | None, str]] = []
    for one in found:
        pid = one.pid
        if pid is None:
            raise GdbextError(f"{what} is a core file: the configuration that opens a core asks for its name")
        try:
            exe = os.readlink(f"/proc/{pid}/exe")
        except OSError:
            raise GdbextError(f"process {pid}: no permission to see its executable; {permission_hint(pid)}") from None
        if "${" in exe:  # ${command:NAME} runs NAME, and nothing quotes it
            raise GdbextError(
                f"process {pid}: VS Code would take a part of its executable's path for a command of its own: {exe!r}"
            )
        answer.append((one.name, pid, exe))
    return answer


def attach(gdb: str, cuda_gdb: str, name: str, pid: int | None, exe: str, number: int) -> list[dict[str, Any]]:
    """The four configurations of one rank."""
    first = [text for _, text in load()]
    port = PORT + number
    inject = f"llm-inject -unsafe -port {port} debugpy {name if pid else 'RANK'}"
    dap = ["-i=dap"] + [word for text in first for word in ("-iex", text)]
    return [
        {
            "name": f"gdbext: {name}, gdb",
            "request": "attach",
            "processId": str(pid) if pid else "${command:pickProcess}",
            **cppdbg(gdb, exe),
        },
        {
            "name": f"gdbext: {name}, gdb's own DAP",
            "type": "gdb",
            "request": "attach",
            "pid": pid or "${command:pickProcess}",
            "program": exe,
            "debuggerPath": gdb,
            "debuggerArgs": dap,
        },
        {
            "name": f"gdbext: {name}, Nsight",
            "type": "cuda-gdb",
            "request": "attach",
            "processId": str(pid) if pid else "${command:cuda.pickProcess}",
            "program": exe,
            "debuggerPath": cuda_gdb,
            "initCommands": first,
        },
        {**attach_configuration(name, port), "name": f"gdbext: {name}, debugpy, after {inject}"},
    ]


def cppdbg(gdb: str, program: str, setup: Sequence[tuple[str, str]] | None = None) -> dict[str, Any]:
    """What every configuration of that type holds. gdb's commands are typed in its debug console after `-exec `. `setup`: the
    steps of gdb's start, `load()` where None."""
    steps = load() if setup is None else setup
    setup_commands = [{"description": why, "text": text} for why, text in steps]
    return {"type": "cppdbg", "MIMode": "gdb", "miDebuggerPath": gdb, "program": program, "setupCommands": setup_commands}
