"""The dynamic loader's list of the files that a process has loaded, read from its memory. It gives the names that gdb opens, and
the files of a core whose writer did not note them (qemu's user mode, for one).

Sources: System V ABI; glibc <link.h>: struct r_debug, struct link_map; Linux include/uapi/linux/auxvec.h.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Callable, Iterator

from .. import log
from ..errors import FaultError, GdbextError
from . import elf

if TYPE_CHECKING:
    from .snapshot import CoreFileTarget
Read = Callable[[int, int], bytes]

MAX_LIBRARIES = 4096
MAX_TAGS = 256
MAX_NAME = 4096
AT_PHDR, AT_PHENT, AT_PHNUM, AT_PAGESZ, AT_ENTRY, AT_EXECFN = 3, 4, 5, 6, 9, 31
PT_PHDR = 6


def auxiliary(auxv: bytes) -> dict[int, int]:
    """{AT_...: value} of an auxiliary vector."""
    return dict(struct.iter_unpack("<QQ", auxv[: len(auxv) // 16 * 16]))


def library_names(read: Read, auxv: bytes) -> list[bytes]:
    """The paths in the loader's list; b'' for the program. `read(address, size)` gives the process's memory.

    A static program has no such list, nor has a program that is still loading. gdb then names fewer libraries, but the stacks are
    complete."""
    names = []
    try:
        aux = auxiliary(auxv)
        for _, name, section in _links(read, *_dynamic(read, aux[AT_PHDR], aux[AT_PHENT], aux[AT_PHNUM])):
            names.append(name)
            read(section, 16)  # as gdb does: the recorded reads are enough for it
    except (GdbextError, KeyError, struct.error) as e:
        log.passed_over(e)
    return names


def mapped_files(core: CoreFileTarget, auxv: bytes) -> list[tuple[int, int, int, str]]:
    """The content that NT_FILE would have: `[(start, end, offset in bytes, path)]` of the program and its libraries, for those
    whose files are on this machine. [] where the list or the program's file is missing."""
    found: list[tuple[int, int, int, str]] = []

    def read(address: int, size: int) -> bytes:
        """Of the core, or of what is found so far: the loader's own name is in the program's text."""
        try:
            return core.read_own(address, size)
        except FaultError:
            for start, end, offset, path in found:
                if start <= address and address + size <= end:
                    return elf.open_elf(core.local_file(path)).data[offset + address - start : offset + address - start + size]
            raise

    try:
        aux = auxiliary(auxv)
        page = aux.get(AT_PAGESZ, 4096)
        program = os.fsdecode(_string(read, aux[AT_EXECFN]))
        file = elf.open_elf(core.local_file(program))
        base = aux[AT_ENTRY] - file.entry
        found += _segments(file, base, page, program)
        dynamic = next((s.vaddr for s in file.segments if s.type == elf.PT_DYNAMIC), 0)
        for at, name, _ in _links(read, base, dynamic):
            path = os.fsdecode(name)
            if path.startswith("/"):
                with log.passing_over(GdbextError, OSError):
                    found += _segments(elf.open_elf(core.local_file(path)), at, page, path)
    except (GdbextError, KeyError, struct.error, OSError) as e:
        log.passed_over(e)
    return found


def _segments(file: elf.Elf, base: int, page: int, path: str) -> Iterator[tuple[int, int, int, str]]:
    for s in file.segments:
        if s.type == elf.PT_LOAD and s.filesz:
            yield (base + s.vaddr) & -page, (base + s.vaddr + s.filesz + page - 1) & -page, s.offset & -page, path


def _dynamic(read: Read, headers: int, size: int, count: int) -> tuple[int, int]:
    """(where the program is loaded, its dynamic section's own address or 0), from its program headers in memory."""
    base = dynamic = 0
    for i in range(min(count, 64)):
        kind, _, _, vaddr = struct.unpack_from("<IIQQ", read(headers + i * size, size))
        if kind == PT_PHDR:
            base = headers - vaddr
        elif kind == elf.PT_DYNAMIC:
            dynamic = vaddr
    return base, dynamic


def _links(read: Read, base: int, dynamic: int) -> Iterator[tuple[int, bytes, int]]:
    """(load address, path, address of the dynamic section) of each `struct link_map`."""
    seen: set[int] = set()
    link = _first_link(read, base + dynamic) if dynamic else 0
    while link and link not in seen and len(seen) < MAX_LIBRARIES:
        seen.add(link)
        at, name, section, link = struct.unpack("<4Q", read(link, 32))
        yield at, _string(read, name), section


def _first_link(read: Read, dynamic: int) -> int:
    for i in range(MAX_TAGS):
        tag, value = struct.unpack("<2Q", read(dynamic + 16 * i, 16))
        if tag == elf.DT_DEBUG:
            first: int = struct.unpack("<2Q", read(value, 16))[1]
            return first
        if tag == elf.DT_NULL:
            break
    return 0


def _string(read: Read, at: int) -> bytes:
    text = b""
    while b"\0" not in text and len(text) < MAX_NAME:
        text += read(at + len(text), min(64, 4096 - (at + len(text)) % 4096))
    return text.split(b"\0")[0]
