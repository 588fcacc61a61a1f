"""Reads many Python objects of one class as columns: a million of them in a few large reads and slices, without an `Object` for
each.

Objects made one after the other lie in memory at equal distances, in runs as long as an allocator's page. So do the objects that
they point to. A run is sliced out of a large read in one step.
"""

from __future__ import annotations

import array
import functools
import itertools
import operator
from itertools import chain, compress, repeat
from typing import Iterable, Iterator, Sequence, Tuple

from .. import log
from ..cpython.runtime import Runtime
from ..cpython.types import TypeInfo, named
from ..errors import FaultError, GdbextError, LayoutError, NotFoundError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..access.base import Target
Run = Tuple[int, int, int]  # first address, count, distance
Piece = Tuple[int, memoryview]  # base address, its words

GAP = 1 << 15  # bytes: pieces nearer than this are read in one
PIECE = 1 << 20
FAR = 1 << 12  # bytes: no allocator lays objects of one kind further apart
MAX_NAME = 256
MAX_KEYS = 1 << 14  # bytes of a dict's table of keys that are searched
MAX_EXTENT = 1 << 12  # bytes of each of them that are read at once
SHORT_TEXT = 48  # characters of strs that are read in one go: ids of requests
FEW = 64  # objects that are read one by one
KINDS = 8  # forms of the dicts of one class's objects
SMALL = 64  # ints of more digits are no counter


class Columns:
    """`size` bytes at each of `addresses` (multiples of 8, any order). The objects have `sure` bytes (None: all of them); what
    lies beyond may not be mapped, as behind the last object of an allocator's arena, and reads as zeros then."""

    def __init__(self, target: Target, addresses: Sequence[int], size: int, sure: int | None = None) -> None:
        self.target, self.addresses, self.size = target, addresses, size
        gathered = target.gather(addresses, size) if not size % 8 and _are_scattered(addresses) else None
        if gathered is not None:  # their copies lie one after the other
            self.runs, self.pieces = [(0, len(addresses), size)], [(0, gathered.cast("Q"))]
        else:
            self.runs = _runs(addresses)
            self.pieces = _pieces(target, self.runs, size, size if sure is None else min(sure, size))

    def words(self, offset: int) -> list[int]:
        """The 64-bit word at `offset` of each, in order."""
        return self._column(offset, 8, self.pieces)

    def halves(self, offset: int) -> list[int]:
        """The 32-bit word at `offset` of each, in order."""
        views = {id(view): view.cast("B").cast("I") for _, view in self.pieces}
        return self._column(offset, 4, [(base, views[id(view)]) for base, view in self.pieces])

    def _column(self, offset: int, width: int, pieces: list[Piece]) -> list[int]:
        found: list[int] = []
        for count, part in self._parts(offset, width, pieces):
            found += part.tolist() if part.nbytes == count * width else part.tolist() * count
        return found

    def _parts(self, offset: int, width: int, pieces: list[Piece]) -> Iterator[tuple[int, memoryview]]:
        """For each run its count and a view of the words at `offset`; of objects that are one and the same, only one word."""
        if offset % width or not 0 <= offset <= self.size - width:
            raise LayoutError(f"there is no word at +{offset} of objects of {self.size} bytes")
        for (start, count, step), (base, view) in zip(self.runs, pieces):
            at, step = (start + offset - base) // width, step // width
            end = at + (count - 1) * step
            if step > 0:
                yield count, view[at : end + 1 : step]
            elif step < 0:
                yield count, view[at : end - 1 if end else None : step]
            else:
                yield count, view[at : at + 1]

    def others(self, offset: int, value: int) -> list[tuple[int, int]]:
        """`[(position, word)]` of the objects whose word at `offset` is not `value`. For all others no Python object is made."""
        found, at, same = [], 0, memoryview(array.array("Q", [value]) * max((count for _, count, _ in self.runs), default=0))
        for count, part in self._parts(offset, 8, self.pieces):
            if part != same[: len(part)]:
                words = part.tolist() if len(part) == count else part.tolist() * count
                found += [(i, word) for i, word in enumerate(words, at) if word != value]
            at += count
        return found


