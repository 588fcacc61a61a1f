"""Ways in which a rank comes to stand until somebody outside lets it go on. `stand(kind, place)`: `place` is a path that no file
has yet; beside it lie what the ways need. Used by engine_of_ranks.py, and by real engines (tests/harness/planted.py).

service: a service takes the question and does not answer (the socket PLACE.service); lock, queue, pool: behind a thread that
waits so; fifo: a FIFO that nobody opens for writing; gil: the same, holding the GIL; child: a program that does not end;
network: a connection whose other end, a process, is stopped; disk: a file system that is frozen (the folder PLACE.disk); loops:
an endless loop, while PLACE.loops is there; memory: it takes memory until it is ended."""

import concurrent.futures
import ctypes
import os
import queue
import signal
import socket
import subprocess
import sys
import threading

ECHO = "import socket, sys\ns = socket.socket(fileno=int(sys.argv[1]))\nwhile True:\n    s.sendall(s.recv(1) or sys.exit())"


def stand(kind, place):
    """Returns once it may go on."""
    WAYS[kind](place)


def ask_service(place):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(place + ".service")
        s.recv(1)


def behind_a_lock(place):
    lock, held = threading.Lock(), threading.Event()

    def keep():
        with lock:
            held.set()
            ask_service(place)

    threading.Thread(target=keep, name="keeper", daemon=True).start()
    held.wait()
    with lock:
        pass


def into_a_full_queue(place):
    pending = queue.Queue(1)

    def take():
        ask_service(place)
        while pending.get():
            pass

    threading.Thread(target=take, name="taker", daemon=True).start()
    pending.put(1)
    pending.put(1)
    pending.put(0)


def for_a_pool(place):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(ask_service, place).result()


def opens_a_fifo(place):
    with open(place + ".fifo"):
        pass


def opens_it_with_the_gil(place):
    libc = ctypes.PyDLL(None)
    libc.close(libc.open((place + ".fifo").encode(), os.O_RDONLY))


def for_a_child(place):
    subprocess.run(["sleep", "3600"], check=False)


def across_a_network(place):
    here, there = socket.socketpair()
    with here, there, subprocess.Popen([sys.executable, "-c", ECHO, str(there.fileno())], pass_fds=[there.fileno()]) as proxy:
        there.close()
        here.sendall(b"x")
        here.recv(1)
        os.kill(proxy.pid, signal.SIGSTOP)
        here.sendall(b"x")
        here.recv(1)
        here.shutdown(socket.SHUT_WR)


def writes_to_disk(place):
    with open(os.path.join(place + ".disk", "file"), "wb") as f:
        f.write(b"x" * 4096)
        f.flush()
        os.fsync(f.fileno())


def in_a_loop(place):
    order = {"a": 1}
    while os.access(place + ".loops", os.F_OK):
        for _ in range(1_000_000):
            order.get("a")


def takes_memory(place):
    kept = []
    while True:
        kept.append(bytearray(b"x") * (1 << 20))


WAYS = {
    "service": ask_service, "lock": behind_a_lock, "queue": into_a_full_queue, "pool": for_a_pool, "fifo": opens_a_fifo,
    "gil": opens_it_with_the_gil, "child": for_a_child, "network": across_a_network, "disk": writes_to_disk,
    "loops": in_a_loop, "memory": takes_memory,
}  # fmt: skip
