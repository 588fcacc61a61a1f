"""The fifth family of waits of situations.py: programs as people write them, each "at work", "at rest", or hung: "behind a lock"
that a third thread keeps, with a "dead" worker, with a child that is "stopped", or at a "future" that nobody ends.

Each takes (draw, what it does) and gives (kind of truth, what the main thread does then). At rest, all wait for what comes from
outside: a client, a signal, a timer."""

import asyncio
import concurrent.futures
import contextlib
import hashlib
import logging
import logging.handlers
import multiprocessing
import os
import queue
import sched
import signal
import socket
import socketserver
import sys
import tempfile
import threading
import time
import zlib

from situation_parts import children, keep, lock_of_a_third, thread, tids

WORK, REST, LOCK, DEAD, STOPPED, FUTURE = "at work", "at rest", "behind a lock", "dead", "stopped", "future"
FORK = multiprocessing.get_context("fork")
WAITS = {}


def program(*states, needs=""):
    def register(build):
        name = build.__name__.replace("_", " ")
        WAITS[name] = (lambda draw, drawn: ("program", build(draw, drawn)), states)
        if needs:
            NEEDS[name] = needs
        return build

    return register


NEEDS = {}


def step(n=0):
    """Some milliseconds of work."""
    return sum(i * n for i in range(20000))


def over_and_over(draw=None):
    n = 0
    while True:
        n += 1
        step(n)


def listener(backlog=16):
    s = socket.create_server(("127.0.0.1", 0), backlog=backlog)
    keep.append(s)
    return s


def child(function, *args):
    """A fork that does something for ever; it is asked too."""
    pid = os.fork()
    if not pid:
        try:
            function(*args)
        finally:
            os._exit(1)
    children.append(pid)
    return pid


def stop(pid):
    time.sleep(0.1)
    os.kill(pid, signal.SIGSTOP)
    tids["ender"] = pid


def asks(port, pause=0.05):
    """A client that sends a byte and reads one, over and over."""
    with socket.create_connection(("127.0.0.1", port)) as s:
        while True:
            s.sendall(b"x")
            if not s.recv(1):
                return
            time.sleep(pause)


# ---- threads ---------------------------------------------------------------------------------------------------------
@program(WORK, REST, LOCK, DEAD)
def workers_of_a_queue(draw, drawn):
    """Threads take jobs from a queue; the main thread feeds it, or waits until all is done."""
    jobs, lock = queue.Queue(), lock_of_a_third() if drawn == LOCK else threading.Lock()

    def works():
        while True:
            job = jobs.get()
            if drawn == DEAD:
                raise SystemExit
            with lock:
                step(job)
            jobs.task_done()

    for n in range(draw.choice((1, 2, 3))):
        thread("ender" if not n else f"worker {n}", works)
    if drawn == REST:
        s = listener()

        def accepts():
            while True:
                jobs.put(len(s.accept()[0].recv(10)))

        return accepts
    if drawn == WORK:

        def feeds():
            n = 0
            while True:
                jobs.put(n)
                n += 1
                jobs.join()

        return feeds
    for n in range(5):
        jobs.put(n)
    return jobs.join


@program(WORK, REST, LOCK)
def a_threading_server(draw, drawn):
    lock = lock_of_a_third() if drawn == LOCK else threading.Lock()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            while self.request.recv(1):
                with lock:
                    step()
                self.request.sendall(b"y")

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if drawn != REST:
        for _ in range(draw.choice((1, 3))):
            child(asks, server.server_address[1], 0.001)
    return server.serve_forever


@program(WORK, REST, LOCK)
def parked_main(draw, drawn):
    """The main thread waits for a signal; a thread does the work."""
    lock = lock_of_a_third() if drawn == LOCK else threading.Lock()
    s, null = listener(), os.open(os.devnull, os.O_WRONLY)

    def serves():
        if drawn == REST:
            while True:
                s.accept()[0].close()
        n = 0
        while True:
            with lock:
                n += step(n) % 7
            os.write(null, b"x" * 100)

    thread("ender", serves)
    ends = threading.Event()
    if draw.random() < 0.5:
        signal.signal(signal.SIGTERM, lambda *_: ends.set())
        return signal.pause
    return lambda: signal.sigwait({signal.SIGTERM, signal.SIGINT})