def _are_scattered(addresses: Sequence[int]) -> bool:
    """Whether objects are scattered over the heap, so that there would be nearly as many runs as objects."""
    if len(addresses) <= FEW or functools.reduce(operator.or_, addresses) & 7:
        return False
    differences = list(map(operator.sub, addresses[1:], addresses))
    if sum(map(operator.ne, differences, differences[1:])) > len(addresses) // 4:
        return True
    return sum(not -FAR <= d <= FAR for d in differences) > len(addresses) // 4


def _runs(addresses: Sequence[int]) -> list[Run]:
    """[(first address, count, distance)] in the order of the list."""
    if not addresses:
        return []
    runs, n = [], len(addresses)
    differences = list(map(operator.sub, addresses[1:], addresses))
    # positions where the distance changes, found by comparing the list with itself
    changes = list(compress(itertools.count(1), map(operator.ne, differences, differences[1:])))
    start = 0
    for i in changes + [n - 1]:
        # differences[start:i] are equal: objects start … i
        if i < start:
            continue
        if i == start and i != n - 1:
            runs.append((addresses[start], 1, 8))
            start = i + 1
            continue
        runs.append((addresses[start], i - start + 1, differences[start] if i > start else 8))
        start = i + 1
    if start < n:
        runs.append((addresses[start], n - start, differences[start] if n - start > 1 else 8))
    return [piece for run in runs for piece in _near(*run)]


def _near(start: int, count: int, step: int) -> list[Run]:
    """The run itself; or its objects one by one if they are far from each other and have equal distances by chance."""
    if abs(step) <= FAR:
        return [(start, count, step)]
    return [(start + i * step, 1, 8) for i in range(count)]


def _pieces(target: Target, runs: list[Run], size: int, sure: int) -> list[Piece]:
    """For each run (base address, view of words) of the piece of memory that holds it. `FaultError` names the address that cannot
    be read, unless only what is not `sure` of the last object is missing."""
    spans = []
    for number, (start, count, step) in enumerate(runs):
        end = start + (count - 1) * step
        low, high = min(start, end), max(start, end) + size
        if low % 8 or step % 8 or low <= 0 or high >= 1 << 63:
            raise LayoutError(f"{start:#x} is no object's address")
        spans.append((low, high, number))
    spans.sort()
    found: dict[int, tuple[int, memoryview[int]]] = {}
    at = 0
    while at < len(spans):
        low, high, upto = spans[at][0], spans[at][1], at + 1
        while upto < len(spans) and spans[upto][0] - high <= GAP and max(high, spans[upto][1]) - low <= PIECE:
            high = max(high, spans[upto][1])
            upto += 1
        high += -(high - low) % 8
        try:
            view = memoryview(target.read(low, high - low)).cast("Q")
            for _, _, number in spans[at:upto]:
                found[number] = (low, view)
        except FaultError as e:
            log.passed_over(e)
            for start, end, number in spans[at:upto]:  # the gap between two was not mapped
                whole = end - start + -(end - start) % 8
                have = target.read_partial(start, whole)
                if len(have) < end - start - size + sure:
                    raise
                found[number] = (start, memoryview(have.ljust(whole, b"\0")).cast("Q"))
        at = upto
    return [found[number] for number in range(len(runs))]


class Places:
    """Translates pointers to places in the list `addresses`; `marks`: `{other address: its own mark}`.

    The keys are address / 16: an int hashes to itself and a dict goes by the low bits, which would be 0 in all of them.
    """

    def __init__(self, addresses: Sequence[int], marks: dict[int, int]) -> None:
        low = functools.reduce(operator.or_, chain(addresses, marks), 0)
        self.shift = 0 if low & 15 else 4
        self._table = dict(zip(self._keys(addresses), range(len(addresses))))
        self.different = len(self._table)
        self._table.update(zip(self._keys(marks), marks.values()))

    def _keys(self, pointers: Iterable[int]) -> Iterator[int]:
        return map(operator.rshift, pointers, repeat(self.shift))

    def get(self, pointer: int, default: int) -> int:
        """The place that one pointer leads to."""
        found = self._table.get(pointer >> self.shift, default)
        return default if pointer & (1 << self.shift) - 1 else found

    def of(self, pointers: Sequence[int], default: int) -> list[int]:
        """The place of each, at the speed of C where all have one."""
        try:
            found = list(map(self._table.__getitem__, self._keys(pointers)))
        except KeyError:
            found = None
        if found is None or functools.reduce(operator.or_, pointers, 0) & (1 << self.shift) - 1:
            found = [self.get(p, default) for p in pointers]
        return found


