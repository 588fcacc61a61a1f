"""Threads that run all the time in frames that come and go: "calls" (functions in one another), "generators", "asyncio" (the main
thread: tasks that call coroutines), "c" (Python called from C). Says {"threads": {name: tid}}, then runs.

The root of each is known by construction: <module> of the main thread, Thread._bootstrap of the others.
"""

import asyncio
import json
import sys
import threading

from nested_calls import key, leaf, outer

sys.setswitchinterval(0.0005)


def calls(n):
    return leaf(n) if n % 3 else calls(n + 1)


def run_calls():
    n = 0
    while True:
        n = calls(n) % 1000


def run_generators():
    while True:
        for n in range(9):
            for _ in outer(n):
                pass


def run_c():
    while True:
        sorted(range(20), key=key)


async def deepest(n):
    await asyncio.sleep(0)
    return leaf(n)


async def middle(n):
    return await deepest(n) + await deepest(n + 1)


async def task():
    while True:
        await middle(1)


async def main():
    ready = {t.name: t.native_id for t in threading.enumerate()}
    print(json.dumps({"threads": ready}), flush=True)
    await asyncio.gather(*(task() for _ in range(3)))


for name in ("calls", "generators", "c"):
    threading.Thread(target=globals()["run_" + name], name=name, daemon=True).start()
asyncio.run(main())
