"""Whether a file on this machine is the one that a process has mapped: by build-id, else by the parts that the loader maps of
every file, its first symbols among them.

Sources: System V ABI chapter 5 (program headers, dynamic section), the GNU build-id note. Symbols and unwind tables of another
build give wrong functions as sure, so a file counts only when something in the process's own memory agrees with it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ..errors import GdbextError
from . import elf as elf_format

if TYPE_CHECKING:
    from .elf import Elf
    from .model import Memory

SAME, OTHER, UNKNOWN = "same", "other", "unknown"
DT_NULL, DT_SYMTAB, DT_DEBUG = 0, 6, 21
MAX_HEADERS = 128
MAX_NOTES = 1 << 16
MAX_TAGS = 256
SYMBOLS = 1 << 14  # bytes of a file's dynamic symbols that are compared


class MappedHead:
    """The ELF header and program headers of a file as they lie in a process's memory at `base`; `GdbextError` where they cannot
    be read."""

    def __init__(self, memory: Memory, base: int) -> None:
        self.memory = memory
        self.header = memory.read_own(base, 64)
        if self.header[:6] != b"\x7fELF\x02\x01":
            raise GdbextError(f"no ELF header at {base:#x}")
        offset, _, _, _, size, count = struct.unpack_from("<QQIHHH", self.header, 32)
        if size != 56 or count > MAX_HEADERS:
            raise GdbextError(f"odd program headers at {base:#x}")
        self.table = memory.read_own(base + offset, 56 * count)
        self.segments = list(struct.iter_unpack("<IIQQQQQQ", self.table))
        loads = [vaddr for kind, _, _, vaddr, *_ in self.segments if kind == elf_format.PT_LOAD]
        self.bias = base - (min(loads) & -4096 if loads else 0)

    def notes(self) -> list[tuple[int, int]]:
        """`[(address, size)]` of the notes."""
        return [(self.bias + s[3], s[5]) for s in self.segments if s[0] == elf_format.PT_NOTE and s[5] <= MAX_NOTES]

    def build_id(self) -> str | None:
        """Hex digits, '' where the file has none; None where its notes are not in memory."""
        for address, size in self.notes():
            try:
                data = self.memory.read_own(address, size)
            except GdbextError:
                return None
            for name, note, description in elf_format.notes_in(data):
                if name == b"GNU" and note == elf_format.NT_GNU_BUILD_ID:
                    return description.hex()
        return ""

    def symbols(self) -> list[tuple[int, int]]:
        """`[(address, size)]` of the beginning of the dynamic symbols, at most `SYMBOLS` bytes; [] where there are none. The
        loader of glibc has put addresses into the dynamic section."""
        for kind, _, _, vaddr, _, size, *_ in self.segments:
            if kind != elf_format.PT_DYNAMIC:
                continue
            tags = struct.iter_unpack("<QQ", self.memory.read_own(self.bias + vaddr, 16 * min(size // 16, MAX_TAGS)))
            found = next((value for tag, value in tags if tag == DT_SYMTAB), 0)
            at = found - self.bias if found >= self.bias else found
            for load, _, _, start, _, length, *_ in self.segments:
                if load == elf_format.PT_LOAD and start <= at < start + length:
                    return [(self.bias + at, min(SYMBOLS, start + length - at))]
        return []


def proof_ranges(memory: Memory, base: int) -> list[tuple[int, int]]:
    """`[(address, size)]` of what `compare` looks at, beside the first page and what is writable, of a file that is mapped at
    `base`: its notes, and without a build-id its symbols; [] where no ELF file is."""
    try:
        head = MappedHead(memory, base)
        return head.notes() + ([] if head.build_id() else head.symbols())
    except GdbextError:
        return []


def compare(file: Elf, memory: Memory, base: int) -> tuple[str, str]:
    """-> (`SAME`, `OTHER` or `UNKNOWN`, why it is not `SAME`) for `file` and what a process has mapped at `base`."""
    try:
        head = MappedHead(memory, base)
    except GdbextError:
        return _by_dynamic(file, memory, base)
    mapped, here = head.build_id(), file.build_id
    if mapped and here:
        if mapped == here:
            return SAME, ""
        return (
            OTHER,
            f"{file.path}: not the file that is mapped (build-id {here[:16]} here, {mapped[:16]} in {memory.describe()})",
        )
    if mapped or (here and mapped is not None):
        return OTHER, f"{file.path}: not the file that is mapped (only one of the two has a build-id)"
    start = struct.unpack_from("<Q", head.header, 32)[0]
    if file.data[:64] != head.header or file.data[start : start + len(head.table)] != head.table:
        return OTHER, f"{file.path}: not the file that is mapped (it begins otherwise than in {memory.describe()})"
    verdict, why = _by_dynamic(file, memory, base)
    if verdict != OTHER and not _has_symbols_of(file, head):
        verdict, why = OTHER, f"{file.path}: not the file that is mapped (its symbols differ from {memory.describe()}'s)"
    return (OTHER, why) if verdict == OTHER else (SAME, "")


def _has_symbols_of(file: Elf, head: MappedHead) -> bool:
    """Whether a file's first symbols are those that are mapped; a core that does not hold them says nothing against it."""
    try:
        return all(file.at(address - head.bias, size) == head.memory.read_own(address, size) for address, size in head.symbols())
    except GdbextError:
        return True


def _by_dynamic(file: Elf, memory: Memory, base: int) -> tuple[str, str]:
    """By the dynamic section: where the file's tables lie and how long they are. The loader writes addresses into it, so cores
    hold it."""
    unknown = f"{file.path}: nothing in {memory.describe()} proves that this is the file that was mapped"
    segment = next((s for s in file.segments if s.type == elf_format.PT_DYNAMIC), None)
    if segment is None:
        return UNKNOWN, unknown
    bias = base - file.lowest_address
    count = min(segment.filesz // 16, MAX_TAGS)
    own = file.data[segment.offset : segment.offset + 16 * count]
    try:
        mapped = memory.read_own(bias + segment.vaddr, 16 * count)
    except GdbextError:
        return UNKNOWN, unknown
    for (tag, value), (other, found) in zip(struct.iter_unpack("<QQ", own), struct.iter_unpack("<QQ", mapped)):
        if tag != other or (tag != DT_DEBUG and found not in (value, value + bias & (1 << 64) - 1)):
            return OTHER, f"{file.path}: not the file that is mapped (its dynamic section differs from {memory.describe()}'s)"
        if tag == DT_NULL:
            break
    return SAME, ""
