"""Lets chosen threads of other processes stand still for moments, while somebody reads their memory: a process of its own.

`Holder` starts it (`python3 -m gdbext.access.holder`), also from gdb, whose own waits must not meet ptrace's. A request is a line
of JSON, `[pid, [tid, ...]]`; the answer `{"registers": {tid: hex}}` comes while these threads stand still, until the next line or
for `LIMIT` seconds; then `[seconds that they stood still, whether the time was over]`. They are stopped without a signal
(ptrace.py): should this process be killed at any moment, every thread runs on, and it ends with the one that started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from .. import package
from ..errors import GdbextError, NotFoundError
from . import ptrace
from .collector import before_others
from .guard import find_python

if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator

MODULE = "gdbext.access.holder"
LIMIT = 0.05  # seconds that threads stand still at most once all do, whatever becomes of the reader
TIMEOUT = 0.03  # seconds that a thread may take to stop, while others stand already
PATIENCE = 0.02  # seconds that another tracer is given to go
STRAY = 0.001  # seconds between two looks at threads that came to the kernel before their stop


class Held:
    """Threads that stand still: `registers`, raw, by tid; after the block `seconds` for which they did, and whether they were let
    go before its end (`over`): then what was read of them is of different moments."""

    def __init__(self, registers: dict[int, bytes]) -> None:
        self.registers, self.seconds, self.over = registers, 0.0, False


class Holder:
    """Threads of other processes that stand still, one process at a time. `cpu`: seconds of it, once it was ended."""

    def __init__(self) -> None:
        env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(package.program(find_python(), MODULE), cwd="/", env=env, **pipes)
        self.cpu = 0.0

    @contextlib.contextmanager
    def held(self, pid: int, tids: Iterable[int]) -> Iterator[Held]:
        """Threads stand still in the block, but for those that sleep in the kernel. `GdbextError` where the process may not be
        stopped."""
        self._say([pid, list(tids)])
        answer = self._hear()
        if "error" in answer:
            raise GdbextError(answer["error"])
        held = Held({int(tid): bytes.fromhex(raw) for tid, raw in answer["registers"].items()})
        try:
            yield held
        finally:
            self._say(None)
            held.seconds, held.over = self._hear()

    def _say(self, what: object) -> None:
        try:
            self._process.stdin.write(json.dumps(what).encode() + b"\n")  # type: ignore[union-attr]
            self._process.stdin.flush()  # type: ignore[union-attr]
        except OSError:
            raise GdbextError("the process that stops threads has ended; they run on") from None

    def _hear(self) -> Any:
        try:
            return json.loads(self._process.stdout.readline())  # type: ignore[union-attr]
        except ValueError:
            raise GdbextError("the process that stops threads has ended; they run on") from None

    def __enter__(self) -> Holder:
        return self

    def __exit__(self, *reason: object) -> None:
        """Ends it: whatever it holds runs on."""
        os.kill(self._process.pid, signal.SIGKILL)  # it was not waited for: the number is its own
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        _, self._process.returncode, used = os.wait4(self._process.pid, 0)
        self.cpu = used.ru_utime + used.ru_stime


class _Requests:
    """Lines that come in; the end of them is the end of this process."""

    def __init__(self) -> None:
        self._strays: list[ptrace.Stopped] = []

    def line(self, limit: float | None = None) -> str | None:
        """The next line, "" at the end, None where none came in `limit` seconds; strays are let go as they come round."""
        while True:
            wait = STRAY if self._strays and limit is None else limit
            if select.select([0], [], [], wait)[0]:
                return sys.stdin.readline()
            self._strays = [one for one in self._strays if not one.release_stray()]
            if limit is not None:
                return None

    def serve(self) -> None:
        """Answers them."""
        for text in iter(self.line, ""):
            pid, tids = json.loads(text or "null")
            away = {tid for one in self._strays for tid in one.stray}
            wanted = [tid for tid in tids if tid not in away and ptrace.thread_state(pid, tid) != "D"]
            stopped = ptrace.Stopped(pid, TIMEOUT, only=wanted, patience=PATIENCE)
            following: str | None = None
            try:
                with before_others(), stopped:
                    _say({"registers": dict(_registers(stopped))})
                    following = self.line(LIMIT)
            except NotFoundError:  # they have ended, or none was left
                _say({"registers": {}})
                following = self.line()
            except GdbextError as e:
                _say({"error": str(e)})
                continue
            over = following is None
            if stopped.stray:
                self._strays.append(stopped)
            if (self.line() if over else following) == "":
                return
            _say([stopped.seconds, over])


def _registers(stopped: ptrace.Stopped) -> Iterator[tuple[int, str]]:
    for tid in stopped.threads:
        with contextlib.suppress(OSError):  # killed meanwhile
            yield tid, ptrace.general_registers(tid).hex()


def _say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> int:
    """The process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C is for the one that reads, which then ends this
    with contextlib.suppress(BrokenPipeError):
        _Requests().serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
