"""Attaching fast and leaving no trace, for `llm-attach` and `llm-detach`.

Fast: symbols of the executable, and of the libraries that the stack seems to need, are read before the process is stopped. With
`auto-solib-add off` gdb reads no others afterwards.

No trace: the guard knows of every process before it is touched. An error or Ctrl-C half-way detaches the processes that this
command attached. A process that was stopped before is stopped afterwards, any other runs.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Iterable

import gdb

from .. import log
from ..access import guard as guards
from ..access import libraries, ptrace, recovery
from ..access.cli_gdb import command, quoted
from ..access.permission import permission_hint
from ..errors import GdbextError
from . import attached_processes, index_cache, inferior_breakpoints, symbol_hints
from .attach_checks import WayOut, check, process_name
from .attached_processes import AttachedProcess, confined, guard_error
from .cudagdb import has_working_none
from .events import listen
from .gdb_state import BlockSigint, QuietGdb, add_inferior, remove_inferior, select

__all__ = ["attach", "attached", "confined", "detach", "guard_error"]
attached = attached_processes.attached


def attach(processes: Iterable[tuple[int, str]], which: str = "main", force: bool = False) -> list[AttachedProcess]:
    """Attaches to `[(pid, label)]`, one inferior each, and selects the first.

    `which`: the libraries whose symbols are read: "main" (those that the main thread's stack needs, files above 100 MB left out),
    "stacks" (those that all stacks need), "all", "none". `force`: attach even where a thread is in uninterruptible sleep. An
    error or Ctrl-C on the way detaches all processes that this call attached, and is then raised again."""
    fresh: list[AttachedProcess] = []
    deadline = time.monotonic() + 10
    while guards.recovering() and time.monotonic() < deadline:
        time.sleep(0.05)  # a gdb was killed a moment ago: its processes are not yet restored
    plan = [
        AttachedProcess(pid, label, check(pid, force)) for pid, label in dict.fromkeys(processes)
    ]  # no process is stopped when one cannot be
    if not has_working_none():
        which = "none"  # cuda-gdb 11.8 as Debian has it: it can walk no frame to find out what the stacks need
    attached_processes.start_guard()
    attached_processes.leave_no_core()
    attached_processes.opens_end()
    listen(gdb_exiting=_on_gdb_exit)
    with QuietGdb(keep_focus=False) as focus, inferior_breakpoints.suspended():
        scratch: int | None = None
        places: list[tuple[int, bool]] = []  # (inferior's number, whether it is one that we made)
        try:
            attached_processes.save_setting("auto-solib-add", "off")
            attached_processes.save_setting("breakpoint pending", "on")  # else gdb asks, and without a user answers no
            symbol_hints.watch()
            for _ in plan:
                places.append(_free_inferior(places))
            scratch = _read_ahead(plan, which)
            for one, place in zip(plan, places):
                one.inferior, one.added = place
                fresh.append(one)
                _attach_one(one, which)
            attached_processes.loader_breakpoints_out()  # gdb has planted them, and nothing runs yet
            select(fresh[0].inferior)
        except BaseException as e:
            focus.keep_focus = True
            with BlockSigint():
                _roll_back(fresh)
            if isinstance(e, gdb.error):
                raise GdbextError(_reason(fresh[-1] if fresh else None, e)) from None
            raise
        finally:
            for number, added in [*places, (scratch, True)]:
                if added and number is not None and number not in attached_processes.numbers():
                    remove_inferior(number)
        if focus.inferior.is_valid() and focus.inferior.pid:
            focus.keep_focus = focus.inferior.pid not in {p.pid for p in fresh} and bool(focus.thread)
    return fresh


def _reason(h: AttachedProcess | None, error: Exception) -> str:
    text = str(error).splitlines()[-1] if str(error) else "gdb gave no reason"
    if h is None:
        return text
    others = ptrace.tracers(h.pid) - {os.getpid()}
    if others:
        return f"process {h.pid} is already traced by {process_name(others.pop())}: end that first"
    if "not permitted" in text or "Permission denied" in text:
        return f"process {h.pid}: no permission to attach; {permission_hint(h.pid)}"
    if ptrace.start_time(h.pid) != h.start:
        return f"process {h.pid} ended while it was being attached"
    return f"process {h.pid}: gdb could not attach: {text}"


def _read_ahead(plan: list[AttachedProcess], which: str) -> int | None:
    """Reads the symbols that the attached processes will need into an inferior of its own, before any process is stopped:
    inferiors of one gdb share symbols. Returns the number of that inferior, or None."""
    if which == "none":
        return None
    wanted = {}
    for one in plan:
        if not os.path.samefile(f"/proc/{one.pid}/root/", "/"):
            continue  # in a container: its files have other names here
        threads = ptrace.tids(one.pid) if which == "stacks" else None
        wanted.update(dict.fromkeys(libraries.likely(one.pid, threads, None if which == "stacks" else libraries.AHEAD)))
    for (
        one
    ) in plan:  # gdb 13 aborts where one file is a program here and a library there: one that was started through the loader
        for path in [p for p in wanted if _same_file(p, f"/proc/{one.pid}/exe")]:
            del wanted[path]
    if not wanted:
        return None
    current = gdb.selected_inferior().num
    number = add_inferior()
    select(number)
    try:
        with index_cache.kept(list(wanted)):
            for path in wanted:
                try:
                    gdb.execute(command("add-symbol-file {}", quoted(path)), to_string=True)
                except (gdb.error, GdbextError) as e:
                    log.passed_over(e)
                    continue  # no object file, or a name that is none for a command: the attach does without
    finally:
        select(current)
    return number


def _same_file(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _free_inferior(taken: list[tuple[int, bool]]) -> tuple[int, bool]:
    """(number, whether we added it) of an inferior without process and program that is not among `taken`."""
    for i in gdb.inferiors():
        empty = not i.pid and not i.progspace.filename and not i.progspace.objfiles()
        if empty and all(i.num != number for number, _ in taken):
            return i.num, False
    return add_inferior(), True


def _attach_one(h: AttachedProcess, which: str) -> None:
    attached_processes.own(h)
    select(h.inferior)
    try:
        exe = os.readlink(f"/proc/{h.pid}/exe")
        if os.path.samefile(f"/proc/{h.pid}/exe", exe):
            gdb.execute(command("file {}", quoted(exe)), to_string=True)  # read before the stop, not after
    except (OSError, gdb.error, GdbextError) as e:
        # in a container, deleted, or a name that is none for a command: gdb finds it itself, at the price of a longer pause
        log.passed_over(e)
    if ptrace.start_time(h.pid) != h.start:
        raise GdbextError(f"process {h.pid} ended while it was being attached")
    with WayOut(h.pid):
        attached_processes.hold(h)
        gdb.execute(command("attach {}", h.pid), to_string=True)
    if which == "main":
        main = [t for t in gdb.selected_inferior().threads() if t.ptid[1] == h.pid]
        h.libraries = libraries.load_for(main)
    elif which == "stacks":
        h.libraries = libraries.load_for(None, None)
    elif which == "all":
        h.libraries = libraries.load_all()
    main = [t for t in gdb.selected_inferior().threads() if t.ptid[1] == h.pid]
    if main:
        main[0].switch()
    h.pause = h.standstill()


def _roll_back(fresh: list[AttachedProcess]) -> None:
    """Detaches the processes that a failed attach has attached. It is called while an exception is raised, and raises none of its
    own."""
    for h in reversed(fresh):
        try:
            _detach_one(h, watch=0.02)
        except (gdb.error, GdbextError) as e:
            log.passed_over(e)
            attached_processes.still_held(h)  # the error that is raised gives the reason
    attached_processes.give_back()


# ---- detach ----------------------------------------------------------------------------------------------------------
def detach(pids: Iterable[int] | None = None) -> list[tuple[AttachedProcess, float]]:
    """Detaches `pids` (default: all that llm-attach attached). Returns `[(process, seconds for which it was stopped)]`. It tries
    each before it raises `GdbextError`."""
    wanted = attached() if pids is None else [h for h in attached() if h.pid in set(pids)]
    done, errors = [], []
    with QuietGdb():
        for h in wanted:
            try:
                with BlockSigint():
                    _detach_one(h)
                done.append((h, h.past))
            except GdbextError as e:
                errors.append(str(e))
            except gdb.error as e:
                errors.append(f"process {h.pid}: gdb could not detach: {str(e).splitlines()[-1]}")
        attached_processes.give_back()
    if errors:
        raise GdbextError("; ".join(errors))
    return done


def _detach_one(h: AttachedProcess, watch: float = 0) -> None:
    """`watch`: seconds for which a SIGSTOP of gdb's own may still be on its way, as after an attach that was broken off."""
    inferior = attached_processes.inferior_of(h)
    if inferior is not None and inferior.pid == h.pid:
        if h.was_stopped and not h.ran:
            # It stays stopped: the signal waits until gdb detaches, and no instruction runs before it is delivered.
            _signal(h.pid, signal.SIGSTOP)
        _take_interrupts(h)
        gdb.execute(command("detach inferiors {}", h.inferior), to_string=True)
    h.let_go()
    if h.start is not None and ptrace.start_time(h.pid) == h.start and not ptrace.tracers(h.pid):
        recovery.restore_run_state(h.pid, h.start, h.was_stopped and not h.ran, watch)
    attached_processes.drop(h)


def _take_interrupts(h: AttachedProcess) -> None:
    """Removes a second SIGINT from the process.

    When Ctrl-C was pressed twice during the attach, gdb passed both on to the process and took one back. The other would end the
    process as soon as it is released."""
    bit = 1 << signal.SIGINT - 1
    inferior = attached_processes.inferior_of(h)
    if inferior is None:
        return
    for _ in range(8):
        states = [ptrace.status(h.pid, tid) for tid in ptrace.tids(h.pid)]
        if not any(s and s["pending"] & bit and not s["blocked"] & bit for s in states) or any(
            t.is_running() for t in inferior.threads()
        ):
            return
        if gdb.execute("info signals SIGINT", to_string=True).splitlines()[-1].split()[1] != "Yes":
            return  # the user does not want it to stop
        select(h.inferior)
        gdb.execute("continue", to_string=True)


def _on_gdb_exit(_: Any) -> None:
    """gdb itself now releases the processes that it holds."""
    with QuietGdb(keep_focus=False), BlockSigint():
        for h in attached():
            _take_interrupts(h)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass  # it has ended
