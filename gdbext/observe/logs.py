"""The log that a program writes, where that is a file that may be read: how many lines of each level, and tracebacks as frames.

Engines log prompts, and so a line's text is never kept: of a traceback the frames stay whose line and function log_sources.py
finds in the program's code, and an exception's name where it is one of Python's own or of `KNOWN`. A file server may keep a look
waiting: log_reader.py is for what must go on.
Sources: Lib/traceback.py (StackSummary.format), Lib/logging (levels' names), proc_pid_fd(5)."""

from __future__ import annotations

import builtins
import collections
import os
import re
import stat
from itertools import islice
from typing import Deque, NamedTuple, Sequence, Tuple

from .. import log
from .log_sources import NO_NAMES, Sources

OUTPUTS = (2, 1)  # descriptors that are looked at: an error comes on the first
LEVELS = ("CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG")
ALIASES = {"FATAL": "CRITICAL", "WARN": "WARNING", "E": "ERROR", "W": "WARNING"}
KNOWN = {"OutOfMemoryError", "CancelledError", "InvalidStateError", "BrokenProcessPool", "BrokenBarrierError", "Empty", "Full"}
AT_ONCE = 1 << 18  # bytes of a log that are read at one look; what lies before is counted as skipped
LINE, HEAD = 4096, 100  # characters of a line; where its level stands
FRAMES, TRACEBACKS = 64, 8  # the innermost of a traceback; the last of a look
UNPROVED = 256  # the innermost of a traceback that was not looked up yet
_LEVEL = re.compile(r"(?<![\w.])(CRITICAL|FATAL|ERROR|WARNING|WARN|INFO|DEBUG)(?![\w.])")
_BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File "([^"\n]{1,512})", line ([0-9]{1,7}), in ([\w<>]{1,128})$')
_ERROR = re.compile(r"((?:\w+\.)*(\w+))(?::|$)", re.ASCII)

Frames = Deque[Tuple[str, int, str]]  # (path, line, function) as somebody wrote them


class Traceback(NamedTuple):
    """One: `frames`, outermost first, as `function (file.py:12)`; `error`: the exception's name, "" where that is not known."""

    frames: tuple[str, ...]
    error: str


class Look(NamedTuple):
    """What was written since the look before: `levels`, {level: lines}; `tracebacks`; `skipped`: bytes that were not read;
    `written`: when the log was last written to, in seconds since the epoch."""

    levels: dict[str, int]
    tracebacks: list[Traceback]
    skipped: int
    written: float


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
    """Reads on in the log of a process, at a path as of `file_of`: from `at` on, or from so many bytes before its end. `at`:
    where it is."""

    def __init__(self, path: str, pid: int, back: int = 0, at: int | None = None) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # it is read also after the process has ended
        self.at = max(0, os.fstat(self._file).st_size - back) if at is None else at
        self._sources = Sources(pid)
        self._left = ""  # a line without its end
        self._open: Frames | None = None  # of the traceback that is being read
        self._depth = 0  # characters before its lines: engines put a prefix before each

    def look(self, prove: bool = True) -> Look:
        """What came since the last one; `OSError` where the file was deleted or cannot be read any longer. Without `prove` no
        other file is opened, and there are no tracebacks."""
        there = os.fstat(self._file)
        if not there.st_nlink:
            raise FileNotFoundError("the log was deleted")
        size = there.st_size
        begin = 0 if size < self.at else self.at  # it was begun anew
        skipped = max(0, size - begin - AT_ONCE)
        data = os.pread(self._file, size - begin - skipped, begin + skipped)
        self.at = begin + skipped + len(data)
        if skipped:
            self._left, self._open = "", None
        lines = (self._left + data.decode("utf-8", "replace")).split("\n")
        self._left = lines.pop()[:LINE]
        levels: dict[str, int] = {}
        ended: list[tuple[Frames, str]] = []
        for line in lines:
            self._line(line[:LINE].rstrip("\r"), levels, ended)
        return Look(levels, self._proved(ended) if prove and ended else [], skipped, there.st_mtime)

    def close(self) -> None:
        """It is read no longer."""
        os.close(self._file)
        self._sources.close()

    def _line(self, line: str, levels: dict[str, int], ended: list[tuple[Frames, str]]) -> None:
        level = _LEVEL.search(line[:HEAD])
        if level is not None:
            name = ALIASES.get(level[1], level[1])
            levels[name] = levels.get(name, 0) + 1
        if line.endswith(_BEGIN):
            self._open, self._depth = collections.deque(maxlen=UNPROVED), len(line) - len(_BEGIN)
            return
        if self._open is None:
            return
        rest = line[self._depth :]
        if rest.startswith(" ") or not rest:
            frame = _FRAME.match(rest)
            if frame is not None and (frame[3].isidentifier() or frame[3] in NO_NAMES):
                self._open.append((frame[1], int(frame[2]), frame[3]))
            return
        error = _ERROR.match(rest)
        if self._open:
            ended.append((self._open, error[2] if error is not None else ""))
        self._open = None

    def _proved(self, ended: Sequence[tuple[Frames, str]]) -> list[Traceback]:
        """The last ones of which frames are the program's. The innermost frames of the last one are looked up first."""
        self._sources.begin()
        found: list[Traceback] = []
        for frames, error in reversed(ended):
            there = (f"{at[2]} ({os.path.basename(at[0])}:{at[1]})" for at in reversed(frames) if self._sources.has(*at))
            kept = tuple(islice(there, FRAMES))
            if kept:
                kind = getattr(builtins, error, None)
                known = error in KNOWN or isinstance(kind, type) and issubclass(kind, BaseException)
                found.append(Traceback(kept[::-1], error if known else ""))
                if len(found) == TRACEBACKS:
                    break
        return found[::-1]
