"""Queues, events, asyncio, sockets and servers that wait for somebody or for nobody: scenarios of faults.py."""

import queue
import select
import socket
import threading

from fault_parts import MAIN, heartbeat, say
from situation_parts import forever, listener, thread, tids


def full_queue():
    q = queue.Queue(2)
    q.put(1), q.put(2)

    def consume(q):
        forever()
        q.get()

    thread("consumer", consume, q)
    say("consumer")
    q.put(3)


def empty_queue_and_a_stuck_giver():
    q = queue.Queue()

    def give(q):
        forever()
        q.put(1)

    thread("giver", give, q)
    say("giver")
    q.get()


def idle_queue():
    """A pool that rests, and a queue that another thread fills when a client comes."""
    q, s = queue.Queue(), listener()

    def serve():
        while True:
            s.accept()
            q.put(1)

    thread("listener", serve)
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


def asyncio_blocked():
    import asyncio

    async def main():
        asyncio.get_running_loop().create_task(asyncio.sleep(1))
        say(MAIN)
        forever()

    asyncio.run(main())


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


def answer_over_a_socket():
    near, far = socket.socketpair()
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

    thread("ticker", tick)
    thread("server", serve)
    say()
    stop.wait()


def full_prefetch_queue():
    q, s = queue.Queue(2), listener()

    def produce():
        while True:
            q.put(1)

    thread("producer", produce)
    say()
    while True:
        s.accept()
        q.get()


def giver_has_died():
    q = queue.Queue()

    def give():
        raise SystemExit  # no trace of it is printed

    giver = thread("giver", give)
    giver.join()
    say("thread giver")
    q.get()


def nobody_notifies():
    event = threading.Event()
    say()
    event.wait()


def pool_waits_for_itself():
    import concurrent.futures

    pool, begun = concurrent.futures.ThreadPoolExecutor(1), threading.Event()

    def outer():
        tids["worker"] = threading.get_native_id()
        begun.set()
        return pool.submit(int).result()

    future = pool.submit(outer)
    begun.wait()
    say("worker")
    future.result()
