"""Programs of one process for foreign_programs.py that sleep for long: some starve who waits for them, some have nothing to
do."""

import asyncio
import itertools
import queue
import signal
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
