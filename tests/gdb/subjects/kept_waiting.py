"""`kept_waiting.py SEED`: a row of processes. Each waits for the next one in a drawn way, and the last one does something drawn.
Prints {"drawn", "guilty": the pid that keeps the others waiting or null, "pids"}, the first process first."""

import fcntl
import json
import os
import random
import socket
import sys
import tempfile
import threading
import time

SLOW = 0.05  # seconds between two gifts of one that is slow but goes on


def pipe():
    r, w = os.pipe()
    return (lambda: os.close(r)), (lambda: os.write(w, b"x")), (lambda: os.close(w)), (lambda: os.read(r, 1))


def unix():
    near, far = socket.socketpair()
    return near.close, (lambda: far.send(b"x")), far.close, (lambda: near.recv(1))


def tcp():
    server = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(server.getsockname())
    far, _ = server.accept()
    server.close()
    return near.close, (lambda: far.send(b"x")), far.close, (lambda: near.recv(1))


def full_pipe():
    r, w = os.pipe()
    fcntl.fcntl(w, 1031, 4096)  # F_SETPIPE_SZ
    return (lambda: os.close(w)), (lambda: os.read(r, 4096)), (lambda: os.close(r)), (lambda: os.write(w, b"x" * 4096))


def full_socket():
    near, far = socket.socketpair()
    return near.close, (lambda: far.recv(1 << 16)), far.close, (lambda: near.sendall(b"x" * (1 << 16)))


def file_lock():
    """The next process has it, and gives it by letting go for a moment."""
    path = tempfile.NamedTemporaryFile(delete=False).name
    held = []

    def give():
        if held:
            fcntl.flock(held.pop(), fcntl.LOCK_UN)
            time.sleep(SLOW)
        held.append(open(path))
        fcntl.flock(held[0], fcntl.LOCK_EX)

    def take():
        with open(path) as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            fcntl.flock(f, fcntl.LOCK_UN)
        time.sleep(SLOW / 2)

    return (lambda: None), give, (lambda: None), take


LINKS = {"pipe": pipe, "unix": unix, "tcp": tcp, "full pipe": full_pipe, "full socket": full_socket, "file lock": file_lock}


def own_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def own_socket():
    near, far = socket.socketpair()
    near.recv(1)


def spin():
    while True:
        pass


def serve():
    socket.create_server(("127.0.0.1", 0)).accept()


GUILTY = {
    "sleeps": lambda: time.sleep(10000),
    "own lock": own_lock,
    "own socket": own_socket,
    "stopped": lambda: os.kill(os.getpid(), 19),
}
OTHERS = {"spins": spin, "serves": serve, "slow": None}  # nobody is to be accused of the last two; the first cannot be known


def idle_worker():
    """As a pool's: it waits for a job of its parent."""
    r, w = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(w)
        os.read(r, 1)
        os._exit(0)
    os.close(r)
    return pid, w


def live(links, end, pids, told, give=None):
    """What one process does: `links` are its wait and those after it, [] for the last one. `give()`: what the one before waits
    for. `told`: a pipe that is told all pids once the last one lives."""
    pids = [*pids, os.getpid()]
    if not links:
        os.write(told, json.dumps(pids).encode())
        while end == "slow":
            time.sleep(SLOW)
            give()
        while True:
            {**GUILTY, **OTHERS}[end]()
    not_mine, gives, not_its, take = LINKS[links[0]]() if links[0] != "child" else (int, None, int, None)
    child = os.fork()
    if not child:
        not_mine()
        if links[0] == "file lock":
            gives()  # it has it before it says so
        live(links[1:], end, pids, told, gives)
    not_its()
    os.close(told)
    time.sleep(0.4)
    while take is not None:
        take()
        if give is not None:
            give()
    os.waitpid(child, 0)


def main():
    draw = random.Random(int(sys.argv[1]))
    end = draw.choice([*GUILTY, *GUILTY, *OTHERS])
    links = [draw.choice(list(LINKS)) for _ in range(draw.choice([1, 1, 2, 3]))]
    if end != "slow" and draw.random() < 0.3:
        links[draw.randrange(len(links))] = "child"
    workers = [idle_worker() for _ in range(draw.choice([0, 0, 2]))]
    told, telling = os.pipe()
    first = os.fork()
    if not first:
        os.close(told)
        live(links, end, [], telling)
    os.close(telling)
    pids = json.loads(os.read(told, 4096))
    time.sleep(0.6)
    truth = {"end": end, "guilty": pids[-1] if end in GUILTY else None, "pids": pids, "workers": [pid for pid, _ in workers]}
    print(json.dumps({"drawn": f"{', '.join(links)}: {end}, {len(workers)} idle workers", **truth}), flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main()
