"""Programs of one process for foreign_programs.py: locks, the GIL, queues and threads that have ended, a made-up device."""

import asyncio
import concurrent.futures
import ctypes
import hashlib
import itertools
import json
import json.scanner
import logging
import logging.handlers
import os
import queue
import re
import sqlite3
import subprocess
import tempfile
import threading
import time
import types

from foreign_programs import HERE, LATE, begin, nap, program


@program("lock-held")
def logging_handler(say, hung):
    """A thread keeps a handler's lock; the main thread logs."""
    handler = logging.StreamHandler(open(os.devnull, "w"))  # noqa: SIM115
    logging.getLogger().addHandler(handler)

    def keep():
        while True:
            handler.acquire()
            nap(hung)
            handler.release()
            time.sleep(LATE)

    begin(keep)
    say()
    for n in itertools.count():
        logging.error("line %d", n)


@program("lock-held", "lock-cycle")
def sqlite_writer(say, hung):
    """Two connections of one thread to one file, both to write."""
    path = os.path.join(tempfile.mkdtemp(), "db")
    first = sqlite3.connect(path, isolation_level=None)
    first.execute("create table t (n)")
    if hung:
        first.execute("begin exclusive")
    second = sqlite3.connect(path, timeout=1000)
    say()
    for n in itertools.count():
        second.execute("insert into t values (?)", (n,))
        second.commit()


@program("lock-cycle")
def logging_handlers_crosswise(say, hung):
    one, two, meet = logging.StreamHandler(), logging.StreamHandler(), threading.Barrier(2)

    def take(first, second):
        while True:
            with first.lock:
                if hung:
                    meet.wait()
                with second.lock:
                    time.sleep(LATE)

    begin(take, one, two)
    say()
    take(*((two, one) if hung else (one, two)))


@program("lock-cycle")
def transfers_of_a_pool(say, hung):
    """Two of a pool's threads move money between two accounts, each under the locks of both."""
    accounts = [types.SimpleNamespace(lock=threading.RLock(), sum=100) for _ in range(2)]
    meet = threading.Barrier(2)

    def transfer(source, target):
        while True:
            with source.lock:
                if hung:
                    meet.wait()
                with target.lock:
                    source.sum, target.sum = source.sum - 1, target.sum + 1
            time.sleep(LATE)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(transfer, *accounts), pool.submit(transfer, *reversed(accounts))]
        say()
        concurrent.futures.wait(jobs)


@program("lock-held", "lock-cycle")
def queue_in_its_own_mutex(say, hung):
    """What a signal handler that puts into the queue of the code it interrupts does."""
    q = queue.Queue()
    say()
    for n in itertools.count():
        with q.mutex:
            if hung:
                q.put(n)
        q.put(n)
        q.get()


@program("lock-cycle")
def asyncio_locks_crosswise(say, hung):
    async def take(first, second):
        while True:
            async with first:
                await asyncio.sleep(LATE)
                async with second:
                    await asyncio.sleep(LATE)

    async def main():
        one, two = asyncio.Lock(), asyncio.Lock()
        say()
        await asyncio.gather(take(one, two), take(*((two, one) if hung else (one, two))))

    asyncio.run(main())


@program("gil")
def summed_in_c(say, hung):
    """A loop in C that never gives the GIL back."""

    def add():
        time.sleep(0.5)
        while True:
            sum(itertools.repeat(1) if hung else range(1000))
            time.sleep(LATE)

    begin(add)
    say()
    for _ in itertools.count():
        time.sleep(LATE)


@program("gil")
def a_library_that_keeps_the_gil(say, hung):
    """It sleeps in C, without the GIL as ctypes.CDLL calls it, with it as ctypes.PyDLL does."""
    library = (ctypes.PyDLL if hung else ctypes.CDLL)(None)
    q = queue.Queue()

    def call():
        time.sleep(0.5)
        library.sleep(1000)

    threading.Thread(target=call, daemon=True).start()
    say()
    for n in itertools.count():
        q.put(n)
        q.get()
        time.sleep(LATE)


@program("dead-thread")
def pipeline_of_queues(say, hung):
    """The thread that takes the items has died of an error."""
    q = queue.Queue()

    def consume(q):
        while True:
            int(q.get())
            time.sleep(LATE)
            q.task_done()

    threading.excepthook = lambda what: None
    consumer = threading.Thread(target=consume, args=(q,), daemon=True)
    consumer.start()
    if hung:
        q.put("no number")
        consumer.join()
    say()
    while True:
        q.put(1)
        q.join()


