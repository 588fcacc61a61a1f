"""Every container object of a process. CPython's garbage collector keeps all of them in linked lists, which this module walks.

Modules/gcmodule.c, Python/gc.c, pycore_gc.h: a PyGC_Head of two words stands before each tracked object. `_gc_next` links a ring
that begins in the generation's own head; its low two bits are the collector's marks. 3.9 to 3.15 keep three rings, and one for
the objects of gc.freeze(). Free-threaded builds have no rings.
"""

from __future__ import annotations

from typing import Any, Iterator, Sequence

from .. import log
from ..access.base import Target
from ..errors import FaultError, GdbextError, LayoutError
from .callees import callee
from .frames import PyFrame
from .runtime import Runtime

MAX_OBJECTS = 200_000_000
WINDOW = 16  # log2 of the bytes read at once
MAX_WINDOWS = 2048  # that are kept: 128 MiB
STRETCH = 1 << 16  # objects that are handed out at once
TRIES, RESTARTS = 4, 8  # attempts at one stretch of a changing list, and at the whole list


class Windows:
    """Memory in aligned windows of 64 KiB, each read once: for readers that touch many small objects."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.held: dict[int, bytes] = {}
        self.known: dict[int, Any] = {}  # as words

    def window(self, number: int) -> bytes:
        """The bytes from `number << WINDOW` on; none where a mapping begins or ends inside it."""
        held = self.held
        found = held.get(number)
        if found is None:
            try:
                found = self.target.read(number << WINDOW, 1 << WINDOW)
            except FaultError as e:
                log.passed_over(e)
                found = b""
            if len(held) >= MAX_WINDOWS:
                self.clear()
            held[number] = found
        return found

    def words(self, number: int) -> Any:
        """The same as unsigned words of 8 bytes."""
        found = self.known[number] = memoryview(self.window(number)).cast("Q")
        return found

    def clear(self) -> None:
        """Drops the windows that were read."""
        self.held.clear()
        self.known.clear()


def rings(rt: Runtime) -> list[int]:
    """Addresses of the heads of all rings of all interpreters. `GdbextError` for a build that has none."""
    L = rt.layout
    if L.free_threaded:
        raise GdbextError(f"Python {L.name} is free-threaded: its collector keeps no lists to walk")
    found = []
    for interp in rt.interpreters():
        found += [generation(rt, interp, i) + L["gcgen.head"] for i in range(3)]
        found.append(interp + L["interp.gc.permanent_generation"] + L["gcgen.head"])
    return found


def generation(rt: Runtime, interp: int, number: int) -> int:
    """The address of a generation, 0 to 2. It comes from the interpreter's pointer to the first one, where there is such a
    pointer: patch releases of 3.13 have moved the generations by four bytes.

    3.14.0 to 3.14.4 have no such pointer. The incremental collector's `young`, `old[0]`, `old[1]` lie there in the generations'
    place; gc.get_objects(2) gives the objects of both of the last two.
    """
    L = rt.layout
    if incremental(rt):
        first = interp + L["interp.gc.generations"]
    else:
        first = rt.target.u64(interp + L["interp.gc"] + L["gcstate.generation0"])
    return first + number * L["gcgen.__size"]


def incremental(rt: Runtime) -> bool:
    """Whether this is the incremental collector of 3.14.0 to 3.14.4."""
    return "gcstate.generation0" not in rt.layout


def collecting(rt: Runtime) -> bool:
    """Whether a collection is under way. Some objects are then on lists whose heads lie on the collector's C stack."""
    return any(rt.target.u32(interp + rt.layout["interp.gc.collecting"]) & 1 for interp in rt.interpreters())


def collects(frames: Sequence[PyFrame]) -> bool:
    """Whether the thread of these frames collects garbage, as far as Python frames show. Either a frame called `gc.collect` and
    waits for it, or the collector keeps a frame as the one that it interrupted (3.15). Before 3.15 no Python frame shows a
    collection that an allocation started."""
    try:
        if not frames or not collecting(frames[0].rt):
            return False
        rt = frames[0].rt
        key = "interp.gc.frame"
        kept = {rt.target.u64(interp + rt.layout[key]) for interp in rt.interpreters()} if key in rt.layout else set()
        return any(frame.address in kept or callee(frame).split(".") == ["gc", "collect"] for frame in frames)
    except GdbextError as e:
        log.passed_over(e)
        return False


