"""situations.py SEED: one process in a situation that the seed draws: what it waits for, who should end that wait and what that
one does, and what else goes on beside it. Says what is true as JSON, then lives it:
{"pid", "pids" to look at, "drawn", "hung", "right": [verdicts], "culprits": [tid or pid], "what"}.

The truth is by construction: the process knows whom it made stand, spin, end or go on.
"""

import asyncio
import concurrent.futures
import ctypes
import gc
import json
import multiprocessing
import os
import queue
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

tids, children = {}, []
keep = []  # what must not be freed
LATE = 0.06  # seconds between two things that one gives who is slow but goes on


def forever():
    while True:
        time.sleep(100000)


def thread(name, function, *args):
    ready = threading.Event()

    def body():
        tids[name] = threading.get_native_id()
        ready.set()
        function(*args)

    made = threading.Thread(target=body, name=name, daemon=True)
    made.start()
    ready.wait()
    return made


# ---- what the one who should end the wait does instead ---------------------------------------------------------------
def sleeping():
    forever()


def receiving():
    near, far = socket.socketpair()
    keep.extend((near, far))
    near.recv(1)


def spinning():
    while True:
        pass


def trying():
    """As an eviction that removes nothing: the limit is never met."""
    order, data = {"gone": 1}, {}
    while len(order) > len(data):
        data.pop("gone", None)


def behind_a_lock():
    lock, has = threading.Lock(), threading.Event()

    def hold():
        with lock:
            has.set()
            forever()

    thread("third", hold)
    has.wait()
    with lock:
        pass


STUCK = {"sleeping": sleeping, "receiving": receiving, "behind a lock": behind_a_lock}
SPINNING = {"spinning": spinning, "trying": trying}


def truth(draw, kind, drawn):
    """(hung, right verdicts, culprits by name) for a wait of `kind` ("lock", "product", "child")."""
    held = {"lock": "lock-held", "product": "starved", "child": "starved"}[kind]
    if drawn in ("sleeping", "receiving"):
        return True, [held], ["ender"]
    if drawn == "behind a lock":
        return True, ["lock-held"], ["third"]
    if drawn in SPINNING:
        return True, ["livelock"], ["ender"]
    if drawn == "dead":
        return True, {"lock": ["lock-held"], "product": ["dead-thread"], "child": ["crashed"]}[kind], ["dead"]
    if drawn == "nobody":
        return True, ["unknown"], []
    if drawn == "resting":
        return False, ["idle"], []
    return False, ["busy"], []


# ---- waits of the main thread ----------------------------------------------------------------------------------------
# Each takes (draw, `drawn`: what the ender does) and gives (kind of truth, function that waits).
def listener():
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    s.listen()
    keep.append(s)
    return s


def a_lock(make):
    def build(draw, drawn):
        lock, has = make(), threading.Event()
        if drawn == "slow":

            def turn():
                n = 0
                while True:
                    with lock:
                        n += 1
                        time.sleep(LATE / 2)
                    time.sleep(LATE)

            def wait():
                n = 0
                while True:
                    with lock:
                        n += 1
                    time.sleep(0.01)

            thread("ender", turn)
            return "lock", wait
        if drawn == "dead":

            def take():
                lock.acquire()
                has.set()

            thread("ender", take).join()
        elif drawn == "nobody":
            lock.acquire()
            thread("beside", forever)
        else:

            def hold():
                with lock:
                    has.set()
                    (STUCK.get(drawn) or SPINNING.get(drawn))()

            thread("ender", hold)
            has.wait()

        def wait_for():
            with lock:
                pass

        return "lock", wait_for

    return build


def a_product(give, take, make):
    """`give(it)` in the ender ends one `take(it)` of the main thread."""

    def build(draw, drawn):
        it = make()
        if drawn == "slow":

            def giver():
                while True:
                    time.sleep(LATE)
                    give(it)

            def wait():
                n = 0
                while True:
                    take(it)
                    n += 1

            thread("ender", giver)
            return "product", wait
        if drawn == "resting":
            s = listener()

            def serve():
                while True:
                    s.accept()
                    give(it)

            thread("ender", serve)
        elif drawn == "dead":
            made = thread("ender", lambda it: None, it)
            made.join()
            keep.append(made)

            def wait_for_dead():
                giver = made
                take(it)
                return giver

            return "product", wait_for_dead
        elif drawn != "nobody":

            def stuck(it):
                (STUCK.get(drawn) or SPINNING.get(drawn))()
                give(it)

            thread("ender", stuck, it)

        def wait_for():
            take(it)

        return "product", wait_for

    return build


