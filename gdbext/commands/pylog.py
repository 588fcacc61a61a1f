"""pylog, pytrace: print at a line or around a function, and go on."""

import re

from ..answers.breakpoints import set_text
from ..errors import GdbextError
from ..session.command import CONTENT, Answer, Command, Option, UsageError
from ..session.gdb_only import COUNT, RANK, breakpoint_doubts, check_condition, labels_of_attached, require_gdb

LIMIT = Option("limit", "int", "says nothing more after N lines", 0, metavar="N")


def recorded(found):
    """What was said so far, for a command without operand."""
    events = list(found)

    def text(style):
        lines = [f"{e['tid']} {style.file(e['file'].rpartition('/')[2])}:{e['line']}  {e['text']}" for e in events]
        return "\n".join(lines) or "nothing was logged yet"

    return Answer({"events": events}, text)


def _set(session, args, point):
    processes = require_gdb(session, "follow").processes(labels_of_attached(session), args.rank or "")
    point.set_in(processes)
    data = point.data()
    notes = breakpoint_doubts(session, processes) + getattr(point, "without_results", [])
    return Answer({"breakpoints": [data], "events": []}, lambda style: set_text(data, style), notes)


class PyLog(Command):
    """Print a line whenever Python reaches a place, and go on (R). Nobody edits the program; nothing is written to it.

    WHERE is as pybreak takes it. The text's {expressions} are read from memory when the line is about to run; {{ is a brace. -json
    prints each event as one line of JSON. Without WHERE: what was said so far (the last 10,000 events). delete N removes it. Each
    pass costs the thread about a millisecond: a place that is reached ten thousand times a second slows down.

        (gdb) pylog scheduler.py:412 "{len(self.running)} running, first {self.running[0].request_id}"
        pylog 1: /…/scheduler.py:412  Scheduler.schedule  (1 debug register)
        (gdb) continue
        4242 scheduler.py:412  8 running, first 'req-7-a3f1'
    """

    name = "pylog"
    group = "break"
    operand = '[WHERE "text {expr}" [if COND]]'
    takes_target = False
    resumes = True
    gdb_only = True
    options = [RANK, COUNT, LIMIT, CONTENT]

    def run(self, session, args):
        log = require_gdb(session, "pylog")
        if not args.operand_text:
            return recorded(log.events)
        found = re.match(r"(\S+)\s+(['\"])(.*)\2(?:\s+if\s+(.*))?$", args.operand_text, re.S)
        if not found:
            raise UsageError('pylog: takes a place and a quoted text: pylog scheduler.py:412 "{len(self.running)} running"')
        where, _, template, condition = found.groups()
        parts = log.parse_template(template)
        for part in parts:
            if isinstance(part, tuple):
                check_condition(part[0], self.name)
        check_condition(condition or "", self.name)
        point = log.Logpoint(
            require_gdb(session, "pybreak").Where(where),
            template,
            condition or "",
            args.count,
            args.rank or "",
            args.json,
            args.limit,
            args.show_content,
        )
        return _set(session, args, point)


class PyTrace(Command):
    """Print the calls of a Python function with arguments and results, and go on (R). Nothing is written to the process.

    FUNCTION is as pybreak takes it. A call takes one debug register, each of the function's returns another; where they do not
    suffice, calls are shown without results. A call that ends by an exception shows no result. Without FUNCTION: what was said so
    far. delete N removes it.

        (gdb) pytrace Scheduler.get_num_unfinished_requests
        pytrace 1: /…/scheduler.py:1480  Scheduler.get_num_unfinished_requests  (1 debug register)
        (gdb) continue
        4242 scheduler.py:1480  -> Scheduler.get_num_unfinished_requests(self=<vllm.v1.core.sched.scheduler.Scheduler object at 0x7f…>)
        4242 scheduler.py:1480  <- Scheduler.get_num_unfinished_requests = 8
    """

    name = "pytrace"
    group = "break"
    operand = "[FUNCTION [if COND]]"
    takes_target = False
    resumes = True
    gdb_only = True
    options = [RANK, COUNT, LIMIT, CONTENT]

    def run(self, session, args):
        log = require_gdb(session, "pylog")
        if not args.operand_text:
            return recorded(log.events)
        where, condition = require_gdb(session, "pybreak").split(args.operand_text)
        if where.line is not None:
            raise GdbextError("takes a function, not a line: pylog prints at a line")
        check_condition(condition, self.name)
        return _set(
            session, args, log.Tracepoint(where, condition, args.count, args.rank or "", args.json, args.limit, args.show_content)
        )
