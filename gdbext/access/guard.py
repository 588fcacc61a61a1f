"""gdb's side of the guard, a small process that outlives gdb. If gdb dies while it has processes attached, the guard resumes
them.

`Guard` starts `python3 guard_process.py` and names each process to it before gdb attaches. recovery.py holds the work that the
guard does once gdb has died."""

from __future__ import annotations

import errno
import functools
import os
import socket
import sys
import threading
import time
from typing import Any

from .. import log
from ..errors import GdbextError, NotFoundError, no_process
from . import own_end, ptrace
from .background import background_thread
from .liveness import LivenessMutex
from .procfs import descriptors

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guard_process.py")
ANSWER = 20.0  # seconds that the guard may take to answer
UNGUARDED = "processes will not be resumed if gdb is killed"


@functools.lru_cache(maxsize=1)
def find_python() -> str:
    """A python3 (3.8 or newer) that can be started from here, gdb's own Python included; `NotFoundError` when there is none,
    `GdbextError` where the kernel gives no process."""
    import shutil  # here: a command outside gdb starts none
    import subprocess

    version = "python%d.%d" % sys.version_info[:2]
    names: list[str | None] = [sys.executable] if os.path.basename(sys.executable or "").startswith("python") else []
    names += [os.path.join(p, "bin", version) for p in (sys.base_prefix, sys.prefix)]
    names += [shutil.which(n) for n in (version, "python3", "python")]
    probe = "import sys, ctypes; sys.exit(sys.version_info < (3, 8))"
    for path in dict.fromkeys(n for n in names if n and os.access(n, os.X_OK)):
        try:
            line = [os.path.abspath(path), "-S", "-E", "-c", probe]
            done = subprocess.run(
                line, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, timeout=10
            )  # -c imports from there
        except (OSError, subprocess.TimeoutExpired) as e:
            if isinstance(e, OSError) and e.errno == errno.EAGAIN:
                raise no_process(e) from None
            continue
        if done.returncode == 0:
            return path
    raise NotFoundError("no python3 (3.8 or newer) found on PATH: install one")


class _Told:
    """What a guard knows of a process: the arguments of `own`, the addresses of breakpoint bytes that it had (text), whether
    registers are armed, and a group-stop lasts."""

    def __init__(self, was_stopped: bool, known: str) -> None:
        self.was_stopped, self.known = was_stopped, known
        self.armed = self.protected = False


