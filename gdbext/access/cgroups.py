"""Control groups of processes, as far as they can be seen from here: versions 1 and 2, and both at once.

Sources: cgroups(7), cgroup_namespaces(7), proc_pid_mountinfo(5), Linux, Documentation/admin-guide/cgroup-v2.rst and
cgroup-v1/freezer-subsystem.rst.
"""

from __future__ import annotations

import contextlib
import functools
import os
from typing import Sequence, Tuple

from .. import log
from .procfs import task_ids, wait_channel

V2 = ""  # the name of version 2's one hierarchy
# The files that say whether a group is frozen: first for the group that was frozen itself, then for those below it.
FROZEN: Sequence[tuple[str, tuple[bytes, ...]]] = (
    ("freezer.self_freezing", (b"1",)),
    ("cgroup.freeze", (b"1",)),
    ("freezer.state", (b"FROZEN", b"FREEZING")),
    ("cgroup.events", (b"frozen 1",)),
)
FREEZERS = ("__refrigerator", "do_freezer_trap")  # where its threads wait: kernel/freezer.c, kernel/cgroup/freezer.c
MOVED = (V2, "name=systemd", "freezer", "devices", "pids")  # the hierarchies by which container engines and systemd end a group
FREEZES = ("freezer",)  # version 1's: no signal reaches a process there
RUNS = (V2, "freezer", "cpu")  # and those that say how much of the CPUs a group gets


@functools.lru_cache(maxsize=None)
def _mounts(proc: str, root: str) -> list[tuple[set[str], str, str]]:
    """`[(names of controllers, the group at the mount point, mount point)]`; version 2 has the name `V2`."""
    found = []
    with contextlib.suppress(OSError), open(f"{proc}/self/mountinfo", encoding="utf-8", errors="surrogateescape") as f:
        for line in f:
            fields, _, more = line.partition(" - ")
            words, kind = fields.split(), more.split()
            if len(words) > 4 and kind and kind[0] in ("cgroup", "cgroup2"):
                names = {V2} if kind[0] == "cgroup2" else set(kind[-1].split(","))
                found.append((names, words[3], root + words[4].replace("\\040", " ")))
    return found


def groups(pid: int | str, proc: str = "/proc") -> dict[str, str]:
    """{controller: the path of its group} of a process; version 2's at `V2`."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError), open(f"{proc}/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as f:
        for line in f:
            parts = line.rstrip("\n").split(":", 2)
            if len(parts) == 3:
                found.update((name, parts[2]) for name in parts[1].split(","))
    return found


def folders(pid: int | str, controller: str, proc: str = "/proc", root: str = "") -> list[str]:
    """The mounted folders of a process's control group and of those above it, the innermost first: from version 1's hierarchy of
    the controller and from version 2's. [] where none can be seen."""
    mine, found = groups(pid, proc), []
    for name in (controller, V2):
        if name in mine:
            found += _folders_in(name, mine[name], proc, root)
    return found


def _folders_in(name: str, path: str, proc: str = "/proc", root: str = "") -> list[str]:
    """The folder of a group of one hierarchy, and those above it."""
    found: list[str] = []
    for names, top, point in _mounts(proc, root):
        if name not in names or "/.." in path:
            continue  # outside of our own cgroup namespace
        inside = os.path.relpath(path, top) if path == top or path.startswith(top.rstrip("/") + "/") else "."
        parts = [] if inside == "." else inside.split("/")
        chain = [os.path.join(point, *parts[:n]) for n in range(len(parts), -1, -1)]
        found += [folder for folder in chain if os.path.isdir(folder) and folder not in found]
    return found


def move_to(pid: int, names: Sequence[str] = MOVED) -> str:
    """Moves this process into the control groups of another one, in the hierarchies of `names`: those by which containers and
    sessions are ended. -> '' once it is in them, else the first of its own groups that it could not leave."""
    theirs, stays = groups(pid), ""
    for name in names:
        mine = groups("self").get(name)
        if mine is None or theirs.get(name, mine) == mine:
            continue
        for folder in _folders_in(name, theirs[name])[:1]:
            with contextlib.suppress(OSError), open(f"{folder}/cgroup.procs", "w") as f:
                f.write("0")
        if groups("self").get(name) != theirs[name]:
            stays = stays or mine
    return stays


def own_folders(controller: str, proc: str = "/proc", root: str = "") -> list[str]:
    """`folders` of this process."""
    return folders("self", controller, proc, root)


Quota = Tuple[str, int, int, int, int]


def quotas(pid: int | str) -> list[Quota]:
    """(folder, microseconds of CPU time in each period, microseconds of a period, periods, in how many of them the time was used
    up) of the groups around a process that have a quota of CPU time, the innermost first (cpu.stat)."""
    found: list[Quota] = []
    for folder in folders(pid, "cpu"):
        words = _words(f"{folder}/cpu.max") or _words(f"{folder}/cpu.cfs_quota_us") + _words(f"{folder}/cpu.cfs_period_us")
        if len(words) != 2 or not words[0].isdigit() or not words[1].isdigit():
            continue  # "max", and -1, are no quota
        stat = _words(f"{folder}/cpu.stat")
        counts = {name: int(value) for name, value in zip(stat[::2], stat[1::2]) if value.isdigit()}
        found.append((folder, int(words[0]), int(words[1]), counts.get("nr_periods", 0), counts.get("nr_throttled", 0)))
    return found


def seconds_throttled(folder: str) -> float | None:
    """Seconds for which the group was denied a CPU by its quota (cpu.stat: throttled_usec, of version 1 throttled_time); None
    where that is not counted."""
    words = _words(f"{folder}/cpu.stat")
    for name, unit in (("throttled_usec", 1e6), ("throttled_time", 1e9)):
        if name in words[:-1]:
            return int(words[words.index(name) + 1]) / unit
    return None


def _words(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii", errors="replace") as f:
            return f.read(4096).split()
    except OSError:
        return []


def number(path: str) -> int | None:
    """The number in a file; None for "max", and where there is none."""
    try:
        with open(path, "rb") as f:
            return int(f.read(64))
    except (OSError, ValueError):
        return None


def frozen_by(pid: int) -> str:
    """The control group, the process's own or one above it, that has frozen a process, in words; '' where none has.

    Where its groups cannot be seen from here, the places where its threads wait in the kernel decide."""
    mine = folders(pid, "freezer")
    for name, words in FROZEN:
        for folder in mine:
            with contextlib.suppress(OSError), open(f"{folder}/{name}", "rb") as f:
                if f.read(256).strip().endswith(words):
                    return f"the control group {folder}"
    waits: list[bool] = []
    with log.passing_over():
        waits = [wait_channel(pid, tid) in FREEZERS for tid in task_ids(pid)]
    return "its control group, which cannot be seen from here" if waits and all(waits) else ""
