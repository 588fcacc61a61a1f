"""reported.py KIND hung|well: hangs of public reports made small, and their healthy twins (docs/verdicts.md has the addresses).

Prints READY and {"pid", "pids" (to be asked too), "true" (pids, tids, or tasks' names at which a chain may end)}; stays."""

import asyncio
import atexit
import concurrent.futures
import json
import multiprocessing
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

FORK = multiprocessing.get_context("fork")
BIG = b"x" * (1 << 20)
KINDS, keep, pids, true = {}, [], [], []
HUNG = sys.argv[2:] == ["hung"]


def kind(function):
    KINDS[function.__name__] = function
    return function


def ready():
    print("READY " + json.dumps({"pid": os.getpid(), "pids": pids, "true": [*true, *pids, os.getpid()]}), flush=True)


def soon(seconds=0.6):
    """Says ready in a while, when the main thread waits."""
    threading.Thread(target=lambda: (time.sleep(seconds), ready()), daemon=True).start()


def child(function):
    pid = os.fork()
    if not pid:
        try:
            function()
        finally:
            os._exit(0)
    pids.append(pid)
    return pid


def thread(function, daemon=True):
    def body():
        true.append(threading.get_native_id())
        function()

    made = threading.Thread(target=body, daemon=daemon)
    made.start()
    return made


def work():
    n = 0
    while True:
        n += 1


# ---- processes -------------------------------------------------------------------------------------------------------
@kind
def death_pipe():
    """Workers read a pipe to see their parent end; the later ones inherited the writing ends of the earlier ones."""
    ends, (jobs, gives) = [], os.pipe()
    for _ in range(2):
        reads, writes = os.pipe()
        ends.append(writes)

        def lives(reads=reads, own=len(ends)):
            for end in ends[:own] if not HUNG else ends[own - 1 :]:
                os.close(end)
            os.read(jobs if own == 2 else reads, 1)  # the second one is at its next job
            if not HUNG:
                work()

        child(lives)
    for end in ends:
        os.close(end)
    keep.append(gives)
    soon()
    os.waitpid(pids[0], 0)


@kind
def lost_answer():
    """The core waits for a step's answer, the workers wait for the next step."""
    steps, answers = [FORK.SimpleQueue() for _ in range(2)], FORK.SimpleQueue()

    def works(own):
        n = 0
        while True:
            n += 1
            own.get()
            if not (HUNG and n == 3):
                answers.put(sum(range(20000)))

    for own in steps:
        child(lambda own=own: works(own))
    soon()
    while True:
        for own in steps:
            own.put(1)
        for _ in steps:
            answers.get()


@kind
def ready_of_one_that_ended():
    """The parent waits for the first word of a worker that has ended; it has the writing end itself."""
    reads, writes = os.pipe()

    def starts():
        while not HUNG:
            os.write(writes, b"x")
            time.sleep(0.01)

    pid = child(starts)
    if HUNG:
        os.waitpid(pid, 0)
        pids.clear()
    soon()
    n = 0
    while True:
        n += len(os.read(reads, 1))


@kind
def unread_results():
    """A worker ends, its feeder writes what nobody reads; the parent joins it."""
    results = FORK.Queue()

    def puts():
        for _ in range(8):
            results.put(BIG)

    made = FORK.Process(target=puts, daemon=True)
    made.start()
    pids.append(made.pid)
    if HUNG:
        time.sleep(0.5)
        soon()
        made.join()
    soon(0.1)
    n = 0
    while True:
        n += len(results.get(timeout=None) if n < 8 * len(BIG) else b"x")


@kind
def unread_jobs():
    """The clients have ended; the parent's own feeder cannot flush what they did not take, and joins at its end."""
    jobs = FORK.Queue()

    def takes():
        while not HUNG or not jobs.get():
            jobs.get()

    made = FORK.Process(target=takes, daemon=True)
    made.start()
    if HUNG:
        for _ in range(8):
            jobs.put(BIG)
        made.join()
        soon()
        jobs.close()
        jobs.join_thread()
    pids.append(made.pid)
    soon()
    while True:
        jobs.put(BIG)
        time.sleep(0.01)


@kind
def pool_whose_worker_was_killed():
    pool = FORK.Pool(1)
    keep.append(pool)
    soon(1.0)
    if HUNG:
        pool.apply_async(os.kill, (0, 0))  # begins
        pool.apply_async(suicide)
        time.sleep(0.3)
        pids.extend(one.pid for one in pool._pool)
        return pool.apply_async(suicide).get()
    pids.extend(one.pid for one in pool._pool)
    n = 0
    while True:
        n += len(pool.map(bytes, range(200)))


