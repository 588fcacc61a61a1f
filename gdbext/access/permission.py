"""Which permission is missing to read or trace a process, in one line."""

from __future__ import annotations

import os


def permission_hint(pid: int) -> str:
    """The one line that tells how to get the right to read or attach to `pid`, by what /proc says of this machine."""
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope") as f:
            scope = f.read().strip()
    except OSError:
        scope = "0"
    uid = None
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        pass
    if os.geteuid() != 0 and uid not in (None, os.geteuid()):
        return f"it belongs to user {uid}: run gdb as that user or with sudo"
    if scope == "3":
        return "kernel.yama.ptrace_scope is 3: no tracing until a reboot with a lower value"
    if scope == "2" or (scope == "1" and os.geteuid() != 0):
        return "run: sudo sysctl kernel.yama.ptrace_scope=0"
    if os.geteuid() == 0:
        return "in a container start it with --cap-add=SYS_PTRACE (kubernetes: securityContext.capabilities.add: [SYS_PTRACE])"
    return "run gdb with sudo, or in a container with --cap-add=SYS_PTRACE"
