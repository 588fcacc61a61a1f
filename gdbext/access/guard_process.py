"""The guard's process: it outlives gdb and resumes the processes that gdb had attached (recovery.py). `guard.Guard` starts it as
a script, with the socket to gdb as its standard input.

It waits for gdb's end (the end of the socket, or gdb's pidfd). Standard library only; no gdb.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time

if __name__ == "__main__":  # run as a script: this folder must not be searched first, its modules belong to a package
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from gdbext import log
from gdbext.access import cgroups, own_end, ptrace, recovery
from gdbext.access.background import background_thread
from gdbext.access.liveness import LivenessMutex
from gdbext.errors import GdbextError

PIDFD_OPEN = 434
LOOK = 0.1  # seconds between two looks at gdb and at group-stops


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
        self.protected: dict[int, recovery.GroupStop] = {}  # those that gdb keeps in a group-stop
        self.freed: dict[int, tuple[recovery.Held, float]] = {}  # that were so, and until when each is looked at
        self._stops: set[int] = set()  # that were in a group-stop of ours
        self.runs = self.unattended = self.frozen = False  # gdb: its processes run; nobody is at its prompt; a freezer holds it

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
            with log.passing_over(GdbextError):  # no thread more: it learns of gdb's end a little later
                background_thread(self._wait_for_last_moments, self.life)
        buffer, pidfd, poll, look = b"", _pidfd(self.tracer), select.poll(), 0.0
        poll.register(self.channel, select.POLLIN)
        if pidfd >= 0:
            poll.register(pidfd, select.POLLIN)
        while True:
            ready = dict(poll.poll(LOOK * 1000))
            if self.channel.fileno() in ready:
                data = self.channel.recv(65536)
                *lines, buffer = (buffer + data).split(b"\n")
                heard = [self._obey(*line.decode().split()) for line in lines]
                if not data or not all(heard):
                    break
            elif pidfd in ready or self.gone():  # another process may hold a copy of the socket
                break
            if time.monotonic() >= look:
                look = time.monotonic() + LOOK
                self._look()
        recovery.recover(self.held, self.tracer, self.gone)
        while self.freed:
            self._look_at_freed()
            time.sleep(0.01)
        if self.gone():
            recovery.end_stopped_copies(self.group, self.began or 0, self.program)

    def _look(self) -> None:
        """Renews group-stops that somebody's SIGCONT has ended. Where somebody stops gdb while its processes run, or
        nobody is there to let it go on, each would stand from its next event on: gdb goes on, or, where a freezer holds it,
        ends."""
        for one in list(self.protected.values()):
            one.renew()
        self._look_at_freed()
        if not (self.held and (self.runs or self.unattended)):
            return
        own_end.wake(self.tracer)
        before, self.frozen = self.frozen, own_end.is_frozen(self.tracer)
        if before and self.frozen:  # at two looks: a machine that wakes thaws its processes one by one
            with contextlib.suppress(OSError):
                os.kill(self.tracer, signal.SIGKILL)

    def _look_at_freed(self) -> None:
        """A process that gdb has let go may have been given a SIGSTOP that gdb had fetched before its group-stop ended."""
        for pid, (one, until) in list(self.freed.items()):
            now, by = time.monotonic(), ptrace.tracers(pid)
            if ptrace.start_time(pid) != one.start or by - {self.tracer}:
                del self.freed[pid]
            elif by:  # gdb, where processors are few, may take seconds between its word and the deed
                self.freed[pid] = one, now + recovery.WATCH
            else:
                recovery.restore_run_state(pid, one.start, one.was_stopped)
                if now > until:  # after this look: the last one may be long ago
                    del self.freed[pid]

    def _obey(self, word: str, number: str, *rest: str) -> bool:
        """One line of gdb's; False when gdb does not hear the answer any more."""
        pid = int(number)
        if word == "own":
            known: set[int] = set()
            if len(rest) > 3:  # to another guard, which is gone
                known.update(int(address, 16) for address in rest[3].split(",") if address != "-")
            else:
                with log.passing_over(OSError):  # gone, or not readable for us: the attach will say so
                    known.update(recovery.planted_breakpoints(pid))  # a tracer's uprobes look the same: existing ones stay
            self.freed.pop(pid, None)
            self.held[pid] = recovery.Held(int(rest[0]), rest[1] == "1", known, recovery.program_of(pid))
            # the end of gdb's container must not be the guard's too; in a frozen group it would stand like those there
            stays = "" if cgroups.frozen_by(pid) else cgroups.move_to(pid)
            try:
                where = f"stays {stays}" if stays else "moved"
                addresses = ",".join(map(hex, sorted(known))) or "-"
                self.channel.sendall(f"seen {rest[2]} {addresses}\n{where}\n".encode("utf-8", "surrogateescape"))
            except OSError:
                return False
        elif word == "free":
            self._disarmed(pid)
            one = self.held.pop(pid, None)
            if one is not None and pid in self._stops:
                self.freed[pid] = one, time.monotonic() + recovery.WATCH
        elif word == "armed":
            if rest[0] == "1":
                self.armed.add(pid)
            else:
                self._disarmed(pid)
        elif word == "protected" and pid in self.held:
            self.protected[pid] = recovery.GroupStop(pid, self.held[pid].start)
            self._stops.add(pid)
        elif word == "gdb":  # it has no pid of a process
            self.runs, self.unattended = rest[0] == "1", rest[1] == "1"
        elif word == "ran" and pid in self.held:
            self.held[pid].was_stopped = False
        return True

    def _disarmed(self, pid: int) -> None:
        self.armed.discard(pid)
        protected = self.protected.pop(pid, None)
        if protected is not None and pid in self.held:
            protected.end(self.held[pid].was_stopped)


def main() -> None:
    """The process: forks once more, so that gdb never waits for it, and serves."""
    channel = socket.socket(fileno=os.dup(0))
    if os.fork():
        os._exit(0)
    own_end.apart()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    channel.sendall(b"ready %d" % os.getpid())
    life = LivenessMutex(int(sys.argv[1])) if len(sys.argv) > 2 else None
    Server(channel, int(sys.argv[-1]), life).serve()


if __name__ == "__main__":
    main()
