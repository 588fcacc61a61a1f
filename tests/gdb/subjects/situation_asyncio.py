"""Waits of situations.py in an event loop, asyncio's own or uvloop's. Each takes (draw, `drawn`: what the ender does) and gives
(kind of truth, function that waits)."""

import asyncio
import concurrent.futures
import socket
import threading
import types

from situation_parts import LATE, SPINNING, keep, stuck, thread, tids
from situation_processes import child, lived


def own(main):
    return asyncio.run(main())


def fast(main):
    import uvloop

    return uvloop.run(main())


async def give_instead(drawn, it, give):
    """What the task does that should give."""
    if drawn == "dead":
        raise ValueError("the giver fails")
    while drawn == "sleeping":
        await asyncio.sleep(100000)
    if drawn == "behind a future":
        await asyncio.get_running_loop().create_future()
    if drawn in SPINNING:
        SPINNING[drawn]()
    while True:
        await asyncio.sleep(LATE)
        give(it)


async def taken(take, it):
    n = 0
    while True:
        await take(it)
        n += 1


def product(make, give, take):
    """`give(it)` in a task of the loop ends one `await take(it)` of the main task."""

    def build(run):
        def wait(draw, drawn):
            async def main():
                it = make()
                if drawn != "nobody":
                    keep.append(asyncio.create_task(give_instead(drawn, it, give), name="ender"))
                await taken(take, it)

            return "task", lambda: run(main)

        return wait

    return build


def by_a_thread(make, give, take):
    """`give(it)` of another thread, through the loop."""

    def build(run):
        def wait(draw, drawn):
            stand, shared, ready = stuck(drawn), [], threading.Event()

            def live(shared):
                ready.wait()
                loop, it = shared
                if stand is not None:
                    stand()
                while True:
                    pause.wait(LATE)
                    loop.call_soon_threadsafe(give, it)

            async def main():
                it = make()
                shared.extend((asyncio.get_running_loop(), it))
                ready.set()
                await taken(take, it)

            pause = threading.Event()
            thread("ender", live, shared)
            return "thread's product", lambda: run(main)

        return wait

    return build


async def cleared(event):
    await event.wait()
    event.clear()


async def met(condition):
    async with condition:
        await condition.wait()


def notify(condition):
    async def one():
        async with condition:
            condition.notify_all()

    keep.append(asyncio.create_task(one()))


def full():
    q = asyncio.Queue(1)
    q.put_nowait(1)
    return q


def take_one(q):
    if not q.empty():
        q.get_nowait()


def in_a_pool(run):
    """A thread of a pool."""

    def wait(draw, drawn):
        stand, pool = stuck(drawn), concurrent.futures.ThreadPoolExecutor(1)
        tids["ender"] = pool.submit(threading.get_native_id).result()

        def work():
            if stand is not None:
                stand()
            threading.Event().wait(LATE)

        async def main():
            n = 0
            while True:
                await asyncio.get_running_loop().run_in_executor(pool, work)
                n += 1

        return "thread's product", lambda: run(main)

    return wait


def stream(run):
    """A connection to another process."""

    def wait(draw, drawn):
        near, far = socket.socketpair()
        child(lived(drawn, lambda: far.send(b"x")))
        far.close()

        async def main():
            reader, writer = await asyncio.open_connection(sock=near)
            keep.append(writer)
            n = 0
            while True:
                await reader.readexactly(1)
                n += 1

        return "child", lambda: run(main)

    return wait


def locks_crosswise(run):
    def wait(draw, drawn):
        async def main():
            a, b = asyncio.Lock(), asyncio.Lock()

            async def one(first, second):
                async with first:
                    await asyncio.sleep(0.05)
                    async with second:
                        pass

            await asyncio.gather(one(a, b), one(b, a))

        return "cycle", lambda: run(main)

    return wait


def lock_held(run):
    def wait(draw, drawn):
        async def main():
            lock = asyncio.Lock()

            async def hold():
                async with lock:
                    await asyncio.get_running_loop().create_future()

            keep.append(asyncio.create_task(hold(), name="holder"))
            await asyncio.sleep(0.01)
            async with lock:
                pass

        return "async lock", lambda: run(main)

    return wait


def blocked(run):
    def wait(draw, drawn):
        stand = stuck(drawn)

        async def main():
            async def other():
                await asyncio.sleep(0.01)

            keep.append(asyncio.create_task(other()))
            await asyncio.sleep(0.05)
            keep.append(asyncio.create_task(other()))
            stand()

        return "loop", lambda: run(main)

    return wait


def server(run):
    def wait(draw, drawn):
        async def main():
            async def handle(reader, writer):
                await reader.read()

            made = await asyncio.start_server(handle, "127.0.0.1", 0)

            async def tick():
                while True:
                    await asyncio.sleep(0.1)

            keep.append(asyncio.create_task(tick()))
            async with made:
                await made.serve_forever()

        return "rest", lambda: run(main)

    return wait


def daemon(run):
    """It waits to be told that it is to end; a task that can reach the same looks after something every hour."""

    def wait(draw, drawn):
        async def main():
            it = types.SimpleNamespace(stop=asyncio.Event(), looked=0)

            async def look(it):
                while True:
                    await asyncio.sleep(3600)
                    it.looked += 1

            keep.append(asyncio.create_task(look(it)))
            await it.stop.wait()

        return "daemon", lambda: run(main)

    return wait


def put_nowait(q):
    q.put_nowait(1)


TASKS = ("slow", "spinning", "trying", "sleeping", "behind a future", "nobody", "dead")
THREADS = ("slow", "sleeping", "receiving", "behind a lock", "spinning", "trying")
KINDS = {
    "event": (product(asyncio.Event, asyncio.Event.set, cleared), TASKS),
    "queue": (product(asyncio.Queue, put_nowait, lambda q: q.get()), TASKS),
    "room": (product(full, take_one, lambda q: q.put(1)), TASKS),
    "condition": (product(asyncio.Condition, notify, met), TASKS),
    "event with a limit": (product(asyncio.Event, asyncio.Event.set, lambda e: asyncio.wait_for(cleared(e), 600)), TASKS),
    "thread's event": (by_a_thread(asyncio.Event, asyncio.Event.set, cleared), THREADS),
    "thread's queue": (by_a_thread(asyncio.Queue, put_nowait, lambda q: q.get()), THREADS),
    "pool": (in_a_pool, THREADS),
    "stream": (stream, ("slow", "sleeping", "spinning")),
    "locks crosswise": (locks_crosswise, ("cycle",)),
    "lock": (lock_held, ("held",)),
    "blocked": (blocked, ("sleeping", "receiving", "spinning", "behind a lock")),
    "server": (server, ("resting",)),
    "daemon": (daemon, ("resting",)),
}
WAITS = {
    f"{loop} {name}": (build(run), states)
    for loop, run in (("asyncio", own), ("uvloop", fast))
    for name, (build, states) in KINDS.items()
}
UVLOOP = tuple(name for name in WAITS if name.startswith("uvloop"))
