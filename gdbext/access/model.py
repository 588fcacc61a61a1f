"""The parts of every Target: mappings, modules, threads and native frames. They are plain values; only `Module` opens a file, on
demand."""

from __future__ import annotations

import contextlib
import functools
import os
from typing import Callable, Dict, Iterator, Protocol, TypeVar

from ..errors import NotFoundError
from . import elf, identity
from .elf import Elf

T = TypeVar("T")


class Memory(Protocol):
    """What unwinding and identifying files needs of a Target."""

    arch: str
    is_live: bool
    signature: int

    def read(self, address: int, size: int) -> bytes: ...
    def read_own(self, address: int, size: int) -> bytes: ...
    def u64(self, address: int) -> int: ...
    def words(self, address: int, count: int) -> tuple[int, ...]: ...
    def living(self) -> int | None: ...
    def mapping_at(self, address: int) -> Mapping | None: ...
    def module_at(self, address: int) -> Module | None: ...
    def cached(self, key: object, make: Callable[[], T]) -> T: ...
    def describe(self) -> str: ...


Registers = Dict[str, int]

PAGE = 4096  # the unit of reads, copies and writes; a kernel's own pages are this or larger
GRAIN = 8  # bytes that are kept or left out together, where only what was read is kept
DELETED = " (deleted)"  # how the kernel marks a mapped file that has no name any more


class Mapping:
    """One line of /proc/PID/maps or of a core's NT_FILE.

    `offset`: bytes into the file `path` ('' for anonymous memory). `inode` and `device` ("major:minor") are 0 and '' where they
    are not known."""

    __slots__ = ("start", "end", "perms", "offset", "path", "inode", "device")

    def __init__(
        self, start: int, end: int, perms: str = "", offset: int = 0, path: str = "", inode: int = 0, *, device: str = ""
    ) -> None:
        self.start, self.end, self.perms, self.offset, self.path = start, end, perms, offset, path
        self.inode, self.device = inode, device

    def __repr__(self) -> str:
        return f"Mapping({self.start:#x}-{self.end:#x} {self.perms} {self.path})"


class Module:
    """A file that the process has mapped as a program.

    `path` is the process's name of it, `file` the path on this machine ('' for a deleted file), `base` the lowest mapped address.
    `image()` makes the file's bytes out of its mapped pieces. `doubt` is set once `elf` was asked for: why nothing proves that
    `file` is the mapped file; '' where that is proved."""

    def __init__(
        self,
        path: str,
        file: str | Callable[[], str],
        base: int,
        end: int,
        *,
        memory: Memory | None = None,
        image: Callable[[], bytes] | None = None,
    ) -> None:
        self.path, self.base, self.end = path, base, end
        self._find_file = file
        self.doubt = ""
        self._memory, self._image = memory, image
        self._elf: Elf | None = None
        self._refused: NotFoundError | None = None

    @functools.cached_property
    def file(self) -> str:
        """Searched for on demand: of a hundred libraries a command opens five. `NotFoundError` where links form a loop."""
        return self._find_file if isinstance(self._find_file, str) else self._find_file()

    @classmethod
    def of_bytes(cls, path: str, base: int, end: int, data: bytes) -> Module:
        """A module whose file is `data` (the vdso)."""
        module = cls(path, "", base, end)
        module._elf = elf.Elf(path, data)
        return module

    @property
    def elf(self) -> Elf:
        """The parsed file. `NotFoundError` when it is gone, is no ELF file, or is another build than the mapped one."""
        if self._refused is not None:
            raise self._refused
        if self._elf is None:
            try:
                self._elf = self._open()
            except NotFoundError as e:
                self._refused = e
                raise
        return self._elf

    def _open(self) -> Elf:
        if not self.file:
            return self._from_memory()
        found = elf.open_elf(self.file)
        if self._memory is None:
            return found
        verdict, why = identity.compare(found, self._memory, self.base)
        if verdict == identity.OTHER:
            if self._memory.is_live:  # all its pieces are mapped: nothing is lost but section headers and static symbols
                return self._from_memory()
            self.doubt = why
            raise NotFoundError(why)
        self.doubt = why
        return found

    def _from_memory(self) -> Elf:
        if self._image is None:
            raise NotFoundError(f"{self.path}: the file is gone")
        found = elf.Elf(self.path, self._image())
        found.relocated_by = self.base - found.lowest_address
        return found

    @property
    def bias(self) -> int:
        """The number to add to the file's virtual addresses."""
        return self.base - self.elf.lowest_address

    @property
    def build_id(self) -> str:
        """The file's build-id as hex digits, or ''."""
        return self.elf.build_id

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return os.path.basename(self.path)

    def symbol(self, name: str) -> int | None:
        """The address of `name` in this process from the file's dynamic symbols (then its .symtab), or None."""
        value = self.elf.symbol(name)
        return None if value is None else self.bias + value

    def __repr__(self) -> str:
        return f"Module({self.path!r}, {self.base:#x}-{self.end:#x})"


