"""`llm-continue` and `llm-apply`: letting attached processes run together, and running a gdb command with each."""

from __future__ import annotations

import contextlib
from typing import Iterable

import gdb

from ..access.cli_gdb import command
from ..errors import GdbextError
from . import attached_processes, pylog
from .attached_processes import AttachedProcess
from .gdb_state import QuietGdb, select
from .quirks import wakeups
from .time_limit import Limit, interrupted_after


def resume(
    pids: Iterable[int] | None = None, background: bool = False, seconds: float = 0.0, until_logs: bool = False
) -> tuple[list[AttachedProcess], bool]:
    """Resumes the attached processes in `pids` (None: all) until one of them stops or the user presses Ctrl-C. Returns the
    processes that it resumed, and whether `seconds` were over.

    With `background` it returns at once, with `seconds` after that time, with `until_logs` when pylog and similar commands have
    reached their limits. gdb's all-stop mode resumes one inferior or all of them: `schedule-multiple` is on for as long as they
    run."""
    ours = attached_processes.attached()
    wanted = ours if pids is None else [p for p in ours if p.pid in set(pids)]
    if not wanted:
        raise GdbextError("nothing to continue: no process is attached by llm-attach")
    others = [i for i in gdb.inferiors() if i.pid and i.num not in {p.inferior for p in wanted}]
    if len(wanted) > 1 and others:
        count = f"{len(wanted)} of {len(wanted) + len(others)}"
        raise GdbextError(f"gdb resumes one process or all of them, not {count}: use llm-continue all, or detach the others")
    held = [(p, attached_processes.inferior_of(p)) for p in wanted]
    running = [p for p, inferior in held if inferior is not None and any(t.is_running() for t in inferior.threads())]
    if running:
        raise GdbextError(f"process {running[0].pid} is running already")
    if gdb.selected_inferior().num not in {p.inferior for p in wanted}:
        with QuietGdb(keep_focus=False):
            select(wanted[0].inferior)
    attached_processes.schedule_together(len(wanted) > 1)
    runs, limit = False, Limit()
    try:
        with contextlib.ExitStack() as block:
            if until_logs:
                block.enter_context(pylog.awaited())
            limit = block.enter_context(interrupted_after(seconds, unreported=True))
            block.enter_context(wakeups.asked_again())
            gdb.execute("continue &" if background else "continue")
        runs = background
    except gdb.error as e:
        raise GdbextError(f"gdb could not continue: {str(e).splitlines()[-1]}") from None
    finally:
        if runs:
            attached_processes.in_background()
        else:
            attached_processes.restore_schedule()
    return wanted, limit.expired


def apply(processes: Iterable[AttachedProcess], line: str) -> list[tuple[AttachedProcess, str, str]]:
    """Runs a gdb command with each process selected; returns `[(process, output, error or '')]`. The focus is as before
    afterwards."""
    results = []
    with QuietGdb():
        for one in processes:
            try:
                select(one.inferior)
                results.append((one, gdb.execute(command("{}", line), to_string=True) or "", ""))
            except (gdb.error, gdb.GdbError, GdbextError) as e:
                results.append((one, "", str(e)))
    return results