@program(WORK, LOCK)
def joined_threads(draw, drawn):
    lock = lock_of_a_third() if drawn == LOCK else threading.Lock()

    def works():
        digest, n = hashlib.sha256(), 0
        while True:
            with lock:
                digest.update(zlib.compress(b"x" * 100000 + str(n).encode()))
                n += 1

    made = [thread("ender" if not n else f"worker {n}", works) for n in range(draw.choice((1, 2)))]
    return lambda: [one.join() for one in made]


@program(WORK, LOCK, DEAD)
def a_pool_of_threads(draw, drawn):
    pool = concurrent.futures.ThreadPoolExecutor(2)
    keep.append(pool)
    lock = lock_of_a_third() if drawn == LOCK else None
    results = queue.Queue()

    def job(n):
        tids["ender"] = threading.get_native_id()
        if lock is not None:
            with lock:
                pass
        if drawn == DEAD:
            raise ValueError("no result is put")
        results.put(step(n))

    if drawn == WORK:

        def maps():
            n = 0
            while True:
                n += 1
                list(pool.map(step, range(8)))

        return maps
    pool.submit(job, 1)
    time.sleep(0.1)
    return results.get


@program(WORK, REST)
def a_timer_of_jobs(draw, drawn):
    """Jobs at set times, by sched: many, or one in a while; between them it only sleeps."""
    every = 0.01 if drawn == WORK else 20
    jobs, out = sched.scheduler(), open(os.devnull, "w")  # noqa: SIM115
    s = listener()

    def tick(n):
        out.write(f"{step(n)}\n")
        out.flush()
        jobs.enter(every, 1, tick, (n + 1,))

    jobs.enter(every, 1, tick, (0,))
    if drawn == WORK:
        return jobs.run
    thread("timer", jobs.run)

    def serves():
        while True:
            s.accept()[0].close()

    return serves


@program(WORK, LOCK)
def a_writer_of_a_file(draw, drawn):
    """Writes what a child gives, in pieces."""
    lock = lock_of_a_third() if drawn == LOCK else threading.Lock()
    reads, writes = os.pipe()

    def gives():
        while True:
            os.write(writes, b"x" * 5000)
            time.sleep(draw.choice((0.02, 0.1)))

    child(gives)
    os.close(writes)
    path = tempfile.mkstemp()[1]

    def saves():
        with open(path, "wb", 0) as file:
            while True:
                piece = os.read(reads, 10000)
                with lock:
                    file.write(piece)
                if file.tell() > 1 << 20:
                    file.seek(0)

    if draw.random() < 0.5:
        return saves
    return thread("ender", saves).join


@program(WORK, REST)
def logged_by_a_thread(draw, drawn):
    records = queue.Queue()
    log = logging.getLogger(f"situation {os.getpid()}")
    log.propagate, log.handlers = False, [logging.handlers.QueueHandler(records)]
    log.setLevel(logging.INFO)
    hears = logging.handlers.QueueListener(records, logging.FileHandler(os.devnull))
    hears.start()
    keep.append(hears)
    s = listener()

    def works():
        n = 0
        while True:
            n += 1
            log.info("%d", step(n))

    def serves():
        while True:
            log.info("%s", s.accept()[1])

    return works if drawn == WORK else serves


@program(WORK, REST, FUTURE)
def rounds_by_the_clock(draw, drawn):
    """The main thread goes round for ever and sleeps in between; a worker has nothing to do, or waits for what nobody sets."""
    jobs, lost = queue.Queue(), threading.Event()
    keep.extend((jobs, lost))
    thread("ender", lost.wait if drawn == FUTURE else lambda: [step(job) for job in iter(jobs.get, None)])
    folder, every = tempfile.mkdtemp(), 5 if drawn == REST else draw.choice((0.05, 0.3))

    def rounds():
        n = 0
        while True:
            time.sleep(every)
            if drawn == REST:
                os.stat(folder)
                continue
            n += 1
            with open(f"{folder}/status", "w") as status:
                status.write(str(n))

    return rounds


@program(REST, LOCK)
def an_event_of_a_handler(draw, drawn):
    """The main thread waits for an event that a method of its own, a signal's handler, sets."""
    ends, jobs = threading.Event(), queue.Queue()
    keep.append(ends)
    lock = lock_of_a_third() if drawn == LOCK else threading.Lock()

    def works():
        while True:
            with lock:
                pass
            step(jobs.get())

    thread("ender", works)
    signal.signal(signal.SIGTERM, lambda *_: ends.set())
    return ends.wait


