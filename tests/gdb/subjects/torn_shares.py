"""An asyncio server in small: coroutines in one another, callbacks, an asynchronous generator, and rest, beside a thread of
generators and one that Python's C code calls back in. Says what the loop did and when: {"what", "begin", "end"} a line, on the
monotonic clock. -> seconds to live
"""

import asyncio
import json
import os
import sys
import threading
import time

from nested_calls import key, leaf, outer

sys.setswitchinterval(0.0005)


def said(what, begin):
    print(json.dumps({"what": what, "begin": begin, "end": time.monotonic()}), flush=True)


async def deepest(n):
    return leaf(n)


async def middle(n):
    return await deepest(n) + await deepest(n + 1)


async def works(seconds):
    begin = time.monotonic()
    while time.monotonic() < begin + seconds:
        await middle(1)
    said("works", begin)


def called(seconds, over):
    begin = time.monotonic()
    while time.monotonic() < begin + seconds:
        leaf(leaf(1))
    said("called", begin)
    over.set_result(None)


async def each():
    while True:
        yield leaf(1)


async def drains(seconds):
    begin = time.monotonic()
    async for _ in each():
        if time.monotonic() >= begin + seconds:
            break
    said("drains", begin)


async def rest(seconds):
    begin = time.monotonic()
    await asyncio.sleep(seconds)
    said("rest", begin)


async def main():
    print(json.dumps({"pid": os.getpid()}), flush=True)
    over = time.monotonic() + float(sys.argv[1])
    loop = asyncio.get_running_loop()
    while time.monotonic() < over:
        await works(0.05)
        done = loop.create_future()
        loop.call_soon(called, 0.04, done)
        await done
        await rest(0.02)
        await drains(0.05)


def generators():
    while True:
        for n in range(300):
            for _ in outer(n):
                pass
        time.sleep(0.01)


def callbacks():
    while True:
        for _ in range(30):
            sorted(range(20), key=key)
        time.sleep(0.01)


for thread in (generators, callbacks):
    threading.Thread(target=thread, name=thread.__name__, daemon=True).start()
asyncio.run(main())