def clear(event):
    event.wait()
    event.clear()


def met(condition):
    with condition:
        condition.wait()


def notify(condition):
    with condition:
        condition.notify_all()


def full():
    q = queue.Queue(2)
    q.put(1), q.put(1)
    return q


def a_join(draw, drawn):
    if drawn == "slow":

        def short():
            time.sleep(LATE)

        def wait():
            n = 0
            while True:
                n += 1
                thread("ender", short).join()

        return "product", wait
    made = thread("ender", STUCK.get(drawn) or SPINNING.get(drawn))
    return "product", made.join


def a_future(draw, drawn):
    pool = concurrent.futures.ThreadPoolExecutor(1)
    keep.append(pool)

    def wait_slow():
        n = 0
        while True:
            n += pool.submit(lambda: time.sleep(LATE) or 1).result()

    if drawn == "slow":
        return "product", wait_slow
    began = threading.Event()

    def work():
        tids["ender"] = threading.get_native_id()
        began.set()
        (STUCK.get(drawn) or SPINNING.get(drawn))()

    future = pool.submit(work)
    began.wait()
    return "product", future.result


# ---- waits for other processes ---------------------------------------------------------------------------------------
def child(function):
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            function()
        finally:
            os._exit(1)
    children.append(pid)
    tids["ender"] = pid
    return pid


def lived(drawn, give):
    """What a child does."""

    def live():
        if drawn == "slow":
            while True:
                time.sleep(LATE)
                give()
        elif drawn == "working":
            spinning()
        else:
            (STUCK.get(drawn) or SPINNING.get(drawn))()

    return live


def a_pipe(draw, drawn):
    read, write = os.pipe()
    pid = child(lived(drawn, lambda: os.write(write, b"x")))
    if drawn != "slow":
        tids["ender"] = pid
    os.close(write)

    def wait():
        n = 0
        while True:
            os.read(read, 1)
            n += 1

    return "child", wait


def a_socket(limit):
    def build(draw, drawn):
        near, far = socket.socketpair()
        if drawn == "nobody":
            keep.append(far)
        else:
            child(lived(drawn, lambda: far.send(b"x")))
        near.settimeout(limit)

        def wait():
            n = 0
            while True:
                near.recv(1)
                n += 1

        return "child", wait

    return build


def a_client(draw, drawn):
    """A request to a server of another process, over TCP, with a time limit."""
    s = listener()

    def serve():
        connection, _ = s.accept()
        lived(drawn, lambda: connection.send(b"x"))()

    child(serve)
    near = socket.create_connection(s.getsockname(), timeout=600)
    s.close()

    def wait():
        n = 0
        while True:
            near.recv(1)
            n += 1

    return "child", wait


def a_child(draw, drawn):
    if drawn == "slow":

        def wait_slow():
            n = 0
            while True:
                subprocess.run(["sleep", str(LATE)], check=True)
                n += 1

        return "child", wait_slow
    pid = child(lived(drawn, None))
    return "child", lambda: os.waitpid(pid, 0)


def a_flock(draw, drawn):
    import fcntl

    path = os.path.join(tempfile.mkdtemp(), "lock")
    read, write = os.pipe()

    def hold():
        with open(path, "w") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            os.write(write, b"x")
            lived(drawn, None)()

    child(hold)
    os.read(read, 1)

    def wait():
        with open(path, "w") as f:
            fcntl.flock(f, fcntl.LOCK_EX)

    return "lock", wait


def a_semaphore_of_processes(draw, drawn):
    lock = multiprocessing.get_context("fork").Lock()
    read, write = os.pipe()

    def hold():
        with lock:
            os.write(write, b"x")
            lived(drawn, None)()

    child(hold)
    os.read(read, 1)

    def wait():
        with lock:
            pass

    return "lock", wait


# ---- asyncio ---------------------------------------------------------------------------------------------------------
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


# ---- main threads that are well, or whose fate is their own ----------------------------------------------------------
def crosswise(make_one, make_two):
    def build(draw, drawn):
        a, b, meet = make_one(), make_two(), threading.Barrier(2)

        def other():
            with a:
                meet.wait()
                with b:
                    pass

        thread("ender", other)

        def wait():
            with b:
                meet.wait()
                with a:
                    pass

        return "cycle", wait

    return build