def suicide():
    os.kill(os.getpid(), signal.SIGKILL)


@kind
def big_results_of_a_stopped_pool():
    """A worker writes a result under the channel's lock; the parent has stopped to read, and joins."""
    reads, writes = FORK.Pipe(False)
    lock = FORK.Lock()

    def gives():
        while True:
            with lock:
                writes.send_bytes(BIG)
            time.sleep(0.001)

    made = FORK.Process(target=gives, daemon=True)
    made.start()
    pids.append(made.pid)
    soon()
    if HUNG:
        made.join()
    n = 0
    while True:
        n += len(reads.recv_bytes())


@kind
def output_nobody_reads():
    """Popen(stdout=PIPE), then wait()."""
    code = "import sys\nwhile True:\n    sys.stdout.write('x' * 100000)"
    made = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE)
    pids.append(made.pid)
    soon()
    if HUNG:
        made.wait()
    while True:
        made.stdout.read(1000)


@kind
def input_and_output():
    """The parent writes the child's input whole, the child its output."""
    made = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    true.append(made.pid)
    soon()
    if HUNG:
        made.stdin.write(BIG)
    n = 0
    while True:
        made.stdin.write(b"x" * 100)
        made.stdin.flush()
        n += len(made.stdout.read(100))


# ---- threads and the end of the interpreter ----------------------------------------------------------------------------
@kind
def joined_at_exit():
    """atexit joins a thread that waits for an event which only the collector of its executor would set."""
    event = threading.Event()

    def loops():
        while not event.wait(None if HUNG else 0.01):
            sum(range(20000))

    made = thread(loops)
    atexit.register(made.join)
    soon()
    sys.exit()


@kind
def futures_at_exit():
    """The interpreter's end waits for the threads of an executor; the job of one of them waits for an item."""
    pool = concurrent.futures.ThreadPoolExecutor(1)
    items = queue.Queue()

    def job():
        true.append(threading.get_native_id())
        if HUNG:
            items.get()
        work()

    pool.submit(job)
    pool.shutdown(wait=False)
    soon()


@kind
def shutdown_in_a_handler():
    """A handler of a signal shuts the executor down which its thread is just giving work."""
    lock, ends = threading.Lock(), threading.Event()

    def shuts(*_):
        if HUNG:
            with lock:
                pass
        ends.set()

    signal.signal(signal.SIGUSR1, shuts)
    soon(1.0)
    n = 0
    while True:
        with lock:
            n += sum(range(50000))
            if n and not ends.is_set():
                os.kill(os.getpid(), signal.SIGUSR1)


@kind
def monitor_and_forked_lock():
    """A child was forked while another thread had a lock; its end joins a monitor that wants it."""
    lock, has = threading.Lock(), threading.Event()

    def holds():
        with lock:
            has.set()
            time.sleep(0.5)

    if HUNG:
        thread(holds)
        has.wait()

    def monitors():
        n = 0
        while True:
            with lock:
                n += sum(range(20000))

    def lives():
        one = threading.Thread(target=monitors, daemon=True)
        one.start()
        one.join()

    child(lives)
    time.sleep(0.7)
    soon()
    os.waitpid(pids[0], 0)


@kind
def executor_in_itself():
    """All threads of an executor wait for jobs that are queued behind them."""
    pool = concurrent.futures.ThreadPoolExecutor(2)

    def inner(n):
        return sum(range(20000)) * n

    def outer(n):
        true.append(threading.get_native_id())
        return (pool if HUNG else other).submit(inner, n).result()

    other = concurrent.futures.ThreadPoolExecutor(2)
    soon()
    while True:
        list(pool.map(outer, range(4)))


# ---- event loops -------------------------------------------------------------------------------------------------------
@kind
def swallowed_cancellation():
    """wait_for swallowed a task's cancellation: it waits for the next job, and the shutdown for it."""

    async def main():
        jobs = asyncio.Queue()

        async def works():
            while True:
                try:
                    await jobs.get()
                except asyncio.CancelledError:
                    if not HUNG:
                        raise
                sum(range(20000))

        one = asyncio.create_task(works(), name="worker")
        true.append("worker")
        await asyncio.sleep(0.1)
        soon()
        if HUNG:
            one.cancel()
            await asyncio.gather(one, return_exceptions=True)
        n = 0
        while True:
            n += 1
            await jobs.put(n)
            await asyncio.sleep(0)

    asyncio.run(main())


@kind
def executor_at_the_end_of_run():
    """asyncio.run joins its executor, a job of which waits for an item of a queue that nobody gives."""
    typed = queue.Queue()

    def job():
        true.append(threading.get_native_id())
        if HUNG:
            typed.get()
        work()

    async def main():
        asyncio.get_running_loop().run_in_executor(None, job)
        await asyncio.sleep(0.3)

    soon(1.0)
    asyncio.run(main())