@program("dead-thread", "starved")
def queue_listener(say, hung):
    """logging's QueueListener has lost its thread; its queue is full."""
    q = queue.Queue(1)
    listener = logging.handlers.QueueListener(q)
    threading.excepthook = lambda what: None
    listener.handle = lambda record: 1 / 0 if hung else time.sleep(LATE)
    listener.start()
    q.put(logging.makeLogRecord({}))
    if hung:
        listener._thread.join()
    say()
    while True:
        q.put(logging.makeLogRecord({}))


@program("gil", "livelock")
def backtracking(say, hung):
    """A regular expression that backtracks for ever keeps the GIL."""

    def match():
        time.sleep(0.5)
        for n in itertools.count():
            re.match("(a+)+$", "a" * (60 if hung else 12) + f"b{n}")

    _joined(say, match)


@program("livelock")
def future_of_a_loop(say, hung):
    """The pool's thread works without end on what is waited for."""

    def work():
        done = 0
        while True:
            done += not hung

    say()
    concurrent.futures.ThreadPoolExecutor(1).submit(work).result()


@program("livelock")
def progress_in_an_attribute(say, hung):
    """The main thread joins a worker: it counts in its object, or asks for ever whether its object is done."""
    state = types.SimpleNamespace(n=0, done=False)

    def count():
        while not state.done:
            state.n += 1

    def ask():
        while not state.done:
            pass

    _joined(say, ask if hung else count)


@program("livelock")
def progress_in_a_container(say, hung):
    """The same with a list: it grows by calls of C, or stays empty."""
    found = []

    def fill():
        while len(found) < 1 << 40:
            found.append(len(found))

    def ask():
        while not found:
            len(found)

    _joined(say, ask if hung else fill)


@program("livelock")
def progress_in_a_file(say, hung):
    """The same with a file: it is written, or nobody closes it."""
    out = open(os.devnull, "w")  # noqa: SIM115
    closed = []

    def write():
        while not out.closed:
            out.write("x" * 1000)

    def ask():
        while True:
            if closed:
                break

    _joined(say, ask if hung else write)


def _joined(say, work):
    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    say()
    worker.join()


@program("lock-held")
def a_lock_that_all_want(say, hung):
    """Four threads take turns with a lock in calls of C, or one keeps it in a sleep."""
    lock = threading.Lock()

    def take():
        while True:
            with lock:
                sum(range(20000))

    def keep():
        with lock:
            time.sleep(1000)

    for _ in range(3):
        begin(keep if hung else take)
    say()
    take()


@program()
def queens_in_bytecode(say, hung):
    """A search in bytecode beside threads that ask for the GIL all the time: it gives it back when it is asked."""

    def place(row, columns, sums, differences):
        found = 0
        for c in range(9):
            if c not in columns and row + c not in sums and row - c not in differences:
                found += row == 8 or place(row + 1, columns | {c}, sums | {row + c}, differences | {row - c})
        return found

    def ask():
        while True:
            time.sleep(0.001)

    for _ in range(4):
        begin(ask)
    say()
    for _ in itertools.count():
        place(0, frozenset(), frozenset(), frozenset())


@program()
def json_read_in_bytecode(say, hung):
    """A thread decodes JSON with the decoder that is written in Python; the main thread takes what is done."""
    text = json.dumps({f"k{n}": [n, str(n) * 9, None, {"deeper": n / 7}] for n in range(300)})
    decoder = json.JSONDecoder(object_pairs_hook=lambda pairs: sorted(dict(pairs), key=lambda k: len(k)))
    decoder.parse_object, decoder.scan_once = json.decoder.JSONObject, None
    decoder.scan_once = json.scanner.py_make_scanner(decoder)
    turns = queue.Queue()

    def decode():
        while True:
            decoder.decode(text)
            turns.put(1)

    begin(decode)
    say()
    for _ in itertools.count():
        turns.get()


@program("kernel")
def a_step_of_a_device(say, hung):
    """The main thread waits for its device's stream (fake_nccl.c: no GPU is here)."""
    synchronize = _device().cudaStreamSynchronize
    say()
    for _ in itertools.count():
        synchronize(ctypes.c_void_p(0 if hung else 1))


@program("kernel")
def a_loop_that_copies_from_a_device(say, hung):
    """An asyncio program that gets its results in a coroutine (fake_nccl.c: no GPU is here)."""
    library = _device()

    async def copy(n):
        return library.cudaStreamSynchronize(ctypes.c_void_p(2 if hung else 1)) + n

    async def main():
        say()
        for n in itertools.count():
            await copy(n)

    asyncio.run(main())


def _device():
    path = os.path.join(tempfile.mkdtemp(), "libcudart.so.12")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", path, os.path.join(HERE, "fake_nccl.c")], check=True)
    return ctypes.CDLL(path)


@program()
def hashes(say, hung):
    say()
    h = hashlib.sha256()
    for n in iter(int, 1):
        h.update(bytes(100000 + n))
