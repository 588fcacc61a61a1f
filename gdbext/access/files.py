"""Files that a process, a core or a colleague names: which may be opened, and how much a read of them may cost.

No name and no byte is trusted. A name is followed inside the process's own root (in_root.py), only a regular file is opened, and
every reader works within a `Budget`. A damaged file is one `GdbextError` that names it."""

from __future__ import annotations

import contextlib
import os
import re
import struct
import time
from typing import Any, BinaryIO, Iterator, overload

from ..errors import GdbextError, NotFoundError
from . import in_root

MAX_SOURCE = 8 << 20  # bytes of a source file that are read
ANSWER = 1.0  # seconds that a file server is waited for
BLOCK, MAX_BLOCKS = 16 << 10, 64  # bytes of a block of `FileBytes`, and how many of them it keeps
MAX_READ = 1 << 30  # bytes of one system call: the kernel gives 2 GiB at most
NEAR, MAX_SEARCH = 512, 4 << 20  # bytes that a search reads at first, and at once later
JSON_SIZE = 1 << 30  # bytes of memory that parsed JSON may take
MAX_DIGITS = 300  # of a number: a float holds it
LONG_NUMBER = rb"[0-9]{300}|[eE][+]?[0-9]{3}"
MAX_DEPTH = 100  # lists and objects inside each other
# Bytes that a mark of JSON text can become at most when parsed: an object, a list, half a string, a key, a place in either
# with its number (CPython 3.8 to 3.15, 64 bits).
_COSTS = ((b"{", 240), (b"[", 88), (b'"', 30), (b":", 24), (b",", 40))
DAMAGE = (
    struct.error,
    LookupError,
    TypeError,
    ValueError,
    ArithmeticError,
    AttributeError,
    RecursionError,
    MemoryError,
    EOFError,
)


def open_regular(path: str) -> BinaryIO:
    """Opens a regular file for reading, and never waits.

    `NotFoundError` where the file does not exist, may not be read by us, or is no regular file (a FIFO would wait for its writer,
    a device may do anything): such a one is not opened at all."""
    try:
        found = os.open(path, os.O_PATH | os.O_CLOEXEC)
        return open(in_root.opened(found, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY), "rb")
    except (OSError, ValueError) as e:
        raise NotFoundError(f"{path}: {getattr(e, 'strerror', None) or e}") from None


def contents(path: str, limit: int) -> bytes:
    """The bytes of a regular file; `NotFoundError` as of `open_regular`, `GdbextError` where it has more than `limit`."""
    with open_regular(path) as f:
        size = os.fstat(f.fileno()).st_size
        if size > limit:
            raise GdbextError(f"{path}: more than {limit >> 20} MiB")
        try:
            return f.read(size)
        except OSError as e:
            raise NotFoundError(f"{path}: {e.strerror}") from None


