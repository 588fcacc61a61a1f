"""CoreFileTarget: an ELF core read without gdb, written by the kernel, gcore or our collector; and `write_core`, the writer.

A snapshot is a small, ordinary ELF core: gdb's `core-file` opens it. Beside the notes that every core has it carries one of
our own (name "GDBEXT", JSON) with what a core has no place for: the memory map's exact text, the whole command line, thread
names and states, the pause. Sources: System V ABI chapter 5, Linux fs/binfmt_elf.c, include/uapi/linux/elfcore.h.
"""

import bisect
import json
import os
import struct

from ..errors import FaultError, GdbextError, NotFoundError
from . import elf, ptrace
from .base import DELETED, PAGE, Mapping, Target, Thread
from .proc import parse_maps

NOTE, NOTE_TYPE, VERSION = b"GDBEXT", 1, 1
PR_PID, PR_REGISTERS = 32, 112  # offsets in elf_prstatus, the same on both architectures
PSINFO_SIZE, PSINFO_NAME, PSINFO_ARGS = 136, 40, 56
MACHINES = {"x86-64": elf.EM_X86_64, "aarch64": elf.EM_AARCH64}
MAX_SEGMENTS = 65000
MAX_PATH = 1 << 20
ZERO = b"\0" * PAGE


# ---- writing ---------------------------------------------------------------------------------------------------------
def write_core(path, arch, pid, threads, mappings, memory, auxv=b"", argv=(), note=None):
    """Writes a core. `threads`: `[(tid, raw NT_PRSTATUS registers)]`, the one to be selected first; `mappings`: `[Mapping]`;
    `memory`: `{page address: 4,096 bytes}`; `auxv`: the text of /proc/PID/auxv; `note`: a dict for JSON. Returns the size in
    bytes."""
    notes = [_prstatus(threads[0], pid)] if threads else []
    notes.append(_note(b"CORE", elf.NT_PRPSINFO, _psinfo(pid, argv)))
    if auxv:
        notes.append(_note(b"CORE", elf.NT_AUXV, auxv))
    notes.append(_note(b"CORE", elf.NT_FILE, _file_note(mappings)))
    notes += [_prstatus(t, pid) for t in threads[1:]]
    text = json.dumps({"version": VERSION, **(note or {})}, ensure_ascii=True).encode()
    notes.append(_note(NOTE, NOTE_TYPE, text))
    notes = b"".join(notes)
    pieces = list(_pieces(mappings, memory))
    if len(pieces) > MAX_SEGMENTS:
        raise GdbextError(f"process {pid}: its memory is in {len(pieces)} pieces, a core's header holds {MAX_SEGMENTS}")
    head = 64 + 56 * (1 + len(pieces))
    at = head + len(notes) + PAGE - 1 & -PAGE
    segments = [struct.pack("<IIQQQQQQ", elf.PT_NOTE, 0, head, 0, 0, len(notes), 0, 4)]
    for start, end, perms, data in pieces:
        flags = 4 * ("r" in perms) | 2 * ("w" in perms) | ("x" in perms)
        size = end - start if data else 0
        segments.append(struct.pack("<IIQQQQQQ", elf.PT_LOAD, flags, at, start, 0, size, end - start, PAGE))
        at += size
    with open(path, "wb") as f:
        f.write(b"\x7fELF\x02\x01\x01" + b"\0" * 9)
        f.write(struct.pack("<HHIQQQIHHHHHH", elf.ET_CORE, MACHINES[arch], 1, 0, 64, 0, 0, 64, 56, len(segments), 0, 0, 0))
        f.write(b"".join(segments) + notes)
        f.write(b"\0" * (-f.tell() % PAGE))
        for _, _, _, data in pieces:
            for page in data:
                if page == ZERO:
                    f.seek(PAGE, os.SEEK_CUR)  # a hole: reads as zeros, takes no disk
                else:
                    f.write(page)
        f.truncate()
        return f.tell()


