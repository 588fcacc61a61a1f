"""Spends known times in native functions and says when: {"what", "begin", "end"} a line, monotonic clock. -> seconds to live

main, by turns: counts (Python alone), sorts (libc's qsort, which calls the Python function compare), strings (qsort with libc's
own strcmp), naps (time.sleep). "waiter" waits for ever; "asks" sleeps in short naps.
"""

import ctypes
import json
import os
import sys
import threading
import time

libc = ctypes.CDLL(None)
compare_type = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
WORDS = ctypes.create_string_buffer(b"".join(b"%015d\0" % i for i in range(20_000)))


def compare(a, b):
    return a[0] - b[0]


compare_callback = compare_type(compare)


def counts(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def sorts(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        libc.qsort((ctypes.c_int * 3000)(*range(3000, 0, -1)), 3000, 4, compare_callback)


def strings(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        libc.qsort(WORDS, 20_000, 16, libc.strcmp)


def naps(seconds):
    time.sleep(seconds)


def asks():
    while True:
        time.sleep(0.003)


def main():
    threading.Thread(target=threading.Event().wait, name="waiter", daemon=True).start()
    threading.Thread(target=asks, name="asks", daemon=True).start()
    print(json.dumps({"pid": os.getpid()}), flush=True)
    over = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < over:
        for call, seconds in ((counts, 0.03), (sorts, 0.05), (strings, 0.04), (naps, 0.05)):
            begin = time.monotonic()
            call(seconds)
            print(json.dumps({"what": call.__name__, "begin": begin, "end": time.monotonic()}), flush=True)


main()
