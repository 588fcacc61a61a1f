"""resting_threads.py: threads without Python or a name of their own, three in sem_wait, two in sleep, and a queue whose feeder
cannot write: {"pid", "feeder": its tid}."""

import ctypes
import json
import multiprocessing
import os
import threading
import time

libc = ctypes.CDLL(None)
semaphore = ctypes.create_string_buffer(32)
for function, argument, count in ((libc.sem_wait, semaphore, 3), (libc.sleep, ctypes.c_void_p(100000), 2)):
    for _ in range(count):
        libc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, function, argument)
full = multiprocessing.Queue()
for _ in range(40):
    full.put(b"x" * 100_000)
feeder = next(t for t in threading.enumerate() if t is not threading.main_thread())


def call():
    with open(f"/proc/self/task/{feeder.native_id}/syscall") as f:
        return f.read().split()[0]


while call() != {"x86_64": "1", "aarch64": "64"}[os.uname().machine]:
    time.sleep(0.01)
print(json.dumps({"pid": os.getpid(), "feeder": feeder.native_id}), flush=True)
time.sleep(100000)
