"""Target: where bytes, registers and modules come from. Every reader in this pack is written against this one interface.

A backend implements `_read` and whatever of `_mappings`, `_threads`, `unwind`, `argv`, `environ` it can; the rest is here.
Nothing writes. Errors are `FaultError` for memory and `NotFoundError` for things that are not there.
"""

import contextlib
import os
import struct

from ..errors import FaultError, GdbextError, NotFoundError
from . import elf

PAGE = 4096
MAX_READ = 1 << 32  # one read never asks for more: a length that came out of a hostile process
MAX_IMAGE = 1 << 30
DELETED = " (deleted)"  # how the kernel marks a mapped file that has no name any more


class Mapping:
    """One line of /proc/PID/maps or of a core's NT_FILE. `offset` in bytes of the file `path` ('' = anonymous)."""

    __slots__ = ("start", "end", "perms", "offset", "path", "inode")

    def __init__(self, start, end, perms="", offset=0, path="", inode=0):
        self.start, self.end, self.perms, self.offset, self.path, self.inode = start, end, perms, offset, path, inode

    def __repr__(self):
        return f"Mapping({self.start:#x}-{self.end:#x} {self.perms} {self.path})"


class Module:
    """A file that the process has mapped: `path` as the process names it, `file` where this machine can open it.

    `base` is the lowest address, `bias` what to add to the file's virtual addresses, `build_id` hex or ''. `file` is '' for one that
    was deleted or replaced: `image()` then gives the bytes of its mapped pieces.
    """

    def __init__(self, path, file, base, end, image=None):
        self.path, self.file, self.base, self.end = path, file, base, end
        self._elf, self._image = None, image

    @property
    def elf(self):
        """The parsed file; raises `NotFoundError` when it is gone or is no ELF file."""
        if self._elf is None and self.file:
            self._elf = elf.open_elf(self.file)
        elif self._elf is None:
            self._elf = elf.Elf(self.path, self._image())
            self._elf.relocated_by = self.base - self._elf.lowest_address
        return self._elf

    @property
    def bias(self):
        return self.base - self.elf.lowest_address

    @property
    def build_id(self):
        return self.elf.build_id

    @property
    def name(self):
        return os.path.basename(self.path)

    def symbol(self, name):
        """The address of `name` in this process from the file's dynamic symbols (then its .symtab), or None."""
        value = self.elf.symbol(name)
        return None if value is None else self.bias + value

    def __repr__(self):
        return f"Module({self.path!r}, {self.base:#x}-{self.end:#x})"


class NativeFrame:
    """One frame of a native stack. `function`, `file`, `line`, `library` are '' or None where they are not known; `inline` frames share
    the physical frame of the next older one; `reliable` is False for a frame that rests on a guess (no unwind data)."""

    __slots__ = ("level", "pc", "sp", "function", "file", "line", "library", "inline", "reliable")

    def __init__(self, level, pc, sp, function="", file="", line=None, library="", inline=False, reliable=True):
        self.level, self.pc, self.sp, self.function, self.file, self.line = level, pc, sp, function, file, line
        self.library, self.inline, self.reliable = library, inline, reliable


class Thread:
    """An operating-system thread. `ns_tid` is the tid as the process itself sees it. `registers` maps names to values, or is None where the backend has none;
    `stack` is `(low, high)` addresses of the mapping the stack pointer lies in, or None."""

    def __init__(self, tid, name="", state="", registers=None, stack=None, ns_tid=None):
        self.tid, self.name, self.state, self.registers, self.stack = tid, name, state, registers, stack
        self.ns_tid = ns_tid or tid

    def __repr__(self):
        return f"Thread({self.tid}, {self.name!r})"


class ReadLog:
    """What a collector learns from the reads that are made through its Targets: which pages a copy has to hold.

    `pages`: addresses of pages that were read. `missed`: those of them that a copy lacks, each worth another stop of the process.
    `of_copy`: the Target is such a copy. `repeated`: everything was read once before, only what moves needs to be read again."""

    __slots__ = ("pages", "missed", "of_copy", "repeated")

    def __init__(self, pages=None, of_copy=False):
        self.pages = set() if pages is None else pages
        self.missed, self.of_copy, self.repeated = set(), of_copy, False

    @contextlib.contextmanager
    def optional(self):
        """Inside this `with` block a page that the copy lacks is not worth another stop."""
        missed = set(self.missed)
        try:
            yield
        finally:
            self.missed &= missed


