"""Removes from a snapshot: the command line, the environment, and copies of their values that look like secrets.

The kernel puts both above the main thread's stack (fs/exec.c, arg_start to env_end of proc(5)); programs keep copies (os.environ,
sys.argv) of which only the values are blanked whose name says that they are secret, because readers need the rest.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..errors import GdbextError
from .model import PAGE

if TYPE_CHECKING:
    from typing import Iterable, Iterator, MutableMapping

    from .base import Target
    from .model import Mapping

ARG_START = 45  # fields of /proc/PID/stat behind the name, from `state` as 0
MAX_VARIABLES = 10_000
MIN_VALUE, MAX_VALUE = 6, 16 << 10  # bytes: shorter ones would blank words that mean nothing
SECRET = re.compile(
    rb"(?<![a-z])token(?![a-z])|secret|passw|passphrase|credential|api[_-]?key|access[_-]?key|private[_-]?key|_key$", re.I
)

_LIBC = re.compile(r"libc[.-]|ld-musl")


def kernel_area(stat: bytes, maps: Iterable[Mapping]) -> tuple[int, int] | None:
    """(start, end) of the strings that the kernel put above the main thread's stack; None where /proc/PID/stat does not say."""
    fields = stat.rpartition(b")")[2].split()
    start = int(fields[ARG_START]) if len(fields) > ARG_START else 0
    mapping = next((m for m in maps if start and m.start <= start < m.end), None)
    return (start, mapping.end) if mapping else None


def moved_environment(target: Target) -> list[bytes]:
    """The NAME=VALUE strings that the C library's `environ` leads to; those read before an error. A program that writes a title
    (setproctitle, as the engines do) writes it over the kernel's strings, and keeps the environment elsewhere."""
    found: list[bytes] = []
    try:
        modules = target.modules()
        # the program's own, where the linker has copied it there, else the C library's: of hundreds of files no other has one
        likely = [m for i, m in enumerate(modules) if not i or _LIBC.match(m.name)]
        at = target.u64(target.symbol("environ", likely + modules))
        while len(found) < MAX_VARIABLES:
            pointer = target.u64(at + 8 * len(found))
            if not pointer:
                break
            found.append(target.cstring(pointer, 2 * MAX_VALUE))
    except GdbextError:
        pass
    return found


def values(argv: Iterable[bytes], environ: Iterable[bytes]) -> set[bytes]:
    """Values of variables and options whose names say that they are secret: NAME=VALUE, --option VALUE..., --option=VALUE."""
    found, option = set(), b""
    for pair in environ:
        name, _, value = pair.partition(b"=")
        if SECRET.search(name):
            found.add(value)
    for word in argv:
        name, mark, value = word.partition(b"=")
        if mark and SECRET.search(name):
            found.add(value)
        elif word.startswith(b"-"):
            option = word
        elif SECRET.search(option):
            found.add(word)
    return set(filter(is_worth, found))


def is_worth(value: bytes) -> bool:
    """Whether a value is long enough to be a secret, and to be looked for."""
    return MIN_VALUE <= len(value) <= MAX_VALUE


def blank(memory: MutableMapping[int, bytes], start: int, end: int) -> None:
    """Zeroes a range of copied pages."""
    for page in range(start & -PAGE, end, PAGE):
        data = memory.get(page)
        if data is not None:
            low, high = max(start - page, 0), min(end - page, PAGE)
            memory[page] = data[:low] + bytes(high - low) + data[high:]


def redact(memory: MutableMapping[int, bytes], secrets: Iterable[bytes]) -> int:
    """Writes `*` over each copy of a secret, as bytes and as wide characters; -> how many there were."""
    wanted = {form for value in secrets for form in _forms(value)}
    if not wanted:
        return 0
    longest = max(map(len, wanted))
    count = 0
    for page in sorted(memory):
        if any(value in memory[page] for value in wanted) or any(value in _joint(memory, page, longest) for value in wanted):
            count += sum(_overwrite(memory, page, value) for value in wanted)
    return count


def _forms(value: bytes) -> Iterator[bytes]:
    yield value
    try:
        yield value.decode().encode("utf-32-le")  # wchar_t: sys.orig_argv before Python has decoded it
    except UnicodeDecodeError:
        pass


def _joint(memory: MutableMapping[int, bytes], page: int, longest: int) -> bytes:
    """The end of a page with what follows it: a value may lie across several pages."""
    following = b""
    at = page + PAGE
    while at in memory and len(following) < longest:
        following += memory[at]
        at += PAGE
    return memory[page][-longest:] + following[:longest]


def _overwrite(memory: MutableMapping[int, bytes], page: int, value: bytes) -> int:
    pages = [page]
    while pages[-1] + PAGE in memory and PAGE * (len(pages) - 1) < len(value):
        pages.append(pages[-1] + PAGE)
    data = b"".join(memory[p] for p in pages)
    count = data.count(value)
    if count:
        data = data.replace(value, b"*" * len(value))
        for i, p in enumerate(pages):
            memory[p] = data[PAGE * i : PAGE * (i + 1)]
    return count
