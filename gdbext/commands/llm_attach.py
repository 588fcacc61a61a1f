"""llm-attach, llm-detach, llm-continue, llm-apply: engine processes as inferiors of this gdb, attached fast and let go without
a trace."""

from __future__ import annotations

import os
from typing import Any

from ..access.proctable import ProcTable
from ..answers.places import PAUSE
from ..api.choosing import resolve_processes
from ..errors import GdbextError
from ..render.fields import REAL, TEXT, Field, Fields, each
from ..render.text import Style, escape, seconds, size
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.gdb_only import require_gdb
from ..session.options import take_options
from ..session.session import Session


def _processes(session: Session, what: str) -> Any:
    """`[(pid, label)]` of a WHAT, or of several with blanks or commas between; `GdbextError` for a core file."""
    found = []
    for one in resolve_processes(session, what):
        if one.pid is None:
            raise GdbextError(
                f"{one.core} is a core file, not a process: open it with core-file, or add -on to a reading command"
            )
        found.append((one.pid, one.label))
    return found


def _ours(session: Session, attach: Any, what: str) -> Any:
    """`[AttachedProcess]` that a WHAT (or several) names, all of them for nothing or "all"."""
    ours = attach.attached()
    if not ours:
        raise GdbextError("no process is attached by llm-attach")
    if what in ("", "all"):
        return ours
    by_label = [h for h in ours if h.label == what or str(h.pid) == what]  # an attached one needs no look at the machine
    if len(by_label) == 1:
        return by_label
    wanted = {pid for pid, _ in _processes(session, what)}
    chosen = [h for h in ours if h.pid in wanted]
    if not chosen:
        raise GdbextError(f"{what} is not attached by llm-attach; attached: {', '.join(_name(h) for h in ours)}")
    return chosen


def _name(h: Any) -> Any:
    return escape(h.label) or str(h.pid)


PROCESS = each(int, "pid") + each(TEXT, "label")
RESUMED = Fields(*PROCESS, Field("inferior", int))
ATTACHED = Fields(  # of an `AttachedProcess`
    *RESUMED,
    Field("pause", REAL, "for how long it stood still", "s"),
    Field("was_stopped", bool, "before"),
    Field("libraries", [str], "whose symbols gdb has read", read=lambda h: h.libraries.loaded),
    Field(
        "left_out",
        [Fields(Field("file", str), Field("bytes", int))],
        read=lambda h: [{"file": p, "bytes": n} for p, n in h.libraries.left_out.items()],
    ),
)
# One H200, driver 580.159, cuda-gdb 13.0, processes that launched kernels without a pause: 35 of 171 died after an attach and
# detach of cuda-gdb alone, 6 of 20 with the pack in it.
CUDA_DETACH = (
    "cuda-gdb's own detach is not safe: 41 of 191 processes that were launching kernels died of SIGSEGV after it (13.0, with "
    "this pack or without); a plain gdb shows all but the inside of the GPU, and detaches without harm"
)


