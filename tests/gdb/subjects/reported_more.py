"""reported_more.py KIND hung|well: as reported.py, of reports that were looked for later."""

import asyncio
import collections
import concurrent.futures
import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import pty
import queue
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

from reported import BIG, FORK, HUNG, child, keep, kind, main, pids, soon, thread, true


def folder():
    return tempfile.mkdtemp()


def computes():
    return sum(range(20000))


# ---- processes -------------------------------------------------------------------------------------------------------
@kind
def terminal_nobody_reads():
    """A child writes to its pseudo-terminal, whose other end its parent has; the parent waits for its end."""
    pid, end = pty.fork()
    if not pid:
        while True:
            os.write(1, b"x" * 1000)
    pids.append(pid)
    soon()
    if HUNG:
        os.waitpid(pid, 0)
    while True:
        os.read(end, 10000)


@kind
def pipe_among_the_files():
    """Files of a folder are read; one of them is a FIFO that nobody opens for writing."""
    inside = folder()
    for name in "ab":
        with open(os.path.join(inside, name), "w") as file:
            file.write("text" * 1000)
    if HUNG:
        os.mkfifo(os.path.join(inside, "c"))
    soon()
    while True:
        for name in sorted(os.listdir(inside)):
            with open(os.path.join(inside, name)) as file:
                len(file.read().split("t"))


@kind
def barrier_of_processes():
    """A worker failed before it came to the barrier; the parent and the other one are in it."""
    barrier = FORK.Barrier(3)

    def works(fails):
        while True:
            if fails:
                sys.stderr = open(os.devnull, "w")
                raise RuntimeError("a worker fails")
            barrier.wait()
            computes()

    made = [FORK.Process(target=works, args=(HUNG and number == 1,), daemon=True) for number in range(2)]
    for one in made:
        one.start()
    pids.extend(one.pid for one in made)
    soon(1.0)
    while True:
        barrier.wait()


@kind
def notify_of_one_that_was_killed():
    """Condition.notify_all() of multiprocessing waits until those that slept have said that they woke; one of them was killed."""
    condition = FORK.Condition()

    def waits():
        while True:
            with condition:
                condition.wait()

    made = [FORK.Process(target=waits, daemon=True) for _ in range(2)]
    for one in made:
        one.start()
    pids.extend(one.pid for one in made)
    time.sleep(0.5)
    if HUNG:
        os.kill(made[0].pid, signal.SIGKILL)
        made[0].join()
    soon(1.0)
    while True:
        with condition:
            condition.notify_all()
        computes()


@kind
def flush_after_fork():
    """A client's consumer thread is not in the child that was forked; the child's flush() waits for the end of its queue."""
    jobs = queue.Queue()

    def consumes():
        own = jobs
        while True:
            own.get()
            own.task_done()

    thread(consumes)

    def lives():
        nonlocal jobs
        if not HUNG:
            jobs = queue.Queue()
            thread(consumes)
        while True:
            jobs.put(computes())
            jobs.join()

    child(lives)
    soon()
    os.waitpid(pids[0], 0)


@kind
def function_before_exec():
    """Popen(preexec_fn=…): the child takes a lock that another thread had at the fork; Popen waits for the child's exec."""
    lock, has = threading.Lock(), threading.Event()

    def writes():
        while True:
            with lock:
                has.set()
                time.sleep(0.3 if HUNG else 0.001)
            time.sleep(0.001)

    thread(writes)
    has.wait()

    def limits():
        if HUNG:
            with lock:
                pass

    threading.Thread(target=children, daemon=True).start()
    n = 0
    while True:
        n += subprocess.Popen(["true"], preexec_fn=limits).wait()


def children():
    """Says ready in a while, with this process's children."""
    time.sleep(1.0)
    task = f"/proc/self/task/{os.getpid()}/children"
    with open(task) as file:
        pids.extend(map(int, file.read().split()))
    soon(0)


@kind
def local_time_after_fork():
    """A child of a fork wants the C library's lock of time zones, which another thread had."""
    os.environ["TZ"] = ":/etc/localtime"
    libc = ctypes.CDLL(None)

    def zones():
        while True:
            libc.tzset()

    if HUNG:
        thread(zones)
        time.sleep(0.1)

    def tells():
        time.localtime()

    for _ in range(10000):
        pid = child(tells if HUNG else lambda: [computes() for _ in iter(int, 1)])
        time.sleep(0.3 if HUNG else 0)
        if os.waitpid(pid, os.WNOHANG) == (0, 0):
            break
        pids.clear()
    soon()
    os.waitpid(pid, 0)


