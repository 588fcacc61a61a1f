"""What situations.py and its waits are made of: threads and their ids, and what the one who should end a wait does instead."""

import queue
import socket
import threading
import time

tids, children, others = {}, [], []  # others: processes that have nothing to do with this one
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


def met(condition):
    with condition:
        condition.wait()


def notify(condition):
    with condition:
        condition.notify_all()


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


def lock_of_a_third():
    """A lock that a third thread has and keeps."""
    lock, has = threading.Lock(), threading.Event()

    def hold():
        with lock:
            has.set()
            forever()

    thread("third", hold)
    has.wait()
    return lock


def behind_a_lock(tell=lambda: None):
    """`tell()` when the third thread has the lock."""
    lock = lock_of_a_third()
    tell()
    with lock:
        pass


def stuck(drawn):
    """What the ender does that is not "slow", as a function; a third thread is there when this returns."""
    if drawn != "behind a lock":
        return STUCK.get(drawn) or SPINNING.get(drawn)
    lock = lock_of_a_third()

    def wait_behind():
        with lock:
            pass

    return wait_behind


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
