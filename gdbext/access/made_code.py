"""Code that was made at run time: its bytes, and its names as the process itself wrote them for perf (/tmp/perf-PID.map).

A JIT (CPython's trampolines by -X perf, numba, V8, Java) appends a line `START SIZE NAME` in hexadecimal for each piece of code.
The file is text of the process's own: its names are bounded, and say where they come from. It is the file that the process sees
below its own root, by its pid there; it belongs to the process's user or to root, nobody else may write it, no link leads to it,
and it was written while the process lived. Sources: Linux, tools/perf/Documentation/jit-interface.txt; CPython,
Python/perf_trampoline.c.
"""

from __future__ import annotations

import os
import stat
import time
from typing import TYPE_CHECKING

from .. import log
from ..errors import GdbextError
from . import in_root, namespaces, procfs, readers
from .model import Memory

if TYPE_CHECKING:
    from .base import Target

MOST_CODE = 1 << 20  # bytes of code that are read of a process
MAX_BYTES, MAX_NAME = 16 << 20, 500
SLACK = 2.0  # seconds by which clocks may differ
FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class PerfMap:
    """`path`: as the process names it. `names`: `[(first address, behind the last, name)]` in the order of the file."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path, self.names = path, []
        for line in data.split(b"\n"):
            words = line.split(b" ", 2)
            try:
                start, size = int(words[0], 16), int(words[1], 16)
                self.names.append((start, start + size, words[2]))
            except (IndexError, ValueError):
                continue  # half a line

    def at(self, pc: int) -> str:
        """The name of the code at `pc`, '' where no line has it: the last line that does counts, for code is replaced."""
        found = next((name for start, end, name in reversed(self.names) if start <= pc < end), b"")
        return found[:MAX_NAME].decode("utf-8", "replace")


def read_small(target: Target) -> None:
    """Reads the small pieces of such code, so that a copy has them: a stack may lead through them (CPython's trampolines)."""
    left = MOST_CODE
    with log.passing_over(GdbextError):
        for mapping in target.mappings():
            size = mapping.end - mapping.start
            if "x" in mapping.perms and not mapping.path and size <= left:
                target.read_partial(mapping.start, size)
                left -= size


def of(memory: Memory) -> PerfMap | None:
    """The map of the process that `memory` is of, as long as that lives on this machine; None where there is none to trust."""
    found: PerfMap | None = memory.cached("perf map", lambda: _read(memory.living()))
    return found


def _read(pid: int | None) -> PerfMap | None:
    own = namespaces.own_pid(pid) if pid is not None else None
    if pid is None or own is None:
        return None
    path = f"/tmp/perf-{own}.map"
    try:
        descriptor = in_root.open_in_root(pid, path, FLAGS)
    except OSError:
        return None  # most processes write none
    try:
        why = _distrust(pid, os.fstat(descriptor))
        if why:
            log.note(f"{path} of process {pid} is not read: {why}")
            return None
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return PerfMap(path, file.read(MAX_BYTES))
    except (GdbextError, OSError) as e:
        log.passed_over(e)
        return None
    finally:
        os.close(descriptor)


def _distrust(pid: int, found: os.stat_result) -> str:
    """Why a file may be no map of the process's own; ''."""
    user = readers.of_process(pid)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        return "it is no regular file of one name"
    if user is None or found.st_uid not in (0, user.uid) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "others may have written it"
    began = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + procfs.read_stat(pid).started / procfs.TICKS
    return "it is older than the process" if found.st_mtime < began - SLACK else ""
