"""Programs of several processes, and servers, for foreign_programs.py."""

import asyncio
import concurrent.futures
import http.client
import http.server
import itertools
import multiprocessing
import os
import signal
import socketserver
import subprocess
import sys
import time
import xmlrpc.server

from foreign_programs import LATE, forked, nap, program

FORK = multiprocessing.get_context("fork")


class Answers(http.server.BaseHTTPRequestHandler):
    hung = True

    def do_GET(self):
        nap(self.hung)
        self.send_response(204)
        self.end_headers()


FILTER = "import sys\nfor line in sys.stdin:\n    print(line, end='', flush=True)"


@program("starved")
def http_request(say, hung):
    """A client of http.client; the handler of http.server in another process sleeps."""
    Answers.hung = hung
    server = http.server.HTTPServer(("127.0.0.1", 0), Answers)
    child = forked(server.serve_forever)
    port = server.server_address[1]
    server.server_close()
    say(child)
    while True:
        client = http.client.HTTPConnection("127.0.0.1", port)
        client.request("GET", "/")
        client.getresponse()


@program("starved")
def pool_map(say, hung):
    with FORK.Pool(2) as pool:
        say(*(p.pid for p in pool._pool))
        while True:
            pool.map(time.sleep, [1000 if hung else LATE] * 2)


@program("starved")
def executor_result(say, hung):
    with concurrent.futures.ProcessPoolExecutor(1, FORK) as pool:
        pool.submit(abs, 1).result()
        say(*pool._processes)
        while True:
            pool.submit(nap, hung).result()


@program("starved", "crashed")
def pool_worker_killed(say, hung):
    """The pool starts another worker; what the dead one did is never answered."""
    with FORK.Pool(1) as pool:
        result = pool.apply_async(os._exit if hung else abs, (1,))
        time.sleep(0.5)
        say()
        while True:
            result.get()
            result = pool.apply_async(nap, (False,))


@program("starved")
def pipe_that_is_full(say, hung):
    """The child does not read what is written to it."""
    reads = "import sys, time; time.sleep(int(sys.argv[1])); [None for line in sys.stdin.buffer]"
    child = subprocess.Popen([sys.executable, "-c", reads, "1000" if hung else "0"], stdin=subprocess.PIPE)
    say(child.pid)
    while True:
        child.stdin.write(b"x" * (1 << 20) + b"\n")
        time.sleep(LATE)


@program("crashed")
def a_barrier_whose_other_process_has_ended(say, hung):
    barrier = FORK.Barrier(2)

    def come():
        for _ in itertools.count():
            time.sleep(LATE)
            barrier.wait()

    child = FORK.Process(target=os._exit if hung else come, args=(3,) if hung else ())
    child.start()
    time.sleep(0.5)
    say(child.pid)
    while True:
        barrier.wait()


@program("crashed")
def a_queue_whose_producer_was_killed(say, hung):
    q = FORK.Queue()

    def produce():
        for n in itertools.count():
            q.put(n)
            time.sleep(LATE)

    child = FORK.Process(target=produce)
    child.start()
    time.sleep(0.5)
    if hung:
        os.kill(child.pid, signal.SIGKILL)
    say(child.pid)
    while True:
        q.get()


@program("stopped")
def output_of_a_stopped_child(say, hung):
    counts = "import itertools, time; [(print(n, flush=True), time.sleep(0.02)) for n in itertools.count()]"
    child = subprocess.Popen([sys.executable, "-c", counts], stdout=subprocess.PIPE)
    child.stdout.readline()
    if hung:
        os.kill(child.pid, signal.SIGSTOP)
    say(child.pid)
    for line in child.stdout:
        int(line)


@program("stopped")
def a_manager_that_is_stopped(say, hung):
    with FORK.Manager() as manager:
        held = manager.dict()
        if hung:
            os.kill(manager._process.pid, signal.SIGSTOP)
        say(manager._process.pid)
        for n in itertools.count():
            held["n"] = n
            time.sleep(LATE)


def _worker_of_an_engine(title, work, say, hung):
    """A process with an engine's title whose parent has one too; hung: that one is gone."""
    from setproctitle import setproctitle

    read, write = os.pipe()

    def engine():
        setproctitle(f"{title.partition('::')[0]}::EngineCore")
        worker = forked(lambda: (setproctitle(title), work()))
        os.write(write, b"%d\n" % worker)
        if hung:
            os._exit(0)
        time.sleep(1000)

    forked(engine)
    worker = int(os.read(read, 100))
    if hung:
        os.wait()
    time.sleep(0.3)
    say(worker, alone=False)
    time.sleep(1000)


@program("orphaned")
def a_worker_that_waits_for_commands(say, hung):
    ends = FORK.Pipe()
    _worker_of_an_engine("VLLM::Worker_TP0", ends[0].recv, say, hung)


@program("orphaned")
def a_worker_that_serves(say, hung):
    """It waits for connections as the server that it is."""

    def serve():
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers).serve_forever()

    _worker_of_an_engine("VLLM::Worker_TP1", serve, say, hung)


@program("loop-blocked")
def asyncio_server(say, hung):
    """A callback of the server's connection sleeps; another task is ready."""

    async def main():
        async def handle(reader, writer):
            if hung:
                time.sleep(1000)
            await asyncio.sleep(LATE)

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        async def ask():
            await asyncio.open_connection("127.0.0.1", port)
            while True:
                await asyncio.sleep(LATE)

        tasks = [asyncio.create_task(ask()) for _ in range(3)]
        say()
        await asyncio.gather(*tasks)

    asyncio.run(main())


@program()
def http_server(say, hung):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    say()
    server.serve_forever()


@program()
def xmlrpc_server(say, hung):
    server = xmlrpc.server.SimpleXMLRPCServer(("127.0.0.1", 0))
    say()
    server.serve_forever()


@program()
def udp_server(say, hung):
    for port in range(20000 + os.getpid() % 10000, 32000):  # below those that the kernel chooses for clients
        try:
            server = socketserver.UDPServer(("127.0.0.1", port), socketserver.BaseRequestHandler)
        except OSError:
            continue
        say()
        server.serve_forever()


@program()
def pool_that_goes_on(say, hung):
    with FORK.Pool(1) as pool:
        say(*(p.pid for p in pool._pool))
        done = 0
        while True:
            done += len(pool.map(abs, range(50)))


@program("starved", "lock-cycle")
def a_filter_whose_input_stays_open(say, hung):
    """Who starts it reads its answer before it has closed what it reads: each waits for the other."""
    child = subprocess.Popen([sys.executable, "-c", FILTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    say(child.pid)
    for _ in itertools.count():
        if not hung:
            child.stdin.write(b"line\n")
        child.stdout.readline()
        time.sleep(LATE)