def resting_server(draw, drawn):
    s = listener()
    return "rest", lambda: [s.accept() for _ in iter(int, 1)]


def resting_select(draw, drawn):
    s = listener()
    return "rest", lambda: [select.select([s], [], [], 50) for _ in iter(int, 1)]


def resting_workers(draw, drawn):
    """Worker threads wait for work that the listener's thread would give them."""
    q, s = queue.Queue(), listener()

    def work(q):
        while True:
            q.get()

    for i in range(4):
        thread(f"worker-{i}", work, q)

    def serve():
        while True:
            s.accept()
            q.put(1)

    return "rest", serve


def full_prefetch(draw, drawn):
    """A producer that has filled its queue, and a consumer that waits for a client."""
    q, s = full(), listener()

    def produce(q):
        while True:
            q.put(1)

    thread("producer", produce, q)

    def serve():
        while True:
            s.accept()
            q.get()

    return "rest", serve


def computing(draw, drawn):
    def work():
        total, step = 0, 0
        while True:
            step += 1
            for i in range(2000):
                total += i * step % 7

    return "work", work


def collecting(draw, drawn):
    def work():
        cells = [[i] for i in range(100000)]
        while True:
            gc.collect()
        del cells

    return "work", work


def pumping(draw, drawn):
    """Items go through a queue between threads."""
    q = queue.Queue(4)

    def produce(q):
        n = 0
        while True:
            n += 1
            q.put(n)
            time.sleep(0.02)

    thread("producer", produce, q)

    def consume():
        n = 0
        while True:
            n += q.get()

    return "work", consume


def waits_for_a_flag(draw, drawn):
    flag = threading.Event()

    def wait():
        while not flag.is_set():
            time.sleep(0.02)

    return "poll", wait


ANY = ("slow", "sleeping", "receiving", "behind a lock", "spinning", "trying", "nobody")
PRODUCT = (*ANY, "resting", "dead")
STANDS = ("slow", "sleeping", "behind a lock", "spinning", "trying")
CHILD = ("slow", "sleeping", "spinning", "dead")
TASKS = ("slow", "spinning", "trying", "nobody", "dead")
WAITS = {
    "lock": (a_lock(threading.Lock), (*ANY, "dead")),
    "rlock": (a_lock(threading.RLock), (*ANY[:-1], "dead")),
    "semaphore": (a_lock(lambda: threading.Semaphore(1)), STANDS),
    "queue": (a_product(lambda q: q.put(1), lambda q: q.get(), queue.Queue), PRODUCT),
    "queue of C": (
        a_product(lambda q: q.put(1), lambda q: q.get(), queue.SimpleQueue),
        ("slow", "sleeping", "nobody", "spinning"),
    ),
    "room": (a_product(lambda q: q.get(), lambda q: q.put(1), full), STANDS),
    "event": (a_product(threading.Event.set, clear, threading.Event), PRODUCT),
    "condition": (a_product(notify, met, threading.Condition), PRODUCT),
    "join": (a_join, STANDS),
    "future": (a_future, STANDS),
    "pipe": (a_pipe, CHILD[:3]),
    "socket": (a_socket(None), (*CHILD[:3], "nobody")),
    "socket with a limit": (a_socket(600), (*CHILD[:3], "nobody")),
    "client": (a_client, CHILD[:3]),
    "child": (a_child, CHILD[:3]),
    "file lock": (a_flock, ("sleeping", "spinning")),
    "lock of processes": (a_semaphore_of_processes, ("sleeping", "spinning")),
    "asyncio event": (
        async_product(asyncio.Event, asyncio.Event.set, lambda e: e.wait()),
        ("spinning", "trying", "nobody", "dead"),
    ),
    "asyncio queue": (async_product(asyncio.Queue, lambda q: q.put_nowait(1), lambda q: q.get()), TASKS),
    "asyncio locks crosswise": (async_locks_crosswise, ("cycle",)),
    "asyncio lock": (async_lock_held, ("held",)),
    "asyncio blocked": (async_blocked, ("sleeping", "receiving", "spinning", "behind a lock")),
    "asyncio server": (async_server, ("resting",)),
    "locks crosswise": (crosswise(threading.Lock, threading.RLock), ("cycle",)),
    "conditions crosswise": (crosswise(threading.Lock, threading.Condition), ("cycle",)),
    "server": (resting_server, ("resting",)),
    "select": (resting_select, ("resting",)),
    "workers": (resting_workers, ("resting",)),
    "prefetch": (full_prefetch, ("resting",)),
    "computing": (computing, ("slow",)),
    "collecting": (collecting, ("slow",)),
    "pumping": (pumping, ("slow",)),
    "flag": (waits_for_a_flag, ("nobody",)),
}


