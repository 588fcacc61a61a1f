"""The Python stack of a running thread, read in one bulk read and kept as a node of a tree that all stacks share. It is for
samples that are taken a hundred times a second.

Since CPython 3.11 most frames lie one after the other in the chunk of memory that `_PyThreadState.datastack_chunk` names
(Python/pystate.c, push_chunk). This chunk is read whole. Frames of generators, entries from C and the frame objects of 3.9 and
3.10 lie elsewhere. They are read in the same bulk read, at the places where they were last.

The thread runs on meanwhile, and calls may come and go at the same addresses. So the inner end of the stack is read twice, one
reading right after the other, and one frame of it, the anchor, a first time before everything else:

* Each frame there but the innermost must be the same in both readings. A call lasts as long as what it calls, so a frame that
  was the same before and after belongs to the frame that was read in between.
* If the anchor was the same from first to last, then so was every frame outward of it.
* The innermost frame may change: to refuse that would count short calls too rarely. For the same reason the pointer to it, read
  before and after, may differ by one call or return.

A chain that does not end at its thread's root (`roots`) is torn too: it went through a frame that returned meanwhile.
"""

from __future__ import annotations

import struct
from typing import Any, Callable, Sequence

from .. import log
from ..access.remote_memory import BulkReader
from ..cpython.dialects import OWNED_BY_C
from ..cpython.runtime import Runtime
from ..cpython.whole_stacks import counted, counts_more
from ..errors import FaultError
from .codes import Codes, Stack, StackTree, TornError
from .roots import RootCodes, Roots

TRIES = 16  # at one stack in one sample
ALIKE = 3  # readings that prove a root where threads count more frames than they have
MAX_DEPTH = 4000
MAX_HINTS = 160  # places outside the chunk that are read with it
INNER, MAX_INNER = 6, 24  # frames at the inner end that are read twice; of those outside the chunk, also of the stacks before
MAX_PLACES = 900  # frames outside the chunk of one stack that are read at once
MAX_WINDOW = 1 << 20  # bytes of a chunk
SLACK = 1024  # bytes above the top of the chunk that are read too: the thread runs on
MAX_SPARE = 1 << 15  # bytes above the top, at most: after a deep stack the window shrinks again
MAX_KNOWN = 1_000_000  # words of the chains whose nodes are remembered: about 40 MiB


class GoneError(TornError):
    """The state of a thread that has ended."""


class MovedError(TornError):
    """A stack at other places than those that were read, which are known now."""


class DoubtError(TornError):
    """A stack that may be cut off at its outer end: it ends at a frame that is not known to be the thread's first."""


NOTHING = Stack(0, (), (), b"")


class ThreadPlaces:
    """Where the stack of one thread was last: the places that the next bulk read takes."""

    def __init__(self, tstate: int, ident: int) -> None:
        self.tstate, self.ident = tstate, ident  # ident: the pthread id in the thread's state
        self.cframe = 0
        self.window = (0, 0)  # of the chunk: first address, first after it
        self.cut = 0  # where the part of the chunk begins that is read twice
        self.anchor = 0  # the frame that is read before everything else; 0: everything is read twice
        self.hints: dict[int, int] = {}  # address outside the chunk: offset in what is read
        self.inner: dict[int, None] = {}  # those of them that are read twice
        self.ranges: list[int] = []
        self.total = 0
        self.offsets = (0, 0, 0, 0, 0)  # see `StackReader._plan`
        self.root: tuple[int, int] | None = None  # (frame, code) at which the chain that was read last ended
        self.anchored = False  # whether C called that frame, if a C stack frame shows it
        self.counted = False  # whether the chain has as many frames as the thread counts
        self.chain: list[int] = []  # that was read last
        self.ends: list[tuple[int, int]] = []  # (where C called Python, place in the chain after the outermost frame it called)
        self.stack = NOTHING  # that was read last; `NOTHING` if it was torn
        self.roots = Roots()

    def parts(self) -> list[tuple[int, list[int]]]:
        """The chain that was read last, by where C called Python; a frame that runs may be at any instruction."""
        starts = [0, *(end for _, end in self.ends)]
        return [(at, self.chain[start:end]) for (at, end), start in zip(self.ends, starts) if end > start]


