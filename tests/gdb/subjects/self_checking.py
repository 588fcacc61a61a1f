"""Three threads that call `step` all the time, check what it gives, and count in a shared file: `self_checking.py FILE [STORM]`.
Word 64 of the file is 1 once anything was computed wrong, or a child did not end as it should; with FILE.load there the main
thread loads libraries. STORM: what the main thread does meanwhile, `fork`, `exec`, `threads`, `signals`, `libraries` (it loads
and unloads one), `setuid` (each thread gets a signal of the C library's), `seccomp` (threads that filter their system calls)."""

import _ctypes
import ctypes
import mmap
import os
import signal
import struct
import subprocess
import sys
import threading
import time

WRONG = 512


def step(i, n):
    x = n * 3 + 1
    y = x - 1
    if y != n * 3:
        struct.pack_into("Q", memory, WRONG, 1)
    return y // 3 + 1


libc = ctypes.CDLL(None)
ALLOW = ctypes.create_string_buffer(struct.pack("<HBBI", 0x06, 0, 0, 0x7FFF0000), 8)


def filtered():
    """A thread with a filter that allows each call."""
    program = ctypes.create_string_buffer(struct.pack("<H6xQ", 1, ctypes.addressof(ALLOW)), 16)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(program), 0, 0):
        struct.pack_into("Q", memory, WRONG, 1)
    step(0, 7)


def storm(kind):
    right = True
    if kind == "fork":
        pid = os.fork()
        if not pid:
            for n in range(20):
                step(0, n)
            os._exit(7)
        status = os.waitpid(pid, 0)[1]
        right = status == 7 << 8
        if not right:
            struct.pack_into("q", memory, WRONG + 16, status)
    elif kind == "exec":
        status = subprocess.call(["/bin/sh", "-c", "exit 7"])
        right = status == 7
        if not right:
            struct.pack_into("q", memory, WRONG + 16, status)
    elif kind == "threads":
        some = [threading.Thread(target=step, args=(0, n)) for n in range(5)]
        for thread in some:
            thread.start()
        for thread in some:
            thread.join()
    elif kind == "libraries":
        _ctypes.dlclose(ctypes.CDLL("libresolv.so.2")._handle)
    elif kind == "setuid":
        libc.setresuid(*os.getresuid())
    elif kind == "seccomp":
        thread = threading.Thread(target=filtered)
        thread.start()
        thread.join()
    elif kind == "signals":
        signal.setitimer(signal.ITIMER_REAL, 0.001)
    if not right:
        struct.pack_into("Q", memory, WRONG, 1)


def loop(i):
    n = 0
    while True:
        n = step(i, n)
        struct.pack_into("Q", memory, 8 * i, n)
        time.sleep(0.004)
        if i == 0 and len(sys.argv) > 2:
            storm(sys.argv[2])
        if i == 0 and n % 64 == 0 and os.path.exists(sys.argv[1] + ".load"):
            import _decimal  # noqa: F401
            import _sqlite3  # noqa: F401

            os.rename(sys.argv[1] + ".load", sys.argv[1] + ".loaded")


signal.signal(signal.SIGALRM, lambda *_: None)
with open(sys.argv[1], "wb+") as file:
    file.write(bytes(4096))
    file.flush()
    memory = mmap.mmap(file.fileno(), 4096)
for number in (1, 2):
    threading.Thread(target=loop, args=(number,), daemon=True).start()
loop(0)
