"""llm-follow: the engine's child processes stay with this gdb and get the Python breakpoints."""

from .base import Answer, Command, UsageError
from .pybreak import control


class LlmFollow(Command):
    """Keep every child process of the engine, through fork and exec, and set the Python breakpoints in it (R).

    For gdb --args python serve.py. Children run on; each becomes an inferior, and what pybreak, pylog and pytrace set reaches it as it
    starts (-rank R counts once its title says which rank it is). When one stops, all stop: gdb's all-stop mode. A rank that stands still
    lets the others wait in their next collective, until NCCL's or the engine's own timeout ends them.
    In each process gdb plants two breakpoints of its own (PyEval_EvalCode, PyOS_AfterFork_Child) while this is on.

        (gdb) llm-follow on
        following: children become inferiors and get the Python breakpoints; off gives the settings back
        (gdb) pybreak -rank TP1 gpu_worker.py:700
        (gdb) run

    Settings, given back by off: follow-fork-mode parent, detach-on-fork off, schedule-multiple on, follow-exec-mode same, auto-solib-add on
    (gdb must find those two names in each child; libtorch's symbols cost it some ten seconds once).
    """

    name = "llm-follow"
    group = "break"
    operand = "on|off"
    reads = False
    resumes = True

    def run(self, session, args):
        control(session)
        from ..control import follow

        if args.rest not in ("on", "off", ""):
            raise UsageError(f"llm-follow: takes on or off, not {args.rest!r}")
        if args.rest == "on":
            follow.on()
        elif args.rest == "off":
            follow.off()
        data = {"following": follow.is_on(), "processes": [{"inferior": n, "pid": p} for n, p in follow.followed()]}
        said = "following: children become inferiors and get the Python breakpoints; off gives the settings back" if follow.is_on() else "not following"
        return Answer(data, said)
