"""The files of /proc: how each is read, and the one parser of each.

A parser is a pure function of a file's bytes; `ValueError` for bytes of another format. A read raises `GdbextError`. A program
chooses its name in `stat`, `status` and paths: parentheses, spaces and line breaks in it are not part of the format. Sources:
proc(5), Documentation/filesystems/proc.rst, Documentation/scheduler/sched-stats.rst.
"""

from __future__ import annotations

import functools
import os
import re
import time
from typing import Callable, Iterator, NamedTuple, TypeVar

from .. import log
from ..errors import GdbextError, LayoutError, NotFoundError
from .model import Mapping
from .permission import permission_hint

T = TypeVar("T")

try:
    TICKS = os.sysconf("SC_CLK_TCK")  # a second
    PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
except (AttributeError, ValueError, OSError):
    TICKS, PAGE_BYTES = 100, 4096
PF_EXITING = 4  # include/linux/sched.h


# ---- parsers ---------------------------------------------------------------------------------------------------------
class Stat:
    """/proc/PID/stat of a process, /proc/PID/task/TID/stat of a thread. `name`: the program's, its bytes; `fields`: those after
    it, the state first."""

    __slots__ = ("name", "fields")

    def __init__(self, name: bytes, fields: list[bytes]) -> None:
        self.name, self.fields = name, fields

    @property
    def state(self) -> str:
        """The letter."""
        return self.fields[0].decode("ascii", "replace")

    @property
    def parent(self) -> int:
        """The parent's pid."""
        return int(self.fields[1])

    @property
    def group(self) -> int:
        """Of processes."""
        return int(self.fields[2])

    @property
    def session(self) -> int:
        """The id of its session."""
        return int(self.fields[3])

    @property
    def terminal(self) -> int:
        """The number of its controlling terminal, 0 where it has none."""
        return int(self.fields[4])

    @property
    def foreground(self) -> int:
        """The group in the foreground of that terminal."""
        return int(self.fields[5])

    @property
    def exits(self) -> bool:
        """Whether it is on its way out."""
        return bool(int(self.fields[6]) & PF_EXITING)

    @property
    def faults(self) -> int:
        """How often it was given a page of memory without a disk."""
        return int(self.fields[7])

    @property
    def ticks(self) -> tuple[int, int]:
        """(clock ticks in its own code, in the kernel)."""
        return int(self.fields[11]), int(self.fields[12])

    @property
    def cpu(self) -> float:
        """Seconds of both."""
        return sum(self.ticks) / TICKS

    @property
    def reaped(self) -> float:
        """Of a process, seconds of both of the descendants that it has waited for, and these in turn."""
        return (int(self.fields[13]) + int(self.fields[14])) / TICKS

    @property
    def threads(self) -> int:
        """How many it has."""
        return int(self.fields[17])

    @property
    def started(self) -> int:
        """Clock ticks after boot."""
        return int(self.fields[19])

    @property
    def resident(self) -> int:
        """Bytes."""
        return max(0, int(self.fields[21])) * PAGE_BYTES

    @property
    def arguments(self) -> int:
        """The address of its command line, 0 where the kernel does not give it."""
        return int(self.fields[45]) if len(self.fields) > 45 else 0

    @property
    def exit_status(self) -> int:
        """As wait(2) gives it; 0 where it may not be seen."""
        return int(self.fields[49]) if len(self.fields) > 49 else 0


def parse_stat(data: bytes) -> Stat:
    """The bytes of a `stat` file."""
    start, end = data.find(b"("), data.rfind(b")")
    fields = data[end + 1 :].split()
    if not 0 < start < end or len(fields) < 22 or len(fields[0]) != 1:
        raise ValueError("no stat file")
    return Stat(data[start + 1 : end], fields)


class Schedstat(NamedTuple):
    """A thread's clock: nanoseconds on a CPU, nanoseconds that it waited for one, number of times that it got one."""

    ran: int
    queued: int
    turns: int


def parse_schedstat(data: bytes) -> Schedstat:
    """The bytes of a `schedstat` file."""
    ran, queued, turns = data.split()
    return Schedstat(int(ran), int(queued), int(turns))


class Syscall(NamedTuple):
    """The place where a thread is blocked: the `number` of a system call (-1: in the kernel, but in no call) with its six
    `arguments` (() without one), the stack pointer, the program counter."""

    number: int
    arguments: tuple[int, ...]
    sp: int
    pc: int


def parse_syscall(data: bytes) -> Syscall | None:
    """The bytes of a `syscall` file; None for a thread that runs."""
    words = data.split()
    if words == [b"running"]:
        return None
    if len(words) not in (9, 3):
        raise ValueError("no syscall file")
    arguments = tuple(int(word, 16) for word in words[1:])
    return Syscall(int(words[0]), arguments[:-2], arguments[-2], arguments[-1])


def status_field(data: bytes, name: bytes) -> bytes:
    """The value of a field in the bytes of a `status` file, b"" where it has none."""
    at = data.find(b"\n" + name + b":\t")  # none of interest comes first
    return data[at : data.find(b"\n", at + 1)].partition(b"\t")[2] if at >= 0 else b""


