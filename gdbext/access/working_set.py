"""The working set of a reader: the pages that it reads of a running process are recorded, copied in one stop, and read again from
the copy."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

from ..errors import FaultError, GdbextError
from .base import Target
from .model import PAGE, ReadLog
from .proc import ProcTarget

if TYPE_CHECKING:
    from typing import Iterable

    from .model import Mapping, Thread

MAX_PAGES = 1 << 14
MAX_LIBRARIES = 4096
MAX_TAGS = 256
AT_PHDR, AT_PHENT, AT_PHNUM = 3, 4, 5
PT_DYNAMIC, PT_PHDR = 2, 6
DT_NULL, DT_DEBUG = 0, 21


def pages_of(address: int, size: int) -> range:
    """Addresses of the pages that hold a range."""
    return range(address & -PAGE, address + size, PAGE)


class Recorder(ProcTarget):
    """The running process; its log gathers the pages that a reader asks for, `limit` of them at most.

    With a `deadline` (monotonic) every read after it faults, and `copies` holds what was read, by page."""

    read_log: ReadLog

    def __init__(self, pid: int, *, limit: int = MAX_PAGES) -> None:
        super().__init__(pid)
        self.read_log = ReadLog()
        self.limit = limit
        self.deadline: float | None = None
        self.copies: dict[int, bytes] = {}

    def _read(self, address: int, size: int) -> bytes:
        if len(self.read_log.pages) > self.limit or (self.deadline and time.monotonic() > self.deadline):
            raise FaultError(address, size, "enough for one snapshot")
        pages = pages_of(address, size)
        data = super()._read(pages[0], PAGE * len(pages))  # where a byte can be read, all of its page can
        self.read_log.pages.update(pages)
        if self.deadline:
            for i, page in enumerate(pages):
                self.copies[page] = data[i * PAGE : (i + 1) * PAGE]
        return data[address - pages[0] : address - pages[0] + size]


class Copy(Target):
    """What was copied. Memory that cannot change (read-only mappings) still comes from the process; the log's `missed` gathers
    the rest."""

    kind = "snapshot"
    read_log: ReadLog

    def __init__(self, live: ProcTarget, memory: dict[int, bytes], maps: list[Mapping], tids: Iterable[int]) -> None:
        super().__init__()
        self.pid, self.arch = live.pid, live.arch
        self.live, self.memory, self.maps, self.tids = live, memory, maps, set(tids)
        self.read_log = ReadLog(of_copy=True)

    def _read(self, address: int, size: int) -> bytes:
        pages = pages_of(address, size)
        complete = True
        for page in pages:
            if page in self.memory:
                continue
            m = self.mapping_at(page)
            if m is None:
                raise FaultError(address, size)
            if "w" in m.perms:
                self.read_log.missed.add(page)
                complete = False
            else:
                self.memory[page] = self.live.read(page, PAGE)
        if not complete:
            raise FaultError(address, size, "not copied")
        first = pages[0]
        return b"".join(self.memory[p] for p in pages)[address - first : address - first + size]

    def _mappings(self) -> list[Mapping]:
        return self.maps

    def _threads(self) -> list[Thread]:
        return [t for t in self.live.threads() if t.tid in self.tids]

    def root(self) -> str:
        """The process's root folder."""
        return self.live.root()

    def cwd(self) -> str:
        """As the process's."""
        return self.live.cwd()

    def argv(self) -> list[str]:
        """As the process's."""
        return self.live.argv()


def library_names(target: Target, auxv: bytes) -> list[bytes]:
    """The paths in the dynamic loader's list, which gdb opens; '' for the program.

    A static program has none, nor has one that is just loading: gdb then names fewer libraries, the stacks are there all the
    same. Source: System V ABI, glibc <link.h>."""
    names: list[bytes] = []
    try:
        aux = dict(struct.iter_unpack("<QQ", auxv[: len(auxv) // 16 * 16]))
        link = _link_map(target, aux[AT_PHDR], aux[AT_PHENT], aux[AT_PHNUM])
        seen: set[int] = set()
        while link and link not in seen and len(seen) < MAX_LIBRARIES:
            seen.add(link)
            _, name, dynamic, following = target.words(link, 4)
            names.append(target.cstring(name))
            target.read(dynamic, 16)
            link = following
    except (GdbextError, KeyError, struct.error):
        pass
    return names


def _link_map(target: Target, headers: int, size: int, count: int) -> int:
    """The address of the first `struct link_map`, 0 where the program has none."""
    base = dynamic = 0
    for i in range(min(count, 64)):
        kind, _, _, vaddr = struct.unpack_from("<IIQQ", target.read(headers + i * size, size))
        if kind == PT_PHDR:
            base = headers - vaddr
        elif kind == PT_DYNAMIC:
            dynamic = vaddr
    if not dynamic:
        return 0
    for i in range(MAX_TAGS):
        tag, value = target.words(base + dynamic + 16 * i, 2)
        if tag == DT_DEBUG:
            return target.words(value, 2)[1]
        if tag == DT_NULL:
            break
    return 0
