"""The log that a program writes, where that is a file that may be read: how many lines of each level, and tracebacks as frames.

Engines log prompts, and so a line's text is never kept: of a traceback the frames stay whose file is there for the process and
has a function of that name, and an exception's name where it is one of Python's own or of `KNOWN`.
Sources: Lib/traceback.py (StackSummary.format), Lib/logging (levels' names), proc_pid_fd(5)."""

from __future__ import annotations

import builtins
import os
import re
import stat
from typing import NamedTuple

from .. import log
from ..access.in_root import open_in_root, opened
from ..access.proc import process_root

OUTPUTS = (2, 1)  # descriptors that are looked at: an error comes on the first
LEVELS = ("CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG")
ALIASES = {"FATAL": "CRITICAL", "WARN": "WARNING", "E": "ERROR", "W": "WARNING"}
KNOWN = {"OutOfMemoryError", "CancelledError", "InvalidStateError", "BrokenProcessPool", "BrokenBarrierError", "Empty", "Full"}
AT_ONCE = 1 << 18  # bytes of a log that are read at one look; what lies before is counted as skipped
LINE, HEAD = 4096, 100  # characters of a line; where its level stands
FRAMES, TRACEBACKS = 64, 8  # the innermost of a traceback; the last of a look
SOURCE = 1 << 20  # bytes of a file in which a function is looked for
CHECKED = 4096  # answers about functions that are kept
_LEVEL = re.compile(r"(?<![\w.])(CRITICAL|FATAL|ERROR|WARNING|WARN|INFO|DEBUG)(?![\w.])")
_BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File "([^"\n]{1,512})", line (\d{1,7}), in ([\w<>]{1,128})$')
_ERROR = re.compile(r"((?:\w+\.)*(\w+))(?::|$)", re.ASCII)


class Traceback(NamedTuple):
    """One: `frames`, outermost first, as `function (file.py:12)`; `error`: the exception's name, "" where that is not known."""

    frames: tuple[str, ...]
    error: str


class Look(NamedTuple):
    """What was written since the look before: `levels`, {level: lines}; `tracebacks`; `skipped`: bytes that were not read."""

    levels: dict[str, int]
    tracebacks: list[Traceback]
    skipped: int


def file_of(pid: int, proc: str = "/proc") -> tuple[str, tuple[int, int]] | None:
    """(a path that opens a process's log, what is the same for the same file); None where it writes to no regular file, or to
    one that may not be read."""
    for number in OUTPUTS:
        path = f"{proc}/{pid}/fd/{number}"
        with log.passing_over(OSError):
            found = os.stat(path)
            if stat.S_ISREG(found.st_mode) and os.access(path, os.R_OK):
                return path, (found.st_dev, found.st_ino)
    return None


class Tail:
    """Reads on in the log of a process, at a path as of `file_of`. `back`: bytes before the end at which it begins."""

    def __init__(self, path: str, pid: int, back: int = 0) -> None:
        self._pid, self._ours = pid, process_root(pid) == ""
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # it is read also after the process has ended
        self._at = max(0, os.fstat(self._file).st_size - back)
        self._has: dict[tuple[str, str], bool] = {}
        self._left = ""  # a line without its end
        self._open: list[str] | None = None  # frames of the traceback that is being read
        self._depth = 0  # characters before its lines: engines put a prefix before each

    def look(self) -> Look:
        """What came since the last one; `OSError` where the file was deleted or cannot be read any longer."""
        there = os.fstat(self._file)
        if not there.st_nlink:
            raise FileNotFoundError("the log was deleted")
        size = there.st_size
        begin = 0 if size < self._at else self._at  # it was begun anew
        skipped = max(0, size - begin - AT_ONCE)
        data = os.pread(self._file, size - begin - skipped, begin + skipped)
        self._at = begin + skipped + len(data)
        if skipped:
            self._left, self._open = "", None
        lines = (self._left + data.decode("utf-8", "replace")).split("\n")
        self._left = lines.pop()[:LINE]
        found = Look({}, [], skipped)
        for line in lines:
            self._line(line[:LINE].rstrip("\r"), found)
        return found

    def close(self) -> None:
        """It is read no longer."""
        os.close(self._file)

    def _line(self, line: str, found: Look) -> None:
        level = _LEVEL.search(line[:HEAD])
        if level is not None:
            name = ALIASES.get(level[1], level[1])
            found.levels[name] = found.levels.get(name, 0) + 1
        if line.endswith(_BEGIN):
            self._open, self._depth = [], len(line) - len(_BEGIN)
            return
        if self._open is None:
            return
        rest = line[self._depth :]
        if rest.startswith(" ") or not rest:
            frame = _FRAME.match(rest)
            if frame is not None and self._is_there(frame[1], frame[3]):
                self._open.append(f"{frame[3]} ({os.path.basename(frame[1])}:{frame[2]})")
            return
        error = _ERROR.match(rest)
        name = error[2] if error is not None else ""
        kind = getattr(builtins, name, None)
        known = name in KNOWN or isinstance(kind, type) and issubclass(kind, BaseException)
        if self._open:
            found.tracebacks.append(Traceback(tuple(self._open[-FRAMES:]), name if known else ""))
            del found.tracebacks[:-TRACEBACKS]
        self._open = None

    def _is_there(self, path: str, function: str) -> bool:
        """Whether the program may have this function in this file: else somebody may have written so into a prompt."""
        key = path, function
        if key not in self._has:
            if len(self._has) >= CHECKED:
                self._has.clear()
            self._has[key] = self._looked_up(path, function)
        return self._has[key]

    def _looked_up(self, path: str, function: str) -> bool:
        if not path.startswith("/") or "/../" in path:
            return False
        with log.passing_over(OSError, ValueError), os.fdopen(self._opened(path), "rb") as f:
            source = f.read(SOURCE)
            if not function.isidentifier():
                return function in ("<module>", "<lambda>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")
            return re.search(rb"\b(def|class)\s+" + function.encode() + rb"\b", source) is not None
        return False

    def _opened(self, path: str) -> int:
        if self._ours:
            return opened(os.open(path, os.O_PATH | os.O_CLOEXEC), os.O_RDONLY)
        return open_in_root(self._pid, path)
