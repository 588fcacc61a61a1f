"""Resources that have run out for a process: descriptors, connections that were not accepted, /dev/shm, threads, CPU time. A
shortage is evidence and names no culprit: code that gets no more of a resource reacts in many ways.

Sources: proc_pid_limits(5), proc_pid_mountinfo(5), net/tcp of proc(5) (of a listener, rx_queue counts the connections that were
not accepted), cgroups(7) (pids.max), Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.stat).
"""

from __future__ import annotations

import os
import time
from typing import Iterator

from .. import log
from ..access import cgroups
from ..access.procfs import descriptors, limit_of, read_or_empty, read_stat
from ..errors import GdbextError
from ..observe.system_calls import Files, Source
from ..render.text import size

LEFT = 2  # of a limit: as good as none
FULL = 1 << 20  # bytes left of /dev/shm
LOOKS, LOOK = 3, 0.005  # times, seconds between them: a connection that has just come is taken in by then
PERIODS = 10  # of a quota's life: fewer tell nothing
MOST = 4096  # descriptors that are read


def of_process(pid: int) -> list[str]:
    """In words; [] where nothing is short, or nothing can be seen."""
    found: list[str] = []
    for look in (_descriptors, _threads, _shared_memory, _processor):
        try:
            found += look(pid)
        except (GdbextError, OSError, ValueError) as e:
            log.passed_over(e)
    return found


def _descriptors(pid: int) -> Iterator[str]:
    """Shortage of descriptors."""
    held = list(descriptors(pid))
    limit = limit_of(pid, b"Max open files")
    if limit is not None and len(held) > limit - LEFT:
        yield f"{len(held)} of {limit} descriptors are open: it can open no more (RLIMIT_NOFILE)"


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


def _processor(pid: int) -> Iterator[str]:
    """A control group's quota of CPU time that is used up more often than not."""
    found = cgroups.throttled(pid)
    if found is None:
        return
    folder, quota, periods, short = found
    if periods >= PERIODS and short * 2 >= periods:
        share = f"{quota * 100:.3g} % of a CPU"
        yield f"its control group may use {share} and was throttled in {short:,} of {periods:,} periods ({folder}/cpu.stat)"
