"""pybreak: stop at a line or function of Python, in an unmodified process."""

from __future__ import annotations

from ..answers.breakpoints import BREAKPOINT, SET, list_text, set_text
from ..session.command import Answer, Args, Command, UsageError
from ..session.gdb_only import (
    ATTACHED,
    COUNT,
    DELETE,
    PENDING,
    breakpoint_doubts,
    check_condition,
    deleted,
    labels_of_attached,
    refuse_typos,
    require_gdb,
)
from ..session.session import Session


class PyBreak(Command):
    """Stop at a line or function of Python (R). Writes nothing to the process: the CPU's debug registers watch the bytecode.

    WHERE is FILE:LINE (the last parts of the path do), FUNCTION by its qualified name, or MODULE:FUNCTION; COND is an expression
    as pyprint takes it. It stops before the line runs, in every thread of every attached process, also in closures and behind
    decorators; not yet imported, it waits for that, but a name that is nearly one of those that are loaded is refused (a module
    that is loaded again later has new code: set it again). The program's speed is what it was as long as the line is not reached.
    A process has four debug registers (aarch64: as many as the processor has): each place takes one (a line can have
    several), waiting for an import one more. On the line of a `for` it stops where the loop begins. Without WHERE: lists
    them; delete N removes one, -delete [N | WHERE] too.

        (gdb) pybreak scheduler.py:412 if len(self.running) > 8
        pybreak 1: vllm/v1/core/sched/scheduler.py:412  Scheduler.schedule  if len(self.running) > 8  (1 debug register)
        (gdb) continue
        pybreak 1: Scheduler.schedule at vllm/v1/core/sched/scheduler.py:412, EngineCore thread 4242 "VLLM::EngineCor", hit 1
        (gdb) pylocals

    If gdb is killed, a guard process clears the breakpoints and resumes the target. In rare cases (a line is reached in the same
    instant) the target can die; see docs/security.md. gdb's handling of SIGSTOP and SIGCONT is nostop noprint pass
    meanwhile.
    """

    name = "pybreak"
    group = "break"
    fields = SET
    operand = "[WHERE [if COND]]"
    takes_target = False
    resumes = True
    gdb_only = True
    options = [ATTACHED, COUNT, PENDING, DELETE]

    def run(self, session: Session, args: Args) -> Answer:
        pybreak = require_gdb(session, "pybreak")
        if args.delete:
            return deleted(session, self.name, args.operand_text)
        if not args.operand_text:
            found = [BREAKPOINT.of(**p.data()) for p in pybreak.listed()]
            return Answer(SET.of(breakpoints=found), lambda style: list_text(found, style))
        where, condition = pybreak.split(args.operand_text)
        check_condition(condition, "pybreak")
        if args.count < 1:
            raise UsageError("pybreak: -count is 1 or more")
        processes = require_gdb(session, "follow").processes(labels_of_attached(session), args.on or "")
        if not args.pending:
            refuse_typos(session, where, processes)
        point = pybreak.PyBreakpoint("pybreak", where, condition, args.count, args.on or "")
        point.set_in(processes)
        data = BREAKPOINT.of(**point.data())
        return Answer(SET.of(breakpoints=[data]), lambda style: set_text(data, style), breakpoint_doubts(session, processes))
