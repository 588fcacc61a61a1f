"""What situations.py and its waits are made of: threads and their ids, and what the one who should end a wait does instead."""

import queue
import socket
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


def listener():
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    s.listen()
    keep.append(s)
    return s


def full():
    q = queue.Queue(2)
    q.put(1), q.put(1)
    return q
