"""llm-report: one page about an engine's state, to attach to a bug."""

from __future__ import annotations

import os

from ..answers.places import closing
from ..answers.report import make_report
from ..api import choosing
from ..render import files
from ..render.text import Style, size
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.session import Session


class LlmReport(Command):
    """Write one page about a running engine: verdict, ranks, stacks as a tree, locks, KV summary, versions.

    The page needs no network and no other file; everything in it that comes from a process is escaped. It holds no prompts, no
    tokens, no values of variables, no command lines and no environment, so it can go into a bug report. Every process runs on.

      (gdb) llm-report hang.html all
      hang.html  31.2 KiB  verdict: collective
      paused: TP0 1.40 ms, …; all resumed

    The first word is the file, WHAT after it as for llm-stacks."""

    name = "llm-report"
    copies = 1
    group = "hang"
    operand = "F.html [WHAT...]"
    completion = "file"
    takes_target = False
    standalone = True
    options = (
        Option("wait", "float", "seconds to watch before the stop, as for llm-hang", 1.0, "S"),
        Option("force", help="replace a file that is there"),
    )

    def run(self, session: Session, args: Args) -> Answer:
        path, _, what = args.operand_text.partition(" ")
        if not path or path.isdigit():
            raise UsageError("llm-report: name the file to write, such as: llm-report hang.html all")
        files.may_write(path, "llm-report", args.force)
        found = choosing.resolve_processes(session, what.strip())
        page, data, views = make_report(found, session.targets, args.wait)
        files.write(path, "llm-report", page, args.force)
        data["file"] = os.path.abspath(os.path.expanduser(path))
        data["bytes"] = os.path.getsize(data["file"])
        partial = [f"{data['ranks_read']} of {data['ranks_total']} processes"] if data["failed"] else []

        def text(style: Style) -> str:
            head = f"{style.file(data['file'])}  {size(data['bytes'])}  verdict: {data['verdict']}"
            return "\n".join([head, *closing(data, {v.pid: v.name for v in views if v.pid is not None}, style)])

        return Answer(data, text, partial)