# ---- event loops -----------------------------------------------------------------------------------------------------
def in_loop(main):
    return lambda draw, drawn: lambda: asyncio.run(main(draw, drawn))


@program(WORK, REST, FUTURE)
def a_server_that_waits_to_be_stopped(draw, drawn):
    """asyncio: `await stop.wait()`, which a signal sets."""

    async def main():
        ends, lost = asyncio.Event(), asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ends.set)

        async def serves(reader, writer):
            while await reader.read(1):
                if drawn == FUTURE:
                    asyncio.current_task().set_name("ender")
                    await lost
                step()
                writer.write(b"y")
                await writer.drain()

        server = await asyncio.start_server(serves, "127.0.0.1", 0)
        keep.append(server)
        if drawn != REST:
            child(asks, server.sockets[0].getsockname()[1], 0.002)
        await ends.wait()

    return lambda: asyncio.run(main())


@program(WORK, REST, FUTURE)
def tasks_and_a_queue(draw, drawn):
    async def main():
        jobs, ends = asyncio.Queue(3), asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, ends.set)

        async def works():
            while True:
                step(await jobs.get())
                if drawn == FUTURE:
                    await asyncio.get_running_loop().create_future()
                await asyncio.sleep(0)
                jobs.task_done()

        async def serves(reader, writer):
            await jobs.put(len(await reader.read(10)))

        keep.extend(asyncio.create_task(works(), name="ender" if not n else None) for n in range(draw.choice((1, 2))))
        keep.append(await asyncio.start_server(serves, "127.0.0.1", 0))
        n = 0
        while drawn != REST:
            n += 1
            await jobs.put(n)
            if drawn == FUTURE and n == 3:
                await jobs.join()
        await ends.wait()

    return lambda: asyncio.run(main())


@program(WORK, LOCK)
def a_loop_and_its_threads(draw, drawn):
    """asyncio.to_thread, gathered."""
    lock = lock_of_a_third() if drawn == LOCK else threading.Lock()

    def works(n):
        with lock:
            for i in range(10):
                step(n * i)
        return n

    async def main():
        n = 0
        while True:
            n += sum(await asyncio.gather(*(asyncio.to_thread(works, i) for i in range(3))))

    return lambda: asyncio.run(main())


@program(WORK, STOPPED)
def a_loop_and_a_program(draw, drawn):
    """asyncio reads what a program of its writes."""
    code = "import time\nn = 0\nwhile True:\n    n += 1\n    print(n, flush=True)\n    time.sleep(0.02)"

    async def main():
        made = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", code, stdout=asyncio.subprocess.PIPE)
        children.append(made.pid)
        n = 0
        while await made.stdout.readline():
            n += 1
            if n == 3 and drawn == STOPPED:
                os.kill(made.pid, signal.SIGSTOP)

    if drawn == STOPPED:
        tids["ender"] = "any"
    return lambda: asyncio.run(main())


@program(WORK, REST)
def callbacks_of_a_loop(draw, drawn):
    """add_reader sets an event that the main task waits for; a child gives, or a FIFO is a control file."""
    folder = tempfile.mkdtemp()
    os.mkfifo(f"{folder}/control")
    reads = os.open(f"{folder}/control", os.O_RDWR | os.O_NONBLOCK)

    def gives():
        while True:
            os.write(reads, b"x")
            time.sleep(0.01)

    if drawn == WORK:
        child(gives)

    async def main():
        event, n = asyncio.Event(), 0
        asyncio.get_running_loop().add_reader(reads, event.set)
        while True:
            await event.wait()
            event.clear()
            with contextlib.suppress(BlockingIOError):
                n += len(os.read(reads, 100))

    return lambda: asyncio.run(main())


def truth(drawn):
    """(hung, right verdicts, culprits by name)"""
    if drawn in (WORK, REST):
        return False, ["busy" if drawn == WORK else "idle"], []
    if drawn == STOPPED:
        tids.update((str(pid), pid) for pid in children)
        return True, ["stopped"], [] if tids.get("ender") == "any" else ["ender", *map(str, children)]
    if drawn == LOCK:
        return True, ["lock-held", "loop-blocked", "starved"], ["third", "ender", "main"]
    return True, ["dead-thread", "starved", "lock-held", "stuck-requests"], ["dead", "ender", "task", "task ender"]
