"""Reads the symbols of just the libraries that stacks need into gdb, with `auto-solib-add off`.

gdb unwinds through a library only once its symbols (.eh_frame) are read. Past a frame in a library without them every further
frame is invented. So: walk to the first frame that cannot be vouched for, read that library, walk again, until nothing changes.
`sharedlibrary REGEX` takes a basic regular expression and prints no error when nothing matches. So the result is checked against
gdb's own list of objfiles.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any, Iterable

import gdb

from .. import log
from ..errors import GdbextError
from . import remote_memory
from .cli_gdb import basic_regex, command
from .procfs import parse_maps, read_maps, read_syscall

BIG = 100 << 20  # a larger library file is read on request only while the process is stopped: it costs seconds
AHEAD = BIG  # before the stop only the user waits, and need not: the pack's own stacks need no symbols
MAX_FRAMES = 4096
STACK_SCAN = 64 << 10


class Loaded:
    """The result of `load_for`. `loaded`: paths. `left_out`: `{path: size in bytes}`. `unvouched`: `[(thread number, tid, level,
    pc, why)]`, the first frame of each thread that cannot be vouched for; the frames behind it are not to be believed either."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.left_out: dict[str, int] = {}
        self.unvouched: list[tuple[int, int, int, int, str]] = []


def symbols_of(progspace: Any = None) -> set[str]:
    """Paths of the files whose symbols gdb has read into a program space (default: the selected one)."""
    found: set[str] = set()
    space = progspace or gdb.current_progspace()
    for objfile in space.objfiles() if space is not None else ():
        if objfile.is_valid() and objfile.filename:
            found.update((objfile.filename, os.path.realpath(objfile.filename)))
    return found


def loaded() -> dict[str, bool]:
    """{path as gdb names it: whether its symbols are read} of the shared libraries of the selected inferior."""
    text = gdb.execute("info sharedlibrary", to_string=True)
    found = re.findall(r"^(?:0x[0-9a-f]+ +0x[0-9a-f]+)? +(Yes|No)(?: \(\*\))? +(/.*)$", text, re.M)
    return {path: word == "Yes" for word, path in found}


def read_symbols(path: str) -> bool:
    """Reads the symbols of a shared library of the selected inferior, named as gdb's `info sharedlibrary` names it; True when
    they are there."""
    try:
        gdb.execute(command("sharedlibrary {}", basic_regex(path)), to_string=True)
    except GdbextError as e:
        log.passed_over(e)
        return False  # a path that is no text for a command
    have = symbols_of()
    return path in have or os.path.realpath(path) in have


def _known() -> set[str]:
    """Paths that gdb has read for any inferior. Reading them once more is cheap, because inferiors share them."""
    found: set[str] = set()
    return found.union(*(symbols_of(i.progspace) for i in gdb.inferiors()))


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _mapped(pid: int, pc: int) -> str:
    """Whether `pc` lies in an executable mapping of a live process that needs no library: the vdso, or code made at run time."""
    try:
        found = next((m for m in parse_maps(read_maps(pid)[0]) if m.start <= pc < m.end), None)
    except (GdbextError, OSError, ValueError) as e:
        log.passed_over(e)
        return ""
    return "" if found is None else found.path or "code that belongs to no file"


def _first_doubt(inferior: Any, have: set[str]) -> tuple[int, int, str, str] | None:
    """(level, pc, library or '', why) of the first frame of the selected thread that nothing vouches for, or None."""
    frame: gdb.Frame | None = gdb.newest_frame()
    level = 0
    program = gdb.current_progspace()
    while frame and level < MAX_FRAMES:  # not "is not None": the None of cuda-gdb 11.8 is another
        pc = frame.pc()
        if frame.type() != gdb.INLINE_FRAME:
            library = gdb.solib_name(pc)
            if library:
                if library not in have and os.path.realpath(library) not in have:
                    return level, pc, library, "its library's symbols are not read"
            elif frame.name() is None and not _in_program(pc, program):
                place = _mapped(inferior.pid, pc)
                if place != "[vdso]":
                    return level, pc, "", place or "no code is mapped there"
        try:
            frame = frame.older()
        except gdb.error as e:
            return level + 1, 0, "", str(e).splitlines()[0]
        level += 1
    return None