# ---- what goes on beside it ------------------------------------------------------------------------------------------
def ticker():
    def tick():
        beats = 0
        while True:
            beats += 1
            time.sleep(0.05)

    thread("ticker", tick)


def stop_ticker():
    stop = threading.Event()

    def tick(stop):
        beats = 0
        while not stop.wait(0.1):
            beats += 1

    keep.append(stop)
    thread("heartbeat", tick, stop)


def spinner():
    def spin():
        n = 0
        while True:
            n += 1
            if not n % 1000:
                time.sleep(0.001)

    thread("spinner", spin)


def collector():
    def collect():
        while True:
            gc.collect()
            time.sleep(0.05)

    thread("collector", collect)


def dead_child():
    pid = os.fork()
    if not pid:
        os._exit(1)
    children.append(pid)


def killed_child():
    pid = os.fork()
    if not pid:
        forever()
    os.kill(pid, signal.SIGKILL)
    children.append(pid)


def pool():
    made = concurrent.futures.ThreadPoolExecutor(3)
    list(made.map(lambda n: time.sleep(0.01), range(6)))
    keep.append(made)


def many_threads():
    q = queue.Queue()
    keep.append(q)

    def work(q):
        while True:
            q.get()

    for i in range(24):
        thread(f"idle-{i}", work, q)


DECOYS = (ticker, stop_ticker, spinner, collector, dead_child, killed_child, pool, many_threads)


def draw_for(seed):
    """(name of the wait, what the ender does, decoys) that a seed draws."""
    draw = random.Random(seed)
    pairs = [(name, drawn) for name, (_, states) in WAITS.items() for drawn in states]
    name, drawn = pairs[draw.randrange(len(pairs))]
    decoys = draw.sample(DECOYS, draw.choice((0, 1, 1, 2, 3)))
    return name, drawn, decoys


def truth_of(kind, name, drawn):
    """(hung, right verdicts, culprits by name)"""
    if kind == "cycle":
        return True, ["lock-cycle"], ["ender", "main", "task"]
    if kind == "async lock":
        return True, ["lock-held"], ["task"]
    if kind == "loop":
        return True, ["loop-blocked"] + (["lock-held"] if drawn == "behind a lock" else []), ["main", "third"]
    if kind == "rest":
        return False, ["idle"], []
    if kind == "work":
        return False, ["busy"], ["main"]
    if kind == "poll":
        return True, ["unknown"], []
    hung, right, culprits = truth(None, kind, drawn)
    if name.startswith("asyncio") and drawn in SPINNING:
        return True, ["loop-blocked", "livelock"], ["main"]
    if name.startswith("asyncio") and drawn == "dead":
        return True, ["unknown", "dead-thread"], ["task"]
    return hung, right, culprits


def main():
    seed = int(sys.argv[1])
    tids["main"] = threading.get_native_id()
    name, drawn, decoys = draw_for(seed)
    forks = [d for d in decoys if d in (dead_child, killed_child)]
    for decoy in forks:  # before there are threads
        decoy()
    with_children = list(children)
    kind, wait = WAITS[name][0](random.Random(seed), drawn)
    for decoy in decoys:
        if decoy not in forks:
            decoy()
    hung, right, culprits = truth_of(kind, name, drawn)
    while "third" in culprits and "main" not in culprits and "third" not in tids:
        time.sleep(0.01)  # it begins in the ender's thread
    told = [tids[c] for c in culprits if c in tids] + [c for c in culprits if c in ("dead", "task")]
    mine = [pid for pid in children if pid not in with_children]
    said = {
        "pid": os.getpid(),
        "pids": mine,
        "drawn": f"{name}, {drawn}" + "".join(f", {d.__name__}" for d in decoys),
        "hung": hung,
        "right": right,
        "culprits": told,
    }
    print(json.dumps(said), flush=True)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    wait()


if __name__ == "__main__":
    main()
