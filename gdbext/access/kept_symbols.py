"""Results of symbol lookups in libraries, kept between commands: a file for each library, in the user's own cache folder.

A command asks the same few hundred addresses of the same libraries each time, and a symbol table of libtorch has 400,000 rows.
The results are names and addresses of functions of files, never data of a process.

They are of one build. The name of their file holds the library's build-id, size, times, device and inode, so another file under
the same path has other results, also one whose time was set back: the time of the inode's change cannot be set. The folder must
be the user's own (`package.owned_by_us`). A file in it that is not the user's, that is damaged or too large is made again, with a
note in the log. A file is written under a temporary name and renamed: of two writers one wins, with a whole file.
"""

from __future__ import annotations

import binascii
import json
import os
import re
import stat
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Tuple

from .. import log, package
from ..errors import GdbextError

if TYPE_CHECKING:
    from .elf import Elf
Named = Dict[int, str]
Places = Dict[int, Tuple[str, int]]

MOST_ANSWERS = 4096  # of a library; one with more starts anew, with the results of the last command
MOST_BYTES = 1 << 20  # of its file
MOST_FILES = 256  # the oldest go
SUFFIX = ".json"
NAMES = re.compile(r"\.?[0-9a-f]{8,64}(-[0-9a-f]+){4,5}\.(json|[0-9]+)")  # of our files, and of the drafts of killed writers
KEPT = "symbols"  # in `Elf.kept`


class Answers:
    """The results for one library.

    `named`: {first address of a function: its name, or ''}. `around`: {address: (name, first address) of the function around it,
    ('', 0) for none}. `key`: the name of the file, '' for a library whose results are not kept."""

    def __init__(self, key: str = "") -> None:
        self.key = key
        self.named: Named = {}
        self.around: Places = {}
        self.known = 0  # how many of them the file has

    def __len__(self) -> int:
        return len(self.named) + len(self.around)

    def name(self, start: int, find: Callable[[int], str]) -> str:
        """The name of the function that begins at `start`; the result of `find` is kept."""
        if start not in self.named:
            self.named[start] = find(start)
        return self.named[start]

    def place(self, vaddr: int, find: Callable[[int], tuple[str, int]], may_find: bool) -> tuple[str, int]:
        """The name and first address of the function around `vaddr`; ('', 0), not kept, where the time for searches is
        used up."""
        if vaddr not in self.around and may_find:
            self.around[vaddr] = find(vaddr)
        return self.around.get(vaddr, ("", 0))


def folder(kind: str = "symbols") -> str:
    """The folder of what is kept, whether it exists or not; '' where the user has no home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        home = os.environ.get("HOME", "")
        base = os.path.join(home, ".cache") if os.path.isabs(home) else ""
    return os.path.join(base, "gdbext", kind) if base else ""


def of(elf: Elf) -> Answers:
    """The results for a file's symbols, with those of earlier commands where these may be believed."""
    if KEPT not in elf.kept:
        key, own = _key(elf), folder()
        found = _read(own, key) if key and own else Answers(key)
        found.known = len(found)
        elf.kept[KEPT] = found
    answers: Answers = elf.kept[KEPT]
    return answers


def keep(files: Iterable[Elf]) -> None:
    """Writes the results found in `files` since they were opened. Results that cannot be written are searched for again next
    time."""
    found = [(one, one.kept[KEPT]) for one in files if KEPT in one.kept]
    fresh = [one for elf, one in found if one.key and len(one) > one.known and one.key == _key(elf)]  # else it was changed since
    own = folder()
    if not (fresh and own):
        return
    try:
        refuse_others(own)  # before folders are made in another user's home
        os.makedirs(own, 0o700, exist_ok=True)
        for answers in fresh:
            _write(own, answers)
        _bound(own)
    except (OSError, GdbextError) as e:
        log.passed_over(e, "symbols that were found are not kept")


def clear() -> tuple[int, int]:
    """Removes the results; as `remove`."""
    return remove(folder(), NAMES)


def remove(own: str, names: re.Pattern[str]) -> tuple[int, int]:
    """Removes the files with such names from a folder. -> (files, bytes), none where there is no folder; `GdbextError` where it
    is not the user's own."""
    count = size = 0
    if not own or not os.path.lexists(own):
        return 0, 0
    refuse_others(own)
    for entry in _entries(own, names):
        with log.passing_over(OSError):  # another one clears too, or it is a folder
            found = entry.stat(follow_symlinks=False).st_size
            os.unlink(entry.path)
            count, size = count + 1, size + found
    return count, size


