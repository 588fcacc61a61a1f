"""What goes on beside the wait of situations.py: threads and children that have nothing to do with it."""

import concurrent.futures
import gc
import os
import queue
import signal
import socket
import threading
import time

from situation_parts import children, forever, keep, others, thread


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


def strange(function):
    """Another process, that has nothing to do with this one and is no child of it; looked at too."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        if os.fork():
            os._exit(0)
        os.write(write, str(os.getpid()).encode())
        try:
            function()
        finally:
            os._exit(1)
    os.waitpid(pid, 0)
    pid = int(os.read(read, 20))
    os.close(read), os.close(write)
    return pid


def other_at_rest():
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    s.listen()
    others.append(strange(lambda: s.accept()))
    s.close()


def other_that_hangs():
    lock = threading.Lock()

    def hang():
        with lock, lock:
            pass

    others.append(strange(hang))


def other_at_work():
    def work():
        n = 0
        while True:
            n += 1
            time.sleep(0.001 if not n % 5000 else 0)

    others.append(strange(work))


def load():
    """On the machine; not looked at."""

    def spin():
        end = time.monotonic() + 60
        while time.monotonic() < end:
            pass

    for _ in range(2):
        strange(spin)


FORKS = (dead_child, killed_child, other_at_rest, other_that_hangs, other_at_work, load)  # before there are threads
DECOYS = (ticker, stop_ticker, spinner, collector, pool, many_threads, *FORKS)
