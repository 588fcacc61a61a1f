"""takes_turns.py KIND: several that take turns under one lock. Well: who has it waits for work in the place of all. Hung: it
does not. Says {"pids", "culprits": [tid or pid], "right": [verdicts]}, then stays; the verdicts of the well ones are none that
accuse."""

import asyncio
import concurrent.futures
import ctypes
import json
import multiprocessing
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

SERVER = r"""
#include <pthread.h>
#include <sys/socket.h>
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int listener;
__attribute__((noinline)) static int next_request(void) {
    pthread_mutex_lock(&turn);
    int fd = accept(listener, 0, 0);
    pthread_mutex_unlock(&turn);
    return fd;
}
static void *serve(void *arg) { while (next_request() >= 0); return arg; }
void start(int fd) { listener = fd; pthread_t t; for (int i = 0; i < 3; i++) pthread_create(&t, 0, serve, 0); }
"""


def say(pids, culprits=(), right=()):
    print(json.dumps({"pids": list(pids), "culprits": list(culprits), "right": list(right)}), flush=True)


def started(target, *args):
    found = threading.Thread(target=target, args=args, daemon=True)
    found.start()
    return found


def children(target, *args):
    found = [multiprocessing.Process(target=target, args=args, daemon=True) for _ in range(3)]
    for one in found:
        one.start()
    return [one.pid for one in found]


def rest(*pids):
    say([os.getpid(), *pids])
    time.sleep(7200)


def pool():
    with multiprocessing.Pool(3) as found:
        found.map(abs, range(9))
        rest(*[p.pid for p in found._pool])


def executor():
    with concurrent.futures.ProcessPoolExecutor(3) as found:
        list(found.map(abs, range(9)))
        rest(*found._processes)


def take_all(from_queue):
    while True:
        from_queue.get()


def mpqueue():
    rest(*children(take_all, multiprocessing.Queue()))


def simplequeue():
    rest(*children(take_all, multiprocessing.SimpleQueue()))


def joinable():
    rest(*children(take_all, multiprocessing.JoinableQueue()))


def accept_all(lock, listener):
    while True:
        with lock:
            connection, _ = listener.accept()
        connection.close()


def accept():
    lock, listener = threading.Lock(), socket.create_server(("127.0.0.1", 0))
    for _ in range(4):
        started(accept_all, lock, listener)
    rest()


def prefork():
    rest(*children(accept_all, multiprocessing.Lock(), socket.create_server(("127.0.0.1", 0))))


def take_locked(lock, from_queue):
    while True:
        lock.acquire()
        try:
            from_queue.get()
        finally:
            lock.release()


def locked_queue():
    lock, jobs = threading.Lock(), queue.Queue()
    for _ in range(3):
        started(take_locked, lock, jobs)
    say([os.getpid()])
    for line in sys.stdin:  # the giver waits for input
        jobs.put(line)


def native():
    path = os.path.join(tempfile.mkdtemp(), "server.so")  # stays: its symbols are read
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-xc", "-o", path, "-", "-lpthread"], input=SERVER.encode(), check=True)
    listener = socket.create_server(("127.0.0.1", 0))
    ctypes.CDLL(path).start(listener.fileno())
    rest()


async def _accepts(lock, listener):
    while True:
        async with lock:
            await asyncio.get_running_loop().sock_accept(listener)


async def _accepting():
    lock, listener = asyncio.Lock(), socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    tasks = [asyncio.ensure_future(_accepts(lock, listener)) for _ in range(3)]
    say([os.getpid()])
    await asyncio.gather(*tasks)


def tasks():
    asyncio.run(_accepting())


# ---- hung ------------------------------------------------------------------------------------------------------------
def _naps(lock, tids):
    with lock:
        tids.append(threading.get_native_id())
        time.sleep(7200)


def keeps():
    """The same place, but who has the lock sleeps."""
    lock, tids = threading.Lock(), []
    for _ in range(3):
        started(_naps, lock, tids)
    time.sleep(0.5)
    say([os.getpid()], tids, ["lock-held"])
    _naps(lock, tids)


def _accepts_once(lock, listener, tids):
    with lock:
        tids.append(threading.get_native_id())
        listener.accept()


def wanted_elsewhere():
    """Who has the lock waits for work; somebody else wants the lock for something else."""
    lock, listener, tids = threading.Lock(), socket.create_server(("127.0.0.1", 0)), []
    started(_accepts_once, lock, listener, tids)
    time.sleep(0.5)
    say([os.getpid()], tids, ["lock-held"])
    lock.acquire()


def _sleeps_with(from_queue, said):
    with from_queue._rlock:
        said.send(os.getpid())
        time.sleep(7200)


def queue_kept():
    """A consumer sleeps with the queue's own lock."""
    jobs = multiprocessing.Queue()
    reader, writer = multiprocessing.Pipe(False)
    keeper = multiprocessing.Process(target=_sleeps_with, args=(jobs, writer), daemon=True)
    keeper.start()
    pid = reader.recv()
    others = children(take_all, jobs)
    time.sleep(0.5)
    say([os.getpid(), pid, *others], [pid], ["lock-held"])
    time.sleep(7200)


def _asks(lock, mine, tids):
    with lock:
        tids.append(threading.get_native_id())
        mine.send("?")
        mine.recv()


def shared_connection():
    """A question to a child that sleeps: it owes the answer."""
    lock, tids = threading.Lock(), []
    mine, others = multiprocessing.Pipe()
    child = multiprocessing.Process(target=_never_answers, args=(others, mine), daemon=True)
    child.start()
    others.close()
    for _ in range(2):
        started(_asks, lock, mine, tids)
    time.sleep(0.5)
    say([os.getpid(), child.pid], [child.pid, *tids], ["lock-held", "starved"])
    _asks(lock, mine, tids)


def _never_answers(others, mine):
    mine.close()
    others.recv()
    while True:
        time.sleep(7200)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(multiprocessing, "set_start_method"):
        multiprocessing.set_start_method("fork")
    globals()[sys.argv[1]]()
