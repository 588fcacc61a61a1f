"""native_locks.py KIND (ring, naps, barrier, alone, posted, semop): threads that wait for pthread locks. It names them by tid.

ring: a reader wants the rwlock again, a writer waits for it and goes first. naps: a reader has it and naps, a writer waits.
barrier: two have come, a third naps. alone: the only thread waits for a semaphore; posted: another thread naps
before it posts that."""

import ctypes
import json
import os
import sys
import threading
import time

WRITERS_FIRST = 2  # PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP
libc = ctypes.CDLL(None)
kind, tids = sys.argv[1], {}
lock, attributes, barrier = (ctypes.create_string_buffer(64) for _ in range(3))
libc.pthread_rwlockattr_init(attributes)
libc.pthread_rwlockattr_setkind_np(attributes, WRITERS_FIRST)
libc.pthread_rwlock_init(lock, attributes)
libc.pthread_barrier_init(barrier, None, 3)


def thread(name, function):
    def run():
        tids[name] = threading.get_native_id()
        function()

    threading.Thread(target=run, name=name, daemon=True).start()


def reader():
    libc.pthread_rwlock_rdlock(lock)
    time.sleep(0.5 if kind == "ring" else 40)
    libc.pthread_rwlock_rdlock(lock)


def comes_late():
    time.sleep(40)
    libc.pthread_barrier_wait(barrier)


if kind in ("alone", "posted"):
    libc.sem_init(lock, 0, 0)
    if kind == "posted":
        thread("first", lambda: (time.sleep(40), libc.sem_post(lock)))
    print(json.dumps({"pid": os.getpid(), "first": 0, "second": 0}), flush=True)
    libc.sem_wait(lock)
    sys.exit()
if kind == "semop":  # a stop would end it: the program ends with EINTR
    libc.semop.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
    name = libc.semget(0, 1, 0o600)
    print(json.dumps({"pid": os.getpid(), "first": name, "second": 0}), flush=True)
    libc.semop(name, (0).to_bytes(2, "little") + (-1).to_bytes(2, "little", signed=True) + bytes(2), 1)
    sys.exit(4)
thread("first", comes_late if kind == "barrier" else reader)
time.sleep(0.2)
thread("second", lambda: libc.pthread_barrier_wait(barrier) if kind == "barrier" else libc.pthread_rwlock_wrlock(lock))
while len(tids) < 2:
    time.sleep(0.01)
time.sleep(1 if kind == "ring" else 0.2)
print(json.dumps({"pid": os.getpid(), **tids}), flush=True)
if kind == "barrier":
    libc.pthread_barrier_wait(barrier)
else:
    libc.pthread_rwlock_rdlock(lock)
