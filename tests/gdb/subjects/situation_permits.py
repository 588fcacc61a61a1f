"""Waits of situations.py for a permit of a limiter, or a connection of a pool, of which others have all. Each takes (draw,
`drawn`: what those do) and gives (kind of truth, function that waits).

"slow": they give it back in turn; "sleeping"; "nobody": they wait for an event that nobody sets; "behind a task": for a lock that
a third task has."""

import asyncio
import importlib
import os
import tempfile
import threading
import time

from situation_parts import LATE, tids

STATES = ("slow", "sleeping", "nobody", "behind a task")


async def stands(drawn, third):
    if drawn == "sleeping":
        await asyncio.sleep(100000)
    elif drawn == "nobody":
        await asyncio.Event().wait()
    elif drawn == "slow":
        await asyncio.sleep(LATE)
    else:
        async with third:
            pass


async def answers(reader, writer):
    """An HTTP server whose answers never end."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nabc")
    await writer.drain()
    await asyncio.sleep(100000)


async def url():
    server = await asyncio.start_server(answers, "127.0.0.1", 0)
    return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def limiter(count):
    import anyio

    it = anyio.CapacityLimiter(count)
    return lambda: it


async def lock(count):
    import anyio

    it = anyio.Lock()
    return lambda: it


async def httpcore(count):
    import httpcore

    pool, at = httpcore.AsyncConnectionPool(max_connections=count), await url()
    return lambda: pool.stream("GET", at)


async def httpx(count):
    import httpx

    client, at = httpx.AsyncClient(limits=httpx.Limits(max_connections=count), timeout=None, trust_env=False), await url()
    return lambda: client.stream("GET", at)


async def aiohttp(count):
    import aiohttp

    at = await url()
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=count), timeout=aiohttp.ClientTimeout(total=None))
    return lambda: session.get(at)


def tasks(make, most):
    """`make(count)` gives a function that gives an async context manager with a permit."""

    def build(draw, drawn):
        count = draw.randint(1, most)
        importlib.import_module({"limiter": "anyio", "lock": "anyio"}.get(make.__name__, make.__name__))  # takes its time

        async def main():
            third, enter = asyncio.Lock(), await make(count)

            async def has():
                async with third:
                    await asyncio.sleep(100000)

            async def ender():
                while True:
                    async with enter():
                        await stands(drawn, third)
                    await asyncio.sleep(LATE / 4)

            async def waiter():
                n = 0
                while True:
                    async with enter():
                        n += 1
                    await asyncio.sleep(LATE / 4)

            begun = [asyncio.create_task(has(), name="third")] if drawn == "behind a task" else []
            await asyncio.sleep(0)
            begun += [asyncio.create_task(ender(), name="ender") for _ in range(count)]
            await asyncio.sleep(0.3)
            await waiter()
            return begun

        tids["ender"] = "task"
        return "permit", lambda: asyncio.run(main())

    return build


def sqlalchemy(draw, drawn):
    import sqlalchemy as it

    path = os.path.join(tempfile.mkdtemp(), "jobs.db")
    pool = {"poolclass": it.pool.QueuePool, "pool_size": 1, "max_overflow": 0, "pool_timeout": 100000}
    engine, has = it.create_engine(f"sqlite:///{path}", **pool), threading.Event()

    def holds():
        tids["ender"] = threading.get_native_id()
        while True:
            with engine.connect() as connection:
                connection.execute(it.text("select 1"))
                has.set()
                time.sleep(LATE if drawn == "slow" else 100000)
            time.sleep(LATE / 4)

    threading.Thread(target=holds, daemon=True, name="ender").start()
    has.wait()

    def wait():
        n = 0
        while True:
            with engine.connect():
                n += 1
            time.sleep(LATE / 4)

    return "permit", wait


WAITS = {
    "anyio limiter": (tasks(limiter, 3), STATES),
    "anyio lock": (tasks(lock, 1), STATES),
    "httpcore pool": (tasks(httpcore, 3), STATES[1:]),
    "httpx pool": (tasks(httpx, 3), STATES[1:]),
    "aiohttp connector": (tasks(aiohttp, 3), STATES[1:]),
    "sqlalchemy pool": (sqlalchemy, STATES[:2]),
}


def truth(drawn):
    """(hung, right verdicts, culprits by name)"""
    if drawn == "slow":
        return False, ["busy"], []
    return True, ["lock-held", "starved", "lock-cycle", *(["unknown"] if drawn == "nobody" else [])], ["ender"]


def ends(drawn):
    return {"slow": [], "nobody": ["task ender", "ender", "nobody", "unknown", "ring", "several"],
            "behind a task": ["task third", "several"]}.get(drawn, ["task ender", "ender", "sleeps", "several"])  # fmt: skip
