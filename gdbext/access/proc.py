"""ProcTarget: a running process read through /proc, without stopping it and without ptrace.

The memory may change between two reads (`is_stopped` is False): readers that follow pointers must expect `FaultError` and
nonsense, and try again. Reading memory needs the same permission as ptrace; the error says how to get it.
"""

from __future__ import annotations

import os
import re
import time
from typing import BinaryIO, Sequence

from .. import log
from ..errors import FaultError, GdbextError, NotFoundError
from . import namespaces, pagemap, readers
from .base import Target
from .model import Mapping, Module, Thread
from .pagemap import Presence
from .permission import permission_hint
from .procfs import parse_maps, read_maps, read_proc, read_stat, state_of, task_ids

_PAGE = os.sysconf("SC_PAGE_SIZE")
_RUNS = re.compile(rb"\x01(?:\x00{0,15}\x01)*").finditer
_ENTRIES = 1 << 20  # pagemap entries (4 GiB of addresses) that are read at once


def list_threads(pid: int) -> list[Thread]:
    """The threads of a live process from /proc, by tid; no registers."""
    found = []
    nested = True  # in a pid namespace below ours, with other numbers: one thread shows it for all
    for tid in task_ids(pid):
        try:
            stat = read_stat(pid, tid)
            own = namespaces.numbers(f"/proc/{pid}/task/{tid}") if nested else [tid]
        except GdbextError as e:
            log.passed_over(e)
            continue  # it has ended meanwhile
        nested = len(own) > 1
        found.append(Thread(tid, stat.name.decode("utf-8", "replace"), stat.state, ns_tid=own[-1]))
    return found


def boot_id() -> str:
    """The kernel's id of this boot of the machine; '' where it gives none."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as f:
            return f.read().strip()
    except OSError:
        return ""


def process_root(pid: int) -> str:
    """The folder under which this machine sees a process's own file system; '' where it is ours.

    Two file systems may give their roots the same inode number, so the device counts too. With the same root folder another mount
    namespace may still have other folders mounted below it."""
    try:
        theirs, ours = os.stat(f"/proc/{pid}/root/"), os.stat("/")
    except OSError:
        return ""
    if (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino):
        try:
            if os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt"):
                return ""
        except OSError:
            return ""
    return f"/proc/{pid}/root"


def process_clock(pid: int) -> int | None:
    """Nanoseconds that all threads of a process have run; None where it is gone or the kernel does not count them.

    Source: clock_getcpuclockid(3), Linux's include/linux/posix-timers_types.h (CPUCLOCK_SCHED)."""
    try:
        return time.clock_gettime_ns(~pid << 3 | 2)
    except OSError:
        return None


