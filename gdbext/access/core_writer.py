"""Writes a snapshot: a small, ordinary ELF core that gdb's `core-file` opens.

It has the notes of every core and one of our own (name "GDBEXT", JSON). That one holds what a core has no place for: the exact
text of the memory map, thread names and states, the process's root folder, the pause. Sources: System V ABI chapter 5, Linux
fs/binfmt_elf.c, include/uapi/linux/elfcore.h.
"""

from __future__ import annotations

import bisect
import itertools
import json
import os
import struct
from collections.abc import Mapping as Dict
from typing import Any, Iterator, Sequence

from ..errors import GdbextError
from . import elf
from .model import GRAIN, PAGE, Mapping

NOTE, NOTE_TYPE, KEPT_TYPE, VERSION = b"GDBEXT", 1, 2, 2
KEPT = struct.Struct(f"<Q{PAGE // GRAIN // 8}s")  # a page of which a part is kept, and which: `ReadLog.marks`
PR_PID, PR_REGISTERS = 32, 112  # offsets in elf_prstatus, the same on both architectures
PSINFO_SIZE, PSINFO_PPID, PSINFO_NAME, PSINFO_ARGS = 136, 28, 40, 56
MACHINES = {"x86-64": elf.EM_X86_64, "aarch64": elf.EM_AARCH64}
MAX_PIECES = elf.MAX_SEGMENTS - 1
PN_XNUM = 0xFFFF  # elf(5): as many segments and more are counted by sh_info of the first section
ZERO = b"\0" * PAGE
AT_ONCE = 1024  # pages of one call: IOV_MAX of Linux


