"""Threads of a free-threaded CPython of which one wants all others to stop, for a garbage collection. It says who they are.

free_threaded.py asleep|at_work|detached|turns: `keeps` sleeps or computes in C without detaching; it sleeps detached; threads
collect in turn while another runs bytecode."""

import ctypes
import gc
import json
import os
import re
import sys
import threading

how = sys.argv[1]
begun, tids = threading.Event(), {}


def named(what):
    tids[threading.current_thread().name] = threading.get_native_id()
    begun.set()
    what()


def asleep():
    ctypes.PyDLL(None).pause()


def at_work():
    re.match("(x+x+)+y", "x" * 64)


def detached():
    ctypes.CDLL(None).pause()


def turns():
    while True:
        tids["turns"] = tids.get("turns", 0) + 1


def collects():
    told.wait()
    while True:
        gc.collect()
        if how == "detached":
            ended.set()
            threading.Event().wait()


ended, told = threading.Event(), threading.Event()
for name, what in (
    ("keeps", {"asleep": asleep, "at_work": at_work, "detached": detached, "turns": turns}[how]),
    ("collects", collects),
):
    begun.clear()
    threading.Thread(target=named, args=(what,), name=name, daemon=True).start()
    begun.wait()
if how == "detached":
    told.set()
    ended.wait()
os.write(1, (json.dumps({"gil": sys._is_gil_enabled(), "tids": tids}) + "\n").encode())
told.set()
threading.Event().wait()
