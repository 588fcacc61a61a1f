"""Waits of situations.py that try again and again: for a file that must not be there, a file that is locked, a database, a
connection. Each takes (draw, `drawn`: what becomes of the child that has it) and gives (kind of truth, function that waits).

"slow": it gives it back and takes it again; "sleeping", "behind a lock": it keeps it; "dead": it has ended and its file stays;
"elsewhere": the file names a process of another machine; "unnamed": nothing says who made it."""

import asyncio
import contextlib
import fcntl
import json
import multiprocessing
import os
import pathlib
import random
import socket
import sqlite3
import subprocess
import tempfile
import time

from situation_parts import LATE, children, keep, stuck, tids

KEPT = ("slow", "sleeping", "behind a lock")
MADE = (*KEPT, "dead", "elsewhere", "unnamed")


def child(has, make):
    """A process that calls `has()`, then what `make()` gives; returns when it has, with the thread that it waits for, if any."""
    reads, writes = os.pipe()
    pid = os.fork()
    if not pid:
        has()
        does = make()
        os.write(writes, str(tids.get("third", "")).encode() + b"\n")
        does()
        os._exit(0)
    children.append(pid)
    tids["ender"] = pid
    third = os.read(reads, 16).decode().strip()
    if third:
        tids["third"] = int(third)
    return pid


def said(pid, drawn, draw):
    """What a file says of its maker."""
    host = "node-7.example" if drawn == "elsewhere" else os.uname().nodename
    if drawn == "unnamed":
        return ""
    forms = [f"{pid}\n{host}\n", json.dumps({"pid": pid, "host": host}), f"{host}:{pid}"]
    return draw.choice(forms if drawn == "elsewhere" else [*forms, f"{pid}\n", f"pid {pid}"])


def keeps(take, give, drawn, mine):
    """A child that has what the main thread tries to take."""
    if drawn == "slow":

        def taken():
            try:
                take(os.getpid())
            except (OSError, sqlite3.OperationalError):
                return False
            return True

        def turns():
            while True:
                time.sleep(LATE)
                give()
                time.sleep(LATE / 4)
                while not taken():
                    time.sleep(LATE / 10)

        child(lambda: take(os.getpid()), lambda: turns)
        return
    if drawn == "dead":
        pid = child(lambda: take(os.getpid()), lambda: lambda: None)
        os.waitpid(pid, 0)
        children.remove(pid)
        tids["ender"] = "ended"
        return
    if drawn in ("elsewhere", "unnamed"):
        take(1 + mine % 30000)
        tids["ender"] = "unknown"
        return
    child(lambda: take(os.getpid()), lambda: stuck(drawn))


class Path:
    """A file that is made where none must be, in a form: by O_EXCL, mode "x", mkdir, link, symlink. `text(pid)`: what it says."""

    def __init__(self, form, path, text):
        self.form, self.path, self.text = form, path, text

    def take(self, pid=None):
        path, text = self.path, self.text(pid or os.getpid())
        if self.form == "O_EXCL":
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            os.write(fd, text.encode())
            os.close(fd)
        elif self.form == "x":
            with open(path, "x") as f:
                f.write(text)
        elif self.form == "mkdir":
            os.mkdir(path)
            pathlib.Path(path, "pid").write_text(text)
        elif self.form == "link":
            other = f"{path}.{os.getpid()}"
            pathlib.Path(other).write_text(text)
            try:
                os.link(other, path)
            finally:
                os.unlink(other)
        else:
            os.symlink(text or "-", path)

    def give(self):
        if self.form == "mkdir":
            os.unlink(os.path.join(self.path, "pid"))
            os.rmdir(self.path)
        else:
            os.unlink(self.path)


class Lock:
    """As filelock's: one try in a method of its own."""

    def __init__(self, file):
        self.file, self.lock_path, self.held = file, file.path, False

    def _try(self):
        try:
            self.file.take()
        except OSError:
            return False
        self.held = True
        return True

    def acquire(self):
        began = time.monotonic()
        while not self._try():
            if time.monotonic() - began > 100000:
                raise TimeoutError(self.lock_path)
            time.sleep(random.uniform(0.01, 0.03))

    def release(self):
        self.held = False
        self.file.give()


def in_handler(it):
    tries = 0
    while True:
        try:
            it.take()
        except FileExistsError:
            tries += 1
            time.sleep(0.02)
        else:
            it.give()
            time.sleep(0.01)


def outside(it):
    lock = Lock(it)
    while True:
        lock.acquire()
        lock.release()
        time.sleep(0.01)


async def in_a_task(it):
    lock = Lock(it)
    while True:
        while not lock._try():
            await asyncio.sleep(0.02)
        lock.release()
        await asyncio.sleep(0.01)


def file(form, where):
    """`where`: its loop sleeps in the handler, outside of the function that tries, or in a task."""

    def build(draw, drawn):
        path = os.path.join(tempfile.mkdtemp(), draw.choice(("lock", "model.lock", "server.pid")))
        it = Path(form, path, lambda pid: said(pid, drawn, draw))
        keeps(it.take, it.give, drawn, os.getpid())
        loops = {"handler": in_handler, "function": outside, "task": lambda it: asyncio.run(in_a_task(it))}
        return "try", lambda: loops[where](it)

    return build


