"""The second family of waits of situations.py for other processes; as situation_field.py."""

import asyncio
import concurrent.futures
import multiprocessing
import multiprocessing.connection
import os
import pty
import select
import signal
import socket
import tempfile
import time

from situation_field import JOBS, STUCK, does, over_and_over
from situation_parts import LATE, children, keep, tids
from situation_processes import FORK, child

ENDS = ("stopped", "killed")  # what becomes of a child


def stands(drawn, give):
    """As `does`, in a child; what stops or ends it is done to it afterwards."""
    return does("sleeping" if drawn in ENDS else drawn, give)


def end(drawn, pid):
    if drawn in ENDS:
        os.kill(pid, signal.SIGSTOP if drawn == "stopped" else signal.SIGKILL)


def given(make):
    """`make()` gives (give, take): `give()` in a child ends one `take()` of the main thread."""

    def build(draw, drawn):
        give, take = make()
        pid = child(lambda: stands(drawn, give)())
        end(drawn, pid)
        return "field child", over_and_over(take)

    return build


def queue_of_processes():
    it = FORK.Queue()
    return (lambda: it.put(1)), (lambda: it.get())


def event_of_processes():
    it = FORK.Event()

    def take():
        it.wait()
        it.clear()

    return it.set, take


def condition_of_processes():
    it = FORK.Condition()

    def give():
        with it:
            it.notify_all()

    def take():
        with it:
            it.wait()

    return give, take


def barrier_of_processes():
    it = FORK.Barrier(2)
    return it.wait, it.wait


def work_of_processes():
    """A queue whose consumer, the child, does not report the end of its work."""
    it = FORK.JoinableQueue()
    it.put(1)

    def give():
        it.get()
        it.task_done()

    def take():
        it.join()
        it.put(1)

    return give, take


def named_fifo():
    path = os.path.join(tempfile.mkdtemp(), "fifo")
    os.mkfifo(path)
    both = os.open(path, os.O_RDWR)  # so that neither end waits to be opened
    reads, writes = os.open(path, os.O_RDONLY), os.open(path, os.O_WRONLY)
    os.close(both)
    mine = os.getpid()

    def take():
        nonlocal writes
        if os.getpid() == mine and writes >= 0:
            os.close(writes)
            writes = -1
        os.read(reads, 1)

    return (lambda: os.write(writes, b"x")), take


def terminal():
    """A terminal whose other side a child has, as pexpect makes it."""
    main, other = pty.openpty()
    mine, state = os.getpid(), [True]

    def take():
        if os.getpid() == mine and state:
            state.clear()
            os.close(other)
        os.read(main, 1)

    return (lambda: os.write(other, b"x")), take


def datagrams():
    near, far = socket.socket(type=socket.SOCK_DGRAM), socket.socket(type=socket.SOCK_DGRAM)
    near.bind(("127.0.0.1", 0)), far.bind(("127.0.0.1", 0))
    near.connect(far.getsockname()), far.connect(near.getsockname())
    mine, state = os.getpid(), [True]

    def take():
        if os.getpid() == mine and state:
            state.clear()
            far.close()
        near.recv(1)

    return (lambda: far.send(b"x")), take


def client_of_a_listener():
    """A client of multiprocessing's Listener, which the child runs."""
    made, mine, held = multiprocessing.connection.Listener(family="AF_UNIX"), os.getpid(), []

    def give():
        if not held:
            held.append(made.accept())
        held[0].send(1)

    def take():
        if not held:
            held.append(multiprocessing.connection.Client(made.address))
            if os.getpid() == mine:
                made._listener._socket.close()
        held[0].recv()

    return give, take


def a_managers_queue(draw, drawn):
    """A queue of a manager's process, to which a child gives."""
    manager = FORK.Manager()
    keep.append(manager)
    children.append(manager._process.pid)
    it = manager.Queue()
    end(drawn, child(lambda: stands(drawn, lambda: it.put(1))()))
    tids["manager"] = manager._process.pid
    return "field child", over_and_over(lambda: it.get())


def end_of_a_child(draw, drawn):
    """By a descriptor of the child, as asyncio waits for it."""
    if not hasattr(os, "pidfd_open"):
        return end_plainly(draw, drawn)

    def wait(pid):
        held = os.pidfd_open(pid)
        select.select([held], [], [])
        os.close(held)
        return os.waitpid(pid, 0)

    if drawn == "slow":
        return "field child", over_and_over(lambda: wait(child(lambda: time.sleep(LATE))))
    pid = child(lambda: stands(drawn, bool)())
    end(drawn, pid)
    return "field child", lambda: wait(pid)


def end_plainly(draw, drawn):
    pid = child(lambda: stands(drawn, bool)())
    return "field child", lambda: os.waitpid(pid, 0)


