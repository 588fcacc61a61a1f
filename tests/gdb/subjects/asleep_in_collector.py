"""A garbage collection during which a thread with the GIL runs no more, or works: `asleep_in_collector.py HOW`; prints READY.

`callback`, `finalizer`: what the collector calls sleeps for a semaphore that nobody posts, and keeps the GIL. `thread`: so, in a
thread beside the main one. `works`: the collector goes over a large heap again and again. `waits`: a finalizer waits for an
Event, and keeps no GIL."""

import ctypes
import gc
import sys
import threading
import time

libc = ctypes.PyDLL(None)  # its calls keep the GIL
semaphore = ctypes.create_string_buffer(64)
libc.sem_init(semaphore, 0, 0)
event = threading.Event()
how = sys.argv[1]


def tick():
    while True:
        time.sleep(0.01)


def callback(phase, info):
    libc.sem_wait(semaphore)


class Ring:
    def __init__(self):
        self.own = self

    def __del__(self):
        event.wait() if how == "waits" else libc.sem_wait(semaphore)


def collect():
    if how in ("finalizer", "waits"):
        Ring()
    elif how != "works":
        gc.callbacks.append(callback)
    kept = [[n] for n in range(300_000)] if how == "works" else ()
    print("READY", flush=True)
    while True:
        gc.collect()
        if not kept:
            break


gc.disable()
threading.Thread(target=tick, name="ticks", daemon=True).start()
if how == "thread":
    threading.Thread(target=collect, name="collects", daemon=True).start()
    event.wait()
collect()
