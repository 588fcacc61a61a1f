"""pybreak: stop at a line or function of Python, in an unmodified process."""

import ast

from ..errors import GdbextError
from ..render.text import escape, table
from ..session.command import Answer, Command, Option, UsageError

RANK = Option("rank", "str", "only in this attached process: a label or pid", metavar="R")
COUNT = Option("count", "int", "the first N-1 passes are let go by", 1, metavar="N")


def control(session):
    """The room that sets breakpoints; imported late, since it exists only inside gdb."""
    if not session.in_gdb:
        raise GdbextError("this command works inside gdb: source gdbext/init.py there")
    from ..control import pybreak

    return pybreak


def labels(session):
    """{pid: label} of what is attached."""
    from ..control import attach

    found = {r.pid: r.label for r in session.ranks}
    found.update({h.pid: h.label for h in attach.attached() if h.label})
    return found


def check(condition):
    """A condition's spelling is checked before it is needed in a stop."""
    if condition:
        try:
            ast.parse(condition.replace("$py", "py"), mode="eval")
        except (SyntaxError, ValueError):
            raise UsageError(f"pybreak: cannot parse the condition {condition!r}") from None


def place_text(data, style):
    where = f"{data['file']}:{data['line']}" if data["file"] or data["line"] else data["function"]
    text = style.file(where) + (f"  {style.name(data['function'])}" if data["file"] and data["function"] else "")
    if data["condition"]:
        text += f"  if {escape(data['condition'])}"
    if data["count"] > 1:
        text += f"  from pass {data['count']} on"
    return text


def set_text(data, style):
    """What was set, in one line."""
    if data["pending"]:
        return f"{data['command']} {data['number']}: {place_text(data, style)}  pending: set when its module is imported"
    registers = f"{data['places']} debug register{'s' if data['places'] != 1 else ''}"
    return f"{data['command']} {data['number']}: {place_text(data, style)}  ({registers})"


class PyBreak(Command):
    """Stop at a line or function of Python (R). Writes nothing to the process: the CPU's debug registers watch the bytecode.

    WHERE is FILE:LINE (the last parts of the path do), FUNCTION by its qualified name, or MODULE:FUNCTION; COND is an expression as
    pyprint takes it. It stops before the line runs, in every thread of every attached process, also in closures and behind decorators;
    not yet imported, it waits for that (a module that is loaded again later has new code: set it again). The program's speed is what it
    was as long as the line is not reached. A process has four debug registers: each place takes one (a line can have several), waiting
    for an import one more. On the line of a `for` it stops where the loop begins. Without WHERE: lists them; delete N removes one.

        (gdb) pybreak scheduler.py:412 if len(self.running) > 8
        pybreak 1: /…/vllm/v1/core/sched/scheduler.py:412  Scheduler.schedule  if len(self.running) > 8  (1 debug register)
        (gdb) continue
        pybreak 1: Scheduler.schedule at /…/scheduler.py:412, EngineCore thread 4242 "VLLM::EngineCor", hit 1
        (gdb) pylocals

    If gdb is killed, the process lives: it is in a group-stop that gdb overrides, so the kernel halts it as gdb goes, and the guard, which learns of
    gdb's end at once, clears the registers and lets it run on. Only a pass that gdb had no time to fetch ends it: of kills in the middle of a line
    that is reached 100 times a second 8 in 100 did, of a line that is not being reached none. Stopped at the prompt nothing can happen. No group-stop
    for a process in the foreground of a terminal. gdb's handling of SIGSTOP and SIGCONT is nostop noprint pass meanwhile.
    """

    name = "pybreak"
    group = "break"
    operand = "[WHERE [if COND]]"
    takes_target = False
    resumes = True
    options = [RANK, COUNT]

    def run(self, session, args):
        room = control(session)
        if not args.operand_text:
            found = [p.data() for p in room.listed()]
            return Answer({"breakpoints": found}, lambda style: listing(found, style))
        where, condition = room.split(args.operand_text)
        check(condition)
        if args.count < 1:
            raise UsageError("pybreak: -count is 1 or more")
        processes = room.processes(labels(session), args.rank or "")
        point = room.PyBreakpoint("pybreak", where, condition, args.count, args.rank or "")
        point.set_in(processes)
        data = point.data()
        return Answer({"breakpoints": [data]}, lambda style: set_text(data, style), partial_of(processes))


def partial_of(processes):
    """What the search for code left out, and what the guard says."""
    from ..control import attach
    from ..cpython import codes

    found = [text for p in processes for text in codes.every(p.rt).left_out]
    return found + ([attach.guard_error()] if attach.guard_error() else [])


def listing(found, style):
    if not found:
        return "no Python breakpoints; help pybreak shows how to set one"
    rows = [
        [str(d["number"]), d["command"], place_text(d, style) + ("  pending" if d["pending"] else ""), str(d["hits"])]
        for d in found
    ]
    return table(rows, ["number", "kind", "where", "hits"], style)
