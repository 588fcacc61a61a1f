"""wait_chains.py SEED: threads that wait one for the next through locks, joins, queues, events, futures, drawn by the seed; the
last one sleeps, waits for a client, is at work, has ended, or waits for a child that sleeps. Says as JSON what is true of itself:
{"pid", "pids" to look at too, "links": [tid of each, the main thread first], "state" and "end" (tid or pid) of the last one}.
The main thread is the chain's first."""

import concurrent.futures
import ctypes
import json
import os
import queue
import random
import signal
import socket
import sys
import threading
import time

tids, pids, told, keep = [], [], {}, []
came = threading.Event()


def sleeps():
    told.update(state="sleeps", end=threading.get_native_id())
    came.set()
    time.sleep(100000)


def serves():
    server = socket.create_server(("127.0.0.1", 0))
    told.update(state="input", end=threading.get_native_id())
    came.set()
    server.accept()


def works():
    told.update(state="moves", end=threading.get_native_id())
    came.set()
    total, step = 0, 0
    while True:
        step += 1
        for i in range(2000):
            total += i * step % 7


def asks_a_child():
    ready, says = os.pipe()
    child = os.fork()
    if not child:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        os.write(says, b"x")
        time.sleep(100000)
    os.read(ready, 1)
    pids.append(child)
    told.update(state="sleeps", end=child)
    came.set()
    os.waitpid(child, 0)


ENDS = (sleeps, serves, works, asks_a_child)


def by_lock(make):
    def link(then):
        lock, has = make(), threading.Event()

        def hold():
            with lock:
                has.set()
                then()

        keep.append(threading.Thread(target=hold, daemon=True))
        keep[-1].start()
        has.wait()

        def wait():
            with lock:
                pass

        return wait

    return link


def by_join(then):
    thread = threading.Thread(target=then, daemon=True)
    thread.start()
    return thread.join


def by_product(make, give, take):
    def link(then):
        it, has = make(), threading.Event()

        def giver(it):
            has.set()
            then()
            give(it)

        threading.Thread(target=giver, args=(it,), daemon=True).start()
        has.wait()

        def wait():
            take(it)

        return wait

    return link


def by_future(then):
    pool, has = concurrent.futures.ThreadPoolExecutor(1), threading.Event()
    keep.append(pool)

    def job():
        has.set()
        then()

    future = pool.submit(job)
    has.wait()
    return future.result


LINKS = {
    "lock": by_lock(threading.Lock),
    "rlock": by_lock(threading.RLock),
    "join": by_join,
    "queue": by_product(queue.Queue, lambda q: q.put(1), lambda q: q.get()),
    "event": by_product(threading.Event, threading.Event.set, threading.Event.wait),
    "future": by_future,
}


def main(seed):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    draw = random.Random(seed)
    end = draw.choice(ENDS)
    names = [draw.choice(sorted(LINKS)) for _ in range(draw.randint(1, 5))]

    def noted(inner):
        def then():
            tids.append(threading.get_native_id())
            inner()

        return then

    wait = LINKS[names[-1]](noted(end))
    came.wait()
    for name in reversed(names[:-1]):
        begun, inner = threading.Event(), wait

        def then(begun=begun, inner=inner):
            tids.append(threading.get_native_id())
            begun.set()
            inner()

        wait = LINKS[name](then)
        begun.wait()
    links = [threading.get_native_id(), *reversed(tids)]
    drawn = f"{', '.join(names)}: {end.__name__}"
    print(json.dumps({"pid": os.getpid(), "pids": pids, "links": links, "drawn": drawn, **told}), flush=True)
    wait()


main(int(sys.argv[1]))
