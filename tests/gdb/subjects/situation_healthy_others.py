"""The fifth family of waits of situations.py: programs of several processes, servers, and torch."""

import concurrent.futures
import fcntl
import http.client
import http.server
import json
import multiprocessing
import os
import selectors
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time

from situation_healthy import FORK, LOCK, REST, STOPPED, WORK, asks, child, listener, program, step, stop
from situation_parts import children, forever, keep, lock_of_a_third, thread, tids


@program(WORK, REST, STOPPED)
def a_pool_of_processes(draw, drawn):
    pool = FORK.Pool(draw.choice((1, 2)))
    keep.append(pool)
    children.extend(one.pid for one in pool._pool)
    if drawn == STOPPED:
        for one in pool._pool:
            os.kill(one.pid, signal.SIGSTOP)
        tids["ender"] = pool._pool[0].pid
        return lambda: pool.map(step, range(4))
    s = listener()

    def maps():
        n = 0
        while True:
            n += len(pool.map(step, range(20)))

    def serves():
        while True:
            s.accept()[0].sendall(str(pool.map(step, range(2))).encode())

    return maps if drawn == WORK else serves


@program(WORK, STOPPED)
def an_executor_of_processes(draw, drawn):
    pool = concurrent.futures.ProcessPoolExecutor(2, FORK)
    keep.append(pool)
    pool.submit(step, 1).result()
    children.extend(pool._processes)
    if drawn == STOPPED:
        for pid in pool._processes:
            os.kill(pid, signal.SIGSTOP)
        tids["ender"] = next(iter(pool._processes))
        return lambda: pool.submit(step, 2).result()

    def maps():
        n = 0
        while True:
            n += len(list(pool.map(step, range(20))))

    return maps


@program(WORK, REST)
def servers_that_were_forked(draw, drawn):
    """As gunicorn: the parent waits for the end of its workers, which accept from one socket."""
    s = listener()

    def serves():
        while True:
            one = s.accept()[0]
            while one.recv(1):
                step()
                one.sendall(b"y")

    mine = [child(serves) for _ in range(2)]
    if drawn == WORK:
        for _ in range(2):
            child(asks, s.getsockname()[1], 0.001)
    return lambda: [os.waitpid(pid, 0) for pid in mine]


@program(WORK, REST, STOPPED)
def ranks_that_read_commands(draw, drawn):
    """Four forks, each with the ends of pipes of those before it, read commands; the parent serves, or feeds them."""
    ends = []
    for _ in range(4):
        commands, answers = os.pipe(), os.pipe()

        def works(reads=commands[0], writes=answers[1]):
            while True:
                step(len(os.read(reads, 10)))
                os.write(writes, b"y")

        ends.append((commands[1], answers[0]))
        child(works)
    if drawn == STOPPED:
        stop(children[-1])
    s = listener()

    def serves():
        while True:
            s.accept()[0].close()

    def feeds():
        n = 0
        while True:
            for command, _ in ends:
                os.write(command, b"x")
            for _, answer in ends:
                n += len(os.read(answer, 1))

    return serves if drawn == REST else feeds


@program(WORK, REST, STOPPED)
def consumers_of_a_queue_of_processes(draw, drawn):
    jobs, done = FORK.Queue(), FORK.Queue()

    def works():
        while True:
            done.put(step(jobs.get()))

    for _ in range(2):
        child(works)
    if drawn == STOPPED:
        for pid in children[-2:]:
            stop(pid)
    s = listener()

    def serves():
        while True:
            jobs.put(len(s.accept()[0].recv(1)))

    def feeds():
        n = 0
        while True:
            jobs.put(n)
            n += 1
            done.get()

    return serves if drawn == REST else feeds


@program(WORK, STOPPED)
def output_of_a_program(draw, drawn):
    """Lines of a program that computes between them, or of a pipeline."""
    words = ["sh", "-c", "i=0; while :; do i=$((i+1)); [ $((i % 5000)) = 0 ] && echo $i; done; true"]
    made = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    if drawn == STOPPED:
        stop(made.pid)

    def reads():
        n = 0
        for line in made.stdout:
            n += len(line)

    return reads


@program(WORK, STOPPED)
def end_of_a_program(draw, drawn):
    made = subprocess.Popen(["sh", "-c", "sh -c 'while :; do :; done'; true"])
    if drawn == STOPPED:
        stop(made.pid)
    ways = (made.wait, lambda: os.waitpid(made.pid, 0), made.communicate)
    way = draw.choice(ways)
    return way if draw.random() < 0.5 else thread("waits", way).join


@program(WORK, REST)
def a_queue_in_a_database(draw, drawn):
    """A worker asks a table for jobs, as many queues in databases are asked; another process puts them in, or none."""
    path = f"{tempfile.mkdtemp()}/jobs"
    with sqlite3.connect(path) as db:
        db.execute("create table jobs (n integer)")

    def puts():
        with sqlite3.connect(path, timeout=60, isolation_level=None) as own:
            while True:
                own.execute("insert into jobs values (1)")
                time.sleep(0.01)

    if drawn == WORK:
        child(puts)

    def works():
        with sqlite3.connect(path, timeout=60, isolation_level=None) as own:
            n = 0
            while True:
                for (job,) in own.execute("select n from jobs").fetchall():
                    n += step(job) % 3
                own.execute("delete from jobs")
                time.sleep(0.02 if drawn == WORK else 1)

    return works