class Target:
    """Bytes and registers of one process, live, dead or made up. See the module's docstring."""

    kind = "?"
    is_live = False  # the process still exists
    is_stopped = True  # it cannot change under the reader
    arch = "x86-64"  # or "aarch64"
    pid = None
    label = ""
    pending_offsets = {}  # {frame address: byte offset}: frames that stand at an instruction which their own memory does not name yet
    read_log = None  # the `ReadLog` of a collector's Target
    device_memory = None  # read(address, size) of GPU memory, where the debugger can (cuda-gdb)

    def __init__(self):
        self._pages = {}
        self._caches = {}
        self._cache_epoch = None

    # ---- what a backend implements -------------------------------------------------------------------------------
    def _read(self, address, size):
        """`size` bytes at `address`, or `FaultError`. A short read is a fault."""
        raise NotImplementedError

    def _mappings(self):
        raise GdbextError(f"{self.describe()}: its memory map is not known")

    def _threads(self):
        raise GdbextError(f"{self.describe()}: its threads are not known")

    def registers(self, thread):
        """`{name: value}` of a `Thread` as layouts name them; `GdbextError` where the backend has none."""
        if thread.registers is None:
            raise GdbextError(f"{self.describe()}: the registers of thread {thread.tid} are not known while it runs")
        return thread.registers

    def unwind(self, thread):
        """`[NativeFrame]` of a `Thread`, innermost first, by call-frame information; `GdbextError` where the backend cannot."""
        from .unwind import Unwinder

        walker = self.cached("unwinder", lambda: Unwinder(self))
        return self.cached(("native frames", thread.tid), lambda: walker.frames(self.registers(thread)))

    def argv(self):
        raise GdbextError(f"{self.describe()}: its command line is not known")

    def environ(self):
        raise GdbextError(f"{self.describe()}: its environment is not known")

    def root(self):
        """Where the process's own file system is seen from here ('' = as ours)."""
        return ""

    @property
    def epoch(self):
        """A value that differs after anything that may have changed what was read. Caches hang on it."""
        return 0

    def describe(self):
        return f"process {self.pid}" if self.pid else self.kind

    # ---- caches --------------------------------------------------------------------------------------------------
    def _current_caches(self):
        epoch = self.epoch
        if epoch != self._cache_epoch:
            self._cache_epoch = epoch
            self._pages = {}
            self._caches = {}
        return self._caches

    def cached(self, key, make):
        """`make()` once per `epoch`."""
        caches = self._current_caches()
        if key not in caches:
            caches[key] = make()
        return caches[key]

    def invalidate(self):
        """Drops every cache: what is read next comes from the process."""
        self._cache_epoch = object()

    # ---- memory --------------------------------------------------------------------------------------------------
    def read(self, address, size):
        """Exactly `size` bytes at `address`; `FaultError` where any of them cannot be read."""
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

    def _page(self, start):
        self._current_caches()
        pages = self._pages
        page = pages.get(start)
        if page is None and start not in pages:
            try:
                page = self._read(start, PAGE)
            except FaultError:
                page = None
            if len(pages) > 16384:
                pages.clear()
            pages[start] = page
        return page

    def read_partial(self, address, size):
        """The readable beginning of a range: 0 to `size` bytes, never an error."""
        try:
            return self.read(address, size)
        except FaultError:
            pass
        parts = []
        while size > 0:
            step = min(size, PAGE - address % PAGE)
            try:
                parts.append(self.read(address, step))
            except FaultError:
                break
            address, size = address + step, size - step
        return b"".join(parts)

    def populated(self, start, end):
        """`[(start, end)]`: the parts of an anonymous mapping that may hold something; the rest was never touched."""
        return [(start, end)]

    def read_many(self, ranges):
        """`[(address, size)]` -> `[bytes or None]`, None where a range cannot be read."""
        found = []
        for address, size in ranges:
            try:
                found.append(self.read(address, size))
            except FaultError:
                found.append(None)
        return found

    def read_device(self, ranges):
        """As `read_many`, in the GPU's memory."""
        return [self.device_memory(address, size) for address, size in ranges]

    def u8(self, address):
        return self.read(address, 1)[0]

    def u16(self, address):
        return struct.unpack("<H", self.read(address, 2))[0]

    def u32(self, address):
        return struct.unpack("<I", self.read(address, 4))[0]

    def i32(self, address):
        return struct.unpack("<i", self.read(address, 4))[0]

    def u64(self, address):
        return struct.unpack("<Q", self.read(address, 8))[0]

    def i64(self, address):
        return struct.unpack("<q", self.read(address, 8))[0]

    def f64(self, address):
        return struct.unpack("<d", self.read(address, 8))[0]

    def words(self, address, count):
        """`count` unsigned 64-bit words."""
        return struct.unpack(f"<{count}Q", self.read(address, 8 * count))

    def cstring(self, address, limit=4096):
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

    # ---- what is mapped ------------------------------------------------------------------------------------------
    def mappings(self):
        """All mappings by address."""
        return self.cached("mappings", lambda: sorted(self._mappings(), key=lambda m: m.start))

    def mapping_at(self, address):
        """The mapping that holds `address`, or None."""
        import bisect

        maps = self.mappings()
        starts = self.cached("mapping starts", lambda: [m.start for m in maps])
        i = bisect.bisect_right(starts, address) - 1
        return maps[i] if i >= 0 and maps[i].start <= address < maps[i].end else None

    def modules(self):
        """The files that are mapped as programs, one `Module` each, by address: with a piece that is code or, where a core does not tell,
        with several. Of a file mapped several times the run that is code counts."""
        return self.cached("modules", self._modules)

    def _modules(self):
        runs = {}  # path -> [[start, end, executable, pieces]], a new run where the file's head is mapped again
        for m in self.mappings():
            if not m.path.startswith("/") or m.path.startswith("/dev/"):
                continue
            own = runs.setdefault(m.path, [])
            if m.offset == 0 and not (own and own[-1][3] == 1 and own[-1][1] == m.start):
                own.append([m.start, m.end, "x" in m.perms, 1])
            elif own:  # a piece before any head is no module
                run = own[-1]
                run[1:] = [max(run[1], m.end), run[2] or "x" in m.perms, run[3] + 1]
        # Data files and copies that a program maps to read them have no executable piece; cores do not tell, so the most pieces win.
        best = {path: max(own, key=lambda r: (r[2], r[3])) for path, own in runs.items() if own}
        found = []
        for path, (base, end, code, pieces) in best.items():
            if not code and pieces == 1:
                continue
            file = self.deleted_file(path, base) if path.endswith(DELETED) else self.local_file(path)
            found.append(Module(path, file, base, end, lambda path=path, base=base, end=end: self._image(path, base, end)))
        return sorted(found, key=lambda module: module.base)

    def deleted_file(self, path, base):
        """Where a mapped file that has no name any more can still be opened, '' where it cannot."""
        return ""

    def _image(self, path, base, end):
        """The mapped pieces of a file by file offset, as the loader left them in memory; without section headers, which it does not map."""
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

    def local_file(self, path):
        """Where a file that the process names can be opened from here: through its own root when it lives in a container."""
        path = path[: -len(DELETED)] if path.endswith(DELETED) else path
        root = self.root()
        if root and os.path.exists(root + path):
            return root + path
        return path

    def module_at(self, address):
        """The module that holds `address`, or None."""
        m = self.mapping_at(address)
        if m is None:
            return None
        by_path = self.cached("modules by path", lambda: {mod.path: mod for mod in self.modules()})
        return by_path.get(m.path)

    def symbol(self, name, modules=None):
        """The address of a symbol in the first of `modules` (default: all) that has it; `NotFoundError` otherwise."""
        for module in self.modules() if modules is None else modules:
            try:
                address = module.symbol(name)
            except (GdbextError, OSError):
                continue
            if address is not None:
                return address
        raise NotFoundError(f"{self.describe()}: no library has the symbol {name}")

    # ---- threads -------------------------------------------------------------------------------------------------
    def threads(self):
        """The operating-system threads as `Thread`s."""
        return self.cached("threads", self._threads)