def file_status(path: str, follow: bool = True) -> tuple[int, int, int] | None:
    """(mode, device, inode) of a file; None where it cannot be examined, or its file server does not answer within `ANSWER`
    seconds. `follow`: of a link, what it leads to.

    Another process asks, and is left behind in the second case. A wait for some file servers cannot be ended, not even by killing
    the process that waits."""
    import subprocess

    try:
        asking = subprocess.Popen(
            ["stat", *(["-L"] if follow else []), "-c", "%f %d %i", "--", path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is not its business
        )
        try:
            words = asking.communicate(timeout=ANSWER)[0].split()
        except subprocess.TimeoutExpired:
            asking.kill()
            return None
        return int(words[0], 16), int(words[1]), int(words[2])
    except (OSError, ValueError, IndexError):
        return None


def source_lines(path: str, limit: int = MAX_SOURCE, file: BinaryIO | None = None) -> list[str]:
    """The lines of a source file, of its first `limit` bytes; errors as of `open_regular`. `file`: the open file, if it
    is open."""
    with file or open_regular(path) as f:
        try:
            text = f.read(limit).decode("utf-8", "replace")
        except OSError as e:
            raise NotFoundError(f"{path}: {e.strerror}") from None
    lines = [line.rstrip("\r") for line in text.split("\n")]  # not splitlines(): a form feed ends no line of Python
    return lines[:-1] if lines[-1] == "" else lines


def archive_of(path: str) -> str:
    """The file that stands where a path should have a folder: an archive of zipimport. '' where there is none."""
    folder = os.path.dirname(path)
    while len(folder) > 1 and not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    return folder if os.path.isfile(folder) else ""


def archived_lines(path: str, member: str, file: BinaryIO, limit: int = MAX_SOURCE) -> list[str]:
    """As `source_lines`, of a member of the zip archive `path`, open as `file`."""
    import zipfile  # few ask for them, and every command would wait
    import zlib

    with file:
        try:
            with zipfile.ZipFile(file) as archive, archive.open(member) as f:
                return source_lines(path, limit, f)  # type: ignore[arg-type]
        except KeyError:
            raise NotFoundError(f"{path}: the archive has no {member}") from None
        except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, NotImplementedError, EOFError, zlib.error) as e:
            raise NotFoundError(f"{path}: no archive that can be read: {e}") from None


