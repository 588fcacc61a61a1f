"""The second family of waits of situations.py in event loops; as situation_field.py."""

import asyncio
import concurrent.futures
import threading
import time

from situation_field import DOES, HOUR, STUCK, does, over_and_over
from situation_parts import LATE, SPINNING, keep, stuck, thread, tids


async def live(drawn, give):
    """What the task does that is the ender."""
    if drawn == "dead":
        raise ValueError("it fails")
    while drawn == "sleeping":
        await asyncio.sleep(100000)
    if drawn == "behind a future":
        await asyncio.get_running_loop().create_future()
    if drawn == "late":
        await asyncio.sleep(HOUR)
    if drawn in SPINNING:
        SPINNING[drawn]()
    while True:
        await asyncio.sleep(LATE)
        give()


def ender(drawn, give):
    made = asyncio.get_running_loop().create_task(live(drawn, give), name="ender")
    made.add_done_callback(lambda one: one.cancelled() or one.exception())
    keep.append(made)
    return made


def in_loop(main, kind="field task"):
    def build(draw, drawn):
        return kind, lambda: asyncio.run(main(drawn))

    return build


async def future_of_a_loop(drawn):
    slot = [asyncio.get_running_loop().create_future()]

    def give():
        done, slot[0] = slot[0], asyncio.get_running_loop().create_future()
        done.done() or done.set_result(1)

    ender(drawn, give)
    n = 0
    while True:
        await slot[0]
        n += 1


async def gathered(drawn):
    n = 0
    while True:
        if drawn == "slow":
            await asyncio.gather(asyncio.sleep(LATE), asyncio.sleep(0))
        else:
            await asyncio.gather(ender(drawn, bool), asyncio.sleep(0))
        n += 1


async def first_completed(drawn):
    n = 0
    while True:
        if drawn == "slow":
            await asyncio.wait({asyncio.ensure_future(asyncio.sleep(LATE))}, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.wait({ender(drawn, bool)}, return_when=asyncio.FIRST_COMPLETED)
        n += 1


async def shielded(drawn):
    n = 0
    while True:
        await asyncio.shield(asyncio.ensure_future(asyncio.sleep(LATE)) if drawn == "slow" else ender(drawn, bool))
        n += 1


async def work_of_a_queue(drawn):
    it = asyncio.Queue()
    it.put_nowait(1)

    def give():
        if not it.empty():
            it.get_nowait()
            it.task_done()

    ender(drawn, give)
    n = 0
    while True:
        await it.join()
        it.put_nowait(1)
        n += 1


async def slots(drawn):
    """A semaphore whose one slot the ender has."""
    it = asyncio.Semaphore(1)

    async def hold():
        while True:
            async with it:
                if drawn == "slow":
                    await asyncio.sleep(LATE / 2)
                else:
                    await live(drawn, bool)
            await asyncio.sleep(LATE)

    keep.append(asyncio.get_running_loop().create_task(hold(), name="ender"))
    await asyncio.sleep(0)
    n = 0
    while True:
        async with it:
            n += 1
        await asyncio.sleep(0.01)


async def generated(drawn):
    """An asynchronous generator that waits for an event."""
    event = asyncio.Event()

    async def items():
        while True:
            await event.wait()
            event.clear()
            yield 1

    ender(drawn, event.set)
    n = 0
    async for one in items():
        n += one


async def stream(drawn):
    """A client and its server in one loop."""

    async def serve(reader, writer):
        asyncio.current_task().set_name("ender")
        keep.append(writer)
        await live(drawn, lambda: writer.write(b"x"))

    made = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*made.sockets[0].getsockname()[:2])
    keep.extend((made, writer))
    n = 0
    while True:
        await reader.readexactly(1)
        n += 1


async def asked_of(drawn, stand, executor):
    n = 0
    while True:
        await asyncio.get_running_loop().run_in_executor(executor, stand)
        n += 1


def a_pool_beside(draw, drawn):
    """A task waits for a job of one pool; the threads of another are at work too."""
    mine, other = concurrent.futures.ThreadPoolExecutor(1), concurrent.futures.ThreadPoolExecutor(2)
    keep.extend((mine, other))
    stand = (lambda: time.sleep(LATE)) if drawn == "slow" else does(drawn, bool)
    tids["ender"] = mine.submit(threading.get_native_id).result()
    quiet = threading.Event()
    for _ in range(2):
        other.submit(quiet.wait, HOUR)
    return "field", lambda: asyncio.run(asked_of(drawn, stand, mine))


def asked_of_a_loop(draw, drawn):
    """The main thread waits for a coroutine of a loop that another thread runs."""
    ready, held = threading.Event(), []

    def run():
        async def main():
            held.append(asyncio.get_running_loop())
            ready.set()
            await asyncio.Event().wait()

        asyncio.run(main())

    async def answer():
        asyncio.current_task().set_name("ender")
        if drawn == "slow":
            return await asyncio.sleep(LATE)
        return await live(drawn, bool)

    thread("ender", run)
    ready.wait()
    return "field asked", over_and_over(lambda: asyncio.run_coroutine_threadsafe(answer(), held[0]).result())


def behind_a_blocked_loop(draw, drawn):
    """The same; a callback of that loop stands."""
    ready, held, stand = threading.Event(), [], stuck(drawn)

    def run():
        async def main():
            held.append(asyncio.get_running_loop())
            held[0].call_later(0.1, stand)
            ready.set()
            await asyncio.Event().wait()

        asyncio.run(main())

    thread("ender", run)
    ready.wait()
    time.sleep(0.2)
    return "field blocked", lambda: asyncio.run_coroutine_threadsafe(asyncio.sleep(0), held[0]).result()


TASKS = ("slow", "late", "sleeping", "behind a future", "spinning", "trying", "dead")
WAITS = {
    "future of a loop": (in_loop(future_of_a_loop), TASKS),
    "gathered": (in_loop(gathered), TASKS[:-1]),
    "first completed": (in_loop(first_completed), TASKS[:-1]),
    "shielded": (in_loop(shielded), TASKS[:-1]),
    "work of a loop's queue": (in_loop(work_of_a_queue), TASKS),
    "slots": (in_loop(slots, "field task lock"), TASKS[:-1]),
    "generated": (in_loop(generated), TASKS),
    "stream of a loop": (in_loop(stream), TASKS[:-1]),
    "pool beside": (a_pool_beside, DOES),
    "asked of a loop": (asked_of_a_loop, TASKS[:-1]),
    "behind a blocked loop": (behind_a_blocked_loop, STUCK),
}
