"""faults.py SCENARIO: one process that hangs, works or idles in a known way. Says {"pid", "culprits": [tid]} (of another pid:
[pid, tid]), then does it."""

import ctypes
import gc
import json
import logging
import os
import queue
import re
import select
import socket
import sys
import tempfile
import threading
import time

libc, held_libc = ctypes.CDLL(None), ctypes.PyDLL(None)  # the second keeps the GIL
tids = {}
MAIN = threading.get_native_id()


def say(*culprits, pid=None):
    print(json.dumps({"pid": pid or os.getpid(), "culprits": [tids.get(c, c) for c in culprits]}), flush=True)


def start(name, function, *args):
    ready = threading.Event()

    def body():
        tids[name] = threading.get_native_id()
        ready.set()
        function(*args)

    thread = threading.Thread(target=body, name=name, daemon=True)
    thread.start()
    ready.wait()
    return thread


def forever():
    time.sleep(100000)


def holding(lock, then=forever):
    """A thread that has the lock and keeps it."""
    has = threading.Event()

    def hold():
        with lock:
            has.set()
            then()

    start("holder", hold)
    has.wait()


def abba_locks():
    a, b, meet = threading.Lock(), threading.RLock(), threading.Barrier(2)

    def one():
        with a:
            meet.wait()
            with b:
                pass

    start("one", one)
    say("one", MAIN)
    with b:
        meet.wait()
        with a:
            pass


def abba_mutexes():
    a, b, meet = (ctypes.c_uint64 * 6)(), (ctypes.c_uint64 * 6)(), threading.Barrier(2)

    def take(x, y):
        libc.pthread_mutex_lock(x)
        meet.wait()
        libc.pthread_mutex_lock(y)

    start("one", take, a, b)
    start("two", take, b, a)
    say("one", "two")
    forever()


def same_lock_twice():
    lock = threading.Lock()
    say(MAIN)
    with lock:
        with lock:
            pass


def lock_kept():
    lock = threading.Lock()
    holding(lock)
    say("holder")
    with lock:
        pass


def lock_kept_in_recv():
    lock, (near, far) = threading.Lock(), socket.socketpair()
    holding(lock, lambda: near.recv(1))
    say("holder")
    with lock:
        pass
    del far


def lock_kept_through_join():
    lock = threading.RLock()
    holding(lock)

    def want():
        lock.acquire()
        lock.release()

    worker = start("worker", want)
    say("holder")
    worker.join()


def mutex_kept():
    mutex, has = (ctypes.c_uint64 * 6)(), threading.Event()

    def hold():
        libc.pthread_mutex_lock(mutex)
        has.set()
        forever()

    start("holder", hold)
    has.wait()
    say("holder")
    libc.pthread_mutex_lock(mutex)


def logging_lock():
    handler = logging.StreamHandler(open(os.devnull, "w"))
    log = logging.getLogger("engine")
    log.addHandler(handler)
    holding(handler.lock)
    say("holder")
    log.warning("step")


def lock_orphaned_by_fork():
    lock = threading.RLock()
    holding(lock)
    pid = os.fork()
    if not pid:
        lock.acquire()
    say(pid=pid)
    forever()


def import_lock():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "slow_module.py"), "w") as f:
            f.write("import time\ntime.sleep(100000)\n")
        sys.path.insert(0, folder)

        def load():
            __import__("slow_module")

        start("importer", load)
        time.sleep(0.3)
        say("importer")
        import slow_module  # noqa: F401


def gil_kept_asleep():
    start("other", lambda: [time.sleep(0.001) for _ in iter(int, 1)])
    say(MAIN)
    held_libc.sleep(100000)


def gil_kept_at_work():
    start("other", lambda: [time.sleep(0.001) for _ in iter(int, 1)])
    say(MAIN)
    re.match("(a+)+$", "a" * 60 + "b")


def gil_and_mutex():
    """One has a mutex and wants the GIL; another has the GIL and wants the mutex."""
    mutex, has = (ctypes.c_uint64 * 6)(), threading.Event()

    def first():
        libc.pthread_mutex_lock(mutex)
        has.set()
        while True:
            time.sleep(0.001)

    start("first", first)
    has.wait()
    say("first", MAIN)
    held_libc.pthread_mutex_lock(mutex)


def full_queue():
    q = queue.Queue(2)
    q.put(1), q.put(2)

    def consume(q):
        forever()
        q.get()

    start("consumer", consume, q)
    say("consumer")
    q.put(3)


def empty_queue_and_a_stuck_giver():
    q = queue.Queue()

    def give(q):
        forever()
        q.put(1)

    start("giver", give, q)
    say("giver")
    q.get()


