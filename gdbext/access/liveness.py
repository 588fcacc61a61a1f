"""A robust mutex in memory that gdb and the guard share. When the thread that holds it exits, the kernel releases it before any
other resource of that thread (kernel/exit.c, exit_mm). So the guard learns of gdb's end at once.

A process with armed debug registers is in danger as soon as its tracer begins to exit. From SIGKILL until the kernel has freed
gdb's memory and detached its tracees, milliseconds pass. A debug trap that gdb no longer fetches becomes a SIGTRAP, which kills
the process. So gdb's main thread holds this mutex. The guard waits for it and stops the armed threads at once.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os

from . import ptrace

ROBUST, SHARED = 1, 1  # pthread.h: PTHREAD_MUTEX_ROBUST, PTHREAD_PROCESS_SHARED


class LivenessMutex:
    """The mutex in the file `fd`; see the module's docstring."""

    ours: LivenessMutex | None = (
        None  # this process's own: kept for good, since the C library keeps a list of what a thread holds
    )

    def __init__(self, fd: int) -> None:
        self.fd, self.memory = fd, mmap.mmap(fd, mmap.PAGESIZE)
        self.mutex = ctypes.byref(ctypes.c_char.from_buffer(self.memory))

    @classmethod
    def held(cls) -> LivenessMutex | None:
        """The mutex that the calling thread holds; None where this system has none."""
        libc = ptrace.libc
        if cls.ours is None:
            try:
                fd = os.memfd_create("gdbext-guard")
                os.ftruncate(fd, mmap.PAGESIZE)
                made, kind = cls(fd), ctypes.create_string_buffer(64)
                libc.pthread_mutexattr_init(kind)
                libc.pthread_mutexattr_setpshared(kind, SHARED)
                libc.pthread_mutexattr_setrobust(kind, ROBUST)
                if libc.pthread_mutex_init(made.mutex, kind) or libc.pthread_mutex_lock(made.mutex):
                    return None
                cls.ours = made
            except (OSError, AttributeError):
                return None
        return cls.ours

    def ended(self) -> bool:
        """Waits for the end of the thread that holds it; False where that cannot be known."""
        return int(ptrace.libc.pthread_mutex_lock(self.mutex)) == errno.EOWNERDEAD
