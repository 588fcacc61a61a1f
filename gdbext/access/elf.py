"""Just enough ELF, with the standard library alone: segments, sections, dynamic symbols, notes of 64-bit little-endian files.

Source of the structures: System V ABI, chapters 4 and 5; NT_FILE and NT_PRPSINFO: Linux fs/binfmt_elf.c.
"""

import array
import bisect
import mmap
import os
import struct
import sys

from ..errors import NotFoundError

PT_LOAD, PT_DYNAMIC, PT_NOTE, PT_GNU_EH_FRAME = 1, 2, 4, 0x6474E550
ET_CORE = 4
EM_X86_64, EM_AARCH64 = 62, 183
NT_PRSTATUS, NT_PRPSINFO, NT_AUXV, NT_FILE, NT_GNU_BUILD_ID = 1, 3, 6, 0x46494C45, 3
ARCH = {EM_X86_64: "x86-64", EM_AARCH64: "aarch64"}

_open_files = {}


def open_elf(path):
    """A cached `Elf` by path, device, inode and time; `NotFoundError` when it is gone or no 64-bit ELF file."""
    try:
        st = os.stat(path)
    except OSError as e:
        raise NotFoundError(f"{path}: {e.strerror}") from None
    key = (path, st.st_dev, st.st_ino, st.st_mtime_ns, st.st_size)
    if key not in _open_files:
        _open_files[key] = Elf(path)
    return _open_files[key]


def drop_cached(path):
    """Drops a file that is about to be deleted from the cache; who still reads it keeps it."""
    for key in [k for k in _open_files if k[0] == path]:
        del _open_files[key]


class Segment:
    __slots__ = ("type", "flags", "offset", "vaddr", "filesz", "memsz")

    def __init__(self, kind, flags, offset, vaddr, filesz, memsz):
        self.type, self.flags, self.offset, self.vaddr, self.filesz, self.memsz = kind, flags, offset, vaddr, filesz, memsz