def of_a_grandchild(draw, drawn):
    """The child has ended; its own child has the pipe's other end."""
    reads, writes = os.pipe()
    told, tells = os.pipe()
    pid = os.fork()
    if not pid:
        grandchild = os.fork()
        if grandchild:
            os.write(tells, str(grandchild).encode())
            os._exit(0)
        try:
            stands(drawn, lambda: os.write(writes, b"x"))()
        finally:
            os._exit(1)
    os.waitpid(pid, 0)
    os.close(writes)
    tids["ender"] = int(os.read(told, 20))
    children.append(tids["ender"])
    end(drawn, tids["ender"])
    return "field child", over_and_over(lambda: os.read(reads, 1))


def of_two_children(draw, drawn):
    """One child reads what the other is to write, and passes it on."""
    first, second = os.pipe(), os.pipe()

    def passes_on():
        os.close(second[1])
        while True:
            os.write(first[1], os.read(second[0], 1))

    child(passes_on)
    pid = child(lambda: stands(drawn, lambda: os.write(second[1], b"x"))())
    os.close(first[1]), os.close(second[1])
    end(drawn, pid)
    return "field child", over_and_over(lambda: os.read(first[0], 1))


# ---- pools of processes ----------------------------------------------------------------------------------------------
def work(drawn, said):
    """A job of a worker, which says its pid and its third thread."""
    if drawn == "slow":
        time.sleep(LATE)
        return 1
    stand = stands(drawn, bool)
    with open(said, "w") as f:
        f.write(" ".join(map(str, (os.getpid(), tids.get("third", 0)))))
    os.rename(said, f"{said}.done")
    stand()
    return 1


def heard(said, drawn):
    while not os.path.exists(f"{said}.done"):
        time.sleep(0.01)
    with open(f"{said}.done") as f:
        tids["ender"], third = map(int, f.read().split())
    if third:
        tids["third"] = third
    children.append(tids["ender"])
    end(drawn, tids["ender"])


def pool(take):
    """`take(executor, drawn, said)` gives a function that waits for a job."""

    def build(draw, drawn):
        made, said = concurrent.futures.ProcessPoolExecutor(2, FORK), os.path.join(tempfile.mkdtemp(), "said")
        keep.append(made)
        if drawn == "slow":
            return "field child", over_and_over(lambda: take(made, drawn, said)())
        waits = take(made, drawn, said)
        heard(said, drawn)
        return "field child", waits

    return build


def result(made, drawn, said):
    return made.submit(work, drawn, said).result


def mapped(made, drawn, said):
    found = made.map(work, [drawn], [said])
    return lambda: list(found)


def all_of_them(made, drawn, said):
    futures = [made.submit(work, drawn, said), made.submit(int)]
    return lambda: concurrent.futures.wait(futures)


def end_of_pool(made, drawn, said):
    made.submit(work, drawn, said)
    return made.shutdown


def in_a_loop(made, drawn, said):
    async def main():
        n = 0
        while True:
            await asyncio.wrap_future(future) if not n else await asyncio.wrap_future(made.submit(work, drawn, said))
            n += 1

    future = made.submit(work, drawn, said)
    return lambda: asyncio.run(main())


ALONE = tuple(state for state in STUCK if state != "behind a lock")  # of a child whose threads nobody is told of
CHILD = ("slow", "late", *ALONE, *ENDS)
WAITS = {
    "queue of a child": (given(queue_of_processes), CHILD),
    "event of processes": (given(event_of_processes), CHILD),
    "condition of processes": (given(condition_of_processes), CHILD),
    "barrier of processes": (given(barrier_of_processes), CHILD),
    "work of processes": (given(work_of_processes), CHILD),
    "named FIFO": (given(named_fifo), CHILD[:-1]),
    "terminal": (given(terminal), CHILD[:-1]),
    "datagrams": (given(datagrams), CHILD),
    "client of a listener": (given(client_of_a_listener), CHILD[:-1]),
    "manager's queue": (a_managers_queue, CHILD),
    "end of a child": (end_of_a_child, CHILD[:-1]),
    "pipe of a grandchild": (of_a_grandchild, CHILD[:-1]),
    "pipe of two children": (of_two_children, CHILD[:-1]),
    "process pool": (pool(result), (*JOBS, "stopped")),
    "process pool's map": (pool(mapped), (*JOBS, "stopped")),
    "all of a process pool": (pool(all_of_them), (*JOBS, "stopped")),
    "end of a process pool": (pool(end_of_pool), (*STUCK, "stopped")),
    "process pool in a loop": (pool(in_a_loop), (*JOBS, "stopped")),
}
