"""Threads that stand in native code of many kinds. Arguments: the compiled unwind_cases.c; "torch": some compute with it and with
numpy; "bare": one stands in code without call-frame information."""

import ctypes
import os
import select
import sys
import threading
import time

lib = ctypes.CDLL(sys.argv[1])
lib.spinning.argtypes, lib.spinning.restype = [ctypes.c_double], ctypes.c_double
CALL = ctypes.CFUNCTYPE(None)
kept = []


def called_back(function):
    kept.append(CALL(function))
    return kept[-1]


def innermost():
    time.sleep(1000)


def middle():
    lib.sorting(called_back(innermost))


def nested():
    lib.deep(7, called_back(middle))


def sleeping():
    time.sleep(1000)


def locked():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def selecting():
    select.select([0], [], [], 1000)


def handling():
    lib.in_handler(3)


def spinning():
    lib.spinning(1.0)


def sorting_keys():
    sorted([2, 1], key=lambda n: time.sleep(1000) if n == 2 else n)


def bare():
    lib.in_bare()


at_work = {"torch": threading.Event(), "numpy": threading.Event()}  # set when the first round is done


def computing():
    import torch

    a = torch.rand(600, 600)
    while True:
        a = torch.nn.functional.softmax(a @ a, dim=1)
        at_work["torch"].set()


def numbers():
    import numpy

    a = numpy.random.rand(500, 500)
    while True:
        a = numpy.sort(a @ a / 500, axis=1)
        at_work["numpy"].set()


TARGETS = [nested, sleeping, locked, handling, spinning, sorting_keys, selecting]
if "bare" in sys.argv[2:]:
    TARGETS.append(bare)
busy = [computing, numbers] if "torch" in sys.argv[2:] else []
for target in TARGETS + busy:
    threading.Thread(target=target, name=target.__name__, daemon=True).start()
time.sleep(0.5)
if busy:
    for event in at_work.values():
        event.wait()
print("up", os.getpid(), flush=True)
time.sleep(1000)
