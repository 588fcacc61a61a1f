"""asking_threads.py: threads and tasks whose loops only ask, and their twins that do something else in between; no giver gives.

`asks` notes for each what `poll_loops` is to find: the kind of the question, and the number (a pid, a descriptor) or the address
of what is asked; "nothing" where the loop does more than ask. Says {"pid", "asks": {name: [kind, number or address]}} as JSON
when all stand in their loops.
"""

import asyncio
import concurrent.futures
import json
import os
import queue
import select
import selectors
import socket
import subprocess
import sys
import threading
import time
from multiprocessing import get_context
from multiprocessing.connection import wait as wait_for_connections

FORK = get_context("fork")
expected, begun = {}, []
seen = []


def asks(kind, about, thread=True):
    """A thread's function, or a task's: what its loop asks for."""

    def note(function):
        expected[function.__name__] = [kind, about]
        begun.append((function, thread))
        return function

    return note


def process():
    made = FORK.Process(target=time.sleep, args=(3600,), daemon=True)
    made.start()
    return made


child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(3600)"])
fork, piped = process(), os.pipe()
ours, theirs = socket.socketpair()
connection = FORK.Pipe()
lock, rlock, semaphore = threading.Lock(), threading.RLock(), threading.Semaphore(1)
items, simple, future = queue.Queue(), queue.SimpleQueue(), concurrent.futures.Future()
shared_lock, shared_queue = FORK.Lock(), FORK.Queue()
selector, poller, events = selectors.DefaultSelector(), select.poll(), select.epoll()
selector.register(ours, selectors.EVENT_READ)
poller.register(piped[0], select.POLLIN)
events.register(piped[0], select.EPOLLIN)
ours.settimeout(0.05)
quiet = socket.socketpair()
quiet[0].setblocking(False)
unready = os.pipe()
os.set_blocking(unready[0], False)
for one in (lock, rlock, semaphore, shared_lock):
    one.acquire()


@asks("Process", child.pid)
def waits_with_a_limit():
    child.wait(timeout=3600)


@asks("Process", child.pid)
def waits_again_and_again():
    while True:
        try:
            child.wait(timeout=0.05)
            break
        except subprocess.TimeoutExpired:
            pass


@asks("Process", child.pid)
def asks_the_kernel():
    while os.waitpid(child.pid, os.WNOHANG) == (0, 0):
        time.sleep(0.02)


@asks("Process", child.pid)
def asks_the_kernel_in_parts():
    while True:
        pid, _ = os.waitpid(child.pid, os.WNOHANG)
        if pid:
            break
        time.sleep(0.02)


@asks("Connection", fork.sentinel)
def waits_for_a_sentinel():
    while not wait_for_connections([fork.sentinel], timeout=0.05):
        pass


@asks("Connection", piped[0])
def selects():
    while True:
        ready, _, _ = select.select([piped[0]], [], [], 0)
        if ready:
            break
        time.sleep(0.02)


@asks("Connection", ours.fileno())
def selects_by_a_selector():
    while True:
        events = selector.select(timeout=0.05)
        if events:
            break


@asks("Connection", piped[0])
def polls():
    while not poller.poll(50):
        pass


@asks("Connection", piped[0])
def asks_an_epoll_object():
    while not events.poll(0.05):
        pass


@asks("Connection", ours.fileno())
def receives_with_a_limit():
    while True:
        try:
            ours.recv(10)
            break
        except socket.timeout:
            continue


@asks("Connection", quiet[0].fileno())
def receives():
    while True:
        try:
            quiet[0].recv(10)
            break
        except BlockingIOError:
            time.sleep(0.02)


@asks("Connection", unready[0])
def reads():
    while True:
        try:
            os.read(unready[0], 10)
            break
        except BlockingIOError:
            time.sleep(0.02)


@asks("Connection", shared_queue._reader.fileno())
def gets_of_a_shared_queue():
    while True:
        try:
            shared_queue.get(timeout=0.05)
            break
        except queue.Empty:
            pass


@asks("Lock", id(lock))
def acquires_with_a_limit():
    while not lock.acquire(timeout=0.05):
        pass


@asks("Lock", id(lock))
def acquires_by_place():
    while True:
        if lock.acquire(True, 0.05):
            break


@asks("RLock", id(rlock))
def tries():
    while not rlock.acquire(blocking=False):
        time.sleep(0.02)


@asks("Lock", id(lock))
def looks_whether_locked():
    while lock.locked():
        time.sleep(0.02)


@asks("Semaphore", id(semaphore))
def tries_a_semaphore():
    while not semaphore.acquire(timeout=0.05):
        pass


@asks("SemLock", id(shared_lock._semlock))
def tries_a_shared_lock():
    while not shared_lock.acquire(timeout=0.05):
        pass


@asks("Queue", id(simple))
def gets_of_a_simple_queue():
    while True:
        try:
            simple.get(timeout=0.05)
            break
        except queue.Empty:
            continue


@asks("Queue", id(simple))
def looks_whether_empty():
    while simple.empty():
        time.sleep(0.02)


# ---- twins, which do something else ----------------------------------------------------------------------------------
@asks("nothing", 0)
def works_between_tries():
    while not lock.acquire(timeout=0.05):
        seen.append(time.time())


@asks("nothing", 0)
def writes_between_questions():
    while not select.select([piped[0]], [], [], 0.05)[0]:
        os.stat(".")
        seen.append(1)


@asks("nothing", 0)
def sends_between_receipts():
    while True:
        try:
            quiet[0].recv(10)
        except BlockingIOError:
            quiet[1].getsockname()
            time.sleep(0.02)


@asks("nothing", 0)
def waits_without_a_limit():
    while True:
        unused = queue.Queue()
        unused.get()


# ---- tasks -----------------------------------------------------------------------------------------------------------
@asks("asyncio.Future", "result", thread=False)
async def waits_for_futures(own):
    while True:
        done, _ = await asyncio.wait({own["result"]}, timeout=0.05)
        if done:
            break


@asks("asyncio.Queue", "inbox", thread=False)
async def gets_with_a_limit(own):
    inbox = own["inbox"]
    while True:
        try:
            await asyncio.wait_for(inbox.get(), 0.05)
            break
        except asyncio.TimeoutError:
            pass


@asks("asyncio.Event", "signal", thread=False)
async def waits_for_an_event(own):
    signal = own["signal"]
    while not signal.is_set():
        try:
            await asyncio.wait_for(signal.wait(), timeout=0.05)
        except asyncio.TimeoutError:
            continue


@asks("nothing", 0, thread=False)
async def takes_what_comes(own):
    inbox = own["inbox"]
    while True:
        try:
            seen.append(await asyncio.wait_for(inbox.get(), 0.05))
        except asyncio.TimeoutError:
            seen.append(None)
            del seen[100:]


async def main():
    own = {"result": asyncio.get_running_loop().create_future(), "inbox": asyncio.Queue(), "signal": asyncio.Event()}
    tasks = []
    for function, is_thread in begun:
        if not is_thread:
            name = function.__name__
            tasks.append(asyncio.ensure_future(function(own)))
            tasks[-1].set_name(name)
            expected[name][1] = id(own[expected[name][1]]) if expected[name][1] else 0
    await asyncio.sleep(0.5)
    print(json.dumps({"pid": os.getpid(), "asks": expected}), flush=True)
    await asyncio.gather(*tasks)


for function, is_thread in begun:
    if is_thread:
        threading.Thread(target=function, daemon=True, name=function.__name__).start()
asyncio.run(main())
