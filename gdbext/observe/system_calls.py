"""The system call that each thread of a running process is in, the files it waits for there, and the processes that could end the
wait.

Sources: proc(5) (/proc/PID/task/TID/syscall, fd, fdinfo, net/tcp, net/unix), the kernels' syscall tables
(arch/x86/entry/syscalls, include/uapi/asm-generic/unistd.h), poll(2), select(2), epoll(7).
"""

from __future__ import annotations

import os
import re
import socket
import stat
import struct
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping

from .. import log
from ..access.files import file_status
from ..access.procfs import InetSocket, descriptors, parse_inet, parse_unix, read_or_empty, read_syscall, wait_channel
from ..cpython.gil import RESTART
from ..errors import GdbextError

if TYPE_CHECKING:
    from ..access.base import Target

_NUMBERS = {
    "x86-64": {
        0: "read", 1: "write", 2: "open", 7: "poll", 17: "read", 19: "read", 23: "select", 34: "pause", 35: "nanosleep",
        42: "connect", 43: "accept", 44: "write", 45: "recv", 46: "write", 47: "recv", 61: "wait", 72: "fcntl",
        73: "flock", 128: "sigwait", 130: "sigwait", 202: "futex", 230: "nanosleep", 232: "epoll", 247: "wait",
        257: "open", 270: "select", 271: "poll", 281: "epoll", 288: "accept", 437: "open", 441: "epoll",
    },
    "aarch64": {
        25: "fcntl", 32: "flock", 63: "read", 64: "write", 72: "select", 73: "poll", 95: "wait", 98: "futex",
        101: "nanosleep", 115: "nanosleep", 137: "sigwait", 202: "accept", 203: "connect", 206: "write", 207: "recv",
        211: "write", 212: "recv", 22: "epoll", 56: "open", 242: "accept", 260: "wait", 437: "open", 441: "epoll",
    },
}  # fmt: skip
_BY_NAME = {"x86-64": {"futex": 202, "nanosleep": 230, "poll": 7}, "aarch64": {"futex": 98, "nanosleep": 115, "poll": 73}}
OPEN, OPENAT2 = {"x86-64": 2}, 437
_ONE_FILE = ("read", "write", "recv", "accept", "connect", "flock", "fcntl")
_OTHERS_END = ("read", "recv", "accept", "wait", "flock", "fcntl")
MAX_FILES = 4096
HOLDERS_SECONDS = 10.0
MASTERS = -(1 << 24)  # less the number of a terminal: who has made it
_TERMINAL = re.compile(r"/dev/(?:pts/(\d+)|tty|console)")
TIMER_ABSTIME = 1  # include/uapi/linux/time.h
P_PID, P_PIDFD = 1, 3  # of waitid(2)
ESTABLISHED = "01"
MAPPED = "0000000000000000FFFF0000"  # before an address of IPv4, ::ffff:0:0/96
LOOPBACK = re.compile("[0-9A-F]{6}7F:|0{24}01000000:")
PENDING = ", not accepted yet"  # of a connection whose other end is still in its listener's queue
FULL = ", whose listener's queue is full" + PENDING
CONNECTS = "02"  # TCP_SYN_SENT
LISTEN = "0A"  # TCP_LISTEN, include/net/tcp_states.h
ACCEPTS = 0x10000  # __SO_ACCEPTCON in /proc/net/unix
_COME = ("anon_inode:[signalfd]", "anon_inode:inotify", "anon_inode:[inotify]")
FRESH = 0.004  # seconds: less than between two looks of verdict/shortages.py at what is to be gone at the second
EPHEMERAL = 32768  # the first port that a kernel chooses by itself: ip(7), ip_local_port_range


