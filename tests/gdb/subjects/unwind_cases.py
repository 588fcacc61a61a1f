"""Threads that stand in native code of many kinds. Argument: the compiled unwind_cases.c; "torch": some compute with it."""

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


def computing():
    import torch

    a = torch.rand(600, 600)
    while True:
        a = torch.nn.functional.softmax(a @ a, dim=1)


def numbers():
    import numpy

    a = numpy.random.rand(500, 500)
    while True:
        a = numpy.sort(a @ a / 500, axis=1)


TARGETS = [nested, sleeping, locked, handling, spinning, sorting_keys, selecting]
if "torch" in sys.argv[2:]:
    TARGETS += [computing, numbers]
for target in TARGETS:
    threading.Thread(target=target, name=target.__name__, daemon=True).start()
time.sleep(0.5 if "torch" not in sys.argv[2:] else 15)
print("up", os.getpid(), flush=True)
time.sleep(1000)
