"""Locks of one process, its mutexes and the GIL, kept, taken crosswise or for a time: scenarios of faults.py."""

import ctypes
import logging
import os
import re
import socket
import sys
import tempfile
import threading
import time

from fault_parts import MAIN, crossed_mutexes, held_libc, holding, libc, say
from situation_parts import forever, thread


def abba_locks():
    a, b, meet = threading.Lock(), threading.RLock(), threading.Barrier(2)

    def one():
        with a:
            meet.wait()
            with b:
                pass

    thread("one", one)
    say("one", MAIN)
    with b:
        meet.wait()
        with a:
            pass


def abba_mutexes():
    crossed_mutexes(thread, "one", "two")
    say("one", "two")
    forever()


def same_lock_twice():
    lock = threading.Lock()
    say(MAIN)
    with lock:
        with lock:
            pass


def lock_kept():
    lock = threading.Lock()
    holding(lock)
    say("holder")
    with lock:
        pass


def lock_kept_in_recv():
    lock, (near, far) = threading.Lock(), socket.socketpair()
    holding(lock, lambda: near.recv(1))
    say("holder")
    with lock:
        pass
    del far


def lock_kept_through_join():
    lock = threading.RLock()
    holding(lock)

    def want():
        lock.acquire()
        lock.release()

    worker = thread("worker", want)
    say("holder")
    worker.join()


def mutex_kept():
    mutex, has = (ctypes.c_uint64 * 6)(), threading.Event()

    def hold():
        libc.pthread_mutex_lock(mutex)
        has.set()
        forever()

    thread("holder", hold)
    has.wait()
    say("holder")
    libc.pthread_mutex_lock(mutex)


def logging_lock():
    handler = logging.StreamHandler(open(os.devnull, "w"))
    log = logging.getLogger("engine")
    log.addHandler(handler)
    holding(handler.lock)
    say("holder")
    log.warning("step")


def import_lock():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "slow_module.py"), "w") as f:
            f.write("import time\ntime.sleep(100000)\n")
        sys.path.insert(0, folder)

        def load():
            __import__("slow_module")

        thread("importer", load)
        time.sleep(0.3)
        say("importer")
        import slow_module  # noqa: F401


def gil_kept_asleep():
    thread("other", lambda: [time.sleep(0.001) for _ in iter(int, 1)])
    say(MAIN)
    held_libc.sleep(100000)


def gil_kept_at_work():
    thread("other", lambda: [time.sleep(0.001) for _ in iter(int, 1)])
    say(MAIN)
    re.match("(a+)+$", "a" * 60 + "b")


def gil_and_mutex():
    """One has a mutex and wants the GIL; another has the GIL and wants the mutex."""
    mutex, has = (ctypes.c_uint64 * 6)(), threading.Event()

    def first():
        libc.pthread_mutex_lock(mutex)
        has.set()
        while True:
            time.sleep(0.001)

    thread("first", first)
    has.wait()
    say("first", MAIN)
    held_libc.pthread_mutex_lock(mutex)


def lock_with_a_time_limit():
    lock = threading.Lock()
    holding(lock)
    say("holder")
    while not lock.acquire(timeout=0.05):
        pass


def lock_used_as_a_signal():
    signal = threading.Lock()
    signal.acquire()
    thread("helper", forever)
    say()
    signal.acquire()


def semaphore_of_nobody():
    semaphore = threading.Semaphore(0)
    say()
    semaphore.acquire()
