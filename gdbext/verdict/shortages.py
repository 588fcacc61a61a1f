"""Resources that have run out for a process: descriptors, connections that were not accepted, /dev/shm, threads, CPU time. A
shortage is evidence and names no culprit: code that gets no more of a resource reacts in many ways.

Sources: proc_pid_limits(5), proc_pid_mountinfo(5), net/tcp of proc(5) (of a listener, rx_queue counts the connections that were
not accepted), cgroups(7) (pids.max), Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.stat).
"""

from __future__ import annotations

import os
import time
from typing import Iterator, Sequence

from .. import log
from ..access import cgroups
from ..access.procfs import descriptors, limit_of, read_or_empty, read_stat
from ..errors import GdbextError
from ..observe.system_calls import Files, Source
from ..render.text import size

LEFT = 2  # of a limit: as good as none
NO_MORE = "it can open no more"
FULL = 1 << 20  # bytes left of /dev/shm
LOOKS, LOOK = 3, 0.005  # times, seconds between them: a connection that has just come is taken in by then
PERIODS = 3  # of a quota: fewer tell nothing
MOST = 4096  # descriptors that are read


def of_process(pid: int) -> list[str]:
    """In words; [] where nothing is short, or nothing can be seen."""
    found: list[str] = []
    for look in (_descriptors, _threads, _shared_memory):
        try:
            found += look(pid)
        except (GdbextError, OSError, ValueError) as e:
            log.passed_over(e)
    return found


def _descriptors(pid: int) -> Iterator[str]:
    """Shortage of descriptors."""
    held = list(descriptors(pid))
    limit = limit_of(pid, b"Max open files")
    left = limit - sum(number < limit for number, _ in held) if limit is not None else LEFT
    if left < LEFT:
        yield f"{len(held)} of {limit} descriptors are open: {f'it can open {left} more' if left else NO_MORE} (RLIMIT_NOFILE)"


def waiting(pid: int, looks: int = LOOKS) -> dict[int, Source]:
    """{inode: a socket of the process} with connections that it has not accepted, or bytes of a connection that it has not read;
    what comes just now is gone at one of the next `looks`. {} where nothing can be seen."""
    found: dict[int, Source] = {}
    try:
        for i in range(looks):
            files = Files(pid)
            sources = [files.source(fd) for fd, link in list(descriptors(pid))[:MOST] if link.startswith("socket:")]
            now = {s.inode: s for s in sources if s.unread and not s.closing and s.kind in ("listener", "served", "client")}
            found = {inode: s for inode, s in now.items() if inode in found or not i}
            if not found:
                break
            time.sleep(LOOK if i + 1 < looks else 0)
    except (GdbextError, OSError, ValueError) as e:
        log.passed_over(e)
    return found


def served(pid: int) -> set[int]:
    """The inodes of the connections that clients have to a process. One that has shut its side down waits for the answer."""
    found: set[int] = set()
    with log.passing_over(GdbextError, ValueError):
        files = Files(pid)
        sources = [files.source(fd) for fd, link in list(descriptors(pid))[:MOST] if link.startswith("socket:")]
        found = {s.inode for s in sources if s.kind == "served" and s.tcp and (not s.closing or any(s.peers))}
    return found


def _threads(pid: int) -> Iterator[str]:
    """Shortage of threads: in its control groups, which count the threads of all their processes, and under its user's limit,
    where this process alone reaches it."""
    for folder in cgroups.folders(pid, "pids"):
        most, now = cgroups.number(f"{folder}/pids.max"), cgroups.number(f"{folder}/pids.current")
        if most is not None and now is not None and now > most - LEFT:
            yield f"{now} of {most} threads of its control group {folder} are there: it can start no more (pids.max)"
    limit, threads = limit_of(pid, b"Max processes"), read_stat(pid).threads
    if limit is not None and threads > limit - LEFT:
        yield f"it has {threads} threads, and its user may have {limit} (RLIMIT_NPROC)"


def _shared_memory(pid: int) -> Iterator[str]:
    """Shortage of its /dev/shm, where that is a tmpfs. Other file systems are not asked: they may not answer."""
    mounts = [line.split() for line in read_or_empty(pid, "mountinfo").splitlines()]
    kinds = [words[words.index(b"-") + 1] for words in mounts if b"-" in words and words[4] == b"/dev/shm"]
    if not kinds or kinds[-1] != b"tmpfs":
        return
    found = os.statvfs(f"/proc/{pid}/root/dev/shm")
    if found.f_blocks and found.f_bavail * found.f_frsize < min(FULL, found.f_blocks * found.f_frsize // 50):
        free, every = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        yield f"{size(free)} of {size(every)} of its /dev/shm are free: what is written there next may end it by SIGBUS"


def throttled(before: Sequence[cgroups.Quota], now: Sequence[cgroups.Quota]) -> list[str]:
    """The group around a process whose quota of CPU time was used up most often between two readings of `cgroups.quotas`, more
    often than not, in words: the innermost of equals. A pod may be short while its container is not."""
    was = {folder: (periods, short) for folder, _, _, periods, short in before}
    meanwhile = [(*one[:3], one[3] - was[one[0]][0], one[4] - was[one[0]][1]) for one in now if one[0] in was]
    folder, quota, period, periods, short = max(meanwhile, key=lambda one: one[4] / max(one[3], 1), default=("", 0, 1, 0, 0))
    if periods < PERIODS or short * 2 < periods:
        return []
    share, part = (
        f"{100 * quota / max(period, 1):.3g} % of a CPU",
        f"{100 * short / periods:.0f} % of the time that was looked at",
    )
    return [
        f"its control group may use {share} and was throttled in {short:,} of {periods:,} periods: {part} ({folder}/cpu.stat)"
    ]
