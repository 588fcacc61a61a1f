"""-unstopped: a filter of system calls in the command itself, which nothing takes away again. From then on the kernel refuses
this process, its threads and all that it starts to trace another process, to write to its memory, to take its files, and to send
it a signal. SIGKILL and SIGCONT are left: helper processes of its own are ended by the one and go on by the other.

Sources: seccomp(2), Linux include/uapi/linux/seccomp.h, filter.h, audit.h; the numbers of arch/x86/entry/syscalls/syscall_64.tbl
and include/uapi/asm-generic/unistd.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import struct
from typing import Iterator, Sequence

from ..errors import GdbextError
from . import ptrace

WHY = "-unstopped"  # the reason that a copy gives for what it is
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_*
SECCOMP = {"x86_64": 317, "aarch64": 277}
# ptrace, process_vm_writev, process_madvise, pidfd_getfd
REFUSED = {"x86_64": (101, 311, 440, 438), "aarch64": (117, 271, 440, 438)}
# {system call: the place of its signal}: kill, tkill, rt_sigqueueinfo, pidfd_send_signal; tgkill, rt_tgsigqueueinfo
SIGNALS = {
    "x86_64": {62: 1, 200: 1, 129: 1, 424: 1, 234: 2, 297: 2},
    "aarch64": {129: 1, 130: 1, 138: 1, 424: 1, 131: 2, 240: 2},
}
ALLOWED = (0, signal.SIGKILL, signal.SIGCONT)
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_JMP|JGE|K, BPF_RET|K
NUMBER, WHICH_ARCH, ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
OTHER_ABI = 0x40000000  # x32's numbers begin here
FILTER, ALL_THREADS, NO_NEW_PRIVILEGES = 1, 1, 38
_installed = [False]


def installed() -> bool:
    """Whether this process can stop nothing, or is not to."""
    return _installed[0]


@contextlib.contextmanager
def during() -> Iterator[None]:
    """Stops nothing in the `with` block. It is the command's own will, and no filter."""
    before, _installed[0] = _installed[0], True
    try:
        yield
    finally:
        _installed[0] = before


def program(machine: str) -> bytes:
    """The filter: an array of struct sock_filter."""
    steps: list[Sequence[int]] = [(LOAD, 0, 0, WHICH_ARCH), (EQUAL, 1, 0, ARCH[machine]), (RETURN, 0, 0, REFUSE)]
    steps += [(LOAD, 0, 0, NUMBER), (AT_LEAST, 0, 1, OTHER_ABI), (RETURN, 0, 0, REFUSE)]
    for number in REFUSED[machine]:
        steps += [(EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE)]
    for number, place in SIGNALS[machine].items():
        steps += [(EQUAL, 0, 2 + 2 * len(ALLOWED), number), (LOAD, 0, 0, ARGUMENTS + 8 * place)]
        for one in ALLOWED:
            steps += [(EQUAL, 0, 1, one), (RETURN, 0, 0, ALLOW)]
        steps += [(RETURN, 0, 0, REFUSE)]
    return b"".join(struct.pack("<HBBI", *step) for step in [*steps, (RETURN, 0, 0, ALLOW)])


def install() -> None:
    """Makes this process one that can stop nothing. `GdbextError` where the kernel gives no filter."""
    if installed():
        return
    refused = "-unstopped promises that nothing can be stopped, by a filter of system calls, which cannot be had here"
    if ptrace.MACHINE not in ARCH:
        raise GdbextError(f"{refused}: {ptrace.MACHINE} has no list of them")
    code = program(ptrace.MACHINE)
    held = ctypes.create_string_buffer(code, len(code))
    whole = ctypes.create_string_buffer(struct.pack("<H6xQ", len(code) // 8, ctypes.addressof(held)), 16)
    if ptrace.libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or ptrace.libc.syscall(
        SECCOMP[ptrace.MACHINE], FILTER, ALL_THREADS, ctypes.byref(whole)
    ):
        raise GdbextError(f"{refused}: {os.strerror(ctypes.get_errno())}")
    _installed[0] = True
