"""Waits of situations.py for other processes. Each takes (draw, `drawn`: what the ender does) and gives (kind of truth,
function that waits)."""

import multiprocessing
import os
import signal
import socket
import subprocess
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
