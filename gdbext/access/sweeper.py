"""Removes gdb's files in a process's /tmp (shared_folder.py) if gdb is killed before it does so itself.

It is a process of its own. Where it may, it joins the control groups of the other process, so that the end of gdb's container
does not end it too. It waits for the end of gdb, which is the end of the socket that is its standard input. Standard library
only; no gdb."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time

from .. import log, package
from ..errors import GdbextError
from . import cgroups, own_end
from .guard import find_python

MODULE = "gdbext.access.sweeper"
ANSWER = 20.0  # seconds that it may take to start, on a machine at full load
FILES = ("run.py", "result", "result.new", "result.log")
LATER = 3600.0  # seconds in which a script may end whose result nobody waits for
TRIES = 1000  # of a folder into which a script still writes


class Sweeper:
    """Starts a process that removes the folder `name` from the open folder `parent` if this process ends before `end()`. It is
    ready once the object is made; the folder may be created then. Where it cannot be started, the log says so and the folder
    would stay."""

    def __init__(self, pid: int, parent: int, name: str) -> None:
        self._socket, theirs = socket.socketpair()  # both close-on-exec: nothing that gdb starts keeps an end open
        self._process: subprocess.Popen[bytes] | None = None
        try:
            env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
            line = [*package.program(find_python(), MODULE), str(os.getpid()), str(pid), str(parent), name]
            self._process = subprocess.Popen(
                line,
                cwd="/",
                env=env,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[parent],
                start_new_session=True,
            )
            theirs.close()
            self._socket.settimeout(ANSWER)
            if not self._socket.recv(1):
                raise GdbextError("it ended at once")
        except (GdbextError, OSError) as e:
            log.passed_over(e, f"nothing removes {name} if this process is killed")
        finally:
            theirs.close()

    def will_run(self, pending: int, place: int, path: str) -> None:
        """To be called before the process is asked to run a script. If this process is killed, the request is taken back first.
        `pending`: the address of the flag, `place`: that of the script's path (PEP 768)."""
        self._tell(f"{pending} {place} {path}\n")

    def end(self) -> None:
        """Ends it, which then removes nothing. Never an error."""
        self._tell("stays\n")
        self._socket.close()
        if self._process is not None:
            deadline = time.monotonic() + ANSWER
            while self._process.poll() is None and time.monotonic() < deadline:
                with log.passing_over(subprocess.TimeoutExpired):
                    self._process.wait(0.2)
                own_end.wake(self._process.pid)

    def leave(self) -> None:
        """Lets it go on alone: it removes the folder once the script has ended. Never an error."""
        self._tell("later\n")
        self._socket.close()

    def _tell(self, line: str) -> None:
        with log.passing_over(OSError):
            self._socket.sendall(line.encode("utf-8", "surrogateescape"), socket.MSG_NOSIGNAL)


def sweep(parent: int, name: str, folder: int) -> None:
    """Removes the folder `name`, open as `folder`, from the open folder `parent`, with the files of the exchange. A folder with
    other files in it stays."""
    for _ in range(TRIES):
        for file in FILES:
            with contextlib.suppress(OSError):
                os.unlink(file, dir_fd=folder)
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=parent)
            return
        if not set(os.listdir(folder)) & set(FILES):  # else the script has made one meanwhile
            return


def _take_back(pid: int, pending: int, place: int, path: bytes) -> None:
    """Clears the flag that asks a process to run the script at `path`, if it has not begun to."""
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as mem:
        if os.pread(mem.fileno(), len(path) + 1, place) == path + b"\0" and os.pread(mem.fileno(), 1, pending) == b"\1":
            os.pwrite(mem.fileno(), b"\0", pending)


def _await(pid: int, folder: int) -> bool:
    """Waits for the end of a script, which has a result then or, where it could not write one, has removed itself, or of its
    process. -> whether that came in time"""
    end = time.monotonic() + LATER
    while time.monotonic() < end:
        there = os.listdir(folder)
        if "result" in there or "run.py" not in there or not os.path.exists(f"/proc/{pid}"):
            return True
        time.sleep(0.2)
    return False


def main() -> int:
    """The process."""
    own_end.apart()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    owner, pid, parent = map(int, sys.argv[1:4])
    name, channel, said = sys.argv[4], socket.socket(fileno=os.dup(0)), b""
    cgroups.move_to(pid)
    with contextlib.suppress(OSError):
        channel.sendall(b".")
    while True:
        gone = os.getppid() != owner  # checked first, so that its last message is read
        if select.select([channel], [], [], 0.0 if gone else 1.0)[0]:
            more = channel.recv(4096)
            if not more:
                break
            said += more
        elif gone:
            break
    *asked, last = said.splitlines() or [b""]
    if last == b"stays":
        return 0
    later = last == b"later"
    if last and not later:
        with contextlib.suppress(OSError):
            pending, place, path = last.split(b" ", 2)
            _take_back(pid, int(pending), int(place), path)
    with contextlib.suppress(OSError):
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        if not later or _await(pid, folder):
            sweep(parent, name, folder)
    return 0
