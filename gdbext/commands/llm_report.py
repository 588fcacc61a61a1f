"""llm-report: one page about an engine's state, to attach to a bug."""

from __future__ import annotations

import os
import time

from ..answers import hang
from ..answers.places import closing
from ..answers.report import make_report
from ..api import choosing
from ..api.verdicts import of_bundles
from ..render import files
from ..render.fields import Field, Fields
from ..render.text import Style, size
from ..session.command import Answer, Args, Command, Option
from ..session.session import Session

PAGES = (".html", ".htm")


class LlmReport(Command):
    """Write one page about a running engine: verdict, ranks, stacks as a tree, locks, KV summary, versions.

    The page needs no network and no other file; everything in it that comes from a process is escaped. It holds no prompts, no
    tokens, no values of variables, no command lines and no environment, so it can go into a bug report. Every process runs on.

      (gdb) llm-report -o hang.html all
      hang.html  31.2 KiB  verdict: collective
      paused: TP0 1.40 ms, …; all resumed

    Of bundles and boxes it is about what was seen when they were made: llm-report hang.html ./A.gdbext ./B.gdbext

    Without -o a first or last word that ends in .html names the file; else the time does. WHAT as for llm-stacks."""

    name = "llm-report"
    copies = 1
    group = "hang"
    fields = Fields(*hang.ANSWER, Field("file", str), Field("bytes", int, "of the page"))
    operand = "[F.html] [WHAT...]"
    completion = "file"
    takes_target = False
    standalone = True
    options = (
        Option("wait", "float", "seconds to watch before the stop, as for llm-hang", 1.0, "S"),
        Option("o", "str", "the file (else it is named by the time)", metavar="FILE", for_agents=False),
        Option("force", help="replace a file that is there"),
    )

    def run(self, session: Session, args: Args) -> Answer:
        path, what = args.o, args.operand_text
        first, _, others = what.partition(" ")
        if not path and first.endswith(PAGES):
            path, what = first, others
        elif not path and what.endswith(PAGES):
            what, _, path = what.rpartition(" ")
        path = path or time.strftime("gdbext-%Y%m%d-%H%M%S.html")
        files.may_write(path, "llm-report", args.force)
        found = choosing.resolve_processes(session, what.strip(), routers=True)
        told = of_bundles(found)
        page, data, views = make_report(found, session.targets, args.wait, told.data if told is not None else None)
        files.write(path, "llm-report", page, args.force)
        data["file"] = os.path.abspath(os.path.expanduser(path))
        data["bytes"] = os.path.getsize(data["file"])
        partial = [f"{data['ranks_read']} of {data['ranks_total']} processes"] if data["failed"] else []
        partial = told.partial if told is not None else partial

        def text(style: Style) -> str:
            head = f"{style.file(data['file'])}  {size(data['bytes'])}  verdict: {data['verdict']}"
            return "\n".join([head, *closing(data, {v.pid: v.name for v in views if v.pid is not None}, style)])

        return Answer(data, text, partial)
