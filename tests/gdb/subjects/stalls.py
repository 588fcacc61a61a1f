"""Plants stalls of known kinds and says when: {"kind", "pid", "begin", "end", "ran", "queued"} a line, on the monotonic clock;
"ran", "queued": the parts of that time in which the thread had a processor, and in which it waited for one, as the kernel counts.

stalls.py one SEED FOLDER COUNT KIND...   COUNT stalls, the kinds by turns, between short steps of work
stalls.py ranks SEED COUNT SIZE           SIZE processes that meet after each step; one of them is late COUNT times
"""

import asyncio
import ctypes
import gc
import json
import os
import random
import socket
import sys
import threading
import time

clock = time.monotonic


def counted():
    """-> (now, seconds that this thread has run, seconds that it was kept waiting for a processor); 0 where nobody counts."""
    try:
        with open("/proc/thread-self/schedstat") as f:
            ran, queued = (int(word) / 1e9 for word in f.read().split()[:2])
    except OSError:
        ran = queued = 0.0
    return clock(), ran, queued


def say(kind, before):
    now = counted()
    passed, ran, queued = (b - a for a, b in zip(before, now))
    said = {"kind": kind, "pid": os.getpid(), "begin": before[0], "end": now[0], "ran": ran / passed, "queued": queued / passed}
    print(json.dumps(said), flush=True)


# ---- work and stalls of one process --------------------------------------------------------------------------------------
def compute(n):
    return sum([i * i for i in range(n)])


def step(chosen):
    for _ in range(chosen.randint(1, 3)):
        compute(chosen.randint(1000, 20000))
        time.sleep(chosen.uniform(0.001, 0.008))


def collects(seconds, chosen):
    end = clock() + seconds
    while clock() < end:
        gc.collect()


def keeps_the_gil(seconds, chosen):
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))  # PyDLL does not let the GIL go


def spins(seconds, chosen):
    end = clock() + seconds
    while clock() < end:
        pass


def writes_to_disk(seconds, chosen):
    end = clock() + seconds
    with open(os.path.join(sys.argv[3], f"file{os.getpid()}"), "wb") as f:
        while clock() < end:
            f.write(b"x" * 1_000_000)
            f.seek(0)
            f.flush()
            os.fsync(f.fileno())


held, hold, let_go = threading.Lock(), threading.Semaphore(0), threading.Semaphore(0)
wanted = [0.0]


def holder():
    while True:
        hold.acquire()
        with held:
            let_go.release()
            time.sleep(wanted[0])


def waits_for_a_lock(seconds, chosen):
    wanted[0] = seconds
    hold.release()
    let_go.acquire()
    with held:
        pass


loop = asyncio.new_event_loop()
blocked = threading.Event()


async def ticks():
    while True:
        await asyncio.sleep(0.004)


async def blocks(seconds):
    before = counted()
    time.sleep(seconds)
    say("loop", before)
    blocked.set()


def blocks_the_loop(seconds, chosen):
    blocked.clear()
    asyncio.run_coroutine_threadsafe(blocks(seconds), loop)
    blocked.wait()


def asks_for_the_gil():
    while True:
        time.sleep(0.002)


KINDS = {
    "gc": collects,
    "gil": keeps_the_gil,
    "spin": spins,
    "disk": writes_to_disk,
    "lock": waits_for_a_lock,
    "loop": blocks_the_loop,
}


def one():
    chosen, count, kinds = random.Random(int(sys.argv[2])), int(sys.argv[4]), sys.argv[5:]
    sys.objects = [[i] for i in range(300_000)] if "gc" in kinds else []
    gc.collect()
    gc.freeze() if "gc" not in kinds else None
    loop.create_task(ticks())
    for call in (loop.run_forever, holder, asks_for_the_gil):
        threading.Thread(target=call, daemon=True).start()
    print(json.dumps({"pid": os.getpid()}), flush=True)
    sys.stdin.readline()
    for number in range(count):
        pause = clock() + chosen.uniform(0.15, 0.25)
        while clock() < pause:
            step(chosen)
        kind, seconds = kinds[number % len(kinds)], chosen.uniform(0.13, 0.3)
        before = counted()
        KINDS[kind](seconds, chosen)
        if kind != "loop":
            say(kind, before)
    step(chosen)
    print(json.dumps({"done": True}), flush=True)
    sys.stdin.readline()


# ---- ranks that meet -----------------------------------------------------------------------------------------------------
def meet(link):
    link.send(b"x")
    link.recv(1)


def rank(number, link, seed, count, size):
    chosen, own = random.Random(seed), random.Random(seed + 1 + number)
    link.recv(1)
    for _ in range(count):
        for _ in range(chosen.randint(6, 10)):
            step(own)
            meet(link)
        late, seconds = chosen.randrange(size), chosen.uniform(0.15, 0.3)
        how = chosen.choice([spins, keeps_the_gil])
        if late == number:
            before = counted()
            how(seconds, chosen)
            say("late-rank", before)
        meet(link)
    step(own)
    print(json.dumps({"done": True}), flush=True)
    time.sleep(600)


def ranks():
    seed, count, size = (int(word) for word in sys.argv[2:5])
    links, pids = [], []
    for number in range(size):
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if not pid:
            ours.close()
            rank(number, theirs, seed, count, size)
        theirs.close()
        links.append(ours)
        pids.append(pid)
    print(json.dumps({"pids": pids}), flush=True)
    sys.stdin.readline()
    for link in links:
        link.send(b"x")
    while True:
        for link in links:
            if not link.recv(1):
                return
        for link in links:
            link.send(b"x")


{"one": one, "ranks": ranks}[sys.argv[1]]()