class NativeFrame:
    """One frame of a native stack.

    `function`, `file`, `line`, `library` are '' or None where they are not known. `inline` frames share the physical frame of the
    next older one. `reliable` is False for a frame that rests on a guess, or lies in a file that is not proved to be the mapped
    one. `doubt` says why the function is unknown or the frame unreliable; '' for neither. `cut`: the walk ended here though it is
    not the outermost frame."""

    __slots__ = ("level", "pc", "sp", "function", "file", "line", "library", "inline", "reliable", "doubt", "cut")

    def __init__(
        self,
        level: int,
        pc: int,
        sp: int,
        function: str = "",
        *,
        file: str = "",
        line: int | None = None,
        library: str = "",
        inline: bool = False,
        reliable: bool = True,
        doubt: str = "",
    ) -> None:
        self.level, self.pc, self.sp, self.function, self.file, self.line = level, pc, sp, function, file, line
        self.library, self.inline, self.reliable, self.doubt, self.cut = library, inline, reliable, doubt, False

    def __repr__(self) -> str:
        return f"NativeFrame(#{self.level} {self.pc:#x} {self.function})"


class Thread:
    """An operating-system thread.

    `ns_tid` is the tid as the process itself sees it. `registers` maps names to values, or is None where the backend has none;
    `stack` is `(low, high)` of the mapping that the stack pointer lies in, or None; `cpu`: seconds that it has run, None where
    that is not known."""

    cpu: float | None = None

    def __init__(
        self,
        tid: int,
        name: str = "",
        state: str = "",
        registers: Registers | None = None,
        stack: tuple[int, int] | None = None,
        ns_tid: int | None = None,
    ) -> None:
        self.tid, self.name, self.state, self.registers, self.stack = tid, name, state, registers, stack
        self.ns_tid = ns_tid or tid

    def __repr__(self) -> str:
        return f"Thread({self.tid}, {self.name!r})"


class ReadLog:
    """The pages that are read through a collector's Targets: the pages that a copy has to hold.

    `pages`: addresses of the pages that were read. `missed`: those of them that a copy lacks, each worth another stop of the
    process. `of_copy`: the Target is such a copy. `repeated`: everything was read once before, so only memory that changes needs
    to be read again. Where only the bytes that are read shall be kept, `marks` has them, {page: a bit for each GRAIN bytes}, and
    `content` the places of what people wrote: (address, bytes, bytes of a character; 0: a number)."""

    __slots__ = ("pages", "missed", "of_copy", "repeated", "marks", "content")

    def __init__(self, pages: set[int] | None = None, of_copy: bool = False, exact: bool = False) -> None:
        self.pages: set[int] = set() if pages is None else pages
        self.missed: set[int] = set()
        self.of_copy, self.repeated = of_copy, False
        self.marks: dict[int, int] | None = {} if exact else None
        self.content: set[tuple[int, int, int]] | None = set() if exact else None

    def mark(self, address: int, size: int) -> None:
        """Notes that these bytes were read."""
        marks, end = self.marks, address + size
        while marks is not None and address < end:
            page = address & -PAGE
            first, last = (address - page) // GRAIN, (min(end, page + PAGE) - 1 - page) // GRAIN
            marks[page] = marks.get(page, 0) | ((2 << last - first) - 1) << first
            address = page + PAGE

    @contextlib.contextmanager
    def optional(self) -> Iterator[None]:
        """Inside this `with` block a page that the copy lacks is not worth another stop."""
        missed = set(self.missed)
        try:
            yield
        finally:
            self.missed &= missed
