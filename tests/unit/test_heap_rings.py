"""The collector's lists found at once are those that are followed one by one; what does not hold together is not believed."""

import random
import struct
import types

import pytest

from gdbext.access.fake import FakeTarget
from gdbext.access.model import Mapping
from gdbext.cpython import gc
from gdbext.cpython.minors import Minor
from gdbext.heap import marks, model, rings, words

numpy = pytest.importorskip("numpy")
LAYOUT = {
    "gc.head.__size": 16,
    "gc.head._gc_next": 0,
    "object.__size": 16,
    "object.ob_type": 8,
    "type.__size": 416,
    "type.tp_flags": 168,
}
TYPES, HEADS, AREA, OTHER, SMALL = 0x600000, 0x700000, 0x7F0000000000, 0x7F1234567000, 0x7F5500034000
KINDS = [TYPES + 1024, TYPES + 2048]


class Memory:
    """A process's memory with two lists of objects in two areas, and words of no meaning between them."""

    def __init__(self, seed, count=3000):
        rng = random.Random(seed)
        size = 3 << 20
        self.areas = {
            TYPES: bytearray(4096),
            HEADS: bytearray(4096),
            AREA: bytearray(size),
            OTHER: bytearray(size),
            SMALL: bytearray(1 << 16),
        }
        for at, meta in ((TYPES, TYPES), *((kind, TYPES) for kind in KINDS)):
            self.put(at + 8, meta)
        self.put(TYPES + 168, 1 << 31)
        places = rng.sample([at + 32 * i for at in (AREA, OTHER, SMALL) for i in range(len(self.areas[at]) // 32 - 1)], count)
        junk, places = places[: count // 3], places[count // 3 :]
        half = len(places) // 2
        self.lists = {HEADS: places[:half], HEADS + 64: places[half:], HEADS + 128: []}
        for head, members in self.lists.items():
            ring = [head, *members]
            for i, at in enumerate(ring):
                self.put(at, ring[(i + 1) % len(ring)] | rng.choice((0, 1, 2)) * (at != head), ring[i - 1])
        self.kinds = {at: rng.choice(KINDS) for at in places}
        for at, kind in self.kinds.items():
            self.put(at + 16, rng.randrange(1, 9), kind)
        for at in junk:  # looks like an object, leads to one, and nothing leads to it
            self.put(at, rng.choice(places), rng.choice(places), 1, rng.choice(KINDS))

    def put(self, at, *values):
        base = max(a for a in self.areas if a <= at)
        struct.pack_into(f"<{len(values)}Q", self.areas[base], at - base, *values)

    def runtime(self):
        target = FakeTarget(
            {at: bytes(data) for at, data in self.areas.items()},
            [Mapping(at, at + len(data), "rw-p") for at, data in self.areas.items()],
        )
        return types.SimpleNamespace(target=target, layout=LAYOUT, minor=Minor((3, 12)))

    def found(self):
        rt = self.runtime()
        heap = model.Heap(rt, numpy)
        heap.numbers = marks.Numbers(numpy)
        found = rings.Rings(heap, words.Vector(rt.target, numpy), list(self.lists))
        types = numpy.array([*heap.numbers.values, 0])[found.types]
        return [
            None if (own := found.ring(i)) is None else dict(zip(found.addresses[own].tolist(), types[own].tolist()))
            for i in range(len(self.lists))
        ]


@pytest.mark.parametrize("seed", range(4))
def test_the_lists_are_those_that_are_followed_one_by_one(seed):
    memory = Memory(seed)
    rt = memory.runtime()
    for head, found in zip(memory.lists, memory.found()):
        one_by_one = {}
        for addresses, kinds in gc.stretches(rt, head, gc.Windows(rt.target)):
            one_by_one.update(zip(addresses, kinds))
        assert found == one_by_one == {at + 16: memory.kinds[at] for at in memory.lists[head]}


@pytest.mark.parametrize("seed", range(4))
def test_a_list_that_does_not_lead_back_is_not_believed(seed):
    rng = random.Random(seed)
    memory = Memory(seed)
    first, second = memory.lists[HEADS], memory.lists[HEADS + 64]
    wrong = rng.choice((rng.choice(first), rng.choice(second), HEADS + 64, HEADS + 200, 0x10))
    memory.put(rng.choice(first), wrong)
    told = memory.found()
    assert told[0] is None and told[1] == {at + 16: memory.kinds[at] for at in second} and told[2] == {}


@pytest.mark.parametrize("seed", range(3))
def test_places_are_those_of_a_dict(seed):
    rng = random.Random(seed)
    known = sorted({rng.choice((0, AREA, OTHER & -16, 1 << 46)) + 16 * rng.randrange(1, 1 << 20) for _ in range(5000)})
    asked = [a + d for a in rng.sample(known, 500) for d in (0, 8, 16, -16, 1 << 20, 1 << 33)]
    found = marks.Places(numpy, numpy.array(known, dtype=numpy.int64)).find(numpy.array(asked, dtype=numpy.int64))
    index = {a: i for i, a in enumerate(known)}
    assert found.tolist() == [index.get(a, -1) for a in asked]
    empty = marks.Places(numpy, numpy.zeros(0, dtype=numpy.int64))
    assert empty.find(numpy.array(asked, dtype=numpy.int64)).tolist() == [-1] * len(asked)


def test_bits_are_counted_without_numpys_own_count():
    values = numpy.array([0, 1, 1 << 63, (1 << 64) - 1, 0x123456789ABCDEF0], dtype=numpy.uint64)
    own = types.SimpleNamespace(uint64=numpy.uint64, int32=numpy.int32)
    assert (
        marks._ones(own, values).tolist() == marks._ones(numpy, values).tolist() == [bin(v).count("1") for v in values.tolist()]
    )


def test_numbers_are_the_same_for_the_same_value():
    rng = random.Random(1)
    values = [rng.randrange(1 << 47) & -8 for _ in range(3000)] + [0]
    numbers = marks.Numbers(numpy)
    for _ in range(3):
        some = [rng.choice(values) for _ in range(70000)]
        found = numbers.of(numpy.array(some, dtype=numpy.int64)).tolist()
        assert [numbers.values[n] for n in found] == some
    assert len(set(numbers.values)) == len(numbers.values)


@pytest.mark.parametrize("seed", range(3))
def test_seen_is_a_set(seed):
    rng = random.Random(seed)
    seen, own = marks.Seen(numpy), set()
    for _ in range(6):
        some = sorted({rng.choice((0x10000, AREA, OTHER)) + 8 * rng.randrange(1 << 19) for _ in range(rng.choice((0, 1, 3000)))})
        seen.add(numpy.array(some, dtype=numpy.int64))
        own.update(some)
        asked = [a + d for a in rng.sample(sorted(own), min(len(own), 300)) for d in (0, 8, -8, 1 << 20, 1 << 34)]
        assert seen.of(numpy.array(asked, dtype=numpy.int64)).tolist() == [a in own for a in asked]
