"""Frees gdb from waits for files that are no regular files.

gdb opens and reads whatever lies at the paths that a process's loader names, each time that it loads a library. The open of a
FIFO waits for a writer. A program may load a library that has no name on the disk, as /proc/self/fd/5: in gdb that path is a pipe
of gdb's own. Either would hold gdb for good, and keep the process stopped. gdb has no hook before it opens a file.

So a thread watches gdb's thread. An open that waits for a FIFO gets a writer, and gdb reads an empty file. A wait for a file that
was opened by name is interrupted, and gdb takes the file for damaged.

Source: proc(5), /proc/PID/task/TID/syscall and /proc/PID/fdinfo; the numbers are those of asm/unistd.h and asm/fcntl.h.
"""

from __future__ import annotations

import atexit
import os
import signal
import stat
import threading
import time
from typing import Any

from ...access import ptrace
from ...access.background import background_thread
from ...access.procfs import parse_syscall

PATH_ARGUMENT = {"x86_64": {2: 0, 257: 1, 437: 1}, "aarch64": {56: 1, 437: 1}}  # open, openat, openat2: which one is the path
READS = {"x86_64": (0, 17, 19), "aarch64": (63, 67, 65)}  # read, pread64, readv
LARGEFILE = {"x86_64": 0o100000, "aarch64": 0o400000}  # the kernel sets it at each open(2), and never at pipe(2)
KICK = signal.SIGURG  # ignored by a program that does not know of it
MAX_PATH = 4096
LOOK, SOON = 0.2, 0.01  # seconds between two checks; and just after gdb was freed: it tries a file many times


class OpensEnd:
    """A `with` block, or a time from `start` to `end`, in which this thread waits for no file that is not a regular one.

    Its opens do not wait for the other end of a FIFO. Its reads do not wait for a pipe or terminal (below /proc/self/fd) that it
    opened by name meanwhile. `freed`: the files that it waited for."""

    def __init__(self) -> None:
        self.freed: list[str] = []
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Watches the calling thread, which is Python's main one, until `end`."""
        if self._thread is not None:
            return
        self._done = threading.Event()
        self._handler = signal.signal(KICK, lambda *_: None)  # not SA_RESTART: a blocked call returns EINTR
        waiter = (threading.get_native_id(), threading.get_ident(), {(fd, _identity(fd)) for fd in _descriptors()})
        self._thread = background_thread(self._watch, *waiter)
        atexit.register(self.end)  # gdb's end: a thread that goes on while Python is taken down may take gdb with it

    def end(self) -> None:
        """Ends the watch."""
        if self._thread is not None:
            self._done.set()
            self._thread.join()
            self._thread = None
            signal.signal(KICK, self._handler or signal.SIG_DFL)
            atexit.unregister(self.end)

    def __enter__(self) -> OpensEnd:
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.end()

    def _watch(self, tid: int, thread: int, own: set[tuple[int, tuple[int, int]]]) -> None:
        before, freed, many = None, 0.0, 0
        while not self._done.wait(SOON if time.monotonic() - freed < LOOK else LOOK):
            now = waits_in(tid)
            stuck, before = now is not None and now == before, now
            if len(self.freed) > many:
                freed, many = time.monotonic(), len(self.freed)
            try:
                if isinstance(now, str):
                    if stat.S_ISFIFO(os.stat(now).st_mode):
                        os.close(os.open(now, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
                        self.freed.append(now)
                elif stuck and now is not None and (now, _identity(now)) not in own and opened_by_name(now):
                    signal.pthread_kill(thread, KICK)
                    self.freed.append(os.readlink(f"/proc/self/fd/{now}"))
            except (OSError, ValueError):
                continue  # another file by now, or no thread waits for it any more


def waits_in(tid: int) -> str | int | None:
    """The absolute path that a thread of this process is opening, or the descriptor that it is reading from; None where it does
    anything else."""
    try:
        with open(f"/proc/self/task/{tid}/syscall", "rb") as f:  # by `self`: /proc may number another pid namespace
            call = parse_syscall(f.read())
        if call is None or call.number < 0:
            return None
        if call.number in READS.get(ptrace.MACHINE, ()):
            return call.arguments[0]
        which = PATH_ARGUMENT.get(ptrace.MACHINE, {}).get(call.number)
        if which is None:
            return None
        with open("/proc/self/mem", "rb", buffering=0) as mem:
            text = os.pread(mem.fileno(), MAX_PATH, call.arguments[which])
    except (OSError, ValueError, OverflowError):
        return None  # it has ended, or is elsewhere by now
    path = os.fsdecode(text.partition(b"\0")[0])
    return path if path.startswith("/") else None


def opened_by_name(descriptor: int) -> bool:
    """Whether a descriptor of this process is a pipe or a device and comes from open(2). A pipe that this process made itself, to
    read a child's output, does not."""
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISFIFO(mode):
        return stat.S_ISCHR(mode) and descriptor > 2
    with open(f"/proc/self/fdinfo/{descriptor}") as f:
        flags = next(int(line.split()[1], 8) for line in f if line.startswith("flags:"))
    return bool(flags & LARGEFILE[ptrace.MACHINE])


def _descriptors() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd")]


def _identity(descriptor: int) -> tuple[int, int]:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return 0, 0  # the one that listed them
    return status.st_dev, status.st_ino