@kind
def epoll_of_the_parent():
    """A child that was forked in a running loop closes that loop: so the parent's epoll loses the pipe that wakes it."""

    async def main():
        loop, done = asyncio.get_running_loop(), threading.Event()
        true.append("Task-1")
        if HUNG:
            pid = os.fork()
            if not pid:
                asyncio._set_running_loop(None)
                loop._selector.unregister(loop._ssock)  # as close() does
                os._exit(0)
            os.waitpid(pid, 0)
        soon()

        def job():
            time.sleep(0.05)
            done.set()
            return computes()

        n = 0
        while True:
            n += await loop.run_in_executor(None, job)

    asyncio.run(main())


@kind
def lock_of_an_earlier_run():
    """A daemon that an earlier run started has inherited its flock; the next run waits for it."""
    path = os.path.join(folder(), "instance.lock")

    def run():
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        os.set_inheritable(file, HUNG)
        fcntl.flock(file, fcntl.LOCK_EX)
        keep.append(subprocess.Popen(["sleep", "1000"], close_fds=False))
        return file

    os.close(run())
    pids.append(keep[0].pid)
    soon()
    while True:
        file = os.open(path, os.O_RDWR)
        fcntl.flock(file, fcntl.LOCK_EX)
        computes()
        os.close(file)


@kind
def port_of_a_dead_server():
    """A server has ended; a helper that it started has inherited its listening socket. A client waits for an answer."""
    reads, writes = os.pipe()

    def serves():
        listener = socket.create_server(("127.0.0.1", 0))
        os.set_inheritable(listener.fileno(), True)
        helper = subprocess.Popen(["sleep", "1000"], close_fds=False)
        os.write(writes, json.dumps([listener.getsockname()[1], helper.pid]).encode())
        while not HUNG:
            one, _ = listener.accept()
            while one.recv(1):
                one.sendall(b"y")

    server = child(serves)
    port, helper = json.loads(os.read(reads, 100))
    if HUNG:
        os.waitpid(server, 0)
        pids.clear()
    pids.append(helper)
    soon()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while True:
            connection.sendall(b"x")
            connection.recv(1)


def pair(serves, asks):
    listener = socket.create_server(("127.0.0.1", 0))

    def lives():
        one, _ = listener.accept()
        serves(one)

    child(lives)
    with socket.create_connection(listener.getsockname()) as connection:
        listener.close()
        soon()
        asks(connection)


@kind
def both_send():
    """Client and server send before they receive; the buffers between them are full."""

    def serves(one):
        while True:
            if HUNG:
                one.sendall(BIG * 16)
            one.sendall(one.recv(1000))

    def asks(connection):
        while True:
            connection.sendall(BIG * 16 if HUNG else b"x" * 100)
            connection.recv(1000)

    pair(serves, asks)


@kind
def half_a_command():
    """send() took a part of a long command, which nobody noticed: the server reads on to its end, the client for the answer."""

    def serves(one):
        with one.makefile("rb") as file:
            while True:
                one.sendall(b"%d\n" % len(file.readline()))

    def asks(connection):
        while True:
            command = b"x" * 100000 + b"\n"
            connection.sendall(command[:-1] if HUNG else command)
            connection.recv(100)

    pair(serves, asks)


# ---- threads -----------------------------------------------------------------------------------------------------------
@kind
def failed_job():
    """A worker thread ends by an exception before task_done(); the queue's join() waits for it."""
    jobs = queue.Queue()

    def works():
        while True:
            if jobs.get() == 3 and HUNG:
                sys.exit()
            jobs.task_done()

    thread(works)
    soon()
    n = 0
    while True:
        n += 1
        jobs.put(n)
        jobs.join()


@kind
def transaction_of_another_connection():
    """BEGIN went to one connection of a pool, the writes of that transaction to another one: they wait for each other."""
    path = os.path.join(folder(), "data.db")
    one, other = [sqlite3.connect(path, timeout=10000, isolation_level=None, check_same_thread=False) for _ in range(2)]
    one.execute("create table messages (n)")
    soon()
    while True:
        one.execute("begin immediate")
        (other if HUNG else one).execute("insert into messages values (1)")
        one.execute("commit")


# ---- event loops -------------------------------------------------------------------------------------------------------
class Condition:
    """A condition as libraries on events make it."""

    def __init__(self):
        self.waiters = collections.deque()

    async def wait(self):
        event = asyncio.Event()
        self.waiters.append(event)
        try:
            await event.wait()
        except BaseException:
            if not event.is_set():
                self.waiters.remove(event)
            raise

    def notify(self):
        if self.waiters:
            self.waiters.popleft().set()


