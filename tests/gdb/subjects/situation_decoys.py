"""What goes on beside the wait of situations.py: threads and children that have nothing to do with it."""

import concurrent.futures
import gc
import os
import queue
import signal
import threading
import time

from situation_parts import children, forever, keep, thread


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