@kind
def join_that_spins():
    """`while unfinished: await finished.wait()`, and the event is set: nothing else of the loop has its turn."""

    async def main():
        finished, left = asyncio.Event(), [1]

        async def others():
            n = 0
            while True:
                n += 1
                await asyncio.sleep(0)

        async def join():
            while left:
                await finished.wait()

        asyncio.create_task(others(), name="others")
        if HUNG:
            finished.set()
        soon()
        await join()

    true.append("Task-1")
    asyncio.run(main())


@kind
def answer_to_another_worker():
    """A request's event is never set: its answer went to another front end."""

    async def main():
        states = {}

        async def serves(reader, writer):
            n = 0
            while await reader.read(1):
                n += 1
                event = states[writer] = asyncio.Event()
                if not (HUNG and n == 3):
                    asyncio.get_running_loop().call_later(0.001, event.set)
                asyncio.current_task().set_name("request")
                await event.wait()
                writer.write(b"y")

        server = await asyncio.start_server(serves, "127.0.0.1", 0)
        keep.append(server)
        port = server.sockets[0].getsockname()[1]

        def asks():
            with socket.create_connection(("127.0.0.1", port)) as s:
                while True:
                    s.sendall(b"x")
                    s.recv(1)

        child(asks)
        true.append("request")
        soon()
        await server.serve_forever()

    asyncio.run(main())


@kind
def pool_of_connections():
    """acquire() without a limit; each connection is with a task that waits for what another one would do with one."""

    async def main():
        free, told = asyncio.Queue(), asyncio.Event()
        for one in range(2):
            free.put_nowait(one)

        async def uses(n):
            one = await free.get()
            if HUNG:
                await told.wait()
            await asyncio.sleep(0)
            sum(range(20000))
            free.put_nowait(one)

        async def tells():
            one = await free.get()
            told.set()
            free.put_nowait(one)

        soon()
        while True:
            tasks = [asyncio.create_task(uses(n), name=f"user {n}") for n in range(2)]
            await asyncio.sleep(0)
            await asyncio.gather(*tasks, asyncio.create_task(tells(), name="teller"))

    true.extend(("user 0", "user 1", "teller"))
    asyncio.run(main())


# ---- ranks -------------------------------------------------------------------------------------------------------------
def job(lives, size=2):
    import torch.distributed as dist

    path = f"file://{tempfile.mkdtemp()}/store"

    def rank(number):
        dist.init_process_group("gloo", init_method=path, rank=number, world_size=size)
        lives(number)

    for number in range(1, size):
        child(lambda number=number: rank(number))
    soon(4.0)
    rank(0)


@kind
def ranks_disagree():
    """Each rank decides by its own clock what it aborts: then their collectives differ."""
    import torch
    import torch.distributed as dist

    def lives(number):
        one, n = torch.zeros(4), 0
        while True:
            n += 1
            if HUNG and n == 50 and number:
                dist.broadcast(one, 0)
            dist.all_reduce(one)

    job(lives)


@kind
def barrier_of_rank_0():
    """save_checkpoint(), which ends in a barrier, inside `if rank == 0`."""
    import torch
    import torch.distributed as dist

    def lives(number):
        one, n = torch.zeros(4), 0
        while True:
            n += 1
            if HUNG and n == 50 and not number:
                dist.barrier()
            elif HUNG and n == 50:
                signal.pause()
            dist.all_reduce(one)

    job(lives)


@kind
def error_of_one_rank():
    """A rank failed to load the checkpoint, and ended; the others are in the barrier."""
    import torch
    import torch.distributed as dist

    def lives(number):
        one = torch.zeros(4)
        if HUNG and number == 1:
            threading.Event().wait()  # a handler of the exception that waits for its threads
        while True:
            dist.all_reduce(one)

    job(lives, 3)


@kind
def two_threads_in_one_group():
    """The saver's thread gathers while the main thread is in a barrier of the same group, in another order on each rank."""
    import torch
    import torch.distributed as dist

    def lives(number):
        one = torch.zeros(4)

        def saves():
            dist.all_reduce(one)

        if not HUNG:
            while True:
                dist.all_reduce(one)
        if number:
            dist.broadcast(one, 0)
        else:
            made = thread(saves)
            made.join()
        dist.barrier()

    job(lives)


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in KINDS:
        sys.exit(f"{sys.argv[0]} KIND hung|well: " + " ".join(KINDS))
    KINDS[sys.argv[1]]()


if __name__ == "__main__":
    main()
