"""A minimal ELF reader, with the standard library alone: segments, sections, dynamic symbols, notes of 64-bit little-endian
files.

Sources of the structures: System V ABI, chapters 4 and 5; NT_FILE and NT_PRPSINFO: Linux fs/binfmt_elf.c. No count, size or
offset of a file is believed before it is compared with the file's own length. Work whose amount the file determines runs within a
`files.Budget`.
"""

from __future__ import annotations

import array
import bisect
import os
import struct
import time
from typing import Any, Iterator, Sequence, Tuple, Union

from .. import log
from ..errors import GdbextError, NotFoundError
from . import file_kinds, files, kept_symbols

Data = Union[bytes, files.FileBytes]
SymbolTable = Tuple[int, int, int, int]  # symbols' file offset, count, strings' file offset, size
SectionHead = Tuple[str, int, int, int, int, int, int, int]

PT_LOAD, PT_DYNAMIC, PT_NOTE, PT_GNU_EH_FRAME = 1, 2, 4, 0x6474E550
ET_CORE = 4
EM_X86_64, EM_AARCH64 = 62, 183
NT_PRSTATUS, NT_PRPSINFO, NT_AUXV, NT_FILE, NT_SIGINFO, NT_GNU_BUILD_ID = 1, 3, 6, 0x46494C45, 0x53494749, 3
NT_ARM_PAC_MASK = 0x406  # struct user_pac_mask: the masks for data and for code
DT_NULL, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_DEBUG = 0, 5, 6, 10, 21
ARCH = {EM_X86_64: "x86-64", EM_AARCH64: "aarch64"}
FUNCTION_TYPES = (0, 2, 10)  # STT_NOTYPE, STT_FUNC, STT_GNU_IFUNC
SYMBOL = struct.Struct("<IBBHQQ")
PROGRAM_HEADER, SECTION_HEADER = struct.Struct("<IIQQQQQQ"), struct.Struct("<IIQQQQIIQQ")
MAX_SEGMENTS = 1 << 20
MAX_TAGS = 4096
MAX_NAME = 65536
NEAR = 4096  # bytes behind a symbol without a size that are still taken for its function
WIDEST = 4 << 20  # bytes of the largest function
NOTE_SECONDS = 5.0  # that reading a file's notes may take
SEARCH_SECONDS = 20.0  # of a processor that searches by address may take in one file, all together

_open_files: dict[tuple[str, int, int, int, int, int], Elf] = {}


def open_elf(path: str) -> Elf:
    """A cached `Elf` by path, device, inode and times; `NotFoundError` when it is gone, no regular or no 64-bit ELF file."""
    try:
        st = os.stat(path)
    except (OSError, ValueError) as e:
        raise NotFoundError(f"{path}: {getattr(e, 'strerror', None) or e}") from None
    key = (path, st.st_dev, st.st_ino, st.st_mtime_ns, st.st_ctime_ns, st.st_size)
    if key not in _open_files:
        _open_files[key] = Elf(path)
    return _open_files[key]


def opened() -> list[Elf]:
    """The files that are open here."""
    return list(_open_files.values())


def drop_cached(path: str) -> None:
    """Removes a file that is about to be deleted from the cache. An `Elf` of it that a caller keeps stays readable."""
    for key in [k for k in _open_files if k[0] == path]:
        del _open_files[key]


def notes_in(
    data: Data, at: int = 0, end: int | None = None, budget: files.Budget | None = None
) -> Iterator[tuple[bytes, int, bytes]]:
    """`(name, type, description)` of the notes between two offsets of `data`; stops where they are cut, and at the first of
    zeros: a hole of 16 TiB holds very many."""
    end = len(data) if end is None else end
    while at + 12 <= end:
        if budget is not None:
            budget.take(0)
        namesz, descsz, kind = struct.unpack("<III", data[at : at + 12])
        if not (namesz or descsz or kind):
            break
        name = data[at + 12 : at + 12 + min(namesz, 64)].rstrip(b"\0")
        start = at + 12 + (namesz + 3 & ~3)
        if start + descsz > end:
            break
        if budget is not None:
            budget.take(descsz)
        yield name, kind, data[start : start + descsz]
        at = start + (descsz + 3 & ~3)