def _in_program(pc: int, program: Any) -> bool:
    """Whether `pc` is in the executable itself."""
    block_for = getattr(program, "objfile_for_address", None)  # gdb 14+
    if block_for is not None:
        return bool(block_for(pc))
    found = gdb.execute(command("info symbol {}", pc), to_string=True)
    return not str(found).startswith("No symbol matches")


def load_for(threads: Iterable[Any] | None = None, limit: int | None = BIG) -> Loaded:
    """Reads the symbols that the stacks of `threads` need (gdb.InferiorThread of the selected inferior; default: all). ->
    `Loaded`

    `limit` in bytes: a larger file that gdb has not read yet is left out and named; None for no limit. The selected thread and
    frame stay selected."""
    inferior = gdb.selected_inferior()
    threads = list(inferior.threads() if threads is None else threads)
    result, failed, known = Loaded(), set(), _known()
    before, frame = gdb.selected_thread(), selected_frame()
    doubts: dict[Any, tuple[int, int, str, str] | None] = dict.fromkeys(threads)
    try:
        open_ = threads
        while open_:
            have = symbols_of()
            wanted: list[str] = []
            still = []
            for thread in open_:
                if not thread.is_valid():
                    continue
                thread.switch()
                doubts[thread] = doubt = _first_doubt(inferior, have)
                library = doubt[2] if doubt else ""
                if not library or library in failed:
                    continue
                size = _size(library)
                if limit is not None and size > limit and not {library, os.path.realpath(library)} & known:
                    result.left_out[library] = size
                    failed.add(library)
                    continue
                still.append(thread)
                if library not in wanted:
                    wanted.append(library)
            for library in wanted:
                if read_symbols(library):
                    result.loaded.append(library)
                else:
                    failed.add(library)
            open_ = still
        for thread, doubt in doubts.items():
            if doubt:
                result.unvouched.append((thread.num, thread.ptid[1], doubt[0], doubt[1], doubt[3]))
    finally:
        _select_again(before, frame)
    return result


def _select_again(thread: Any, frame: Any) -> None:
    """Restores the selection. Not by "is not None": the None of cuda-gdb 11.8 is another object."""
    if thread and thread.is_valid():
        thread.switch()
        if frame and frame.is_valid():
            frame.select()


def load_all() -> Loaded:
    """Reads the symbols of every library, as gdb's own attach does; returns `Loaded`."""
    before = symbols_of()
    gdb.execute("sharedlibrary", to_string=True)
    result = Loaded()
    result.loaded = sorted(symbols_of() - before)
    return result


def selected_frame() -> Any:
    """The frame that gdb has selected, None where there is none."""
    try:
        return gdb.selected_frame()
    except gdb.error:
        return None


def _blocked_at(pid: int, tid: int) -> tuple[int, int] | None:
    """(stack pointer, program counter) of a thread that waits in the kernel; None for one that keeps running."""
    for _ in range(10):
        try:
            found = read_syscall(pid, tid)
        except (GdbextError, OSError) as e:
            log.passed_over(e)
            return None
        if found is not None:
            return found.sp, found.pc
        time.sleep(0.002)
    return None


def likely(pid: int, threads: Iterable[int] | None = None, limit: int | None = AHEAD) -> list[str]:
    """Files of a running process that its stacks seem to return into: a guess from the words on the stacks of `threads` (tids;
    default: the main one). The process is not stopped for it. If their symbols are read before an attach, that time is no part of
    the pause."""
    try:
        mapped = parse_maps(read_maps(pid)[0])
    except (GdbextError, OSError, ValueError) as e:
        log.passed_over(e)
        return []
    code = [(m.start, m.end, m.path) for m in mapped if "x" in m.perms and m.path.startswith("/")]
    found = {path: _size(path) for _, _, path in code if re.match(r"(libpython\d|libc[.-]|ld-)", os.path.basename(path))}
    ranges: list[tuple[int, int]] = []
    counters: list[int] = []
    for tid in threads or [pid]:
        place = _blocked_at(pid, tid)
        if place:
            ranges.append((place[0], STACK_SCAN))
            counters.append(place[1])
    words = set(counters)
    for data in remote_memory.read_ranges(pid, ranges):
        words.update(memoryview(data[: len(data) // 8 * 8]).cast("Q"))
    for low, high, path in code:
        if path not in found and any(low <= w < high for w in words):
            found[path] = _size(path)
    return [p for p, size in found.items() if size and (limit is None or size <= limit)]