class FileBytes:
    """The bytes of a regular file, as a sequence that is read on demand; errors as of `open_regular`.

    The file is not mapped. A file may be truncated while it is mapped; a read of the mapping then kills the process, here the
    debugger, with SIGBUS. Here that case is a `NotFoundError`. Small pieces come from a few blocks that are kept."""

    __slots__ = ("path", "_file", "_size", "_blocks")

    def __init__(self, path: str, file: BinaryIO | None = None) -> None:
        """`file`: `path`, where it is open already; it is kept open."""
        self.path = path
        self._file = open_regular(path) if file is None else file
        self._size = os.fstat(self._file.fileno()).st_size
        self._blocks: dict[int, bytes] = {}
        if not self._size:
            raise NotFoundError(f"{path}: empty file")

    def __len__(self) -> int:
        return self._size

    def fileno(self) -> int:
        """The descriptor of the open file."""
        return self._file.fileno()

    @overload
    def __getitem__(self, where: int) -> int: ...

    @overload
    def __getitem__(self, where: slice) -> bytes: ...

    def __getitem__(self, where: int | slice) -> int | bytes:
        if isinstance(where, int):
            if not 0 <= where < self._size:
                raise IndexError(f"{self.path} has {self._size} bytes")
            return self._block(where // BLOCK)[where % BLOCK]
        start, end, _ = where.indices(self._size)
        if start >= end:
            return b""
        first, last = start // BLOCK, (end - 1) // BLOCK
        if first == last:
            return self._block(first)[start - first * BLOCK : end - first * BLOCK]
        return self.read(start, end - start)

    def _block(self, number: int) -> bytes:
        found = self._blocks.get(number)
        if found is None:
            if len(self._blocks) >= MAX_BLOCKS:
                self._blocks.clear()
            start = number * BLOCK
            found = self._blocks[number] = self.read(start, min(BLOCK, self._size - start))
        return found

    def read(self, start: int, size: int) -> bytes:
        """`size` bytes from the offset `start` on; `NotFoundError` where the file has not so many."""
        parts, at, end = [], start, start + size
        while at < end:
            try:
                part = os.pread(self._file.fileno(), min(end - at, MAX_READ), at)
            except (OSError, OverflowError) as e:
                raise NotFoundError(f"{self.path}: {getattr(e, 'strerror', None) or e}") from None
            if not part:
                raise NotFoundError(f"{self.path}: it was cut short while it was read")
            parts.append(part)
            at += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def find(self, word: bytes, start: int = 0, end: int | None = None) -> int:
        """As `bytes.find`."""
        stop, step = self._size if end is None else min(end, self._size), NEAR
        while start + len(word) <= stop:
            found = self[start : min(start + step + len(word) - 1, stop)].find(word)
            if found >= 0:
                return start + found
            start, step = start + step, min(4 * step, MAX_SEARCH)
        return -1

    def rfind(self, word: bytes, start: int = 0, end: int | None = None) -> int:
        """As `bytes.rfind`."""
        stop, step = self._size if end is None else min(end, self._size), NEAR
        while start + len(word) <= stop:
            low = max(start, stop - step - len(word) + 1)
            found = self[low:stop].rfind(word)
            if found >= 0:
                return low + found
            stop, step = low + len(word) - 1, min(4 * step, MAX_SEARCH)
            if low == start:
                break
        return -1


class Budget:
    """How much reading one file may cost, whatever the file claims: `size` bytes of memory, and `seconds` of CPU time of the
    reading thread.

    A reader calls `take(n)` before it makes `n` bytes out of the file, and `take(0)` in a loop whose length the file determines.
    `GdbextError` when the budget is spent."""

    __slots__ = ("path", "size", "seconds", "_left", "_deadline")

    def __init__(self, path: str, size: int = 1 << 30, seconds: float = 30.0) -> None:
        self.path, self.size, self.seconds = path, size, seconds
        self._left, self._deadline = size, time.thread_time() + seconds

    def take(self, count: int) -> None:
        """Spends `count` bytes of the budget. If fewer are left, nothing is spent."""
        if count > self._left or count < 0:
            raise GdbextError(f"{self.path}: damaged: reading it would take more than {self.size >> 20} MiB of memory")
        self._left -= count
        if time.thread_time() > self._deadline:
            raise GdbextError(f"{self.path}: damaged, or far too big: not read in {self.seconds:g} s")


def take_json(budget: Budget, data: bytes) -> None:
    """Takes from the budget the most memory that a piece of JSON text can need once it is parsed: 8 bytes of text can
    become 250."""
    budget.take(len(data) * (2 if data.isascii() else 6) + sum(cost * data.count(mark) for mark, cost in _COSTS))


def json_of(data: bytes, name: str, budget: Budget | None = None, taken: bool = False) -> Any:
    """The value of JSON text; the one way to parse JSON that others wrote.

    `budget`: shared with other texts; without it JSON_SIZE. `taken`: `take_json` has counted all of the text already.
    `ValueError` for text that is no JSON, has a number that no float holds (1e999, NaN), or is deeper than MAX_DEPTH.
    Text that does not fit the budget is a `GdbextError` that calls it `name`."""
    if not taken:
        take_json(budget or Budget(name, JSON_SIZE), data)
    import json  # here: most commands read none

    try:
        odd = re.search(LONG_NUMBER, data) is not None  # they take a function call for each number
        found = json.loads(
            data, parse_int=_short_int if odd else None, parse_float=_finite if odd else None, parse_constant=_finite
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [found]
    for _ in range(MAX_DEPTH):
        level = [
            one
            for inner in level
            for one in (inner.values() if type(inner) is dict else inner if type(inner) is list else ())
            if type(one) in (dict, list)
        ]
        if not level:
            return found
    raise ValueError("nested too deeply")


def _finite(text: str) -> float:
    number = float(text)
    if not abs(number) < float("inf"):
        raise ValueError(f"a number that is not finite: {text[:40]}")
    return number


def _short_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


@contextlib.contextmanager
def reading(path: str, *more: type[Exception]) -> Iterator[None]:
    """A `with` block in which a file is decoded: errors caused by damaged bytes become one `GdbextError` that names the file.

    `more`: exceptions of a format's own library (`zipfile.BadZipFile`) that mean damage too."""
    try:
        yield
    except DAMAGE + more as e:
        what = str(e).splitlines()[0][:200] if str(e) else type(e).__name__
        raise GdbextError(f"{path}: damaged ({what})") from None
    except OSError as e:
        raise GdbextError(f"{path}: {e.strerror or e}") from None