def integers(rt: Runtime, pointers: Sequence[int]) -> list[int]:
    """The plain ints (bools too) that object addresses lead to, in order. `GdbextError` for another type."""
    L = rt.layout
    distinct = set(pointers)
    if len(distinct) <= max(FEW, len(pointers) // 2):  # small ints are shared, and so are those of requests that are alike
        few = list(distinct)
        known = dict(zip(few, (rt.object(p).integer(max_digits=SMALL) for p in few) if len(few) <= FEW else integers(rt, few)))
        return list(map(known.__getitem__, pointers))
    tagged = "long.long_value.lv_tag" in L
    head = L["long.long_value.lv_tag"] if tagged else L["varobj.ob_size"]
    digit = L["long.long_value.ob_digit"] if tagged else L["long.ob_digit"]
    columns = Columns(rt.target, pointers, (digit + 8 + 7) & -8)
    kind = rt.object(pointers[0]).type
    if kind.builtin_name not in ("int", "bool") or columns.others(L["object.ob_type"], kind.address):
        strangers = [
            p for p, k in zip(pointers, columns.words(L["object.ob_type"])) if rt.type(k).builtin_name not in ("int", "bool")
        ]
        if strangers:
            raise GdbextError(f"the {rt.object(strangers[0]).type_name} at {strangers[0]:#x} is no int")
    found = columns.halves(digit)
    for i, _ in columns.others(head, (1 << 3) if tagged else 1):  # zero, negative and large ones
        found[i] = rt.object(pointers[i]).integer(max_digits=SMALL)
    return found


def floats(rt: Runtime, pointers: Sequence[int]) -> list[float]:
    """The floats that object addresses lead to, in order. `GdbextError` for another type."""
    if not pointers:
        return []
    L = rt.layout
    columns = Columns(rt.target, pointers, L["float.ob_fval"] + 8)
    kind = rt.object(pointers[0])
    if not kind.isa("float") or columns.others(L["object.ob_type"], kind.type.address):
        return [rt.object(p).floating() for p in pointers]
    return array.array("d", array.array("Q", columns.words(L["float.ob_fval"])).tobytes()).tolist()


def strings(rt: Runtime, pointers: Sequence[int], limit: int) -> list[str]:
    """The strs that object addresses lead to, in order, at most `limit` characters of each. `GdbextError` for another type."""
    if not pointers:
        return []
    L, kind = rt.layout, rt.object(pointers[0]).type
    head = L["ascii.__size"]
    columns = Columns(rt.target, pointers, (head + SHORT_TEXT + 7) & -8, sure=head)
    counts, states = columns.words(L["ascii.length"]), columns.halves(L["ascii.state"])
    plain = {state: rt.dialect.string_bits(state) for state in set(states)}
    strangers = {i for i, _ in columns.others(L["object.ob_type"], kind.address)}
    texts = [array.array("Q", row).tobytes() for row in zip(*(columns.words(at) for at in range(head, head + SHORT_TEXT, 8)))]
    found = []
    for i, (count, state) in enumerate(zip(counts, states)):
        width, compact, ascii_ = plain[state]
        if width == 1 and compact and ascii_ and count <= min(limit, SHORT_TEXT) and i not in strangers:
            found.append(texts[i][:count].decode("ascii", "replace"))
        else:
            found.append(rt.object(pointers[i]).string(limit))
    return found


def lengths(rt: Runtime, pointers: Sequence[int]) -> list[int]:
    """The numbers of elements of the lists, tuples or arrays at some addresses. `NotFoundError` for another type: the word there
    is no number, but may be an address."""
    if not pointers:
        return []
    at = rt.layout["varobj.ob_size"]
    columns = Columns(rt.target, pointers, at + 8)
    for one in dict(zip(columns.words(rt.layout["object.ob_type"]), pointers)).values():
        if not rt.object(one).isa("list", "tuple", "array.array"):
            raise NotFoundError(f"the {rt.object(one).type.name} at {one:#x} is no list: it was freed while it was read")
    return columns.words(at)


class Records:
    """A list of objects of one class. `column(name)`: the addresses that a member holds (0: not set)."""

    def __init__(self, rt: Runtime, addresses: Sequence[int]) -> None:
        self.rt, self.addresses = rt, addresses
        self._keys: list[int] | None = None  # where each object's dict keeps its keys
        self._whole: Columns | None = None  # of the tables of keys
        self._extent = 0  # bytes of such a table up to its last key
        self._dicts: dict[str, list[int]] | None = None
        self.foreign: list[int] = []  # positions of objects of another class
        self.columns: Columns | None = None
        if not addresses:
            return
        info = _common_type(rt, addresses)
        self.type = info
        self.columns = Columns(rt.target, addresses, info.basicsize + (-info.basicsize) % 8)
        self.foreign = [i for i, _ in self.columns.others(rt.layout["object.ob_type"], info.address)]

    def has(self, name: str) -> bool:
        """Whether the objects have a member of that name."""
        if not self.addresses or name in self.type.slots:
            return bool(self.addresses)
        found = any(n == name for n, _ in self.rt.object(self.addresses[0]).instance_entries())
        if not found:
            self.rt.target.missed(self.type, name)
        return found

    def column(self, name: str) -> list[int]:
        """The address that the member of each object holds, 0 where it is not set."""
        if self.columns is None:
            return []
        slots = self.type.slots
        found: list[int] | None
        if name in slots:
            found = self.columns.words(slots[name][0])
        else:
            found = self._by_keys(name) or self._entries().get(name)
            if found is None or not any(found) and not self.has(name):
                raise NotFoundError(f"a {self.type.name} has no {name}")
        if self.foreign:
            found = list(found)
            for i in self.foreign:
                found[i] = 0
        return found

    def integers(self, name: str, absent: int) -> list[int]:
        """The plain ints that a member holds; `absent` for a value of another class."""
        if self.columns is not None and name in self.type.slots and not self.foreign:
            offset = self.type.slots[name][0]
            common = self.rt.target.u64(self.addresses[-1] + offset)
            others = self.columns.others(offset, common)
            if len(others) < len(self.addresses) // 16:  # nearly all hold one and the same int
                found = [self.rt.object(common).integer(max_digits=SMALL)] * len(self.addresses)
                for (i, _), value in zip(others, integers(self.rt, [word for _, word in others])):
                    found[i] = value
                return found
        pointers = self.column(name)
        if 0 not in pointers:
            return integers(self.rt, pointers)
        values = iter(integers(self.rt, [p for p in pointers if p]))
        return [next(values) if p else absent for p in pointers]

    def _by_keys(self, name: str) -> list[int] | None:
        """A member of objects that keep a dict each, as objects with many attributes do; None where one has no dict.

        Dicts that were filled in the same order have a key at the same place. The place is found in one dict and checked in all
        others. Dicts that do not match are tried again with the place of one of them. The dicts that are left after `KINDS`
        rounds are read one by one."""
        if self._keys is None:
            self._keys = self._key_tables()
        found = [0] * len(self.addresses)
        left = [i for i, keys in enumerate(self._keys) if keys]
        alone = [i for i, keys in enumerate(self._keys) if not keys]
        strangers = set(self.foreign)
        alone = [i for i in alone if i not in strangers] if strangers else alone
        if not left or len(alone) > FEW:
            return None
        for _ in range(KINDS):
            place = self._place_of_key(left[len(left) // 2], name) if left else None
            if place is None:
                break
            key, at = place
            columns = self._tables(left, at + 16)
            elsewhere = {i for i, _ in columns.others(at, key)}
            for i, value in enumerate(columns.words(at + 8)):
                if i not in elsewhere:
                    found[left[i]] = value
            left = [left[i] for i in sorted(elsewhere)]
        if len(left) > FEW:
            return None  # tables that share their keys (3.9, 3.10) keep the values elsewhere
        for i in left + alone:
            found[i] = dict(self.rt.object(self.addresses[i]).instance_entries()).get(name, 0)
        return found

    def _key_tables(self) -> list[int]:
        """The address of the table of keys of each object's dict. 0 where the object has no dict, or is of another class."""
        at, keys_at = self.rt.dialect.dict_offset(self.rt, self.type), self.rt.layout["dict.ma_keys"]
        strangers = set(self.foreign)
        own = [i for i in range(len(self.addresses)) if i not in strangers] if strangers else range(len(self.addresses))
        if at:
            words = Columns(self.rt.target, [self.addresses[i] + at for i in own], 8).words(0)
            dicts = [0 if word & 1 else word for word in words]
        else:
            dicts = [self.rt.dialect.dict_pointer(self.rt, self.rt.object(self.addresses[i])) for i in own]
        held = [(i, pointer) for i, pointer in zip(own, dicts) if pointer]
        found = [0] * len(self.addresses)
        keys = Columns(self.rt.target, [pointer for _, pointer in held], keys_at + 8).words(keys_at) if held else []
        for (i, _), word in zip(held, keys):
            found[i] = word
        return found

    def _tables(self, places: list[int], size: int) -> Columns:
        """The first `size` bytes of the tables of keys of the objects at some places of the list (zeros past the end of a shorter
        one). They are read once for all of them."""
        keys = self._keys or []
        if len(places) < len(self.addresses):
            return Columns(self.rt.target, [keys[i] for i in places], size, sure=0)
        if self._whole is None or self._whole.size < size:
            self._whole = Columns(self.rt.target, keys, max(size, self._extent), sure=0)  # other members will be read
        return self._whole

    def _place_of_key(self, number: int, name: str) -> tuple[int, int] | None:
        """(address of the key, its offset in the table of keys) of a member in the dict of the object at a position, None where
        it has none."""
        pairs = self.rt.dialect.instance_pairs(self.rt, self.rt.object(self.addresses[number]))
        pair = next((p for p in pairs if dict(named(self.rt, [p], (name,)))), None)
        if pair is None or not self._keys:
            return None
        table = self.rt.target.read_partial(self._keys[number], MAX_KEYS)
        words = memoryview(table[: len(table) & -8]).cast("Q")
        at = _index(words, pair)
        self._extent = min(8 * (_index(words, pairs[-1]) or 0) + 16, MAX_EXTENT)
        return None if at is None else (pair[0], 8 * at)

    def _entries(self) -> dict[str, list[int]]:
        """Columns of objects with an instance dict. Dicts of equal shape share their keys, so that only values differ."""
        if self._dicts is None:
            self._dicts = {}
            names = [n for n, _ in self.rt.object(self.addresses[0]).instance_entries()] if self.addresses else []
            if names:
                columns: dict[str, list[int]] = {n: [] for n in names}
                strangers = set(self.foreign)
                for i, address in enumerate(self.addresses):
                    entries = {} if i in strangers else dict(self.rt.object(address).instance_entries())
                    for n in names:
                        columns[n].append(entries.get(n, 0))
                self._dicts = columns
        return self._dicts


def _index(words: memoryview, pair: tuple[int, int]) -> int | None:
    """The index of the first place at which a key and its value follow one another."""
    return next((i for i in range(len(words) - 1) if words[i] == pair[0] and words[i + 1] == pair[1]), None)


def _common_type(rt: Runtime, addresses: Sequence[int]) -> TypeInfo:
    """The type of most of the first objects: one stranger at the head of the list must not name the class."""
    seen: dict[int, int] = {}
    for a in addresses[:7]:
        try:
            info = rt.object(a).type
        except (FaultError, LayoutError) as e:
            log.passed_over(e)
            continue
        seen[info.address] = seen.get(info.address, 0) + 1
    if not seen:
        raise LayoutError(f"there is no object at {addresses[0]:#x}")
    return rt.type(max(seen, key=seen.__getitem__))
