"""The Python stack of a running thread, read in one bulk read and kept as a node of a tree that all stacks share. It is for
samples that are taken a hundred times a second.

Since CPython 3.11 most frames lie one after the other in the chunk of memory that `_PyThreadState.datastack_chunk` names
(Python/pystate.c, push_chunk). This chunk is read whole. Frames of generators, entries from C and the frame objects of 3.9 and
3.10 lie elsewhere. They are read in the same bulk read, at the places where they were last.

The pointer to the innermost frame is read first and last. The stack is torn if there was more than one call or return between the
two reads, or if the chain leads to something that is no frame. A single call or return does not tear it: the frames below stayed
the same, and to refuse it would count short calls too rarely. A chain that does not end at its thread's root (`roots`) is torn
too: it went through a frame that returned meanwhile.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from .. import log
from ..access.ptrace import IOV_MAX
from ..cpython.dialects import OWNED_BY_C, OWNED_BY_GENERATOR
from ..cpython.frames import Code
from ..cpython.whole_stacks import GENERATES, counted, counts_more
from ..errors import FaultError, GdbextError
from .roots import Roots

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from ..access.bulk import BulkReader
    from ..cpython.runtime import Runtime

    class StackTree(Protocol):
        """What keeps the stacks, each as a node that shares its outer calls with others."""

        def frame(self, function: str, file: str, line: int) -> int:
            """The number of a frame."""

        def child(self, node: int, frame: int) -> int:
            """The node of the stack of `node` that calls `frame`."""


TRIES = 16  # at one stack in one sample
ALIKE = 3  # readings that prove a root where threads count more frames than they have
MAX_DEPTH = 4000
MAX_HINTS = 160  # places outside the chunk that are read with it
MAX_WINDOW = 1 << 20  # bytes of a chunk
SLACK = 1024  # bytes above the top of the chunk that are read too: the thread runs on
MAX_SPARE = 1 << 15  # bytes above the top, at most: after a deep stack the window shrinks again
MAX_CODES = 100_000
MAX_KNOWN = 1_000_000  # words of the chains whose nodes are remembered: about 40 MiB


class TornError(GdbextError):
    """A stack that changed while it was read."""


class GoneError(TornError):
    """The state of a thread that has ended."""


class Codes:
    """The code objects of one process by address. `changed` finds an address whose code object was freed and replaced."""

    def __init__(self, rt: Runtime, bulk: BulkReader, tree: StackTree) -> None:
        self._rt, self._bulk, self._tree = rt, bulk, tree
        L = rt.layout
        self._fields = [L["object.ob_type"], L["code.co_filename"], L["code.co_name"], L[rt.dialect.table_key]]
        self._size = max(*self._fields, L["code.co_firstlineno"]) + 8
        self._first, self._code_at = L["code.co_firstlineno"], L.get("code.co_code_adaptive")
        self._traceable = L.get("code._co_firsttraceable")
        self._length = L["varobj.ob_size"]
        self._scale = 2 if rt.version == (3, 10) else 1
        self._known: dict[int, _Entry] = {}
        self.used: set[int] = set()  # since `changed` was asked last

    def frame(self, address: int, at: int, owner: int) -> int:
        """The number in the tree of the frame with the code object at `address` and the instruction pointer `at`; -1 for a frame
        that Python does not show yet. `TornError` where no code object is there, or `at` lies outside it."""
        entry = self._known.get(address) or self._new(address)
        self.used.add(address)
        number = entry.frames.get(at)
        if number is not None:
            return number if number >= 0 or owner != OWNED_BY_GENERATOR else self._number(entry, at, owner)
        return self._number(entry, at, owner)

    def _number(self, entry: _Entry, at: int, owner: int) -> int:
        lasti = at - entry.start if self._code_at is not None else _signed(at & 0xFFFFFFFF) * self._scale
        if not -2 <= lasti <= entry.size:
            if not self._rt.layout.free_threaded:  # those may run a copy of the code that belongs to the thread
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
            self.used.clear()
        entry = self._known[address] = self._load(address)
        return entry

    def _load(self, address: int) -> _Entry:
        self._rt.target.drop_pages()
        try:
            before = self._key(self._bulk.read(address, self._size))
            code = Code(self._rt, address)
            code.table  # noqa: B018  (read now: it belongs to this code object)
            size, shown = 1 << 24, 0
            if self._code_at is not None:
                size = 2 * self._rt.target.u64(address + self._length)
            if self._traceable is not None:
                shown = 2 * self._rt.target.i32(address + self._traceable)
            after = self._key(self._bulk.read(address, self._size))
        except (GdbextError, UnicodeError) as e:
            raise TornError(str(e)) from None
        if before != after:
            raise TornError("a code object that changed")
        return _Entry(code, before, size, shown, address + (self._code_at or 0))

    def _key(self, head: bytes) -> bytes:
        return b"".join([head[at : at + 8] for at in self._fields] + [head[self._first : self._first + 4]])

    def generates(self, address: int) -> bool:
        """Whether the code object at `address` is a generator's or a coroutine's. `TornError` as in `frame`."""
        entry = self._known.get(address) or self._new(address)
        self.used.add(address)
        return bool(entry.code.flags & GENERATES)

    def changed(self) -> set[int]:
        """Addresses at which a code object was replaced by something else, of those used since the last call. They are
        forgotten."""
        used = list(self.used)
        self.used = set()
        found = set()
        for i in range(0, len(used), IOV_MAX):
            part = used[i : i + IOV_MAX]
            try:
                data = self._bulk.read_ranges([n for a in part for n in (a, self._size)], self._size * len(part))
                heads = [data[k * self._size : (k + 1) * self._size] for k in range(len(part))]
            except FaultError as e:
                log.passed_over(e)
                heads = [self._head(a) for a in part]
            found |= {a for a, head in zip(part, heads) if not head or self._key(head) != self._known[a].key}
        for address in found:
            del self._known[address]
        return found

    def _head(self, address: int) -> bytes:
        try:
            return self._bulk.read(address, self._size)
        except FaultError as e:
            log.passed_over(e)
            return b""


class _Entry:
    __slots__ = ("code", "key", "size", "first_shown", "start", "frames")

    def __init__(self, code: Code, key: bytes, size: int, first_shown: int, start: int) -> None:
        self.code, self.key, self.size, self.first_shown, self.start = code, key, size, first_shown, start
        self.frames: dict[int, int] = {}  # by instruction; -1: not shown


def _signed(word: int) -> int:
    return word - (1 << 32) if word & 1 << 31 else word


class ThreadPlaces:
    """Where the stack of one thread was last: the places that the next bulk read takes."""

    def __init__(self, tstate: int, ident: int) -> None:
        self.tstate, self.ident = tstate, ident  # ident: the pthread id in the thread's state
        self.cframe = 0
        self.window = (0, 0)  # of the chunk: first address, first after it
        self.hints: dict[int, int] = {}  # address: offset in what is read
        self.ranges: list[int] = []
        self.total = 0
        self.root: tuple[int, int] | None = None  # (frame, code) at which the chain that was read last ended
        self.anchored = False  # whether C called that frame, if a C stack frame shows it
        self.counted = False  # whether the chain has as many frames as the thread counts
        self.roots = Roots()


class StackReader:
    """Reads the stacks of one process's threads. `torn` counts the torn reads; each was thrown away."""

    def __init__(self, rt: Runtime, bulk: BulkReader, tree: StackTree) -> None:
        L = rt.layout
        self.codes, self._bulk, self._tree, self._layout = Codes(rt, bulk, tree), bulk, tree, L
        self._counts_more: bool | None = None
        self.torn = 0
        self._known: dict[Any, int] = {}
        self._known_words = 0
        self._head_size = L["tstate.__size"]
        self._id_at = L["tstate.thread_id"]
        self._cframe_at = L["tstate.cframe"] if "cframe.current_frame" in L else None
        self._objects = "frameobj.f_lasti" in L
        self._chunk_at = L.get("tstate.datastack_chunk")
        if self._objects:
            self._start_at = L["tstate.frame"]
            fields = [L.frame_code, L["frameobj.f_back"], L["frameobj.f_lasti"], 0]
            self._size = (max(fields) + 15) & ~7
        else:
            self._start_at = L["cframe.current_frame"] if self._cframe_at is not None else L["tstate.current_frame"]
            fields = [L.frame_code, L["iframe.previous"], L.frame_instruction, L["iframe.owner"]]
            self._size = (L["iframe.__size"] + 7) & ~7
        self._code_word, self._back_word, self._at_word = (n // 8 for n in fields[:3])
        self._owner_at = fields[3]
        self._frame = struct.Struct(f"<{self._size // 8}Q").unpack_from
        self._untag = ~rt.dialect.tag_mask
        self._word = struct.Struct("<Q").unpack_from

    def read(self, places: ThreadPlaces, asleep: Callable[[], bool] = lambda: False) -> int:
        """The node of a thread's stack, 0 where it runs no Python. `asleep()`: whether the thread slept during the whole read.
        `TornError` where each of `TRIES` reads was torn."""
        for _ in range(TRIES):
            try:
                chain = self.chain(places)
                if self._whole(places, asleep):
                    return self._node(chain)
                self.torn += 1
            except GoneError:
                raise
            except TornError as e:
                log.passed_over(e)
                self.torn += 1
            except FaultError as e:
                log.passed_over(e)
                self.torn += 1
                places.hints, places.ranges = {}, []
        raise TornError("the stack changes faster than it can be read")

    def _whole(self, places: ThreadPlaces, asleep: Callable[[], bool]) -> bool:
        root, roots = places.root, places.roots
        if root is not None and root == roots.known:
            roots.seen()
            return True
        plain = root is not None and not self.codes.generates(root[1])
        return roots.prove(root, self._alike(places), plain, asleep)

    def _alike(self, places: ThreadPlaces) -> int:
        """How many readings prove a root without a span of time; 0 where none do."""
        if not places.anchored:
            return 0
        if places.counted:
            return 1 if places.roots.known is None else 2
        if self._counts_more is None:
            self._counts_more = counts_more(self._bulk.target)
        return ALIKE if self._counts_more else 0

    def forget(self) -> set[int]:
        """Checks the code objects that were used. -> the addresses at which others are now; their chains are forgotten."""
        changed = self.codes.changed()
        if changed:
            self._known.clear()
            self._known_words = 0
        return changed

    # ---- one bulk read -------------------------------------------------------------------------------------------
    def _plan(self, places: ThreadPlaces) -> None:
        low, high = places.window
        ranges = [places.tstate, self._head_size]
        if self._cframe_at is not None:
            ranges += [places.cframe or places.tstate, 24]
        at = sum(ranges[1::2])
        if high > low:
            ranges += [low, high - low]
            at += high - low
        for address in places.hints:
            places.hints[address] = at
            ranges += [address, self._size]
            at += self._size
        if self._cframe_at is not None:
            ranges += [places.cframe or places.tstate, 24]
        ranges += [places.tstate, self._head_size]
        places.ranges, places.total = ranges, sum(ranges[1::2])

    def chain(self, places: ThreadPlaces) -> list[int]:
        """[code, instruction, owner of each frame, innermost first] by one bulk read; `TornError` where the read was torn."""
        if not places.ranges:
            self._plan(places)
        data = self._bulk.read_ranges(places.ranges, places.total)
        if not self._covers(places, data):  # the first time, or the stack has moved on: the places are new
            self._plan(places)
            data = self._bulk.read_ranges(places.ranges, places.total)
            if not self._covers(places, data):
                raise TornError("the stack moves")
        tail = len(data) - self._head_size
        if self._cframe_at is not None:
            start, end = (self._word(data, self._head_size + self._start_at)[0], self._word(data, tail - 24 + self._start_at)[0])
            if self._word(data, tail + self._cframe_at)[0] != places.cframe:
                raise TornError("the stack moves")
        else:
            start, end = self._word(data, self._start_at)[0], self._word(data, tail + self._start_at)[0]
        chain, caller, missed = self._walk(places, data, start)
        places.counted = counted(self._layout, data) == len(chain) // 3
        if missed:
            end = self._start_now(places)
        if end not in (start, caller) and (not end or self._caller(end) != start):
            raise TornError("the stack moves")
        return chain

    def _caller(self, at: int) -> int:
        return int(self._frame(self._bulk.read(at, self._size))[self._back_word])

    def _covers(self, places: ThreadPlaces, data: bytes) -> bool:
        """Whether the planned places are those that the thread's state names now; if not, they are corrected."""
        good = True
        if self._word(data, self._id_at)[0] != places.ident:
            raise GoneError("the thread has ended")
        if self._cframe_at is not None:
            cframe = self._word(data, self._cframe_at)[0]
            if cframe != places.cframe:
                places.cframe, good = cframe, False
        if self._chunk_at is not None:
            chunk, top, limit = struct.unpack_from("<3Q", data, self._chunk_at)
            low, high = places.window
            wanted = max(chunk, min(top, chunk + MAX_WINDOW))
            if chunk != low or not wanted <= high <= wanted + MAX_SPARE:
                places.window, good = (chunk, max(wanted, min((wanted + 2 * SLACK) & -SLACK, limit))), False
        return good

    def _start_now(self, places: ThreadPlaces) -> int:
        if self._cframe_at is None:
            return int(self._word(self._bulk.read(places.tstate + self._start_at, 8))[0])
        if self._word(self._bulk.read(places.tstate + self._cframe_at, 8))[0] != places.cframe:
            return -1
        return int(self._word(self._bulk.read(places.cframe + self._start_at, 8))[0])

    def _walk(self, places: ThreadPlaces, data: bytes, at: int) -> tuple[list[int], int, bool]:
        """-> ([code, instruction, owner, of each frame, innermost first], the address of the frame that called the first,
        whether some were not in the bulk read)."""
        low, high = places.window
        base = self._head_size + (24 if self._cframe_at is not None else 0) - low
        last, size, frame, hints = high - self._size, self._size, self._frame, places.hints
        chain: list[int] = []
        missed: list[int] = []
        owner, owner_at, objects = 0, self._owner_at, self._objects
        caller, root = -1, 0
        for _ in range(MAX_DEPTH):
            if not at:
                break
            if low <= at <= last:
                blob, offset = data, at + base
            elif at in hints:
                blob, offset = data, hints[at]
            else:
                missed.append(at)
                blob, offset = self._bulk.read(at, size), 0
            words = frame(blob, offset)
            if not objects:
                owner = blob[offset + owner_at]
            if owner < OWNED_BY_C:
                chain += (words[self._code_word] & self._untag, words[self._at_word], owner)
                root = at
            at = words[self._back_word]
            if caller < 0:
                caller = at
        else:
            raise TornError("a stack without an end")
        places.root, places.anchored = (root, chain[-3]) if chain else None, owner >= OWNED_BY_C
        if missed:
            if len(hints) + len(missed) > MAX_HINTS:
                hints.clear()
            hints.update(dict.fromkeys(missed[:MAX_HINTS], 0))
            places.ranges = []
        return chain, caller, bool(missed)

    def _node(self, chain: list[int]) -> int:
        key = tuple(chain)
        node = self._known.get(key)
        if node is not None:
            return node
        node, frame, child = 0, self.codes.frame, self._tree.child
        for i in range(len(chain) - 3, -1, -3):
            number = frame(chain[i], chain[i + 1], chain[i + 2])
            if number >= 0:
                node = child(node, number)
        if self._known_words >= MAX_KNOWN:
            self._known.clear()
            self._known_words = 0
        self._known[key] = node
        self._known_words += len(key)
        return node
