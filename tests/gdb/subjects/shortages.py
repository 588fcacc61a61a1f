"""shortages.py WHAT hang|well: a process for which something has run out, or nearly. WHAT: "descriptors", "accept", "shm" (its
own mount, where this user may make one). The main thread waits for an event that another thread sets for a client. Says as JSON
{"pid", "made": whether it could be made}."""

import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
import threading

what, hang = sys.argv[1], sys.argv[2] == "hang"
keep = []
LIMIT = 40


def descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
    while True:
        try:
            keep.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            break
    if not hang:
        [os.close(keep.pop()) for _ in range(10)]
    return True


def accept():
    server = socket.create_server(("127.0.0.1", 0), backlog=2)
    keep.append(server)
    for _ in range(3 if hang else 1):
        client = socket.create_connection(server.getsockname())
        keep.append(client)
        if not hang:
            keep.append(server.accept()[0])
    return True


def shm():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x20000) or libc.mount(None, b"/", None, 0x40000 | 0x4000, None):  # CLONE_NEWNS; MS_PRIVATE | MS_REC
        return False
    if libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=1m"):
        return False
    with open("/dev/shm/all", "wb") as f:
        try:
            f.write(b"x" * ((1 << 20) if hang else 4096))
        except OSError:
            pass
    return True


def main():
    asks = socket.create_server(("127.0.0.1", 0))
    made = {"descriptors": descriptors, "accept": accept, "shm": shm}[what]()
    event = threading.Event()
    threading.Thread(target=lambda it: select.select([asks], [], []) and it.set(), args=(event,), daemon=True).start()
    print(json.dumps({"pid": os.getpid(), "made": made}), flush=True)
    event.wait()


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    main()
