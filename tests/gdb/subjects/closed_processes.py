"""closed_processes.py NAME hung|well: processes that wait for each other, and nobody outside can end that; well: one of them
might. Says {"pid"} as JSON before the last of them waits."""

import json
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time

NAME, HUNG = sys.argv[1], sys.argv[2] == "hung"
fork = multiprocessing.get_context("fork")


def say():
    print(json.dumps({"pid": os.getpid()}), flush=True)


def job(number):
    if number == 2 and HUNG:
        os.kill(os.getpid(), signal.SIGKILL)  # its job is lost, another worker takes its place
    time.sleep(0 if HUNG else 1000)


def pool():
    with fork.Pool(2) as workers:
        result = workers.map_async(job, range(4), chunksize=1)
        say()
        result.get()


def child():
    """A child that is to write into a pipe, and waits for an event that only it could set."""
    near, far = fork.Pipe(duplex=False)

    def serve():
        near.close()
        event = threading.Event()
        if not HUNG:
            threading.Thread(target=lambda: (time.sleep(1000), event.set()), daemon=True).start()
        event.wait()
        far.send(1)

    fork.Process(target=serve).start()
    far.close()
    ready = threading.Event()
    threading.Thread(target=lambda: (near.recv(), ready.set()), name="reader").start()
    say()
    ready.wait()


def itself():
    """A server of one thread that asks itself while it answers; well: another thread answers that."""
    listener = socket.create_server(("127.0.0.1", 0))

    def ask():
        connection = socket.create_connection(listener.getsockname())
        connection.sendall(b"x")
        return connection.recv(1)

    def serve():
        while True:
            connection, _ = listener.accept()
            if HUNG:
                ask()
            else:
                threading.Thread(target=lambda: (time.sleep(1000), connection.sendall(b"x")), daemon=True).start()

    threading.Thread(target=serve, name="server").start()
    say()
    ask()


def joined():
    """A process that waits for the end of its child, which wants a lock that was taken when it was forked."""
    lock = threading.Lock()
    if HUNG:
        lock.acquire()

    def serve():
        with lock:
            time.sleep(1000)

    one = fork.Process(target=serve)
    one.start()
    say()
    one.join()


{"pool": pool, "child": child, "itself": itself, "joined": joined}[NAME]()