class Segment:
    """One program header; sizes and offsets in bytes."""

    __slots__ = ("type", "flags", "offset", "vaddr", "filesz", "memsz")

    def __init__(self, kind: int, flags: int, offset: int, vaddr: int, filesz: int, memsz: int) -> None:
        self.type, self.flags, self.offset, self.vaddr, self.filesz, self.memsz = kind, flags, offset, vaddr, filesz, memsz


class Elf:
    """One file, of which only the requested parts are read. Addresses are the file's own virtual addresses. `NotFoundError` for a
    file that is no 64-bit ELF file."""

    relocated_by = 0  # the loader's addition to the pointers of PT_DYNAMIC, where the bytes come from a process

    def __init__(self, path: str, data: Data | None = None) -> None:
        """`data`: the file's bytes where they do not come from a file (the vdso)."""
        self.path = path
        self.data: Data = files.FileBytes(path) if data is None else data
        head = self.data[:64]
        if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
            raise NotFoundError(f"{path}: {file_kinds.of_no_elf(path, head)}")
        fields = struct.unpack_from("<HHIQQQIHHHHHH", head, 16)
        self.type, self.machine, self.entry = fields[0], fields[1], fields[3]
        self._shoff, self._shentsize, self._shnum, self._shstrndx = fields[5], fields[10], fields[11], fields[12]
        self.arch = ARCH.get(self.machine, f"machine {self.machine}")
        self.segments = self._read_segments(fields[4], fields[8], fields[9])
        self.frame_table: list[Any] = []  # of cfi.table_of: kept here, so that it ends with the file
        self.kept: dict[str, Any] = {}  # results of other rooms, by their own keys: dropped together with the file
        self._heads: list[SectionHead] | None = None
        self._sections: dict[str, tuple[int, int, int, int, int]] | None = None
        self._tables: list[SymbolTable] | None = None
        self._globals: list[tuple[int, int]] | None = None  # (value, file offset of the name) by value
        self._value_tables: list[tuple[bytes, int, int]] | None = None
        self._functions: dict[int, str] = {}
        self._places: dict[int, tuple[str, int]] = {}
        self._searched = 0.0
        self._build_id: str | None = None
        self._debug_file: list[Elf | None] = []

    def _read_segments(self, offset: int, size: int, count: int) -> list[Segment]:
        if count == 0xFFFF and self._shoff:  # more segments than the field holds: sh_info of section 0 (big cores)
            if self._shoff + 64 > len(self.data):
                return []
            count = int.from_bytes(self.data[self._shoff + 44 : self._shoff + 48], "little")
        if count and size != PROGRAM_HEADER.size:
            raise NotFoundError(f"{self.path}: damaged: program headers of {size} bytes")
        count = min(count, max(0, len(self.data) - offset) // size) if count else 0  # cut short: the rest is still of use
        if count > MAX_SEGMENTS:
            raise NotFoundError(f"{self.path}: damaged: {count} program headers")
        found, table = [], self.data[offset : offset + count * size]
        for i in range(count):
            kind, flags, at, vaddr, _, filesz, memsz, _ = PROGRAM_HEADER.unpack_from(table, i * size)
            found.append(Segment(kind, flags, at, vaddr, filesz, memsz))
        return found

    @property
    def lowest_address(self) -> int:
        """Page-aligned lowest virtual address of the file's loaded segments."""
        loads = [s.vaddr for s in self.segments if s.type == PT_LOAD]
        return min(loads) & -4096 if loads else 0

    def at(self, vaddr: int, size: int) -> bytes | None:
        """Bytes of the file behind a virtual address, or None where the file has none."""
        for s in self.segments:
            if s.type == PT_LOAD and s.vaddr <= vaddr and vaddr + size <= s.vaddr + s.filesz:
                start = s.offset + vaddr - s.vaddr
                return self.data[start : start + size]
        return None

    def offset_of(self, vaddr: int | None) -> int | None:
        """The file offset behind a virtual address, None where the file has none."""
        for s in self.segments:
            if vaddr is not None and s.type == PT_LOAD and s.vaddr <= vaddr < s.vaddr + s.filesz:
                return s.offset + vaddr - s.vaddr
        return None

    # ---- sections ------------------------------------------------------------------------------------------------
    @property
    def section_heads(self) -> list[SectionHead]:
        """The section table as `[(name, type, address, file offset, size, link, info, entsize)]`.

        [] in a file without one, or with one that is cut off; `GdbextError` where its names claim more than the file can hold."""
        if self._heads is None:
            self._heads = self._read_section_heads()
        return self._heads

    def _read_section_heads(self) -> list[SectionHead]:
        end, size, count = len(self.data), self._shentsize, self._shnum
        if not self._shoff or self._shoff + 64 > end or size != SECTION_HEADER.size:
            return []
        first = SECTION_HEADER.unpack(self.data[self._shoff : self._shoff + SECTION_HEADER.size])
        count = count or first[5]  # more sections than the field holds
        if self._shoff + count * size > end:
            return []
        strings = self._shstrndx if self._shstrndx != 0xFFFF else first[6]
        if strings >= count:
            return []
        files.Budget(self.path).take(count * size)
        table = self.data[self._shoff : self._shoff + count * size]
        names = SECTION_HEADER.unpack_from(table, strings * size)
        base, length = names[4], min(names[5], max(0, end - names[4]))
        budget = files.Budget(self.path, 4 * length + (1 << 20))  # names may share their tails, not much more
        found = []
        for i in range(count):
            h = SECTION_HEADER.unpack_from(table, i * size)
            name = self.string(base + h[0])
            budget.take(len(name))
            found.append((name, h[1], h[3], h[4], h[5], h[6], h[7], h[9]))
        return found

    def string(self, offset: int, limit: int = MAX_NAME) -> str:
        """The text at a file offset up to its NUL; '' behind the end of the file."""
        if offset >= len(self.data):
            return ""
        end = self.data.find(b"\0", offset, offset + limit)
        return self.data[offset : end if end >= 0 else offset].decode("utf-8", "replace")

    @property
    def sections(self) -> dict[str, tuple[int, int, int, int, int]]:
        """`{name: (address, file offset, size, link, entsize)}`; {} in a file without section headers."""
        if self._sections is None:
            self._sections = {
                name: (address, offset, size, link, entsize)
                for name, _, address, offset, size, link, _, entsize in self.section_heads
            }
        return self._sections

    # ---- symbols -------------------------------------------------------------------------------------------------
    def symbol(self, name: str) -> int | None:
        """The value of a defined dynamic symbol, else of one in .symtab, or None."""
        raw = name.encode()
        for table in self._symbol_tables():
            value = self._value_of(table, raw)
            if value is not None:
                return value
        return None

    def exported(self, name: str) -> int | None:
        """The value of a symbol that other files can use, or None."""
        table = self._dynamic()
        return self._value_of(table, name.encode()) if table is not None else None

    def _symbol_tables(self) -> list[SymbolTable]:
        if self._tables is None:
            self._tables = []
            dynamic = self._dynamic()
            if dynamic:
                self._tables.append(dynamic)
            static = self._table_of(".symtab", ".strtab")
            if static:
                self._tables.append(static)
        return self._tables

    def _table_of(self, symbols: str, strings: str) -> SymbolTable | None:
        if symbols not in self.sections or strings not in self.sections:
            return None
        _, offset, size, _, _ = self.sections[symbols]
        _, str_offset, str_size, _, _ = self.sections[strings]
        return self._bounded(offset, size // 24, str_offset, str_size)

    def _bounded(self, offset: int, count: int, str_offset: int, str_size: int) -> SymbolTable:
        end = len(self.data)
        offset, str_offset = min(offset, end), min(str_offset, end)
        return offset, min(count, (end - offset) // 24), str_offset, min(str_size, end - str_offset)

    def _dynamic(self) -> SymbolTable | None:
        """From .dynsym, else from PT_DYNAMIC, as the loader itself finds them."""
        named = self._table_of(".dynsym", ".dynstr")
        if named:
            return named
        segment = next((s for s in self.segments if s.type == PT_DYNAMIC), None)
        if segment is None:
            return None
        tags: dict[int, int] = {}
        end = min(segment.offset + min(segment.filesz, 16 * MAX_TAGS), len(self.data) - 15)
        count = max(0, end - segment.offset + 15) // 16
        for tag, value in struct.iter_unpack("<qQ", self.data[segment.offset : segment.offset + 16 * count]):
            if tag == DT_NULL:
                break
            tags[tag] = value
        if not (DT_STRTAB in tags and DT_SYMTAB in tags and tags.get(DT_STRSZ)):
            return None
        symtab, strtab = self.offset_of(tags[DT_SYMTAB]), self.offset_of(tags[DT_STRTAB])
        if symtab is None and strtab is None and self.relocated_by:
            symtab, strtab = (self.offset_of(tags[t] - self.relocated_by) for t in (DT_SYMTAB, DT_STRTAB))
        if symtab is None or strtab is None:
            return None
        count = (strtab - symtab) // 24 if strtab > symtab else 0  # linkers put the strings right after the symbols
        return self._bounded(symtab, count, strtab, tags[DT_STRSZ])

    def _value_of(self, table: SymbolTable, raw: bytes) -> int | None:
        """A symbol's value, found by its name first (one fast search in the file), then by the symbol that points to that
        name."""
        offset, count, str_offset, str_size = table
        budget = files.Budget(self.path)
        end, needle = str_offset + str_size, raw + b"\0"
        at = self.data.find(needle, str_offset, end)
        while at >= 0:
            value = self._value_named(offset, count, at - str_offset, budget)
            if value is not None:
                return value
            at = self.data.find(needle, at + 1, end)
        return None

    def _symbol(self, offset: int, index: int) -> tuple[Any, ...]:
        at = offset + 24 * index
        return SYMBOL.unpack(self.data[at : at + 24])

    def _value_named(self, offset: int, count: int, name_offset: int, budget: files.Budget) -> int | None:
        pattern, limit = struct.pack("<I", name_offset), offset + count * 24
        at = self.data.find(pattern, offset, limit)
        while at >= 0:
            budget.take(0)
            if (at - offset) % 24 == 0 and at + 24 <= limit:
                _, _, _, shndx, value, _ = SYMBOL.unpack(self.data[at : at + 24])
                if shndx != 0 and value:
                    return int(value)
            at = self.data.find(pattern, at + 1, limit)
        return None

    def symbols_named(self, words: Sequence[bytes]) -> list[tuple[str, int, int]]:
        """`[(name, value, size)]` of the defined functions whose names hold one of `words`, by address.

        A function that both symbol tables name counts once. The file is searched: seconds for gigabytes."""
        found: dict[tuple[int, str], int] = {}
        budget = files.Budget(self.path, seconds=300)
        for offset, count, base, size in self._symbol_tables():
            spans = self._names_with(words, base, size, budget)
            if not spans:
                continue
            starts = [s for s, _ in spans]
            names = array.array("I")
            names.frombytes(self.data[offset : offset + 24 * count])
            for index, name in enumerate(names[0::6]):
                near = bisect.bisect_right(starts, name) - 1  # a linker may let a name be the tail of a longer one
                if near < 0 or name > spans[near][1]:
                    continue
                _, info, _, shndx, value, length = self._symbol(offset, index)
                if shndx and value and info & 15 in FUNCTION_TYPES:
                    text = self.string(base + name)
                    budget.take(len(text))
                    found[value, text] = length
        return sorted(((name, value, length) for (value, name), length in found.items()), key=lambda f: f[1:])

    def _names_with(self, words: Sequence[bytes], base: int, size: int, budget: files.Budget) -> list[tuple[int, int]]:
        """`[(a name's first byte, the position of the word in it)]`, both as offsets into the strings."""
        end, spans = base + size, []
        for word in words:
            at = self.data.find(word, base, end)
            while at >= 0:
                budget.take(100)
                stop = self.data.find(b"\0", at, end)
                spans.append((self.data.rfind(b"\0", base, at) + 1 - base if at > base else 0, at - base))
                at = self.data.find(word, stop, end) if stop >= 0 else -1
        return sorted(spans)

    # ---- from an address to a function -------------------------------------------------------------------------
    def function_from(self, start: int) -> str:
        """The name of the symbol whose value is `start`, '' when there is none: exact, and fast in the largest files."""
        if start not in self._functions:
            name = kept_symbols.of(self).name(start, self._named)
            if not name and self.debug_file is not None:
                name = kept_symbols.of(self.debug_file).name(start, self.debug_file._named)
            self._functions[start] = name
        return self._functions[start]

    @property
    def debug_file(self) -> Elf | None:
        """The file that distributions keep a stripped library's symbols in, by its build-id; None when it is not installed."""
        if not self._debug_file:
            own, found = self.build_id, None
            path = f"/usr/lib/debug/.build-id/{own[:2]}/{own[2:]}.debug"
            if own and self.path != path and os.path.exists(path):
                try:
                    found = open_elf(path)
                except GdbextError as e:
                    log.passed_over(e)
            self._debug_file.append(found if found is not None and found.build_id == own else None)
        return self._debug_file[0]

    @property
    def has_static_symbols(self) -> bool:
        """Whether names of static functions are known."""
        return ".symtab" in self.sections or (self.debug_file is not None and ".symtab" in self.debug_file.sections)

    def _values(self) -> list[tuple[bytes, int, int]]:
        """`[(values of a symbol table, 8 bytes each; its file offset, strings' file offset)]`, .symtab first."""
        if self._value_tables is None:
            self._value_tables = []
            for offset, count, str_offset, _ in reversed(self._symbol_tables()):
                words = array.array("Q")
                words.frombytes(self.data[offset : offset + 24 * count])
                self._value_tables.append((words[1::3].tobytes(), offset, str_offset))
        return self._value_tables

    def _named(self, start: int) -> str:
        for values, offset, str_offset in self._values():
            best = ""
            for index in _indices(values, start):
                name, info, _, shndx, _, _ = self._symbol(offset, index)
                if shndx and self._names_code(info, str_offset + name):
                    if info & 15 != 0 or not best:
                        best = self.string(str_offset + name)
                    if info & 15 != 0 and info >> 4:  # a global function's name is the one people know
                        break
            if best:
                return best
        return ""

    def _names_code(self, info: int, name: int) -> bool:
        """Whether a symbol may be a function's: on Arm "$x" and "$d" mark where code and data begin (AAELF64, "Mapping symbols").
        `name`: the file offset of its name."""
        return info & 15 in FUNCTION_TYPES and (info & 15 != 0 or self.data[name : name + 1] != b"$")

    def function_at(self, vaddr: int) -> str:
        """The function that an address lies in by the symbols' sizes, ''; for code without call-frame information."""
        return self.function_and_start(vaddr)[0]

    def function_and_start(self, vaddr: int) -> tuple[str, int]:
        """(function that an address lies in by the symbols' sizes, the address it begins at), ('', 0) where there is none."""
        if vaddr not in self._places:
            found = kept_symbols.of(self).place(vaddr, self._around, self._searched < SEARCH_SECONDS)
            if not found[0] and self.debug_file is not None:
                found = self.debug_file.function_and_start(vaddr)
            self._places[vaddr] = found
        return self._places[vaddr]

    def _around(self, vaddr: int) -> tuple[str, int]:
        began, best, place = time.thread_time(), 0, -1
        for values, offset, str_offset in self._values():
            low = max(best, vaddr - WIDEST)
            near = [(-value, index) for index, value in enumerate(memoryview(values).cast("Q")) if low < value <= vaddr]
            for below, index in sorted(near):  # the nearest first
                name, info, _, shndx, _, size = self._symbol(offset, index)
                # one without a size may be followed by functions that a file without .symtab does not name (musl's libc.so)
                reaches = vaddr < size - below or not size and vaddr + below < (NEAR if self.has_static_symbols else 1)
                if shndx and reaches and self._names_code(info, str_offset + name):
                    best, place = -below, str_offset + name
                    break
        self._searched += time.thread_time() - began
        text = self.string(place) if place >= 0 else ""
        return (text, best) if text else ("", 0)

    def globals_around(self, vaddr: int) -> tuple[str, str]:
        """The names of the last global function that begins at or before an address and of the first that begins after it; '' for
        each that does not exist."""
        if self._globals is None:
            found: dict[int, int] = {}
            for values, offset, str_offset in self._values():
                for index, value in enumerate(memoryview(values).cast("Q")):
                    if value:
                        name, info, _, shndx, _, _ = self._symbol(offset, index)
                        if shndx and info >> 4 and info & 15 in FUNCTION_TYPES and info & 15:
                            found[value] = str_offset + name
            self._globals = sorted(found.items())
        place = bisect.bisect_right(self._globals, (vaddr, 1 << 62))
        before, after = self._globals[max(place - 1, 0) : place], self._globals[place : place + 1]
        return self.string(before[0][1]) if before else "", self.string(after[0][1]) if after else ""

    # ---- notes ---------------------------------------------------------------------------------------------------
    def notes(self) -> Iterator[tuple[bytes, int, bytes]]:
        """`(name, type, description bytes)` of every PT_NOTE segment; stops where the file is cut."""
        budget = files.Budget(self.path, seconds=NOTE_SECONDS)
        for s in self.segments:
            if s.type == PT_NOTE:
                yield from notes_in(self.data, s.offset, min(s.offset + s.filesz, len(self.data)), budget)

    @property
    def build_id(self) -> str:
        """Hex build-id, or ''."""
        if self._build_id is None:
            ids = (desc.hex() for name, kind, desc in self.notes() if name == b"GNU" and kind == NT_GNU_BUILD_ID)
            self._build_id = next(ids, "")
        return self._build_id

    def mapped_files(self) -> list[tuple[int, int, int, str]]:
        """A core's NT_FILE: `[(start, end, offset in bytes, path)]`."""
        for name, kind, desc in self.notes():
            if kind == NT_FILE and name == b"CORE" and len(desc) >= 16:
                count, page = struct.unpack_from("<QQ", desc, 0)
                count = min(count, (len(desc) - 16) // 24)
                names = desc[16 + 24 * count :].split(b"\0", count)
                found = []
                for i in range(count):
                    start, end, offset = struct.unpack_from("<QQQ", desc, 16 + 24 * i)
                    path = names[i].decode("utf-8", "surrogateescape") if i < len(names) else ""
                    found.append((start, end, offset * page, path))
                return found
        return []


def _indices(values: bytes, wanted: int) -> Iterator[int]:
    """The indices of `wanted` among words of 8 bytes; libtorch has 400,000 symbols, and bytes are searched fast."""
    word = struct.pack("=Q", wanted)
    at = values.find(word)
    while at >= 0:
        if at % 8 == 0:
            yield at // 8
        at = values.find(word, at + 1)
