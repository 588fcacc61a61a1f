"""Does known things at known times and says when: {"what", "begin", "end"} a line, on the monotonic clock. -> seconds to live

main: run_long and run_short (which calls helper) by turns, then a sleep in rest; "waiter" waits for ever; "asks" sleeps in naps.
"""

import json
import os
import sys
import threading
import time


def helper(n):
    return sum([i for i in range(n)])


def run_long(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def run_short(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        helper(3000)


def rest(seconds):
    time.sleep(seconds)


def generator(seconds):
    for _ in range(3):
        end = time.perf_counter() + seconds / 3
        while time.perf_counter() < end:
            pass
        yield 1


def drains(seconds):
    list(generator(seconds))


def nap():
    while True:
        time.sleep(0.003)


def main():
    threading.Thread(target=threading.Event().wait, name="waiter", daemon=True).start()
    threading.Thread(target=nap, name="asks", daemon=True).start()
    print(json.dumps({"pid": os.getpid()}), flush=True)
    over = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < over:
        for call, seconds in ((run_long, 0.05), (rest, 0.04), (run_short, 0.03), (drains, 0.03)):
            begin = time.monotonic()
            call(seconds)
            print(json.dumps({"what": call.__name__, "begin": begin, "end": time.monotonic()}), flush=True)


main()
