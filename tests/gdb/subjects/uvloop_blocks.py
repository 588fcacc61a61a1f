"""An event loop of uvloop's, which is not written in Python: short callbacks, and every half second one, `handler`, that keeps
the loop for 0.2 seconds. {"begin", "end"} of each a line, on the monotonic clock."""

import asyncio
import json
import os
import time

import uvloop


async def handler():
    begin = time.monotonic()
    time.sleep(0.2)
    print(json.dumps({"begin": begin, "end": time.monotonic()}), flush=True)


async def ticks():
    while True:
        await asyncio.sleep(0.005)


async def serve():
    print(json.dumps({"pid": os.getpid()}), flush=True)
    running = [asyncio.create_task(ticks())]
    while running:
        await asyncio.sleep(0.5)
        await asyncio.create_task(handler())


uvloop.run(serve())