@dataclass
class Source:
    """A file that a thread waits for.

    * `kind`: "listener", "pipe", "fifo" (one that is being opened), "terminal", "pty" (the side of who made the terminal),
      "child" (a pidfd), "event" (an eventfd, a timer, inotify), "file", "other", or a connected socket: "served" (a client opened
      the connection to this machine), "client" (this process opened it), "unix" (the other end is not known)
    * `text`: for people
    * `inode`
    * `peers`: inodes of the other ends; of a "pty" -1 - the terminal's number, of a "terminal" `MASTERS` - it; of a "child" its
      pid
    * `unread`: unread bytes of a TCP connection; of a listener, TCP's or a Unix socket's, connections that were not accepted
    * `tcp`: it is a TCP socket
    * `far`: HOST:PORT of a TCP connection's other end
    * `comes`: it comes from outside: a timer that is set, signals, changes of files
    * `closing`: the other side has closed it, which counts as an unread byte
    """

    kind: str
    text: str
    inode: int = 0
    peers: list[int] = field(default_factory=list)
    unread: int = 0
    tcp: bool = False
    closing: bool = False
    far: str = ""
    comes: bool = False

    @property
    def pending(self) -> bool:
        """Whether it is a connection that its server has not accepted."""
        return self.text.endswith(PENDING)

    @property
    def is_named(self) -> bool:
        """Whether it is a FIFO: a process that sees its file system elsewhere may have it too, by another path."""
        return self.kind == "pipe" and self.text.startswith("/")


@dataclass
class Call:
    """A thread's system call.

    * `name`: of its family, "poll" for ppoll too
    * `sources`: the files it waits for
    * `limited`: it has a time limit
    * `seconds`: of a poll, select or epoll, its limit; of a sleep, how long it lasts or has left (0: not known)
    * `peers`: pids that could end it (children it waits for)
    * `futex`: the address it waits on
    * `shared`: other processes may have that memory
    """

    name: str
    sources: list[Source] = field(default_factory=list)
    limited: bool = False
    seconds: float = 0.0
    peers: list[int] = field(default_factory=list)
    futex: int = 0
    shared: bool = False


