"""Waits for files and worker processes: `KIND hang|well`. Says {"pid", "end": the pid at the end of the wait, 0 for none}."""

import json
import multiprocessing
import os
import select
import signal
import sqlite3
import sys
import tempfile
import threading
import time

KIND, STATE = sys.argv[1:3]
FOLDER = tempfile.mkdtemp()
FORK = multiprocessing.get_context("fork")


def say(end):
    print(json.dumps({"pid": os.getpid(), "end": end, "folder": FOLDER}), flush=True)


def child(does):
    made = FORK.Process(target=does)
    made.start()
    return made.pid


def rests():
    time.sleep(9000)


def epoll():
    """A loop asks an epoll object; what is registered is a pipe that a child writes."""
    reads, writes = os.pipe()

    def gives():
        while STATE == "well":
            os.write(writes, b"x")
            time.sleep(0.02)
        rests()

    pid, asked = child(gives), select.epoll()
    os.close(writes)
    asked.register(reads, select.EPOLLIN)
    say(pid)
    got = 0
    while True:
        for _ in asked.poll(0.05):
            got += len(os.read(reads, 1))


def opens(mode, other):
    path = os.path.join(FOLDER, "orders")
    os.mkfifo(path)
    opener = threading.Thread(target=lambda: open(path, mode).read(1) if mode == "rb" else open(path, mode).write(b"x"))
    opener.start()
    say(0)
    if STATE == "well":
        with open(path, other):
            opener.join()
        items = 0
        while True:
            items += 1
            time.sleep(0.01)
    opener.join()


def fifo_read():
    opens("rb", "wb")


def fifo_write():
    opens("wb", "rb")


def database(journal):
    path = os.path.join(FOLDER, "jobs.db")
    with sqlite3.connect(path) as made:
        made.execute(f"pragma journal_mode={journal}")
        made.execute("pragma synchronous=off")
        made.execute("create table jobs(number)")
    made.close()
    begun, has = os.pipe()

    def writes():
        own = sqlite3.connect(path, timeout=900, isolation_level=None)
        own.execute("begin immediate")
        own.execute("insert into jobs values (1)")
        os.write(has, b"x")
        if STATE == "hang":
            rests()
        written = 0
        while True:
            own.execute("commit")
            time.sleep(0.03)
            own.execute("begin immediate")
            written += 1

    pid = child(writes)
    os.read(begun, 1)
    mine = sqlite3.connect(path, timeout=900, isolation_level=None)
    say(pid)
    stored = 0
    while True:
        mine.execute("insert into jobs values (2)")
        stored += 1


def sqlite():
    database("delete")


def sqlite_wal():
    database("wal")


def dies(_):
    os.kill(os.getpid(), signal.SIGKILL)


def works(number):
    time.sleep(0.01)
    return number


def pool():
    """A worker is killed with its work."""
    made = FORK.Pool(2)
    made.map(works, range(4))
    if STATE == "hang":
        result = made.apply_async(dies, (1,))
        before = {one.pid for one in multiprocessing.active_children()}
        while {one.pid for one in multiprocessing.active_children()} <= before:
            time.sleep(0.01)  # until another worker takes its place
        say(0)
        result.get()
    say(0)
    while True:
        made.map(works, range(4))


def pool_at_work():
    """A worker sleeps in its work."""
    made = FORK.Pool(2)
    result = made.map_async(_sleeps, [FOLDER])
    while not os.path.exists(os.path.join(FOLDER, "pid")):
        time.sleep(0.01)
    with open(os.path.join(FOLDER, "pid")) as f:
        say(int(f.read()))
    result.get()


def _sleeps(folder):
    with open(os.path.join(folder, "new"), "w") as f:
        f.write(str(os.getpid()))
    os.rename(os.path.join(folder, "new"), os.path.join(folder, "pid"))
    rests()


globals()[KIND]()
