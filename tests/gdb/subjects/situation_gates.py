"""Waits of situations.py for one that keeps something ("HOLDER over GIVER") and waits itself for a program, a service, or a
pipe, which is at work, or is not. Each takes (draw, `drawn`: what the giver does) and gives (kind of truth, function that waits).

The healthy: "working", a descendant of the giver uses a CPU; "coming and going", it starts one program after the other;
"napping", it sleeps for a short time. Their hung twins: "stopped"; "locked", in a lock of a file that another keeps; "at a dead
pipe"; "asleep" for hours. Nobody may be accused of the first; of the second who keeps it, or who is stopped."""

import asyncio
import concurrent.futures
import fcntl
import importlib
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
import types

from situation_parts import children, keep, thread, tids

HEALTHY = ("working", "coming and going", "napping")
HUNG = ("stopped", "locked", "at a dead pipe", "asleep")
STATES = (*HEALTHY, *HUNG)
SPINS = "i=0; while :; do i=$((i+1)); done"
SHELL = {
    "working": SPINS,
    "coming and going": "while :; do /bin/true; done",
    "napping": "while :; do sleep 25; done",
    "stopped": "echo $$ > $0/stopped; kill -STOP $$; sleep 1",
    "locked": "exec flock $0/lock true",
    "at a dead pipe": "exec cat $0/fifo",
    "asleep": "sleep 20000",
}


def place():
    """A folder with what programs wait for in vain: a lock that a child of this process keeps, a FIFO that no one writes."""
    folder = tempfile.mkdtemp()
    os.mkfifo(f"{folder}/fifo")
    file = open(f"{folder}/lock", "w")  # noqa: SIM115  kept by a process of its own, which inherits it
    fcntl.flock(file, fcntl.LOCK_EX)
    pid = os.fork()
    if not pid:
        while True:
            time.sleep(100000)
    file.close()
    children.append(pid)
    tids["keeper"] = pid
    return folder


def command(drawn, folder, depth):
    """A shell that waits for what it starts, `depth` times."""
    words = ["sh", "-c", SHELL[drawn], folder]
    for _ in range(depth):
        words = ["sh", "-c", '"$@"; true', folder, *words]
    return words


def stopped(folder):
    """Notes the pid of the program that has stopped itself."""
    until = time.monotonic() + 60
    while time.monotonic() < until and "program" not in tids:
        time.sleep(0.02)
        try:
            with open(f"{folder}/stopped") as f:
                tids["program"] = int(f.read())
        except (OSError, ValueError):
            continue


# ---- givers: what a holder waits for. (draw, drawn, folder) -> a function that waits for it ---------------------------
def a_program(draw, drawn, folder):
    words = command(drawn, folder, draw.choice((0, 1, 2)))
    return lambda: subprocess.run(words)


def a_tasks_program(draw, drawn, folder):
    return types.SimpleNamespace(words=command(drawn, folder, draw.choice((0, 1, 2))))


def its_output(draw, drawn, folder):
    words = command(drawn, folder, draw.choice((0, 1, 2)))
    return lambda: subprocess.run(words, capture_output=True)


def a_system(draw, drawn, folder):
    line = " ".join(f"'{word}'" for word in command(drawn, folder, 0))
    return lambda: os.system(line)


def a_pipe(draw, drawn, folder):
    """A program that was started before writes a pipe."""
    reads, writes = os.pipe()
    keep.append(subprocess.Popen(command(drawn, folder, draw.choice((0, 1))), stdout=writes))
    os.close(writes)
    return lambda: os.read(reads, 1)


def python_state(drawn, folder):
    """The same by a process of Python."""
    n = 0
    if drawn == "working":
        while True:
            n += 1
    if drawn == "coming and going":
        while True:
            subprocess.run(["/bin/true"])
    if drawn == "stopped":
        with open(f"{folder}/stopped", "w") as f:
            f.write(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)
    if drawn == "locked":
        with open(f"{folder}/lock") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
    if drawn == "at a dead pipe":
        os.open(f"{folder}/fifo", os.O_RDONLY)
    while True:
        n += 1
        time.sleep(25 if drawn == "napping" else 20000)


def a_service(draw, drawn, folder):
    """A process that was asked over a socket, and works the answer out; it is looked at by name, or not."""
    near, far = socket.socketpair()
    pid = os.fork()
    if not pid:
        near.close()
        far.recv(1)
        python_state(drawn, folder)
    if draw.random() < 0.5:
        children.append(pid)
    far.close()
    tids["service"] = pid

    def asks():
        near.send(b"q")
        near.recv(1)

    return asks


def a_server(draw, drawn, folder):
    """A server on a TCP port, whose main thread accepts while a thread of it works the answer out."""
    s = socket.create_server(("127.0.0.1", 0))
    pid = os.fork()
    if not pid:

        def answer(connection):
            connection.recv(1)
            python_state(drawn, folder)

        while True:
            threading.Thread(target=answer, args=(s.accept()[0],), daemon=True).start()
    if draw.random() < 0.5:
        children.append(pid)
    tids["service"] = pid
    connection = socket.create_connection(s.getsockname())
    s.close()

    def asks():
        connection.sendall(b"q")
        connection.recv(1)

    return asks