class Files:
    """The file descriptors of one process and what they are, looked up on demand."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._sockets: dict[int, Source] | None = None

    def source(self, descriptor: int) -> Source:
        """The file behind a descriptor, for a thread that waits for it."""
        try:
            link = os.readlink(f"/proc/{self.pid}/fd/{descriptor}")
        except OSError:
            return Source("other", f"file descriptor {descriptor}")
        found = re.fullmatch(r"(socket|pipe):\[(\d+)\]", link)
        if found and found.group(1) == "pipe":
            return Source("pipe", link, int(found.group(2)))
        if found:
            inode = int(found.group(2))
            return self._socket(inode)
        if link.endswith("/ptmx") and link.startswith("/dev/"):
            number = _noted(self.pid, descriptor, "tty-index")
            return Source("pty", f"the terminal /dev/pts/{number}", peers=[-1 - number] if number >= 0 else [])
        terminal = _TERMINAL.match(link)
        if terminal:
            return Source("terminal", link, peers=[MASTERS - int(terminal[1])] if terminal[1] else [])
        if link == "anon_inode:[pidfd]":
            child = _noted(self.pid, descriptor, "Pid")
            return Source("child", f"the end of process {child}", peers=[child] if child > 0 else [])
        if link.startswith("anon_inode:"):
            timer = link == "anon_inode:[timerfd]" and re.search(
                r"^it_value: \((?!0, 0\))", _text(self.pid, f"fdinfo/{descriptor}"), re.M
            )
            return Source("event", link, comes=bool(timer) or link in _COME)
        if link.startswith("/dev/null"):
            return Source("file", link)
        status = file_status(f"/proc/{self.pid}/fd/{descriptor}")
        kind = "pipe" if status is not None and stat.S_ISFIFO(status[0]) else "file"
        return Source(kind, link, status[2] if status is not None else 0)

    def full_listener(self, address: bytes) -> Source | None:
        """The listener at an AF_UNIX address (unix(7), struct sockaddr_un) whose queue is full: connect() waits for no other
        reason."""
        name = os.fsdecode(address[2:3].replace(b"\0", b"@") + address[3:].rstrip(b"\0"))
        sockets = parse_unix(read_or_empty(self.pid, "net/unix"))
        rows = [row for row in sockets if row.name == name and row.flags & ACCEPTS]
        return Source("client", f"its connection to {name}{FULL}", rows[0].inode, [rows[0].inode]) if rows else None

    def watched_by(self, epoll: int) -> list[Source]:
        """The files that an epoll file watches."""
        return [self.source(number) for number in self._numbers_in(epoll)]

    def _numbers_in(self, epoll: int) -> list[int]:
        return list(map(int, re.findall(r"^tfd:\s*(\d+)", _text(self.pid, f"fdinfo/{epoll}"), re.M)[:MAX_FILES]))

    def watched_numbers(self) -> set[int]:
        """The descriptors that all epoll files of the process watch."""
        found: set[int] = set()
        with log.passing_over():
            for fd, link in descriptors(self.pid):
                if link == "anon_inode:[eventpoll]":
                    found.update(self._numbers_in(fd))
        return found

    def watched(self) -> list[Source]:
        """The files that all epoll files of the process watch: everything its event loops wait for."""
        found: list[Source] = []
        with log.passing_over():
            for fd, link in descriptors(self.pid):
                if link == "anon_inode:[eventpoll]":
                    found += self.watched_by(fd)
        return found

    def _socket(self, inode: int) -> Source:
        if self._sockets is None:
            self._sockets = sockets(self.pid, inode)
        return self._sockets.get(inode, Source("other", f"socket:[{inode}]", inode))


_seen: dict[str, tuple[float, dict[int, Source]]] = {}  # {network namespace: (when, its sockets)}


def sockets(pid: int, inode: int = 0) -> dict[int, Source]:
    """{inode: what a thread waits for there} of the sockets in a process's network namespace. Processes that are looked at one
    after the other share one reading for `FRESH` seconds, where it has the socket `inode`: the kernel goes through all of its
    hash table for each."""
    space = ""
    with log.passing_over(OSError):
        space = os.readlink(f"/proc/{pid}/ns/net")
    when, found = _seen.get(space, (-FRESH, {}))
    if not space or inode not in found or time.monotonic() - when >= FRESH:
        found = {}
        peers, pending = unix_ends()
        for name in ("tcp", "tcp6"):
            _read_tcp(pid, name, found)
        for name in ("udp", "udp6"):
            _read_udp(pid, name, found)
        _read_unix(pid, found, peers, pending)
        _seen[space] = time.monotonic(), found
    return found


def _read_tcp(pid: int, name: str, found: dict[int, Source]) -> None:
    rows = _inet(pid, name)
    listening = {row.port: row.inode for row in rows if row.state == LISTEN}
    by_ends = {(row.local, row.remote): row.inode for row in rows}
    for row in rows:
        if row.state == LISTEN:
            kind, text = "listener", f"connections to port {row.port}"
        elif row.port in listening:
            kind, text = "served", f"a client's connection to port {row.port}"
        else:
            kind, text = "client", f"its connection to port {row.remote_port}"
        peers = [by_ends.get((row.remote, row.local), 0)]
        if row.state == CONNECTS and row.remote_port in listening:  # its listener's queue is full, or it would be connected
            text, peers = text + FULL, [listening[row.remote_port]]
        if kind == "client" and by_ends.get((row.remote, row.local)) == 0 and row.remote_port in listening:
            text, peers = text + PENDING, [listening[row.remote_port]]
        found[row.inode] = Source(
            kind, text, row.inode, peers, row.unread, True, row.state not in (LISTEN, ESTABLISHED), _address(row.remote)
        )


def _read_udp(pid: int, name: str, found: dict[int, Source]) -> None:
    """Adds UDP sockets. At a port that a program chose, any process may send datagrams: a listener. At a port that the kernel
    chose, an answer may be due: no listener. A connected one gets them from one other socket."""
    rows = _inet(pid, name)
    for row in rows:
        others = [other.inode for other in rows if row.remote_port and other.local == row.remote]
        if others:
            found[row.inode] = Source("client", f"datagrams of port {row.remote_port}", row.inode, others)
        elif not row.remote_port and 0 < row.port < EPHEMERAL:
            found[row.inode] = Source("listener", f"datagrams to port {row.port}", row.inode)


def _read_unix(pid: int, found: dict[int, Source], peers: dict[int, int], pending: dict[int, int]) -> None:
    queued = Counter(pending.values())
    for row in parse_unix(read_or_empty(pid, "net/unix")):
        listener = row.flags & ACCEPTS
        kind = "listener" if listener else "served" if row.name else "unix"
        text = f"connections to {row.name}" if listener else f"a Unix socket {row.name}".strip()
        peer = peers.get(row.inode, 0)
        if row.inode in pending:
            text, peer = text + PENDING, pending[row.inode]
        found[row.inode] = Source(kind, text, row.inode, [peer] if peer else [], queued[row.inode] if listener else 0)


def _address(words: str) -> str:
    """HOST:PORT of an address in /proc/net/tcp: words of 32 bits in the machine's order, in hexadecimal."""
    host, _, port = words.partition(":")
    try:
        data = struct.pack(f"={len(host) // 8}I", *(int(host[i : i + 8], 16) for i in range(0, len(host), 8)))
        data = data[12:] if host.startswith(MAPPED) else data
        text = socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data)
        return f"{text}:{int(port, 16)}" if len(data) == 4 else f"[{text}]:{int(port, 16)}"
    except (ValueError, OSError, struct.error):
        return ""


