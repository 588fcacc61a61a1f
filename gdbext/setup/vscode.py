"""`python -m gdbext vscode [WHAT]`: the configurations for VS Code's launch.json.

Their attributes are those of four debuggers:

* Microsoft's C/C++ extension (cppdbg)
* NVIDIA's Nsight Visual Studio Code Edition (cuda-gdb; its package.json)
* debugpy's extension (debugpy)
* gdb's own Debug Adapter Protocol (attach in gdb/python/lib/gdb/dap/launch.py). Editors that start `gdb -i=dap` themselves call
  this `type` gdb; debuggerPath and debuggerArgs say how.

Only configurations that this gdb supports are printed: DAP came with gdb 14, and without Python there are neither DAP nor
commands of ours."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import log
from ..access.permission import permission_hint
from ..commands.llm_inject import attach_configuration
from ..errors import GdbextError
from ..session.session import Session
from .unpack import init_script

if TYPE_CHECKING:
    from .gdbs import Gdb

PYTHON = "${command:python.interpreterPath}"  # VS Code fills it in
PORT = 5678  # debugpy's habit; the next rank's is one higher
LAZILY = ("libraries are loaded as the stacks need them: an engine has hundreds", "set auto-solib-add off")
FRAMES = ("Python frames in the call stack", "enable frame-filter global gdbext-python")
MI_FRAMES = ("the same for a front end that speaks MI", "-enable-frame-filters")
CORE = {"id": "core", "type": "promptString", "description": "core file"}


def commands() -> tuple[str, str]:
    """The step of gdb's start that loads the pack: its purpose, and the command."""
    return "gdbext's commands", f"source {init_script()}"


def load() -> list[tuple[str, str]]:
    """The steps of gdb's start before it attaches to an engine."""
    return [LAZILY, commands()]


def configurations(gdb: Gdb, cuda_gdb: str, what: str = "", command: Sequence[str] = (), pick: bool = False) -> str:
    """The text of a launch.json: for each rank that `what` names (every rank without it) the ways to attach, and one way to open
    a core. For a `command` that starts an engine there are ways to start it instead.

    `cuda_gdb`: a path, "" where there is none. `pick`, or no rank at all: VS Code's process picker asks for the pid.
    `GdbextError` where `what` or the command's program does not exist."""
    if command:
        found = start(gdb, cuda_gdb, command)
    else:
        named = [("a rank", None, PYTHON)] if pick else ranks(what)
        found = [c for number, (name, pid, exe) in enumerate(named) for c in attach(gdb, cuda_gdb, name, pid, exe, number)]
    core = {"request": "launch", "coreDumpPath": "${input:core}", "cwd": "${workspaceFolder}", **cppdbg(gdb, PYTHON)}
    found.append({"name": "gdbext: open a core", **core})
    return json.dumps({"version": "0.2.0", "configurations": found, "inputs": [CORE]}, indent=2)


def start(gdb: Gdb, cuda_gdb: str, command: Sequence[str]) -> list[dict[str, Any]]:
    """The configurations that start `command`, a program and its arguments.

    Debuggers of native code stop before the first line of Python. There the user can type `llm-follow on`, which keeps the
    processes that the engine starts, and set the first breakpoints. cppdbg and Nsight stop at `main` (not at all where the
    interpreter is stripped of that name), gdb's own DAP at the first instruction (gdb 15 and later; 14 goes on)."""
    if len(command) == 1 and shutil.which(command[0]) is None:
        command = shlex.split(command[0]) or command  # all of it in quotes
    program = shutil.which(command[0])
    if program is None:
        raise GdbextError(
            f"-launch: there is no program {command[0]!r} to start; give the engine's command line, such as: python3 serve.py"
        )
    with open(program, "rb") as f:
        script = f.read(2) == b"#!"  # pip's start scripts and pyenv's shims: debuggers need the real interpreter
    words, python = list(command[1:]), os.path.basename(command[0]).startswith("python")
    if script:
        words, program = (words if python else [program, *words]), PYTHON
    common = {"request": "launch", "args": words, "cwd": "${workspaceFolder}"}
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
    # auto-solib-add stays on: gdb finds by it where Python begins in each process
    steps = [commands()]
    found = [{"name": f"{name}, gdb", "stopAtEntry": True, **common, **cppdbg(gdb, program, steps)}]
    if gdb.speaks_dap:
        found.append({"name": f"{name}, gdb's own DAP", **common, **dap(gdb, program, steps), "stopOnEntry": True})
    nsight = {"initCommands": [commands()[1], FRAMES[1]], "stopAtEntry": True, "args": " ".join(map(shlex.quote, words))}
    if cuda_gdb:
        found.append(
            {"name": f"{name}, Nsight", "type": "cuda-gdb", "program": program, "debuggerPath": cuda_gdb, **common, **nsight}
        )
    return [*found, {"name": f"{name}, debugpy with its subprocesses", **debugpy}]


def ranks(what: str) -> list[tuple[str, int | None, str]]:
    """`[(name, pid, path of the executable)]`. Where `what` is empty and no engine runs, it is one rank, for whose pid VS Code
    asks."""
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


def attach(gdb: Gdb, cuda_gdb: str, name: str, pid: int | None, exe: str, number: int) -> list[dict[str, Any]]:
    """The configurations of one rank."""
    port = PORT + number
    inject = f"llm-inject -unsafe -port {port} debugpy {name if pid else 'RANK'}"
    picked = str(pid) if pid else "${command:pickProcess}"
    found = [{"name": f"gdbext: {name}, gdb", "request": "attach", "processId": picked, **cppdbg(gdb, exe)}]
    if gdb.speaks_dap:
        found.append(
            {"name": f"gdbext: {name}, gdb's own DAP", "request": "attach", "pid": pid or picked, **dap(gdb, exe, load())}
        )
    if cuda_gdb:
        found.append(
            {
                "name": f"gdbext: {name}, Nsight",
                "type": "cuda-gdb",
                "request": "attach",
                "processId": str(pid) if pid else "${command:cuda.pickProcess}",
                "program": exe,
                "debuggerPath": cuda_gdb,
                "initCommands": [text for _, text in [*load(), FRAMES]],
            }
        )
    return [*found, {**attach_configuration(name, port), "name": f"gdbext: {name}, debugpy, after {inject}"}]


def cppdbg(gdb: Gdb, program: str, setup: Sequence[tuple[str, str]] | None = None) -> dict[str, Any]:
    """The common part of every configuration of that type. gdb's commands are typed in its debug console after `-exec `. `setup`:
    the steps of gdb's start, `load()` where None; none of ours in a gdb without Python, which can load no pack."""
    steps = [*(load() if setup is None else setup), FRAMES, MI_FRAMES] if gdb.python else [LAZILY]
    setup_commands = [{"description": why, "text": text} for why, text in steps]
    return {"type": "cppdbg", "MIMode": "gdb", "miDebuggerPath": gdb.path, "program": program, "setupCommands": setup_commands}


def dap(gdb: Gdb, program: str, setup: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The common part of every configuration of gdb's own DAP; `setup`: the steps of gdb's start."""
    words = [word for _, text in [*setup, FRAMES] for word in ("-iex", text)]
    return {"type": "gdb", "program": program, "debuggerPath": gdb.path, "debuggerArgs": ["-i=dap", *words]}