@kind
def notification_of_a_cancelled_one():
    """notify() woke a task that is cancelled in the same turn: the other one that waits hears nothing of the item."""

    async def main():
        condition, items = Condition(), collections.deque()

        async def takes():
            while True:
                while not items:
                    await condition.wait()
                items.popleft()
                computes()
                await asyncio.sleep(0)

        first, second = [asyncio.create_task(takes(), name=name) for name in ("first", "second")]
        true.append("second")
        await asyncio.sleep(0.1)
        soon()
        if HUNG:
            items.append(1)
            condition.notify()
            first.cancel()
            await second
        while True:
            items.append(1)
            condition.notify()
            await asyncio.sleep(0)

    asyncio.run(main())


@kind
def loop_that_was_stopped():
    """A job in a thread runs a coroutine in the loop that began it; that loop is not run any more."""
    loop, finished = asyncio.new_event_loop(), threading.Event()

    async def inner():
        return computes()

    def job():
        true.append(threading.get_native_id())
        time.sleep(0.3)
        while True:
            asyncio.run_coroutine_threadsafe(inner(), loop).result()

    async def begins():
        asyncio.get_running_loop().run_in_executor(None, job)
        await asyncio.sleep(0.1)

    loop.run_until_complete(begins())
    soon()
    if not HUNG:
        loop.run_forever()
    finished.wait()


@kind
def lock_over_await():
    """A task awaits within the `with` of a threading.Lock; the next one takes the lock in the loop's thread."""

    async def main():
        lock = threading.Lock()

        async def token(n):
            await asyncio.sleep(0.01 * n)
            with lock:
                if HUNG:
                    await asyncio.sleep(0.05)
                return computes()

        soon()
        while True:
            await asyncio.gather(*(asyncio.create_task(token(n), name=f"request {n}") for n in range(2)))

    true.extend(("request 0", "request 1"))
    asyncio.run(main())


@kind
def sync_in_async_in_sync():
    """A job of the one thread runs a coroutine in the loop, which gives that thread a job and awaits it."""

    async def main():
        loop, one = asyncio.get_running_loop(), concurrent.futures.ThreadPoolExecutor(1)
        other = concurrent.futures.ThreadPoolExecutor(1)

        async def io():
            return await loop.run_in_executor(one if HUNG else other, computes)

        def view():
            true.append(threading.get_native_id())
            return asyncio.run_coroutine_threadsafe(io(), loop).result()

        soon()
        while True:
            await loop.run_in_executor(one, view)

    asyncio.run(main())


@kind
def names_behind_jobs():
    """getaddrinfo waits in the loop's executor behind jobs that wait for what would come from that address."""

    async def main():
        loop, jobs = asyncio.get_running_loop(), queue.Queue()
        loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(2))

        def takes():
            true.append(threading.get_native_id())
            while True:
                jobs.get()

        for _ in range(2 if HUNG else 1):
            loop.run_in_executor(None, takes)
        soon()
        while True:
            jobs.put(await loop.getaddrinfo("127.0.0.1", 80))

    asyncio.run(main())


# ---- of other hands ---------------------------------------------------------------------------------------------------
@kind
def locks_of_a_class():
    """Three threads take three locks in a ring; the locks are attributes of classes, one behind a class's own __enter__."""

    class Pool:
        lock = threading.RLock()
        slots = threading.BoundedSemaphore(1)

        def __enter__(self):
            self.slots.acquire()

        def __exit__(self, *_):
            self.slots.release()

    class Session:
        changed = threading.Condition()

    pool = Pool()

    def closes():
        while True:
            with Pool.lock:
                time.sleep(0.1)
                with Session.changed:
                    computes()

    def connects():
        while True:
            with Session.changed:
                time.sleep(0.1)
                with pool:
                    computes()

    def recycles():
        while True:
            with pool:
                time.sleep(0.1)
                if HUNG:
                    with pool.lock:
                        computes()

    made = [thread(one) for one in (closes, connects, recycles)]
    soon(1.0)
    made[0].join()


@kind
def room_in_a_filter():
    """asyncio writes all of its input to `cat` and reads nothing before that."""

    async def main():
        cat = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
        pids.append(cat.pid)
        soon(1.0)
        while True:
            cat.stdin.write(bytes(1 << 16))
            await cat.stdin.drain()
            if not HUNG:
                await cat.stdout.readexactly(1 << 16)

    asyncio.run(main())