def _inet(pid: int, name: str) -> list[InetSocket]:
    try:
        return parse_inet(read_or_empty(pid, f"net/{name}"))
    except ValueError as e:
        log.passed_over(e)
        return []


def connections(pid: int) -> set[Any] | None:
    """The TCP connections of a process, each as a key that is equal at its two ends; None where its files cannot be read."""
    try:
        links = [link for _, link in descriptors(pid)]
        space = network_of(pid)
    except (GdbextError, OSError) as e:
        log.passed_over(e)
        return None
    own, found = {link[8:-1] for link in links if link.startswith("socket:")}, set()
    for row in [*_inet(pid, "tcp"), *_inet(pid, "tcp6")]:
        if str(row.inode) in own and row.state == ESTABLISHED:
            ends = sorted(end[len(MAPPED) :] if end.startswith(MAPPED) else end for end in (row.local, row.remote))
            found.add((*ends, space if LOOPBACK.match(ends[0]) else ""))
    return found


def network_of(pid: int) -> str:
    """A key that only processes in the same network namespace share, also among several machines. For a process that is gone, or
    a core, that of this process's own namespace."""
    found = []
    for pid_now in dict.fromkeys((pid or "self", "self")):
        with log.passing_over(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as f:
            found.append(f"{f.read().strip()} {os.readlink(f'/proc/{pid_now}/ns/net')}")
    return found[0] if found else ""


def in_network(address: str, pid: int) -> str:
    """HOST:PORT as a process means it: a loopback address with the network namespace that it belongs to; '' stays ''."""
    local = address.rpartition(":")[0] in ("localhost", "::1") or address.startswith("127.")
    return f"{address} in {network_of(pid)}" if local else address


def family(number: int, arch: str) -> str:
    """The family of a system call by its number ("poll" for ppoll too), '' for calls that are not distinguished here."""
    return _NUMBERS[arch].get(number, "")


def unix_ends() -> tuple[dict[int, int], dict[int, int]]:
    """({inode of a connected Unix socket: the inode of its other end}, {inode of one not accepted yet: its listener's}), of this
    network namespace; {} where the kernel does not tell. Source: sock_diag(7), struct unix_diag_req, UDIAG_SHOW_PEER |
    UDIAG_SHOW_ICONS, UNIX_DIAG_PEER, UNIX_DIAG_ICONS."""
    peers: dict[int, int] = {}
    pending: dict[int, int] = {}
    request = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, 4 | 8, 0xFFFFFFFF, 0xFFFFFFFF)
    header = struct.pack("=IHHII", 16 + len(request), 20, 0x301, 1, 0)  # SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as link:  # NETLINK_SOCK_DIAG
            link.settimeout(2)
            link.send(header + request)
            while True:
                data = link.recv(1 << 16)
                while len(data) >= 16:
                    size, kind = struct.unpack_from("=IH", data)
                    if kind in (2, 3) or size < 16:  # NLMSG_ERROR, NLMSG_DONE
                        return peers, pending
                    if size >= 32:
                        _unix_ends(data[16:size], peers, pending)
                    data = data[(size + 3) & ~3 :]
    except (OSError, struct.error):
        return peers, pending


