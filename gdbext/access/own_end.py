"""What keeps a process of ours from being stopped while another one waits for it: a session of its own, no signal of a terminal,
and a timer of the kernel that ends it.

SIGSTOP cannot be ignored, and a process that is stopped cannot look at the clock. The kernel can: at the set time it sends
SIGKILL to this process, also where that is stopped, or frozen in a control group of version 2. The threads that it has seized run
on then. Version 1's freezer lets no signal through; cgroups.py leads away from it.

Sources: timer_create(2), ptrace(2), signal(7), Linux include/uapi/asm-generic/siginfo.h, Documentation/admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import time

from .. import log
from ..errors import GdbextError
from . import cgroups, procfs, ptrace

CREATE = {"x86_64": 222, "aarch64": 107}  # timer_create
SET = {"x86_64": 223, "aarch64": 110}  # timer_settime
EVENT = struct.Struct("<Qii")  # struct sigevent: its value, the signal, SIGEV_SIGNAL (0)
OF_TERMINALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


def apart() -> None:
    """Makes this process one that no signal of a terminal or of its starter's group reaches. ^C and ^Z are for the process that
    asks; that then ends this one."""
    with contextlib.suppress(OSError):
        os.setsid()  # it leads a session already
    for number in OF_TERMINALS:
        signal.signal(number, signal.SIG_IGN)


class Deadline:
    """Ends this process by SIGKILL, whatever it does then, unless the time is set anew before. Where the kernel gives no timer
    (a filter of system calls), nothing ends it."""

    def __init__(self) -> None:
        self._timer: ctypes.c_int | None = ctypes.c_int()
        event = ctypes.create_string_buffer(EVENT.pack(0, signal.SIGKILL, 0), 64)
        made = ptrace.MACHINE in CREATE and not ptrace.libc.syscall(
            CREATE[ptrace.MACHINE], time.CLOCK_MONOTONIC, event, ctypes.byref(self._timer)
        )
        if not made:
            self._timer = None
            log.passed_over(OSError(ctypes.get_errno(), "no timer"), "a stop of the process that holds threads is not noticed")

    def set(self, seconds: float) -> None:
        """From now on; 0: never."""
        if self._timer is not None:
            whole = int(seconds)
            value = struct.pack("<4q", 0, 0, whole, int((seconds - whole) * 1e9))
            ptrace.libc.syscall(SET[ptrace.MACHINE], self._timer, 0, value, None)


def is_frozen(pid: int) -> bool:
    """Whether a control group's freezer holds a process."""
    return bool(cgroups.frozen_by(pid))


def wake(pid: int) -> bool:
    """Lets one of our own processes go on where a signal has stopped it. -> whether one had"""
    try:
        if procfs.state_of(pid, pid) != "T":
            return False
        os.kill(pid, signal.SIGCONT)
    except (GdbextError, OSError) as e:
        log.passed_over(e)
        return False
    return True