def parse_maps(text: str) -> list[Mapping]:
    """The text of a `maps` file -> `[Mapping]`. A look reads it several times, and mostly it is the same."""
    return list(_mappings(text))


@functools.lru_cache(maxsize=2)
def _mappings(text: str) -> list[Mapping]:
    found = []
    for line in text.split("\n"):  # splitlines() would let a path begin a line of its own
        parts = line.split(None, 5)
        if len(parts) < 5:
            continue
        start, _, end = parts[0].partition("-")
        path = parts[5].replace("\\012", "\n") if len(parts) > 5 else ""
        found.append(Mapping(int(start, 16), int(end, 16), parts[1], int(parts[2], 16), path, int(parts[4]), device=parts[3]))
    return found


class InetSocket(NamedTuple):
    """A row of net/tcp, net/tcp6, net/udp or net/udp6. The ends as the file has them: hexadecimal address, colon, port."""

    local: str
    remote: str
    state: str  # two hexadecimal digits, include/net/tcp_states.h
    unread: int  # bytes received and not read yet; connections not accepted yet
    user: int
    inode: int  # 0: no process holds it

    @property
    def port(self) -> int:
        """The local port."""
        return int(self.local.rpartition(":")[2], 16)

    @property
    def remote_port(self) -> int:
        """The port at the other end, 0 where there is none."""
        return int(self.remote.rpartition(":")[2], 16)


def parse_inet(data: bytes) -> list[InetSocket]:
    """The bytes of such a file."""
    found = []
    for line in data.decode("ascii", "replace").split("\n")[1:]:
        row = line.split()
        if len(row) > 9:
            unread = int(row[4].partition(":")[2] or "0", 16)  # tx_queue:rx_queue
            found.append(InetSocket(row[1], row[2], row[3], unread, int(row[7]), int(row[9])))
    return found


class UnixSocket(NamedTuple):
    """A row of net/unix. `name`: its path, or its abstract name after an @; '' where it has none."""

    flags: int
    inode: int
    name: str


def parse_unix(data: bytes) -> list[UnixSocket]:
    """The bytes of a net/unix file. A name may hold a line break, followed by a forged row. So an inode that occurs twice belongs
    to no known socket."""
    found: dict[int, UnixSocket] = {}
    twice = set()
    for line in data.decode("utf-8", "replace").split("\n")[1:]:
        row = line.split(None, 7)
        if len(row) >= 7 and row[6].isdigit():
            inode = int(row[6])
            twice |= {inode} & found.keys()
            try:
                found[inode] = UnixSocket(int(row[3], 16), inode, row[7] if len(row) > 7 else "")
            except ValueError:
                continue
    return [one for inode, one in found.items() if inode not in twice]


# ---- reads -----------------------------------------------------------------------------------------------------------
def read_proc(pid: int, name: str) -> bytes:
    """Bytes of /proc/PID/NAME; `NotFoundError` when the process is gone, `GdbextError` when it may not be read."""
    try:
        file = os.open(f"/proc/{pid}/{name}", os.O_RDONLY)  # no file object: a sample of many threads reads thousands
        try:
            parts = [os.read(file, 1 << 16)]
            while parts[-1]:
                parts.append(os.read(file, 1 << 16))
        finally:
            os.close(file)
        return b"".join(parts)
    except PermissionError:
        raise GdbextError(f"process {pid}: no permission to read its {name}; {permission_hint(pid)}") from None
    except (FileNotFoundError, ProcessLookupError):
        raise NotFoundError(f"process {pid} does not exist (any more)") from None


def read_or_empty(pid: int, name: str) -> bytes:
    """As `read_proc`; b"" where it cannot be read."""
    try:
        return read_proc(pid, name)
    except (GdbextError, OSError) as e:
        log.passed_over(e)
        return b""


def _parsed(parse: Callable[[bytes], T], pid: int, tid: int | None, name: str) -> T:
    name = name if tid is None else f"task/{tid}/{name}"
    data = read_proc(pid, name)
    try:
        return parse(data)
    except ValueError:
        raise LayoutError(f"process {pid}: its {name} is not as proc(5) says") from None


def read_stat(pid: int, tid: int | None = None) -> Stat:
    """Of a process, or of one thread of it."""
    return _parsed(parse_stat, pid, tid, "stat")


def read_schedstat(pid: int, tid: int) -> Schedstat:
    """A thread's clock; `NotFoundError` also where this kernel keeps none."""
    return _parsed(parse_schedstat, pid, tid, "schedstat")


def read_syscall(pid: int, tid: int) -> Syscall | None:
    """The system call or other place that a thread waits in; None for one that runs."""
    return _parsed(parse_syscall, pid, tid, "syscall")


