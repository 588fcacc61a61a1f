"""llm-inject: opens a debugger that people use inside a rank that is already running."""

from __future__ import annotations

import os
from typing import Any

from ..control import injected_scripts
from ..errors import GdbextError
from ..render import jsonline
from ..render.fields import FLAG, NUMBER, TEXT, VALUE, Field, Fields, each
from ..render.text import escape
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.gdb_only import require_gdb
from ..session.session import Session

STARTED = Fields(
    *each(NUMBER, "pid"),
    *each(TEXT, "label tool"),
    Field("ok", FLAG, "null: it has not ended yet"),
    Field("waits", str, "for what"),
    *each(NUMBER, "port"),
    *each(TEXT, "file error"),
    rest=(bool, list, dict, *VALUE),
)


class LlmInject(Command):
    """Run debugpy, pdb, faulthandler or a script inside a running rank (U: runs code in the process; needs -unsafe).

    TOOL: debugpy (listens on a port of each rank; prints the configuration with which VS Code attaches), pdb (waits on a port for
    `nc`; the main thread runs until you connect and waits while you talk; quit lets it run on), faulthandler (enabled,
    with a dump of all threads in a file), or PYFILE, a file that is run. On CPython 3.14 and later by its own remote execution,
    attached or not; earlier by a call from gdb, so llm-attach it first. It runs in the main thread: refused with the reason when
    that is stuck in C, or gdb cannot call functions here. Where the engine's environment has no debugpy: pip install --target
    FOLDER debugpy, and add -path FOLDER.

        (gdb) llm-attach TP0
        (gdb) llm-inject -unsafe debugpy TP0
        debugpy runs in TP0 (pid 4242): port 36867; for launch.json:
        {"name": "gdbext TP0", "type": "debugpy", "request": "attach", "connect": {"host": "127.0.0.1", "port": 36867}, …}
        (gdb) llm-detach
    """

    name = "llm-inject"
    group = "break"
    fields = Fields(
        Field("started", [STARTED]),
        Field("port", NUMBER, "of the first"),
    )
    operand = "TOOL WHAT"
    completion = "what"
    takes_target = False
    resumes = True
    options = [
        Option("unsafe", help="yes, write to the process and run code in it"),
        Option("port", "int", "the port to listen on, N+1 in the second rank, ... (default: any free one)", 0, metavar="N"),
        Option("path", "str", "a folder with modules, searched after the engine's own", metavar="FOLDER", repeat=True),
        Option("timeout", "float", "seconds to wait for the main thread, and for the script", 10.0, metavar="S"),
    ]

    def run(self, session: Session, args: Args) -> Answer:
        inject = require_gdb(session, "inject")
        tool, _, what = args.operand_text.partition(" ")
        if not what.strip():
            raise UsageError("llm-inject: takes a tool and a process: llm-inject -unsafe faulthandler TP0")
        body = self.body(tool)
        found = [(one.pid, one.label) for one in session.resolve(what.strip())]
        if any(pid is None for pid, _ in found):
            raise GdbextError(f"{what.strip()} is a core file: nothing runs in it")
        if not args.unsafe:
            raise GdbextError("writes to the process and runs code in its main thread: add -unsafe if that is what you want")
        paths = [os.path.abspath(folder) for folder in args.path]
        started: list[dict[str, Any]] = []
        failed: list[str] = []
        for number, (pid, label) in enumerate(found):
            one: dict[str, Any] = {"pid": pid, "label": label, "tool": tool}
            try:
                one.update(inject.run(pid, body, args.port and args.port + number, args.timeout, paths))
                reason = one["error"] if one["ok"] is False else ""
            except GdbextError as e:
                reason = str(e)
            if reason:
                failed.append(f"{tool} in {name_of(one)}: {reason}" if reason == one.get("error") else reason)
            else:
                started.append(one)
        if not started:
            raise GdbextError("; ".join(escape(f) for f in failed))
        return Answer(
            self.fields.of(started=started, port=started[0].get("port")),
            "\n".join(result_text(s) for s in started),
            [escape(f) for f in failed],
        )

    @staticmethod
    def body(tool: str) -> str:
        """The Python that a TOOL stands for."""
        if tool in injected_scripts.TOOLS:
            return injected_scripts.TOOLS[tool].strip()
        if not os.path.isfile(tool):
            raise GdbextError(f"{tool} is none of {', '.join(injected_scripts.TOOLS)} and no file")
        with open(tool, encoding="utf-8") as f:
            text = f.read()
        return f"exec(compile({text!r}, {os.path.abspath(tool)!r}, 'exec'), {{'__name__': '__gdbext__'}})\n"


def name_of(said: dict[str, Any]) -> str:
    return f"{escape(said['label'])} (pid {said['pid']})" if said["label"] else f"process {said['pid']}"


def attach_configuration(name: str | int, port: int) -> dict[str, Any]:
    """What VS Code's launch.json takes to connect to a debugpy."""
    return {
        "name": f"gdbext {name}",
        "type": "debugpy",
        "request": "attach",
        "connect": {"host": "127.0.0.1", "port": port},
        "justMyCode": False,
    }


def result_text(said: dict[str, Any]) -> str:
    """What came of one, in words."""
    head = f"{escape(said['tool'])} runs in {name_of(said)}"
    if said.get("ok") is None:
        return f"{escape(said['tool'])} is set in {name_of(said)}: {escape(said['waits'])}"
    if said.get("file"):
        return head + f": dump of all threads in {escape(said['file'])}"
    if said["tool"] == "debugpy":
        return (
            head
            + f": port {said['port']}; for launch.json:\n"
            + jsonline.dumps(attach_configuration(said["label"] or said["pid"], said["port"]))
        )
    if said["tool"] == "pdb":
        return head + f": nc 127.0.0.1 {said['port']} (its main thread runs until you connect)"
    return head