class LlmAttach(Command):
    """Attach to engine processes, one inferior each, with the shortest pause that gdb can do. They stay stopped.

    WHAT is an index or label of llm-ranks, a pid, several of these (TP0,TP1), or all. What the main thread's stack needs is
    read before the process is stopped; no other library is read, so that a process with libtorch is stopped for a fraction of
    a second, not for half a minute. -libraries says what to read: main (the default; leaves out files above 100 MB and names
    them), stacks (whatever the stacks of all threads need), all (as gdb's own attach does), none. A guard process makes
    everything run on if gdb is killed.

        (gdb) llm-attach TP0
        TP0  pid 4242  inferior 1  stopped  (attach took 312.40 ms)
        it is stopped until llm-continue or llm-detach

    In cuda-gdb: its own detach can end a process that launches kernels just then (one in five on the GPU where it was tried).

    Settings: auto-solib-add is off and breakpoint pending on until the last of these processes is detached, then they are as
    before. `break f` then says which library f is in that gdb has not read, and llm-symbols LIB reads it.
    """

    name = "llm-attach"
    group = "ranks"
    fields = Fields(
        Field("attached", [ATTACHED]),
        Field("confined", str, "what the end of gdb's control group would do, where the guard could not leave it; else ''"),
    )
    gdb_only = True
    operand = "WHAT"
    completion = "what"
    takes_target = False
    options = [
        Option("libraries", ["main", "stacks", "all", "none"], "whose symbols: main, stacks, all or none", "main", "WHICH"),
        Option(
            "force",
            help="also where a thread is in uninterruptible sleep (gdb hangs until it ends; press Ctrl-C twice to give up), or a "
            "library is no regular file",
        ),
    ]

    def run(self, session: Session, args: Args) -> Answer:
        attach = require_gdb(session, "attach")
        if not args.operand_text:
            raise GdbextError("which process? an index or label of llm-ranks, a pid, several (TP0,TP1), or all")
        processes = _processes(session, args.operand_text)
        mine = {h.pid for h in attach.attached()}
        fresh = [p for p in processes if p[0] not in mine]
        if not fresh:
            raise GdbextError(f"{args.operand_text} is attached already: see info inferiors, or llm-detach")
        done = attach.attach(fresh, args.libraries, args.force)
        table = ProcTable()
        partial = [attach.guard_error()] if attach.guard_error() else []
        if session.sees_device() and any(found.gpus for h in done for found in [table.get(h.pid)] if found is not None):
            partial.append(CUDA_DETACH)
        if not attach.has_working_none() and args.libraries != "none":
            partial.append(
                "no library was read: this cuda-gdb's Python is broken (its None is not Python's own), it can follow no stack"
            )
        data = self.fields.of(attached=[ATTACHED.data(h) for h in done], confined=attach.confined())
        several = len(attach.attached()) > 1

        def text(style: Style) -> str:
            return "\n".join(filter(None, [_attached_text(done, several, style), data["confined"]]))

        return Answer(data, text, partial)


def _attached_text(done: Any, several: Any, style: Style) -> str:
    width = max(len(_name(h)) for h in done)
    lines = []
    for h in done:
        name = style.name(_name(h).ljust(width))
        was = "  (it was stopped before)" if h.was_stopped else ""
        lines.append(f"{name}  pid {h.pid}  inferior {h.inferior}  {style.bad('stopped')}  (attach took {seconds(h.pause)}){was}")
        for path, count in h.libraries.left_out.items():
            file = escape(os.path.basename(path))
            lines.append(
                f"  symbols not read: {file} ({size(count)}); llm-bt needs none, gdb's own bt and break do: llm-symbols {file}"
            )
        for number, _, level, _, why in h.libraries.unvouched:
            lines.append(
                style.dim(f"  thread {number}: in gdb's own bt, frames from #{level} on are not to be believed: {escape(why)}")
            )
    lines.append(("it is" if len(done) == 1 else "they are") + " stopped until llm-continue or llm-detach")
    if several:
        lines.append("gdb's own continue resumes the selected process alone; llm-continue resumes all that are attached")
    return "\n".join(lines)


class LlmDetach(Command):
    """Detach what llm-attach attached: every process runs on, except those that were stopped before (R).

    WHAT is a label or pid of an attached process, or all (the default). Prints how long each was stopped in all.
    With the last one auto-solib-add and breakpoint pending are as they were before the first llm-attach.

        (gdb) llm-detach
        TP0  pid 4242  was stopped for 12.31 s
    """

    name = "llm-detach"
    group = "ranks"
    fields = Fields(Field("detached", [Fields(*PROCESS, Field("pause", REAL, "", "s"))]), Field("pauses", [PAUSE]))
    gdb_only = True
    operand = "[WHAT]"
    completion = "what"
    takes_target = False
    resumes = True

    def run(self, session: Session, args: Args) -> Answer:
        attach = require_gdb(session, "attach")
        chosen = _ours(session, attach, args.operand_text)
        done = attach.detach([h.pid for h in chosen])
        detached = [{"pid": h.pid, "label": h.label, "pause": s} for h, s in done]
        data = self.fields.of(detached=detached, pauses=[{"pid": h.pid, "seconds": s} for h, s in done])

        def text(style: Style) -> str:
            width = max([len(_name(h)) for h, _ in done] or [0])
            return "\n".join(
                f"{style.name(_name(h).ljust(width))}  pid {h.pid}  was stopped for {seconds(s)}"
                + ("; it is stopped, as it was before" if h.was_stopped and not h.ran else "")
                for h, s in done
            )

        return Answer(data, text)