def state_of(pid: int, tid: int | None = None) -> str:
    """The state letter of a process, or of one thread of it; '' where it is gone. A process ends with its last thread. Where only
    the main thread has ended (pthread_exit), the letter is that of another thread that goes on."""
    try:
        stat = read_stat(pid, tid)
        alone = tid is not None or stat.state not in ("Z", "X") or stat.threads < 2
        others = [] if alone else task_ids(pid)
    except (GdbextError, OSError) as e:
        log.passed_over(e)
        return ""
    for other in others:
        with log.passing_over(GdbextError, OSError):
            one = read_stat(pid, other)
            if one.state not in ("Z", "X") and not one.exits:
                return one.state
    return stat.state


def is_gone(pid: int) -> bool:
    """Whether there is no process of a pid, not even one that has ended and waits for its parent."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError) as e:
        log.passed_over(e)  # it is another user's
    return False


def program_of(pid: int) -> str:
    """The program of a process and what it does: `sleep, in hrtimer_nanosleep`; '' where it cannot be seen."""
    name = read_or_empty(pid, "comm").decode("utf-8", "replace").strip()
    channel = wait_channel(pid, pid)
    return f"{name}, in {channel}" if name and channel else name


def cpu_of(pid: int) -> float:
    """Seconds that a process has run, 0 where it is gone."""
    try:
        return read_stat(pid).cpu
    except (GdbextError, OSError) as e:
        log.passed_over(e)
        return 0.0


def resident_bytes(pid: int) -> int:
    """Bytes of memory that a process has resident, 0 where it is gone."""
    try:
        return int(read_proc(pid, "statm").split()[1]) * PAGE_BYTES
    except (GdbextError, IndexError, ValueError) as e:
        log.passed_over(e)
        return 0


def bytes_moved(pid: int) -> tuple[int, int]:
    """(bytes that a process has read so far, from files, pipes and disks; bytes that it has written to files and pipes); 0 where
    the kernel does not count them (proc_pid_io(5))."""
    lines = [line.partition(b":") for line in read_or_empty(pid, "io").splitlines()]
    known = {name: int(number) for name, _, number in lines if number.strip().isdigit()}
    return known.get(b"rchar", 0) + known.get(b"read_bytes", 0), known.get(b"wchar", 0)


def wait_channel(pid: int, tid: int) -> str:
    """The function of the kernel that a thread sleeps in; '' for a thread that does not sleep, or where the kernel does
    not say."""
    name = read_or_empty(pid, f"task/{tid}/wchan").decode("ascii", "replace").strip()
    return name if name.strip("0") else ""


def uptime() -> float:
    """Seconds since the machine's boot. /proc/uptime may be a container's own (lxcfs)."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    with open("/proc/uptime", "rb") as f:
        return float(f.read().split()[0])


def task_ids(pid: int) -> list[int]:
    """Thread ids, sorted; `NotFoundError` when the process is gone."""
    try:
        return sorted(map(int, os.listdir(f"/proc/{pid}/task")))
    except OSError:
        raise NotFoundError(f"process {pid} does not exist (any more)") from None


def descriptors(pid: int) -> Iterator[tuple[int, str]]:
    """(file descriptor, its target) of those that a process has open; `GdbextError` where they cannot be listed. Nothing is
    opened, so a mount that does not answer causes no wait."""
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError as e:
        raise GdbextError(f"process {pid}: its descriptors cannot be listed: {e.strerror}") from None
    for name in names:
        try:
            yield int(name), os.readlink(f"{folder}/{name}")
        except OSError:
            continue  # closed meanwhile


def limit_of(pid: int, name: bytes) -> int | None:
    """The soft limit of a process that /proc/PID/limits calls `name`; None for unlimited, and where it cannot be read."""
    for line in read_or_empty(pid, "limits").splitlines():
        if line.startswith(name):
            word = line[len(name) :].split()[0]
            return int(word) if word.isdigit() else None
    return None


def maps_text(pid: int, name: str = "maps") -> str:
    """The text of a `maps` file, with paths as the process knows them.

    The kernel writes paths as seen from the reader's root. For a process in a chroot they begin with the folder that is its root.
    In a container that has changed its root (pivot_root) that folder is `/`."""
    text = read_proc(pid, name).decode("utf-8", "surrogateescape")
    try:
        root = os.readlink(f"/proc/{pid}/root").rstrip("/")
    except OSError:
        return text
    if not root or root.endswith(" (deleted)"):
        return text
    pattern = r"^((?:\S+ +){5})" + re.escape(root.replace("\n", "\\012")) + "(?=/)"
    return re.sub(pattern, lambda found: found.group(1), text, flags=re.M)


def read_maps(pid: int) -> tuple[str, int]:
    """-> (text of the memory map, the thread whose /proc entry shows it).

    The entry of a process whose main thread has ended is empty. Its memory is then read through any other thread."""
    for tid in _carriers(pid):
        try:
            text = maps_text(pid, f"task/{tid}/maps")
        except NotFoundError as e:
            log.passed_over(e)
            continue
        if text:
            return text, tid
    raise GdbextError(f"process {pid} has no memory: it is a zombie or a kernel thread, or it has just ended")


def _carriers(pid: int) -> Iterator[int]:
    """The main thread; the others, where it has ended."""
    yield pid
    yield from task_ids(pid)