def locked(call):
    """A file that is locked without a wait, by flock or lockf."""

    def build(draw, drawn):
        path = os.path.join(tempfile.mkdtemp(), draw.choice(("lock", "state.db")))

        def opened():
            f = open(path, "w")  # noqa: SIM115
            keep.append(f)
            return f

        held = []

        def take(pid):
            held[:] = [opened()]
            call(held[0], fcntl.LOCK_EX)

        keeps(take, lambda: call(held[0], fcntl.LOCK_UN), drawn, os.getpid())

        def wait():
            f = opened()
            while True:
                try:
                    call(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    time.sleep(0.02)
                    continue
                call(f, fcntl.LOCK_UN)
                time.sleep(0.01)

        return "try", wait

    return build


def database(draw, drawn):
    path = os.path.join(tempfile.mkdtemp(), "jobs.db")
    sqlite3.connect(path).execute("create table t (n int)").connection.close()
    held = []

    def take(pid):
        held[:] = [sqlite3.connect(path, timeout=0, isolation_level=None)]
        held[0].execute("begin immediate")

    keeps(take, lambda: held[0].execute("commit"), drawn, os.getpid())

    def wait():
        mine = sqlite3.connect(path, timeout=0, isolation_level=None)
        while True:
            try:
                mine.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                time.sleep(0.02)
                continue
            mine.execute("COMMIT")
            time.sleep(0.01)

    return "try", wait


def backlog(family):
    """connect() to a listener whose queue is full."""

    def build(draw, drawn):
        listener = socket.socket(family)
        address = os.path.join(tempfile.mkdtemp(), "s") if family == socket.AF_UNIX else ("127.0.0.1", 0)
        listener.bind(address)
        listener.listen(0)
        address = listener.getsockname()

        def serve():
            n = 0
            while True:
                client, _ = listener.accept()
                client.close()
                n += 1
                time.sleep(0.01)

        child(lambda: None, lambda: serve if drawn == "slow" else stuck(drawn))
        listener.close()
        for _ in range(4 if drawn != "slow" else 0):
            s = socket.socket(family)
            s.setblocking(False)
            with contextlib.suppress(OSError):
                s.connect(address)
            keep.append(s)

        def wait():
            n = 0
            while True:
                s = socket.socket(family)
                s.connect(address)
                s.recv(1)
                s.close()
                n += 1

        return "try", wait

    return build


def fail():
    raise RuntimeError("no device")


def does_nothing():
    pass


def wait_a_moment(n):
    time.sleep(0.01)
    return n


def workers(draw, drawn):
    """A pool whose workers end at once, and are started again."""
    context = multiprocessing.get_context("fork")
    first = fail if drawn == "failing" else does_nothing
    count = draw.choice((1, 3))

    def wait():
        with contextlib.redirect_stderr(None), context.Pool(
            count, first, maxtasksperchild=None if drawn == "failing" else 5
        ) as pool:
            n = 0
            while True:
                with contextlib.suppress(ZeroDivisionError):  # all of them are being replaced at that moment
                    n += len(pool.map(wait_a_moment, range(5)))

    return "restarts", wait


def programs(draw, drawn):
    """A supervisor whose program ends at once."""
    codes = (1, 3) if drawn == "failing" else (0,)
    code = draw.choice(codes)

    def wait():
        while True:
            pid = os.fork()
            if not pid:
                os._exit(code)
            keep[:] = [subprocess.Popen(["sh", "-c", f"exit {code}"])]
            os.waitpid(pid, 0)
            keep[0].wait()
            time.sleep(0.05)

    return "restarts", wait


WAITS = {
    "workers of a pool": (workers, ("failing", "well")),
    "programs of a supervisor": (programs, ("failing", "well")),
    "O_EXCL in a task": (file("O_EXCL", "task"), MADE),
    **{f"{form} in {where}": (file(form, where), MADE) for form in ("O_EXCL", "x", "mkdir", "link", "symlink")
       for where in ("handler", "function")},
    "flock without a wait": (locked(fcntl.flock), KEPT),
    "lockf without a wait": (locked(fcntl.lockf), KEPT),
    "database without a wait": (database, KEPT),
    "full backlog": (backlog(socket.AF_INET), KEPT),
    "full backlog of a Unix socket": (backlog(socket.AF_UNIX), KEPT),
}  # fmt: skip


def truth(drawn):
    """(hung, right verdicts, culprits by name)"""
    if drawn in ("slow", "well"):
        return False, ["busy"], []
    if drawn == "failing":
        return True, ["crashed", "starved", "unknown"], []
    if drawn in ("dead", "elsewhere", "unnamed"):
        return True, ["lock-held", "starved", *(["unknown"] if drawn != "dead" else [])], []
    return True, ["lock-held", "starved"], ["third"] if drawn == "behind a lock" else ["ender"]


def ends(drawn):
    known = {"slow": [], "well": [], "failing": ["ended"], "dead": ["ended", "nobody"]}
    return known.get(drawn, ["unknown", "ended", "nobody"] if drawn in ("elsewhere", "unnamed") else ["ender", "third"])
