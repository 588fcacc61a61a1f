"""silent_server.py FOLDER KIND: a FAKE of vLLM's server, started as FOLDER/vllm serve m --port P, with a child that idles. Says
{"pid", "port", "stands": whether its event loop does}. KIND: see `KINDS`."""

import asyncio
import json
import os
import socket
import sys
import threading
import time


def a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def a_pipe():
    os.read(os.pipe()[0], 1)


def computes():
    while True:
        pass


STANDS = {"sleep": lambda: time.sleep(3600), "lock": a_lock, "pipe": a_pipe}
KINDS = {**STANDS, "computes": computes, "well": None, "slow": None, "reads": None}


async def serve(kind, port):
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        if kind in ("slow", "reads"):
            await asyncio.sleep(3600 if kind == "reads" else 4)
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", port):
        print(json.dumps({"pid": os.getpid(), "port": port, "stands": kind in STANDS}), flush=True)
        await asyncio.sleep(0.5)
        if KINDS[kind] is not None:
            KINDS[kind]()
        await asyncio.sleep(3600)


def main():
    if sys.argv[1] == "serve":
        if not os.fork():
            time.sleep(3600)
        asyncio.run(serve(os.environ["KIND"], int(sys.argv[4])))
    folder, kind = sys.argv[1:3]
    path = os.path.join(folder, "vllm")
    if not os.path.lexists(path):
        os.symlink(os.path.abspath(__file__), path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.execve(sys.executable, [sys.executable, path, "serve", "m", "--port", str(port)], {**os.environ, "KIND": kind})


main()
