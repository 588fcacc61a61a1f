"""Events of the watch for machines: JSON lines in a file, and a program that is run at a verdict.

A line is `{"schema": "gdbext-event/1", "time", "at", "host", "kind", ...}` with the data of its kind (model.py). It is bounded,
and holds no user's content."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import queue
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any, Callable, Iterator

from .. import log
from ..access import files, room
from ..access.background import background_thread
from ..errors import GdbextError
from .model import VERDICT, Event, Look, reason

SCHEMA = "gdbext-event/1"
BYTES, FILE_BYTES = 60_000, 16 << 20  # of a line, which a pipe takes at once; of a file, before it becomes FILE.1
TEXT, ITEMS = 2000, 64  # characters and items of one value
SECONDS, GRACE, STEP = 60.0, 2.0, 0.02  # that a program may take, and then has to end; between two looks at it
OUTPUT = 1 << 16  # bytes of what it says that are read
WAITING = 16  # verdicts that wait for the program; lines that wait for the file


def bounded(value: Any, depth: int = 6) -> Any:
    """A value of plain types, cut."""
    if isinstance(value, str):
        return value if len(value) <= TEXT else value[: TEXT - 3] + "..."
    if isinstance(value, dict):
        return {str(k)[:TEXT]: bounded(v, depth - 1) for k, v in list(value.items())[:ITEMS]} if depth else {}
    if isinstance(value, (list, tuple, set)):
        return [bounded(v, depth - 1) for v in list(value)[:ITEMS]] if depth else []
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)[:TEXT]


def line(event: Event) -> str:
    """An event as one line of JSON of at most `BYTES` bytes, ASCII."""
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(event.time)) + "Z"
    head = {"schema": SCHEMA, "time": event.time, "at": at, "host": os.uname().nodename, "kind": event.kind}
    text = json.dumps({**head, **bounded(event.data), **head}, separators=(",", ":"), allow_nan=False, default=str)
    if len(text) <= BYTES:
        return text
    short = {k: v for k, v in bounded(event.data).items() if not isinstance(v, (list, dict))}
    return json.dumps({**head, **short, **head, "cut": True}, separators=(",", ":"), allow_nan=False)


class Lines:
    """Appends events to a file or a FIFO, or with `-` to standard output. What does not take a line waits, WAITING lines at most;
    then the newest are dropped, and the next line says how many. No line is ever glued to a part of another.

    `failed`: why the last one was not written, '' where it was."""

    def __init__(self, path: str) -> None:
        self.path, self.failed = path if path == "-" else os.path.abspath(path), ""
        if path != "-" and (os.path.isdir(self.path) or not os.path.isdir(os.path.dirname(self.path))):
            raise GdbextError(f"-events {path}: a file of a folder that is there, or - for standard output")
        self._due: collections.deque[bytes] = collections.deque()
        self._begun, self._dropped = 0, 0  # bytes of the first line that a pipe has taken; events that no line is of

    def hear(self, event: Event) -> None:
        """One more event."""
        self.flush()
        if len(self._due) >= WAITING:
            self._dropped += 1
            return
        data = {"dropped": self._dropped, **event.data} if self._dropped else event.data
        self._dropped = 0
        self._due.append((line(replace(event, data=data)) + "\n").encode())
        self.flush()

    def flush(self, look: Look | None = None) -> None:
        """Writes what waits."""
        try:
            while self._due:
                with self._opened(len(self._due[0])) as file:
                    self._append(file, self._due[0])
                self._due.popleft()
            self.failed = ""
        except (OSError, ValueError) as e:
            self.failed = f"-events {self.path}: {getattr(e, 'strerror', None) or e}"
            log.note("an event was not written: %s", self.failed)
            if not isinstance(e, BlockingIOError):
                self._begun = 0  # nobody is left who has a part of it

    @contextlib.contextmanager
    def _opened(self, size: int) -> Iterator[int | None]:
        """The file, with room for a line of `size` bytes: it becomes FILE.1 before it is too long. None: `sys.stdout` is none."""
        if self.path == "-":
            sys.stdout.flush()
            number = None
            with contextlib.suppress(AttributeError, OSError, ValueError):  # gdb's own has no number
                number = sys.stdout.fileno()
            yield number
            return
        how = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        with contextlib.ExitStack() as closing:
            file = os.open(self.path, how | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
            closing.callback(os.close, file)
            if os.fstat(file).st_size + size > FILE_BYTES:
                os.replace(self.path, self.path + ".1")
                file = os.open(self.path, how | os.O_EXCL, 0o600)
                closing.callback(os.close, file)
            yield file

    def _append(self, file: int | None, data: bytes) -> None:
        """One line. A pipe that has no room gets the rest later; in a file a part that ends it, of whomever, stays a line of its
        own."""
        if file is None:
            sys.stdout.write(data.decode())
            sys.stdout.flush()
            return
        there = os.fstat(file)
        if stat.S_ISREG(there.st_mode):
            self._begun = 0
            data = b"\n" * _is_torn(file, there.st_size) + data
        while self._begun < len(data):
            self._begun += os.write(file, data[self._begun :])
        self._begun = 0


def _is_torn(file: int, size: int) -> bool:
    """Whether a file ends within a line."""
    with log.passing_over(GdbextError), files.open_regular(f"/proc/self/fd/{file}") as whole:
        return size > 0 and os.pread(whole.fileno(), 1, size - 1) != b"\n"
    return False


class Program:
    """Runs a command at each verdict, in a session of its own and with the event on its standard input; one after the other, and
    the watch waits for none of them. What one started ends with it. Its words mean what they mean in the folder of the watch.
    `ran`, `failed`, `dropped`: how many; `said`: of the last one, its status and output. `then(text)` hears of each verdict for
    which it failed, or that it will not get; the text is as the program wrote it."""

    def __init__(self, command: str, then: Callable[[str], None] = lambda text: None, seconds: float = SECONDS) -> None:
        try:
            self.words = shlex.split(command)
        except ValueError as e:
            raise GdbextError(f"-exec {command!r}: {e}") from None
        found = shutil.which(self.words[0]) if self.words else None
        if found is None:
            raise GdbextError(f"-exec {command!r}: there is no program {self.words[0] if self.words else ''!r}; no shell is used")
        self.words[0] = os.path.abspath(found)
        self.seconds, self.then = seconds, then
        self.ran = self.failed = self.dropped = 0
        self.said: tuple[int | None, str] = (None, "")
        self._due: queue.Queue[bytes] = queue.Queue(WAITING)
        background_thread(self._work)

    def hear(self, event: Event) -> None:
        """One more event; only verdicts count."""
        if event.kind != VERDICT:
            return
        try:
            self._due.put_nowait((line(event) + "\n").encode())
        except queue.Full:
            self.dropped += 1
            self._tell(f"a verdict was dropped: {WAITING} wait for it")

    def wait(self, seconds: float) -> None:
        """Until the program has run for all verdicts, or time is over."""
        end = time.monotonic() + seconds
        while self._due.unfinished_tasks and time.monotonic() < end:
            time.sleep(0.02)
        if self._due.unfinished_tasks:
            self._tell(f"not done with {self._due.unfinished_tasks} verdicts as the watch ended")

    def _work(self) -> None:
        while True:
            data = self._due.get()
            try:
                self.said = self._run(data)
                if self.said[0] != 0:
                    how = f"status {self.said[0]}" if self.said[0] is not None else f"ended after {self.seconds:g} s"
                    self._fail(f"{how}: {self.said[1][-200:].strip()}")
            except Exception as e:  # whatever it is: the next verdict is due
                self._fail(reason(e))
            finally:
                self.ran += 1
                self._due.task_done()

    def _fail(self, why: str) -> None:
        self.failed += 1
        self._tell(why)

    def _tell(self, why: str) -> None:
        with log.passing_over(Exception):  # standard error may be closed
            self.then(f"-exec {self.words[0]}: {why}")

    def _run(self, data: bytes) -> tuple[int | None, str]:
        with room.nameless_file() as given:  # not a pipe: who reads nothing keeps nobody waiting
            given.write(data)
            given.seek(0)
            child = subprocess.Popen(
                self.words, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
            )
        assert child.stdout is not None
        out, end, said, over = child.stdout.fileno(), time.monotonic() + self.seconds, b"", False
        try:
            os.set_blocking(out, False)
            while not over:
                over = _over(child) or time.monotonic() > end  # asked first: what it has said is there then, whoever has the pipe
                said = _heard(out, said)
                time.sleep(0 if over else STEP)
        finally:
            status = _ended(child)
            child.stdout.close()
        return status, said[:OUTPUT].decode("utf-8", "replace")


def _heard(out: int, said: bytes) -> bytes:
    """What a program has said, with what is in its pipe now."""
    with contextlib.suppress(BlockingIOError):
        for part in iter(lambda: os.read(out, OUTPUT), b""):
            said += part
            if len(said) > 2 * OUTPUT:
                break  # somebody may write for ever
    return said[:OUTPUT]


def _over(child: subprocess.Popen[bytes]) -> bool:
    """Whether a program has ended; it stays a zombie, whose number is nobody else's."""
    try:
        return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _ended(child: subprocess.Popen[bytes]) -> int | None:
    """A program's status, None where it has to be ended. What else is in its session ends with it."""
    late = not _over(child)
    for number in (*([signal.SIGTERM] if late else []), signal.SIGKILL):
        end = time.monotonic() + GRACE
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        while not _over(child) and time.monotonic() < end:
            time.sleep(STEP)
    status = child.poll()
    return None if late else status
