"""A second family of waits for situations.py, of one process: what programs build of the standard library. Each takes (draw,
`drawn`: what the ender does) and gives (kind of truth, function that waits)."""

import concurrent.futures
import contextlib
import fcntl
import importlib
import multiprocessing
import multiprocessing.pool
import os
import queue
import socket
import socketserver
import sqlite3
import sys
import tempfile
import threading
import time

from situation_parts import LATE, keep, listener, stuck, thread, tids

HOUR = 3600
HEALTHY = ("slow", "late", "resting")


def does(drawn, give):
    """What the ender does, as a function; "late": it gives after an hour."""
    if drawn == "slow":

        def turns():
            while True:
                time.sleep(LATE)
                give()

        return turns
    if drawn == "resting":
        server = listener()

        def serves():
            while True:
                server.accept()
                give()

        return serves
    if drawn == "dead":
        return lambda: None
    stands = stuck(drawn) if drawn != "late" else lambda: time.sleep(HOUR)

    def gives():
        stands()
        give()

    return gives


def over_and_over(take):
    """Waits for one gift after the other."""

    def wait():
        n = 0
        while True:
            take()
            n += 1

    return wait


def given(make):
    """`make()` gives (give, take): `give()` in the ender ends one `take()` of the main thread."""

    def build(draw, drawn):
        give, take = make()
        made = thread("ender", does(drawn, give))
        if drawn == "dead":
            made.join()
            keep.extend((made, give))

            def wait_for_dead():
                giver = made
                take()
                return giver

            return "field", wait_for_dead
        return "field", over_and_over(take)

    return build


def barrier():
    it = threading.Barrier(2)
    return it.wait, it.wait


def signal():
    it = threading.Semaphore(0)
    return it.release, it.acquire


class Box:
    """A value under a condition."""

    def __init__(self):
        self.changed, self.ready = threading.Condition(), False

    def fill(self):
        with self.changed:
            self.ready = True
            self.changed.notify_all()

    def take(self):
        with self.changed:
            self.changed.wait_for(lambda: self.ready)
            self.ready = False


def box():
    it = Box()
    return it.fill, it.take


def own_future():
    slot = [concurrent.futures.Future()]

    def give():
        done, slot[0] = slot[0], concurrent.futures.Future()
        done.set_result(1)

    return give, lambda: slot[0].result()


def pipe():
    reads, writes = os.pipe()
    source, sink = os.fdopen(reads, "rb", 0), os.fdopen(writes, "wb", 0)
    return (lambda: sink.write(b"x")), (lambda: source.read(1))


def socket_pair():
    near, far = socket.socketpair()
    return (lambda: far.send(b"x")), (lambda: near.recv(1))


def connection():
    near, far = multiprocessing.Pipe()
    return (lambda: far.send(1)), (lambda: near.recv())


def last_in():
    it = queue.LifoQueue()
    return (lambda: it.put(1)), (lambda: it.get())


def work_of_a_queue(draw, drawn):
    """Its one consumer has the work and does not report its end."""
    it = queue.Queue()
    it.put(1)

    def consume():
        while True:
            it.get()
            stands()
            it.task_done()

    stands = (lambda: time.sleep(LATE)) if drawn == "slow" else does(drawn, bool)
    thread("ender", consume)

    def wait():
        n = 0
        while True:
            it.join()
            it.put(1)
            n += 1

    return "field", wait


# ---- pools -----------------------------------------------------------------------------------------------------------
def job(drawn):
    """Work of a pool's thread, which is the ender."""

    def work(_=0):
        tids["ender"] = threading.get_native_id()
        began.set()
        (time.sleep(LATE) if drawn == "slow" else stands())

    began, stands = threading.Event(), None if drawn == "slow" else does(drawn, bool)
    return work, began


def mapped(draw, drawn):
    pool = concurrent.futures.ThreadPoolExecutor(2)
    work, began = job(drawn)

    def wait():
        n = 0
        while True:
            n += sum(1 for _ in pool.map(work, range(1)))

    if drawn != "slow":
        results = pool.map(work, range(1))
        began.wait()
        return "field", lambda: list(results)
    return "field", wait


def shut_down(draw, drawn):
    pool = concurrent.futures.ThreadPoolExecutor(1)
    work, began = job(drawn)
    pool.submit(work)
    began.wait()
    return "field", pool.shutdown


def job_of_a_job(draw, drawn):
    """A job of one pool waits for a job of another."""
    outer, inner = concurrent.futures.ThreadPoolExecutor(1), concurrent.futures.ThreadPoolExecutor(1)
    work, began = job(drawn)

    def passes_on():
        return inner.submit(work).result()

    if drawn == "slow":
        return "field", over_and_over(lambda: outer.submit(passes_on).result())
    future = outer.submit(passes_on)
    began.wait()
    return "field", future.result


def thread_pool(draw, drawn):
    pool = multiprocessing.pool.ThreadPool(2)
    keep.append(pool)
    work, began = job(drawn)
    if drawn == "slow":
        return "field", over_and_over(lambda: pool.apply(work))
    result = pool.apply_async(work)
    began.wait()
    return "field", result.get


# ---- locks -----------------------------------------------------------------------------------------------------------
def under(enter):
    """`enter(lock)` is a context manager that has the lock; the main thread takes it plainly."""

    def build(draw, drawn):
        lock, has = threading.Lock(), threading.Event()
        stands = None if drawn == "slow" else does(drawn, bool)

        def hold():
            while True:
                with enter(lock):
                    has.set()
                    (time.sleep(LATE / 2) if drawn == "slow" else stands())
                time.sleep(LATE)

        thread("ender", hold)
        has.wait()

        def take():
            with lock:
                pass
            time.sleep(0.01)

        return "field lock", over_and_over(take)

    return build