def _unix_ends(message: bytes, peers: dict[int, int], pending: dict[int, int]) -> None:
    inode = struct.unpack_from("=I", message, 4)[0]
    at = 16  # struct unix_diag_msg, then attributes
    while at + 4 <= len(message):
        size, kind = struct.unpack_from("=HH", message, at)
        if size < 4:
            return
        if kind == 2 and size >= 8:  # UNIX_DIAG_PEER
            peers[inode] = struct.unpack_from("=I", message, at + 4)[0]
        elif kind == 3:  # UNIX_DIAG_ICONS
            waiting = message[at + 4 : at + size]
            pending.update((one, inode) for (one,) in struct.iter_unpack("=I", waiting[: len(waiting) & ~3]) if one)
        at += (size + 3) & ~3


def _noted(pid: int, descriptor: int, name: str) -> int:
    """A number of /proc/PID/fdinfo/FD, -1 where it is not there."""
    found = re.search(rf"^{name}:\s*(-?\d+)", _text(pid, f"fdinfo/{descriptor}"), re.M)
    return int(found.group(1)) if found else -1


def _text(pid: int, name: str) -> str:
    return read_or_empty(pid, name).decode("utf-8", "replace")


def read(target: Target, tids: Iterable[int]) -> dict[int, Call]:
    """{tid: its system call} of the threads of a running process that are in a call known here."""
    pid = target.pid
    found: dict[int, Call] = {}
    if pid is None:
        return found
    files = Files(pid)
    for tid in tids:
        try:
            entered = _entered(target, pid, tid)
            if entered is not None:
                name, number, words = entered
                found[tid] = _call(target, files, name, number, words)
        except (GdbextError, ValueError, struct.error) as e:
            log.passed_over(e)
            continue  # its call has ended, or the thread has
    return found


def time_limit_of(target: Target, tid: int) -> tuple[float, bool]:
    """(seconds of the sleep, poll or select that a thread of a running process is in, 0.0: of none; whether they are of the whole
    of it, not what is left)."""
    call = read(target, [tid]).get(tid)
    raw = read_syscall(target.pid or tid, tid) if call is not None and call.seconds else None
    if call is None or raw is None:
        return 0.0, True
    left = call.name == "nanosleep" and raw.number in (230, 115) and raw.arguments[1] & TIMER_ABSTIME
    return call.seconds, not left


def _entered(target: Target, pid: int, tid: int) -> tuple[str, int, list[int]] | None:
    """(name, number, arguments) of the call known here that a thread is in."""
    call = read_syscall(pid, tid)
    if call is None or call.number < 0:
        return None  # it runs
    number = _restarted(pid, tid, target.arch) if call.number == RESTART.get(target.arch) else call.number
    name = _NUMBERS.get(target.arch, {}).get(number)
    return (name, number, list(call.arguments)) if name is not None else None


def sleep_of(target: Target) -> float:
    """The seconds of the sleep that a running process's main thread is in, 0 where it is in none. Files are not looked at."""
    pid = target.pid or 0
    entered = _entered(target, pid, pid)
    name, number, words = entered or ("", 0, [])
    alone = name == "nanosleep" or name == "poll" and not words[1] or name == "select" and not _selected(target, words)
    return _call(target, Files(pid), name, number, words).seconds if alone else 0.0


