"""CoreFileTarget: an ELF core read without gdb, written by the kernel, gcore or our collector (core_writer.py).

Sources: System V ABI chapter 5, Linux fs/binfmt_elf.c, include/uapi/linux/elfcore.h.
"""

from __future__ import annotations

import bisect
import os
import signal
import struct
from typing import Any, Iterable, NamedTuple, cast

from .. import log
from ..errors import FaultError, GdbextError, NotFoundError
from . import elf, files, identity, loaded, ptrace, readers
from .base import MAX_READ, Target
from .core_writer import (
    KEPT,
    KEPT_TYPE,
    NOTE,
    NOTE_TYPE,
    PR_PID,
    PR_REGISTERS,
    PSINFO_ARGS,
    PSINFO_NAME,
    PSINFO_PPID,
    PSINFO_SIZE,
    VERSION,
)
from .model import DELETED, GRAIN, PAGE, Mapping, Thread
from .proc import boot_id, process_root
from .procfs import parse_maps
from .room import text_size

PAC_MASK = struct.Struct("<QQ")  # of pointers to data, of those to code: struct user_pac_mask
MAX_PATH = 1 << 20
YEAR_9999 = 253_370_764_800  # seconds after the epoch; later ones have no date
MAX_STACK_TOP = 4 << 20
SYSROOT = "GDBEXT_SYSROOT"  # of the environment: the folder of files of another machine or container, as gdb's `set sysroot`
SIGINFO_SIZE = 24  # of the 128 bytes: number, errno, code, then the sender's pid and user, or the address
ADDRESSED = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
FATAL = (*ADDRESSED, signal.SIGABRT, signal.SIGSYS)
DUMPING = (*FATAL, signal.SIGQUIT, signal.SIGXCPU, signal.SIGXFSZ)  # signal(7), without SIGTRAP, which gdb's gcore notes too
PTHREAD_TID, MOST_PIDS = 720, 1 << 22  # of glibc's struct pthread on x86-64; PID_MAX_LIMIT of linux/threads.h
LEFT_OUT = "left out of the bundle, which holds what stacks, waits, requests and the KV cache need: llm-snapshot -heap has more"
APART = 1.0  # seconds between two cores that are not of one moment
OUTSIDE, SCHED_YIELD = (1 << 64) - 1, 24  # orig_rax outside of a system call; a call that blocks nobody
OVERFLOW, NEAR = ", just below its stack: an overflow", 1 << 18  # bytes between the stack pointer, its stack's end, an access
SI_KERNEL = 0x80  # where the kernel gives no address


class Death(NamedTuple):
    """The end of a process. `tid`: the thread that the signal reached. `address`: of an access that failed, with `overflow` just
    below the thread's stack, at whose end it was. `sender`, `user`: pid
    and user of the process that sent the signal, None where the kernel did. `own`: the process sent it to itself, as abort()
    does."""

    tid: int
    signal: str
    address: int | None
    sender: int | None = None
    user: int | None = None
    own: bool = False
    overflow: bool = False

    @property
    def text(self) -> str:
        """`SIGSEGV at address 0x10`; `SIGABRT, sent by process 812 (user 0)`"""
        if self.address is not None:
            return f"{self.signal} at address {self.address:#x}" + OVERFLOW * self.overflow
        if self.own:
            return f"{self.signal}, sent by itself"
        return self.signal + (f", sent by process {self.sender} (user {self.user})" if self.sender is not None else "")


def _living(told: Any) -> int | None:
    """The pid in an entry {pid, start, boot} of a note, if that very process lives."""
    if not isinstance(told, dict) or told.get("boot") != boot_id():
        return None
    pid, start = told.get("pid"), told.get("start")
    return pid if isinstance(pid, int) and isinstance(start, int) and ptrace.start_time(pid) == start else None


def is_snapshot(path: str) -> bool:
    """Whether a file is a snapshot that our collector wrote, whole."""
    try:
        return CoreFileTarget(path).kind == "snapshot"
    except GdbextError as e:
        log.passed_over(e)
        return False


