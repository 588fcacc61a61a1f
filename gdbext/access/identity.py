"""Whether a file on this machine is the one that a process has mapped.

The build-id decides. Without one, the parts that the loader maps of every file are compared; its first symbols, their names and
the beginning of its code are among them.

Sources: System V ABI chapter 5 (program headers, dynamic section), the GNU build-id note. Symbols and unwind tables of another
build give wrong functions that look certain. So a file counts only when something in the process's own memory agrees with it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Iterator

from .. import log
from ..errors import GdbextError
from . import elf as elf_format
from .elf import Elf

if TYPE_CHECKING:
    from .model import Memory

SAME, OTHER, UNKNOWN = "same", "other", "unknown"
PF_X, PF_W = 1, 2
MAX_HEADERS = 128
MAX_NOTES = 1 << 16
MAX_TAGS = 256
SAMPLE = 1 << 14  # bytes of a file's dynamic symbols, their names and its code that a snapshot keeps
COMPARED = 1 << 18  # bytes that are compared of each part that cannot change, where they can be read
STEP = 1 << 12  # bytes at a time, of a part that cannot be read as a whole
BREAKPOINT = 0xCC  # int3: a debugger has put it into code


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
            except GdbextError as e:
                log.passed_over(e)
                return None
            for name, note, description in elf_format.notes_in(data):
                if name == b"GNU" and note == elf_format.NT_GNU_BUILD_ID:
                    return description.hex()
        return ""

    def samples(self) -> list[tuple[int, int]]:
        """`[(address, size)]` of the beginning of the dynamic symbols, of their names and of the code, at most `SAMPLE` bytes of
        each. The loader of glibc has put addresses into the dynamic section."""
        fixed = [s for s in self.segments if s[0] == elf_format.PT_LOAD and not s[1] & PF_W]
        found = [(self.bias + s[3], min(SAMPLE, s[5])) for s in fixed if s[1] & PF_X]
        for kind, _, _, vaddr, _, size, *_ in self.segments:
            if kind != elf_format.PT_DYNAMIC:
                continue
            tags = dict(struct.iter_unpack("<QQ", self.memory.read_own(self.bias + vaddr, 16 * min(size // 16, MAX_TAGS))))
            for value in (tags.get(elf_format.DT_SYMTAB, 0), tags.get(elf_format.DT_STRTAB, 0)):
                at = value - self.bias if value >= self.bias else value
                inside = next((s for s in fixed if value and s[3] <= at < s[3] + s[5]), None)
                if inside is not None:
                    found.append((self.bias + at, min(SAMPLE, inside[3] + inside[5] - at)))
        return found

    def fixed_pages(self) -> Iterator[tuple[int, bytes]]:
        """(address, content) of the first `COMPARED` bytes of each part that is not writable, as far as they can be read."""
        for kind, flags, _, vaddr, _, size, *_ in self.segments:
            if kind != elf_format.PT_LOAD or flags & PF_W:
                continue
            start = self.bias + vaddr
            try:
                yield start, self.memory.read_own(start, min(size, COMPARED))
                continue
            except GdbextError as e:
                log.passed_over(e)  # a core that holds some pages of it
            for at in range(start, start + min(size, COMPARED), STEP):
                try:
                    yield at, self.memory.read_own(at, min(STEP, start + size - at))
                except GdbextError as e:
                    log.passed_over(e)
                    continue


def proof_ranges(memory: Memory, base: int) -> list[tuple[int, int]]:
    """`[(address, size)]` that `compare` reads of a file that is mapped at `base`, other than its first page and writable parts:
    its notes, and without a build-id its symbols and code. [] where no ELF file is mapped."""
    try:
        head = MappedHead(memory, base)
        return head.notes() + ([] if head.build_id() else head.samples())
    except GdbextError as e:
        log.passed_over(e)
        return []


def compare(file: Elf, memory: Memory, base: int) -> tuple[str, str]:
    """-> (`SAME`, `OTHER` or `UNKNOWN`, why it is not `SAME`) for `file` and the file that a process has mapped at `base`."""
    verdict, why = _compared(file, memory, base)
    if why:
        log.note("symbols refused or in doubt: %s", why)
    return verdict, why


def _compared(file: Elf, memory: Memory, base: int) -> tuple[str, str]:
    try:
        head = MappedHead(memory, base)
    except GdbextError as e:
        log.passed_over(e)
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
    if verdict != OTHER and not _has_content_of(file, head):
        verdict, why = (
            OTHER,
            f"{file.path}: not the file that is mapped (its symbols or its code differ from {memory.describe()}'s)",
        )
    return (OTHER, why) if verdict == OTHER else (SAME, "")


def _has_content_of(file: Elf, head: MappedHead) -> bool:
    """Whether the parts that are not writable are mapped as they are in a file, apart from a debugger's breakpoints. Parts that a
    core does not hold are no evidence against it."""
    for address, mapped in head.fixed_pages():
        own = file.at(address - head.bias, len(mapped))
        if own is None or own != mapped and any(a != b and b != BREAKPOINT for a, b in zip(own, mapped)):
            return False
    return True


def _by_dynamic(file: Elf, memory: Memory, base: int) -> tuple[str, str]:
    """By the dynamic section: the places and lengths of the file's tables. The loader writes addresses into it, so cores
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
    except GdbextError as e:
        log.passed_over(e)
        return UNKNOWN, unknown
    for (tag, value), (other, found) in zip(struct.iter_unpack("<QQ", own), struct.iter_unpack("<QQ", mapped)):
        if tag != other or (tag != elf_format.DT_DEBUG and found not in (value, value + bias & (1 << 64) - 1)):
            return OTHER, f"{file.path}: not the file that is mapped (its dynamic section differs from {memory.describe()}'s)"
        if tag == elf_format.DT_NULL:
            break
    return SAME, ""
