"""Many Python objects of one class read as columns: a million of them in a few large reads and slices, no `Object` each.

Objects made one after the other lie in memory at one distance, in runs as long as an allocator's page; so does what they point at. A
run is sliced out of a large read in one step.
"""

from itertools import repeat

from ..errors import FaultError, GdbextError, LayoutError, NotFoundError

GAP = 1 << 15  # bytes: pieces nearer than this are read in one
PIECE = 1 << 26
FAR = 1 << 12  # bytes: no allocator lays objects of one kind further apart
SMALL = 64  # ints of more digits are no counter


class Columns:
    """`size` bytes at each of `addresses` (multiples of 8, any order)."""

    def __init__(self, target, addresses, size):
        self.target, self.addresses, self.size = target, addresses, size
        self.runs = _runs(addresses)
        self.pieces = _pieces(target, self.runs, size)

    def words(self, offset):
        """The 64-bit word at `offset` of each, in order."""
        if offset % 8 or not 0 <= offset <= self.size - 8:
            raise LayoutError(f"there is no word at +{offset} of objects of {self.size} bytes")
        found = []
        for (start, count, step), (base, view) in zip(self.runs, self.pieces):
            at = (start + offset - base) >> 3
            if count == 1:
                found.append(view[at])
            elif step > 0:
                found += view[at : at + (count - 1) * (step >> 3) + 1 : step >> 3].tolist()
            elif step < 0:
                last = at + (count - 1) * (step >> 3)
                found += view[last : at + 1 : -(step >> 3)].tolist()[::-1]
            else:
                found.extend(repeat(view[at], count))
        return found


def _runs(addresses):
    """[(first address, count, distance)] in the order of the list."""
    if not addresses:
        return []
    runs, n = [], len(addresses)
    differences = [b - a for a, b in zip(addresses, addresses[1:])]
    # positions where the distance changes, found by comparing the list with itself: this is C, mostly
    changes = [i for i, (a, b) in enumerate(zip(differences, differences[1:]), 1) if a != b]
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


def _near(start, count, step):
    """The run itself; objects far from each other, that lie at one distance by chance, one by one."""
    if abs(step) <= FAR:
        return [(start, count, step)]
    return [(start + i * step, 1, 8) for i in range(count)]


def _pieces(target, runs, size):
    """For each run (base address, view of words) of the piece of memory that holds it. `FaultError` names what cannot be read."""
    spans = []
    for number, (start, count, step) in enumerate(runs):
        end = start + (count - 1) * step
        low, high = min(start, end), max(start, end) + size
        if low % 8 or step % 8 or low <= 0 or high >= 1 << 63:
            raise LayoutError(f"{start:#x} is no object's address")
        spans.append((low, high, number))
    spans.sort()
    found, at = [None] * len(runs), 0
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
        except FaultError:
            for start, end, number in spans[at:upto]:  # the gap between two was not there
                found[number] = (start, memoryview(target.read(start, end - start + -(end - start) % 8)).cast("Q"))
        at = upto
    return found


def integers(rt, pointers):
    """The plain ints (bools too) that object addresses lead to, in order. `GdbextError` for another type."""
    L = rt.layout
    unique = pointers if len(pointers) < 64 else None
    if unique is None and len(set(pointers[:8192])) < 4096 and len(set(pointers)) < 4096:
        unique = set(pointers)
    if unique is not None:
        known = {p: rt.object(p).integer(max_digits=SMALL) for p in set(unique)}
        return [known[p] for p in pointers]
    tagged = "long.long_value.lv_tag" in L
    head = L["long.long_value.lv_tag"] if tagged else L["varobj.ob_size"]
    digit = L["long.long_value.ob_digit"] if tagged else L["long.ob_digit"]
    columns = Columns(rt.target, pointers, (digit + 8 + 7) & -8)
    kinds = set(columns.words(L["object.ob_type"]))
    if any(rt.type(k).builtin_name not in ("int", "bool") for k in kinds):
        strangers = [p for p, k in zip(pointers, columns.words(L["object.ob_type"])) if rt.type(k).builtin_name not in ("int", "bool")]
        raise GdbextError(f"the {rt.object(strangers[0]).type_name} at {strangers[0]:#x} is no int")
    one = (1 << 3) if tagged else 1
    sizes, words = columns.words(head), columns.words(digit & -8)
    shift = digit % 8  # 4 where the digits begin in the upper half of their word
    found = [w >> 32 & 0x3FFFFFFF for w in words] if shift else [w & 0x3FFFFFFF for w in words]
    if sizes.count(one) != len(sizes):  # zero, negative and large ones
        for i in [i for i, size in enumerate(sizes) if size != one]:
            found[i] = rt.object(pointers[i]).integer(max_digits=SMALL)
    return found


class Records:
    """A list of objects of one class. `column(name)`: the addresses that a member holds (0: not set)."""

    def __init__(self, rt, addresses):
        self.rt, self.addresses = rt, addresses
        self._dicts = None
        self.foreign = []  # positions of what is another class
        self.columns = None
        if not addresses:
            return
        info = _common_type(rt, addresses)
        self.type = info
        self.columns = Columns(rt.target, addresses, info.basicsize + (-info.basicsize) % 8)
        kinds = self.columns.words(rt.layout["object.ob_type"])
        if kinds.count(info.address) != len(kinds):
            self.foreign = [i for i, k in enumerate(kinds) if k != info.address]

    def has(self, name):
        return bool(self.addresses) and (name in self.type.slots or name in self._entries())

    def column(self, name):
        if not self.addresses:
            return []
        slots = self.type.slots
        if name in slots:
            found = self.columns.words(slots[name][0])
        else:
            if name not in self._entries():
                raise NotFoundError(f"a {self.type.name} has no {name}")
            found = self._entries()[name]
        if self.foreign:
            found = list(found)
            for i in self.foreign:
                found[i] = 0
        return found

    def _entries(self):
        """Columns of objects with an instance dict: those of equal shape share their keys, so that only values differ."""
        if self._dicts is None:
            self._dicts = {}
            names = [n for n, _ in self.rt.object(self.addresses[0]).instance_entries()] if self.addresses else []
            if names:
                columns, strangers = {n: [] for n in names}, set(self.foreign)
                for i, address in enumerate(self.addresses):
                    entries = {} if i in strangers else dict(self.rt.object(address).instance_entries())
                    for n in names:
                        columns[n].append(entries.get(n, 0))
                self._dicts = columns
        return self._dicts


def _common_type(rt, addresses):
    """The type of most of the first objects: one stranger at the head of the list must not name the class."""
    seen = {}
    for a in addresses[:7]:
        try:
            info = rt.object(a).type
        except (FaultError, LayoutError):
            continue
        seen[info.address] = seen.get(info.address, 0) + 1
    if not seen:
        raise LayoutError(f"there is no object at {addresses[0]:#x}")
    return rt.type(max(seen, key=seen.get))
