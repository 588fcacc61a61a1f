"""`python -m gdbext vscode [WHAT]`: what to put into VS Code's launch.json.

Attributes: Microsoft's C/C++ extension (cppdbg), NVIDIA's Nsight Visual Studio Code Edition (cuda-gdb; its package.json), debugpy's extension
(debugpy), and gdb's own Debug Adapter Protocol (attach in gdb/python/lib/gdb/dap/launch.py; `type` gdb is what editors call it that start
`gdb -i=dap` themselves: debuggerPath and debuggerArgs say how).
"""

import json
import os

from ..access.permission import permission_hint
from ..commands.llm_inject import attach_configuration
from ..errors import GdbextError
from ..session.session import Session
from .install import INIT

LOAD = [
    ("libraries are loaded as the stacks need them: an engine has hundreds", "set auto-solib-add off"),
    ("gdbext's commands", f"source {INIT}"),
]
PORT = 5678  # debugpy's habit; the next rank's is one higher
CORE = {"id": "core", "type": "promptString", "description": "core file"}


def launch(gdb, cuda_gdb, what=""):
    """The text of a launch.json: for each rank that `what` names (every one for nothing) four ways to attach, and one to open a core.

    `gdb`, `cuda_gdb`: paths. Without any rank: the same with VS Code's process picker."""
    found = ranks(what)
    configurations = [c for number, (name, pid, exe) in enumerate(found) for c in attach(gdb, cuda_gdb, name, pid, exe, number)]
    configurations.append(
        {
            "name": "gdbext: open a core",
            "request": "launch",
            "coreDumpPath": "${input:core}",
            "cwd": "${workspaceFolder}",
            **cppdbg(gdb, "${command:python.interpreterPath}"),
        }
    )
    return json.dumps({"version": "0.2.0", "configurations": configurations, "inputs": [CORE]}, indent=2)


def ranks(what):
    """`[(name, pid, path of the executable)]`; one whose pid VS Code asks for where `what` is empty and no engine runs."""
    session = Session()
    try:
        found = session.resolve(what or "all")
    except GdbextError:
        if what:
            raise
        return [("a rank", None, "${command:python.interpreterPath}")]
    answer = []
    for one in found:
        pid = getattr(one, "pid", one)
        if not isinstance(pid, int):
            raise GdbextError(f"{what} is a core file: the configuration that opens a core asks for its name")
        try:
            answer.append((getattr(one, "label", "") or str(pid), pid, os.readlink(f"/proc/{pid}/exe")))
        except OSError:
            raise GdbextError(f"process {pid}: no permission to see its executable; {permission_hint(pid)}") from None
    return answer


def attach(gdb, cuda_gdb, name, pid, exe, number):
    """The four configurations of one rank."""
    commands = [text for _, text in LOAD]
    port = PORT + number
    inject = f"llm-inject -unsafe -port {port} debugpy {name if pid else 'RANK'}"
    dap = ["-i=dap"] + [word for text in commands for word in ("-iex", text)]
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
            "initCommands": commands,
        },
        {**attach_configuration(name, port), "name": f"gdbext: {name}, debugpy, after {inject}"},
    ]


def cppdbg(gdb, program):
    """What every configuration of that type holds. gdb's commands are typed in its debug console after `-exec `."""
    setup = [{"description": why, "text": text} for why, text in LOAD]
    return {"type": "cppdbg", "MIMode": "gdb", "miDebuggerPath": gdb, "program": program, "setupCommands": setup}
