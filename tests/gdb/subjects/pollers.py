"""pollers.py KIND STATE PAUSE: a main thread, or an asyncio task, that asks over and over for what another one is to give.

KIND: the function that asks; what primitives are asked is in `primitives.py`. STATE: what the giver does: "raises", "blocked",
"sleeps", "works", "slow", "gives". PAUSE: seconds between two questions, "none" for no pause. Says {"pid", "giver": tid or pid,
"state"} as JSON when it asks.
"""

import asyncio
import concurrent.futures
import json
import multiprocessing
import os
import sys
import tempfile
import threading
import time

KIND, STATE, PAUSE = sys.argv[1:4]
GIVEN_AFTER = 3600.0  # seconds: no giver gives within a test
began = threading.Event()
ended = threading.Event()
held = threading.Lock()
told = {}


def work():
    """Computes for an hour; the giver would give after that."""
    total = 0
    until = time.monotonic() + GIVEN_AFTER
    while time.monotonic() < until:
        total += sum(range(500))
        if STATE == "slow":
            time.sleep(0.02)
    return total


def giver(give):
    told["giver"] = threading.get_native_id()
    began.set()
    if STATE == "raises":
        raise SystemExit
    if STATE == "blocked":
        held.acquire()
        held.acquire()
    elif STATE == "sleeps":
        while True:
            time.sleep(GIVEN_AFTER)
    elif STATE == "gives":
        while True:
            time.sleep(0.02)
            give()
    else:
        work()
    give()


def given_by_a_thread(give):
    made = threading.Thread(target=giver, args=(give,), daemon=True, name="giver")
    made.start()
    began.wait()
    if STATE == "raises":
        made.join()
    return made


def child(give):
    signalled = multiprocessing.get_context("fork").Event()

    def run():
        signalled.set()
        if STATE != "raises":
            giver(give)

    made = multiprocessing.get_context("fork").Process(target=run, daemon=True)
    made.start()
    signalled.wait()
    if STATE == "raises":
        made.join()
    told["giver"] = made.pid
    return made


class Box:
    """An attribute that another thread sets."""

    ready = False


flag = False


def say():
    print(json.dumps({"pid": os.getpid(), "state": STATE, **told}), flush=True)


def deque():
    items = []
    keep = given_by_a_thread(lambda: items.append(1))
    say()
    n = 0
    while True:
        while not items:
            n += 1
            if PAUSE != "none":
                time.sleep(float(PAUSE))
        items.clear()
    return keep


def attribute():
    box = Box()
    keep = given_by_a_thread(lambda: setattr(box, "ready", True))
    say()
    n = 0
    while keep:
        while not box.ready:
            n += 1
            if PAUSE != "none":
                time.sleep(float(PAUSE))
        box.ready = False


def set_flag():
    global flag
    flag = True


def global_flag():
    global flag
    keep = given_by_a_thread(set_flag)
    say()
    n = 0
    while keep:
        while not flag:
            n += 1
            if PAUSE != "none":
                time.sleep(float(PAUSE))
        flag = False


def pool_done():
    pool = concurrent.futures.ThreadPoolExecutor(1)
    future = pool.submit(giver, lambda: None)
    began.wait()
    say()
    n = 0
    while not future.done():
        n += 1
        if PAUSE != "none":
            time.sleep(float(PAUSE))
    time.sleep(GIVEN_AFTER)


def exists():
    path = os.path.join(tempfile.mkdtemp(), "ready")
    keep = given_by_a_thread(lambda: open(path, "w").close())
    say()
    n = 0
    while not os.path.exists(path):
        n += 1
        if PAUSE != "none":
            time.sleep(float(PAUSE))
    time.sleep(GIVEN_AFTER)
    return keep


def is_alive():
    keep = given_by_a_thread(lambda: None)
    say()
    n = 0
    while keep.is_alive():
        n += 1
        if PAUSE != "none":
            time.sleep(float(PAUSE))
    time.sleep(GIVEN_AFTER)


def child_alive():
    made = child(lambda: None)
    say()
    n = 0
    while made.is_alive():
        n += 1
        if PAUSE != "none":
            time.sleep(float(PAUSE))
    time.sleep(GIVEN_AFTER)


def poll():
    mine, other = multiprocessing.Pipe()
    made = child(lambda: other.send(1))
    say()
    n = 0
    while made:
        if mine.poll(0):
            mine.recv()
        n += 1
        if PAUSE != "none":
            time.sleep(float(PAUSE))


def shared_value():
    value = multiprocessing.Value("i", 0)
    made = child(lambda: setattr(value, "value", 1))
    say()
    n = 0
    while made:
        while value.value == 0:
            n += 1
            if PAUSE != "none":
                time.sleep(float(PAUSE))
        value.value = 0


# ---- asyncio ---------------------------------------------------------------------------------------------------------
async def apause():
    await asyncio.sleep(0 if PAUSE == "none" else float(PAUSE))


async def agiver(give):
    """The states of a giver that is a task."""
    if STATE == "raises":
        return
    if STATE == "blocked":
        await asyncio.get_running_loop().create_future()
    elif STATE == "sleeps":
        while True:
            await asyncio.sleep(GIVEN_AFTER)
    elif STATE == "gives":
        while True:
            await asyncio.sleep(0.02)
            give()
    else:
        total = 0
        while True:
            total += 1
            await asyncio.sleep(0.01 if STATE == "slow" else 0)
    give()


async def task_done():
    given = asyncio.create_task(agiver(lambda: None), name="giver")
    given.add_done_callback(lambda _: None)
    n = 0
    asyncio.get_running_loop().call_later(0.1, say)
    while not given.done():
        n += 1
        await apause()
    await asyncio.sleep(GIVEN_AFTER)


async def async_flag():
    box = Box()
    given = asyncio.create_task(agiver(lambda: setattr(box, "ready", True)), name="giver")
    n = 0
    asyncio.get_running_loop().call_later(0.1, say)
    while given:
        while not box.ready:
            n += 1
            await asyncio.sleep(0 if PAUSE == "none" else float(PAUSE))
        box.ready = False


ASYNC = ("task_done", "async_flag")

if __name__ == "__main__":
    chosen = globals()[KIND]
    asyncio.run(chosen()) if KIND in ASYNC else chosen()
