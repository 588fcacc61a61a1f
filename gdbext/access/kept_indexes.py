"""gdb's own indexes of debug information (`set index-cache`), kept between gdbs: what gdb reads anew of a library each time it
attaches, half of the CPU time of an attach.

gdb names an index by the build-id of its file and checks nothing else. A file that is changed and keeps its build-id (objcopy, a
linker that is told the number) would have the old one. Here each index has a sum beside it, and which file it is of, made when
gdb had written it. An index that differs from its sum, has none, is of another file or not the user's alone is removed before gdb
could read it, with a note in the log, and made again. Where two files of one build-id are read, none is kept. There is a folder
for each release of gdb, below the user's own cache folder (`kept_symbols.refuse_others`). gdb writes an index under another name
and renames it; of two writers one wins, and where the sum is the other's, the index is made again.

Source: gdb's manual, "Automatically Creating and Using an Index Cache"; gdb/dwarf2/index-cache.c.
"""

from __future__ import annotations

import binascii
import os
import re
import stat
from typing import Iterable, Iterator

from .. import log
from ..errors import GdbextError
from . import elf, kept_symbols

MOST_BYTES = 512 << 20  # of all indexes of one gdb; the oldest go
SUFFIX, SUM = ".gdb-index", ".sum"
NAMES = re.compile(r"([0-9a-f]{8,64})(-[0-9a-f]+)?\.gdb-index(\.sum)?|\.[0-9a-f-]+\.gdb-index\.[0-9]+")


class Indexes:
    """Those of one release of gdb, `version`, for the libraries `paths`. `folder`: where they are; '' where none can be kept."""

    def __init__(self, version: str, paths: Iterable[str]) -> None:
        base = kept_symbols.folder("gdb-index")
        self.folder = os.path.join(base, re.sub(r"[^\w.-]", "_", version)) if base else ""
        self._wanted: dict[str, set[str]] = {}  # {build-id: which files}
        for path in paths:
            self._wanted.setdefault(_build_id(path), set()).add(_identity(path))
        self._wanted.pop("", None)

    def check(self) -> None:
        """Makes the folder, and removes the indexes of these libraries that gdb is not to read. `GdbextError`, `OSError` where
        the folder cannot be used."""
        kept_symbols.refuse_others(self.folder)
        os.makedirs(self.folder, 0o700, exist_ok=True)
        for name, files in self._own():
            path = os.path.join(self.folder, name)
            try:
                with open(path + SUM, "rb") as f:
                    said = f.read(512)
                if said != _sum(path) + _line(files):
                    raise ValueError("it is damaged, or of another file")
            except (OSError, ValueError) as e:
                log.passed_over(e, f"the index {path}: made again")
                _remove(path)

    def seal(self) -> None:
        """Makes the sums of what gdb has written since `check`."""
        for name, files in self._own():
            path = os.path.join(self.folder, name)
            if not os.path.lexists(path + SUM) and len(files) == 1:
                with log.passing_over(OSError, ValueError):
                    kept_symbols.put(self.folder, name + SUM, _sum(path) + _line(files))
        with log.passing_over(OSError):
            _bound(self.folder)

    def _own(self) -> Iterator[tuple[str, set[str]]]:
        """(name of an index, which files have its build-id) of each."""
        for name in os.listdir(self.folder):
            found = NAMES.fullmatch(name)
            if found and found[1] in self._wanted and not found[3]:
                yield name, self._wanted[found[1]]


def clear() -> tuple[int, int]:
    """Removes all indexes. -> (files, bytes); `GdbextError` where a folder is not the user's own."""
    base, count, size = kept_symbols.folder("gdb-index"), 0, 0
    for folder in os.listdir(base) if base and os.path.isdir(base) else ():
        files, length = kept_symbols.remove(os.path.join(base, folder), NAMES)
        count, size = count + files, size + length
    return count, size


def _build_id(path: str) -> str:
    try:
        return elf.open_elf(path).build_id
    except (OSError, GdbextError) as e:
        log.passed_over(e)
        return ""


def _identity(path: str) -> str:
    try:
        return kept_symbols.identity(os.stat(path))
    except OSError as e:
        log.passed_over(e)
        return ""


def _line(files: set[str]) -> bytes:
    """The second line of a sum: the file that the index is of."""
    return " ".join(sorted(files)).encode() + b"\n"


def _sum(path: str) -> bytes:
    """Of a regular file that this user alone may write; `ValueError` for any other."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as f:
        st = os.fstat(f.fileno())
        if not stat.S_ISREG(st.st_mode) or st.st_uid != os.geteuid() or st.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ValueError("it is not a file that this user alone may write")
        found = 0
        for part in iter(lambda: f.read(1 << 20), b""):
            found = binascii.crc32(part, found)
    return b"%08x %x\n" % (found, st.st_size)


def _remove(path: str) -> None:
    for one in (path, path + SUM):
        with log.passing_over(OSError):
            os.unlink(one)


def _bound(folder: str) -> None:
    with os.scandir(folder) as entries:
        found = [(e.stat(follow_symlinks=False), e.path) for e in entries if e.name.endswith(SUFFIX)]
    size = sum(st.st_size for st, _ in found)
    for st, path in sorted(found, key=lambda one: one[0].st_mtime_ns):
        if size <= MOST_BYTES:
            return
        _remove(path)
        size -= st.st_size