def write_core(
    path: str | int,
    arch: str,
    pid: int,
    threads: Sequence[tuple[int, bytes]],
    mappings: Sequence[Mapping],
    memory: Dict[int, bytes | memoryview],
    *,
    auxv: bytes = b"",
    program: str = "",
    pac_mask: bytes = b"",
    note: dict[str, Any] | None = None,
    kept: Dict[int, int] | None = None,
) -> int:
    """Writes a core to `path` (a name, or a descriptor, which is closed) and returns its size in bytes.

    * `threads`: `[(tid, raw NT_PRSTATUS registers)]`, the thread that gdb selects first
    * `memory`: `{page address: 4,096 bytes}`
    * `auxv`: the bytes of /proc/PID/auxv
    * `program`: the program that gdb names as the core's origin
    * `pac_mask`: a raw NT_ARM_PAC_MASK set, the same for all threads
    * `note`: a dict for JSON
    * `kept`: of pages of which only a part is in the file which part, as `ReadLog.marks`"""
    own = {"version": VERSION if kept else 1, **(note or {})}  # an older gdbext would take what was left out for zeros
    notes = b"".join(_notes(pid, [_thread_notes(t, pid, pac_mask) for t in threads], mappings, auxv, program, own))
    if kept:
        parts = [KEPT.pack(page, marks.to_bytes(PAGE // GRAIN // 8, "little")) for page, marks in sorted(kept.items())]
        notes += _note(NOTE, KEPT_TYPE, b"".join(parts))
    pieces = list(_pieces(mappings, memory))
    if len(pieces) > MAX_PIECES:
        raise GdbextError(f"process {pid}: its memory is in {len(pieces)} pieces, {MAX_PIECES} are read of a core")
    count = 1 + len(pieces)
    section = elf.SECTION_HEADER.pack(0, 0, 0, 0, 0, 0, 0, count, 0, 0) if count >= PN_XNUM else b""
    head = 64 + 56 * count + len(section)
    at = head + len(notes) + PAGE - 1 & -PAGE
    segments = [elf.PROGRAM_HEADER.pack(elf.PT_NOTE, 0, head, 0, 0, len(notes), 0, 4)]
    for start, end, perms, data in pieces:
        flags = 4 * ("r" in perms) | 2 * ("w" in perms) | ("x" in perms)
        size = end - start if data else 0
        segments.append(elf.PROGRAM_HEADER.pack(elf.PT_LOAD, flags, at, start, 0, size, end - start, PAGE))
        at += size
    with open(path, "wb") as f:
        f.write(b"\x7fELF\x02\x01\x01" + b"\0" * 9)
        sections = (64 + 56 * count, PN_XNUM, 64, 1) if section else (0, count, 0, 0)
        f.write(struct.pack("<HHIQQQIHHHHHH", elf.ET_CORE, MACHINES[arch], 1, 0, 64, sections[0], 0, 64, 56, *sections[1:], 0))
        f.write(b"".join(segments) + section + notes)
        f.write(b"\0" * (-f.tell() % PAGE))
        f.flush()
        at = f.tell()
        for _, _, _, data in pieces:
            for zeros, run in itertools.groupby(data, lambda page: bytes(page) == ZERO):
                pages = list(run)
                if not zeros:  # else a hole: reads as zeros, takes no disk
                    _write_pages(f.fileno(), pages, at)
                at += PAGE * len(pages)
        f.truncate(at)
        return at


def _write_pages(file: int, pages: Sequence[bytes | memoryview], at: int) -> None:
    """Writes pages one after the other, from offset `at` on."""
    for first in range(0, len(pages), AT_ONCE):
        some = pages[first : first + AT_ONCE]
        done = os.pwritev(file, some, at)
        if done < PAGE * len(some):  # of a full disk the rest says why
            rest = b"".join(some)[done:]
            while rest:
                written = os.pwrite(file, rest, at + done)
                rest, done = rest[written:], done + written
        at += PAGE * len(some)


def _notes(
    pid: int, threads: Sequence[bytes], mappings: Sequence[Mapping], auxv: bytes, program: str, note: dict[str, Any]
) -> Iterator[bytes]:
    yield from threads[:1]
    yield _note(b"CORE", elf.NT_PRPSINFO, _psinfo(pid, program))
    if auxv:
        yield _note(b"CORE", elf.NT_AUXV, auxv)
    yield _note(b"CORE", elf.NT_FILE, _file_note(mappings))
    yield from threads[1:]
    yield _note(NOTE, NOTE_TYPE, json.dumps(note, ensure_ascii=True).encode())


def _pieces(
    mappings: Sequence[Mapping], memory: Dict[int, bytes | memoryview]
) -> Iterator[tuple[int, int, str, list[bytes | memoryview]]]:
    """(start, end, perms, [pages] or []) by address: runs of copied pages, and between them the memory that was not copied."""
    pages = sorted(memory)
    for m in sorted(mappings, key=lambda m: m.start):
        if m.path == "[vsyscall]":
            continue  # not in the lower half of the address space, and every process has the same
        at = m.start
        i = bisect.bisect_left(pages, m.start)
        while i < len(pages) and pages[i] < m.end:
            j = i
            while j + 1 < len(pages) and pages[j + 1] < m.end and pages[j + 1] == pages[j] + PAGE:
                j += 1
            if at < pages[i]:
                yield at, pages[i], m.perms, []
            at = pages[j] + PAGE
            yield pages[i], at, m.perms, [memory[p] for p in pages[i : j + 1]]
            i = j + 1
        if at < m.end:
            yield at, m.end, m.perms, []


def _note(name: bytes, kind: int, data: bytes) -> bytes:
    name += b"\0"
    return struct.pack("<III", len(name), len(data), kind) + name + b"\0" * (-len(name) % 4) + data + b"\0" * (-len(data) % 4)


def _thread_notes(thread: tuple[int, bytes], pid: int, pac_mask: bytes) -> bytes:
    tid, registers = thread
    head = struct.pack("<3i h 2x QQ 4i", 0, 0, 0, 0, 0, 0, tid, 0, pid, 0).ljust(PR_REGISTERS, b"\0")
    status = _note(b"CORE", elf.NT_PRSTATUS, head + registers + b"\0" * 8)
    return status + _note(b"LINUX", elf.NT_ARM_PAC_MASK, pac_mask) if pac_mask else status


def _psinfo(pid: int, program: str) -> bytes:
    args = program.encode("utf-8", "surrogateescape")[:79]
    name = program.rpartition("/")[2].encode("utf-8", "surrogateescape")[:15]
    head = struct.pack("<4c4xQ6i", b"\0", b"R", b"\0", b"\0", 0, 0, 0, pid, 0, 0, 0)
    return head.ljust(PSINFO_NAME, b"\0") + name.ljust(16, b"\0") + args.ljust(80, b"\0")


def _file_note(mappings: Sequence[Mapping]) -> bytes:
    mapped = [m for m in mappings if m.path.startswith("/")]
    head = struct.pack("<QQ", len(mapped), PAGE)
    ranges = b"".join(struct.pack("<QQQ", m.start, m.end, m.offset // PAGE) for m in mapped)
    return head + ranges + b"".join(m.path.encode("utf-8", "surrogateescape") + b"\0" for m in mapped)