def refuse_others(own: str) -> None:
    """`GdbextError` where another user can put files into the folder, or, before the folder exists, into the one above it."""
    there = own
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    why = package.owned_by_us(there)
    if not why and there == own and os.stat(own).st_uid != os.geteuid():
        why = f"{own} belongs to user {os.stat(own).st_uid}"
    if why:
        raise GdbextError(f"the cache folder is not used: {why}")


def _key(elf: Elf) -> str:
    """The name of the file for a library's answers, '' for one that is no file or has no build-id."""
    number = getattr(elf.data, "fileno", None)
    if number is None or not re.fullmatch("[0-9a-f]{8,64}", elf.build_id):
        return ""
    return f"{elf.build_id}-{identity(os.fstat(number()))}"


def identity(st: os.stat_result) -> str:
    """What no other content of a file shares: its size, times, device and inode."""
    return "-".join(f"{n:x}" for n in (st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_dev, st.st_ino))


def _checked(path: str) -> bytes:
    """The bytes behind the checksum of a file that is ours alone; `ValueError` for any other."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as f:
        st = os.fstat(f.fileno())
        if not stat.S_ISREG(st.st_mode) or st.st_uid != os.geteuid() or st.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ValueError("it is not a file that this user alone may write")
        if st.st_size > MOST_BYTES:
            raise ValueError("it is too large")
        why = package.owned_by_us(os.path.dirname(path))
        if why:
            raise ValueError(why)
        head, _, rest = f.read().partition(b"\n")
    if head != b"%08x" % binascii.crc32(rest):
        raise ValueError("it is damaged")
    return rest


def _fill(found: Answers, text: bytes) -> None:
    said = json.loads(text)
    if said["key"] != found.key:
        raise ValueError("it is another library's")
    for start, name in said["named"].items():
        found.named[int(start, 16)] = _text(name)
    for place, (name, start) in said["around"].items():
        found.around[int(place, 16)] = _text(name), int(start)


def _text(name: Any) -> str:
    if not isinstance(name, str):
        raise ValueError("a name that is no text")
    return name


def _write(own: str, answers: Answers) -> None:
    before = _read(own, answers.key)  # another one may have written meanwhile
    named, around = {**before.named, **answers.named}, {**before.around, **answers.around}
    if len(named) + len(around) > MOST_ANSWERS:
        named = {start: name for start, name in named.items() if start not in before.named}
        around = {place: name for place, name in around.items() if place not in before.around}
    said = {
        "key": answers.key,
        "named": {f"{start:x}": name for start, name in named.items()},
        "around": {f"{place:x}": found for place, found in around.items()},
    }
    text = json.dumps(said).encode()
    if len(text) >= MOST_BYTES - 9:
        return
    put(own, answers.key + SUFFIX, b"%08x\n" % binascii.crc32(text) + text)


def put(own: str, name: str, data: bytes) -> None:
    """Writes a file of the folder, whole or not at all."""
    draft = os.path.join(own, f".{os.path.splitext(name)[0]}.{os.getpid()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb") as f:
            f.write(data)
        os.rename(draft, os.path.join(own, name))
    except OSError:
        with log.passing_over(OSError):
            os.unlink(draft)
        raise


def _read(own: str, key: str) -> Answers:
    """The stored results for a library."""
    found, path = Answers(key), os.path.join(own, key + SUFFIX)
    if os.path.lexists(path):
        try:
            _fill(found, _checked(path))
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as e:
            log.passed_over(e, f"what is kept in {path}: made again")
            return Answers(key)
    return found


def _entries(own: str, names: re.Pattern[str]) -> list[os.DirEntry[str]]:
    with os.scandir(own) as entries:
        return [e for e in entries if names.fullmatch(e.name)]


def _bound(own: str) -> None:
    """Removes the files that were written longest ago where there are too many."""
    entries = _entries(own, NAMES)
    if len(entries) > MOST_FILES:
        by_time = sorted(entries, key=lambda e: e.stat(follow_symlinks=False).st_mtime_ns)
        for entry in by_time[: len(entries) - MOST_FILES]:
            with log.passing_over(FileNotFoundError):
                os.unlink(entry.path)