def tracked(rt: Runtime) -> Iterator[tuple[int, int]]:
    """Yields (address, type's address) of every tracked object. Errors: those of `stretches`."""
    windows = Windows(rt.target)
    for head in rings(rt):
        for addresses, kinds in stretches(rt, head, windows):
            yield from zip(addresses, kinds)


def stretches(rt: Runtime, head: int, windows: Windows) -> Iterator[tuple[list[int], list[int]]]:
    """Yields ([addresses], [their types' addresses]) of the objects of the list that begins at `head`, about 0.3 us each.

    `LayoutError` where the list does not close, `FaultError` where it leads out of memory. In a running process each stretch is
    compared with the memory afterwards. It is walked again if an object came or went meanwhile, so objects may be yielded twice.
    """
    next_at, runs_on = rt.layout["gc.head._gc_next"], not rt.target.is_stopped
    before, at = head, rt.target.u64(head + next_at) & ~3
    count, length, mark, marked = 0, 64, 0, 0  # Brent's search for a cycle that does not lead through the head
    tries = restarts = 0
    while at != head:
        if count >= marked:
            mark, marked = at, 2 * count
        try:
            addresses, kinds, following = _stretch(rt, head, windows, at, mark, length)
            if runs_on:
                _compare(rt, head, windows, addresses, following)
            if following == mark or count + len(addresses) > MAX_OBJECTS:
                raise LayoutError(f"the garbage collector's list at {head:#x} does not come back to its head")
        except (LayoutError, FaultError) as e:
            log.passed_over(e)
            tries += 1
            if not runs_on or restarts == RESTARTS:
                raise
            length, mark = max(64, length >> 2), 0
            _forget(rt, windows)
            if tries % TRIES == 0:  # the object before this stretch was freed too: from the beginning
                before, count, marked, restarts = head, 0, 0, restarts + 1
            at = rt.target.u64(before + next_at) & ~3
            continue
        count, length, tries = count + len(addresses), min(2 * length, STRETCH), 0
        before, at = addresses[-1] - rt.layout["gc.head.__size"], following
        yield addresses, kinds


def _forget(rt: Runtime, windows: Windows) -> None:
    windows.clear()
    rt.target.drop_pages()


def _stretch(rt: Runtime, head: int, windows: Windows, at: int, mark: int, length: int) -> tuple[list[int], list[int], int]:
    """-> (addresses, types, next link) of at most `length` objects from the one whose links are at `at`."""
    L = rt.layout
    head_size, next_at, type_at = L["gc.head.__size"], L["gc.head._gc_next"], L["gc.head.__size"] + L["object.ob_type"]
    next_word, type_word, mask = next_at >> 3, type_at >> 3, (1 << WINDOW) - 1
    last = (1 << WINDOW - 3) - type_word  # the first word of an object that goes on in the next window
    known = windows.known
    addresses: list[int] = []
    kinds: list[int] = []
    for _ in range(length):
        words, place = known.get(at >> WINDOW), (at & mask) >> 3
        if words is None:
            if at < 4096:
                raise LayoutError(f"the garbage collector's list at {head:#x} leads to {at:#x}")
            words = windows.words(at >> WINDOW)
        addresses.append(at + head_size)
        if words and place < last and not at & 7:
            kinds.append(words[place + type_word])
            at = words[place + next_word] & ~3
        else:
            kinds.append(rt.target.u64(at + type_at))
            at = rt.target.u64(at + next_at) & ~3
        if at == head or at == mark:
            break
    return addresses, kinds, at


def _compare(rt: Runtime, head: int, windows: Windows, addresses: list[int], following: int) -> None:
    """`LayoutError` where the memory now says that these objects do not follow each other in the list at `head`."""
    _forget(rt, windows)
    own = rt.layout["gc.head.__size"]
    others = {h + own for h in rings(rt)} - {head + own}
    again = _stretch(rt, head, windows, addresses[0] - own, 0, len(addresses))
    if again[0] != addresses or again[2] != following or not others.isdisjoint(addresses):
        raise LayoutError(f"the garbage collector's list at {head:#x} changes while it is read")
