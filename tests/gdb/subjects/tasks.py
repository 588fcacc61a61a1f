"""A subject: asyncio tasks in every kind of wait. Says what asyncio itself tells of each: name, await chain, what it is suspended
in.

tasks.py [uvloop] [python] [running] [ring]   uvloop: that event loop; python: tasks of pure Python; running: a task stays on it
"""

import asyncio
import inspect
import json
import os
import sys
import threading
import time
import types

if "python" in sys.argv:
    asyncio.Task = asyncio.tasks.Task = asyncio.tasks._CTask = asyncio.tasks._PyTask
    asyncio.Future = asyncio.futures.Future = asyncio.futures._CFuture = asyncio.futures._PyFuture
    for name in ("all_tasks", "current_task"):  # from 3.14 on those written in C know none of the others
        written = getattr(asyncio.tasks, "_py_" + name, getattr(asyncio.tasks, name))
        setattr(asyncio, name, written)
        setattr(asyncio.tasks, name, written)


def chain(coroutine):
    """[[name, file, line]] outermost first, as cr_frame and cr_await tell."""
    found = []
    while coroutine is not None:
        for kind in ("cr", "gi", "ag"):
            if hasattr(coroutine, kind + "_frame"):
                frame = getattr(coroutine, kind + "_frame")
                if frame is None:
                    return found
                found.append([frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno])
                coroutine = getattr(coroutine, {"cr": "cr_await", "gi": "gi_yieldfrom", "ag": "ag_await"}[kind])
                break
        else:
            through = THROUGH.get(id(coroutine))
            if through is None and type(coroutine).__name__ in ("coroutine_wrapper", "async_generator_asend", "anext_awaitable"):
                import gc

                inner = [o for o in gc.get_referents(coroutine) if inspect.iscoroutine(o) or inspect.isasyncgen(o)]
                through = inner[0] if inner else None
            coroutine = through
    return found


THROUGH = {}


async def layered(wait, depth=3):
    if depth:
        return await layered(wait, depth - 1)
    return await wait()


@types.coroutine
def old_style(future):
    return (yield from future)


class Awaitable:
    def __init__(self, future):
        self.future = future

    def __await__(self):
        return (yield from self.future.__await__())


async def numbers(future):
    yield 1
    await future
    yield 2


async def over_generator(future):
    async for _ in numbers(future):
        pass


async def own_anext(future):
    each = numbers(future)
    await each.__anext__()
    await each.__anext__()


async def in_except(future):
    try:
        raise ValueError("held while waiting")
    except ValueError:
        await future


async def with_lock(lock):
    async with lock:
        pass


async def timed(queue):
    await asyncio.wait_for(queue.get(), 1000)


async def finish():
    return 1


async def stuck(said):
    for line in said:
        print(line, flush=True)
    time.sleep(2000)  # stays on the thread's stack


async def ring(others, mine):
    await asyncio.sleep(0)
    await others[mine]


async def on_condition(condition):
    async with condition:
        await condition.wait()


def task(name, coroutine):
    found = asyncio.get_running_loop().create_task(coroutine)
    found.set_name(name)
    return found


RING = {}  # asyncio knows its tasks by weak references only


def start_ring():
    """Three tasks that wait for each other."""
    others = RING
    others.update(a=task("ring a", ring(others, "b")), b=task("ring b", ring(others, "c")), c=task("ring c", ring(others, "a")))


def told_of(busy):
    """{name: what asyncio tells of the task}, of all but this one and `busy`."""
    told = {}
    for each in asyncio.all_tasks():
        if each is not asyncio.current_task() and each is not busy:
            waiter = each._fut_waiter if hasattr(each, "_fut_waiter") else None
            told[each.get_name()] = {
                "address": id(each),
                "chain": chain(each.get_coro()),
                "stack": [f.f_lineno for f in each.get_stack()],
                "waiter": None if waiter is None else [id(waiter), type(waiter).__name__],
            }
    return told


async def main():
    loop = asyncio.get_running_loop()
    future, lock, queue, event = loop.create_future(), asyncio.Lock(), asyncio.Queue(), asyncio.Event()
    await lock.acquire()
    condition, semaphore = asyncio.Condition(), asyncio.Semaphore(0)
    connections = []  # held, so that none is closed
    server = await asyncio.start_server(lambda *both: connections.append(both), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])

    slow = task("slow", layered(lambda: asyncio.sleep(2000)))
    kept = [
        slow,
        task("event", layered(event.wait)),
        task("queue", layered(queue.get, 0)),
        task("lock", with_lock(lock)),
        task("condition", on_condition(condition)),
        task("semaphore", layered(semaphore.acquire, 1)),
        task("future", layered(lambda: wait_on(future))),
        task("sleep", asyncio.sleep(3600)),
        task("on task", wait_on(slow)),
        task("gather", wait_many(slow)),
        task("wait", wait_first(slow)),
        task("shield", shielded(slow)),
        task("executor", pool(loop)),
        task("timed", timed(queue)),
        task("reader", reader.readline()),
        task("old", layered(lambda: old_style(future))),
        task("awaitable", layered(lambda: wait_on(Awaitable(future)))),
        task("async for", over_generator(future)),
        task("anext", own_anext(future)),
        task("in except", in_except(future)),
        task("deep", layered(lambda: wait_on(future), 60)),
        task("Ünïcode ☃", wait_on(future)),
    ]
    done = task("done", finish())
    unnamed = loop.create_task(wait_on(future))
    if "ring" in sys.argv:
        start_ring()
    await asyncio.sleep(0.2)
    fresh = task("fresh", layered(event.wait))  # has not run yet
    if sys.version_info >= (3, 12):
        kept.append(asyncio.Task(layered(event.wait), loop=loop, name="eager", eager_start=True))
    said = []
    busy = task("busy", layered(lambda: stuck(said))) if "running" in sys.argv else None
    objects = dict(event=event, queue=queue, lock=lock, semaphore=semaphore, reader=reader, slow=slow)
    truth = {
        "pid": os.getpid(),
        "tasks": told_of(busy),
        "unnamed": unnamed.get_name(),
        "done": done.get_name(),
        "objects": {name: id(held) for name, held in objects.items()},
        "loop": id(loop),
    }
    said.append(json.dumps(truth))
    if busy is None:
        await stuck(said)
    await asyncio.sleep(3000)


async def wait_on(what):
    await what


async def wait_many(slow):
    await asyncio.gather(slow, asyncio.sleep(3000), asyncio.sleep(3001))


async def wait_first(slow):
    await asyncio.wait([slow, asyncio.ensure_future(asyncio.sleep(3002))])


async def shielded(slow):
    await asyncio.shield(slow)


async def pool(loop):
    await loop.run_in_executor(None, threading.Event().wait)


if __name__ == "__main__":
    if "uvloop" in sys.argv:
        import uvloop

        loop = uvloop.new_event_loop()
    else:
        loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(main())