def listener():
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    s.listen()
    return s


def idle_queue():
    """A pool that rests, and a queue that another thread fills when a client comes."""
    q, s = queue.Queue(), listener()

    def serve():
        while True:
            s.accept()
            q.put(1)

    start("listener", serve)
    import concurrent.futures

    pool = concurrent.futures.ThreadPoolExecutor(2)
    pool.submit(int).result()
    say()
    q.get()


def idle_select():
    s = listener()
    say()
    while True:
        select.select([s], [], [], 100)


def queue_of_nobody():
    q = queue.Queue()
    say()
    q.get()


def asyncio_locks_crosswise():
    import asyncio

    async def main():
        a, b = asyncio.Lock(), asyncio.Lock()

        async def take(first, second):
            async with first:
                await asyncio.sleep(0.05)
                async with second:
                    pass

        one = asyncio.create_task(take(a, b), name="one")
        two = asyncio.create_task(take(b, a), name="two")
        say("one", "two")
        await asyncio.gather(one, two)

    asyncio.run(main())


def asyncio_lock_held():
    import asyncio

    async def main():
        lock = asyncio.Lock()

        async def hold():
            async with lock:
                await asyncio.get_running_loop().create_future()

        kept = asyncio.create_task(hold(), name="holder")
        await asyncio.sleep(0.01)
        say("holder")
        async with lock:
            pass
        del kept

    asyncio.run(main())


def asyncio_server():
    import asyncio

    async def main():
        async def handle(reader, writer):
            await reader.read()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        say()
        async with server:
            await server.serve_forever()

    asyncio.run(main())


def heartbeat():
    def beat():
        beats = 0
        while True:
            beats += 1
            time.sleep(0.1)

    start("heartbeat", beat)


def answer_beside_a_heartbeat():
    """It waits for a server's answer, and a thread beside it counts."""
    s = listener()
    near = socket.create_connection(s.getsockname())
    far, _ = s.accept()
    s.close()
    heartbeat()
    say()
    near.recv(1)
    del far


def answer_with_a_time_limit():
    s = listener()
    near = socket.create_connection(s.getsockname(), timeout=600)
    far, _ = s.accept()
    s.close()
    say()
    near.recv(1)
    del far


def stop_beside_a_ticker():
    stop, s = threading.Event(), listener()

    def serve():
        while not stop.is_set():
            s.accept()

    def tick():
        beats = 0
        while not stop.wait(0.1):
            beats += 1

    start("ticker", tick)
    start("server", serve)
    say()
    stop.wait()


def full_prefetch_queue():
    q, s = queue.Queue(2), listener()

    def produce():
        while True:
            q.put(1)

    start("producer", produce)
    say()
    while True:
        s.accept()
        q.get()


def giver_has_died():
    q = queue.Queue()

    def give():
        raise SystemExit  # no trace of it is printed

    giver = start("giver", give)
    giver.join()
    say("thread giver")
    q.get()


def works_for_nobody_who_waits():
    """An eviction that removes nothing, and somebody who waits for its end."""
    done, order, data = threading.Event(), {"gone": 1}, {}

    def evict():
        while len(order) > len(data):
            data.pop("gone", None)
        done.set()

    start("evictor", evict)
    say("evictor")
    done.wait()


def buffered_file_kept_over_a_fork():
    """The lock inside an io object of C code is kept by a thread that the fork did not copy."""
    read, write = os.pipe()
    os.set_blocking(write, True)
    file = open(write, "wb", buffering=4096)

    def fill():
        while True:
            file.write(b"x" * 100000)  # until the pipe is full

    start("writer", fill)
    time.sleep(0.5)
    pid = os.fork()
    if not pid:
        file.write(b"y")
    say(pid=pid)
    forever()
    del read


def cycle_beside_a_dead_child():
    if not os.fork():
        os._exit(1)
    abba_locks()


def a_child_at_work():
    """It waits for a child that computes."""
    pid = os.fork()
    if not pid:
        while True:
            pass
    say()
    os.waitpid(pid, 0)


def idle_polling():
    say()
    while True:
        time.sleep(0.02)


def at_work():
    say(MAIN)
    total = 0
    while True:
        for i in range(1000):
            total += i * i % 7


def spinning_in_place():
    flag = threading.Event()
    say(MAIN)
    while not flag._flag:
        pass


def gc_storm():
    keep = [[i] for i in range(300000)]
    say(MAIN)
    while True:
        gc.collect()
    del keep


