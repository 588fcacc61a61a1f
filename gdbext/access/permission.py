"""The missing permission to read or trace a process, in one line that says how to get it."""

from __future__ import annotations

import os
import re
from typing import Iterable

SYS_PTRACE = 19  # its bit in a set of capabilities, linux/capability.h
OTHERS_FILES = 1 << 1 | 1 << 2  # DAC_OVERRIDE, DAC_READ_SEARCH
OUTSIDE = "as that user on the host, or in the engine's own container (kubectl exec, docker exec)"
ADD = "in a container start it with --cap-add=SYS_PTRACE (kubernetes: securityContext.capabilities.add: [SYS_PTRACE])"

ALLOW = ' (or, for the next start of the engine, put "gdbext allow" into its image)'


class Rights:
    """The facts of /proc about this process and the one that it wants to read.

    * `scope`: kernel.yama.ptrace_scope
    * `may`: this process has SYS_PTRACE
    * `reads`: it may read files of other users (CAP_DAC_READ_SEARCH or CAP_DAC_OVERRIDE)
    * `filtered`: a seccomp filter applies to this process
    * `nested`: this process is in a user namespace of its own
    * `user`: the owner of the other process
    * `hidden`: the kernel keeps the other process's memory from its own user (it is not dumpable)"""

    reads = True

    def __init__(self, pid: int, proc: str = "/proc") -> None:
        own = _text(f"{proc}/self/status")
        self.euid = os.geteuid()
        self.scope = _text(f"{proc}/sys/kernel/yama/ptrace_scope").strip() or "0"
        capabilities = int(_field(own, "CapEff") or "0", 16)
        self.may, self.reads = bool(capabilities >> SYS_PTRACE & 1), bool(capabilities & OTHERS_FILES)
        self.filtered = _field(own, "Seccomp") == "2"
        whole = ["0", "0", "4294967295"]  # the first user namespace; one without a map has an empty one
        self.nested = os.path.exists(f"{proc}/self/uid_map") and _text(f"{proc}/self/uid_map").split() != whole
        self.user = _owner(f"{proc}/{pid}")
        maps = _owner(f"{proc}/{pid}/maps")
        self.hidden = None not in (self.user, maps) and maps != self.user


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def _field(text: str, name: str) -> str:
    found = re.search(rf"^{name}:\s*(\S+)", text, re.M)
    return found[1] if found else ""


def _owner(path: str) -> int | None:
    try:
        return os.stat(path).st_uid
    except OSError:
        return None


def is_refused(pid: int) -> bool:
    """Whether a process is there and its memory may not be read."""
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY))
    except PermissionError:
        return True
    except OSError:
        pass  # it is gone, or has no memory
    return False


def first_line(pids: Iterable[int | None]) -> str:
    """What an answer about processes begins with where some may not be read, and the line that mends it; '' where all may."""
    known = [pid for pid in dict.fromkeys(pids) if pid]
    refused = [pid for pid in known if is_refused(pid)]
    if not refused:
        return ""
    many = f"{len(refused)} of {len(known)} processes" if len(known) > 1 else f"process {refused[0]}"
    return (
        f"no permission to read {many}, so this is what /proc and their own ports show; to mend it: {permission_hint(refused[0])}"
    )


def permission_hint(pid: int) -> str:
    """One line that says how to get the right to read or attach to `pid`, by the facts of /proc."""
    return hint(Rights(pid))


def hint(rights: Rights) -> str:
    """The line for `rights`. It names the first obstacle, in the order in which __ptrace_may_access of the kernel
    (kernel/ptrace.c) and Yama check."""
    if rights.may and rights.filtered and not rights.nested:
        return (
            "a seccomp filter forbids it: docker --security-opt seccomp=unconfined "
            "(kubernetes: securityContext.seccompProfile.type: Unconfined)"
        )
    if rights.nested:
        return f"this is a user namespace of its own, which has no rights over processes outside: run it {OUTSIDE}"
    if rights.may and not rights.reads and rights.user not in (None, rights.euid):
        return f"it belongs to user {rights.user}: add the capability DAC_READ_SEARCH to SYS_PTRACE, or run as that user"
    if rights.euid != 0 and rights.user not in (None, rights.euid):
        return f"it belongs to user {rights.user}: run this as that user or with sudo"
    if rights.scope == "3":
        return "kernel.yama.ptrace_scope is 3: no tracing until a reboot with a lower value"
    if rights.scope == "2" or (rights.scope == "1" and rights.euid != 0):
        return "run: sudo sysctl kernel.yama.ptrace_scope=0" + ALLOW * (rights.scope == "1" and not rights.hidden)
    if rights.euid == 0:
        return ADD
    if rights.hidden:
        return "it hides its memory from its own user (not dumpable, prctl(2)): run it with sudo, or as root with SYS_PTRACE"
    return "run this with sudo, or in a container with --cap-add=SYS_PTRACE"
