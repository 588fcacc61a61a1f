"""Waits for one that sleeps with a time limit: "feeding", it gives after each sleep; "late", it sleeps once and then gives;
"asking", it looks after each sleep whether it is to give; "for good", it only sleeps again. By what it sleeps the draw says."""

import asyncio
import concurrent.futures
import os
import queue
import select
import socket
import threading
import time

from situation_parts import full, keep, met, notify, thread, tids
from situation_processes import child

HOUR = 3600
HEALTHY = ("feeding", "late", "asking")
STATES = (*HEALTHY, "for good")


def by_condition(seconds):
    condition = threading.Condition()
    with condition:
        condition.wait(seconds)


def by_socket(seconds):
    near, far = socket.socketpair()
    keep.extend((near, far))
    near.settimeout(seconds)
    try:
        near.recv(1)
    except OSError:
        pass


async def on_a_loop(seconds):
    try:
        await asyncio.wait_for(asyncio.Event().wait(), seconds)
    except asyncio.TimeoutError:
        pass


SLEEPS = {
    "time.sleep": time.sleep,
    "an event": lambda seconds: threading.Event().wait(seconds),
    "a condition": by_condition,
    "select": lambda seconds: select.select([], [], [], seconds),
    "a queue": lambda seconds: queue.Queue().get(timeout=seconds),
    "a socket": by_socket,
    "wait_for": lambda seconds: asyncio.run(on_a_loop(seconds)),
}


class Giver:
    def __init__(self, draw, state, give, it):
        self.sleep, self.give, self.it, self.state = SLEEPS[draw.choice(sorted(SLEEPS))], give, it, state
        self.seconds, self.due, self.direct = draw.choice((60, HOUR, 24 * HOUR)), False, draw.random() < 0.5

    def run(self):
        if self.state == "for good":
            while True:
                time.sleep(HOUR)
        if self.state == "late":
            self.sleep(self.seconds)
            self.give(self.it)
        while self.direct:
            time.sleep(self.seconds)
            if self.state == "feeding" or self.due:
                self.give(self.it)
        while True:
            self.sleep(self.seconds)
            if self.state == "feeding" or self.due:
                self.give(self.it)


def product(make, give, take):
    def build(draw, drawn):
        it = make()
        thread("ender", Giver(draw, drawn, give, it).run)
        return "sleeper", lambda: take(it)

    return build


def a_job(draw, drawn):
    """Of a pool's thread: a job that feeds has no end of itself."""
    pool = concurrent.futures.ThreadPoolExecutor(1)
    keep.append(pool)
    began = threading.Event()

    def work():
        tids["ender"] = threading.get_native_id()
        began.set()
        Giver(draw, drawn, bool, 1).run()

    future = pool.submit(work)
    began.wait()
    return "sleeper", future.result


def a_pipe(draw, drawn):
    """A child writes it."""
    reads, writes = os.pipe()
    child(Giver(draw, drawn, lambda fd: os.write(fd, b"x"), writes).run)
    os.close(writes)
    return "sleeper", lambda: os.read(reads, 1)


def a_service(draw, drawn):
    """A child whose main thread only keeps it alive: a thread of it writes."""
    reads, writes = os.pipe()

    def serve():
        giver = Giver(draw, drawn, lambda fd: os.write(fd, b"x"), writes)
        threading.Thread(target=giver.run, daemon=True).start()
        while True:
            time.sleep(24 * HOUR)

    child(serve)
    os.close(writes)
    return "service", lambda: os.read(reads, 1)


def a_childs_end(draw, drawn):
    pid = child(Giver(draw, drawn, os._exit, 0).run)
    return "sleeper", lambda: os.waitpid(pid, 0)


def a_task(draw, drawn):
    """Of the same loop."""
    seconds = draw.choice((60, HOUR))

    async def give(it):
        if drawn == "for good":
            while True:
                await asyncio.sleep(HOUR)
        if drawn == "late":
            await asyncio.sleep(seconds)
            it.put_nowait(1)
        while True:
            await asyncio.sleep(seconds)
            if drawn == "feeding" or it.qsize() > 3:
                it.put_nowait(1)

    async def main():
        it = asyncio.Queue()
        keep.append(asyncio.create_task(give(it), name="ender"))
        await it.get()

    return "sleeping task", lambda: asyncio.run(main())


def a_lock(draw, drawn):
    """Who has it keeps others from moving as long as it sleeps, whatever it does then."""
    lock, has = draw.choice((threading.Lock, threading.RLock))(), threading.Event()

    def hold():
        while True:
            with lock:
                has.set()
                Giver(draw, drawn, bool, 1).run()

    thread("ender", hold)
    has.wait()

    def take():
        with lock:
            pass

    return "sleeping holder", take


WAITS = {
    "sleeper of a queue": product(queue.Queue, lambda q: q.put(1), lambda q: q.get()),
    "sleeper of room": product(full, lambda q: q.get(), lambda q: q.put(1)),
    "sleeper of an event": product(threading.Event, threading.Event.set, threading.Event.wait),
    "sleeper of a condition": product(threading.Condition, notify, met),
    "sleeper of a job": a_job,
    "sleeper of a pipe": a_pipe,
    "sleeper of a service": a_service,
    "sleeper of a child": a_childs_end,
    "sleeper of a task": a_task,
    "sleeper of a lock": a_lock,
}
WAITS = {name: (build, STATES) for name, build in WAITS.items()}


def truth(kind, drawn):
    """(hung, right verdicts, culprits by name); "lock-held" is true also of a lock that is given back after the sleep."""
    if kind == "sleeping holder":
        return True, ["lock-held", "unknown"], ["ender"]
    if kind == "service" and drawn not in HEALTHY:
        return True, ["starved", "unknown"], []
    if drawn in HEALTHY:
        return False, ["unknown", "idle"], []
    return True, ["starved"], ["task" if kind == "sleeping task" else "ender"]
