"""Waits of situations.py in an event loop. Each takes (draw, `drawn`: what the ender does) and gives (kind of truth, function
that waits)."""

import asyncio
import threading

from situation_parts import LATE, SPINNING, STUCK, forever, keep, thread


def run_async(body):
    return lambda: asyncio.run(body())


async def turn_for(drawn, it, give):
    while True:
        await asyncio.sleep(LATE)
        give(it)


async def stuck_task(it, give, drawn):
    if drawn == "behind a lock":
        await asyncio.get_running_loop().create_future()
    elif drawn == "sleeping":
        await asyncio.sleep(100000)
    give(it)


def async_product(make, give, take):
    def build(draw, drawn):
        async def main():
            it = make()
            if drawn == "slow":
                keep.append(asyncio.create_task(turn_for(drawn, it, give)))
            elif drawn in ("spinning", "trying"):

                async def spin():
                    SPINNING[drawn]()
                    give(it)

                keep.append(asyncio.create_task(spin()))
            elif drawn == "dead":

                async def fail():
                    raise ValueError("the giver fails")

                made = asyncio.create_task(fail())
                keep.append(made)
            n = 0
            while True:
                await take(it)
                n += 1

        return "product", run_async(main)

    return build


def async_locks_crosswise(draw, drawn):
    async def main():
        a, b = asyncio.Lock(), asyncio.Lock()

        async def one(first, second):
            async with first:
                await asyncio.sleep(0.05)
                async with second:
                    pass

        await asyncio.gather(one(a, b), one(b, a))

    return "cycle", run_async(main)


def async_lock_held(draw, drawn):
    async def main():
        lock = asyncio.Lock()

        async def hold():
            async with lock:
                await asyncio.get_running_loop().create_future()

        keep.append(asyncio.create_task(hold(), name="holder"))
        await asyncio.sleep(0.01)
        async with lock:
            pass

    return "async lock", run_async(main)


def async_blocked(draw, drawn):
    lock, has = threading.Lock(), threading.Event()

    def hold():
        with lock:
            has.set()
            forever()

    if drawn == "behind a lock":
        thread("third", hold)
        has.wait()

    async def main():
        async def other():
            await asyncio.sleep(0.01)

        keep.append(asyncio.create_task(other()))
        await asyncio.sleep(0.05)
        keep.append(asyncio.create_task(other()))
        if drawn == "behind a lock":
            with lock:
                pass
        (STUCK.get(drawn) or SPINNING.get(drawn))()

    return "loop", run_async(main)


def async_server(draw, drawn):
    async def main():
        async def handle(reader, writer):
            await reader.read()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)

        async def tick():
            while True:
                await asyncio.sleep(0.1)

        keep.append(asyncio.create_task(tick()))
        async with server:
            await server.serve_forever()

    return "rest", run_async(main)
