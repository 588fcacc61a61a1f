"""An asyncio loop that a callback blocks, with callbacks ready and timers set; it tells what the loop itself has: {"loop", "ready",
"scheduled", "ran": how many of its callbacks have begun, "current": "block" or "task", "holders": {address of a lock: [task
names]}}. Then it sleeps inside the callback.

Argument: "callback" or "task": what blocks the loop.
"""

import asyncio
import json
import sys
import time
from asyncio.events import Handle

RAN, RUN = [], Handle._run


def run(handle):
    RAN.append(handle)
    return RUN(handle)


Handle._run = run


def later():
    pass


def sooner(text):
    pass


async def holds(lock, event):
    async with lock:
        await event.wait()


async def waits(lock):
    async with lock:
        pass


async def gets(queue):
    await queue.get()


def block(loop, told):
    told["ready"], told["scheduled"] = len(loop._ready), len(loop._scheduled)
    told["ran"] = len(RAN)
    print(json.dumps(told), flush=True)
    time.sleep(3600)


async def blocks(loop, told):
    loop.call_soon(sooner, "b")
    block(loop, told)


async def main():
    loop = asyncio.get_running_loop()
    lock, event, queue = asyncio.Lock(), asyncio.Event(), asyncio.Queue(3)
    names = {"holds": holds(lock, event), "waits": waits(lock), "waits too": waits(lock), "gets": gets(queue)}
    tasks = {name: asyncio.ensure_future(coroutine) for name, coroutine in names.items()}
    for name, task in tasks.items():
        task.set_name(name)
    await asyncio.sleep(0.05)
    for n in range(5):
        loop.call_later(1000 + n, later)
    told = {
        "loop": id(loop),
        "holders": {id(lock): ["holds"]},
    }
    if sys.argv[1] == "callback":
        told["current"] = "block"
        loop.call_soon(block, loop, told)
        loop.call_soon(sooner, "a")
        loop.call_soon(later)
    else:
        told["current"] = "task"
        told["kept"] = str(asyncio.ensure_future(blocks(loop, told)))
    await asyncio.sleep(3600)


asyncio.run(main())