class ProcTarget(Target):
    """`pid` is this machine's number. If the main thread has ended, data that its /proc entry lacks comes from another thread's.
    `GdbextError` where /proc numbers other processes than ours."""

    kind = "proc"
    is_live = True
    is_stopped = False
    pid: int

    def __init__(self, pid: int, label: str = "") -> None:
        super().__init__()
        namespaces.need_own_numbers()
        self.pid, self.label = int(pid), label
        self._mem: BinaryIO | None = None
        self._presence: Presence | None = None
        self._carrier = 0  # the thread whose entry has the memory, once it was searched for
        self._map: tuple[str, list[Mapping], list[Module] | None] = "", [], None  # as it was last read, and parsed
        self.arch = {"aarch64": "aarch64"}.get(os.uname().machine, "x86-64")

    def open_memory(self) -> BinaryIO:
        """Opens the process's memory; the error names the missing permission."""
        if self._mem is None:
            try:
                self._mem = open(f"/proc/{self._memory_tid()}/mem", "rb", buffering=0)
            except PermissionError:
                raise GdbextError(f"process {self.pid}: no permission to read its memory; {permission_hint(self.pid)}") from None
            except (FileNotFoundError, ProcessLookupError):
                raise NotFoundError(f"process {self.pid} does not exist (any more)") from None
        return self._mem

    def _memory_tid(self) -> int:
        if not self._carrier:
            self._carrier = read_maps(self.pid)[1]
        return self._carrier

    def _entry(self, name: str) -> bytes:
        try:
            found = read_proc(self.pid, name)
        except NotFoundError as e:
            log.passed_over(e)
            found = b""
        return found or read_proc(self._memory_tid(), name)

    def has_ended(self) -> bool:
        return state_of(self.pid) in ("", "Z", "X")

    def read_now(self, address: int, size: int) -> bytes:
        """As `read`, of the process as it is now: caches are not used."""
        return self._read(address, size)

    def presence(self) -> Presence:
        """Which of its pages are in memory."""
        if self._presence is None:
            self._presence = Presence(self._memory_tid())
        return self._presence

    def _read(self, address: int, size: int) -> bytes:
        if self.presence().absent(address, size):
            return self._read_away(address, size)
        descriptor = self.open_memory().fileno()
        parts, done = [], 0
        while done < size:
            try:
                chunk = os.pread(descriptor, size - done, address + done)
            except (OSError, OverflowError) as e:
                raise FaultError(address, size, getattr(e, "strerror", "") or "") from None
            if not chunk:
                raise FaultError(address, size, "" if os.path.exists(f"/proc/{self.pid}") else "the process is gone")
            parts.append(chunk)
            done += len(chunk)
        return b"".join(parts)

    def _read_away(self, address: int, size: int) -> bytes:
        """Reads memory that another process or a device has to provide, which may never happen."""
        from .fetcher import fetcher  # it loads subprocess

        m = self.mapping_at(address)
        if m is None:
            raise FaultError(address, size, "" if os.path.exists(f"/proc/{self.pid}") else "the process is gone")
        self.open_memory()  # names the missing permission
        found: bytes = fetcher.read(self._memory_tid(), address, size, (m.start, m.end))
        return found

    def gather(self, addresses: Sequence[int], size: int) -> memoryview | None:
        """By process_vm_readv(2), which some containers forbid. None too where it would wait for one who provides a page."""
        from . import remote_memory  # it loads ctypes

        if self.presence().any_absent({at // _PAGE for at in addresses} | {(at + size - 1) // _PAGE for at in addresses}):
            return None
        found: memoryview | None = remote_memory.gather(self._memory_tid(), addresses, size)
        return found

    def populated(self, start: int, end: int) -> list[tuple[int, int]]:
        """By /proc/PID/pagemap (Documentation/admin-guide/mm/pagemap.rst): pages in memory or swapped out. Short gaps are passed
        over."""
        found = []
        start, end = start - start % _PAGE, end + -end % _PAGE
        try:
            with open(f"/proc/{self._memory_tid()}/pagemap", "rb", buffering=0) as f:
                for at, there in pagemap.entries(f.fileno(), start, end, pagemap.THERE, _ENTRIES):
                    found += [(at + m.start() * _PAGE, at + m.end() * _PAGE) for m in _RUNS(there)]
        except (OSError, GdbextError) as e:
            log.passed_over(e)
            return [(start, end)]
        return found

    def know_maps_of(self, other: ProcTarget) -> None:
        """Takes over what another Target of the same process derived from its memory map. It stays valid as long as the map is
        the same."""
        self._map = other._map

    def _mappings(self) -> list[Mapping]:
        text, self._carrier = read_maps(self.pid)
        if text != self._map[0]:
            self._map = text, parse_maps(text), None
        return self._map[1]

    def _modules(self) -> list[Module]:
        self.mappings()
        text, maps, found = self._map
        if found is None:
            found = super()._modules()
            self._map = text, maps, found
        return found

    def _threads(self) -> list[Thread]:
        return list_threads(self.pid)

    def own_tids(self) -> dict[int, int]:
        """As `Target.own_tids`. In our pid namespace it reads no file for each thread, because samplers call it often."""
        tids = task_ids(self.pid)
        nested = tids and len(namespaces.numbers(f"/proc/{self.pid}/task/{tids[0]}")) > 1
        return super().own_tids() if nested else {tid: tid for tid in tids}

    def pid_here(self, number: int) -> int:
        """As `Target.pid_here`."""
        return namespaces.pid_here(self._carrier or self.pid, number) or 0

    def argv(self) -> list[str]:
        """The words of /proc/PID/cmdline."""
        return [a.decode("utf-8", "surrogateescape") for a in self._entry("cmdline").split(b"\0")[:-1]]

    def environ(self) -> dict[str, str]:
        """The variables of /proc/PID/environ."""
        pairs = (e.decode("utf-8", "surrogateescape") for e in self._entry("environ").split(b"\0") if b"=" in e)
        return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}

    def user(self) -> readers.User | None:
        """The process's own."""
        return readers.of_process(self._carrier or self.pid)

    def root(self) -> str:
        """See `process_root`."""
        return process_root(self._carrier or self.pid)

    def living(self) -> int | None:
        """Itself, or the thread that has its memory."""
        return self._carrier or self.pid

    def cwd(self) -> str:
        """The working folder, by its name inside the process's own root."""
        try:
            return os.readlink(f"/proc/{self.pid}/cwd")
        except OSError:
            return ""

    def deleted_file(self, path: str, base: int) -> str:
        """Through /proc/PID/exe, or for root through /proc/PID/map_files."""
        if self.exe() == path:
            return f"/proc/{self.pid}/exe"
        m = self.mapping_at(base)
        file = f"/proc/{self.pid}/map_files/{m.start:x}-{m.end:x}" if m else ""  # for root alone
        return file if file and os.access(file, os.R_OK) else ""

    def exe(self) -> str:
        """The path of the program, '' where it may not be read."""
        try:
            return os.readlink(f"/proc/{self.pid}/exe")
        except OSError:
            return ""

    def invalidate(self) -> None:
        """Drops every cache. After an exec it also drops the memory of the earlier program."""
        super().invalidate()
        self.close()

    def close(self) -> None:
        """Closes the memory; it is opened again when it is needed."""
        if self._mem is not None:
            self._mem.close()
            self._mem = None
        if self._presence is not None:
            self._presence.close()
            self._presence = None
