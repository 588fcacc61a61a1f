"""How much memory is available where this process runs.

In a pod the tool often shares the engine's memory cgroup: memory that it takes is lost to the engine. Sources: Linux,
Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Any, Iterator

from ..errors import GdbextError
from . import cgroups

SPARE_DISK = 256 << 20  # bytes that a snapshot leaves free
OPEN = "/proc/self/fd/"  # the name of a file that was given open, and may have no other
OWN = 12 << 20  # bytes that a process of ours needs in addition to its copies
LOOK = 20 << 20  # bytes for one copy: the collector, the process that stops threads, and reading the copy
LIMITS = ("memory.max", "memory.high", "memory.limit_in_bytes")
USED = ("memory.current", "memory.usage_in_bytes")
# Memory that the kernel frees without writing anything and without taking memory in use from a process.
RECLAIMABLE = (b"inactive_file ", b"total_inactive_file ")


def spare(proc: str = "/proc", root: str = "") -> tuple[int, str]:
    """-> (bytes to spare, the source of that limit): the least of this process's memory cgroup, those above it and the machine. A
    limit that is not known is ignored. `proc` and `root` are for tests."""
    found = [(_available(proc), "this machine")]
    for folder in cgroups.own_folders("memory", proc, root):
        found += [(left, f"the memory cgroup {folder}") for left in _left(folder)]
    return min(found)


def need(size: int, what: str) -> None:
    """`GdbextError` where `size` bytes in addition to this process's own are not available."""
    left, where = spare()
    if left < size + OWN:
        raise GdbextError(
            f"{what} needs {text_size(size + OWN)} of memory and {where} has {text_size(max(left, 0))} to spare: "
            "ask from outside the container (docs/pods.md), or with a smaller -max-bytes where there is one"
        )


def need_disk(path: str, size: int) -> None:
    """`GdbextError` where writing `size` bytes to a file with a name would fill the disk."""
    if path.startswith(OPEN):
        return
    try:
        disk = os.statvfs(os.path.dirname(os.path.abspath(path)))
    except OSError as e:
        raise GdbextError(f"{path}: {e.strerror}: name another file with -o") from None
    free = disk.f_bavail * disk.f_frsize
    if free < size + SPARE_DISK:
        raise GdbextError(
            f"{path}: the snapshot needs {text_size(size)} and {text_size(SPARE_DISK)} to spare, {text_size(free)} are free: "
            "name a file on another disk with -o, or give a smaller -max-bytes"
        )


def text_size(count: int) -> str:
    """Bytes as MiB, a few as KiB."""
    return f"{count / (1 << 20):.1f} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


def nameless_file() -> Any:
    """A file for memory, which holds secrets. It has no name, so it is gone once the last process that has it open ends, however
    that happens. It lies in memory, and needs no disk and no writable folder."""
    try:
        return os.fdopen(os.memfd_create("gdbext"), "w+b")
    except OSError as e:  # a sandbox without it
        if e.errno in (errno.EMFILE, errno.ENFILE):
            raise
        import tempfile

        return tempfile.TemporaryFile(prefix="gdbext-")


def _available(proc: str) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"{proc}/meminfo", "rb") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith(b"MemAvailable:"))
    return 1 << 62


def _left(folder: str) -> Iterator[int]:
    limits = [n for n in (cgroups.number(f"{folder}/{name}") for name in LIMITS) if n is not None]
    used = next((n for n in (cgroups.number(f"{folder}/{name}") for name in USED) if n is not None), None)
    if limits and used is not None:
        yield min(limits) - used + _reclaimable(folder)


def _reclaimable(folder: str) -> int:
    try:
        with open(f"{folder}/memory.stat", "rb") as f:
            return max((int(line.split()[1]) for line in f if line.startswith(RECLAIMABLE)), default=0)
    except (OSError, ValueError):
        return 0
