"""llm-follow: the engine's child processes stay with this gdb and get the Python breakpoints."""

from __future__ import annotations

from ..render.fields import NUMBER, Field, Fields, each
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.gdb_only import require_gdb
from ..session.session import Session

FOLLOWED = Fields(
    Field("inferior", NUMBER, head="inferior"),
    Field("pid", NUMBER, head="pid"),
    Field("label", str, head="rank"),
    Field("state", str, head="state"),
)


class LlmFollow(Command):
    """Keep every child process of the engine, through fork and exec, and set the Python breakpoints in it (R).

    For gdb --args python serve.py. Children run on; each becomes an inferior, and what pybreak, pylog and pytrace set reaches it
    as it starts (-on WHAT counts once its title says which rank it is). Without on or off: the processes that are followed, by
    rank. In each process gdb plants two breakpoints of its own (PyEval_EvalCode, PyOS_AfterFork_Child) while this is on.

    -all-stop (the default): when one process stops, all stop, and continue resumes all. -non-stop, given before run: only the
    thread that stopped stays so; the other ranks run on, thread N.M goes to one that stopped, continue & resumes it alone;
    for a terminal, a script goes on too early. Either way a stopped rank holds the others in their next collective, and
    their clocks go on: vLLM ends a step after 300 s (VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS), SGLang's watchdog a scheduler after 300
    s (--watchdog-timeout), torch's NCCL heartbeat a rank after 480 s, a collective ends after 600 s.

    A fault of gdb's all-stop mode (13 to 18): where one process has an event while another waits for its vfork child (subprocess,
    multiprocessing's spawn), gdb can wait for ever. It is reported, with the line that ends it. -non-stop does not have it; nor
    has llm-attach later on.

        (gdb) llm-follow on
        following, all-stop: children become inferiors and get the Python breakpoints; off gives the settings back
        (gdb) pybreak -on TP1 gpu_worker.py:700
        (gdb) run
        (gdb) llm-follow
        inferior  pid    rank        state
        1         17385  frontend    stopped
        8         19192  EngineCore  stopped
        12        21470  TP1         stopped

    Settings, given back by off: follow-fork-mode parent, detach-on-fork off, schedule-multiple on, follow-exec-mode same,
    auto-solib-add on (gdb must find those two names in each child; libtorch's symbols cost it some ten seconds once), and
    non-stop with -non-stop.
    """

    name = "llm-follow"
    group = "break"
    fields = Fields(
        *each(bool, "following non_stop"),
        Field("processes", [FOLLOWED]),
    )
    operand = "[on|off]"
    takes_target = False
    resumes = True
    gdb_only = True
    options = [
        Option("all-stop", help="when one process stops, all stop (the default)"),
        Option("non-stop", help="when a thread stops, everything else runs on"),
    ]

    def run(self, session: Session, args: Args) -> Answer:
        follow = require_gdb(session, "follow")
        left = []
        if args.operand_text not in ("on", "off", ""):
            raise UsageError(f"llm-follow: takes on or off, not {args.operand_text!r}")
        if args.all_stop and args.non_stop:
            raise UsageError("llm-follow: -all-stop and -non-stop exclude each other")
        if args.operand_text == "on":
            follow.on(args.non_stop)
        elif args.operand_text == "off" and follow.is_on():
            left = follow.off()
        on, labels = follow.is_on(), labels_now(session) if not args.operand_text else {}
        processes = [{"inferior": n, "pid": p, "label": labels.get(p, ""), "state": state} for n, p, state in follow.followed()]
        data = self.fields.of(following=on, non_stop=follow.is_non_stop(), processes=processes)
        mode = "non-stop" if follow.is_non_stop() else "all-stop"
        said = (
            f"following, {mode}: children become inferiors and get the Python breakpoints; off gives the settings back"
            if on
            else "not following"
        )
        if not processes or args.operand_text:
            return Answer(data, said, left)
        return Answer(data, lambda style: said + "\n" + FOLLOWED.table(processes, style), left)


def labels_now(session: Session) -> dict[int, str]:
    """{pid: label} as the processes are titled now."""
    from ..engines import discover

    session.ranks, _ = discover.discover()
    return {r.pid: r.label for r in session.ranks}
