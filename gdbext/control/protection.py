"""What protects a process with armed debug registers should gdb be killed: a group-stop that gdb overrides, and the guard."""

from __future__ import annotations

import os
import signal
from typing import Iterable

import gdb

from .. import log
from ..access import debug_registers, ptrace, recovery
from ..access.cli_gdb import command
from ..access.procfs import read_stat
from ..errors import GdbextError, NotFoundError
from . import attached_processes
from .gdb_state import handling

# {signal: the words of `handle` as the user had them}, while a process is in a group-stop
_handled: dict[str, str] = {}


def in_foreground(pid: int) -> bool:
    """Whether a process is in the foreground of a terminal (proc(5): stat, pgrp and tpgid)."""
    try:
        stat = read_stat(pid)
        return stat.terminal != 0 and stat.group == stat.foreground
    except GdbextError as e:
        log.passed_over(e)
        return True


class Protection:
    """Of one process. `armed`: a register is, or is about to be."""

    def __init__(self, pid: int) -> None:
        self.pid, self.armed = pid, False
        self._group_stop: recovery.GroupStop | None = None

    def enter(self) -> None:
        """To be called before a register is armed: informs the guard, and puts the process in a group-stop that gdb overrides
        when it resumes the process.

        If gdb dies, the kernel stops every thread before it runs one more instruction (kernel/ptrace.c, __ptrace_unlink). So none
        can run into an armed register before the guard has cleared it. There is no group-stop for a process in the foreground of
        a shell: the shell would take its terminal back."""
        if self.armed or attached_processes.guard_error():
            return
        attached_processes.armed(self.pid)
        self.armed = True
        if in_foreground(self.pid):
            return
        for name in ("SIGSTOP", "SIGCONT"):
            if name not in _handled:
                _handled[name] = handling(name)
            gdb.execute(command("handle {} nostop noprint pass", name), to_string=True)
        try:
            os.kill(self.pid, signal.SIGSTOP)
        except ProcessLookupError:
            raise NotFoundError(f"process {self.pid} has ended: gdb has not heard of it yet") from None
        self._group_stop = recovery.GroupStop(self.pid, ptrace.start_time(self.pid) or 0)
        attached_processes.protected(self.pid)

    def keep(self) -> None:
        """Makes the group-stop again where a SIGCONT has ended it. The guard does so too, ten times a second."""
        if self._group_stop is not None:
            self._group_stop.renew()

    def leave(self) -> bool:
        """Ends the group-stop: no debug register is armed any more. -> whether it did. While gdb ends, the guard does it: a
        SIGINT that gdb has sent to the process because it was ended itself is to be taken back first."""
        if attached_processes.gdb_ends():
            return False
        if self.armed:
            self.armed = False
            attached_processes.armed(self.pid, False)
        if self._group_stop is not None:
            self._group_stop = None
            debug_registers.clear_of_stopped(self.pid)  # gdb does so when it resumes them: it may die before
            try:
                recovery.end_group_stop(self.pid)
            except OSError:
                pass  # it has ended
        return True

    def lasts(self) -> bool:
        """Whether the process is in that group-stop."""
        return self._group_stop is not None


def give_back(all_of_them: Iterable[Protection]) -> None:
    """Gives gdb's way with these signals back, once no process is in a group-stop."""
    if _handled and not any(one.lasts() for one in all_of_them):
        for name, words in _handled.items():
            if name == "SIGSTOP":  # SIGCONT may still be on its way to one that was in a group-stop
                gdb.execute(command("handle {} {}", name, words), to_string=True)
        _handled.clear()
