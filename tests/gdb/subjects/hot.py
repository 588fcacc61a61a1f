"""A function that CPython's JIT has compiled where there is one; says its process id and whether the JIT is on."""

import json
import os
import sys
import time


def inner(i, counts):
    a = i * 2
    b = a + 1
    counts[0] += 1
    return b - a


def outer(limit):
    counts = [0]
    for i in range(limit):
        inner(i, counts)
    return counts[0]


outer(100000)
on = hasattr(sys, "_jit") and sys._jit.is_enabled()
sys.stdout.write(json.dumps({"pid": os.getpid(), "jit": on}) + "\n")
sys.stdout.flush()
while True:
    outer(1)
    time.sleep(1)
