"""The code objects of a process that is sampled, and the stacks that they name.

A code object is known by its address, and another may come to lie there: what `exec` runs, what a module defines when it is
loaded again. So after each sample the memory of all code objects of the stack is compared with what is known of them. They were
the same before and after the stack was read: no frame is named by a code object that is gone.
"""

from __future__ import annotations

from typing import Protocol, Sequence

from .. import log
from ..access.ptrace import IOV_MAX
from ..access.remote_memory import BulkReader
from ..cpython.dialects import OWNED_BY_GENERATOR
from ..cpython.frames import Code
from ..cpython.runtime import Runtime
from ..cpython.whole_stacks import GENERATES
from ..errors import FaultError, GdbextError


class StackTree(Protocol):
    """What keeps the stacks, each as a node that shares its outer calls with others."""

    def frame(self, function: str, file: str, line: int) -> int:
        """The number of a frame."""

    def child(self, node: int, frame: int) -> int:
        """The node of the stack of `node` that calls `frame`."""


MAX_CODES = 100_000


class TornError(GdbextError):
    """A stack that changed while it was read."""


class Stack:
    """A stack that was read: its `node` in the tree, the addresses of its `codes`, and the ranges of memory (`watched`) that have
    the bytes `expected` as long as these are the same code objects."""

    __slots__ = ("node", "codes", "watched", "expected")

    def __init__(self, node: int, codes: Sequence[int], watched: Sequence[int], expected: bytes) -> None:
        self.node, self.codes, self.watched, self.expected = node, codes, watched, expected


class Codes:
    """The code objects of one process by address."""

    def __init__(self, rt: Runtime, bulk: BulkReader, tree: StackTree) -> None:
        self._rt, self._bulk, self._tree = rt, bulk, tree
        L = rt.layout
        names = [L["code.co_filename"], L["code.co_name"], L[rt.dialect.table_key]]
        self._fields = [L["object.ob_type"], *names]
        self._names = min(names), max(names) + 8 - min(names)  # they stay what they are while it lives
        self._size = max(*self._fields, L["code.co_firstlineno"]) + 8
        self._first, self._code_at = L["code.co_firstlineno"], L.get("code.co_code_adaptive")
        self._traceable = L.get("code._co_firsttraceable")
        self._length = L["varobj.ob_size"]
        self._scale = 2 if rt.version == (3, 10) else 1
        self._known: dict[int, _Entry] = {}
        self.version = 0  # counts the code objects that were forgotten: stacks may have other names since then

    def frame(self, address: int, at: int, owner: int) -> int:
        """The number in the tree of the frame with the code object at `address` and the instruction pointer `at`; -1 for a frame
        that Python does not show yet. `TornError` where no code object is there, or `at` lies outside it."""
        entry = self._known.get(address) or self._new(address)
        number = entry.frames.get(at)
        if number is not None:
            return number if number >= 0 or owner != OWNED_BY_GENERATOR else self._number(entry, at, owner)
        return self._number(entry, at, owner)

    def _number(self, entry: _Entry, at: int, owner: int) -> int:
        lasti = at - entry.start if self._code_at is not None else _signed(at & 0xFFFFFFFF) * self._scale
        if not -2 <= lasti <= entry.size:
            if not self._rt.layout.free_threaded:  # those may run a copy of the code that belongs to the thread
                self.forget([entry.code.address])  # perhaps another one lies there by now
                raise TornError("an instruction outside its code")
            lasti = entry.first_shown
        if lasti < entry.first_shown and owner != OWNED_BY_GENERATOR:
            entry.frames[at] = -1
            return -1
        try:
            line = entry.code.line(lasti)
        except GdbextError:
            raise TornError("a line table that changed") from None
        number = self._tree.frame(entry.code.qualname, entry.code.file, line or 0)
        if lasti >= entry.first_shown:
            entry.frames[at] = number
        return number

    def _new(self, address: int) -> _Entry:
        if len(self._known) >= MAX_CODES:
            self._known.clear()
        entry = self._known[address] = self._load(address)
        return entry

    def _load(self, address: int) -> _Entry:
        self._rt.target.drop_pages()
        try:
            before = self._bulk.read(address, self._size)
            code = Code(self._rt, address)
            code.table  # noqa: B018  (read now: it belongs to this code object)
            size, shown = 1 << 24, 0
            if self._code_at is not None:
                size = 2 * self._rt.target.u64(address + self._length)
            if self._traceable is not None:
                shown = 2 * self._rt.target.i32(address + self._traceable)
            after = self._bulk.read(address, self._size)
        except (GdbextError, UnicodeError) as e:
            raise TornError(str(e)) from None
        if self._key(before) != self._key(after):
            raise TornError("a code object that changed")
        names = before[self._names[0] : sum(self._names)]
        return _Entry(code, names, size, shown, address + (self._code_at or 0))

    def _key(self, head: bytes) -> bytes:
        return b"".join([head[at : at + 8] for at in self._fields] + [head[self._first : self._first + 4]])

    def generates(self, address: int) -> bool:
        """Whether the code object at `address` is a generator's or a coroutine's. `TornError` as in `frame`."""
        entry = self._known.get(address) or self._new(address)
        return bool(entry.code.flags & GENERATES)

    # ---- whether they are what they were -------------------------------------------------------------------------
    def stack(self, node: int, addresses: Sequence[int]) -> Stack:
        """The stack `node`, named by the code objects at `addresses`, which were asked for."""
        (start, size), codes = self._names, list(dict.fromkeys(addresses))
        known = [self._known[a].names for a in codes if a in self._known]
        if len(known) != len(codes):
            raise TornError("too many code objects")
        return Stack(node, codes, [n for a in codes for n in (a + start, size)], b"".join(known))

    def replaced(self, stack: Stack) -> list[int]:
        """The addresses at which others lie now than those that named a stack. They are forgotten."""
        try:
            if self._same(stack.watched, stack.expected):
                return []
        except FaultError as e:
            log.passed_over(e)
        found = [a for a in stack.codes if not self._is_same(a)]
        self.forget(found)
        return found

    def _same(self, watched: Sequence[int], expected: bytes) -> bool:
        size = self._names[1]
        for i in range(0, len(watched), 2 * IOV_MAX):
            part, at = watched[i : i + 2 * IOV_MAX], i // 2 * size
            total = len(part) // 2 * size
            if self._bulk.read_ranges(part, total) != expected[at : at + total]:
                return False
        return True

    def _is_same(self, address: int) -> bool:
        entry, (start, size) = self._known.get(address), self._names
        try:
            return entry is not None and self._bulk.read(address + start, size) == entry.names
        except FaultError as e:
            log.passed_over(e)
            return False

    def forget(self, addresses: Sequence[int]) -> None:
        """Forgets the code objects at `addresses`: others lie there by now."""
        for address in addresses:
            self.version += 1
            self._known.pop(address, None)


class _Entry:
    __slots__ = ("code", "names", "size", "first_shown", "start", "frames")

    def __init__(self, code: Code, names: bytes, size: int, first_shown: int, start: int) -> None:
        self.code, self.names, self.size, self.first_shown, self.start = code, names, size, first_shown, start
        self.frames: dict[int, int] = {}  # by instruction; -1: not shown


def _signed(word: int) -> int:
    return word - (1 << 32) if word & 1 << 31 else word
