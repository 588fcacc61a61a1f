"""Programs of one process for foreign_programs.py that sleep for long: some starve who waits for them, some have nothing to
do."""

import asyncio
import ctypes
import hashlib
import itertools
import queue
import signal
import socket
import threading
import time

from foreign_programs import LATE, program


@program("starved")
class FeedThatNaps:
    """A thread of its own fills a queue after a nap; its owner reads that."""

    def __init__(self, say, hung):
        self.items, self.pause = queue.Queue(), 5000 if hung else LATE
        threading.Thread(target=self.feed, daemon=True).start()
        say()
        for _ in itertools.count():
            self.items.get()

    def feed(self):
        while True:
            time.sleep(self.pause)
            self.items.put(1)


@program("starved")
def a_coroutine_that_naps(say, hung):
    async def produce(items):
        for n in itertools.count():
            await asyncio.sleep(5000 if hung else LATE)
            await items.put(n)

    async def consume():
        items = asyncio.Queue()
        made = asyncio.create_task(produce(items))
        say()
        while not made.done():
            await items.get()

    asyncio.run(consume())


@program()
def a_feed_every_few_seconds(say, hung):
    items = queue.Queue()

    def feed():
        while True:
            time.sleep(5)
            items.put(1)

    threading.Thread(target=feed, daemon=True).start()
    say()
    for _ in itertools.count():
        items.get()


@program()
def a_lock_over_slow_work(say, hung):
    lock = threading.Lock()

    def write():
        while True:
            with lock:
                time.sleep(8)
            time.sleep(LATE)

    threading.Thread(target=write, daemon=True).start()
    time.sleep(0.2)
    say()
    for _ in itertools.count():
        lock.acquire()
        lock.release()


@program()
def an_asyncio_lock_over_slow_work(say, hung):
    async def main():
        lock = asyncio.Lock()

        async def one():
            async with lock:
                await asyncio.sleep(8)

        say()
        await asyncio.gather(*(one() for _ in range(100)))

    asyncio.run(main())


@program()
def a_digest_of_much(say, hung):
    """Who is waited for is in one call of C code for long, which Python's variables do not show to get on."""
    items = queue.Queue()

    def digest(items):
        much = bytes(1 << 30)
        say()
        for _ in itertools.count():
            items.put(hashlib.sha256(much).digest())

    threading.Thread(target=digest, args=(items,), daemon=True).start()
    for _ in itertools.count():
        items.get()


class Daemon:
    """A program that runs until it is told to end, and every hour cleans up."""

    def __init__(self, say, event):
        self.say, self.stop, self.cleaned = say, event, 0

    def clean(self):
        self.cleaned += 1

    def hourly(self):
        while True:
            time.sleep(3600)
            self.clean()

    def look_for_its_end(self):
        while not self.stop.is_set():
            self.clean()

    async def hourly_on_a_loop(self):
        while not self.stop.is_set():
            await asyncio.sleep(3600)
            self.clean()

    def run(self, job):
        threading.Thread(target=job, daemon=True).start()
        self.say()
        self.stop.wait()

    async def run_on_a_loop(self):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.stop.set)
        made = asyncio.create_task(self.hourly_on_a_loop())
        self.say()
        await self.stop.wait()
        made.cancel()


@program()
def a_daemon_with_an_hourly_job(say, hung):
    daemon = Daemon(say, threading.Event())
    daemon.run(daemon.hourly)


@program()
def a_daemon_whose_thread_looks_for_its_end(say, hung):
    """It spins, and nothing but a count shows that it goes on."""
    daemon = Daemon(say, threading.Event())
    daemon.run(daemon.look_for_its_end)


@program()
def an_asyncio_daemon_with_an_hourly_job(say, hung):
    async def main():
        await Daemon(say, asyncio.Event()).run_on_a_loop()

    asyncio.run(main())


@program()
def a_server_that_has_loaded(say, hung):
    """A thread has loaded something, and has ended; a signal ends the server."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    loader = threading.Thread(target=int)
    loader.start()
    loader.join()
    say()
    stop.wait()


@program()
def a_program_that_waits_for_ever(say, hung):
    loader = threading.Thread(target=int)
    loader.start()
    loader.join()
    say()
    threading.Event().wait()


@program("starved")
def a_client_that_polls_a_flag(say, hung):
    """Its server's handler looks for the same, over and over: sleeps end by themselves, and move nothing."""

    async def main():
        done = set()

        async def handle(reader, writer):
            while await reader.read(1):
                while hung and not done:
                    await asyncio.sleep(0.05)
                writer.write(b"x")

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        say()
        for _ in itertools.count():
            writer.write(b"x")
            while hung and not done:
                await asyncio.sleep(0.05)
            await reader.readexactly(1)

    asyncio.run(main())


@program("loop-blocked")
def a_server_whose_answers_take_long(say, hung):
    """Each is worked out on the loop: clients wait for a second and more, or for ever."""

    def answer(text):
        end = time.monotonic() + (5000 if hung else 1.3)
        while time.monotonic() < end:
            text = hashlib.sha256(text).digest()
        return text

    async def main():
        async def handle(reader, writer):
            while text := await reader.read(1):
                writer.write(answer(text))
                await asyncio.sleep(0)  # the others' turn

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        clients = [socket.create_connection(server.sockets[0].getsockname()) for _ in range(2)]
        for client in clients:
            client.sendall(b"x" * 1000)
        say()
        await server.serve_forever()

    asyncio.run(main())


@program("gil")
def a_library_that_keeps_the_gil_for_a_second(say, hung):
    """Or for good, where the work has no end."""
    library = ctypes.PyDLL(None)

    def call():
        while True:
            time.sleep(0.05)
            library.usleep(2_000_000_000 if hung else 1_300_000)

    threading.Thread(target=call, daemon=True).start()
    say()
    for _ in itertools.count():
        time.sleep(0.01)