@program(WORK, LOCK)
def taken_by_turns(draw, drawn):
    """Processes that take a lock on a file for each step."""
    path = tempfile.mkstemp()[1]

    def works():
        file, n = open(path, "w"), 0  # noqa: SIM115
        while True:
            fcntl.flock(file, fcntl.LOCK_EX)
            n += step(n) % 5
            while drawn == LOCK and os.getpid() in (tids.get("ender"), None):
                forever()
            fcntl.flock(file, fcntl.LOCK_UN)

    if drawn == LOCK:

        def keeps():
            file = open(path, "w")  # noqa: SIM115
            fcntl.flock(file, fcntl.LOCK_EX)
            keep.append(file)
            forever()

        tids["ender"] = child(keeps)
        time.sleep(0.2)
    else:
        child(works)
    return works


@program(WORK, REST, LOCK)
def a_server_by_selectors(draw, drawn):
    lock = lock_of_a_third() if drawn == LOCK else threading.Lock()
    s, chosen = listener(), selectors.DefaultSelector()
    chosen.register(s, selectors.EVENT_READ)
    if drawn != REST:
        child(asks, s.getsockname()[1], 0.001)

    def serves():
        while True:
            for key, _ in chosen.select(draw.choice((None, 1.0))):
                if key.fileobj is s:
                    chosen.register(s.accept()[0], selectors.EVENT_READ)
                elif key.fileobj.recv(1):
                    with lock:
                        step()
                    key.fileobj.sendall(b"y")

    if draw.random() < 0.5:
        return serves
    return thread("ender", serves).join


@program(WORK, REST)
def a_broker_and_its_worker(draw, drawn):
    """A worker waits at its connection to a broker, as at Redis's BLPOP; the broker is a process beside."""
    s = listener()

    def brokers():
        one, n = s.accept()[0], 0
        while drawn == WORK:
            one.sendall(json.dumps({"n": n}).encode())
            n += len(one.recv(100))
            time.sleep(0.005)
        s.accept()

    child(brokers)
    port = s.getsockname()[1]
    s.close()
    c = socket.create_connection(("127.0.0.1", port))

    def works():
        n = 0
        while True:
            n += len(c.recv(100))
            c.sendall(b"%d" % (step(n) % 9))

    return works


@program(WORK, REST)
def a_http_server(draw, drawn):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            body = str(step()).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def gets():
        while True:
            one = http.client.HTTPConnection("127.0.0.1", server.server_port)
            one.request("GET", "/")
            one.getresponse().read()
            one.close()

    if drawn == WORK:
        child(gets)
    return server.serve_forever if draw.random() < 0.5 else thread("server", server.serve_forever).join


# ---- torch -----------------------------------------------------------------------------------------------------------
@program(WORK, STOPPED, needs="torch")
def a_loader_of_data(draw, drawn):
    """A loop that trains on what the workers of a DataLoader load."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Numbers(Dataset):
        def __len__(self):
            return 1 << 20

        def __getitem__(self, n):
            return torch.tensor([float(step(n) % 7)] * 64)

    loader = DataLoader(Numbers(), 4, num_workers=2, multiprocessing_context="fork")
    torch.set_num_threads(1)

    batches, weights = iter(loader), torch.zeros(64, requires_grad=True)
    children.extend(one.pid for one in multiprocessing.active_children())

    def trains():
        n = 0
        for batch in batches:
            n += 1
            loss = ((batch @ weights) ** 2).mean()
            loss.backward()
            with torch.no_grad():
                weights.sub_(0.01 * weights.grad)
                weights.grad.zero_()

    if drawn == STOPPED:
        for pid in children:
            stop(pid)
    return trains


@program(WORK, REST, STOPPED, needs="torch")
def ranks_of_gloo(draw, drawn):
    """Ranks that reduce after each step; at rest rank 0 waits for a client and the others for its broadcast."""
    import torch
    import torch.distributed as dist

    size, s = draw.choice((2, 3)), listener()
    port = listener()
    number = port.getsockname()[1]
    port.close()
    torch.set_num_threads(1)

    def begins(rank):
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{number}", rank=rank, world_size=size)
        dist.all_reduce(torch.zeros(16))

    def lives(rank):
        n, one = 0, torch.zeros(16)
        while True:
            if drawn == REST:
                if not rank:
                    s.accept()
                dist.broadcast(one, 0)
                continue
            n += step(n) % 3
            one += n
            dist.all_reduce(one)

    def forked(rank):
        begins(rank)
        if drawn == STOPPED and rank == size - 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        lives(rank)

    for rank in range(1, size):
        tids["ender"] = child(forked, rank)
    begins(0)
    return lambda: lives(0)


@program(WORK, LOCK, needs="torch")
def a_model_that_computes(draw, drawn):
    import torch

    lock = lock_of_a_third() if drawn == LOCK else threading.Lock()
    torch.set_num_threads(1)

    def computes():
        it, n = torch.randn(300, 300), 0
        while True:
            with lock:
                it = torch.softmax(it @ it, -1)
            n += 1

    return computes if draw.random() < 0.5 else thread("ender", computes).join