class LlmContinue(Command):
    """Resume attached engine processes together, until one stops or Ctrl-C (R).

    WHAT is one label or pid, or all (the default): gdb's all-stop mode resumes one inferior or every one. A trailing &
    resumes in the background, as gdb's own continue does. With -for they are stopped again after so many seconds, with
    -until-logs as soon as every pylog, pytrace and llm-save has reached its limit (for scripts); with both whichever comes first.

        (gdb) llm-continue
        (gdb) llm-continue -for 30
        (gdb) llm-continue -until-logs -for 60
        (gdb) llm-continue TP0 &

    Settings: schedule-multiple, while they run; then it is as before.
    """

    name = "llm-continue"
    group = "ranks"
    fields = Fields(Field("continued", [RESUMED]), Field("expired", bool, "it stopped them because the time of -for was over"))
    gdb_only = True
    operand = "[WHAT] [&]"
    completion = "what"
    takes_target = False
    resumes = True
    options = (
        Option("for", "float", "stop them again after so many seconds", None, "S"),
        Option("until-logs", help="stop them when each pylog, pytrace and llm-save with a -limit or -for is over"),
    )

    def run(self, session: Session, args: Args) -> Answer:
        attach = require_gdb(session, "attach")
        background = args.operand_text.endswith("&")
        seconds = getattr(args, "for")
        if seconds is not None and (background or not 0 < seconds < 1e7):
            raise UsageError("llm-continue: -for takes seconds, more than none, and does not go with &")
        if args.until_logs and background:
            raise UsageError("llm-continue: -until-logs waits, and does not go with &")
        chosen = _ours(session, attach, args.operand_text.rstrip("& \t"))
        resume = require_gdb(session, "resuming").resume
        done, expired = resume([h.pid for h in chosen], background, seconds or 0.0, args.until_logs)
        data = self.fields.of(continued=[RESUMED.data(h) for h in done], expired=expired)
        names = ", ".join(_name(h) for h in done)
        if background:
            return Answer(data, f"running in the background: {names}")
        return Answer(data, f"stopped again: {names}" + (f" (the time is over: {seconds:g} s)" if expired else ""))


class LlmApply(Command):
    """Run a gdb command with each of several attached processes selected, its output under its label.

    WHAT is a label or pid of an attached process, or all. An error in one of them is shown and the others go on; the selected
    inferior, thread and frame are as before afterwards. Everything after WHAT is the command, options and all. It does what that
    command does: one that resumes resumes.

        (gdb) llm-apply all pybt -all
        TP0
          ...
        TP1
          ...
    """

    name = "llm-apply"
    group = "ranks"
    fields = Fields(Field("results", [Fields(*PROCESS, *each(TEXT, "output error"))]))
    gdb_only = True
    operand = "WHAT COMMAND"
    completion = "what"
    takes_target = False

    @classmethod
    def parse(cls, line: str) -> Args:
        """Options stand before WHAT only: those behind belong to the command that is run."""
        options = cls.all_options()
        values = {o.key: o.default for o in options}
        return Args(values, cls.with_process(take_options(cls, line.strip(), options, values, True), values))

    def run(self, session: Session, args: Args) -> Answer:
        attach = require_gdb(session, "attach")
        what, _, command = args.operand_text.partition(" ")
        if not command.strip():
            raise GdbextError("takes a process and a command: llm-apply all bt 3")
        results = require_gdb(session, "resuming").apply(_ours(session, attach, what), command.strip())
        rows = [{"label": h.label, "pid": h.pid, "output": out, "error": e} for h, out, e in results]
        data = self.fields.of(results=rows)

        def text(style: Style) -> str:
            parts = []
            for h, out, error in results:
                parts.append(style.title(_name(h)))
                parts += ["  " + line for line in out.splitlines()]
                if error:
                    parts.append("  " + style.bad(error))
            return "\n".join(parts)

        failed = [_name(h) for h, _, e in results if e]
        return Answer(data, text, [f"failed on {', '.join(failed)}"] if failed else [])
