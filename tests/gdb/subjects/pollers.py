"""pollers.py KIND STATE PAUSE BODY: a main thread, or an asyncio task, that asks over and over for what another one is to give.

KIND: what it asks (`ASKS`, `ASYNC`); STATE: what the giver does (`STATES`); PAUSE: seconds between two questions, "none" for no
pause; BODY: what else its loop does ("bare", "counts", "times"). Says {"pid", "giver": tid or pid, "state"} as JSON when it asks.
"""

import asyncio
import concurrent.futures
import json
import multiprocessing
import os
import queue
import sys
import tempfile
import threading
import time

KIND, STATE, PAUSE, BODY = sys.argv[1:5]
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


def pause():
    if PAUSE != "none":
        time.sleep(float(PAUSE))


class Box:
    """An attribute that another thread sets."""

    ready = False


flag = False


def say():
    print(json.dumps({"pid": os.getpid(), "state": STATE, **told}), flush=True)


def polling(ask, take=lambda: None):
    """Asks until something is there, takes it and asks again."""
    say()
    n, last = 0, 0.0
    if BODY == "bare":
        while True:
            if ask():
                take()
            pause()
    while True:
        if BODY == "counts":
            n += 1
        elif BODY == "times":
            last = time.monotonic() - last
        if ask():
            take()
        pause()


def get_nowait():
    items = queue.Queue()
    keep = given_by_a_thread(lambda: items.put(1))
    say()
    n = 0
    while keep:
        try:
            items.get_nowait()
        except queue.Empty:
            n += 1
            pause()


def get_short():
    items = queue.Queue()
    keep = given_by_a_thread(lambda: items.put(1))
    say()
    n = 0
    while keep:
        try:
            items.get(timeout=0.01)
        except queue.Empty:
            n += 1


def empty():
    items = queue.Queue()
    keep = given_by_a_thread(lambda: items.put(1))
    say()
    n = 0
    while True:
        if not items.empty():
            items.get()
        n += BODY == "counts"
        if PAUSE != "none":
            time.sleep(float(PAUSE))
    return keep


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


def is_set():
    event = threading.Event()
    keep = given_by_a_thread(event.set)
    say()
    n = 0
    while keep:
        while not event.is_set():
            n += 1
            pause()
        event.clear()


def is_set_helper():
    event = threading.Event()
    keep = given_by_a_thread(event.set)
    polling(event.is_set, event.clear)
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


def done():
    future = concurrent.futures.Future()
    keep = given_by_a_thread(lambda: future.done() or future.set_result(1))
    say()
    n = 0
    while not future.done():
        n += 1
        if PAUSE != "none":
            time.sleep(float(PAUSE))
    time.sleep(GIVEN_AFTER)
    return keep


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


async def future_done():
    future = asyncio.get_running_loop().create_future()
    given = asyncio.create_task(agiver(lambda: future.done() or future.set_result(1)), name="giver")
    n = 0
    asyncio.get_running_loop().call_later(0.1, say)
    while given and not future.done():
        n += 1
        await asyncio.sleep(0 if PAUSE == "none" else float(PAUSE))
    await asyncio.sleep(GIVEN_AFTER)


async def async_event():
    event = asyncio.Event()
    given = asyncio.create_task(agiver(event.set), name="giver")
    n = 0
    asyncio.get_running_loop().call_later(0.1, say)
    while given:
        while not event.is_set():
            n += 1
            await asyncio.sleep(0 if PAUSE == "none" else float(PAUSE))
        event.clear()


async def async_queue():
    items = asyncio.Queue()
    given = asyncio.create_task(agiver(lambda: items.put_nowait(1)), name="giver")
    n = 0
    asyncio.get_running_loop().call_later(0.1, say)
    while given:
        if items.empty():
            n += 1
            await asyncio.sleep(0 if PAUSE == "none" else float(PAUSE))
            continue
        items.get_nowait()


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


ASKS = (get_nowait, get_short, empty, deque, is_set, is_set_helper, attribute, global_flag, done, pool_done, exists, is_alive)
ASKS += (child_alive, poll, shared_value)
ASYNC = (task_done, future_done, async_event, async_queue, async_flag)
STATES = ("raises", "blocked", "sleeps", "works", "slow", "gives")

if __name__ == "__main__":
    chosen = globals()[KIND]
    asyncio.run(chosen()) if chosen in ASYNC else chosen()
