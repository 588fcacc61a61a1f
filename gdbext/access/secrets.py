"""Removes from a snapshot: the command line, the environment, and copies of their values that look like secrets.

The kernel puts both above the main thread's stack (fs/exec.c, arg_start to env_end of proc(5)); programs keep copies (os.environ,
sys.argv) of which only the values are blanked whose name says that they are secret, because readers need the rest.
"""

from __future__ import annotations

import os
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
PIECE = 16  # characters: what a vector register holds
MIN_DISTINCT = 5  # bytes of a piece that are not alike
STRETCH = 256  # pages that are looked through at once
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


def shown(words: str) -> str:
    """A command line for people: `***` in the place of what its options' names call secret."""
    for value in sorted(values(map(os.fsencode, words.split()), ()), key=len, reverse=True):
        words = words.replace(os.fsdecode(value), "***")
    return words


def is_worth(value: bytes) -> bool:
    """Whether a value is long enough to be a secret, and to be looked for."""
    return MIN_VALUE <= len(value) <= MAX_VALUE


def blank(memory: MutableMapping[int, bytes | memoryview], start: int, end: int) -> None:
    """Zeroes a range of copied pages."""
    for page in range(start & -PAGE, end, PAGE):
        data = memory.get(page)
        if data is not None:
            low, high = max(start - page, 0), min(end - page, PAGE)
            memory[page] = b"".join((data[:low], bytes(high - low), data[high:]))


def redact(memory: MutableMapping[int, bytes | memoryview], secrets: Iterable[bytes]) -> None:
    """Writes `*` over each copy of a secret, as bytes and as wide characters, and over each part that is left of one: PIECE
    characters where a thread's vector registers were put on its stack, all but a few where freed memory was used again."""
    needles = {(piece, at, form) for value in secrets for form, unit in _forms(value) for at, piece in _pieces(form, unit)}
    longest = max((len(form) for _, _, form in needles), default=0)
    for pages in _stretches(memory, -(-longest // PAGE)) if needles else ():
        data = b"".join([memory[page] for page in pages])
        spans = [span for piece, at, form in needles for span in _spans(data, piece, at, form)]
        if spans:
            changed = bytearray(data)
            for start, end in spans:
                changed[start:end] = b"*" * (end - start)
            for i, page in enumerate(pages):
                memory[page] = bytes(changed[PAGE * i : PAGE * (i + 1)])


def _forms(value: bytes) -> Iterator[tuple[bytes, int]]:
    """(bytes, bytes of one character)."""
    yield value, 1
    try:
        yield value.decode().encode("utf-32-le"), 4  # wchar_t: sys.orig_argv before Python has decoded it
    except UnicodeDecodeError:
        pass


def _pieces(form: bytes, unit: int) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes): by what a form of a secret is found, its first and its last PIECE and 2 * PIECE characters. A path, whose
    beginning others have too, and what says little are looked for as a whole."""
    size = PIECE * unit
    last = len(form) - size
    wanted = {0, min(size, last), last, max(last - size, 0)} if last > 0 and not form.startswith(b"/") else set()
    pieces = [(at, form[at : at + size]) for at in wanted if len(set(form[at : at + size])) >= MIN_DISTINCT]
    return iter(pieces or [(0, form)])


def _stretches(memory: MutableMapping[int, bytes | memoryview], more: int) -> Iterator[list[int]]:
    """The addresses of adjoining pages, STRETCH of them and the `more` that follow at a time."""
    pages: list[int] = []
    for page in sorted(memory):
        if pages and page != pages[-1] + PAGE:
            yield pages
            pages = []
        elif len(pages) >= STRETCH + more:
            yield pages
            pages = pages[STRETCH:]
        pages.append(page)
    if pages:
        yield pages


def _spans(data: bytes, piece: bytes, at: int, form: bytes) -> Iterator[tuple[int, int]]:
    """(start, end) of what is there of a form, wherever its `piece` is."""
    found = data.find(piece)
    while found >= 0:
        start, end = found, found + len(piece)
        while start > max(found - at, 0) and data[start - 1] == form[at - (found - start) - 1]:
            start -= 1
        while end < min(found - at + len(form), len(data)) and data[end] == form[at + end - found]:
            end += 1
        yield start, end
        found = data.find(piece, found + 1)
