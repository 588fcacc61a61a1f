"""pycatch: stop where a Python exception is raised, or when nobody caught it."""

from __future__ import annotations

import re

from ..answers.breakpoints import BREAKPOINT, SET, registers_text
from ..render.text import Style
from ..session.command import CONTENT, Answer, Args, Command, Option, UsageError
from ..session.gdb_only import ATTACHED, COUNT, DELETE, PENDING, check_condition, deleted, labels_of_attached, require_gdb
from ..session.session import Session


class PyCatch(Command):
    """Stop where a Python exception is raised (R). Nothing is written to the process.

    TYPE: only this class and its subclasses (ValueError, torch.OutOfMemoryError). -uncaught stops when an exception leaves the
    last frame that could have handled it, in any thread: the program's own, before threading or multiprocessing print it, or an
    engine's process logs it and ends (pyexc -locals then has the frames that were left). One debug register, with -uncaught
    two. A StopIteration that ends a loop is not raised in this sense. In an engine a
    message that may quote a user is counted, not shown. delete N removes it.

        (gdb) pycatch -uncaught
        pycatch 1: any exception, uncaught  (2 debug registers)
        (gdb) continue
        pycatch 1: IndexError: list index out of range in Scheduler.schedule at vllm/v1/…/scheduler.py:412, thread 4242, hit 1
        (gdb) pylocals
    """

    name = "pycatch"
    group = "break"
    fields = SET
    operand = "[TYPE] [if COND]"
    takes_target = False
    resumes = True
    gdb_only = True
    options = [Option("uncaught", help="only uncaught ones"), ATTACHED, COUNT, PENDING, DELETE, CONTENT]

    def run(self, session: Session, args: Args) -> Answer:
        if args.delete:
            return deleted(session, self.name, args.operand_text)
        pycatch, follow = require_gdb(session, "pycatch"), require_gdb(session, "follow")
        found = re.match(r"([\w.]*)\s*(?:if\s+(.*))?$", args.operand_text, re.S)
        if not found:
            raise UsageError(f"pycatch: takes the name of an exception class, not {args.operand_text!r}")
        kind, condition = found.group(1), found.group(2) or ""
        if kind == "if":
            raise UsageError("pycatch: a condition follows `if`")
        check_condition(condition, "pycatch")
        processes = follow.processes(labels_of_attached(session), args.on or "")
        if not args.pending:
            require_gdb(session, "near_names").refuse_exception_typos(kind, [p.rt for p in processes])
        point = pycatch.Catchpoint(kind, args.uncaught, condition, args.count, args.on or "", args.show_content)
        point.set_in(processes)
        data = BREAKPOINT.of(**point.data())

        def text(style: Style) -> str:
            named = f"{data['function']}{', uncaught' if args.uncaught else ''}{'  if ' + condition if condition else ''}"
            return f"pycatch {data['number']}: {named}  ({registers_text(data)})"

        return Answer(SET.of(breakpoints=[data]), text)
