"""A way out of gdb's waiting for the writer of a FIFO.

gdb opens whatever lies at the paths that a process's loader names, and the open of a FIFO waits for a writer: a process that has
put one in the place of a library would hold gdb for good, and itself stopped. Here a thread looks what gdb's thread does; an open
that waits for a FIFO gets its writer, and gdb reads an empty file.

Source: proc(5), /proc/PID/task/TID/syscall; the numbers are those of asm/unistd.h.
"""

from __future__ import annotations

import os
import signal
import stat
import threading
from typing import Any

from . import ptrace

PATH_ARGUMENT = {"x86_64": {2: 0, 257: 1, 437: 1}, "aarch64": {56: 1, 437: 1}}  # open, openat, openat2: which one is the path
MAX_PATH = 4096
LOOK = 0.2  # seconds between two looks


class OpensEnd:
    """A `with` block in which this thread's opens do not wait for the other end of a FIFO."""

    def __enter__(self) -> OpensEnd:
        self.freed: list[str] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(threading.get_native_id(),), daemon=True)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._thread.start()  # it blocks what this thread blocks now: no Ctrl-C is to end in it
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return self

    def __exit__(self, *_: Any) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self, tid: int) -> None:
        while not self._done.wait(LOOK):
            path = opened_path(tid)
            try:
                if path and stat.S_ISFIFO(os.stat(path).st_mode):
                    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
                    self.freed.append(path)
            except (OSError, ValueError):
                continue  # another file by now, or nobody waits for it any more


def opened_path(tid: int) -> str:
    """The absolute path that a thread of this process opens at this moment; '' where it does anything else."""
    try:
        with open(f"/proc/self/task/{tid}/syscall") as f:
            words = f.read().split()
        which = PATH_ARGUMENT.get(ptrace.MACHINE, {}).get(int(words[0]))
        if which is None:
            return ""
        with open("/proc/self/mem", "rb", buffering=0) as mem:
            text = os.pread(mem.fileno(), MAX_PATH, int(words[1 + which], 16))
    except (OSError, ValueError, IndexError, OverflowError):
        return ""  # it runs
    path = os.fsdecode(text.partition(b"\0")[0])
    return path if path.startswith("/") else ""
