"""What /proc gives of processes whose memory may not be read: who ran, where main threads are blocked, and which processes could
end that wait.

Linux checks two permissions (ptrace(2), "Ptrace access mode checking"). Every user may read stat, status, schedstat, cmdline,
cgroup and net/*; /proc/locks names the processes that wait for a file lock and those that have it. PTRACE_MODE_READ, which Yama
does not refuse, adds wchan, fd, fdinfo, maps, environ and io. Memory, syscall and stack need PTRACE_MODE_ATTACH.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass, field
from typing import Iterable

from .. import log
from ..access.cgroups import frozen_by
from ..access.proc import process_clock
from ..access.procfs import descriptors, maps_text, read_or_empty, read_schedstat, task_ids, wait_channel
from ..access.proctable import ProcTable
from ..errors import GdbextError
from .clocks import ancestors, askers, descendants
from .families import aside
from .system_calls import Files, Source

# {what a thread does: starts of the kernel's functions in which it then sleeps}; Linux 4.15 to 6.18
PLACES = {
    "reads": ("pipe_read", "anon_pipe_read", "fifo_pipe_read", "pipe_wait"),
    "writes": ("pipe_write", "anon_pipe_write", "fifo_pipe_write"),
    "receives": ("unix_stream_read", "unix_stream_data_wait", "__skb_wait_for_more", "__skb_recv", "sk_wait_data", "wait_woken"),
    "sends": ("sock_alloc_send", "unix_wait_for_peer", "sk_stream_wait_memory"),
    "polls": ("poll_schedule", "do_poll", "do_sys_poll", "do_select", "ep_poll", "do_epoll"),
    "waits for a process": ("do_wait", "wait_consider", "kernel_wait"),
    "waits for a file lock": ("locks_lock_inode", "flock_lock", "fcntl_setlk", "do_lock_file", "posix_lock"),
    "sleeps": ("hrtimer_nanosleep", "do_nanosleep"),
    "waits for a lock": ("futex",),
    "waits for input": ("inet_csk_accept", "unix_accept", "skb_wait_for", "n_tty_read", "wait_for_partner", "do_sigtimed"),
}
WORDS = {
    "reads": "data of a pipe",
    "writes": "room in a full pipe",
    "receives": "data of a socket",
    "sends": "room in a full socket",
}
MOST = 1024  # descriptors of a process
MOST_REACHED = 256  # processes
STANDARD = 3  # its first descriptors: input and output, which a terminal or a supervisor has the other ends of
SHARED = re.compile(r"^\S+ rw.s \S+ (\S+) ([1-9]\d*)", re.M)  # device and inode of memory that other processes may write


@dataclass
class Outside:
    """A process at the end of a window.

    * `does`: of `PLACES`, of its main thread; '' where it is not known
    * `ran`: seconds of CPU of all its threads in the window, None where that is not known; `moved`: whether its main thread ran
    * `ends`: the processes that could end its wait; `whole`: nobody else can, as far as may be seen
    * `files`: inodes of the pipes and sockets for which it may wait
    * `above`: its ancestors
    * `own`: what its main thread waits for has an end of its own
    * `exact`: it waits for data; what polls several files may only watch them
    * `threads`: how many it has
    * `shares`: processes that can write to its memory, where a lock may be
    * `serves`: it waits for clients, or for input
    * `unread`: bytes that have come and that it has not read
    * `aside`: somebody at a terminal has put it aside"""

    pid: int
    program: str = ""
    state: str = ""
    frozen: str = ""
    does: str = ""
    place: str = ""
    ran: float | None = None
    moved: bool | None = None
    ends: list[int] = field(default_factory=list)
    whole: bool = True
    files: set[int] = field(default_factory=set)
    above: set[int] = field(default_factory=set)
    own: bool = False
    exact: bool = True
    threads: int = 1
    shares: list[int] = field(default_factory=list)
    serves: bool = False
    unread: int = 0
    aside: bool = False


class Machine:
    """The processes of this machine, from the beginning of a window on."""

    def __init__(self, table: ProcTable) -> None:
        self.first = {pid: _clocks(pid) for pid in table.processes}
        self.began = time.monotonic()
        self.look()

    def look(self) -> None:
        """Takes what is true now as the end of the window."""
        self.table, self.seconds = ProcTable(), time.monotonic() - self.began
        self.asking, self.locks = askers(self.table), _file_locks()
        self._known: dict[int, Outside] = {}
        self._holders: dict[int, list[tuple[int, int]]] | None = None

    def of(self, pid: int) -> Outside | None:
        """One process; None where it is gone."""
        if pid not in self._known and pid in self.table.processes:
            self._known[pid] = self._read(pid)
        return self._known.get(pid)

    def reached(self, pids: Iterable[int]) -> dict[int, Outside]:
        """Processes, their descendants, those at the ends of what they wait for, and these in turn, by pid."""
        found: dict[int, Outside] = {}
        todo = [one for pid in pids for one in (pid, *descendants(self.table, pid)) if one not in self.asking]
        while todo and len(found) < MOST_REACHED:
            one = self.of(todo.pop(0))
            if one is not None and one.pid not in found:
                found[one.pid] = one
                todo += one.ends
        return found

    def children(self, pid: int) -> list[int]:
        """Its own, without those that ask."""
        return [one.pid for one in self.table.children.get(pid, ()) if one.pid not in self.asking]

    def _read(self, pid: int) -> Outside:
        process = self.table.processes[pid]
        found = Outside(pid, process.comm, process.state, frozen_by(pid), threads=process.threads)
        found.above = ancestors(self.table, pid)
        before, now = self.first.get(pid), _clocks(pid)
        if before is not None and None not in (before[0], now[0]):
            found.ran = (now[0] - before[0]) / 1e9  # type: ignore[operator]
            found.moved = before[1] != now[1]
        found.place = wait_channel(pid, pid)
        found.does = next((what for what, starts in PLACES.items() if found.place.startswith(starts)), "")
        if pid in self.locks:
            found.does, found.ends = "waits for a file lock", self.locks[pid]
        elif found.does == "waits for a process":
            found.ends = [one for one in self.children(pid) if self.table.processes[one].state != "Z"]
            found.exact = False
        elif found.does == "waits for a lock":
            found.shares = self._sharers(pid)
        elif found.does in ("reads", "writes", "receives", "sends", "polls"):
            self._follow(found)
        found.serves = found.serves or found.does == "waits for input"
        found.aside = found.state in ("T", "t") and aside(pid)
        return found

    def _follow(self, found: Outside) -> None:
        """Fills in who has the other ends of what a process may wait for. Which of its files it is /proc does not say, so these
        are all of the kind, without its standard ones where there are others."""
        files, pid, pipes = Files(found.pid), found.pid, found.does in ("reads", "writes", "polls")
        try:
            links = list(descriptors(pid))[:MOST]
        except GdbextError as e:
            log.passed_over(e)
            found.whole = False
            return
        epoll, polls = found.place.startswith(("ep_", "do_epoll")), found.does == "polls"
        looked = files.watched() if epoll else [files.source(fd) for fd, link in links if polls and link.startswith("anon_")]
        watched = {one.inode for one in looked} if epoll else None
        kernels = [one for one in looked if one.comes or one.kind == "child" or one.kind == "event" and epoll]
        sources: dict[int, Source] = {}
        for fd, link in links:
            kind = link.partition(":")[0]
            if (kind == "pipe" and pipes) or (kind == "socket" and found.does in ("receives", "sends", "polls")):
                one = files.source(fd)
                if watched is None or one.inode in watched:
                    sources[fd] = one
        for fd in [fd for fd in sources if sources[fd].kind == "pipe" and found.does != "polls"]:
            if self._writes(pid, fd) is not (found.does == "writes"):
                del sources[fd]
        sources = {fd: one for fd, one in sources.items() if fd >= STANDARD} or sources
        found.files = {one.inode for one in sources.values()}
        if found.does == "writes":
            sources = {fd: one for fd, one in sources.items() if not self._is_empty(one.inode)} or sources
        ended = {one.pid for one in self.table.processes.values() if one.state == "Z"}
        ends = dict.fromkeys(pid for one in kernels if one.kind == "child" for pid in one.peers if pid not in ended)
        for one in sources.values():
            if one.kind == "listener":
                found.serves, found.unread = True, found.unread + one.unread
                continue
            found.unread += one.unread if one.kind != "pipe" else 0
            held = self._ends(one, found.does)
            found.whole = found.whole and bool(held)
            ends.update(dict.fromkeys(held))
        found.own = pid in ends or any(one.kind == "event" and not one.comes for one in kernels)
        found.exact = len(sources) == 1 and not kernels or found.does != "polls"
        found.ends = [one for one in ends if one != pid and one not in self.asking]
        seen = bool(sources or ends) and not any(one.comes for one in kernels)  # a timer or a signal needs no process
        found.whole = found.whole and seen and not set(ends) & self.asking

    def _is_empty(self, pipe: int) -> bool:
        """Whether a process waits for data of a pipe: who waits for room waits at another one."""
        places = ((pid, wait_channel(pid, pid)) for pid, fd in self._held(pipe) if not self._writes(pid, fd))
        readers = (self.of(pid) for pid, place in places if place.startswith(PLACES["reads"]))
        return any(one is not None and one.files == {pipe} for one in readers)

    def _ends(self, one: Source, does: str) -> list[int]:
        """The processes at the other end of a pipe or socket."""
        if one.kind != "pipe":
            return list(dict.fromkeys(pid for peer in one.peers for pid, _ in self._held(peer)))
        return list(dict.fromkeys(pid for pid, fd in self._held(one.inode) if self._writes(pid, fd) is not (does == "writes")))

    def _held(self, inode: int) -> list[tuple[int, int]]:
        """(pid, its descriptor) of the processes that have a pipe or socket."""
        if self._holders is None:
            self._holders = {}
            for pid in self.table.processes:
                with log.passing_over(GdbextError):  # most of a machine's may not be read
                    for fd, link in descriptors(pid):
                        one = re.fullmatch(r"(?:socket|pipe):\[(\d+)\]", link)
                        if one:
                            self._holders.setdefault(int(one[1]), []).append((pid, fd))
        return self._holders.get(inode, [])

    @staticmethod
    def _writes(pid: int, fd: int) -> bool:
        flags = re.search(rb"flags:\s+([0-7]+)", read_or_empty(pid, f"fdinfo/{fd}"))
        return flags is not None and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY

    def _sharers(self, pid: int) -> list[int]:
        mine = _shared(pid)
        return (
            [one for one in self.table.processes if one != pid and one not in self.asking and mine & _shared(one)] if mine else []
        )


def other_waits(pid: int) -> bool:
    """Whether a thread beside the main one is blocked in what may end from outside: anything but a lock or a sleep."""
    with log.passing_over(GdbextError):
        places = [wait_channel(pid, tid) for tid in task_ids(pid) if tid != pid]
        return any(not place.startswith((*PLACES["waits for a lock"], *PLACES["sleeps"])) for place in places)
    return True


def _clocks(pid: int) -> tuple[int | None, int | None]:
    """(nanoseconds that a process has run, its main thread)"""
    try:
        return process_clock(pid), read_schedstat(pid, pid).ran
    except (GdbextError, ValueError) as e:
        log.passed_over(e)
        return process_clock(pid), None


def _shared(pid: int) -> set[tuple[str, str]]:
    """Keys of the memory that a process shares with others for writing."""
    try:
        text = maps_text(pid)
    except GdbextError as e:
        log.passed_over(e)
        return set()
    return {(device, inode) for device, inode in SHARED.findall(text)}


def _file_locks(path: str = "/proc/locks") -> dict[int, list[int]]:
    """{pid that waits for a file lock: [pids that have it]} (proc_locks(5))"""
    try:
        with open(path, encoding="ascii", errors="replace") as f:
            rows = [line.split() for line in f]
    except OSError as e:
        log.passed_over(e)
        return {}
    return file_locks(rows)


def file_locks(rows: Iterable[list[str]]) -> dict[int, list[int]]:
    """The same of the rows of the file, in words."""
    has: dict[str, list[int]] = {}
    wants: dict[int, str] = {}
    for words in rows:
        blocked = len(words) > 1 and words[1] == "->"
        words = [words[0], *words[2:]] if blocked else words
        if len(words) < 5 or not words[4].isdigit():
            continue  # an open file description's lock names nobody: -1
        if blocked:
            wants[int(words[4])] = words[0]
        else:
            has.setdefault(words[0], []).append(int(words[4]))
    return {pid: has[number] for pid, number in wants.items() if number in has and has[number] != [pid]}
