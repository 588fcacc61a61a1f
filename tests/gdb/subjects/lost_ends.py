"""lost_ends.py KIND STATE: a main thread or task whose wait ends at a child, at a lock whose holder has ended, or at no one.

KIND: a function below. STATE: "hang", or "well": the child works, the holder lives, a thread of its own gives. Says {"pid",
"end": the pid, or thread id, at which the wait ends} as JSON when all has begun.
"""

import asyncio
import concurrent.futures
import ctypes
import json
import mmap
import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time

KIND, STATE = sys.argv[1:3]
FORK = multiprocessing.get_context("fork")
BLOCKED = "import threading\nlock = threading.Lock()\nlock.acquire()\nprint('up', flush=True)\nlock.acquire()\n"
WORKS = "print('up', flush=True)\nn = 0\nwhile True:\n    n = n * 3 % 7919 + 1\n"
PROGRAM = [sys.executable, "-S", "-c", BLOCKED if STATE == "hang" else WORKS]


def say(end, pid=None):
    print(json.dumps({"pid": pid or os.getpid(), "end": end}), flush=True)


def does():
    if STATE == "hang":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    number = 0
    while True:
        number = number * 3 % 7919 + 1


def forked(function):
    """A child that has called `function` and then does what STATE says."""
    ready = FORK.Event()

    def run():
        function()
        ready.set()
        does()

    made = FORK.Process(target=run, daemon=True)
    made.start()
    ready.wait()
    return made


def dead(function):
    """As `forked`, of a child that was killed after that, where STATE is "hang"."""
    made = forked(function)
    if STATE == "hang":
        made.kill()
        made.join()
    return made


def own_giver(give):
    """Where STATE is "well": a thread that works and would give. -> its id"""
    told, up = [], threading.Event()

    def run():
        told.append(threading.get_native_id())
        up.set()
        does()
        give()

    threading.Thread(target=run, daemon=True).start()
    up.wait()
    return told[0]


# ---- children --------------------------------------------------------------------------------------------------------
def task_waits():
    async def main():
        made = await asyncio.create_subprocess_exec(*PROGRAM, stdout=subprocess.PIPE)
        await made.stdout.readline()
        say(made.pid)
        await made.wait()

    asyncio.run(main())


def task_waits_with_a_limit():
    async def main():
        made = await asyncio.create_subprocess_exec(*PROGRAM, stdout=subprocess.PIPE)
        await made.stdout.readline()
        say(made.pid)
        await asyncio.wait_for(made.wait(), 3600)

    asyncio.run(main())


def waits_with_a_limit():
    made = subprocess.Popen(PROGRAM, stdout=subprocess.PIPE)
    made.stdout.readline()
    say(made.pid)
    made.wait(timeout=3600)


def waits_in_an_executor():
    async def main():
        made = subprocess.Popen(PROGRAM, stdout=subprocess.PIPE)
        made.stdout.readline()
        say(made.pid)
        await asyncio.get_running_loop().run_in_executor(None, os.waitpid, made.pid, 0)

    asyncio.run(main())


def joins_in_turn():
    made = [forked(int)]
    say(made[0].pid)
    while any(one.is_alive() for one in made):
        for one in made:
            one.join(0.05)


def waits_for_all_of_a_pool():
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        told = queue.Queue()

        def run():
            told.put(threading.get_native_id())
            does()

        made = [pool.submit(int), pool.submit(run)]
        say(told.get())
        concurrent.futures.wait(made)


def takes_as_completed():
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        told = queue.Queue()

        def run():
            told.put(threading.get_native_id())
            does()

        made = [pool.submit(run), pool.submit(int)]
        say(told.get())
        for _ in concurrent.futures.as_completed(made):
            pass


# ---- locks of processes ----------------------------------------------------------------------------------------------
def shared_lock():
    lock = FORK.Lock()
    holder = dead(lock.acquire)
    say(holder.pid)
    lock.acquire()


def shared_semaphore():
    semaphore = FORK.Semaphore(1)
    holder = dead(semaphore.acquire)
    say(holder.pid)
    with semaphore:
        pass


def queue_lock():
    """Of two consumers of a queue the one is killed that receives, and has the queue's lock meanwhile."""
    items, out = FORK.Queue(), FORK.SimpleQueue()

    def consume():
        while True:
            out.put(items.get())

    first, second = (FORK.Process(target=consume, daemon=True) for _ in range(2))
    first.start()
    while items._rlock.acquire(block=False):
        items._rlock.release()
        time.sleep(0.01)
    second.start()
    if STATE == "hang":
        first.kill()
        first.join()
    say(first.pid if STATE == "hang" else 0)
    taken = 0
    while True:
        items.put(1)
        taken += out.get()
        time.sleep(0.01)


def shared_mutex():
    libc, memory = ctypes.CDLL(None), mmap.mmap(-1, mmap.PAGESIZE)
    mutex, attributes = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory))), ctypes.create_string_buffer(64)
    libc.pthread_mutexattr_init(attributes)
    libc.pthread_mutexattr_setpshared(attributes, 1)
    libc.pthread_mutex_init(mutex, attributes)
    say(dead(lambda: libc.pthread_mutex_lock(mutex)).pid)
    libc.pthread_mutex_lock(mutex)


def file_lock():
    """The lock is kept by the child of the child that took it, and that has ended."""
    import fcntl

    path = tempfile.NamedTemporaryFile()
    read, write = os.pipe()
    taker = os.fork()
    if not taker:
        own = open(path.name)
        fcntl.flock(own, fcntl.LOCK_EX)
        heir = os.fork()
        if heir:
            os.write(write, str(heir).encode())
            os._exit(0)
        does()
    os.waitpid(taker, 0)
    say(int(os.read(read, 20)))
    fcntl.flock(open(path.name), fcntl.LOCK_EX)


def told_to_end():
    """A main thread that waits to be told to end by a signal: nobody is left, and nobody owes it anything."""
    stop = FORK.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    say(0)
    stop.wait()


# ---- forks -----------------------------------------------------------------------------------------------------------
def put_in_a_fork():
    items = queue.Queue()
    end = forked(lambda: items.put(1)).pid
    say(own_giver(lambda: items.put(1)) if STATE == "well" else end)
    items.get()


def set_in_a_fork():
    event = threading.Event()
    end = forked(int).pid
    say(own_giver(event.set) if STATE == "well" else end)
    event.wait()


def fed_in_the_parent():
    items, read_write = queue.Queue(), os.pipe()

    def feeds():
        while True:
            time.sleep(0.05)
            items.put(1)

    threading.Thread(target=feeds, daemon=True).start()
    child = os.fork()
    if child:
        say(int(os.read(read_write[0], 20)), child)
        while True:
            items.get()
    while not items.empty():
        items.get()
    end = own_giver(lambda: items.put(1)) if STATE == "well" else os.getppid()
    os.write(read_write[1], str(end).encode())
    while True:
        items.get()


globals()[KIND]()
