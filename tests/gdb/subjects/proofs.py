"""proofs.py NAME hang|well: what proves a hang, and its twin that is only slow or at rest. Says as JSON what is true of itself:
{"pid", "pids" to look at too, "right": [verdicts], "culprits": [tids, in any order; None: no matter who]}; a healthy one may be
anything that accuses nobody."""

import asyncio
import concurrent.futures
import ctypes
import json
import multiprocessing
import os
import queue
import signal
import socket
import sys
import threading
import time

NAME, HANG = sys.argv[1], sys.argv[2] == "hang"
me, pids, culprits, keep = threading.get_native_id(), [], [], []
SLOW = 0.05


def say(*right, who=None):
    good = ["busy", "idle", "unknown"]
    said = {"pid": os.getpid(), "pids": pids, "right": list(right) if HANG else good, "culprits": who if HANG else None}
    print(json.dumps(said), flush=True)


def forked(does):
    """A child that does something: its pid, and a descriptor that says when it has begun."""
    ready, says = os.pipe()
    pid = os.fork()
    if not pid:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        os.close(ready)
        os.write(says, b"x")
        os.close(says)
        does()
        os._exit(0)
    os.close(says)
    os.read(ready, 1)
    os.close(ready)
    pids.append(pid)
    return pid


# ---- rings -----------------------------------------------------------------------------------------------------------
def pool_of_its_own():
    """Each of three workers waits for a job of the same pool; well: a fourth worker does them."""
    pool, begun = concurrent.futures.ThreadPoolExecutor(3 if HANG else 4), threading.Barrier(4)

    def outer():
        culprits.append(threading.get_native_id())
        begun.wait()
        while True:
            pool.submit(time.sleep, SLOW).result()

    jobs = [pool.submit(outer) for _ in range(3)]
    begun.wait()
    time.sleep(0.3)
    say("lock-cycle", who=culprits)
    jobs[0].result()


def lock_and_worker():
    """Who has a lock waits for a job of the only worker, which wants the lock; well: the lock is open by then."""
    pool, lock, has = concurrent.futures.ThreadPoolExecutor(1), threading.RLock(), threading.Event()

    def store():
        culprits.append(threading.get_native_id())
        has.wait()
        with lock:
            pass

    pool.submit(store)
    if HANG:
        with lock:
            has.set()
            job = pool.submit(int)
            say("lock-cycle", who=[me, *culprits])
            job.result()
    say()
    has.set()
    while True:
        pool.submit(time.sleep, SLOW).result()


def child_that_cannot_write():
    """A parent waits for the end of a child that writes more than the pipe holds; well: a thread of the parent reads."""
    reads, writes = os.pipe()

    def child():
        while True:
            os.write(writes, b"x" * 65536)

    pid = forked(child)
    os.close(writes)

    def read():
        while True:
            os.read(reads, 4096)
            time.sleep(SLOW)

    if not HANG:
        threading.Thread(target=read, daemon=True).start()
    say("lock-cycle", who=[me, pid])
    os.waitpid(pid, 0)


def each_waits_for_the_other():
    """Parent and child each read what the other is to write first; well: the parent's thread writes now and then."""
    one, two = os.pipe(), os.pipe()

    def child():
        os.close(one[1])
        os.close(two[0])
        while True:
            os.read(one[0], 1)
            os.write(two[1], b"x")

    pid = forked(child)
    os.close(one[0])
    os.close(two[1])

    def begin():
        while True:
            time.sleep(SLOW)
            os.write(one[1], b"x")

    if not HANG:
        threading.Thread(target=begin, daemon=True).start()
    say("lock-cycle", who=[me, pid])
    while True:
        os.read(two[0], 1)


def inherited_ends():
    """Two children wait for the end of a pipe each, whose writing ends the other has inherited; well: the parent writes."""
    one, two = os.pipe(), os.pipe()

    def child(reads, own):
        os.close(own)
        while os.read(reads, 1):
            pass

    a = forked(lambda: child(one[0], one[1]))
    b = forked(lambda: child(two[0], two[1]))
    if HANG:
        os.close(one[1])
        os.close(two[1])
    say("lock-cycle", who=[a, b])
    while HANG:
        os.waitpid(a, 0)
    while True:
        os.write(one[1], b"x")
        os.write(two[1], b"x")
        time.sleep(SLOW)


def socket_pair():
    """Both ends of a socket wait for the other's word; well: a thread of one end writes."""
    mine, its = socket.socketpair()

    def child():
        mine.close()
        while True:
            its.recv(1)
            its.send(b"x")

    pid = forked(child)
    its.close()

    def begin():
        while True:
            time.sleep(SLOW)
            mine.send(b"x")

    if not HANG:
        threading.Thread(target=begin, daemon=True).start()
    say("lock-cycle", who=[me, pid])
    while True:
        mine.recv(1)


def answers_left_in_a_queue():
    """A parent joins a child whose answers nobody takes; well: it takes them."""
    context = multiprocessing.get_context("fork")
    answers = context.Queue()

    def child():
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        while True:
            answers.put(b"x" * 50_000)
            if HANG and answers.qsize() > 20:
                return
            time.sleep(0 if HANG else SLOW)

    process = context.Process(target=child)
    process.start()
    pids.append(process.pid)
    answers.get()
    time.sleep(0.5)
    say("lock-cycle", who=None)
    if HANG:
        process.join()
    while True:
        answers.get()


