"""Every container object of a process. CPython's garbage collector keeps all of them in linked lists, which this module walks.

Modules/gcmodule.c, Python/gc.c, pycore_gc.h: a PyGC_Head of two words stands before each tracked object; `_gc_next` links a
ring that begins in the generation's own head, its low two bits are the collector's marks. 3.9 to 3.15 keep three rings
(3.14.0's young, old[0], old[1] lie where the three generations lie) and one of objects that gc.freeze() put away. Free-threaded
builds have no rings.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ..errors import FaultError, GdbextError, LayoutError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..access.base import Target
    from .runtime import Runtime

MAX_OBJECTS = 200_000_000
WINDOW = 16  # log2 of the bytes read at once
MAX_WINDOWS = 4096  # kept: 256 MiB


class Windows:
    """Memory in aligned windows of 64 KiB, each read once: for readers that touch many small objects."""

    def __init__(self, target: Target) -> None:
        self.target, self.held = target, {}

    def window(self, number: int) -> bytes:
        """The bytes from `number << WINDOW` on; none where a mapping begins or ends inside it."""
        held = self.held
        found = held.get(number)
        if found is None:
            try:
                found = self.target.read(number << WINDOW, 1 << WINDOW)
            except FaultError:
                found = b""
            if len(held) >= MAX_WINDOWS:
                held.clear()
            held[number] = found
        return found


def rings(rt: Runtime) -> list[int]:
    """Addresses of the heads of all rings of all interpreters. `GdbextError` for a build that has none."""
    L = rt.layout
    if L.free_threaded:
        raise GdbextError(f"Python {L.name} is free-threaded: its collector keeps no lists to walk")
    found = []
    for interp in rt.interpreters():
        found += [interp + L["interp.gc.generations"] + i * L["gcgen.__size"] + L["gcgen.head"] for i in range(3)]
        found.append(interp + L["interp.gc.permanent_generation"] + L["gcgen.head"])
    return found


def collecting(rt: Runtime) -> bool:
    """Whether a collection is under way: some objects are then on lists whose heads are on the collector's C stack."""
    return any(rt.target.u32(interp + rt.layout["interp.gc.collecting"]) & 1 for interp in rt.interpreters())


def tracked(rt: Runtime) -> Iterator[tuple[int, int]]:
    """Yields (address, type's address) of every tracked object, about 0.5 us each. Errors: those of `ring`."""
    windows = Windows(rt.target)
    for head in rings(rt):
        yield from ring(rt, head, windows)


def ring(rt: Runtime, head: int, windows: Windows) -> Iterator[tuple[int, int]]:
    """Yields (address, type's address) of every object of the list that begins at `head`.

    `LayoutError` where it does not close, `FaultError` where it leads out of memory.
    """
    L = rt.layout
    head_size, next_at, type_at = L["gc.head.__size"], L["gc.head._gc_next"], L["object.ob_type"]
    mask, held = (1 << WINDOW) - 1, windows.held
    node = struct.Struct(f"<{next_at}xQ{head_size + type_at - next_at - 8}xQ")  # one object's _gc_next and type
    unpack, size = node.unpack_from, node.size
    (at,) = struct.unpack("<Q", rt.target.read(head + next_at, 8))
    at &= ~3
    count, mark, marked = 0, 0, 0  # Brent's search for a cycle that does not lead through the head
    while at != head:
        if at < 4096:
            raise LayoutError(f"the garbage collector's list at {head:#x} leads to {at:#x}")
        blob, inside = held.get(at >> WINDOW), at & mask
        if blob is None:
            blob = windows.window(at >> WINDOW)
        if inside + size > len(blob):
            blob, inside = rt.target.read(at, size), 0
        following, kind = unpack(blob, inside)
        yield at + head_size, kind
        at = following & ~3
        count += 1
        if at == mark or count > MAX_OBJECTS:
            raise LayoutError(f"the garbage collector's list at {head:#x} does not come back to its head")
        if count >= marked:
            mark, marked = at, max(64, 2 * count)
