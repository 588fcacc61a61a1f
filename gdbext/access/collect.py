"""Starts collector processes (collector.py) and waits for their results."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import sys
import time
from typing import Any, Sequence

from .. import log, package
from ..errors import GdbextError
from . import collector, helpers, own_end, ptrace
from .guard import find_python

MODULE = "gdbext.access.collector"


class Result:
    """One snapshot of a process, by its collector's report.

    `file`, `bytes`. `pause`: seconds of all stops together; `pauses`: of each. `woken`: how many threads slept and were stopped.
    `partial`: what is missing and why. `left_out`: bytes of private memory that were not asked for. `threads`: count. `moment`:
    seconds after the epoch."""

    def __init__(self, pid: int, file: str, said: dict[str, Any]) -> None:
        self.pid, self.file, self.bytes, self.pauses = pid, file, int(said["bytes"]), list(said["pauses"])
        self.partial, self.threads, self.woken = list(said["partial"]), int(said["threads"]), int(said["woken"])
        self.left_out = int(said["left_out"])
        self.pause, self.moment = sum(self.pauses), float(said["moment"])


class Started:
    """A collector in an interpreter of its own: `pid`. `asked`: as for `collector.report`; `given`: more descriptors of its."""

    def __init__(self, asked: dict[str, Any], given: Sequence[int]) -> None:
        import subprocess  # here: a fork needs none

        words = [str(asked["pid"]), "-o", asked["path"], *(f"--word={w}" for w in asked["words"])]
        words += [f"--{name}={asked[name]}" for name in ("reader", "label", "heap")]
        words += [] if asked["until"] is None else [f"--until={asked['until']}"]
        self._late = subprocess.TimeoutExpired
        env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [*package.program(find_python(), MODULE), *words]
        with helpers.started():
            self.process = subprocess.Popen(command, cwd="/", env=env, text=True, pass_fds=given, **pipes)
        self.pid = self.process.pid

    def wait(self, seconds: float) -> tuple[str, str]:
        """(its output, its exit status); `TimeoutError` where it takes more than `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                out, err = self.process.communicate(timeout=max(min(helpers.LOOK, deadline - time.monotonic()), 0))
                break
            except self._late:
                own_end.wake(self.pid)
                if time.monotonic() > deadline:
                    raise TimeoutError from None
        return out, (log.pass_on(err).strip().splitlines() or [f"exit status {self.process.returncode}"])[-1]

    def end(self) -> None:
        """Kills it where it has not ended. A process in a wait that does not end is left to the kernel."""
        self.process.kill()
        with contextlib.suppress(self._late):
            self.process.communicate(timeout=helpers.FAREWELL)


class Forked:
    """A collector in a fork of this process, with the number `pid`. It does not have to start an interpreter and import the pack.
    Otherwise as `Started`."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self._said, write = os.pipe()
        self._reaped, parent = False, os.getpid()
        self.pid = helpers.fork()
        if self.pid:
            os.close(write)
            return
        status = 1
        try:
            ptrace.end_with_parent(parent)  # its output is not read any more; the threads that it has stopped run on
            package.first_to_go()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            gc.disable()  # it ends in seconds: a collection would walk, and so copy, all that it was forked with
            os.dup2(write, 1)
            sys.stdout = os.fdopen(1, "w", closefd=False)
            status = collector.report(**asked)
            sys.stdout.flush()
        except BaseException as e:  # it must not go on with the code of the process that it is a fork of
            os.write(1, f"\n{type(e).__name__}: {e}\n".encode())
        finally:
            os._exit(status)

    def wait(self, seconds: float) -> tuple[str, str]:
        """As `Started.wait`."""
        deadline = time.monotonic() + seconds
        parts: list[bytes] = []
        while helpers.answers(self.pid, self._said, deadline - time.monotonic()):
            parts.append(os.read(self._said, 1 << 16))
            if not parts[-1]:
                out = b"".join(parts).decode("utf-8", "replace")
                return out, (out.strip().splitlines() or [f"wait status {self._reap():#x}"])[-1]
        raise TimeoutError

    def end(self) -> None:
        """As `Started.end`."""
        if not self._reaped:
            self._reaped = True
            os.close(self._said)
            with log.passing_over(OSError):  # a filter forbids it: it ends with what it writes to
                os.kill(self.pid, signal.SIGKILL)
            helpers.reap(self.pid)

    def _reap(self) -> int:
        self._reaped = True
        os.close(self._said)
        return os.waitpid(self.pid, 0)[1]


class Here:
    """A collector in this process, where no other can be started: `why`. It stops nothing. Otherwise as `Started`."""

    pid = 0

    def __init__(self, asked: dict[str, Any], why: str) -> None:
        self._asked, self._why = {**asked, "until": None}, why

    def wait(self, seconds: float) -> tuple[str, str]:
        """As `Started.wait`, but for the time."""
        try:
            return json.dumps(collector.take(**self._asked, unstoppable=self._why)), ""
        except GdbextError as e:
            return json.dumps({"error": str(e)}), ""

    def end(self) -> None:
        """As `Started.end`."""


class Running:
    """A collector process at work on `pid`; `finish()` waits for it.

    `file`: the descriptor of the empty file to write. `reader`, `words` and `heap`: as for `collector.take`. `held`: it only
    learns which pages to copy until `go()`."""

    def __init__(
        self,
        pid: int,
        file: int,
        reader: str,
        label: str = "",
        words: Sequence[str] = (),
        *,
        heap: int = 0,
        held: bool = False,
    ) -> None:
        self.pid = pid
        self.path = f"/proc/self/fd/{file}"
        asked = {"pid": pid, "path": self.path, "reader": reader, "label": label, "words": words, "heap": heap, "until": None}
        # gdb, and any other process with threads, cannot be forked: a lock may be held in the fork for ever.
        alone = helpers.may_fork()
        given = [file]
        self._go: socket.socket | None = None
        if held:
            self._go, until = socket.socketpair()  # unlike a pipe's, its end kills no gdb that writes to it (SIGPIPE)
            given.append(until.fileno())
            asked["until"] = until.fileno()
        self.worker: Started | Forked | Here
        try:
            self.worker = Forked(asked) if alone else Started(asked, given)
        except GdbextError as e:
            self.worker = Here(asked, str(e))
            self._let_go()
        if held:
            until.close()

    def ready(self, seconds: float) -> None:
        """Waits until one that is held knows what to copy, or has ended; at most so long."""
        if self._go is not None and helpers.readable(self._go.fileno(), seconds):
            with contextlib.suppress(OSError):
                self._go.recv(1)

    def go(self) -> None:
        """Lets it stop the process."""
        if self._go is not None:
            with contextlib.suppress(OSError):  # it has ended, and its output says why
                self._go.send(b"!", socket.MSG_NOSIGNAL)
            self._let_go()

    def end(self) -> None:
        """Ends the collector at any point of its work; the process runs on."""
        self._let_go()
        self.worker.end()

    def _let_go(self) -> None:
        if self._go is not None:
            self._go.close()
            self._go = None

    def finish(self, timeout: float = 60) -> Result:
        """The collector's `Result`. `GdbextError` when the collector failed, or did not end in `timeout` seconds; it is then
        ended, and the process runs on."""
        self.go()
        try:
            out, how = self.worker.wait(timeout)
        except TimeoutError:
            raise GdbextError(f"process {self.pid}: the collector did not finish in {timeout} s; the process runs on") from None
        finally:
            self.end()
        try:
            answer = json.loads(out.splitlines()[-1])
        except (ValueError, IndexError):
            raise GdbextError(f"process {self.pid}: the collector failed ({how}); the process runs on") from None
        if "error" in answer:
            raise GdbextError(answer["error"])
        return Result(self.pid, self.path, answer)


def collect(
    pid: int, path: str, reader: str, label: str = "", words: Sequence[str] = (), *, heap: int = 0, timeout: float = 60
) -> Result:
    """Starts a collector process for `pid`, waits for it (at most `timeout` seconds) and returns its `Result`.

    `path` is the file to write, new or emptied. It is for scripts and tests: commands write through render/files.py."""
    try:
        with open(path, "wb") as f:
            result = Running(pid, f.fileno(), reader, label, words, heap=heap).finish(timeout)
    except OSError as e:
        raise GdbextError(f"{path}: {e.strerror}: name another file with -o") from None
    result.file = path
    return result
