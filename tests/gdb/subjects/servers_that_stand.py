"""servers_that_stand.py tcp|unix|handler|polled: a client waits for the answer of a server, its child. Says {"pid", "server",
"hung"}: the server of tcp and unix has not accepted the connection and waits for a lock of its own; that of handler has, but the
thread that is to answer waits for a lock that the accepting thread keeps; that of polled answers once another client comes."""

import json
import os
import queue
import socket
import sys
import tempfile
import threading

KIND = sys.argv[1]
if KIND == "unix":
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.join(tempfile.mkdtemp(), "s"))
    listener.listen()
else:
    listener = socket.create_server(("127.0.0.1", 0))


def serve():
    lock, items = threading.Lock(), queue.Queue()
    lock.acquire()

    def answer(connection):
        if KIND == "handler":
            lock.acquire()
        else:
            items.get()
        connection.sendall(b"x")

    if KIND in ("tcp", "unix"):
        lock.acquire()
    while True:
        threading.Thread(target=answer, args=(listener.accept()[0],), name="answer").start()


child = os.fork()
if child == 0:
    serve()
address = listener.getsockname()
listener.close()
client = socket.socket(listener.family)
client.connect(address)
client.sendall(b"GET")
print(json.dumps({"pid": os.getpid(), "server": child, "hung": KIND != "polled"}), flush=True)
client.recv(1)
