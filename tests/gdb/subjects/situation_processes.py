"""Waits of situations.py for other processes. Each takes (draw, `drawn`: what the ender does) and gives (kind of truth,
function that waits)."""

import contextlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

from situation_parts import LATE, SPINNING, STUCK, children, keep, listener, spinning, tids


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


def receives(near):
    """A wait for one byte after the other."""

    def wait():
        n = 0
        while True:
            near.recv(1)
            n += 1

    return wait


def a_socket(limit):
    def build(draw, drawn):
        near, far = socket.socketpair()
        if drawn == "nobody":
            keep.append(far)
        else:
            child(lived(drawn, lambda: far.send(b"x")))
        near.settimeout(limit)
        return "child", receives(near)

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
    return "child", receives(near)


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


def a_childs_output(draw, drawn):
    """What another program writes."""
    code = {"slow": f"import time\nwhile True:\n    print(1, flush=True)\n    time.sleep({LATE})", "spinning": "while True: pass"}
    code = code.get(drawn, "import time\nwhile True: time.sleep(100000)")
    started = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    children.append(started.pid)
    tids["ender"] = started.pid

    def wait():
        n = 0
        while True:
            started.stdout.readline()
            n += 1

    return "child", wait


def a_childs_both_outputs(draw, drawn):
    """What another program writes until it ends, with a time limit."""
    code = {"sleeping": "import time\nwhile True: time.sleep(100000)", "spinning": "while True: pass"}[drawn]
    started = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    children.append(started.pid)
    tids["ender"] = started.pid
    return "child", lambda: started.communicate(timeout=600)


def a_queue_of_processes(draw, drawn):
    q = multiprocessing.get_context("fork").SimpleQueue()
    child(lived(drawn, lambda: q.put(1)))

    def wait():
        n = 0
        while True:
            n += q.get()

    return "child", wait


def a_process(draw, drawn):
    """The end of a multiprocessing.Process."""
    made = multiprocessing.get_context("fork").Process(target=lived(drawn, None))
    made.start()
    children.append(made.pid)
    tids["ender"] = made.pid
    return "child", made.join


def held_by_a_child(make, taken):
    """A lock that `make()` makes, or the path of one; `taken(it)` is a context manager that has it."""

    def build(draw, drawn):
        it = make()
        read, write = os.pipe()

        def hold():
            while True:
                with taken(it):
                    os.write(write, b"x")
                    if drawn != "slow":
                        lived(drawn, None)()
                    time.sleep(LATE / 2)
                time.sleep(LATE)

        child(hold)
        os.read(read, 1)

        def wait():
            n = 0
            while True:
                with taken(it):
                    n += 1
                time.sleep(0.01)

        return "lock", wait

    return build


@contextlib.contextmanager
def file_locked(path):
    import fcntl

    with open(path, "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def record_locked(path):
    import fcntl

    with open(path, "w") as f:
        fcntl.lockf(f, fcntl.LOCK_EX)
        yield


def locked(made):
    return made


def a_path():
    return os.path.join(tempfile.mkdtemp(), "lock")


HOLDS = ("slow", "sleeping", "receiving", "spinning", "trying")
CHILD = ("slow", "sleeping", "receiving", "spinning")
FORK = multiprocessing.get_context("fork")
WAITS = {
    "pipe": (a_pipe, CHILD),
    "socket": (a_socket(None), (*CHILD, "nobody")),
    "socket with a limit": (a_socket(600), (*CHILD, "nobody")),
    "client": (a_client, CHILD),
    "child": (a_child, CHILD),
    "process": (a_process, ("sleeping", "receiving", "spinning", "trying")),
    "child's output": (a_childs_output, ("slow", "sleeping", "spinning")),
    "child's outputs with a limit": (a_childs_both_outputs, ("sleeping", "spinning")),
    "queue of processes": (a_queue_of_processes, CHILD),
    "file lock": (held_by_a_child(a_path, file_locked), HOLDS),
    "record lock": (held_by_a_child(a_path, record_locked), HOLDS),
    "lock of processes": (held_by_a_child(FORK.Lock, locked), HOLDS),
    "semaphore of processes": (held_by_a_child(lambda: FORK.Semaphore(1), locked), HOLDS),
}
