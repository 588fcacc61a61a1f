"""Programs on their way out, for good: endings.py joins|atexit|finalizing|handlers|alive. Prints its truth just before
that."""

import atexit
import ctypes
import json
import os
import sys
import threading
import time

kind = sys.argv[1]


def work():
    time.sleep(3600)


def callback(wait=time.sleep):
    wait(3600)


class Late:
    def __del__(self, wait=time.sleep):
        wait(3600)


# a daemon whose frame has this module's globals would keep them from being taken apart
threads = [threading.Thread(target=time.sleep, args=(3600,), name=f"helper{i}", daemon=True) for i in range(2)]
if kind == "joins":
    threads += [threading.Thread(target=work, name=f"keeper{i}") for i in range(2)]
for one in threads:
    one.start()
truth = {"pid": os.getpid(), "keepers": [one.native_id for one in threads if not one.daemon]}
if kind == "atexit":
    atexit.register(callback)
if kind == "finalizing":
    late = Late()
if kind == "handlers":  # atexit(3): the interpreter has ended by then
    libc = ctypes.CDLL(None)
    libc.__cxa_atexit(libc.pause, None, None)
print(json.dumps(truth), flush=True)
if kind == "alive":
    time.sleep(3600)
