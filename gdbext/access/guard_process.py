"""The guard's process: it outlives gdb and resumes the processes that gdb had attached (recovery.py). `guard.Guard` starts it as
a script, with the socket to gdb as its standard input.

It waits for gdb's end (the end of the socket, or gdb's pidfd). Standard library only; no gdb.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys

if __name__ == "__main__":  # run as a script: this folder must not be searched first, its modules belong to a package
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from gdbext.access import cgroups, ptrace, recovery
from gdbext.access.background import background_thread
from gdbext.access.liveness import LivenessMutex

PIDFD_OPEN = 434


def _pidfd(pid: int) -> int:
    try:
        return int(ptrace.libc.syscall(PIDFD_OPEN, pid, 0))
    except (OSError, AttributeError):
        return -1


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return -1  # it has ended already


class Server:
    """Listens to gdb (`tracer`) on `channel` until gdb ends or closes it, then resumes the processes that gdb held. `life`: gdb's
    mutex."""

    def __init__(self, channel: socket.socket, tracer: int, life: LivenessMutex | None = None) -> None:
        self.channel, self.tracer, self.life = channel, tracer, life
        self.began, self.group = ptrace.start_time(tracer), _group(tracer)
        self.program = recovery.program_of(tracer)
        self.held: dict[int, recovery.Held] = {}
        self.armed: set[int] = set()

    def gone(self) -> bool:
        """Whether gdb has ended."""
        state = ptrace.status(self.tracer)
        return ptrace.start_time(self.tracer) != self.began or state is None or state["state"] in "ZX"

    def _wait_for_last_moments(self, life: LivenessMutex) -> None:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # of this thread, where we may
        except OSError:
            pass
        recovery.stop_threads(os.getpid(), self.tracer, 0)  # everything takes longer the first time
        if life.ended():
            for pid in list(self.armed):
                recovery.stop_threads(pid, self.tracer)

    def serve(self) -> None:
        """Returns when gdb has ended and no trace of it is left in any process."""
        if self.life is not None and ptrace.MACHINE in recovery.TGKILL:
            background_thread(self._wait_for_last_moments, self.life)
        buffer, pidfd, poll = b"", _pidfd(self.tracer), select.poll()
        poll.register(self.channel, select.POLLIN)
        if pidfd >= 0:
            poll.register(pidfd, select.POLLIN)
        while True:
            ready = dict(poll.poll(1000))
            if self.channel.fileno() in ready:
                data = self.channel.recv(65536)
                *lines, buffer = (buffer + data).split(b"\n")
                heard = [self._obey(*line.decode().split()) for line in lines]
                if not data or not all(heard):
                    break
            elif pidfd in ready or self.gone():  # another process may hold a copy of the socket
                break
        recovery.recover(self.held, self.tracer, self.gone)
        if self.gone():
            recovery.end_stopped_copies(self.group, self.began or 0, self.program)

    def _obey(self, word: str, number: str, *rest: str) -> bool:
        """One line of gdb's; False when gdb does not hear the answer any more."""
        pid = int(number)
        if word == "own":
            known: set[int] = set()
            try:
                known.update(recovery.planted_breakpoints(pid))  # a tracer's uprobes look the same: existing ones stay
            except OSError:
                pass  # gone, or not readable for us: the attach will say so
            self.held[pid] = recovery.Held(int(rest[0]), rest[1] == "1", known)
            stays = cgroups.move_to(pid)  # the end of gdb's container must not be the guard's too
            try:
                where = f"stays {stays}" if stays else "moved"
                self.channel.sendall(f"seen {rest[2]}\n{where}\n".encode("utf-8", "surrogateescape"))
            except OSError:
                return False
        elif word == "free":
            self.held.pop(pid, None)
            self.armed.discard(pid)
        elif word == "armed":
            (self.armed.add if rest[0] == "1" else self.armed.discard)(pid)
        elif word == "ran" and pid in self.held:
            self.held[pid].was_stopped = False
        return True


def main() -> None:
    """The process: forks once more, so that gdb never waits for it, and serves."""
    channel = socket.socket(fileno=os.dup(0))
    if os.fork():
        os._exit(0)
    os.setsid()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGTSTP, signal.SIGTTOU, signal.SIGTTIN):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    channel.sendall(b"ready %d" % os.getpid())
    life = LivenessMutex(int(sys.argv[1])) if len(sys.argv) > 2 else None
    Server(channel, int(sys.argv[-1]), life).serve()


if __name__ == "__main__":
    main()
