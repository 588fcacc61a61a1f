"""pool.py NAME [moving]: a main thread in a known place, an idle pool of three, a thread with a hostile name; says its stack,
then waits (or, moving, goes round)."""

import concurrent.futures
import json
import os
import random
import sys
import threading
import time


def deeper(levels):
    if levels:
        deeper(levels - 1)
    else:
        time.sleep(0.02)


def wait(moving):
    if not moving:
        time.sleep(1000)
    while True:
        deeper(random.randrange(100))  # no two looks find the same depth, however they fall


def inner(moving):
    stack, frame = [], sys._getframe()
    while frame is not None:
        stack.append(frame.f_code.co_name)
        frame = frame.f_back
    print(json.dumps({"pid": os.getpid(), "stack": ["wait"] + stack}), flush=True)
    wait(moving)


def other():
    threading.Event().wait()


def main():
    pool = concurrent.futures.ThreadPoolExecutor(3)
    for f in [pool.submit(time.sleep, 0.1) for _ in range(3)]:
        f.result()
    threading.Thread(target=other, name="<b>evil</b>\x1b[2J;x", daemon=True).start()
    inner(len(sys.argv) > 2)


main()