def an_executor(draw, drawn, folder):
    pool = concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork"))
    keep.append(pool)
    return lambda: pool.submit(python_state, drawn, folder).result()


def a_pool(draw, drawn, folder):
    pool = multiprocessing.get_context("fork").Pool(1)
    keep.append(pool)
    return lambda: pool.apply(python_state, (drawn, folder))


GIVERS = {
    "a program": a_program,
    "its output": its_output,
    "a system": a_system,
    "a pipe": a_pipe,
    "a service": a_service,
    "a server": a_server,
    "a pool": a_pool,
    "an executor": an_executor,
}


# ---- holders ---------------------------------------------------------------------------------------------------------
def under(lock):
    def build(draw, wait):
        it, has = lock(), threading.Event()

        def holds():
            with it:
                has.set()
                wait()

        thread("ender", holds)
        has.wait()
        return it.acquire

    return build


def under_a_file(draw, wait):
    """A process has the lock of a file, and this one wants it."""
    path = os.path.join(tempfile.mkdtemp(), "build.lock")
    with open(path, "w"):
        pass
    ready = multiprocessing.get_context("fork").Event()
    pid = os.fork()
    if not pid:
        with open(path) as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            ready.set()
            wait()
        os._exit(0)
    children.append(pid)
    tids["ender"] = pid
    ready.wait()
    file = open(path)  # noqa: SIM115
    return lambda: fcntl.flock(file, fcntl.LOCK_EX)


def under_an_import(draw, wait):
    folder, name = tempfile.mkdtemp(), f"built_{os.getpid()}"
    with open(f"{folder}/{name}.py", "w") as f:
        f.write("import situation_gates\nsituation_gates.built()\n")
    sys.path.insert(0, folder)
    began = threading.Event()

    def built():
        began.set()
        wait()

    globals()["built"] = built
    thread("ender", importlib.import_module, name)
    began.wait()
    return lambda: importlib.import_module(name)


def under_a_task(draw, wait):
    """A task has an asyncio.Lock while a thread of a pool, which it waits for, does what takes long."""
    pool, began = concurrent.futures.ThreadPoolExecutor(1, "pool"), threading.Event()

    def works():
        tids["ender"] = threading.get_native_id()
        began.set()
        wait()

    work = pool.submit(works)
    keep.append(pool)
    began.wait()

    async def main():
        lock = asyncio.Lock()

        async def holds():
            async with lock:
                await asyncio.wrap_future(work)

        keep.append(asyncio.create_task(holds(), name="ender"))
        await asyncio.sleep(0.1)
        async with lock:
            pass

    return lambda: asyncio.run(main())


def takes_turns(draw, wait):
    """The first of two threads that do the same has the lock; the other is waited for."""
    lock, has, results = threading.Lock(), threading.Event(), queue.Queue()

    def works():
        with lock:
            has.set()
            wait()
            results.put(1)

    thread("ender", works)
    has.wait()
    second = threading.Thread(target=works, daemon=True)
    second.start()
    return second.join


def under_a_tasks_program(draw, wait):
    """A task has an asyncio.Lock while a program runs that it has started itself, or whose output it reads."""
    words, reads = wait.words, draw.random() < 0.5

    async def main():
        lock = asyncio.Lock()

        async def holds():
            async with lock:
                pipe = asyncio.subprocess.PIPE if reads else None
                await (await asyncio.create_subprocess_exec(*words, stdout=pipe)).communicate()

        keep.append(asyncio.create_task(holds(), name="ender"))
        await asyncio.sleep(0.1)
        async with lock:
            pass

    return lambda: asyncio.run(main())


HOLDERS = {
    "a lock": under(threading.Lock),
    "an rlock": under(threading.RLock),
    "a semaphore": under(lambda: threading.Semaphore(1)),
    "a file lock": under_a_file,
    "an import": under_an_import,
    "a task's lock": under_a_task,
    "turns": takes_turns,
}


def situation(holder, giver):
    def build(draw, drawn):
        folder = place()
        waits = holder(draw, giver(draw, drawn, folder))
        if drawn == "stopped":
            stopped(folder)
        return "gate", waits

    return build


WAITS = {
    f"{has} over {it}": (situation(holder, giver), STATES)
    for has, holder in HOLDERS.items()
    for it, giver in GIVERS.items()
    if holder is not under_a_file or giver not in (a_pool, an_executor)  # a fork has no threads of its parent's pool
}


NOT_YET = tuple(state for state in STATES if state != "stopped")  # its loop starts the program: nobody has stopped by then
WAITS["a task's program"] = (situation(under_a_tasks_program, a_tasks_program), NOT_YET)


def truth(drawn):
    """(hung, right verdicts, culprits by name)"""
    if drawn in HEALTHY:
        return False, ["busy", "unknown"], []
    if drawn == "stopped":
        return True, ["stopped"], ["program", "task"]
    return True, ["lock-held"], ["ender", "task", "service", *(["keeper"] if drawn == "locked" else [])]
