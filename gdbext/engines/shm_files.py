"""An engine's rings of shared memory (shm_rings.py), read as files in /dev/shm. That is possible even for a process that may not
be traced.

The process's maps list its rings (they are open to its own user under Yama too, proc(5)). Where the maps may not be read, files
in this /dev/shm are taken by three conditions. They belong to the process's user, are not older than the process, and have the
size of a ring: `chunks` × (whole MiB + 1 + readers).
"""

from __future__ import annotations

import os
import re
import stat
import time
from typing import Any, Sequence

from .. import log
from ..access import in_root
from ..access.procfs import TICKS, read_maps, read_stat, uptime
from ..errors import GdbextError

FOLDER = "/dev/shm"
NAME = re.compile(r"psm_[0-9a-f]{8}")  # multiprocessing.shared_memory names them so
CHUNKS = 10  # MessageQueue's default max_chunks, from vLLM 0.6.0 to 0.32 and in SGLang
MIB = 1 << 20  # chunks are so many of these
MAX_READERS, MAX_FILES = 4096, 256
SECONDS = 0.5  # between two samples


def readers_of(size: int) -> int:
    """The number of a ring's readers, by its file's length; 0 where it is no ring."""
    each, rest = divmod(size, CHUNKS)
    return (each % MIB) - 1 if not rest and each >= MIB and 2 <= each % MIB <= MAX_READERS + 1 else 0


def _open(pid: int, name: str) -> int:
    """A descriptor of a ring's file: the process's own file where its root may be entered, else the file of that name in our
    /dev/shm."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return in_root.open_in_root(pid, f"{FOLDER}/{name}", flags)
    except OSError:
        return os.open(f"{FOLDER}/{name}", flags)


def _started(pid: int) -> float:
    """When a process began, in seconds of the wall clock; field 22 of stat is in ticks after boot (proc(5))."""
    return time.time() - uptime() + read_stat(pid).started / TICKS


def _look(pid: int, name: str, user: int, since: float = 0.0) -> tuple[int, bytes] | None:
    """-> (readers, the flags of all chunks). None for a file that is no ring of that user, or was made before `since`."""
    try:
        f = _open(pid, name)
    except OSError:
        return None
    try:
        found = os.fstat(f)
        readers = (
            readers_of(found.st_size) if stat.S_ISREG(found.st_mode) and found.st_uid == user and found.st_ctime >= since else 0
        )
        size = CHUNKS * (1 + readers)
        flags = os.pread(f, size, found.st_size - size) if readers else b""
        return (readers, flags) if readers and len(flags) == size and not flags.strip(b"\0\1") else None
    except OSError:
        return None
    finally:
        os.close(f)


def names(pid: int) -> tuple[list[str], bool]:
    """(names of possible rings, whether they come from the process's own maps; otherwise they are all files in our /dev/shm)."""
    try:
        found, own = re.findall(rf" {FOLDER}/(\S+)", read_maps(pid)[0]), True
    except (GdbextError, OSError) as e:
        log.passed_over(e)
        found, own = os.listdir(FOLDER) if os.path.isdir(FOLDER) else [], False
    return sorted({name for name in found if NAME.fullmatch(name)})[:MAX_FILES], own


def of_processes(pids: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    """{pid: [`{name, readers, unread, moved, mapped}`]}, each ring once, at the first process that has it. `unread`: how many
    messages each reader has not read; `moved`: a flag changed between two samples; `mapped`: the process is known to map it."""
    first = {}
    for pid in pids:
        try:
            user = os.stat(f"/proc/{pid}").st_uid
            candidates, own = names(pid)
            since = 0.0 if own else _started(pid) - 1
        except (OSError, GdbextError) as e:
            log.passed_over(e)
            continue
        for name in candidates:
            if name not in first:
                look = _look(pid, name, user, since)
                if look is not None:
                    first[name] = (pid, user, own, look)
    if first:
        time.sleep(SECONDS)
    found: dict[int, list[dict[str, Any]]] = {pid: [] for pid in pids}
    for name, (pid, user, own, (readers, flags)) in first.items():
        second = _look(pid, name, user)
        if second is None:
            continue
        now = second[1]
        chunks = [now[at : at + 1 + readers] for at in range(0, len(now), 1 + readers)]
        unread = [sum(chunk[0] and not chunk[1 + i] for chunk in chunks) for i in range(readers)]
        found[pid].append({"name": name, "readers": readers, "unread": unread, "moved": now != flags, "mapped": own})
    return found


def lines(rings: Sequence[dict[str, Any]]) -> list[str]:
    """`of_processes` in words, not escaped."""
    said = []
    for ring in rings:
        whose = "" if ring["mapped"] else ", of its user in this /dev/shm"
        late = [f"reader {i} has {count} unread" for i, count in enumerate(ring["unread"]) if count]
        state = "moves" if ring["moved"] else f"did not move in {SECONDS:g} s"
        told = "; ".join(late[:8]) or f"{'its reader has' if ring['readers'] == 1 else 'all readers have'} read all"
        said.append(f"  ring {ring['name']} ({ring['readers']} reader{'s' * (ring['readers'] > 1)}{whose}) {state}: {told}")
    return said
