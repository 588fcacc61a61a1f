"""closed_waits.py SEED: threads and tasks that wait for what only they could give each other, by a drawn way out or by none.
Says {"pid", "ways": who else could end a wait ("" for nobody), "drawn": what waits} as JSON once all of them wait."""

import asyncio
import json
import multiprocessing
import os
import queue
import random
import signal
import socket
import sys
import threading
import time

from situation_parts import met, notify

keep = []


def started(function, *args):
    made = threading.Thread(target=function, args=args, daemon=True)
    made.start()
    keep.append(made)
    return made


# ---- waits: each makes one that only a thread of this process ends ---------------------------------------------------------
def of_a_queue(wake):
    items = queue.Queue()
    wake.append(lambda: items.put(1))
    return lambda: items.get()


def of_a_full_queue(wake):
    items = queue.Queue(1)
    items.put(1)
    wake.append(lambda: items.get())
    return lambda: items.put(2)


def of_an_event(wake):
    event = threading.Event()
    wake.append(event.set)
    return lambda: event.wait()


def of_a_condition(wake):
    condition = threading.Condition()
    wake.append(lambda: notify(condition))
    return lambda: met(condition)


def of_a_barrier(wake):
    barrier = threading.Barrier(9)
    wake.append(barrier.abort)
    return lambda: barrier.wait()


def of_a_semaphore(wake):
    semaphore = threading.Semaphore(0)
    wake.append(semaphore.release)
    return lambda: semaphore.acquire()


def of_the_end_of_another(wake):
    inner = of_a_queue(wake)
    other = started(lambda: inner())
    return lambda: other.join()


def in_a_loop(wake):
    def run():
        async def main():
            items = asyncio.Queue()
            keep.append(items)
            done = asyncio.get_running_loop().create_task(items.get(), name="inner")
            await done

        asyncio.run(main())

    return run


WAITS = [
    *(of_a_queue, of_a_full_queue, of_an_event, of_a_condition),
    *(of_a_barrier, of_a_semaphore, of_the_end_of_another, in_a_loop),
]


# ---- ways out: each is somebody who might end one of them --------------------------------------------------------------------
def sleeper(wake):
    def run():
        time.sleep(1000)
        wake[0]()

    started(run)


def server(wake):
    listener = socket.create_server(("127.0.0.1", 0))

    def run():
        while True:
            listener.accept()
            wake[0]()

    started(run)


def handler(wake):
    signal.signal(signal.SIGUSR1, lambda *_: wake[0]())


def timed(wake):
    idle = threading.Event()

    def run():
        while True:
            if idle.wait(500):
                wake[0]()

    started(run)


def timer(wake):
    def run():
        async def main():
            asyncio.get_running_loop().call_later(1000, lambda: wake[0]())
            await asyncio.Event().wait()

        asyncio.run(main())

    started(run)


def from_a_child(wake):
    items = multiprocessing.get_context("fork").Queue()

    def child():
        time.sleep(1000)
        items.put(1)

    multiprocessing.get_context("fork").Process(target=child, daemon=True).start()

    def run():
        items.get()
        wake[0]()

    started(run)


def barrier_with_a_child(wake):
    fork = multiprocessing.get_context("fork")
    barrier = fork.Barrier(2)

    def child():
        time.sleep(1000)
        barrier.wait()

    fork.Process(target=child, daemon=True).start()

    def run():
        barrier.wait()
        wake[0]()

    started(run)


def pipe_of_the_parent(wake):
    def run():
        sys.stdin.buffer.read(1)
        wake[0]()

    started(run)


def socket_in_a_loop(wake):
    def run():
        async def main():
            async def serve(reader, writer):
                wake[0]()

            found = await asyncio.start_server(serve, "127.0.0.1", 0)
            await found.serve_forever()

        asyncio.run(main())

    started(run)


FORKS = [from_a_child, barrier_with_a_child]
WAYS = [sleeper, server, handler, timed, timer, pipe_of_the_parent, socket_in_a_loop, *FORKS]


def main():
    draw = random.Random(int(sys.argv[1]))
    way = draw.choice(WAYS) if draw.random() < 0.5 else None
    chosen, wake = [draw.choice(WAITS) for _ in range(draw.randint(1, 4))], [lambda: None]
    if way in FORKS:
        way(wake)  # before there are threads
    waits = [make(wake) for make in chosen]
    wake[:] = wake[1:] or wake
    for wait in waits[1:]:
        started(lambda wait=wait: wait())
    if way is not None and way not in FORKS:
        way(wake)
    said = {"pid": os.getpid(), "way": way.__name__ if way else "", "drawn": [make.__name__ for make in chosen]}
    print(json.dumps(said), flush=True)
    waits[0]()


main()
