"""llm-inject: opens a debugger that people use inside a rank that is already running."""

import json
import os

from ..errors import GdbextError
from ..render.text import escape
from .base import Answer, Command, Option, UsageError
from .pybreak import control


class LlmInject(Command):
    """Run debugpy, pdb, faulthandler or a script inside a running rank (U: writes to the process and runs code in it; needs -unsafe).

    TOOL: debugpy (listens on a port; prints the configuration with which VS Code attaches), pdb (waits on a port for `nc`; the main thread
    stands still until then and while you talk), faulthandler (enabled, with a dump of all threads in a file), or PYFILE, a file that is
    run. WHAT is a pid or label. On CPython 3.14 and later by its own remote execution, attached or not; earlier by a call from gdb, so
    llm-attach it first. It runs in the main thread: refused with the reason when that is stuck in C, or gdb cannot call functions here.

        (gdb) llm-inject -unsafe faulthandler EngineCore
        faulthandler runs in EngineCore (pid 4242): dump of all threads in /tmp/gdbext-inject-x1/result.log
    """

    name = "llm-inject"
    group = "break"
    operand = "TOOL WHAT"
    completes = "what"
    reads = False
    resumes = True
    options = [
        Option("unsafe", help="yes, write to the process and run code in it"),
        Option("port", "int", "the port to listen on (default: any free one)", 0, metavar="N"),
        Option("timeout", "float", "seconds to wait for the main thread", 10.0, metavar="S"),
    ]

    def run(self, session, args):
        control(session)
        from ..control import inject

        tool, _, what = args.rest.partition(" ")
        if not what.strip():
            raise UsageError("llm-inject: takes a tool and a process: llm-inject -unsafe faulthandler TP0")
        body = self.body(inject, tool)
        found = [getattr(one, "pid", one) for one in session.resolve(what.strip())]
        if any(not isinstance(pid, int) for pid in found):
            raise GdbextError(f"{what.strip()} is a core file: nothing runs in it")
        if not args.unsafe:
            raise GdbextError("writes to the process and runs code in its main thread: add -unsafe if that is what you want")
        started = [{"pid": pid, "tool": tool, **inject.run(pid, body, args.port, args.timeout)} for pid in found]
        failed = [f"{s['tool']} in process {s['pid']}: {s['error']}" for s in started if s.get("ok") is False]
        if failed and len(failed) == len(started):
            raise GdbextError("; ".join(escape(f) for f in failed))
        data = {"started": started, "port": started[0].get("port")}
        return Answer(data, "\n".join(told(s) for s in started), failed)

    @staticmethod
    def body(inject, tool):
        if tool in inject.TOOLS:
            return inject.TOOLS[tool]
        if not os.path.isfile(tool):
            raise GdbextError(f"{tool} is none of {', '.join(inject.TOOLS)} and no file")
        with open(tool, encoding="utf-8") as f:
            text = f.read()
        return f"exec(compile({text!r}, {os.path.abspath(tool)!r}, 'exec'), {{'__name__': '__gdbext__'}})\n"


def told(said):
    """What came of one, in words."""
    head = f"{escape(said['tool'])} runs in process {said['pid']}"
    if said.get("ok") is None:
        return f"{escape(said['tool'])} is set in process {said['pid']}: {said['waits']}"
    if said.get("file"):
        return head + f": dump of all threads in {escape(said['file'])}"
    if said["tool"] == "debugpy":
        attach = {"name": f"gdbext {said['pid']}", "type": "debugpy", "request": "attach", "connect": {"host": "127.0.0.1", "port": said["port"]}, "justMyCode": False}
        return head + f": port {said['port']}\n" + json.dumps(attach)
    if said["tool"] == "pdb":
        return head + f": nc 127.0.0.1 {said['port']} (its main thread waits for it)"
    return head