def waits_for_others(pid: int, arch: str) -> bool:
    """Whether the main thread of a running process is in a call without a time limit that others end."""
    numbers = _NUMBERS.get(arch, {})
    try:
        call = read_syscall(pid, pid)
    except GdbextError as e:
        log.passed_over(e)
        return False
    name = numbers.get(call.number, "") if call is not None else ""
    return name in _OTHERS_END or call is not None and name == "futex" and call.arguments[3] == 0


def _restarted(pid: int, tid: int, arch: str) -> int:
    """The number of the call that restart_syscall(2) continues, by the kernel function in which the thread sleeps; -1 where that
    does not show it."""
    place = wait_channel(pid, tid)
    name = next((n for n, part in (("futex", "futex"), ("nanosleep", "nanosleep"), ("poll", "poll")) if part in place), "")
    return _BY_NAME.get(arch, {}).get(name, -1)


def _call(target: Target, files: Files, name: str, number: int, words: list[int]) -> Call:
    call = Call(name)
    if name in _ONE_FILE:
        call.sources = [files.source(words[0] & 0xFFFFFFFF)]
        if name == "connect" and call.sources[0].kind == "unix" and not call.sources[0].peers:
            call.sources = [files.full_listener(target.read(words[1], min(words[2], 110))) or call.sources[0]]
    elif name == "futex":
        call.futex, call.limited = words[0], bool(words[3])
        mapping = target.mapping_at(call.futex)
        call.shared = mapping is None or "s" in mapping.perms
    elif name == "poll":
        call.limited = words[2] != 0 if number == 271 or target.arch == "aarch64" else words[2] & 0x80000000 == 0
        call.seconds = (words[2] & 0xFFFFFFFF) / 1000 if number == 7 else _seconds_at(target, words[2], 1e-9)
        count = min(words[1], MAX_FILES)
        for at in range(count):
            descriptor = target.i32(words[0] + 8 * at)
            if descriptor >= 0:
                call.sources.append(files.source(descriptor))
        if count == 0:
            call.name = "nanosleep"
    elif name == "select":
        call.limited = bool(words[4])
        call.seconds = _seconds_at(target, words[4], 1e-6 if number == 23 else 1e-9)
        call.sources = [files.source(fd) for fd in _selected(target, words)]
        if not call.sources:
            call.name = "nanosleep"  # how Python before 3.11 sleeps
    elif name == "nanosleep":
        call.seconds = _sleep(target, number, words)
    elif name == "epoll":
        call.limited = words[3] & 0xFFFFFFFF not in (0xFFFFFFFF,) if number != 441 else bool(words[3])
        call.seconds = (words[3] & 0xFFFFFFFF) / 1000 if number != 441 else _seconds_at(target, words[3], 1e-9)
        call.sources = files.watched_by(words[0] & 0xFFFFFFFF)
    elif name == "open":
        call.sources = _opened(target, number, words)
    elif name == "wait":
        call.peers = _awaited(target, files, words, number in (247, 95))
    pids = [pid for source in call.sources for pid in source.peers if source.kind == "child"]
    call.peers += pids if len(pids) == len(call.sources) else []
    return call


def _opened(target: Target, number: int, words: list[int]) -> list[Source]:
    """The FIFO that an open call waits for: until a process opens its other end (fifo(7)). [] for any other file."""
    path_at, flags = (words[0], words[1]) if number == OPEN.get(target.arch) else (words[1], words[2])
    if number == OPENAT2:
        flags = target.u64(flags)  # struct open_how
    path = os.fsdecode(target.cstring(path_at))
    at = f"/proc/{target.pid}/{'root' if path.startswith('/') else 'cwd/'}{path}"
    status = file_status(at)
    if status is None or not stat.S_ISFIFO(status[0]):
        return []
    return [Source("fifo", f"the FIFO {path}, to be opened for {'reading' if flags & os.O_ACCMODE else 'writing'}", status[2])]


