"""Starts collector processes (collector.py) and waits for their results."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

from ..errors import GdbextError
from .guard import find_python

if TYPE_CHECKING:
    from typing import Sequence

MODULE = "gdbext.access.collector"


class Result:
    """One snapshot: `pid`, `file`, `bytes`; `pause`: seconds of all stops together; `pauses`: of each; `partial`: what is missing
    and why; `threads`: count."""

    def __init__(self, pid: int, file: str, size: int, pauses: list[float], partial: list[str], threads: int) -> None:
        self.pid, self.file, self.bytes, self.pauses, self.partial, self.threads = pid, file, size, pauses, partial, threads
        self.pause = sum(pauses)


class Running:
    """A collector process at work on `pid`; `finish()` waits for it. `reader`, `words` and `heap`: as for `collector.take`."""

    def __init__(self, pid: int, path: str, reader: str, label: str = "", words: Sequence[str] = (), *, heap: int = 0) -> None:
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        command = [find_python(), "-m", MODULE, str(pid), "-o", os.path.abspath(path), "--label", label]
        command += ["--reader", reader, "--heap", str(heap)] + [f"--word={w}" for w in words]
        env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        self.pid, self.path = pid, path
        self.process = subprocess.Popen(
            command, cwd=root, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def finish(self, timeout: float = 60) -> Result:
        """Its `Result`; `GdbextError` when it failed or did not end in `timeout` seconds (it is ended then, the process runs
        on)."""
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise GdbextError(f"process {self.pid}: the collector did not finish in {timeout} s; the process runs on") from None
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.communicate()
        try:
            answer = json.loads(out.splitlines()[-1])
        except (ValueError, IndexError):
            last = (err.strip().splitlines() or [f"exit status {self.process.returncode}"])[-1]
            raise GdbextError(f"process {self.pid}: the collector failed ({last}); the process runs on") from None
        if "error" in answer:
            raise GdbextError(answer["error"])
        return Result(self.pid, self.path, answer["bytes"], answer["pauses"], answer["partial"], answer["threads"])


def collect(
    pid: int, path: str, reader: str, label: str = "", words: Sequence[str] = (), *, heap: int = 0, timeout: float = 60
) -> Result:
    """Starts a collector process for `pid`, waits for it (at most `timeout` seconds) and returns its `Result`."""
    return Running(pid, path, reader, label, words, heap=heap).finish(timeout)
