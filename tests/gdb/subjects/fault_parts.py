"""What the scenarios of faults.py share: what they say, and threads that hold a lock or beat."""

import ctypes
import json
import os
import threading
import time

from situation_parts import forever, thread, tids

libc, held_libc = ctypes.CDLL(None), ctypes.PyDLL(None)  # the second keeps the GIL
MAIN = threading.get_native_id()


def say(*culprits, pid=None):
    print(json.dumps({"pid": pid or os.getpid(), "culprits": [tids.get(c, c) for c in culprits]}), flush=True)


def holding(lock, then=forever):
    """A thread that has the lock and keeps it."""
    has = threading.Event()

    def hold():
        with lock:
            has.set()
            then()

    thread("holder", hold)
    has.wait()


def crossed_mutexes(start, one, two):
    """Two threads, which `start(name, function, *arguments)` starts: each has a mutex of the C library and wants the other's."""
    a, b, meet = (ctypes.c_uint64 * 6)(), (ctypes.c_uint64 * 6)(), threading.Barrier(2)

    def take(x, y):
        libc.pthread_mutex_lock(x)
        meet.wait()
        libc.pthread_mutex_lock(y)

    start(one, take, a, b)
    start(two, take, b, a)


def heartbeat():
    def beat():
        beats = 0
        while True:
            beats += 1
            time.sleep(0.1)

    thread("heartbeat", beat)
