"""Target: the source of bytes, registers and modules. Every reader in this pack uses this one interface.

A backend implements `_read`, and those of `_mappings`, `_threads`, `unwind`, `argv`, `environ` that it can; the rest is here.
Nothing writes. Errors are `FaultError` for memory and `NotFoundError` for things that do not exist.
"""

from __future__ import annotations

import bisect
import os
import struct
import time
from typing import TYPE_CHECKING, Any, Callable, Iterable, Sequence, TypeVar

from .. import log
from ..errors import FaultError, GdbextError, NotFoundError
from . import files, in_root, readers, text_copies
from .model import DELETED, PAGE, Mapping, Module, NativeFrame, ReadLog, Registers, Thread
from .unwind import Unwinder

if TYPE_CHECKING:
    from .device_memory import DeviceMemory
    from .retry import Budget
T = TypeVar("T")

MAX_READ = 1 << 32  # one read never asks for more: a length that came out of a hostile process
MAX_IMAGE = 1 << 30
MAX_CACHED_PAGES = 16384
MAX_REFRESHED_PAGES = 256  # more are of a larger read, and are copied too slowly to be of one moment


_U64 = struct.Struct("<Q").unpack_from
_lasting: dict[int, dict[object, Any]] = {}  # by pid


class Target:
    """Bytes and registers of one process, live, dead or made up. See the module's docstring."""

    kind = "?"
    is_live = False  # the process still exists
    is_stopped = True  # it cannot change under the reader
    arch = "x86-64"  # or "aarch64"
    signature = 0xFFFF << 48  # aarch64: the bits of a return address that may hold its signature, if not known from the process
    pid: int | None = None
    label = ""
    unsettled = False  # two readings of data in an answer did not agree
    cut_short = False  # a core whose file ends too early for its own headers
    read_log: ReadLog | None = None  # of a collector's Target
    device_memory: DeviceMemory | None = None  # where the debugger sees the GPU (cuda-gdb)

    def __init__(self) -> None:
        self._pages: dict[int, bytes | None] = {}
        self._caches: dict[object, Any] = {}
        self._cache_epoch: object = None
        self._lasting: dict[object, Any] = {}
        self.missed: Callable[[Any, str], object] = lambda kind, name: None  # told of each attribute that a class's object lacks
        self.budgets: dict[int, Budget] = {}  # by thread: of the read that `retry_reading` is repeating

    def now(self) -> float | None:
        """The time at which its memory is what is read, in seconds since the epoch; None for a core that does not say."""
        return time.time() if self.is_live else None

    # ---- implemented by a backend --------------------------------------------------------------------------------
    def _read(self, address: int, size: int) -> bytes:
        """`size` bytes at `address`, or `FaultError`. A short read is a fault."""
        raise NotImplementedError

    def _mappings(self) -> list[Mapping]:
        raise GdbextError(f"{self.describe()}: its memory map is not known")

    def _threads(self) -> list[Thread]:
        raise GdbextError(f"{self.describe()}: its threads are not known")

    def registers(self, thread: Thread) -> Registers:
        """`{name: value}` of a `Thread` as layouts name them; `GdbextError` where the backend has none."""
        if thread.registers is None:
            raise GdbextError(f"{self.describe()}: the registers of thread {thread.tid} are not known while it runs")
        return thread.registers

    def unwind(self, thread: Thread) -> list[NativeFrame]:
        """The frames of a `Thread`, innermost first, by call-frame information; `GdbextError` where the backend cannot."""
        walker = self.cached("unwinder", lambda: Unwinder(self))
        return self.cached(("native frames", thread.tid), lambda: walker.frames(self.registers(thread)))

    def argv(self) -> list[str]:
        """The words of the command line; `GdbextError` where they are not known."""
        raise GdbextError(f"{self.describe()}: its command line is not known")

    def environ(self) -> dict[str, str]:
        """The environment that the process began with; `GdbextError` where it is not known."""
        raise GdbextError(f"{self.describe()}: its environment is not known")

    def root(self) -> str:
        """The folder under which this machine sees the process's own file system; '' where the two are the same."""
        return ""

    def living(self) -> int | None:
        """The pid of the process, if it is certain that it lives on this machine; None."""
        return None

    def cwd(self) -> str:
        """The process's working folder as the process names it; '' where it is not known."""
        return ""

    @property
    def pending_offsets(self) -> dict[int, int]:
        """`{frame address: byte offset}` of frames whose current instruction is not in their own memory yet."""
        return {}

    @property
    def epoch(self) -> object:
        """A value that changes after any event that may have changed the memory. Caches are bound to it."""
        return 0

    def has_ended(self) -> bool:
        """Whether it was a process that has ended: then nothing of it can be read any more."""
        return False

    def describe(self) -> str:
        """How messages name the target."""
        return f"process {self.pid}" if self.pid else self.kind

    # ---- caches --------------------------------------------------------------------------------------------------
    def _current_caches(self) -> dict[object, Any]:
        epoch = self.epoch
        if epoch != self._cache_epoch:
            self._cache_epoch = epoch
            self._pages = {}
            self._caches = {}
        return self._caches

    def cached(self, key: object, make: Callable[[], T]) -> T:
        """`make()` once per `epoch`."""
        caches = self._current_caches()
        if key not in caches:
            caches[key] = make()
        found: T = caches[key]
        return found

    @property
    def lasting(self) -> dict[object, Any]:
        """A store that outlives epochs and is shared by all copies of a process. A value in it must be checked again at
        each use."""
        return _lasting.setdefault(self.pid, self._lasting) if self.pid else self._lasting

    def close(self) -> None:
        """Frees open files and the like; they are opened again on demand."""

    def invalidate(self) -> None:
        """Drops every cache: the next read comes from the process."""
        self._cache_epoch, self._pages, self._caches = object(), {}, {}

    def drop_pages(self) -> None:
        """Drops the memory that was read, and keeps the results worked out from it.

        To be called before a read of objects that change while the process runs, so that they and the objects they point to are
        of the same moment."""
        self._pages = {}

    def refresh_pages(self) -> None:
        """As `drop_pages`; where the backend can, it reads those pages anew, all in one system call.

        For a read that is repeated because the process changed meanwhile: what the last try needed is then of one moment."""
        known = [start for start, page in self._pages.items() if page is not None]
        self.drop_pages()
        if 0 < len(known) <= MAX_REFRESHED_PAGES:
            found = self.gather(known, PAGE)
            if found is not None:
                self._pages = {start: bytes(found[i * PAGE : (i + 1) * PAGE]) for i, start in enumerate(known)}

    # ---- memory --------------------------------------------------------------------------------------------------
    def read(self, address: int, size: int) -> bytes:
        """Exactly `size` bytes at `address`; `FaultError` where any of them cannot be read."""
        if self._cache_epoch == self.epoch:  # by far the most reads: the bytes are in one page that was read before
            known = self._pages.get(address & -PAGE)
            start = address & PAGE - 1
            if known is not None and 0 <= size <= len(known) - start:
                return known[start : start + size]
        if not 0 <= size <= MAX_READ or not 0 <= address < 1 << 64:
            raise FaultError(address, size, "not an address range")
        if size > PAGE:
            self._current_caches()
            return self._read(address, size)
        first = address & -PAGE
        offset = address - first
        page = self._page(first)
        if page is not None and offset + size <= len(page):
            return page[offset : offset + size]
        if page is not None and offset + size > PAGE:
            second = self._page(first + PAGE)
            if second is not None:
                return page[offset:] + second[: offset + size - PAGE]
        return self._read(address, size)

    def _page(self, start: int) -> bytes | None:
        self._current_caches()
        pages = self._pages
        page = pages.get(start)
        if page is None and start not in pages:
            try:
                page = self._read(start, PAGE)
            except FaultError as e:
                log.passed_over(e)
                page = None
            if len(pages) > MAX_CACHED_PAGES:
                pages.clear()
            pages[start] = page
        return page

    def read_own(self, address: int, size: int) -> bytes:
        """As `read`, but only bytes that the target itself holds: a core takes none from the files that were mapped."""
        return self.read(address, size)

    def read_partial(self, address: int, size: int) -> bytes:
        """The readable beginning of a range: 0 to `size` bytes, never an error."""
        try:
            return self.read(address, size)
        except FaultError as e:
            log.passed_over(e)
        parts = []
        while size > 0:
            step = min(size, PAGE - address % PAGE)
            try:
                parts.append(self.read(address, step))
            except FaultError as e:
                log.passed_over(e)
                break
            address, size = address + step, size - step
        return b"".join(parts)

    def read_filled(self, address: int, size: int) -> bytes:
        """`size` bytes at `address`, with zeros for the pages that cannot be read (a copy has only some)."""
        parts: list[bytes] = []
        end = address + size
        while address < end:
            parts.append(self.read_partial(address, end - address))
            address += len(parts[-1])
            if address < end:
                parts.append(bytes(min(end - address, PAGE - address % PAGE)))
                address += len(parts[-1])
        return b"".join(parts)

    def read_into(self, address: int, view: memoryview) -> None:
        """Fills `view` with the bytes from `address` on; `FaultError` where any of them cannot be read."""
        view[:] = self.read(address, len(view))

    def populated(self, start: int, end: int) -> list[tuple[int, int]]:
        """`[(start, end)]`: the parts of an anonymous mapping that may hold something; the rest was never touched."""
        return [(start, end)]

    def read_many(self, ranges: Iterable[tuple[int, int]]) -> list[bytes | None]:
        """`[(address, size)]` -> `[bytes or None]`, None where a range cannot be read."""
        found: list[bytes | None] = []
        for address, size in ranges:
            try:
                found.append(self.read(address, size))
            except FaultError as e:
                log.passed_over(e)
                found.append(None)
        return found

    def gather(self, addresses: Sequence[int], size: int) -> memoryview | None:
        """The bytes at many addresses, `size` at each, in a few system calls. None where the backend cannot do that, or where any
        of them cannot be read."""
        return None

    def read_device(self, ranges: Iterable[tuple[int, int]]) -> list[bytes | None]:
        """As `read_many`, in the GPU's memory; `GdbextError` where this debugger cannot read it."""
        if self.device_memory is None:
            raise GdbextError(f"{self.describe()}: the GPU's memory cannot be read from here")
        return [self.device_memory.read(address, size) for address, size in ranges]

    def _number(self, code: str, address: int, size: int) -> Any:
        return struct.unpack(code, self.read(address, size))[0]

    def u8(self, address: int) -> int:
        """An unsigned byte."""
        return self.read(address, 1)[0]

    def u16(self, address: int) -> int:
        """An unsigned 16-bit number."""
        return int(self._number("<H", address, 2))

    def u32(self, address: int) -> int:
        """An unsigned 32-bit number."""
        return int(self._number("<I", address, 4))

    def i32(self, address: int) -> int:
        """A signed 32-bit number."""
        return int(self._number("<i", address, 4))

    def u64(self, address: int) -> int:
        """An unsigned 64-bit number, or a pointer."""
        if self._cache_epoch == self.epoch:  # as in `read`, without a copy: most reads are of pointers
            known = self._pages.get(address & -PAGE)
            start = address & PAGE - 1
            if known is not None and start + 8 <= len(known):
                return int(_U64(known, start)[0])
        return int(_U64(self.read(address, 8))[0])

    def i64(self, address: int) -> int:
        """A signed 64-bit number."""
        return int(self._number("<q", address, 8))

    def f64(self, address: int) -> float:
        """A double."""
        return float(self._number("<d", address, 8))

    def words(self, address: int, count: int) -> tuple[int, ...]:
        """`count` unsigned 64-bit words."""
        return struct.unpack(f"<{count}Q", self.read(address, 8 * count))

    def cstring(self, address: int, limit: int = 4096) -> bytes:
        """Bytes up to the first NUL, at most `limit` of them."""
        parts = []
        while limit > 0:
            step = min(limit, PAGE - address % PAGE)
            chunk = self.read(address, step)
            end = chunk.find(b"\0")
            if end >= 0:
                parts.append(chunk[:end])
                break
            parts.append(chunk)
            address, limit = address + step, limit - step
        return b"".join(parts)

    # ---- mappings ------------------------------------------------------------------------------------------------
    def mappings(self) -> list[Mapping]:
        """All mappings by address."""
        return self.cached("mappings", lambda: sorted(self._mappings(), key=lambda m: m.start))

    def mapping_at(self, address: int) -> Mapping | None:
        """The mapping that holds `address`, or None."""
        maps = self.mappings()
        starts = self.cached("mapping starts", lambda: [m.start for m in maps])
        i = bisect.bisect_right(starts, address) - 1
        return maps[i] if i >= 0 and maps[i].start <= address < maps[i].end else None

    def modules(self) -> list[Module]:
        """The files that are mapped as programs, one `Module` each, by address.

        A file counts if one of its pieces is code. Where a core does not say which are, a file with several pieces counts. Of a
        file that is mapped several times, the run of pieces with code counts."""
        return self.cached("modules", self._modules)

    def _modules(self) -> list[Module]:
        runs: dict[str, list[_Run]] = {}  # by path, a new run where the file's head is mapped again
        copies = self.text_copies()
        for m in (copies.get(m.start, m) for m in self.mappings()):
            if not m.path.startswith("/") or m.path.startswith("/dev/"):
                continue
            own = runs.setdefault(m.path, [])
            if m.offset == 0 and not (own and own[-1].pieces == 1 and own[-1].end == m.start):
                own.append(_Run(m))
            elif own:  # a piece before any head is no module
                own[-1].add(m)
        found = []
        for path, own in runs.items():
            if own:
                # Data files and copies that a program maps to read them have no executable piece; cores do not say, so the most
                # pieces win.
                best = max(own, key=lambda r: (r.code, r.pieces))
                if best.code or best.pieces > 1:
                    found.append(self._module(path, best.start, best.end))
        return sorted(found, key=lambda module: module.base)

    def _module(self, path: str, base: int, end: int) -> Module:
        return Module(path, lambda: self.file_of(path, base), base, end, memory=self, image=lambda: self._image(path, base, end))

    def file_of(self, path: str, base: int) -> str:
        """The path of a mapped file on this machine; '' for a deleted file that cannot be opened any more."""
        file = "" if path.endswith(DELETED) else self.local_file(path)
        if not file or not os.path.exists(file):  # deleted, or outside the folder that has become the process's root
            file = self.deleted_file(path, base) or file
        return file

    def deleted_file(self, path: str, base: int) -> str:
        """A path under which a mapped file that was deleted can still be opened, '' where there is none."""
        return ""

    def _image(self, path: str, base: int, end: int) -> bytes:
        """A file's mapped pieces by file offset, as the loader left them in memory. Section headers are missing: the loader does
        not map them."""
        data = bytearray()
        for m in self.mappings():
            if m.path == path and base <= m.start < end and m.offset + m.end - m.start <= MAX_IMAGE:
                piece = self.read_partial(m.start, m.end - m.start)
                data.extend(bytes(max(0, m.offset + len(piece) - len(data))))
                data[m.offset : m.offset + len(piece)] = piece
        if data[:4] != b"\x7fELF":
            raise NotFoundError(f"{path}: the file is gone, and its head is not in {self.describe()}")
        data[40:48], data[60:62] = bytes(8), bytes(2)  # e_shoff, e_shnum
        return bytes(data)

    def local_file(self, path: str) -> str:
        """The path on this machine of a file that the process names. For a process in a container it is inside the process's own
        root, and so are the targets of all links."""
        path = path[: -len(DELETED)] if path.endswith(DELETED) else path
        if not path.startswith("/") and self.cwd():
            path = f"{self.cwd()}/{path}"
        return in_root.resolve(self.root(), path)

    def source_lines(self, path: str) -> list[str]:
        """The lines of a source file that the process names. `NotFoundError` where this machine does not have the file, or the
        process's user may not read it."""

        def read() -> list[str]:
            here = self.local_file(path)
            archive = files.archive_of(here)
            if archive:
                return files.archived_lines(archive, here[len(archive) + 1 :], readers.open_for(self.user(), archive))
            return files.source_lines(here, file=readers.open_for(self.user(), here))

        return self.cached(("source", path), read)

    def user(self) -> readers.User | None:
        """The user for whom files that the process names are opened; None where it is not known."""
        return readers.ourselves()

    def doubts(self) -> list[str]:
        """Why the file of a module was refused, or is not proved to be the mapped one. It covers only the modules whose file was
        asked for so far."""
        return [module.doubt for module in self.modules() if module.doubt]

    def module_at(self, address: int) -> Module | None:
        """The module that holds `address`, or None."""
        m = self.mapping_at(address)
        if m is None:
            return None
        path = self.text_copies().get(m.start, m).path
        return self.cached("modules by path", lambda: {mod.path: mod for mod in self.modules()}).get(path)

    def text_copies(self) -> dict[int, Mapping]:
        """{start: the mapping as it was of its file} of code that a program has copied to memory of no file, at its own place."""
        return self.cached("text copies", lambda: {m.start: m for m in text_copies.find(self)})

    def symbol(self, name: str, modules: Sequence[Module] | None = None) -> int:
        """The address of a symbol in the first of `modules` (default: all) that has it; `NotFoundError` otherwise."""
        for module in self.modules() if modules is None else modules:
            try:
                address = module.symbol(name)
            except (GdbextError, OSError) as e:
                log.passed_over(e)
                continue
            if address is not None:
                return address
        raise NotFoundError(f"{self.describe()}: no library has the symbol {name}")

    # ---- threads -------------------------------------------------------------------------------------------------
    def threads(self) -> list[Thread]:
        """The operating-system threads."""
        return self.cached("threads", self._threads)

    def own_tids(self) -> dict[int, int]:
        """{thread id as the process itself sees it, in its pid namespace: as we see it}."""
        return {th.ns_tid: th.tid for th in self.threads()}

    def pid_here(self, number: int) -> int:
        """Our pid of the process that this one calls `number`, as its memory or registers have it. 0 where no process is known to
        be that one: its number may be another program's here."""
        return number


class _Run:
    """Adjoining pieces of one file: from its head to the next head of it."""

    def __init__(self, first: Mapping) -> None:
        self.start, self.end, self.code, self.pieces = first.start, first.end, "x" in first.perms, 1

    def add(self, piece: Mapping) -> None:
        self.end, self.code, self.pieces = max(self.end, piece.end), self.code or "x" in piece.perms, self.pieces + 1
