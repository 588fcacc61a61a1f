"""A process and its children: locks that a fork left behind, pipes, and locks between processes: scenarios of faults.py."""

import ctypes
import os
import tempfile
import threading
import time

from fault_locks import abba_locks
from fault_parts import holding, libc, say
from situation_parts import forever, thread


def lock_orphaned_by_fork():
    lock = threading.RLock()
    holding(lock)
    pid = os.fork()
    if not pid:
        lock.acquire()
    say(pid=pid)
    forever()


def buffered_file_kept_over_a_fork():
    """The lock inside an io object of C code is kept by a thread that the fork did not copy."""
    read, write = os.pipe()
    os.set_blocking(write, True)
    file = open(write, "wb", buffering=4096)

    def fill():
        while True:
            file.write(b"x" * 100000)  # until the pipe is full

    thread("writer", fill)
    time.sleep(0.5)
    pid = os.fork()
    if not pid:
        file.write(b"y")
    say(pid=pid)
    forever()
    del read


def cycle_beside_a_dead_child():
    if not os.fork():
        os._exit(1)
    abba_locks()


def a_child_at_work():
    """It waits for a child that computes."""
    pid = os.fork()
    if not pid:
        while True:
            pass
    say()
    os.waitpid(pid, 0)


def pipe_from_a_stuck_process():
    """A child that is to write into a pipe and sleeps for good; both are to be looked at."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        forever()
    os.close(write)
    say(child)
    os.read(read, 1)


def answer_of_a_child():
    """Waits for a child that nobody asks about."""
    import multiprocessing

    context = multiprocessing.get_context("fork")
    q = context.Queue()
    child = context.Process(target=forever, daemon=True)
    child.start()
    say(child.pid)
    q.get()


def child_with(take):
    """A child process that takes something and keeps it. -> its pid"""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        take()
        os.write(write, b"x")
        forever()
    os.close(write)
    assert os.read(read, 1), "the child could not take it"
    return child


def shared_mutex():
    import mmap

    memory = mmap.mmap(-1, 4096)
    mutex, attributes = ctypes.c_char.from_buffer(memory), (ctypes.c_uint64 * 2)()
    libc.pthread_mutexattr_init(attributes)
    libc.pthread_mutexattr_setpshared(attributes, 1)
    libc.pthread_mutex_init(ctypes.byref(mutex), attributes)
    return ctypes.byref(mutex)


def between_shared_mutex():
    mutex = shared_mutex()
    say(child_with(lambda: libc.pthread_mutex_lock(mutex)))
    libc.pthread_mutex_lock(mutex)


def alone_shared_mutex():
    """Whose holder is not named to the command."""
    between_shared_mutex()


def between_flock():
    import fcntl

    path = os.path.join(tempfile.mkdtemp(), "lock")
    kept = []

    def take():
        kept.append(open(path, "w"))
        fcntl.flock(kept[0], fcntl.LOCK_EX)

    say(child_with(take))
    with open(path, "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)


def alone_flock():
    between_flock()


def between_posix_lock():
    import fcntl

    kept = open(os.path.join(tempfile.mkdtemp(), "lock"), "w")
    say(child_with(lambda: fcntl.lockf(kept, fcntl.LOCK_EX)))
    fcntl.lockf(kept, fcntl.LOCK_EX)


def lock_of_a_child():
    """-> (multiprocessing's lock, pid of the child that keeps it)"""
    import multiprocessing

    context = multiprocessing.get_context("fork")
    lock, has = context.Lock(), context.Event()

    def hold():
        with lock:
            has.set()
            forever()

    child = context.Process(target=hold, daemon=True)
    child.start()
    has.wait()
    return lock, child.pid


def between_semaphore():
    lock, child = lock_of_a_child()
    say(child)
    with lock:
        pass


def between_file_baton():
    """torch's extension builder waits for a file to go."""
    from torch.utils.file_baton import FileBaton

    path = os.path.join(tempfile.mkdtemp(), "lock")
    kept = []

    def take():
        kept.append(FileBaton(path))
        kept[0].try_acquire()

    say(child_with(take))
    FileBaton(path).wait()


def lock_between_processes():
    lock, child = lock_of_a_child()
    say(child)
    lock.acquire()


def waits_for_a_command():
    import subprocess

    say()
    subprocess.run(["sleep", "1000"], check=False)