@contextlib.contextmanager
def guarded(lock):
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def nested(lock):
    with lock:
        yield


@contextlib.contextmanager
def stacked(lock):
    with contextlib.ExitStack() as stack:
        stack.enter_context(lock)
        yield


def on_a_stack(lock):
    stack = contextlib.ExitStack()
    stack.enter_context(lock)
    return stack


class Session:
    """It takes the lock in one method and gives it back in another."""

    def __init__(self, lock):
        self.lock = lock

    def __enter__(self):
        self.lock.acquire()
        return self

    def __exit__(self, *_):
        self.lock.release()


class Readers:
    """A lock for many readers or one writer."""

    def __init__(self):
        self.changed, self.readers = threading.Condition(), 0

    def begin_read(self):
        with self.changed:
            self.readers += 1

    def end_read(self):
        with self.changed:
            self.readers -= 1
            self.changed.notify_all()

    def write(self):
        with self.changed:
            while self.readers:
                self.changed.wait()


def readers(draw, drawn):
    it, has = Readers(), threading.Event()
    stands = None if drawn == "slow" else does(drawn, bool)

    def read():
        while True:
            it.begin_read()
            has.set()
            (time.sleep(LATE / 2) if drawn == "slow" else stands())
            it.end_read()
            time.sleep(LATE)

    thread("ender", read)
    has.wait()

    def write():
        it.write()
        time.sleep(0.01)

    return "field", over_and_over(write)


def file_lock(draw, drawn):
    """Two threads have opened one file."""
    path = os.path.join(tempfile.mkdtemp(), "lock")
    mine, theirs = open(path, "w"), open(path, "w")  # noqa: SIM115
    has = threading.Event()
    stands = None if drawn == "slow" else does(drawn, bool)

    def hold(own):
        while True:
            fcntl.flock(own, fcntl.LOCK_EX)
            has.set()
            (time.sleep(LATE / 2) if drawn == "slow" else stands())
            fcntl.flock(own, fcntl.LOCK_UN)
            time.sleep(LATE)

    thread("ender", hold, theirs)
    has.wait()

    def take():
        fcntl.flock(mine, fcntl.LOCK_EX)
        fcntl.flock(mine, fcntl.LOCK_UN)
        time.sleep(0.01)

    return "field lock", over_and_over(take)


def database(draw, drawn):
    """Two threads write to one database."""
    path, has = os.path.join(tempfile.mkdtemp(), "db"), threading.Event()
    stands = None if drawn == "slow" else does(drawn, bool)

    def opened():
        return sqlite3.connect(path, timeout=HOUR, isolation_level=None, check_same_thread=False)

    opened().execute("create table numbers(n)")

    def hold():
        own = opened()
        while True:
            own.execute("begin immediate")
            has.set()
            (time.sleep(LATE / 2) if drawn == "slow" else stands())
            own.execute("commit")
            time.sleep(LATE)

    mine = opened()
    thread("ender", hold)
    has.wait()
    return "field lock", over_and_over(lambda: mine.execute("insert into numbers values (1)"))


def module(draw, drawn):
    """A module that another thread imports and whose code does not come to its end."""
    folder, name = tempfile.mkdtemp(), f"imported_{os.getpid()}"
    with open(os.path.join(folder, f"{name}.py"), "w") as f:
        f.write("import situation_field\nsituation_field.keep[-1]()\n")
    sys.path.insert(0, folder)
    began, stands = threading.Event(), does(drawn, bool)

    def body():
        began.set()
        stands()

    keep.append(body)
    thread("ender", importlib.import_module, name)
    began.wait()
    return "field lock", lambda: importlib.import_module(name)


# ---- a server of the same process ------------------------------------------------------------------------------------
def server(draw, drawn):
    """The main thread is a client of a server whose handler runs in another thread of the process."""
    stands, asked = None if drawn == "slow" else does(drawn, bool), threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            tids["ender"] = threading.get_native_id()
            asked.set()
            while self.request.recv(1):
                (time.sleep(LATE) if drawn == "slow" else stands())
                self.request.send(b"y")

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    made = Server(("127.0.0.1", 0), Handler)
    thread("server", made.serve_forever)
    near = socket.create_connection(made.server_address)
    asked.wait()

    def ask():
        near.send(b"x")
        near.recv(1)

    return "field", over_and_over(ask)


STUCK = ("sleeping", "receiving", "behind a lock", "spinning", "trying")
GIVEN = ("slow", "late", "resting", "dead", *STUCK)
DOES = ("slow", "late", *STUCK)
JOBS = ("slow", *STUCK)
WAITS = {
    "barrier of threads": (given(barrier), GIVEN),
    "signal": (given(signal), GIVEN),
    "box": (given(box), GIVEN),
    "own future": (given(own_future), GIVEN),
    "pipe in the process": (given(pipe), GIVEN),
    "socket in the process": (given(socket_pair), GIVEN),
    "connection in the process": (given(connection), GIVEN),
    "last in": (given(last_in), GIVEN),
    "work of a queue": (work_of_a_queue, DOES),
    "mapped": (mapped, JOBS),
    "shut down": (shut_down, STUCK),
    "job of a job": (job_of_a_job, JOBS),
    "thread pool": (thread_pool, JOBS),
    "lock by a generator": (under(guarded), DOES),
    "lock by nested with": (under(nested), DOES),
    "lock by a stack in a generator": (under(stacked), DOES),
    "lock by a stack": (under(on_a_stack), DOES),
    "lock by a session": (under(Session), DOES),
    "readers": (readers, DOES),
    "file lock in the process": (file_lock, DOES),
    "database in the process": (database, DOES),
    "module": (module, STUCK),
    "server in the process": (server, DOES),
}