# ---- loops that are not woken ------------------------------------------------------------------------------------------
def in_a_loop(wait, give):
    """`give(loop, it)` in a thread, which is to end `await wait(it)` of a task; well: by call_soon_threadsafe."""

    async def main():
        loop, it = asyncio.get_running_loop(), None
        waits = wait(loop)
        it = waits.it

        def work():
            while True:
                time.sleep(0.2)
                if HANG:
                    give(it)
                    time.sleep(0.3)
                    say("loop-blocked", who=[me])
                    time.sleep(100000)
                loop.call_soon_threadsafe(give, it)
                if not told:
                    told.append(say())

        told = []
        threading.Thread(target=work, daemon=True).start()
        while True:
            await waits()

    asyncio.run(main())


class Items:
    def __init__(self, loop):
        self.it = asyncio.Queue()

    async def __call__(self):
        await self.it.get()


class Signals:
    def __init__(self, loop):
        self.it = asyncio.Event()

    async def __call__(self):
        await self.it.wait()
        self.it.clear()


class Calls:
    """A callback of the loop ends the wait."""

    def __init__(self, loop):
        self.loop, self.event = loop, asyncio.Event()
        self.it = self

    async def __call__(self):
        await self.event.wait()
        self.event.clear()


# ---- what is there, and what nobody can give ---------------------------------------------------------------------------
def waits_for_what_is_there(make, put, take):
    """`put(it)` behind the back of the object, so that `take(it)` is not woken; well: the other thread waits for a client."""
    it = make()

    def give():
        time.sleep(0.3)
        if HANG:
            put(it)
            say("starved", who=None)
            time.sleep(100000)
        say()
        socket.create_server(("127.0.0.1", 0)).accept()
        put(it)

    threading.Thread(target=give, daemon=True).start()
    take(it)


def nobody_left(make, take):
    """The only thread waits; well: there is a second one, which waits for a client and may end it then."""
    it = make()
    if not HANG:
        server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=lambda it: server.accept() and it, args=(it,), daemon=True).start()
    say("starved", who=[])
    take(it)


def own_pipe():
    """A process reads a pipe of which it alone has the writing end; well: a child has it too, and waits for a client."""
    reads, writes = os.pipe()
    if not HANG:
        server = socket.create_server(("127.0.0.1", 0))
        forked(server.accept)
    say("starved", who=[])
    os.read(reads, 1)
    del writes


def dead_child():
    """A process reads a pipe of which it has the writing end, as its child had, which has been killed; well: the child writes."""
    reads, writes = os.pipe()

    def child():
        if HANG:
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            time.sleep(SLOW)
            os.write(writes, b"x")

    pid = forked(child)
    while HANG and open(f"/proc/{pid}/stat").read().rpartition(") ")[2][0] != "Z":
        time.sleep(0.01)
    say("crashed", who=None)
    while True:
        os.read(reads, 1)


def mark(event):
    event._flag = True


def notified(condition):
    with condition:
        condition.wait()


class Client:
    """`wait_for_drain` asks for a flag over and over, `generate` waits for it."""

    def __init__(self):
        self.runs, self.drained = True, asyncio.Event()

    async def wait_for_drain(self):
        while self.runs:
            await asyncio.sleep(0)
        self.drained.set()

    async def generate(self):
        answers = 0
        while True:
            await self.drained.wait()
            answers += 1
            await asyncio.sleep(0.01)


def flag_asked_for_for_ever():
    """Well: the flag is taken back, and answers go on."""

    async def main():
        client = Client()
        tasks = [asyncio.ensure_future(client.generate()) for _ in range(3)]
        tasks.append(asyncio.ensure_future(client.wait_for_drain()))
        client.runs = HANG
        asyncio.get_running_loop().call_later(0.3, say, "unknown", "livelock")
        await asyncio.gather(*tasks)

    asyncio.run(main())


SITUATIONS = {
    "pool of its own": pool_of_its_own,
    "lock and worker": lock_and_worker,
    "child that cannot write": child_that_cannot_write,
    "each waits for the other": each_waits_for_the_other,
    "inherited ends": inherited_ends,
    "socket pair": socket_pair,
    "answers left in a queue": answers_left_in_a_queue,
    "loop, item": lambda: in_a_loop(Items, lambda q: q.put_nowait(1)),
    "loop, event": lambda: in_a_loop(Signals, lambda e: e.set()),
    "loop, callback": lambda: in_a_loop(Calls, lambda c: c.loop.call_soon(c.event.set)),
    "flag": flag_asked_for_for_ever,
    "item there": lambda: waits_for_what_is_there(queue.Queue, lambda q: q.queue.append(1), lambda q: q.get()),
    "event set": lambda: waits_for_what_is_there(threading.Event, mark, lambda e: e.wait()),
    "own pipe": own_pipe,
    "dead child": dead_child,
    "nobody, event": lambda: nobody_left(threading.Event, lambda e: e.wait()),
    "nobody, queue": lambda: nobody_left(queue.Queue, lambda q: q.get()),
    "nobody, condition": lambda: nobody_left(threading.Condition, notified),
    "nobody, future": lambda: nobody_left(concurrent.futures.Future, lambda f: f.result()),
}

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    SITUATIONS[NAME]()
