"""Breakpoints of the kernel's (perf events) at a thread: whatever ends the process that has opened them ends them too.

A debug register that a tracer sets stays when the tracer is killed, and a trap that it has not fetched ends the process. The
kernel removes an event with its last descriptor, and a hit sends a signal that is ignored unless a tracer stops at it. The thread
stands at the instruction then that a trap would have stopped it at. Only that thread has the event: not those that it starts.

Sources: perf_event_open(2), fcntl(2) (F_SETOWN_EX, F_SETSIG), Linux include/uapi/linux/perf_event.h, kernel/events/core.c
(__perf_event_overflow), fs/fcntl.c (send_sigio_to_task), include/uapi/asm-generic/siginfo.h.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import struct
from typing import Iterable

from .. import log
from ..errors import GdbextError
from . import ptrace
from .procfs import read_proc, status_field

SIGNAL = signal.SIGURG  # ignored by default; sent by the kernel only for urgent data of sockets whose owner asks for it
OPEN = {"x86_64": 298}  # perf_event_open; on aarch64 an access is trapped before it happens
TYPE, SIZE, CLOEXEC = 5, 128, 8  # PERF_TYPE_BREAKPOINT, PERF_ATTR_SIZE_VER7's room, PERF_FLAG_FD_CLOEXEC
WITHOUT_KERNEL = 1 << 5 | 1 << 6  # exclude_kernel, exclude_hv
SET_OWNER, SET_SIGNAL, OF_THREAD, ASYNC = 15, 10, 0, 0o20000
ENABLE, DISABLE = 0x2400, 0x2401  # PERF_EVENT_IOC_
READ_WRITE, WRITE, EXECUTE = 3, 2, 4  # HW_BREAKPOINT_
ATTRIBUTES = struct.Struct("<IIQQQQQIIQQ")  # the beginning of struct perf_event_attr
AT_DESCRIPTOR = 24  # siginfo_t: si_band, then si_fd
GETSIGINFO = 0x4202


def open_at(tid: int, address: int, size: int, access: int) -> int:
    """A descriptor of a new event: each `access` of a thread to so many bytes sends it SIGNAL. OSError where the kernel gives
    none."""
    event = ctypes.create_string_buffer(
        ATTRIBUTES.pack(TYPE, SIZE, 0, 1, 0, 0, WITHOUT_KERNEL, 1, access, address, size if access != EXECUTE else 8), SIZE
    )
    found = int(ptrace.libc.syscall(OPEN[ptrace.MACHINE], event, tid, -1, -1, CLOEXEC))
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    try:
        fcntl.fcntl(found, SET_OWNER, struct.pack("<ii", OF_THREAD, tid))
        fcntl.fcntl(found, SET_SIGNAL, int(SIGNAL))
        fcntl.fcntl(found, fcntl.F_SETFL, fcntl.fcntl(found, fcntl.F_GETFL) | ASYNC)
    except BaseException:
        os.close(found)
        raise
    return found


def enable(descriptor: int, yes: bool) -> None:
    """Lets an event count, or not."""
    fcntl.ioctl(descriptor, ENABLE if yes else DISABLE, 0)


def hit(tid: int) -> int:
    """The descriptor of the event at whose signal a thread of this tracer's stands; -1 for any other signal of that number."""
    info = ctypes.create_string_buffer(128)
    ptrace.call(GETSIGINFO, tid, 0, ctypes.addressof(info))
    number, _, code = struct.unpack_from("<3i", info)
    descriptor = struct.unpack_from("<i", info, AT_DESCRIPTOR)[0]
    return int(descriptor) if number == SIGNAL and code not in (0, -1, -6) else -1  # SI_USER, SI_QUEUE, SI_TKILL


def leaves_signal_alone(pid: int, tids: Iterable[int]) -> bool:
    """Whether a process has no handler for SIGNAL, and none of some of its threads blocks it."""
    bit = 1 << SIGNAL - 1
    try:
        handled = int(status_field(read_proc(pid, "status"), b"SigCgt") or b"0", 16)
        blocked = [int(status_field(read_proc(pid, f"task/{tid}/status"), b"SigBlk") or b"0", 16) for tid in tids]
    except (GdbextError, OSError, ValueError) as e:
        log.passed_over(e)
        return False
    return not handled & bit and not any(mask & bit for mask in blocked)