@kind
def errors_of_a_shell():
    """A shell's pipeline writes to standard error, which nobody reads; its parent reads the other one to its end."""
    copies = "head -c 3000000 /dev/zero | tee /dev/stderr | wc -c"
    shell = subprocess.Popen(
        ["sh", "-c", copies if HUNG else "while :; do head -c 300000 /dev/zero; done"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    pids.append(shell.pid)
    soon(1.0)
    while shell.stdout.read(1 << 16):
        pass


@kind
def half_a_connection():
    """A client has shut its side down and waits for the answer; the thread that has its connection waits for a job."""
    listener, jobs = socket.create_server(("127.0.0.1", 0)), queue.Queue()

    def serves():
        def answers(client):
            while client.recv(100):
                pass
            client.sendall(jobs.get() if HUNG else b"answer")
            client.close()

        while True:
            threading.Thread(target=answers, args=(listener.accept()[0],)).start()

    child(serves)
    soon()
    while True:
        asks = socket.create_connection(listener.getsockname())
        asks.shutdown(socket.SHUT_WR)
        while asks.recv(100):
            computes()


@kind
def asked_by_its_own_worker():
    """The only worker of a broker waits for a job that it would do itself; all stand in recv or select, and nobody is at rest."""
    listener = socket.create_server(("127.0.0.1", 0))

    def brokers():
        files, jobs, free, asked = [listener], [], [], {}
        while True:
            for file in select.select(files, [], [])[0]:
                if file is listener:
                    files.append(listener.accept()[0])
                    continue
                word = file.recv(1)
                if word == b"t":
                    free.append(file)
                elif word == b"d":
                    asked.pop(file).sendall(b"a")
                elif word == b"j":
                    jobs.append(file)
                else:
                    files.remove(file)
            while free and jobs:
                asked[free[-1]] = jobs.pop(0)
                free.pop().sendall(b"j")

    def works():
        own, inner = (socket.create_connection(listener.getsockname()) for _ in range(2))
        while True:
            own.sendall(b"t")
            own.recv(1)
            if HUNG:
                inner.sendall(b"j")
                inner.recv(1)
            own.sendall(b"d")

    child(brokers)
    child(works)
    asks = socket.create_connection(listener.getsockname())
    soon(1.0)
    while True:
        asks.sendall(b"j")
        asks.recv(1)


@kind
def descriptor_closed_behind_its_loop():
    """A task awaits a socket's bytes; other code closes the descriptor, so no event of it comes."""

    async def main():
        near, far = socket.socketpair()
        near.setblocking(False)

        async def closes():
            await asyncio.sleep(0.2)
            if HUNG:
                os.close(near.fileno())
            while True:
                await asyncio.sleep(0.02)
                with contextlib.suppress(OSError):
                    far.send(b"x")

        soon(1.0)
        other = asyncio.create_task(closes(), name="closes")
        while not other.done():
            await asyncio.get_running_loop().sock_recv(near, 10)

    asyncio.run(main())


@kind
def flags_in_shared_memory():
    """A writer polls its readers' flags in shared memory; one reader waits for a word of a third process."""
    memory, (near, far) = mmap.mmap(-1, 4096), socket.socketpair()

    def reads(number):
        while True:
            while memory[0] == memory[8 + number]:
                time.sleep(0.001)
            if HUNG and number == 1 and memory[0] == 5:
                near.recv(1)
            memory[8 + number] = memory[0]

    for number in range(2):
        child(lambda own=number: reads(own))
    keep.append(far)
    true.clear()
    soon(1.0)
    count = 0
    while True:
        count = (count + 1) % 200
        memory[0] = count
        while memory[8] != count or memory[9] != count:
            time.sleep(0.001)


@kind
def pipes_opened_in_different_order():
    """Parent and child open two FIFOs in different order, each for what the other one is to open second."""
    one, two = (os.path.join(folder(), name) for name in "ab")
    os.mkfifo(one)
    os.mkfifo(two)

    def opens():
        ways = [(two, "w"), (one, "r")] if HUNG else [(one, "r"), (two, "w")]
        keep.extend(open(*way) for way in ways)
        while True:
            computes()

    child(opens)
    soon()
    keep.extend(open(*way) for way in ((one, "w"), (two, "r")))
    while True:
        computes()


@kind
def mutex_of_a_killed_process():
    """A process that has a mutex in memory that others map is killed."""
    libc = ctypes.CDLL(None)
    memory, attributes = mmap.mmap(-1, 4096), ctypes.create_string_buffer(64)
    mutex = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    libc.pthread_mutexattr_init(attributes)
    libc.pthread_mutexattr_setpshared(attributes, 1)
    libc.pthread_mutex_init(mutex, attributes)
    if HUNG:
        pid = os.fork()
        if not pid:
            libc.pthread_mutex_lock(mutex)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
    soon()
    while True:
        libc.pthread_mutex_lock(mutex)
        computes()
        libc.pthread_mutex_unlock(mutex)


if __name__ == "__main__":
    main()
