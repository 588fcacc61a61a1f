"""Has gdb leave a process's children alone, while it runs and gdb has planted nothing in it that they would inherit.

gdb attaches to each child at its fork, steps it by an instruction, and detaches. A gdb that is killed before it has waited for
that step leaves a trap, of which the child dies; one that is killed before it detaches leaves the child stopped. The kernel tells
of forks only if it is asked (PTRACE_O_TRACEFORK): gdb asks when it attaches, new threads inherit it. The pack takes that back
before `continue`. At any other resume it is asked for again: steps and `finish` plant breakpoints of gdb's, which gdb takes out
of a child only if it hears of the fork.

Python hears from gdb that a process goes on, and not by which command. So `continue` gets a hook (`define hook-continue`), where
the user has none: with one of theirs gdb attaches to the children, as ever.

Sources: ptrace(2); gdb/linux-nat.c (follow_fork), gdb/nat/linux-ptrace.c (linux_enable_event_reporting).
"""

from __future__ import annotations

import contextlib
import re
from typing import Any, Callable

import gdb

from ... import log
from ...access import live_gdb, ptrace
from ..events import listen

SETOPTIONS = 0x4200
ALWAYS = 1 | 1 << 3 | 1 << 4  # PTRACE_O_TRACESYSGOOD, TRACECLONE, TRACEEXEC
FORKS = 1 << 1 | 1 << 2 | 1 << 5  # TRACEFORK, TRACEVFORK, TRACEVFORKDONE
EXITKILL = 1 << 20  # of a process that gdb has started
ROW = re.compile(r"^-?\d+\s+(\S.*?)\s+(?:keep|del|dis|dstp)\s+y(?:\s+(.*))?$", re.M)  # `maint info breakpoints`: type, the rest
# Types of breakpoints that put no instruction into the code.
UNPLANTED = re.compile(r"(?:hw|read|acc) (?:breakpoint|watchpoint)|catchpoint|\S+ master|.*tracepoint")
CATCH_FORK = re.compile(r"^v?fork\b")


class _State:
    without: set[int] = set()  # processes of whose forks gdb does not hear
    continues = False  # the resume that comes, or that lasts, is by `continue`
    before: list[Callable[[], object]] = []
    hooked = False


def start(before: Callable[[], object]) -> None:
    """From now on, in each process that this gdb traces. `before`: called before each `continue`."""
    if before not in _State.before:
        _State.before.append(before)
    listen(cont=_on_continue, stop=_on_stop, before_prompt=_on_stop, clear_objfiles=_on_exec)
    if not _State.hooked:
        _State.hooked = True
        try:
            gdb.execute("show user hook-continue", to_string=True)
        except gdb.error as e:
            log.passed_over(e)  # there is none
            gdb.execute(
                "define hook-continue\n"
                "python __import__('gdbext.control.quirks.fork_events').control.quirks.fork_events.continues()\n"
                "end",
                to_string=True,
            )


def continues() -> None:
    """What the hook does."""
    for prepare in _State.before:
        prepare()
    if _needed():
        _ask_again()
        return
    _State.continues = True
    for inferior in gdb.inferiors():
        if inferior.pid and live_gdb.is_local(inferior) and not live_gdb.core_file(inferior):
            _ask(inferior, False)
            _State.without.add(inferior.pid)


def _needed() -> bool:
    """Whether gdb has to hear of forks."""
    if gdb.parameter("non-stop") or gdb.parameter("follow-fork-mode") != "parent" or not gdb.parameter("detach-on-fork"):
        return True
    rows = ROW.findall(gdb.execute("maint info breakpoints", to_string=True))
    return any(
        CATCH_FORK.match(rest.strip()) if kind == "catchpoint" else "<PENDING>" not in rest and not UNPLANTED.fullmatch(kind)
        for kind, rest in rows
    )


def _ask(inferior: gdb.Inferior, forks: bool) -> None:
    """`forks`: whether to tell of them. The process stands still."""
    options = ALWAYS | (FORKS if forks else 0) | (0 if inferior.was_attached else EXITKILL)
    for tid in ptrace.tids(inferior.pid):
        with contextlib.suppress(OSError):  # it is ending
            ptrace.call(SETOPTIONS, tid, 0, options)


def _ask_again() -> None:
    for inferior in gdb.inferiors():
        if inferior.pid in _State.without:
            _ask(inferior, True)
    _State.without.clear()


def _on_continue(_: Any) -> None:
    if not _State.continues:
        _ask_again()


def _on_stop(_: Any) -> None:
    _State.continues = False


def _on_exec(event: Any) -> None:
    """Another program: gdb plants its own breakpoints there."""
    for inferior in gdb.inferiors():
        if inferior.progspace == event.progspace and inferior.pid in _State.without:
            _ask(inferior, True)
            _State.without.discard(inferior.pid)