class Elf:
    """One file, memory-mapped. Addresses are the file's own virtual addresses."""

    relocated_by = 0  # what the loader has added to the pointers of PT_DYNAMIC, where the bytes come out of a process

    def __init__(self, path, data=None):
        """`data`: the file's bytes where they do not come from a file (the vdso)."""
        self.path, self.data = path, data
        try:
            if data is None:
                with open(path, "rb") as f:
                    self.data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as e:
            raise NotFoundError(f"{path}: {getattr(e, 'strerror', None) or 'empty file'}") from None
        head = self.data[:64]
        if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
            raise NotFoundError(f"{path}: not a 64-bit little-endian ELF file")
        (
            self.type,
            self.machine,
            _,
            self.entry,
            phoff,
            self._shoff,
            _,
            _,
            phentsize,
            phnum,
            self._shentsize,
            self._shnum,
            self._shstrndx,
        ) = struct.unpack_from("<HHIQQQIHHHHHH", head, 16)
        if phnum == 0xFFFF and self._shoff:  # more segments than the field holds: sh_info of section 0 (big cores)
            phnum = struct.unpack_from("<I", self.data, self._shoff + 44)[0]
        self.segments = []
        for i in range(phnum):
            at = phoff + i * phentsize
            if at + 56 > len(self.data):
                break  # truncated: what is there is still of use
            kind, flags, offset, vaddr, _, filesz, memsz = struct.unpack_from("<IIQQQQQ", self.data, at)
            self.segments.append(Segment(kind, flags, offset, vaddr, filesz, memsz))
        self.arch = ARCH.get(self.machine, f"machine {self.machine}")
        self._heads = self._sections = None
        self._tables = None
        self._functions = {}

    @property
    def lowest_address(self):
        """Page-aligned lowest virtual address of the file's loaded segments."""
        loads = [s.vaddr for s in self.segments if s.type == PT_LOAD]
        return min(loads) & -4096 if loads else 0

    def at(self, vaddr, size):
        """Bytes of the file behind a virtual address, or None where the file has none."""
        for s in self.segments:
            if s.type == PT_LOAD and s.vaddr <= vaddr and vaddr + size <= s.vaddr + s.filesz:
                start = s.offset + vaddr - s.vaddr
                return self.data[start : start + size]
        return None

    # ---- sections and symbols ----------------------------------------------------------------------------------
    @property
    def section_heads(self):
        """The section table as `[(name, type, address, file offset, size, link, info, entsize)]`; [] in a file without one, or with one that
        is cut off."""
        if self._heads is None:
            heads, count = [], self._shnum
            if self._shoff and self._shoff + 64 <= len(self.data) and self._shentsize >= 64:
                first = struct.unpack_from("<IIQQQQIIQQ", self.data, self._shoff)
                count = count or first[5]  # more sections than the field holds
                if self._shoff + count * self._shentsize <= len(self.data):
                    heads = [
                        struct.unpack_from("<IIQQQQIIQQ", self.data, self._shoff + i * self._shentsize) for i in range(count)
                    ]
            strings = self._shstrndx if self._shstrndx != 0xFFFF or not heads else heads[0][6]
            base = heads[strings][4] if strings < len(heads) else len(self.data)
            self._heads = [(self.string(base + h[0]), h[1], h[3], h[4], h[5], h[6], h[7], h[9]) for h in heads]
        return self._heads

    def string(self, offset, limit=65536):
        """The text at a file offset up to its NUL."""
        end = self.data.find(b"\0", offset, offset + limit)
        return self.data[offset : end if end >= 0 else offset].decode("utf-8", "replace")

    @property
    def sections(self):
        """`{name: (address, file offset, size, link, entsize)}`; {} in a file without section headers."""
        if self._sections is None:
            self._sections = {
                name: (address, offset, size, link, entsize)
                for name, _, address, offset, size, link, _, entsize in self.section_heads
            }
        return self._sections

    def symbol(self, name):
        """The value of a defined dynamic symbol, else of one in .symtab, or None. `name` is str."""
        raw = name.encode()
        for table in self._symbol_tables():
            value = self._lookup(table, raw)
            if value is not None:
                return value
        return None

    def _symbol_tables(self):
        if self._tables is None:
            self._tables = []
            dynamic = self._dynamic()
            if dynamic:
                self._tables.append(dynamic)
            if ".symtab" in self.sections and ".strtab" in self.sections:
                _, offset, size, _, _ = self.sections[".symtab"]
                _, str_offset, str_size, _, _ = self.sections[".strtab"]
                self._tables.append((offset, size // 24, str_offset, str_size))
        return self._tables

    def _dynamic(self):
        """(symbols' file offset, count, strings' file offset, size) from PT_DYNAMIC, as the loader itself finds them."""
        if ".dynsym" in self.sections and ".dynstr" in self.sections:
            _, offset, size, _, _ = self.sections[".dynsym"]
            _, str_offset, str_size, _, _ = self.sections[".dynstr"]
            return offset, size // 24, str_offset, str_size
        seg = next((s for s in self.segments if s.type == PT_DYNAMIC), None)
        if seg is None:
            return None
        tags = {}
        for at in range(seg.offset, min(seg.offset + seg.filesz, len(self.data) - 15), 16):
            tag, value = struct.unpack_from("<qQ", self.data, at)
            if tag == 0:
                break
            tags[tag] = value
        symtab, strtab = (self.offset_of(tags.get(t)) for t in (6, 5))
        if symtab is None and strtab is None and self.relocated_by and 5 in tags and 6 in tags:
            symtab, strtab = (self.offset_of(tags[t] - self.relocated_by) for t in (6, 5))
        strsz = tags.get(10)
        if symtab is None or strtab is None or not strsz:
            return None
        count = (strtab - symtab) // 24 if strtab > symtab else 0  # linkers put the strings right after the symbols
        return symtab, count, strtab, strsz

    def offset_of(self, vaddr):
        """The file offset behind a virtual address, None where the file has none."""
        for s in self.segments:
            if vaddr is not None and s.type == PT_LOAD and s.vaddr <= vaddr < s.vaddr + s.filesz:
                return s.offset + vaddr - s.vaddr
        return None

    def _lookup(self, table, raw):
        offset, count, str_offset, str_size = table
        # The string first (one fast search in the mapped file), then the symbol that points at it.
        wanted, at, end = [], str_offset, str_offset + str_size
        needle = raw + b"\0"
        while True:
            at = self.data.find(needle, at, end)
            if at < 0:
                break
            wanted.append(at - str_offset)
            at += 1
        for name_offset in wanted:
            pattern = struct.pack("<I", name_offset)
            pos = offset
            limit = offset + count * 24
            while True:
                pos = self.data.find(pattern, pos, limit)
                if pos < 0:
                    break
                if (pos - offset) % 24 == 0:
                    _, _, _, shndx, value, _ = struct.unpack_from("<IBBHQQ", self.data, pos)
                    if shndx != 0 and value:
                        return value
                pos += 1
        return None

    def symbols_named(self, words):
        """`[(name, value, size)]` of the defined functions whose names hold one of `words` (bytes), by address; a function that both
        symbol tables name once. Searched in the mapped file: seconds for gigabytes."""
        found = {}
        for offset, count, base, size in self._symbol_tables():
            end, spans = min(base + size, len(self.data)), []  # [(a name's first byte, where the word stands in it)]
            for word in words:
                at = self.data.find(word, base, end)
                while at >= 0:
                    stop = self.data.find(b"\0", at, end)
                    spans.append((self.data.rfind(b"\0", base, at) + 1 - base if at > base else 0, at - base))
                    at = self.data.find(word, stop, end) if stop >= 0 else -1
            if not spans:
                continue
            spans.sort()
            starts = [s for s, _ in spans]
            names = array.array("I")
            names.frombytes(self.data[offset : offset + 24 * min(count, (len(self.data) - offset) // 24)])
            for index, name in enumerate(names[0::6]):
                near = bisect.bisect_right(starts, name) - 1  # a linker may let a name be the tail of a longer one
                if near < 0 or name > spans[near][1]:
                    continue
                _, info, _, shndx, value, length = struct.unpack_from("<IBBHQQ", self.data, offset + 24 * index)
                if shndx and value and info & 15 in (0, 2, 10):
                    found[value, self.string(base + name)] = length
        return sorted(((name, value, length) for (value, name), length in found.items()), key=lambda f: f[1:])

    # ---- from an address to a function -------------------------------------------------------------------------
    def function_from(self, start):
        """The name of the symbol whose value is `start`, '' when there is none: exact, and fast in the largest files."""
        if start not in self._functions:
            name = self._named(start)
            if not name and self.debug_file is not None:
                name = self.debug_file._named(start)
            self._functions[start] = name
        return self._functions[start]

    @property
    def debug_file(self):
        """The file that distributions keep a stripped library's symbols in, by its build-id, as an `Elf`; None when it is not installed."""
        if not hasattr(self, "_debug_file"):
            self._debug_file, own = None, self.build_id
            path = f"/usr/lib/debug/.build-id/{own[:2]}/{own[2:]}.debug"
            if own and self.path != path and os.path.exists(path):
                try:
                    self._debug_file = open_elf(path)
                except NotFoundError:
                    pass
        return self._debug_file

    @property
    def has_static_symbols(self):
        """Whether names of static functions can be told."""
        return ".symtab" in self.sections or (self.debug_file is not None and ".symtab" in self.debug_file.sections)

    def _values(self):
        """`[(values of a symbol table as array('Q'), its file offset, strings' file offset)]`, .symtab first."""
        if not hasattr(self, "_value_arrays"):
            found = []
            for offset, count, str_offset, _ in reversed(self._symbol_tables()):
                words = array.array("Q")
                words.frombytes(self.data[offset : offset + 24 * count])
                found.append((words[1::3], offset, str_offset))
            self._value_arrays = found
        return self._value_arrays

    def _named(self, start):
        for values, offset, str_offset in self._values():
            best, index = "", -1
            while True:
                try:
                    index = (
                        values.index(start, index + 1)
                        if sys.version_info >= (3, 10)
                        else index + 1 + values[index + 1 :].index(start)
                    )
                except ValueError:
                    break
                name, info, _, shndx, _, _ = struct.unpack_from("<IBBHQQ", self.data, offset + 24 * index)
                if shndx and info & 15 in (0, 2, 10):  # untyped, function, ifunc
                    text = self.data[str_offset + name : self.data.find(b"\0", str_offset + name)].decode("utf-8", "replace")
                    if info & 15 != 0 or not best:
                        best = text
                    if info & 15 != 0 and info >> 4:  # a global function's name is the one people know
                        break
            if best:
                return best
        return ""

    def function_at(self, vaddr):
        """The function that an address lies in by the symbols' sizes, ''; for code without call-frame information."""
        return self.function_and_start(vaddr)[0]

    def function_and_start(self, vaddr):
        """(function that an address lies in by the symbols' sizes, the address it begins at), ('', 0) where there is none."""
        key = ("at", vaddr)
        if key not in self._functions:
            best = (0, "")
            for values, offset, str_offset in self._values():
                for index, value in enumerate(values):
                    if best[0] < value <= vaddr:
                        name, info, _, shndx, _, size = struct.unpack_from("<IBBHQQ", self.data, offset + 24 * index)
                        if shndx and info & 15 in (0, 2, 10) and (vaddr < value + size or not size and vaddr - value < 4096):
                            best = (value, self.string(str_offset + name))
            if not best[1] and self.debug_file is not None:
                self._functions[key] = self.debug_file.function_and_start(vaddr)
            else:
                self._functions[key] = best[1], best[0]
        return self._functions[key]

    # ---- notes ---------------------------------------------------------------------------------------------------
    def notes(self):
        """`(name, type, description bytes)` of every PT_NOTE segment; stops where the file is cut."""
        for s in self.segments:
            if s.type != PT_NOTE:
                continue
            at, end = s.offset, min(s.offset + s.filesz, len(self.data))
            while at + 12 <= end:
                namesz, descsz, kind = struct.unpack_from("<III", self.data, at)
                name = self.data[at + 12 : at + 12 + namesz].rstrip(b"\0")
                start = at + 12 + (namesz + 3 & ~3)
                if start + descsz > end:
                    break
                yield name, kind, self.data[start : start + descsz]
                at = start + (descsz + 3 & ~3)

    @property
    def build_id(self):
        """Hex build-id, or ''."""
        for name, kind, desc in self.notes():
            if name == b"GNU" and kind == NT_GNU_BUILD_ID:
                return desc.hex()
        return ""

    def mapped_files(self):
        """A core's NT_FILE: `[(start, end, offset in bytes, path)]`."""
        for name, kind, desc in self.notes():
            if kind == NT_FILE and name == b"CORE":
                count, page = struct.unpack_from("<QQ", desc, 0)
                count = min(count, (len(desc) - 16) // 24)
                names = desc[16 + 24 * count :].split(b"\0")
                found = []
                for i in range(count):
                    start, end, offset = struct.unpack_from("<QQQ", desc, 16 + 24 * i)
                    path = names[i].decode("utf-8", "surrogateescape") if i < len(names) else ""
                    found.append((start, end, offset * page, path))
                return found
        return []
