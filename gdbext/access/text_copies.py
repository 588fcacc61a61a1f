"""Code of a file that a program has copied to memory of no file, at its own place, as some do to have it in huge pages. It
lies between two pieces of the file and has the file's bytes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Iterator

from .. import log
from ..errors import GdbextError
from . import files
from .model import PAGE, Mapping

if TYPE_CHECKING:
    from .base import Target

ANONYMOUS = ("", "/anon_hugepage (deleted)")
SAMPLES = 8  # pages that are compared with the file, among them the first and the last


def find(target: Target) -> Iterator[Mapping]:
    """The mappings of such code, as they were before: with the path and the offset of the file."""
    maps = target.mappings()
    for before, m, after in zip(maps, maps[1:], maps[2:]):
        if m.path not in ANONYMOUS or "x" not in m.perms or not before.path.startswith("/") or before.path != after.path:
            continue
        offset = before.offset + m.start - before.start
        if before.end == m.start and m.end == after.start and _is_of(target, before, m, offset):
            yield Mapping(m.start, m.end, m.perms, offset, before.path, before.inode, device=before.device)


def _is_of(target: Target, before: Mapping, m: Mapping, offset: int) -> bool:
    """Whether sampled pages of a mapping have the bytes of the file from `offset` on."""
    pages = (m.end - m.start) // PAGE
    try:
        with files.open_regular(target.file_of(before.path, before.start)) as f:
            for page in sorted({i * (pages - 1) // (SAMPLES - 1) for i in range(SAMPLES)}):
                f.seek(offset + page * PAGE)
                there = f.read(PAGE)
                if not there or target.read(m.start + page * PAGE, len(there)) != there:
                    return False
    except (GdbextError, OSError) as e:
        log.passed_over(e, f"whether the code at {m.start:#x} is a copy of {os.path.basename(before.path)}'s")
        return False
    return True
