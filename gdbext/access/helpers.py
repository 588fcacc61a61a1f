"""Small helper processes of ours. They do work that may never end, such as a read of a page that does not arrive. They also do
work that must end whatever becomes of the process that asked, such as a stop. Each wait for a helper has a time limit."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Iterator

from .. import log, package
from ..errors import no_process
from . import own_end, ptrace
from .guard import find_python
from .procfs import state_of

if TYPE_CHECKING:
    import subprocess

LENGTH = struct.Struct("<I")
LOOK = 0.2  # seconds between two looks at a process that is waited for
START = 20.0  # seconds in which a helper has started, or has sent what it has: a full machine runs it late
FAREWELL = 0.5  # seconds for a killed helper to end; one in uninterruptible sleep is left to the kernel


def readable(fd: int, seconds: float) -> bool:
    """Whether there is something to read, or its end, at most so many seconds later. Of any descriptor: select(2) takes those
    below 1024 alone."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(seconds, 0) * 1000))


def answers(pid: int, fd: int, seconds: float) -> bool:
    """As `readable`, of what a process of ours is to say. Where a signal has stopped it, it goes on: this one waits for it."""
    deadline = time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        if readable(fd, min(left, LOOK)):
            return True
        if left <= LOOK:
            return False
        own_end.wake(pid)


class Channel:
    """Messages of bytes over a socket. `EOFError` where the other end is gone, `TimeoutError` where nothing came in time."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._poll = select.poll()
        self._poll.register(end, select.POLLIN)

    def send(self, data: bytes) -> None:
        """Sends one message."""
        try:
            self.socket.sendall(LENGTH.pack(len(data)) + data, socket.MSG_NOSIGNAL)
        except OSError:
            raise EOFError from None

    def comes(self, seconds: float | None) -> bool:
        """Whether there is something to receive, at most so many seconds later."""
        return bool(self._poll.poll(None if seconds is None else max(seconds, 0) * 1000))

    def receive(self, seconds: float | None = None) -> bytes:
        """The next message; all of it comes within `seconds`."""
        deadline = None if seconds is None else time.monotonic() + seconds
        return self._exactly(LENGTH.unpack(self._exactly(LENGTH.size, deadline))[0], deadline)

    def _exactly(self, size: int, deadline: float | None) -> bytes:
        found = bytearray()
        while len(found) < size:
            if not self.comes(None if deadline is None else deadline - time.monotonic()):
                raise TimeoutError
            try:
                more = self.socket.recv(size - len(found))
            except OSError:
                more = b""
            if not more:
                raise EOFError
            found += more
        return bytes(found)


class Helper(Channel):
    """A process that runs `serve(channel)` of `module`, and ends with the process that started it. `pid`: its number. `cpu`: its
    CPU seconds, once it was ended. `GdbextError` where no process can be started.

    No signal of a terminal or of this process's group reaches it (own_end.py).

    It is a fork of this process where a fork is safe. gdb, and any other process with threads, starts an interpreter: in a fork a
    lock may be held for ever. The helper has no open file except its end of the channel."""

    def __init__(self, module: str, serve: Callable[[Channel], None]) -> None:
        with started():
            ours, theirs = socket.socketpair()
            super().__init__(ours)
        self._process: subprocess.Popen[bytes] | None = None
        self.cpu, self._ended, self._gone = 0.0, False, False
        if may_fork():
            self.pid = _forked(serve, theirs)
        else:
            import subprocess  # here: a fork needs none

            env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
            null: Any = {"stdout": subprocess.DEVNULL, "stderr": None if log.enabled() else subprocess.DEVNULL}
            line = [*package.program(find_python(), module), str(os.getpid())]
            with started():
                self._process = subprocess.Popen(line, cwd="/", env=env, stdin=theirs.fileno(), start_new_session=True, **null)
            self.pid = self._process.pid
        theirs.close()

    def comes(self, seconds: float | None) -> bool:
        return super().comes(seconds) if seconds is None else answers(self.pid, self.socket.fileno(), seconds)

    def answer(self, patience: float, starved: int) -> bytes:
        """Its answer; `TimeoutError` once it has waited for `patience` seconds. One that wants a CPU and gets none waits for
        nothing: it has so long up to `starved` times."""
        for _ in range(starved):
            if self.comes(patience):
                return self.receive(START)
            if state_of(self.pid) != "R":
                break
        raise TimeoutError

    def end(self, seconds: float = FAREWELL) -> None:
        """Kills the process and waits a limited time for its end. A process in an uninterruptible wait of the kernel ends only
        when that wait does."""
        if not self._ended:
            self._ended = True
            self.socket.close()
            with log.passing_over(OSError):  # a filter forbids it: it ends with the channel
                os.kill(self.pid, signal.SIGKILL)  # it was not waited for: the number is its own
            if self._process is not None:
                self._process.returncode = -signal.SIGKILL  # only this code waits for it
            self.is_gone(seconds)

    def is_gone(self, seconds: float = 0.0) -> bool:
        """Whether it is gone, at most so many seconds after its end."""
        if not self._gone:
            used = reap(self.pid, seconds)
            self._gone, self.cpu = used is not None, used or 0.0
        return self._gone


def reap(pid: int, seconds: float = FAREWELL) -> float | None:
    """Waits at most `seconds` for a child that was killed. -> its CPU seconds; None where it still exists"""
    deadline = time.monotonic() + seconds
    while True:
        try:
            found, _, used = os.wait4(pid, os.WNOHANG)
        except ChildProcessError:
            return 0.0
        if found:
            return used.ru_utime + used.ru_stime
        if time.monotonic() > deadline:
            return None
        time.sleep(0.0005)


def may_fork() -> bool:
    """Whether this process can be forked: gdb, and any other process with threads, cannot."""
    return "gdb" not in sys.modules and threading.active_count() == 1


@contextlib.contextmanager
def started() -> Iterator[None]:
    """A block that starts a process of ours: `GdbextError` where the kernel gives none."""
    try:
        yield
    except OSError as e:
        raise no_process(e) from None


def fork() -> int:
    """os.fork; `GdbextError` where the kernel gives no process."""
    with started():
        return os.fork()


def _forked(serve: Callable[[Channel], None], theirs: socket.socket) -> int:
    parent = os.getpid()
    pid = fork()
    if pid:
        return pid
    try:
        ptrace.end_with_parent(parent)
        package.first_to_go()
        own_end.apart()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        gc.disable()
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1) if log.enabled() else (0, 1, 2):
            os.dup2(null, number)
        keep = {0, 1, 2, theirs.fileno()}
        for number in {int(name) for name in os.listdir("/proc/self/fd")} - keep:
            with contextlib.suppress(OSError):
                os.close(number)
        with contextlib.suppress(EOFError):
            serve(Channel(theirs))
    finally:  # it must not go on with the code of the process that it is a fork of
        os._exit(0)


def run(serve: Callable[[Channel], None]) -> int:
    """The process that was started as a module's `main`: `serve`s the socket that is its standard input."""
    ptrace.end_with_parent(int(sys.argv[1]))
    own_end.apart()
    with contextlib.suppress(EOFError):
        serve(Channel(socket.socket(fileno=os.dup(0))))
    return 0