class StackReader:
    """Reads the stacks of one process's threads. `torn` counts the torn reads; each was thrown away."""

    def __init__(self, rt: Runtime, bulk: BulkReader, tree: StackTree) -> None:
        L = rt.layout
        self.codes, self._bulk, self._tree, self._layout = Codes(rt, bulk, tree), bulk, tree, L
        self._counts_more: bool | None = None
        self.torn = 0
        self.root_codes = RootCodes()
        self._known: dict[Any, Stack] = {}
        self._known_words = 0
        self._version = self.codes.version
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
        `TornError` where each of `TRIES` reads was torn; `DoubtError` where they were not, but end at a root that is not known
        yet: `places.stack` is the stack then."""
        doubt: tuple[Stack, tuple[int, int]] | None = None
        for _ in range(TRIES):
            try:
                stack = self.resolved(self.chain(places))
                if self._whole(places, asleep):
                    places.stack = stack
                    return stack.node
                if places.root is not None:
                    doubt = stack, places.root
                self.torn += 1
            except MovedError as e:
                log.passed_over(e)
            except GoneError:
                raise
            except TornError as e:
                log.passed_over(e)
                self.torn += 1
            except FaultError as e:
                log.passed_over(e)
                self.torn += 1
                places.hints, places.inner, places.ranges = {}, {}, []
        places.stack = NOTHING
        if doubt is not None:
            places.stack, places.root = doubt
            raise DoubtError("the stack's root is not known")
        raise TornError("the stack changes faster than it can be read")

    def read_all(self, each: Sequence[ThreadPlaces], asleep: Callable[[], bool]) -> int:
        """As `read`, of a thread with a state in each of several interpreters (3.12 on). One interpreter calls another, so the
        places on the C stack from which C called Python give the order. The stack is that of the first."""
        if len(each) == 1:
            return self.read(each[0], asleep)
        for _ in range(TRIES):
            for places in each:
                self.read(places, asleep)
            parts = [part for places in each for part in places.parts()]
            try:
                self.chain(each[0])
                if [part for places in each for part in places.parts()] == parts:
                    stack = self.resolved([word for _, chain in sorted(parts) for word in chain])
                    each[0].stack = stack
                    return stack.node
            except (MovedError, FaultError) as e:
                log.passed_over(e)
        raise TornError("one interpreter's stack changes while the other's is read")

    def _whole(self, places: ThreadPlaces, asleep: Callable[[], bool]) -> bool:
        root, roots = places.root, places.roots
        if root is not None and root == roots.known:
            roots.seen()
            return True
        plain = root is not None and not self.codes.generates(root[1])
        if plain and root is not None and roots.known is None and self.root_codes.knows(root[1]):
            roots.known = root
            return True
        proven = roots.prove(root, self._alike(places), plain, asleep)
        if plain and root is not None:
            self.root_codes.seen(root[1], proven)
        return proven

    def _alike(self, places: ThreadPlaces) -> int:
        """How many readings prove a root without a span of time; 0 where none do."""
        if not places.anchored:
            return 0
        if places.counted:
            return 1 if places.roots.known is None else 2
        if self._counts_more is None:
            self._counts_more = counts_more(self._bulk.target)
        return ALIKE if self._counts_more else 0

    def chain_all(self, each: Sequence[ThreadPlaces]) -> list[int]:
        """As `chain`, of the states of a thread that is paused."""
        chains = [self.chain(places) for places in each]
        parts = [part for places in each for part in places.parts()]
        return chains[0] if len(each) == 1 else [word for _, chain in sorted(parts) for word in chain]

    def resolved(self, chain: list[int]) -> Stack:
        """The stack of a chain, as its code objects are now; `MovedError` where they are others than a moment ago."""
        stack = self._stack(chain)
        replaced = self.codes.replaced(stack)
        if replaced:
            self.root_codes.forget(replaced)
            raise MovedError("a code object that was replaced")
        return stack

    # ---- one bulk read -------------------------------------------------------------------------------------------
    def _plan(self, places: ThreadPlaces) -> None:
        """What is read, in this order: the anchor; the outer part of the chunk, and what lies apart; the thread's state; the
        inner frames that lie apart, the inner part of the chunk; those two parts again, in the other order; the state again.
        `offsets`: of the outer part of the chunk, of the state, of the inner part, and from the first reading to the second of
        that and of what lies apart."""
        (low, high), size, head = places.window, self._size, self._head_size
        cut = places.cut if low <= places.cut < high else low
        places.cut = cut
        inner = [a for a in places.hints if a in places.inner]
        outer = [a for a in places.hints if a not in places.inner]
        first: list[int] = [places.anchor, size] if places.anchor else []
        at = len(first) // 2 * size
        below = at - low
        if cut > low:  # a frame may begin below the cut and end above it
            end = min(cut + size, high)
            first += [low, end - low]
            at += end - low
        for address in outer:
            places.hints[address] = at
            first += [address, size]
            at += size
        state = [places.tstate, head]
        frame = [places.cframe or places.tstate, 24] if self._cframe_at is not None else []
        begin, chunk = at + head + sum(frame[1::2]), [cut, high - cut] if high > cut else []
        apart = [n for address in inner for n in (address, size)]
        for number, address in enumerate(inner):
            places.hints[address] = begin + number * size
        top = begin + len(inner) * size
        again, second = high - cut, len(inner) * size + 2 * (high - cut)  # from the first reading to the second
        places.offsets = below, at, top, again, second
        places.ranges = first + state + frame + apart + chunk + chunk + apart + frame + state
        places.total = sum(places.ranges[1::2])

    def chain(self, places: ThreadPlaces) -> list[int]:
        """[code, instruction, owner of each frame, innermost first] by one bulk read; `TornError` where the read was torn,
        `MovedError` where the stack is at places that were not read."""
        if not places.ranges:
            self._plan(places)
        data = self._bulk.read_ranges(places.ranges, places.total)
        if not self._covers(places, data):  # the first time, or the stack has moved on: the places are new
            self._plan(places)
            data = self._bulk.read_ranges(places.ranges, places.total)
            if not self._covers(places, data):
                raise TornError("the stack moves")
        tail, state = len(data) - self._head_size, places.offsets[1]
        if self._cframe_at is not None:
            start = self._word(data, state + self._head_size + self._start_at)[0]
            end = self._word(data, tail - 24 + self._start_at)[0]
            if self._word(data, tail + self._cframe_at)[0] != places.cframe:
                raise TornError("the stack moves")
        else:
            start, end = self._word(data, state + self._start_at)[0], self._word(data, tail + self._start_at)[0]
        chain, caller = self._walk(places, data, start)
        count = counted(self._layout, data[state : state + self._head_size])
        places.counted = count == len(chain) // 3
        if end not in (start, caller) and (not end or self._caller(end) != start):
            raise TornError("the stack moves")
        return chain

    def _caller(self, at: int) -> int:
        return int(self._frame(self._bulk.read(at, self._size))[self._back_word])

    def _covers(self, places: ThreadPlaces, data: bytes) -> bool:
        """Whether the planned places are those that the thread's state names now; if not, they are corrected."""
        good, state = True, places.offsets[1]
        if self._word(data, state + self._id_at)[0] != places.ident:
            raise GoneError("the thread has ended")
        if self._cframe_at is not None:
            cframe = self._word(data, state + self._cframe_at)[0]
            if cframe != places.cframe:
                places.cframe, good = cframe, False
        if self._chunk_at is not None:
            chunk, top, limit = struct.unpack_from("<3Q", data, state + self._chunk_at)
            low, high = places.window
            wanted = max(chunk, min(top, chunk + MAX_WINDOW))
            if chunk != low or not wanted <= high <= wanted + MAX_SPARE:
                places.window, good = (chunk, max(wanted, min((wanted + 2 * SLACK) & -SLACK, limit))), False
        return good

    def _walk(self, places: ThreadPlaces, data: bytes, start: int) -> tuple[list[int], int]:
        """-> ([code, instruction, owner, of each frame, innermost first], the address of the frame that called the first)."""
        (low, high), cut, hints, inner = places.window, places.cut, places.hints, places.inner
        below, _, top, again, second = places.offsets
        above, last, size, frame = top - cut, high - self._size, self._size, self._frame
        code, back, instruction = self._code_word, self._back_word, self._at_word
        chain: list[int] = []
        path: list[int] = []  # of all frames: address, offset, whether it was read twice
        segments: list[tuple[int, int]] = []
        missed: list[int] = []
        owner, owner_at, objects = 0, self._owner_at, self._objects
        at, root = start, 0
        while at:
            if len(path) >= 3 * MAX_DEPTH:
                raise TornError("a stack without an end")
            blob, twice = data, False
            if cut <= at <= last:
                offset, twice = at + above, True
            elif low <= at < cut:
                offset = at + below
            elif at in hints:
                offset, twice = hints[at], at in inner
            else:
                missed.append(at)
                blob, offset = self._bulk.read(at, size), 0
            words = frame(blob, offset)
            if twice and path:
                other = frame(data, offset + (again if cut <= at <= last else second))
                if other[code] != words[code] or other[back] != words[back] or other[instruction] != words[instruction]:
                    raise TornError("a call that ended while it was read")
            if not objects:
                owner = blob[offset + owner_at]
            if owner < OWNED_BY_C:
                chain += (words[code] & self._untag, words[instruction], owner)
                root = at
            else:
                segments.append((at, len(chain)))
            path += (at, offset, twice)
            at = words[back]
        places.root, places.anchored = (root, chain[-3]) if chain else None, owner >= OWNED_BY_C
        places.chain, places.ends = chain, segments
        if missed and len(path) <= 3 * MAX_PLACES:
            self._aim(places, path, missed)
            raise MovedError("the stack is at other places")
        if path and self._aims_badly(places, data, path):
            self._aim(places, path, missed)
            raise MovedError("the stack is at other places")
        if not places.anchor and len(path) > 6 * INNER:
            self._aim(places, path, missed)  # the outer end need not be read twice
        if len(path) > 3 and path[2] and path[5] and path[1] < path[4]:  # its caller was read once after it, so it has to last
            words, other = frame(data, path[1]), frame(data, path[1] + (again if cut <= start <= last else second))
            if words[code] != other[code] or words[back] != other[back]:
                raise TornError("a call that ended while it was read")
        return chain, path[3] if len(path) > 3 else 0

    def _aims_badly(self, places: ThreadPlaces, data: bytes, path: list[int]) -> bool:
        """Whether too little of the inner end was read twice, or the anchor is not of this stack; `TornError` where the anchor
        changed meanwhile."""
        if len(path) > 3 and not path[5]:
            return True
        if all(path[2::3]):
            return False
        if not places.anchor or places.anchor not in path[::3]:
            return True
        number = 3 * path[::3].index(places.anchor)
        if not all(path[2 : number + 3 : 3]):
            return True
        first, then = self._frame(data, 0), self._frame(data, path[number + 1])
        words = (self._code_word, self._back_word) if not number else (self._code_word, self._back_word, self._at_word)
        if any(first[word] != then[word] for word in words):
            raise TornError("a call that ended while it was read")
        return False

    def _aim(self, places: ThreadPlaces, path: list[int], missed: list[int]) -> None:
        """Plans the next read for a stack as it was now."""
        (low, high), hints, inner = places.window, places.hints, places.inner
        here = path[: 3 * INNER : 3]
        if len(hints) + len(missed) > MAX_HINTS:
            hints.clear()
            hints.update(dict.fromkeys([a for a in path[::3] if not low <= a <= high - self._size][:MAX_PLACES], 0))
        hints.update(dict.fromkeys(missed, 0))
        for address in here:
            if address in hints:
                inner.pop(address, None)
                inner[address] = None
        for address in list(inner)[:-MAX_INNER]:
            del inner[address]
        inside = [a for a in here if low <= a < high]
        places.cut = min(inside, default=high) if len(path) > 3 * INNER else low
        places.anchor = here[-1] if len(path) > 3 * INNER else 0
        places.ranges = []

    def _stack(self, chain: list[int]) -> Stack:
        if self._version != self.codes.version:  # some names are those of other code objects now
            self._version = self.codes.version
            self._known.clear()
            self._known_words = 0
        key = tuple(chain)
        stack = self._known.get(key)
        if stack is not None:
            return stack
        node, frame, child = 0, self.codes.frame, self._tree.child
        for i in range(len(chain) - 3, -1, -3):
            number = frame(chain[i], chain[i + 1], chain[i + 2])
            if number >= 0:
                node = child(node, number)
        self.root_codes.called(chain[:-3:3])
        if self._known_words >= MAX_KNOWN:
            self._known.clear()
            self._known_words = 0
        stack = self._known[key] = self.codes.stack(node, chain[::3])
        self._known_words += len(key)
        return stack
