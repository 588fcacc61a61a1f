"""`python -m gdbext vscode`: what to put into VS Code's launch.json."""

import json

from .install import INIT


def launch(gdb):
    """The text of a launch.json with configurations for attaching to a rank and for opening a core, in gdb at path `gdb`.

    `type` cppdbg is the one of Microsoft's C/C++ extension; gdb's commands are typed in its debug console after `-exec `.
    """
    load = [
        {"description": "libraries are loaded as the stacks need them: an engine has hundreds", "text": "set auto-solib-add off"},
        {"description": "gdbext's commands", "text": f"source {INIT}"},
    ]
    common = {"type": "cppdbg", "MIMode": "gdb", "miDebuggerPath": gdb, "program": "${command:python.interpreterPath}",
              "setupCommands": load}
    return json.dumps({"version": "0.2.0", "configurations": [
        {"name": "gdbext: attach to a rank", "request": "attach", "processId": "${command:pickProcess}", **common},
        {"name": "gdbext: open a core", "request": "launch", "coreDumpPath": "${input:core}", "cwd": "${workspaceFolder}", **common},
    ], "inputs": [{"id": "core", "type": "promptString", "description": "core file"}]}, indent=2)
