"""pool.py NAME [moving|elsewhere]: a main thread in a known place, an idle pool of three, a thread with a hostile name; says its
stack, then waits (or, moving, goes round; or waits in another function)."""

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


def elsewhere():
    time.sleep(1000)


def inner(moving):
    stack, frame = [], sys._getframe()
    while frame is not None:
        stack.append(frame.f_code.co_name)
        frame = frame.f_back
    away = sys.argv[2:] == ["elsewhere"]
    print(json.dumps({"pid": os.getpid(), "stack": ["elsewhere" if away else "wait"] + stack}), flush=True)
    if away:
        elsewhere()
    wait(moving)


def other():
    threading.Event().wait()


def main():
    pool = concurrent.futures.ThreadPoolExecutor(3)
    meet = threading.Barrier(3)
    for f in [pool.submit(meet.wait) for _ in range(3)]:  # each needs a thread of its own
        f.result()
    threading.Thread(target=other, name="<b>evil</b>\x1b[2J;x", daemon=True).start()
    inner(sys.argv[2:] == ["moving"])


main()
