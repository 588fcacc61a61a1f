"""program_ends.py NAME hang|well: a program at its end, which something keeps from ending. Says as JSON what is true: {"pid",
"end": the tid that keeps it, "state" of the end of the main thread's chain, "right": [verdicts]}; a healthy one ends when its
client says so, or goes on with its work."""

import atexit
import concurrent.futures
import ctypes
import json
import os
import queue
import signal
import socket
import sys
import threading
import time

NAME, HANG = sys.argv[1], sys.argv[2] == "hang"
main = threading.get_native_id()


def say(end, state, *right):
    print(json.dumps({"pid": os.getpid(), "end": end, "state": state, "right": right}), flush=True)


def stays():
    """Sleeps for ever; well: waits for a client."""
    if HANG:
        while True:
            time.sleep(100000)
    socket.create_server(("127.0.0.1", 0)).accept()


def daemon():
    time.sleep(100000)


def one_thread():
    """A thread that is no daemon stays, beside a daemon."""

    def server():
        say(threading.get_native_id(), "sleeps" if HANG else "input", *(["starved"] if HANG else ["idle", "unknown"]))
        stays()

    threading.Thread(target=daemon, daemon=True, name="client").start()
    threading.Thread(target=server, name="server").start()


def one_of_several():
    """Three wait for a lock of a daemon that stays; well: for its end, and it waits for a client."""
    lock, has = threading.Lock(), threading.Event()

    def keeps():
        with lock:
            has.set()
            say(threading.get_native_id(), "sleeps" if HANG else "input", *(["lock-held"] if HANG else ["idle", "unknown"]))
            stays()

    def wants():
        if not HANG:
            keeper.join()
        with lock:
            pass

    keeper = threading.Thread(target=keeps, daemon=True)
    keeper.start()
    has.wait()
    for _ in range(3):
        threading.Thread(target=wants).start()


def pool():
    """The exit handler of concurrent.futures joins a worker that stays."""

    def job():
        say(threading.get_native_id(), "sleeps" if HANG else "input", *(["starved"] if HANG else ["idle", "unknown"]))
        stays()

    concurrent.futures.ThreadPoolExecutor(1).submit(job)


def exit_handler():
    """A handler of atexit waits for the answer of a daemon that stays."""
    answers, tids = queue.Queue(), queue.Queue()

    def gives(answers):
        tids.put(threading.get_native_id())
        stays()
        answers.put(1)

    threading.Thread(target=gives, args=(answers,), daemon=True).start()
    end = tids.get()

    def flush():
        say(end, "sleeps" if HANG else "input", *(["starved"] if HANG else ["idle", "unknown"]))
        answers.get()

    atexit.register(flush)


ctypes.CDLL(None).prctl(1, signal.SIGKILL)
{"one thread": one_thread, "one of several": one_of_several, "pool": pool, "exit handler": exit_handler}[NAME]()
