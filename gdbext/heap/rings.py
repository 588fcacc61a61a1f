"""The collector's lists of a stopped process, all of their objects at once, with numpy.

Following a list of ten million objects one by one takes seconds. Instead, this module reads the memory of the lists once, in
large pieces. It finds everything there that may be a tracked object: three words that fit, and a type that is one. Then it
follows the lists from many objects at the same time. A list is accepted only if it leads from its head through all of its objects
back to the head, just as when it is followed one by one. Any other list is left to cpython/gc.py.
"""

from __future__ import annotations

from typing import Any, Sequence

from ..cpython.types import TYPE
from .marks import CHUNK, PAGE, TOP, Places, blocks, distinct, runs_of
from .model import Heap
from .shapes import counted
from .words import Vector

GRAIN = 4  # log2 of the alignment of tracked objects
GRAINS = 1 << CHUNK - GRAIN
BATCH = 16  # chunks that are read at once
SPREAD = 32  # objects for each place that is followed from


class Rings:
    """The lists that begin at `heads`. `addresses` of possible tracked objects, sorted, and the numbers of their `types`."""

    def __init__(self, heap: Heap, reader: Vector, heads: Sequence[int]) -> None:
        self.heap, self.rt, self.reader, self.np, self.heads = heap, heap.rt, reader, reader.numpy, list(heads)
        L, np = self.rt.layout, self.np
        self._own, self._next = L["gc.head.__size"], L["gc.head._gc_next"] >> 3
        self._count, self._type = self._own >> 3, (self._own + L["object.ob_type"]) >> 3
        self._types = self._judged = np.zeros(0, dtype=np.int64)
        self._parts: dict[int, list[Any]] = {}  # by chunk: addresses of the links, next links, numbers of types
        self._scan()
        self.types = self._column(2, np.zeros(0, dtype=np.int32))
        self.addresses = self._column(0, np.zeros(0, dtype=np.int64))
        self._places = Places(np, self.addresses)
        self.addresses += self._own
        self._following = self._resolve(self._column(1, np.zeros(0, dtype=np.int64)))
        self._owners, self._ends = self._segments()

    def _column(self, number: int, empty: Any) -> Any:
        """One column of all chunks, in the order of addresses. Frees the chunks' own copies."""
        found = self.np.concatenate([empty, *(self._parts[chunk][number] for chunk in sorted(self._parts))])
        for part in self._parts.values():
            part[number] = None
        return found

    # ---- possible objects --------------------------------------------------------------------------------------------
    def _scan(self) -> None:
        """Reads the chunks to which the lists lead."""
        np = self.np
        first = np.array([self._first(head) for head in self.heads], dtype=np.int64)
        done: Any = np.zeros(0, dtype=np.int64)
        wanted = distinct(np, first[self.reader.mapped(first)] >> CHUNK)
        room = (1 << CHUNK - 3) + self._type + 1
        data = np.empty((BATCH, room), dtype=np.int64)
        while len(wanted):
            more = [wanted[:0]]
            for at in range(0, len(wanted), BATCH):
                if self.heap.clock.late("looking for objects: MiB", len(self._parts)):
                    return
                some = wanted[at : at + BATCH].tolist()
                for row, chunk in enumerate(some):
                    self.reader.read_into(data[row].view(np.uint8), chunk << CHUNK, 8 * room)
                more.append(self._note(some, [self._candidates(data[row], chunk) for row, chunk in enumerate(some)]))
            done = np.sort(np.concatenate([done, wanted]))
            wanted = distinct(np, np.concatenate(more))
            wanted = wanted[~np.isin(wanted, done)]

    def _first(self, head: int) -> int:
        return self.rt.target.u64(head + 8 * self._next) & ~3

    def _candidates(self, words: Any, chunk: int) -> tuple[Any, Any, Any]:
        """(addresses of the links, next links, types) of the possible tracked objects in one chunk."""
        np, count = self.np, 2 * GRAINS
        index = np.flatnonzero(counted(self.rt, words[self._count : self._count + count : 2]))
        at = 2 * index
        kinds, following = words.take(at + self._type), words.take(at + self._next)
        good = np.flatnonzero((kinds & 7 == 0) & _addresses(np, kinds) & _addresses(np, following))
        index, kinds, following = index.take(good), kinds.take(good), following.take(good) & ~3
        good = (following & ((1 << GRAIN) - 1) == 0) | np.isin(following, self.heads)
        return (chunk << CHUNK) + (index[good] << GRAIN), following[good], kinds[good]

    def _note(self, chunks: list[int], parts: list[tuple[Any, Any, Any]]) -> Any:
        """Keeps the objects whose type is a type; -> the chunks to which they lead."""
        np = self.np
        lead = []
        numbers = self._type_numbers(np.concatenate([kinds for _, _, kinds in parts]))
        ends = np.cumsum([len(kinds) for _, _, kinds in parts])
        for chunk, part, own in zip(chunks, parts, np.split(numbers, ends)):
            good = own >= 0
            self._parts[chunk] = [part[0][good], part[1][good], own[good]]
            lead.append(runs_of(np, self._parts[chunk][1] >> CHUNK))
        found = distinct(np, np.concatenate(lead))
        return found[self.reader.touches(found << CHUNK, 1 << CHUNK)]

    def _type_numbers(self, kinds: Any) -> Any:
        """The number of each type, -1 for anything else."""
        np = self.np
        found = self.heap.numbers.find(kinds)
        doubt = np.flatnonzero(found < 0)
        if len(doubt):
            unique, inverse = np.unique(kinds[doubt], return_inverse=True)
            numbers = np.full(len(unique), -1, dtype=np.int32)
            good = np.isin(unique, self._which_are_types(unique))
            numbers[good] = self.heap.numbers.of(unique[good])
            found[doubt] = numbers[inverse]
        return found

    def _which_are_types(self, addresses: Any) -> Any:
        """Those of sorted addresses at which a type lies: the type of its type must make types too."""
        np, L = self.np, self.rt.layout
        new = addresses[~np.isin(addresses, self._judged)]
        new = new[self.reader.mapped(new)]
        if len(new):
            self._judged = np.concatenate([self._judged, new])
            size, type_at, flags_at = L["type.__size"], L["object.ob_type"], L["type.tp_flags"]
            meta = self.reader.record(new, L["object.__size"]).word(type_at)
            unique = distinct(np, meta)
            unique = unique[self.reader.mapped(unique)]
            own = self.reader.record(unique, size)
            unique, again = unique[own.word(flags_at) & TYPE != 0], own.word(type_at)[own.word(flags_at) & TYPE != 0]
            makes = self.reader.mapped(again) & (self.reader.record(again, size).word(flags_at) & TYPE != 0)
            self._types = np.concatenate([self._types, new[np.isin(meta, unique[makes])]])
        return self._types

    # ---- links between objects ---------------------------------------------------------------------------------------
    def _resolve(self, following: Any) -> Any:
        """The index of each object's next one; -1 where it is unknown, -2 - i for the head i. If several lead to the same object,
        only the one counts to which that object leads back."""
        np = self.np
        found = self._places.find(following)
        for block in blocks(len(found)):
            apart = block.start + np.flatnonzero(found[block] < 0)
            for i, head in enumerate(self.heads):
                found[apart[following[apart] == head]] = -2 - i
        doubt = self._wanted_twice(found)
        if len(doubt):
            before = self.reader.record(self.addresses[doubt] - self._own, self._own).word(8 - 8 * self._next) & ~3
            wrong = np.flatnonzero(np.isin(found, doubt))
            back = before[np.searchsorted(doubt, found[wrong])]
            found[wrong[back != self.addresses[wrong] - self._own]] = -1
        return found

    def _wanted_twice(self, found: Any) -> Any:
        """The indexes, sorted, that follow several objects."""
        np = self.np
        last, twice = np.empty(len(found), dtype=np.int32), [found[:0]]
        for comparing in (False, True):
            for block in blocks(len(found)):
                own = np.flatnonzero(found[block] >= 0)
                wanted, by = found[block][own], (block.start + own).astype(np.int32)
                if comparing:
                    twice.append(wanted[last[wanted] != by])
                else:
                    last[wanted] = by
        return distinct(np, np.concatenate(twice))

    def _segments(self) -> tuple[Any, Any]:
        """Follows the lists from a part of the objects at once; -> (number of the starting place that leads to each object, the
        index at which each place's part ends)."""
        np, following = self.np, self._following
        count = len(following)
        first = self._places.find(np.array([self._first(head) for head in self.heads], dtype=np.int64))
        scattered = (np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B1)) < (1 << 32) // SPREAD
        scattered[first[first >= 0]] = True
        starts = np.flatnonzero(scattered)
        owners = np.full(count, -1, dtype=np.int32)
        ends = np.full(len(starts), -1, dtype=np.int32)
        own, at = np.arange(len(starts), dtype=np.int32), starts
        owners[starts] = own
        while len(own):
            at = following.take(at)
            inside = np.maximum(at, 0)
            on = (at >= 0) & ~scattered.take(inside) & (owners.take(inside) < 0)
            off, on = np.flatnonzero(~on), np.flatnonzero(on)
            ends[own.take(off)] = at.take(off)
            own, at = own.take(on), at.take(on)
            owners[at] = own
        self._numbers = np.full(count, -1, dtype=np.int32)
        self._numbers[starts] = np.arange(len(starts), dtype=np.int32)
        self._begin = first
        return owners, ends

    def ring(self, number: int) -> Any:
        """Indexes of the objects of one list, None where it does not lead back to its head."""
        np, closed = self.np, -2 - number
        if self._first(self.heads[number]) == self.heads[number]:
            return np.zeros(0, dtype=np.int64)
        at, chosen = int(self._begin[number]), np.zeros(len(self._ends), dtype=bool)
        ends, numbers = self._ends, self._numbers
        while at >= 0:
            part = int(numbers[at])
            if part < 0 or chosen[part]:
                return None
            chosen[part] = True
            at = int(ends[part])
        if at != closed:
            return None
        return np.flatnonzero(chosen[self._owners] & (self._owners >= 0))


def _addresses(np: Any, words: Any) -> Any:
    """A mask of the words that can be addresses."""
    return (words - PAGE).view(np.uint64) < TOP - PAGE