def _state(registers: dict[str, int] | None) -> str:
    """The letter of proc(5) by a core's registers: S in a system call, R outside one or in one that gives the CPU away; '' where
    they do not tell. The kernel keeps a system call's number in orig_rax, -1 outside of one (ptrace(2))."""
    number = (registers or {}).get("orig_rax")
    if number is None:
        return ""
    return "R" if number in (OUTSIDE, SCHED_YIELD) else "S"


def apart(targets: Iterable[Target]) -> list[str]:
    """Where cores are of different moments, a line on how far apart, for `partial`; else []."""
    moments = [one.moment for one in targets if isinstance(one, CoreFileTarget)]
    seconds = max(moments, default=0.0) - min(moments, default=0.0)
    return [f"the files were taken {seconds:.0f} s apart: what one shows may have changed before the next"] * (seconds >= APART)


class CoreFileTarget(Target):
    """A core as a Target. Read-only memory of mapped files that the core leaves out comes from those files, as in gdb.

    `kind` is "snapshot" for a core that our collector wrote, else "core". `NotFoundError` for a file that is no core.
    `unpacked`: the core, where `path` is a place in an archive; `archive`: that archive, open, with a `fileno()`."""

    kind = "core"

    def __init__(self, path: str, label: str = "", unpacked: Any = None, archive: Any = None) -> None:
        super().__init__()
        self.file = elf.open_elf(path) if unpacked is None else elf.Elf(path, files.FileBytes(path, unpacked))
        if self.file.type != elf.ET_CORE:
            raise NotFoundError(f"{path}: an ELF file, but not a core")
        self.path, self.arch = path, self.file.arch
        # memory is read, not mapped: each page would bring its neighbours along
        self._descriptor = cast(files.FileBytes, self.file.data).fileno()
        self.archive = archive  # it stays open for as long as this is read
        self._written = self._descriptor if archive is None else archive.fileno()  # the file whose owner wrote it
        self._loads = sorted((s for s in self.file.segments if s.type == elf.PT_LOAD and s.memsz), key=lambda s: s.vaddr)
        self._starts = [s.vaddr for s in self._loads]
        self.cut_short = any(s.offset + s.filesz > len(self.file.data) for s in self.file.segments)
        self._status: list[bytes] = []
        self._psinfo = self._auxv = self._siginfo = b""
        self.note: dict[str, Any] = {}
        self._kept: dict[int, int] = {}  # pages of which only a part is in the file, and which: `ReadLog.marks`
        for name, kind, data in self.file.notes():
            self._take_note(name, kind, data)
        if not self._status and not self._loads:
            why = ": the file is cut short" if self.cut_short else ""
            raise NotFoundError(f"{path}: a core without threads and memory{why}")
        stated = struct.unpack_from("<i", self._psinfo, 24)[0] if self._psinfo else None
        noted = self.note.get("pid")
        self.pid = (noted if isinstance(noted, int) else None) or stated or self._first_tid()
        self.kind = "snapshot" if self.note else "core"
        self.label = label or str(self.note.get("label", ""))

    @property
    def moment(self) -> float:
        """When it was taken, in seconds after the epoch: of a snapshot by its note, of a core when its file was last written."""
        noted = self.note.get("time")
        return noted if isinstance(noted, float) and 0 < noted < YEAR_9999 else os.stat(self._written).st_mtime

    @property
    def lacks(self) -> list[str]:
        """What a snapshot left out, by its note; [] of a core."""
        told, size = self.note.get("partial"), self.note.get("left_out")
        found = [str(one) for one in told] if isinstance(told, list) else []
        return found + ([f"{text_size(size)} of private memory were left out"] if isinstance(size, int) and size > 0 else [])

    def now(self) -> float | None:
        """The time of its copy; None for a core that is no snapshot."""
        return self.moment if isinstance(self.note.get("time"), float) else None

    def kin(self, family: str) -> tuple[Any, Any]:
        """(who it was, who its parent was), equal only for the same process; None for what is not known. `family`: what only the
        processes of one family have, for a core of the kernel or of gcore, whose pids may be another machine's too."""
        if self.note:
            found = [self.note.get("process"), self.note.get("parent")]
            who = [tuple(sorted(one.items())) if isinstance(one, dict) and one.get("start") else None for one in found]
            return who[0], who[1]
        parent = struct.unpack_from("<i", self._psinfo, PSINFO_PPID)[0] if self._psinfo else 0
        return ((family, self.pid), (family, parent)) if family and parent else (None, None)

    def _take_note(self, name: bytes, kind: int, data: bytes) -> None:
        if name == NOTE and kind == NOTE_TYPE:
            self.note = self._own_note(data)
        elif name == NOTE and kind == KEPT_TYPE:
            pages = KEPT.iter_unpack(data[: len(data) // KEPT.size * KEPT.size])
            self._kept = {page: int.from_bytes(marks, "little") for page, marks in pages}
        elif name == b"LINUX" and kind == elf.NT_ARM_PAC_MASK and len(data) >= PAC_MASK.size:
            self.signature = PAC_MASK.unpack_from(data)[1]
        elif name != b"CORE":
            return
        elif kind == elf.NT_PRSTATUS and len(data) >= PR_REGISTERS:
            self._status.append(data)
        elif kind == elf.NT_SIGINFO and len(data) >= SIGINFO_SIZE and not self._siginfo:
            self._siginfo = data  # of the first thread, which is the one that died
        elif kind == elf.NT_PRPSINFO and len(data) >= PSINFO_SIZE:
            self._psinfo = data
        elif kind == elf.NT_AUXV:
            self._auxv = data

    def _own_note(self, data: bytes) -> dict[str, Any]:
        try:
            note = files.json_of(data, self.path)
        except ValueError:
            note = None
        if not isinstance(note, dict) or not isinstance(note.get("version"), int):
            raise GdbextError(f"{self.path}: its GDBEXT note is damaged")
        if note["version"] > VERSION:
            newer = f"snapshot version {note['version']}, this one knows {VERSION}"
            raise GdbextError(f"{self.path}: written by a newer gdbext ({newer})")
        return note

    def _first_tid(self) -> int | None:
        return struct.unpack_from("<i", self._status[0], PR_PID)[0] if self._status else None

    def death(self) -> Death | None:
        """The signal by which the kernel ended the process and wrote this core; None for a core of a process that lived on.
        Source: Linux, include/uapi/asm-generic/siginfo.h; fs/binfmt_elf.c: the thread that died is the first one."""
        if not self._siginfo or not self._status or self.note:
            return None
        number, _, code, _, sender, user = struct.unpack_from("<6i", self._siginfo)
        if number not in DUMPING:
            return None
        tid, name, (address,) = self._first_tid() or 0, signal.Signals(number).name, struct.unpack_from("<Q", self._siginfo, 16)
        if code > 0:
            known = number in ADDRESSED and code != SI_KERNEL
            return Death(tid, name, address if known else None, overflow=known and self._below_stack(tid, address))
        return Death(tid, name, None, sender, user, number in FATAL and sender in (self.pid, tid))

    def fatal_signal(self) -> tuple[int, str] | None:
        """(tid, what in words) of the thread whose own error ended the process; None for a core that was requested, by gcore or a
        signal."""
        death = self.death()
        if death is None or death.signal not in (number.name for number in FATAL) or death.sender is not None and not death.own:
            return None
        return death.tid, death.text if death.address is not None else death.signal

    def _below_stack(self, tid: int, address: int) -> bool:
        """Whether an address lies just below the stack of a thread that has come to its end: the stack pointer is there too, and
        nothing can be read or written at the address."""
        registers = next((th.registers for th in self.threads() if th.tid == tid), None) or {}
        pointer, at = registers.get(ptrace.STACK_POINTER[self.arch], 0), self.mapping_at(address)
        low = min((m.start for m in self.mappings() if m.start > address and "w" in m.perms), default=0)
        near = address < low <= address + NEAR and abs(pointer - address) <= NEAR and pointer <= low + NEAR
        return near and (at is None or not set(at.perms) & set("rw"))

    def describe(self) -> str:
        """Its name in messages: its kind and file, which may have no name."""
        return f"{self.kind} {self.path}" if self.has_name else f"{self.kind} of process {self.pid}"

    @property
    def has_name(self) -> bool:
        """Whether it is a file that can be opened later, and no copy for one answer."""
        return not self.path.startswith("/proc/self/fd/")

    def root(self) -> str:
        """$GDBEXT_SYSROOT, else the root folder of the process that a snapshot was taken of, as long as that process lives on
        this machine.

        The file only says which process it was; the folder's name is made here. '' for a process that lived in our own root, and
        for a core."""
        if os.environ.get(SYSROOT, "").strip("/"):
            return os.environ[SYSROOT].rstrip("/")
        pid = _living(self.note.get("root"))
        return process_root(pid) if pid is not None else ""

    def living(self) -> int | None:
        """The process that a snapshot was taken of, as long as it lives on this machine."""
        return _living(self.note.get("process"))

    def process(self) -> tuple[Any, ...]:
        """What only the process of a snapshot has, (boot, pid, start); () where its note does not say."""
        told = self.note.get("process")
        found = tuple(told.get(name) for name in ("boot", "pid", "start")) if isinstance(told, dict) else ()
        return found if list(map(type, found)) == [str, int, int] else ()

    def user(self) -> readers.User | None:
        """For a snapshot that we or root have written: the user of the process. Otherwise the file's owner."""
        owner, noted = readers.of_owner(self._written), self.note.get("user")
        if owner.uid in (0, os.geteuid()) and isinstance(noted, list) and len(noted) == 2:
            uid, groups = noted
            if isinstance(uid, int) and isinstance(groups, list) and all(isinstance(group, int) for group in groups):
                return readers.User(uid, frozenset(groups))
        return owner

    def cwd(self) -> str:
        """The folder in a snapshot's note; '' for a core."""
        return str(self.note.get("cwd") or "")

    # ---- memory --------------------------------------------------------------------------------------------------
    def read(self, address: int, size: int) -> bytes:
        """As `Target.read`."""
        if self._kept:
            self._refuse_left_out(address, size)
        return super().read(address, size)

    def u64(self, address: int) -> int:
        """As `Target.u64`."""
        if self._kept:
            self._refuse_left_out(address, 8)
        return super().u64(address)

    def cstring(self, address: int, limit: int = 4096) -> bytes:
        """As `Target.cstring`, which reads more than it gives."""
        if not self._kept:
            return super().cstring(address, limit)
        parts: list[bytes] = []
        while limit > 0 and (not parts or b"\0" not in parts[-1]):
            step = min(limit, GRAIN - address % GRAIN)
            parts.append(self.read(address, step))
            address, limit = address + step, limit - step
        return b"".join(parts).partition(b"\0")[0]

    def _refuse_left_out(self, address: int, size: int) -> None:
        """`FaultError` where a part of a range was left out of a page that is in the file."""
        at, end = address, address + size
        while at < end and size <= MAX_READ:
            page = at & -PAGE
            marks = self._kept.get(page)
            if marks is not None:
                first, last = (at - page) // GRAIN, (min(end, page + PAGE) - 1 - page) // GRAIN
                wanted = (2 << last - first) - 1
                if marks >> first & wanted != wanted:
                    raise FaultError(address, size, LEFT_OUT)
            at = page + PAGE

    def _read(self, address: int, size: int) -> bytes:
        parts, at, left = [], address, size
        while left:
            data = self._piece(at, left, address, size)
            parts.append(data)
            at, left = at + len(data), left - len(data)
        return b"".join(parts)

    def read_into(self, address: int, view: memoryview) -> None:
        """As `Target.read_into`; what lies in one segment is copied once."""
        s, size = self._segment_at(address), len(view)
        self._refuse_left_out(address, size)
        if s is None or address + size > s.vaddr + s.filesz:
            super().read_into(address, view)
        elif os.preadv(self._descriptor, [view], s.offset + address - s.vaddr) < size:
            raise FaultError(address, size, f"the core {self.path} is cut short")

    def read_own(self, address: int, size: int) -> bytes:
        """As `read`, but nothing of the files that were mapped."""
        s = self._segment_at(address)
        if s is None or address + size > s.vaddr + s.filesz:
            raise FaultError(address, size, self._absent(address))
        self._refuse_left_out(address, size)
        return self._read(address, size)

    def populated(self, start: int, end: int) -> list[tuple[int, int]]:
        """Without the parts of writable segments that the file leaves out."""
        found, at = [], start
        for s in self._loads[max(0, bisect.bisect_right(self._starts, start) - 1) :]:
            if s.vaddr >= end:
                break
            low, high = max(at, s.vaddr + s.filesz), min(end, s.vaddr + s.memsz)
            if s.flags & 2 and low < high:
                if at < low:
                    found.append((at, low))
                at = high
        return [*found, (at, end)] if at < end else found

    def _absent(self, address: int) -> str:
        """Why memory that the process could write to is not in the file."""
        if not self.note.get("left_out"):
            return f"not in the {self.kind}"
        m = self.mapping_at(address)
        return f"left out of the snapshot: take it with {'-all' if m is not None and 's' in m.perms else '-heap'}"

    def _segment_at(self, address: int) -> elf.Segment | None:
        i = bisect.bisect_right(self._starts, address) - 1
        s = self._loads[i] if i >= 0 else None
        return s if s is not None and address < s.vaddr + s.memsz else None

    def _piece(self, at: int, left: int, address: int, size: int) -> bytes:
        """1 to `left` bytes at `at`; `address` and `size` are for the error."""
        s = self._segment_at(at)
        if s is None:  # gdb's gcore gives files that were not written to no segment at all
            i = bisect.bisect_right(self._starts, at)
            following = self._starts[i] if i < len(self._starts) else 1 << 64
            return self._from_file(at, min(left, following - at), address, size)
        inside = at - s.vaddr
        if inside < s.filesz:
            start = s.offset + inside
            data = os.pread(self._descriptor, min(left, s.filesz - inside), start) if start < len(self.file.data) else b""
            if not data:
                raise FaultError(address, size, f"the core {self.path} is cut short")
            return data
        if s.flags & 2:
            raise FaultError(address, size, self._absent(at))
        return self._from_file(at, min(left, s.memsz - inside), address, size)

    def _from_file(self, at: int, left: int, address: int, size: int) -> bytes:
        m = self.mapping_at(at)
        if m is None:
            raise FaultError(address, size, "the core is cut short" if self.cut_short and not self._loads else "not mapped")
        if not m.path.startswith("/"):
            raise FaultError(address, size, self._absent(at))
        path = self.local_file(m.path)
        left = min(left, m.end - at)
        try:
            if not self._same_file(path, m):
                raise FaultError(address, size, f"not in the {self.kind}, and {path} is not the file that was mapped")
            with readers.open_for(self.user(), path) as f:
                f.seek(m.offset + at - m.start)
                data = f.read(left)
        except NotFoundError as e:
            raise FaultError(address, size, f"not in the {self.kind}, and {e}") from None
        except OSError as e:
            raise FaultError(address, size, f"not in the {self.kind}, and {path}: {e.strerror}") from None
        if not data:
            raise FaultError(address, size, f"beyond the end of {path}")
        return data.ljust(left, b"\0")

    def _same_file(self, path: str, m: Mapping) -> bool:
        """Whether the file here is the one that was mapped, by the parts of it that the core holds. A plain core without any of
        it is believed."""
        return self.cached(("same file", m.path), lambda: self._compare(path, m))

    def _compare(self, path: str, m: Mapping) -> bool:
        first = next((x for x in self.mappings() if x.path == m.path and x.offset == 0), None)
        with files.open_regular(path) as f:
            start = f.read(PAGE)
            here = os.fstat(f.fileno())
        if start[:4] == b"\x7fELF" and first is not None:
            verdict = identity.compare(elf.open_elf(path), self, first.start)[0]
            if verdict != identity.UNKNOWN:
                return verdict == identity.SAME
        elif first is not None:
            try:
                return self.read_own(first.start, PAGE)[: len(start)] == start
            except FaultError as e:
                log.passed_over(e)
        if m.inode:  # only a snapshot has it
            return m.inode == here.st_ino and m.device == f"{os.major(here.st_dev):02x}:{os.minor(here.st_dev):02x}"
        return not m.path.endswith(DELETED)

    # ---- mappings ------------------------------------------------------------------------------------------------
    def _mappings(self) -> list[Mapping]:
        maps = self.note.get("maps")
        if isinstance(maps, str):
            try:
                return parse_maps(maps)
            except ValueError:
                raise GdbextError(f"{self.path}: its GDBEXT note is damaged") from None
        mapped = sorted(self.file.mapped_files() or loaded.mapped_files(self, self._auxv))
        starts = [f[0] for f in mapped]
        found = []
        for s in self._loads:
            i = bisect.bisect_right(starts, s.vaddr) - 1
            path, offset = "", 0
            if i >= 0 and mapped[i][0] <= s.vaddr < mapped[i][1]:
                path, offset = mapped[i][3], mapped[i][2] + s.vaddr - mapped[i][0]
            perms = "".join(c if s.flags & bit else "-" for c, bit in (("r", 4), ("w", 2), ("x", 1))) + "p"
            found.append(Mapping(s.vaddr, s.vaddr + s.memsz, perms, offset, path))
        for start, end, offset, path in mapped:
            found += self._uncovered(start, end, offset, path)
        return found

    def _uncovered(self, start: int, end: int, offset: int, path: str) -> list[Mapping]:
        """Memory of a mapped file that no segment covers. It was not written to: gdb's gcore leaves it out."""
        found, at = [], start
        for s in [*self._loads[max(0, bisect.bisect_right(self._starts, start) - 1) :], None]:
            stop = min(end, s.vaddr) if s else end
            if at < stop:
                found.append(Mapping(at, stop, "r--p", offset + at - start, path))
            if s is None or s.vaddr >= end:
                break
            at = max(at, s.vaddr + s.memsz)
        return found

    # ---- threads -------------------------------------------------------------------------------------------------
    def _threads(self) -> list[Thread]:
        known = self.note.get("threads")
        known = known if isinstance(known, dict) else {}
        found = []
        for data in self._status:
            tid = struct.unpack_from("<i", data, PR_PID)[0]
            told = known.get(str(tid))
            told = told if isinstance(told, dict) else {}
            name = str(told.get("name", "")) or (self._command_name() if tid == self.pid else "")
            raw = data[PR_REGISTERS:]  # all 0: of a thread that ran, and could not be stopped
            registers = ptrace.decode_registers(raw, self.arch) if any(raw) else None
            thread = Thread(tid, name, str(told.get("state", "")) or _state(registers), registers)
            if isinstance(told.get("ns_tid"), int):
                thread.ns_tid = told["ns_tid"]
            if isinstance(told.get("cpu"), (int, float)):
                thread.cpu = float(told["cpu"])
            if thread.registers:
                m = self.mapping_at(thread.registers[ptrace.STACK_POINTER[self.arch]])
                thread.stack = (m.start, m.end) if m else None
            found.append(thread)
        if not self.note:
            self._note_own_tids(sorted(found, key=lambda thread: thread.tid != self.pid))
        return found

    def registers(self, thread: Thread) -> dict[str, int]:
        """As `Target.registers`. A thread that ran, and could not be stopped, has none in a snapshot."""
        if thread.registers is None:
            raise GdbextError("no native frames: it ran on while it was copied")
        return thread.registers

    def _note_own_tids(self, found: list[Thread]) -> None:
        """Notes what the threads call themselves in a core that gdb wrote from outside of their pid namespace: glibc's struct
        pthread has each thread's tid, at %fs + 720 on x86-64."""
        for thread in found if self.arch == "x86-64" else ():
            with log.passing_over(GdbextError, KeyError, TypeError):
                own = self.u32(cast("dict[str, int]", thread.registers)["fs_base"] + PTHREAD_TID)
                if thread.tid == self.pid and (own == thread.tid or not 0 < own < MOST_PIDS):
                    return  # they count as the core does, or this is no glibc
                thread.ns_tid = own

    def pid_here(self, number: int) -> int:
        """As `Target.pid_here`, when the file was written: a snapshot has the numbers of a pid namespace of its own."""
        pids = self.note.get("pids")
        if isinstance(pids, dict):
            known = pids.get(str(number))
            return known if isinstance(known, int) else 0
        own = {th.ns_tid: th.tid for th in self.threads()}
        alike = all(own.get(tid) == tid for tid in own.values())
        return number if alike else own.get(number, 0)

    def _command_name(self) -> str:
        return self._psinfo[PSINFO_NAME : PSINFO_NAME + 16].split(b"\0")[0].decode("utf-8", "replace")

    # ---- command line --------------------------------------------------------------------------------------------
    @property
    def title(self) -> str:
        """The title of a process that titled itself, else its argv[0]; 79 characters at most, '' where the file has none."""
        return self._psinfo[PSINFO_ARGS:PSINFO_SIZE].split(b"\0")[0].decode("utf-8", "surrogateescape")

    def argv(self) -> list[str]:
        """The whole command line where the stack has it, else the 79 characters of the core's header. `GdbextError` for a
        snapshot."""
        self._refuse_secrets("command line")
        try:
            return self._vectors()[0]
        except GdbextError as e:
            log.passed_over(e)
            return self.title.split()

    def environ(self) -> dict[str, str]:
        """The environment that the process began with; `GdbextError` for a snapshot."""
        self._refuse_secrets("environment")
        return {name: value for name, mark, value in (pair.partition("=") for pair in self._vectors()[1]) if mark}

    def _refuse_secrets(self, what: str) -> None:
        if self.note:
            raise GdbextError(f"{self.describe()}: a snapshot leaves the {what} out: it may hold secrets")

    def _vectors(self) -> tuple[list[str], list[str]]:
        """(argv, environ) from the top of the main stack: argc, argv, 0, envp, 0, auxv (System V ABI, initial process stack)."""
        missing = GdbextError(f"{self.describe()}: its command line is not in it")
        stack = next((m for m in self.mappings() if m.path == "[stack]"), None)
        if stack is None and self._auxv:
            stack = self.mapping_at(loaded.auxiliary(self._auxv).get(loaded.AT_EXECFN, 0))  # a string at the top of the stack
        if stack is None or not self._auxv:
            raise missing
        pieces, low = [], stack.end  # its top: the pages below may never have been used, and are then not in the file
        while low > max(stack.start, stack.end - MAX_STACK_TOP):
            page = self.read_partial(low - PAGE, PAGE)
            if len(page) < PAGE:
                break
            low -= PAGE
            pieces.append(page)
        data = b"".join(reversed(pieces))
        at = data.rfind(self._auxv[:48])
        if at < 0 or at % 8:
            raise missing
        words = memoryview(data[:at]).cast("Q")
        end = len(words) - 1  # the 0 behind envp
        begin = end
        while begin > 0 and words[begin - 1]:
            begin -= 1
        first = begin - 1
        while first > 0 and words[first - 1] != begin - 1 - first:
            first -= 1
        return self._texts(words[first : begin - 1].tolist()), self._texts(words[begin:end].tolist())

    def _texts(self, pointers: list[int]) -> list[str]:
        return [self.cstring(p, MAX_PATH).decode("utf-8", "surrogateescape") for p in pointers]