class Guard:
    """Starts the guard process and talks to it over a socket. No other process has gdb's end of the socket, so its closing tells
    the guard that gdb has ended. One that is killed is started again, and told all that the first one knew."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._starts: Any = None  # what it was started by, until it has said that it is ready
        self._asked, self._gdb = 0, (False, False)
        self.confined = ""  # the control group of gdb that the guard could not leave for the engine's
        self._pid: int | None = None
        self._told: dict[int, _Told] = {}
        self._lock = threading.RLock()

    @property
    def pid(self) -> int | None:
        """Its number, once it is ready."""
        with self._lock:
            self._wait()
            return self._pid

    def start(self) -> None:
        """Starts it where it does not run yet, and does not wait for it; `GdbextError` when it cannot be."""
        if self._socket is not None:
            return
        import subprocess

        ours, theirs = socket.socketpair()  # both close-on-exec: nothing that gdb starts keeps an end open
        life = LivenessMutex.held()
        fds = [life.fd] if life else []
        try:
            # Its own session, so that Ctrl-C in gdb's terminal does not reach it; it forks once more, so gdb never waits for it.
            self._starts = subprocess.Popen(
                [find_python(), "-S", "-E", SCRIPT, *map(str, fds), str(os.getpid())],
                pass_fds=fds,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
            ours.settimeout(ANSWER)
        except OSError as e:
            ours.close()
            raise GdbextError(f"the guard process did not start ({e}): {UNGUARDED}") from None
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._socket, self._gdb = ours, (False, False)

    def _wait(self) -> None:
        """Returns once it is ready; `GdbextError` where it does not start."""
        if self._socket is None or self._starts is None:
            return
        try:
            answer, why = self._socket.recv(64), ""
        except OSError as e:
            answer, why = b"", f" ({e})"
        if not answer.startswith(b"ready "):
            self.end()
            raise GdbextError(f"the guard process did not start{why}: {UNGUARDED}")
        self._starts.wait()  # it has forked, and ended
        self._starts = None
        self._pid = int(answer.split()[1])
        with log.passing_over(GdbextError):  # no thread more: it is not looked after
            background_thread(self._look_after, self._pid)

    def _look_after(self, pid: int) -> None:
        """Lets the guard go on where a signal stops it, since gdb waits for it, and starts another where one has ended it."""
        began = ptrace.start_time(pid)
        while self._pid == pid and self._socket is not None:
            own_end.wake(pid)
            time.sleep(0.2)
            if began is not None and ptrace.start_time(pid) != began:
                with self._lock:
                    if self._pid == pid and self._socket is not None:
                        self._again()

    def _again(self) -> bool:
        """Starts another, in place of one that is gone. -> whether it runs, and knows what the first one knew"""
        told, gdb = self._told, self._gdb
        self.end()
        try:
            self.start()
            for pid, one in told.items():
                self.own(pid, one.was_stopped, one.known)
                if one.armed:
                    self.armed(pid)
                if one.protected:
                    self.protected(pid)
            self.gdb_is(*gdb)
        except GdbextError as e:
            log.passed_over(e)
            self.end()
        return self._socket is not None

    def _tell(self, line: str, again: bool = True) -> bool:
        """False where the guard is gone, and no other can be started."""
        with self._lock:
            if self._socket is None:
                return False
            try:
                self._socket.sendall(line.encode() + b"\n", socket.MSG_NOSIGNAL)
                return True
            except OSError as e:
                log.passed_over(e)
            if again and self._again():
                return self._tell(line, False)
            self.end()
            return False

    def _need(self, line: str) -> None:
        if self._socket is not None and not self._tell(line):
            raise GdbextError(f"the guard process is gone: {UNGUARDED}")

    def own(self, pid: int, was_stopped: bool, known: str = "") -> None:
        """Announces to the guard that gdb is about to attach to `pid`, and waits for its reply.

        The guard first notes the breakpoint bytes that the process has already, unless they are `known` from another one; bytes
        that come later are gdb's. `GdbextError` when the guard is gone."""
        with self._lock:
            self._wait()
            if self._socket is None:
                return
            self._asked += 1
            self._need(f"own {pid} {ptrace.start_time(pid) or 0} {int(was_stopped)} {self._asked} {known}")
            said, wanted = b"", b"seen %d " % self._asked
            try:
                # an answer that an interrupt left unread may come first
                while self._socket is not None and said.partition(wanted)[2].count(b"\n") < 2:
                    more = self._socket.recv(4096)
                    if not more:
                        raise OSError
                    said += more
            except OSError:
                if not known and self._again():  # nothing of gdb's is in the process yet
                    self.own(pid, was_stopped)
                    return
                self.end()
                raise GdbextError(f"the guard process does not answer: {UNGUARDED}") from None
            known, where, _ = said.partition(wanted)[2].decode("utf-8", "surrogateescape").split("\n", 2)
            word, _, group = where.partition(" ")
            self.confined = group if word == "stays" else ""
            self._told[pid] = _Told(was_stopped, known)

    def resumed(self, pid: int) -> None:
        """Reports to the guard that the user resumed `pid`. It is not to be stopped again, even if it was stopped before the
        attach."""
        if pid in self._told:
            self._told[pid].was_stopped = False
        self._tell(f"ran {pid}")

    def armed(self, pid: int, yes: bool = True) -> None:
        """Reports to the guard whether debug registers of `pid` are set. It stops such a process as soon as gdb begins to exit.

        `GdbextError` where they are about to be set and the guard is gone."""
        if pid in self._told:
            self._told[pid].armed, self._told[pid].protected = yes, yes and self._told[pid].protected
        if yes:
            self._need(f"armed {pid} 1")
        else:
            self._tell(f"armed {pid} 0")

    def protected(self, pid: int) -> None:
        """Reports to the guard that `pid` is in a group-stop that gdb overrides. The guard makes it again where a SIGCONT ends
        it, until nothing is armed."""
        if pid in self._told:
            self._told[pid].protected = True
        self._tell(f"protected {pid}")

    def gdb_is(self, runs: bool, unattended: bool) -> None:
        """Reports to the guard whether gdb lets its processes run, and whether nobody is at its prompt: it then lets gdb go on
        where a signal stops it."""
        if (runs, unattended) != self._gdb:
            self._gdb = runs, unattended
            self._tell(f"gdb 0 {int(runs)} {int(unattended)}")

    def free(self, pid: int) -> None:
        """Reports to the guard that gdb has detached from `pid`. Never an error: other processes are still to be detached."""
        self._told.pop(pid, None)
        self._tell(f"free {pid}")

    def end(self) -> None:
        """Ends the guard, which has nothing to watch any more. Never an error."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
            self._told = {}
            if self._starts is not None:
                self._starts.kill()
                self._starts.wait()
                self._starts = None


def recovering() -> list[int]:
    """Pids of guards whose gdb has died and that are still repairing its processes (for `recovery.WATCH` seconds).

    Only our own guards count: started by our user from our own script. Any process can have any command line."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
                continue
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")[:-1]
        except OSError:
            continue
        if len(words) > 1 and words[-1].isdigit() and os.fsencode(SCRIPT) in words[:-1] and _has_channel(pid):
            owner = ptrace.status(int(words[-1]))
            if owner is None or owner["state"] in "ZX":
                found.append(int(pid))
    return found


def _has_channel(pid: str) -> bool:
    """Whether a process has an open socket; a guard has one until it ends."""
    try:
        return any(link.startswith("socket:") for _, link in descriptors(int(pid)))
    except GdbextError as e:
        log.passed_over(e)
        return False