def _sleep(target: Target, number: int, words: list[int]) -> float:
    """The seconds that a nanosleep or clock_nanosleep call lasts, or has left where it names its end; 0: not known."""
    if number in (35, 101):
        return _seconds_at(target, words[0], 1e-9)
    seconds = _seconds_at(target, words[2], 1e-9)
    if words[1] & TIMER_ABSTIME and seconds:
        return max(seconds - time.clock_gettime(words[0]), 1e-9)
    return seconds


def _seconds_at(target: Target, address: int, unit: float) -> float:
    """A struct timespec or timeval (`unit`: of its second word) in seconds; 0 where there is none."""
    return target.u64(address) + target.u64(address + 8) * unit if address else 0.0


def _selected(target: Target, words: list[int]) -> list[int]:
    """The descriptors in the sets of a select call."""
    count, found = min(words[0] & 0xFFFFFFFF, 1024), set()
    for address in words[1:4]:
        if address:
            bits = int.from_bytes(target.read(address, (count + 63) // 64 * 8), "little") if count else 0
            found |= {fd for fd in range(count) if bits >> fd & 1}
    return sorted(found)


def _awaited(target: Target, files: Files, words: list[int], waitid: bool) -> list[int]:
    """Our pids of those that a wait4 or waitid call names, its children where it waits for any or for a group's; [] where the one
    that it names is not known here."""
    kind, first = words[:2] if waitid else (P_PID, words[0])
    number = first & 0xFFFFFFFF
    if kind & 0xFFFFFFFF == P_PIDFD:
        return files.source(number).peers
    if kind & 0xFFFFFFFF == P_PID and 0 < number < 1 << 31:
        here = target.pid_here(number)
        return [here] if here else []
    return children_of(files.pid, files.pid)


def children_of(pid: int, tid: int) -> list[int]:
    """The children of one thread, the youngest last."""
    return [int(n) for n in _text(pid, f"task/{tid}/children").split()]


def holders_of(
    inodes: Iterable[int], kinds: tuple[str, ...] = ("socket", "pipe"), names: Mapping[str, int] | None = None
) -> dict[int, list[tuple[int, bool]]]:
    """{inode of a pipe or socket: [(pid that has it, whether for writing)]}, of the processes that may be read; `names`: {path of
    a FIFO: its inode}. {} where the pass
    over all of them takes longer than `HOLDERS_SECONDS`: a missing holder would look like the proof of a wait without an end."""
    wanted = dict(names or {})
    for inode in inodes:
        links = [f"{kind}:[{inode}]" for kind in kinds] if inode > 0 else [f"/dev/pts/{-1 - inode}"]
        links = [f"ptmx {MASTERS - inode}"] if inode <= MASTERS else links
        wanted.update(dict.fromkeys(links if inode else (), inode))
    found: dict[int, list[tuple[int, bool]]] = {}
    if not wanted:
        return found
    try:
        for pid, fd, link in all_descriptors():
            if link.endswith("/ptmx") and link.startswith("/dev/"):
                link = f"ptmx {_noted(pid, fd, 'tty-index')}"
            if link in wanted:
                flags = re.search(r"flags:\s+([0-7]+)", _text(pid, f"fdinfo/{fd}"))
                writes = flags is not None and int(flags.group(1), 8) & os.O_ACCMODE != os.O_RDONLY
                found.setdefault(wanted[link], []).append((pid, writes))
    except GdbextError as e:
        log.passed_over(e)
        return {}
    return found


def all_descriptors() -> Iterator[tuple[int, int, str]]:
    """(pid, file descriptor, its link's target) of the processes that may be read; `GdbextError` where that takes longer than
    `HOLDERS_SECONDS`. No file is opened and none is asked for its status, so a mount that does not answer cannot block this."""
    deadline = time.monotonic() + HOLDERS_SECONDS
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        held: list[tuple[int, str]] = []
        with log.passing_over():  # it has ended, or may not be read: most of a machine's may not
            held += descriptors(pid)
        for fd, link in held:
            if time.monotonic() > deadline:  # the caller may have taken long with each
                raise GdbextError(f"not all processes' descriptors were read in {HOLDERS_SECONDS:.0f} s")
            yield pid, fd, link
