"""The code that a log may speak of: which functions a source has, and how many lines.

A log names whatever its writers like, a user who writes a prompt among them. So no file is opened for it but a regular one that
ends in .py or that the program was started with, inside the program's own root; none of a file system whose files act by being
read, or that mounts what is named; and what one look costs is bounded.
Sources: proc_pid_mountinfo(5), autofs(5)."""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import NamedTuple

from .. import log
from ..access.in_root import open_beneath, opened
from ..access.procfs import read_or_empty

SOURCE = 1 << 20  # bytes of a file in which functions are looked for
NAMES, FILES = 50_000, 1000  # of functions and of files that are remembered
CPU, PAUSE = 0.1, 0.5  # seconds of one look in which files are opened: of a CPU, and on the clock
WORDS = 4  # of a command line, one of which may be the program's own file
AUTOMOUNT = b"autofs"
# File systems without files of a disk or of a server.
VIRTUAL = set(
    b"autofs binfmt_misc bpf cgroup cgroup2 configfs debugfs devpts efivarfs fusectl mqueue nfsd proc pstore resctrl rpc_pipefs"
    b" securityfs selinuxfs sysfs tracefs".split()
)
NO_NAMES = ("<module>", "<lambda>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")
_NAME = re.compile(rb"\b(?:def|class)\s+([\w\x80-\xff]+)")


class Code(NamedTuple):
    """Of a source: how many lines it has, and the names of its functions and classes."""

    lines: int
    names: frozenset[bytes]


NONE = Code(0, frozenset())


class Sources:
    """Those of one process, also after it has ended."""

    def __init__(self, pid: int) -> None:
        self._root = -1
        with log.passing_over(OSError):
            self._root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._own = {os.fsdecode(word) for word in read_or_empty(pid, "cmdline").split(b"\0")[:WORDS]}
        self._mounts: dict[str, bytes] = {}  # mount point: its type
        self._virtual: set[int] = set()  # devices of `VIRTUAL`
        for line in read_or_empty(pid, "mountinfo").splitlines():
            mount, _, more = line.partition(b" - ")
            words, kind = mount.split(), more.split(b" ")[0]
            if kind in VIRTUAL:
                self._virtual.add(os.makedev(*map(int, words[2].split(b":"))))
            self._mounts[os.fsdecode(words[4])] = kind  # a later one lies over an earlier one
        self._known: dict[str, Code] = {}
        self._names = 0
        self._until = 0.0, 0.0

    def begin(self) -> None:
        """A look begins: it has time of its own."""
        self._until = time.thread_time() + CPU, time.monotonic() + PAUSE

    def has(self, path: str, line: int, function: str) -> bool:
        """Whether the program may have this line, and this function, in this file: else somebody may have written so."""
        code = self._known.get(path)
        if code is None:
            if time.thread_time() >= self._until[0] or time.monotonic() >= self._until[1]:
                return False  # it is not known
            code = self._code(path)
            if len(self._known) >= FILES or self._names + len(code.names) > NAMES:
                self._known.clear()
                self._names = 0
            self._known[path] = code
            self._names += len(code.names)
        return 0 < line <= code.lines and (function in NO_NAMES or function.encode() in code.names)

    def _code(self, path: str) -> Code:
        if self._may_be(path):
            with contextlib.suppress(OSError):  # in silence: what a user named stands in no log of ours
                how = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
                with os.fdopen(opened(open_beneath(self._root, path, os.O_PATH), how, self._virtual), "rb") as f:
                    text = f.read(SOURCE)
                    return Code(text.count(b"\n") + 1, frozenset(_NAME.findall(text)))
        return NONE

    def _may_be(self, path: str) -> bool:
        if not path.startswith("/") or "/../" in path or "\0" in path or self._root < 0 or not self._mounts:
            return False
        folder = os.path.normpath(path)
        while folder not in self._mounts and len(folder) > 1:
            folder = os.path.dirname(folder)
        return self._mounts.get(folder) != AUTOMOUNT and (path.endswith(".py") or path in self._own)

    def close(self) -> None:
        """It is asked no longer."""
        if self._root >= 0:
            os.close(self._root)