def slow_but_moving():
    def step(n):
        time.sleep(0.03)
        return sum(i * i for i in range(20000 + n))

    def other_step(n):
        time.sleep(0.02)
        return step(n)

    say()
    n = 0
    while True:
        n += 1
        step(n)
        other_step(n)


def sleeps_for_good():
    say()
    forever()


def nobody_notifies():
    event = threading.Event()
    say()
    event.wait()


def pool_waits_for_itself():
    import concurrent.futures

    pool = concurrent.futures.ThreadPoolExecutor(1)

    def outer():
        return pool.submit(int).result()

    future = pool.submit(outer)
    say()
    future.result()


def pipe_from_a_stuck_process():
    """A child that is to write into a pipe and sleeps for good; both are to be looked at."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        forever()
    os.close(write)
    say(child)
    os.read(read, 1)


def answer_of_a_child():
    """Waits for a child that nobody looks at."""
    import multiprocessing

    context = multiprocessing.get_context("fork")
    q = context.Queue()
    child = context.Process(target=forever, daemon=True)
    child.start()
    say()
    q.get()


def answer_over_a_socket():
    near, far = socket.socketpair()
    say()
    near.recv(1)
    del far


def lock_with_a_time_limit():
    lock = threading.Lock()
    holding(lock)
    say("holder")
    while not lock.acquire(timeout=0.05):
        pass


def asyncio_blocked():
    import asyncio

    async def main():
        asyncio.get_running_loop().create_task(asyncio.sleep(1))
        say(MAIN)
        forever()

    asyncio.run(main())


def semaphore_of_nobody():
    semaphore = threading.Semaphore(0)
    say()
    semaphore.acquire()


def child_with(take):
    """A child process that takes something and keeps it. -> its pid"""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        take()
        os.write(write, b"x")
        forever()
    os.close(write)
    assert os.read(read, 1), "the child could not take it"
    return child


def shared_mutex():
    import mmap

    memory = mmap.mmap(-1, 4096)
    mutex, attributes = ctypes.c_char.from_buffer(memory), (ctypes.c_uint64 * 2)()
    libc.pthread_mutexattr_init(attributes)
    libc.pthread_mutexattr_setpshared(attributes, 1)
    libc.pthread_mutex_init(ctypes.byref(mutex), attributes)
    return ctypes.byref(mutex)


def between_shared_mutex(tell=True):
    mutex = shared_mutex()
    say(*[child_with(lambda: libc.pthread_mutex_lock(mutex))][: 1 if tell else 0])
    libc.pthread_mutex_lock(mutex)


def alone_shared_mutex():
    between_shared_mutex(False)


def between_flock(tell=True):
    import fcntl

    path = os.path.join(tempfile.mkdtemp(), "lock")
    kept = []

    def take():
        kept.append(open(path, "w"))
        fcntl.flock(kept[0], fcntl.LOCK_EX)

    say(*[child_with(take)][: 1 if tell else 0])
    with open(path, "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)


def alone_flock():
    between_flock(False)


def between_posix_lock():
    import fcntl

    kept = open(os.path.join(tempfile.mkdtemp(), "lock"), "w")
    say(child_with(lambda: fcntl.lockf(kept, fcntl.LOCK_EX)))
    fcntl.lockf(kept, fcntl.LOCK_EX)


def lock_of_a_child():
    """-> (multiprocessing's lock, pid of the child that keeps it)"""
    import multiprocessing

    context = multiprocessing.get_context("fork")
    lock, has = context.Lock(), context.Event()

    def hold():
        with lock:
            has.set()
            forever()

    child = context.Process(target=hold, daemon=True)
    child.start()
    has.wait()
    return lock, child.pid


def between_semaphore():
    lock, child = lock_of_a_child()
    say(child)
    with lock:
        pass


def between_file_baton():
    """torch's extension builder waits for a file to go."""
    from torch.utils.file_baton import FileBaton

    path = os.path.join(tempfile.mkdtemp(), "lock")
    kept = []

    def take():
        kept.append(FileBaton(path))
        kept[0].try_acquire()

    say(child_with(take))
    FileBaton(path).wait()


def lock_between_processes():
    lock, _ = lock_of_a_child()
    say()
    lock.acquire()


def waits_for_a_command():
    import subprocess

    say()
    subprocess.run(["sleep", "1000"], check=False)


def lock_used_as_a_signal():
    signal = threading.Lock()
    signal.acquire()
    start("helper", forever)
    say()
    signal.acquire()


def stopped():
    say()
    forever()


dead = stopped

if __name__ == "__main__":
    globals()[sys.argv[1]]()
