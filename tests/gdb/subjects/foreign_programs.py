"""foreign_programs.py NAME: a server, pool or pipeline of the standard library, whose own code does the waiting, brought into a
hang or left well. Says {"pids": to look at, "right": verdicts}, then lives it. "unknown" is right too, always."""

import asyncio
import concurrent.futures
import contextlib
import hashlib
import http.client
import http.server
import json
import logging
import logging.handlers
import multiprocessing
import os
import queue
import re
import socketserver
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import xmlrpc.server

PROGRAMS = {}


def program(*right):
    def take(function):
        PROGRAMS[function.__name__] = function, right
        return function

    return take


def begin(function, *arguments):
    threading.Thread(target=function, args=arguments, daemon=True).start()
    time.sleep(0.2)


def forked(function):
    pid = os.fork()
    if not pid:
        try:
            function()
        finally:
            os._exit(1)
    return pid


class Stuck(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(1000)


@program("lock-held")
def logging_handler(say):
    """A thread keeps a handler's lock; the main thread logs."""
    handler = logging.StreamHandler(open(os.devnull, "w"))  # noqa: SIM115
    logging.getLogger().addHandler(handler)

    def keep():
        handler.acquire()
        time.sleep(1000)

    begin(keep)
    say()
    logging.error("one line")


@program("lock-held")
def sqlite_writer(say):
    """Two connections to one file, both to write."""
    path = os.path.join(tempfile.mkdtemp(), "db")
    first = sqlite3.connect(path, isolation_level=None)
    first.execute("create table t (n)")
    first.execute("begin exclusive")
    second = sqlite3.connect(path, timeout=1000)
    say()
    second.execute("insert into t values (1)")


@program("lock-cycle")
def logging_handlers_crosswise(say):
    one, two, meet = logging.StreamHandler(), logging.StreamHandler(), threading.Barrier(2)

    def take(first, second):
        with first.lock:
            meet.wait()
            with second.lock:
                pass

    begin(take, one, two)
    say()
    take(two, one)


@program("lock-held", "lock-cycle")
def queue_in_its_own_mutex(say):
    """What a signal handler that puts into the queue of the code it interrupts does."""
    q = queue.Queue()
    with q.mutex:
        say()
        q.put(1)


@program("starved")
def http_request(say):
    """A client of http.client; the handler of http.server in another process sleeps."""
    server = http.server.HTTPServer(("127.0.0.1", 0), Stuck)
    child = forked(server.serve_forever)
    port = server.server_address[1]
    server.server_close()
    client = http.client.HTTPConnection("127.0.0.1", port)
    client.request("GET", "/")
    say(child)
    client.getresponse()


@program("starved")
def pool_map(say):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        result = pool.map_async(time.sleep, [1000, 1000])
        say(*(p.pid for p in pool._pool))
        result.get()


@program("starved")
def executor_result(say):
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        result = pool.submit(time.sleep, 1000)
        time.sleep(0.3)
        say(*pool._processes)
        result.result()


@program("starved", "crashed")
def pool_worker_killed(say):
    """The pool starts another worker; what the dead one did is never answered."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        result = pool.apply_async(os._exit, (1,))
        time.sleep(0.5)
        say()
        result.get()


@program("starved")
def pipe_that_is_full(say):
    """The child does not read what is written to it."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], stdin=subprocess.PIPE)
    say(child.pid)
    child.stdin.write(b"x" * (1 << 20))


@program("dead-thread")
def pipeline_of_queues(say):
    """The thread that takes the items has died of an error."""
    q = queue.Queue()

    def consume(q):
        int(q.get())

    threading.excepthook = lambda what: None
    consumer = threading.Thread(target=consume, args=(q,))
    consumer.start()
    q.put("no number")
    consumer.join()
    say()
    q.join()
    return consumer


@program("dead-thread")
def queue_listener(say):
    """logging's QueueListener has lost its thread; its queue is full."""
    q = queue.Queue(1)
    listener = logging.handlers.QueueListener(q)
    threading.excepthook = lambda what: None
    listener.handle = lambda record: 1 / 0
    listener.start()
    q.put(logging.makeLogRecord({}))
    listener._thread.join()
    q.put(1)
    say()
    q.put(2)


@program("gil", "livelock")
def backtracking(say):
    """A regular expression that backtracks for ever keeps the GIL."""

    def match():
        time.sleep(0.5)
        re.match("(a+)+$", "a" * 60 + "b")

    thread = threading.Thread(target=match, daemon=True)
    thread.start()
    say()
    thread.join()


@program("livelock")
def future_of_a_loop(say):
    """The pool's thread works without end on what is waited for."""

    def work():
        while True:
            pass

    say()
    concurrent.futures.ThreadPoolExecutor(1).submit(work).result()


@program("loop-blocked")
def asyncio_server(say):
    """A callback of the server's connection sleeps; another task is ready."""

    async def main():
        async def handle(reader, writer):
            time.sleep(1000)

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        async def ask():
            await asyncio.open_connection("127.0.0.1", port)
            while True:
                await asyncio.sleep(0.01)

        tasks = [asyncio.create_task(ask()) for _ in range(3)]
        say()
        await asyncio.gather(*tasks)

    asyncio.run(main())


@program("idle")
def http_server(say):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stuck)
    say()
    server.serve_forever()


@program("idle")
def xmlrpc_server(say):
    server = xmlrpc.server.SimpleXMLRPCServer(("127.0.0.1", 0))
    say()
    server.serve_forever()


@program("idle")
def udp_server(say):
    server = socketserver.UDPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler)
    say()
    server.serve_forever()


@program("busy")
def hashes(say):
    say()
    h = hashlib.sha256()
    for n in iter(int, 1):
        h.update(bytes(100000 + n))


@program("busy")
def pool_that_goes_on(say):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        say(*(p.pid for p in pool._pool))
        done = 0
        while True:
            done += len(pool.map(abs, range(50)))


def main():
    function, right = PROGRAMS[sys.argv[1]]

    def say(*children):
        print(json.dumps({"pids": [os.getpid(), *children], "right": right}), flush=True)

    with contextlib.suppress(KeyboardInterrupt):
        function(say)


if __name__ == "__main__":
    if sys.argv[1:] == ["-list"]:
        print(json.dumps(list(PROGRAMS)))
    else:
        main()
