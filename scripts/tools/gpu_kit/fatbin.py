"""One GPU architecture's code of a CUDA library, the rest of it zeros, so that it packs small.

A library keeps GPU code in the section .nv_fatbin: fat binaries, one behind the other, aligned to 8 bytes. Each has a header
(magic, u16 version, u16 size of the header, u64 size of what follows) and entries, one per architecture (u16 kind: 1 PTX, 2
machine code; u32 size of the entry's header at +4, u64 size of its code at +8, u32 architecture at +28). Nothing moves but
entries within their fat binary: the file keeps its size, its addresses and its host code."""

from __future__ import annotations

import collections
import re
import struct
from collections.abc import Iterator

from ..say import Failed

MAGIC = 0xBA55ED50
PTX, CODE = 1, 2
KINDS = (PTX, CODE, 4, 8, 16, 32, 64)
HEADERS = range(32, 4097)  # sizes of an entry's header that are believed


class Kept:
    """What `slim` did: `sizes` {(kind, architecture): bytes that were there}, `kept` bytes, `emptied` fat binaries that held
    nothing for the architecture."""

    def __init__(self) -> None:
        self.sizes: collections.Counter = collections.Counter()
        self.kept = self.emptied = 0

    def __str__(self) -> str:
        return (
            f"{self.kept >> 10} of {sum(self.sizes.values()) >> 10} KiB of GPU code stay, {self.emptied} fat binaries are empty"
        )


def slim(data: bytearray, arch: int, only: str = "") -> Kept:
    """Keeps `arch`'s machine code (90: sm_90) in place; with `only`, of that what the regular expression is found in: a kernel's
    mangled name, in code that is not compressed. `Failed` for what is no CUDA library, or holds what is not understood."""
    found, name = Kept(), re.compile(only.encode())
    for at, header, size in list(_binaries(data, *_section(data))):
        start, body = at + header, bytearray()
        for entry, length, kind, architecture in _entries(data, start, start + size):
            found.sizes[kind, architecture] += length
            if kind == CODE and architecture == arch and (not only or name.search(data, entry, entry + length)):
                body += data[entry : entry + length]
        found.kept += len(body)
        found.emptied += not body
        struct.pack_into("<Q", data, at + 8, len(body))
        data[start : start + size] = body + bytes(size - len(body))
    return found


def _section(data: bytearray) -> tuple[int, int]:
    """(offset, size) of .nv_fatbin in an ELF file of 64 bits."""
    if data[:5] != b"\x7fELF\x02":
        raise Failed("not an ELF file of 64 bits")
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names_at = struct.unpack_from("<HHH", data, 58)
    rows = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
    for row in rows:
        at = rows[names_at][4] + row[0]
        if data[at : data.index(b"\0", at)] == b".nv_fatbin":
            return row[4], row[5]
    raise Failed("no section .nv_fatbin: it holds no GPU code")


def _binaries(data: bytearray, at: int, size: int) -> Iterator[tuple[int, int, int]]:
    """(offset, size of the header, size of the entries) of each fat binary."""
    end = at + size
    while at + 16 <= end:
        magic, _, header, length = struct.unpack_from("<IHHQ", data, at)
        if magic == MAGIC:
            yield at, header, length
            at += header + length
        else:
            at += 8


def _entries(data: bytearray, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(offset, size with its header, kind, architecture) of each entry."""
    while at + 64 <= end:
        kind, _, header, size = struct.unpack_from("<HHIQ", data, at)
        if kind not in KINDS or header not in HEADERS or at + header + size > end:
            raise Failed(f"a fat binary's entry at {at:#x} is not understood: kind {kind}, header {header}, size {size}")
        yield at, header + size, kind, struct.unpack_from("<I", data, at + 28)[0]
        at += header + size
