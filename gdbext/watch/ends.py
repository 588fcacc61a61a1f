"""How a process ended: its exit status, from /proc while its parent has not asked for it, afterwards from a descriptor of it.

Sources: proc_pid_stat(5), wait(2), pidfd_open(2), Linux include/uapi/linux/pidfd.h (PIDFD_GET_INFO of 6.13, PIDFD_INFO_EXIT of
6.15), Documentation/admin-guide/cgroup-v2.rst (memory.events), cgroup-v1/memory.rst (memory.oom_control).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import time
from dataclasses import dataclass

from .. import log
from ..access import cgroups
from ..access.procfs import read_stat
from ..errors import GdbextError

GET_INFO = 0xC040FF0B  # _IOWR(PIDFS_IOCTL_MAGIC, 11, struct pidfd_info of 64 bytes)
INFO_EXIT = 8
INFO = struct.Struct("<Q52xi")  # mask, ..., exit_code
OOM_SPAN = 10.0  # seconds between two counts of what the kernel ended for want of memory
ASKED = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}  # by these a process is told to end


@dataclass
class End:
    """`known`: whether the rest is. `signal`: its name, "" where it ended of itself with `status`; `oom`: the kernel ended a
    process of its control group for want of memory within two `OOM_SPAN`, maybe this one."""

    known: bool = False
    signal: str = ""
    status: int | None = None
    oom: bool = False

    @property
    def orderly(self) -> bool:
        """It was told to end, or had done its work."""
        return self.known and not self.oom and (self.status == 0 or self.signal in {s.name for s in ASKED})

    @property
    def words(self) -> str:
        """As the end of a sentence: `was ended by SIGKILL`."""
        if not self.known:
            return "has ended" + (" when memory had run out" if self.oom else "")
        if self.signal:
            return f"was ended by {self.signal}" + (", out of memory" if self.oom and self.signal == "SIGKILL" else "")
        return f"has ended with status {self.status}"


class Life:
    """The end of one process, when it comes. `file`: a descriptor that can be read from then on, -1 where there is none."""

    def __init__(self, pid: int) -> None:
        self.pid, self.file = pid, -1
        opened = getattr(os, "pidfd_open", None)  # Python 3.9, Linux 5.3
        with contextlib.suppress(OSError):
            self.file = opened(pid) if opened is not None else -1
        self._folders = cgroups.folders(pid, "memory")[:1]
        self._killed = [self._oom_kills()] * 2  # at the last count and at the one before
        self._counted = time.monotonic()

    def look(self, now: float) -> None:
        """It is there at this time: processes that memory ran out for long before have nothing to do with its end."""
        if now - self._counted >= OOM_SPAN:
            self._killed, self._counted = [self._oom_kills(), self._killed[0]], now

    def end(self) -> End:
        """How it ended, as far as the kernel tells."""
        code = self._code()
        found = End(oom=self._oom_kills() > self._killed[1])
        if code is None:
            return found
        number = code & 0x7F
        found.known, found.status = True, None if number else code >> 8 & 0xFF
        with contextlib.suppress(ValueError):
            found.signal = signal.Signals(number).name if number else ""
        found.signal = found.signal or (f"signal {number}" if number else "")
        found.oom = found.oom and found.signal == "SIGKILL"
        return found

    def _code(self) -> int | None:
        try:
            stat = read_stat(self.pid)
            if stat.state in ("Z", "X") and os.access(f"/proc/{self.pid}/stat", os.R_OK):
                return stat.exit_status if stat.exit_status or self._may_see() else None
        except (GdbextError, OSError) as e:
            log.passed_over(e)
        if self.file < 0:
            return None
        told = bytearray(INFO.pack(INFO_EXIT, 0))
        try:
            fcntl.ioctl(self.file, GET_INFO, told)
        except OSError as e:
            log.passed_over(e)
            return None
        mask, code = INFO.unpack(told)
        return code if mask & INFO_EXIT else None

    def _may_see(self) -> bool:
        """Whether a 0 in its stat is its status: others see 0 whatever it was (PTRACE_MODE_READ_FSCREDS)."""
        try:
            return os.geteuid() in (0, os.stat(f"/proc/{self.pid}").st_uid)
        except OSError:
            return False

    def _oom_kills(self) -> int:
        count = 0
        for name in (f"{folder}/{file}" for folder in self._folders for file in ("memory.events", "memory.oom_control")):
            with contextlib.suppress(OSError, ValueError), open(name, encoding="ascii") as f:
                words = f.read(4096).split()
                count += int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else 0
        return count

    def close(self) -> None:
        """Closes its descriptor."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1
