"""ProcTarget: a running process read through /proc, without stopping it and without ptrace.

What is read may change between two reads (`is_stopped` is False): readers that follow pointers must expect `FaultError`
and nonsense, and try again. Reading memory needs the permission that ptrace needs; the error says how to get it.
"""

import os
import re

from ..errors import FaultError, GdbextError, NotFoundError
from .base import Mapping, Target, Thread

_PAGE = os.sysconf("SC_PAGE_SIZE")
_THERE = bytes(i >> 6 != 0 for i in range(256))  # the upper byte of a pagemap entry: in memory, or in swap
_RUNS = re.compile(rb"\x01(?:\x00{0,15}\x01)*").finditer


def permission_hint(pid):
    """The one line that gives the right to read or attach to `pid`, from what this machine says of itself."""
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


def parse_maps(text):
    """The text of /proc/PID/maps -> `[Mapping]`."""
    found = []
    for line in text.splitlines():
        parts = line.split(None, 5)
        if len(parts) < 5:
            continue
        start, _, end = parts[0].partition("-")
        path = parts[5].replace("\\012", "\n") if len(parts) > 5 else ""
        found.append(Mapping(int(start, 16), int(end, 16), parts[1], int(parts[2], 16), path, int(parts[4])))
    return found


def read_proc(pid, name):
    """Bytes of /proc/PID/NAME; `NotFoundError` when the process is gone, `GdbextError` when it may not be read."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as f:
            return f.read()
    except PermissionError:
        raise GdbextError(f"process {pid}: no permission to read its {name}; {permission_hint(pid)}") from None
    except (FileNotFoundError, ProcessLookupError):
        raise NotFoundError(f"process {pid} does not exist (any more)") from None


def list_threads(pid):
    """`[Thread]` of a live process from /proc, by tid; no registers."""
    try:
        tids = sorted(map(int, os.listdir(f"/proc/{pid}/task")))
    except OSError:
        raise NotFoundError(f"process {pid} does not exist (any more)") from None
    found = []
    for tid in tids:
        try:
            stat = read_proc(pid, f"task/{tid}/stat").decode("utf-8", "replace")
            own = next((line for line in read_proc(pid, f"task/{tid}/status").splitlines() if line.startswith(b"NSpid:")), b"")
        except GdbextError:
            continue  # it ended while we looked
        name, _, rest = stat.partition("(")[2].rpartition(")")
        found.append(Thread(tid, name, (rest.split() or ["?"])[0], ns_tid=int(own.split()[-1]) if own else tid))
    return found


class ProcTarget(Target):
    """`pid` as this machine numbers it."""

    kind = "proc"
    is_live = True
    is_stopped = False

    def __init__(self, pid, label=""):
        super().__init__()
        self.pid, self.label = int(pid), label
        self._mem = None
        self.arch = {"aarch64": "aarch64"}.get(os.uname().machine, "x86-64")

    def _open(self):
        if self._mem is None:
            try:
                self._mem = open(f"/proc/{self.pid}/mem", "rb", buffering=0)
            except PermissionError:
                raise GdbextError(f"process {self.pid}: no permission to read its memory; {permission_hint(self.pid)}") from None
            except (FileNotFoundError, ProcessLookupError):
                raise NotFoundError(f"process {self.pid} does not exist (any more)") from None
        return self._mem

    def _read(self, address, size):
        mem = self._open()
        parts, done = [], 0
        while done < size:
            try:
                chunk = os.pread(mem.fileno(), size - done, address + done)
            except (OSError, OverflowError) as e:
                raise FaultError(address, size, getattr(e, "strerror", "") or "") from None
            if not chunk:
                raise FaultError(address, size, "" if os.path.exists(f"/proc/{self.pid}") else "the process is gone")
            parts.append(chunk)
            done += len(chunk)
        return b"".join(parts)

    def populated(self, start, end):
        """By /proc/PID/pagemap (Documentation/admin-guide/mm/pagemap.rst): pages in memory or swapped out. Short gaps are passed over."""
        try:
            with open(f"/proc/{self.pid}/pagemap", "rb", buffering=0) as f:
                entries = os.pread(f.fileno(), (end - start) // _PAGE * 8, start // _PAGE * 8)
        except OSError:
            return [(start, end)]
        if len(entries) != (end - start) // _PAGE * 8:
            return [(start, end)]
        return [(start + m.start() * _PAGE, start + m.end() * _PAGE) for m in _RUNS(entries[7::8].translate(_THERE))]

    def _mappings(self):
        maps = parse_maps(read_proc(self.pid, "maps").decode("utf-8", "surrogateescape"))
        if not maps:
            raise GdbextError(f"process {self.pid} has no memory: it is a zombie or a kernel thread")
        return maps

    def _threads(self):
        return list_threads(self.pid)

    def argv(self):
        return [a.decode("utf-8", "surrogateescape") for a in read_proc(self.pid, "cmdline").split(b"\0")[:-1]]

    def environ(self):
        pairs = (
            e.decode("utf-8", "surrogateescape").partition("=") for e in read_proc(self.pid, "environ").split(b"\0") if b"=" in e
        )
        return {k: v for k, _, v in pairs}

    def root(self):
        try:
            if os.stat(f"/proc/{self.pid}/root/").st_ino == os.stat("/").st_ino:
                return ""
        except OSError:
            return ""
        return f"/proc/{self.pid}/root"

    def deleted_file(self, path, base):
        if self.exe() == path:
            return f"/proc/{self.pid}/exe"
        m = self.mapping_at(base)
        file = f"/proc/{self.pid}/map_files/{m.start:x}-{m.end:x}"  # for root alone
        return file if os.access(file, os.R_OK) else ""

    def exe(self):
        try:
            return os.readlink(f"/proc/{self.pid}/exe")
        except OSError:
            return ""

    def close(self):
        if self._mem is not None:
            self._mem.close()
            self._mem = None
