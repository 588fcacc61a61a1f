"""The kind of a file that was taken for a core or a program."""

from __future__ import annotations

import shlex

COMPRESSED = (  # (first bytes, compressor, command that unpacks to its standard output); systemd-coredump writes such files
    (b"\x28\xb5\x2f\xfd", "zstd", "zstd -dc"),
    (b"\x04\x22\x4d\x18", "lz4", "lz4 -dc"),
    (b"\x1f\x8b", "gzip", "gzip -dc"),
    (b"\xfd7zXZ\0", "xz", "xz -dc"),
    (b"BZh", "bzip2", "bzip2 -dc"),
)


def of_no_elf(path: str, head: bytes) -> str:
    """The kind of a file that is no 64-bit little-endian ELF file; for a compressed core also the command that unpacks it."""
    for magic, name, tool in COMPRESSED:
        if head.startswith(magic):
            return f"compressed by {name}; unpack it: {tool} {shlex.quote(path)} > FILE"
    if head[:5] == b"\x7fELF\x01":
        return "a 32-bit ELF file; 64-bit ones are read"
    if head[:4] == b"\x7fELF" and len(head) < 64:
        return "an ELF file that is cut short"
    return "not a 64-bit little-endian ELF file"