def _pieces(mappings, memory):
    """(start, end, perms, [pages] or []) by address: runs of copied pages, and between them what was not copied."""
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


def _note(name, kind, data):
    name += b"\0"
    return struct.pack("<III", len(name), len(data), kind) + name + b"\0" * (-len(name) % 4) + data + b"\0" * (-len(data) % 4)


def _prstatus(thread, pid):
    tid, registers = thread
    head = struct.pack("<3i h 2x QQ 4i", 0, 0, 0, 0, 0, 0, tid, 0, pid, 0).ljust(PR_REGISTERS, b"\0")
    return _note(b"CORE", elf.NT_PRSTATUS, head + registers + b"\0" * 8)


def _psinfo(pid, argv):
    args = " ".join(argv).encode("utf-8", "surrogateescape")[:79]
    name = (argv[0].rpartition("/")[2] if argv else "").encode("utf-8", "surrogateescape")[:15]
    head = struct.pack("<4c4xQ6i", b"\0", b"R", b"\0", b"\0", 0, 0, 0, pid, 0, 0, 0)
    return head.ljust(PSINFO_NAME, b"\0") + name.ljust(16, b"\0") + args.ljust(80, b"\0")


def _file_note(mappings):
    files = [m for m in mappings if m.path.startswith("/")]
    head = struct.pack("<QQ", len(files), PAGE)
    return (
        head
        + b"".join(struct.pack("<QQQ", m.start, m.end, m.offset // PAGE) for m in files)
        + b"".join(m.path.encode("utf-8", "surrogateescape") + b"\0" for m in files)
    )


# ---- reading ---------------------------------------------------------------------------------------------------------
class CoreFileTarget(Target):
    """A core as a Target. Read-only memory of mapped files that the core leaves out comes from those files, as gdb does it.

    `kind` is "snapshot" for one that our collector wrote, else "core". `NotFoundError` for a file that is no core."""

    kind = "core"

    def __init__(self, path, label=""):
        super().__init__()
        self.file = elf.open_elf(path)
        if self.file.type != elf.ET_CORE:
            raise NotFoundError(f"{path}: an ELF file, but not a core")
        self.path, self.arch = path, self.file.arch
        self._bytes = open(
            path, "rb", buffering=0
        )  # memory is read, not mapped: each page looked at would bring its neighbours along
        self._loads = sorted((s for s in self.file.segments if s.type == elf.PT_LOAD and s.memsz), key=lambda s: s.vaddr)
        self._starts = [s.vaddr for s in self._loads]
        self.truncated = any(s.offset + s.filesz > len(self.file.data) for s in self.file.segments)
        self._status, self._psinfo, self._auxv, self.note = [], b"", b"", {}
        for name, kind, data in self.file.notes():
            if name == NOTE and kind == NOTE_TYPE:
                self.note = self._own_note(data)
            elif name != b"CORE":
                continue
            elif kind == elf.NT_PRSTATUS and len(data) >= PR_REGISTERS:
                self._status.append(data)
            elif kind == elf.NT_PRPSINFO and len(data) >= PSINFO_SIZE:
                self._psinfo = data
            elif kind == elf.NT_AUXV:
                self._auxv = data
        if not self._status and not self._loads:
            why = ": the file is cut short" if self.truncated else ""
            raise NotFoundError(f"{path}: a core without threads and memory{why}")
        told = struct.unpack_from("<i", self._psinfo, 24)[0] if self._psinfo else None
        self.pid = self.note.get("pid") or told or self._first_tid()
        self.kind = "snapshot" if self.note else "core"
        self.label = label or str(self.note.get("label", ""))

    def _own_note(self, data):
        try:
            note = json.loads(data)
        except ValueError:
            raise GdbextError(f"{self.path}: its GDBEXT note is damaged") from None
        if not isinstance(note, dict) or not isinstance(note.get("version"), int):
            raise GdbextError(f"{self.path}: its GDBEXT note is damaged")
        if note["version"] > VERSION:
            newer = f"snapshot version {note['version']}, this one knows {VERSION}"
            raise GdbextError(f"{self.path}: written by a newer gdbext ({newer})")
        return note

    def _first_tid(self):
        return struct.unpack_from("<i", self._status[0], PR_PID)[0] if self._status else None

    def describe(self):
        return f"{self.kind} {self.path}"

    # ---- memory --------------------------------------------------------------------------------------------------
    def _read(self, address, size):
        parts, at, left = [], address, size
        while left:
            data = self._piece(at, left, address, size)
            parts.append(data)
            at, left = at + len(data), left - len(data)
        return b"".join(parts)

    def _piece(self, at, left, address, size):
        """1 to `left` bytes at `at`; `address` and `size` are for the error."""
        i = bisect.bisect_right(self._starts, at) - 1
        s = self._loads[i] if i >= 0 else None
        if s is None or at >= s.vaddr + s.memsz:  # gdb's gcore gives files that were not written to no segment at all
            following = self._starts[i + 1] if i + 1 < len(self._starts) else 1 << 64
            return self._from_file(at, min(left, following - at), address, size)
        inside = at - s.vaddr
        if inside < s.filesz:
            start = s.offset + inside
            data = os.pread(self._bytes.fileno(), min(left, s.filesz - inside), start) if start < len(self.file.data) else b""
            if not data:
                raise FaultError(address, size, f"the core {self.path} is cut short")
            return data
        if s.flags & 2:
            raise FaultError(address, size, f"not in the {self.kind}")
        return self._from_file(at, min(left, s.memsz - inside), address, size)

    def _from_file(self, at, left, address, size):
        m = self.mapping_at(at)
        if m is None:
            raise FaultError(address, size, "the core is cut short" if self.truncated and not self._loads else "not mapped")
        if not m.path.startswith("/"):
            raise FaultError(address, size, f"not in the {self.kind}")
        path = self.local_file(m.path)
        if not self._same_file(path, m):
            raise FaultError(address, size, f"not in the {self.kind}, and {path} is not the file that was mapped")
        left = min(left, m.end - at)
        try:
            with open(path, "rb") as f:
                f.seek(m.offset + at - m.start)
                data = f.read(left)
        except OSError as e:
            raise FaultError(address, size, f"not in the {self.kind}, and {path}: {e.strerror}") from None
        return data.ljust(left, b"\0") if data else self._beyond(path, address, size)

    def _beyond(self, path, address, size):
        raise FaultError(address, size, f"beyond the end of {path}")

    def _same_file(self, path, m):
        """False where the core holds the head of the mapped file and the file here begins otherwise."""

        def compare():
            first = next((x for x in self.mappings() if x.path == m.path and x.offset == 0), None)
            i = bisect.bisect_right(self._starts, first.start) - 1 if first else -1
            s = self._loads[i] if i >= 0 else None
            if s is None or s.filesz < PAGE or s.vaddr != first.start:
                return not m.path.endswith(DELETED)
            head = self.file.data[s.offset : s.offset + PAGE]
            try:
                with open(path, "rb") as f:
                    return f.read(len(head)) == head[: len(head)] if len(head) == PAGE else True
            except OSError:
                return True  # the reader's own error says it better

        return self.cached(("same file", m.path), compare)

    # ---- what is mapped ------------------------------------------------------------------------------------------
    def _mappings(self):
        maps = self.note.get("maps")
        if isinstance(maps, str):
            try:
                return parse_maps(maps)
            except ValueError:
                raise GdbextError(f"{self.path}: its GDBEXT note is damaged") from None
        files = sorted(self.file.mapped_files())
        starts = [f[0] for f in files]
        found = []
        for s in self._loads:
            i = bisect.bisect_right(starts, s.vaddr) - 1
            path, offset = "", 0
            if i >= 0 and files[i][0] <= s.vaddr < files[i][1]:
                path, offset = files[i][3], files[i][2] + s.vaddr - files[i][0]
            perms = "".join(c if s.flags & bit else "-" for c, bit in (("r", 4), ("w", 2), ("x", 1))) + "p"
            found.append(Mapping(s.vaddr, s.vaddr + s.memsz, perms, offset, path))
        for start, end, offset, path in files:  # what no segment covers was not written to: gdb's gcore leaves it out
            at = start
            for s in self._loads[max(0, bisect.bisect_right(self._starts, start) - 1) :] + [None]:
                stop = min(end, s.vaddr) if s else end
                if at < stop:
                    found.append(Mapping(at, stop, "r--p", offset + at - start, path))
                if s is None or s.vaddr >= end:
                    break
                at = max(at, s.vaddr + s.memsz)
        return found

    # ---- threads -------------------------------------------------------------------------------------------------
    def _threads(self):
        known = self.note.get("threads")
        known = known if isinstance(known, dict) else {}
        found = []
        for data in self._status:
            tid = struct.unpack_from("<i", data, PR_PID)[0]
            told = known.get(str(tid))
            told = told if isinstance(told, dict) else {}
            name = str(told.get("name", "")) or (self._command_name() if tid == self.pid else "")
            thread = Thread(tid, name, str(told.get("state", "")), ptrace.decode_registers(data[PR_REGISTERS:], self.arch))
            if isinstance(told.get("ns_tid"), int):
                thread.ns_tid = told["ns_tid"]
            if thread.registers:
                m = self.mapping_at(thread.registers[ptrace.STACK_POINTER[self.arch]])
                thread.stack = (m.start, m.end) if m else None
            found.append(thread)
        return found

    def _command_name(self):
        return self._psinfo[PSINFO_NAME : PSINFO_NAME + 16].split(b"\0")[0].decode("utf-8", "replace")

    # ---- command line --------------------------------------------------------------------------------------------
    def argv(self):
        """The whole command line where the note or the stack has it, else the 79 characters of the core's header."""
        told = self.note.get("argv")
        if isinstance(told, list):
            return [str(a) for a in told]
        try:
            return self._vectors()[0]
        except GdbextError:
            return self._psinfo[PSINFO_ARGS:PSINFO_SIZE].split(b"\0")[0].decode("utf-8", "surrogateescape").split()

    def environ(self):
        if self.note and not self.note.get("heap"):
            raise GdbextError(f"{self.describe()}: a snapshot leaves the environment out: it may hold secrets")
        return dict(pair.partition("=")[::2] for pair in self._vectors()[1] if "=" in pair)

    def _vectors(self):
        """(argv, environ) from the top of the main stack: argc, argv, 0, envp, 0, auxv (System V ABI, initial process stack)."""
        stack = next((m for m in self.mappings() if m.path == "[stack]"), None)
        if stack is None and self._auxv:
            pointers = dict(struct.iter_unpack("<QQ", self._auxv[: len(self._auxv) // 16 * 16]))
            stack = self.mapping_at(pointers.get(31, 0))  # AT_EXECFN: a string at the top of the stack
        if stack is None or not self._auxv:
            raise GdbextError(f"{self.describe()}: its command line is not in it")
        pieces, low = [], stack.end  # its top: the pages below may never have been used, and are then not in the file
        while low > max(stack.start, stack.end - (4 << 20)):
            page = self.read_partial(low - PAGE, PAGE)
            if len(page) < PAGE:
                break
            low -= PAGE
            pieces.append(page)
        data = b"".join(reversed(pieces))
        at = data.rfind(self._auxv[:48])
        if at < 0 or at % 8:
            raise GdbextError(f"{self.describe()}: its command line is not in it")
        words = memoryview(data[:at]).cast("Q")
        end = len(words) - 1  # the 0 behind envp
        begin = end
        while begin > 0 and words[begin - 1]:
            begin -= 1
        first = begin - 1
        while first > 0 and words[first - 1] != begin - 1 - first:
            first -= 1

        def texts(pointers):
            return [self.cstring(p, MAX_PATH).decode("utf-8", "surrogateescape") for p in pointers]

        return texts(words[first : begin - 1]), texts(words[begin:end])
