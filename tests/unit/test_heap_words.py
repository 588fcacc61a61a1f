"""Words of many records in columns: those of each record read by itself, wherever in memory the records lie."""

import random
import struct

import pytest
from harness.floor import random_bytes

from gdbext.access.fake import FakeTarget
from gdbext.access.model import Mapping
from gdbext.heap import words

numpy = pytest.importorskip("numpy")
WINDOW = 1 << 16
# Neighbours, far ones, half a window.
PLACES = {
    0x7F0000000000: 3 * WINDOW,
    0x7F0000000000 + WINDOW * words.SLOTS: 2 * WINDOW,
    WINDOW * (words.SLOTS - 1): 2 * WINDOW,
    0x5500000F8000: 8 * 4096,
}


@pytest.fixture
def target():
    rng = random.Random(7)
    memory = {at: random_bytes(rng, size) for at, size in PLACES.items()}
    return FakeTarget(memory, [Mapping(at, at + size, "rw-p") for at, size in PLACES.items()])


def addresses(rng, count):
    """Of records: anywhere in the mappings, over their ends, and nowhere."""
    found = [1 << 45, 8, 0]
    for _ in range(count):
        at, size = rng.choice(list(PLACES.items()))
        found.append(at + 8 * rng.randrange(size // 8))
    return found


def word_at(target, address, offset):
    """One word; 0 where nothing is mapped, and of what is no address."""
    if not words.PAGE <= address < words.TOP:
        return 0
    blob = target.read_partial(address + offset, 8)
    return struct.unpack("<q", blob.ljust(8, b"\0"))[0]


@pytest.mark.parametrize("seed", range(4))
def test_columns_read_what_single_records_read(target, seed):
    rng = random.Random(seed)
    many = words.Vector(target, numpy)
    for _ in range(6):
        at, size = addresses(rng, rng.choice((1, 5, 300))), 8 * rng.randint(1, 40)
        if rng.random() < 0.5:
            at.sort()
        found = many.record(numpy.array(at, dtype=numpy.int64), size)
        for offset in range(0, size, 8):
            assert found.word(offset).tolist() == [word_at(target, a, offset) for a in at]


@pytest.mark.parametrize("seed", range(4))
def test_runs_are_whole_and_in_the_order_of_their_addresses(target, seed):
    rng = random.Random(seed)
    many = words.Vector(target, numpy)
    starts, counts = [], []
    for at in addresses(rng, 200):
        room = next((start + size - at for start, size in PLACES.items() if start <= at < start + size), 8)
        starts.append(at)
        counts.append(rng.randrange(min(words.LARGE + 50, room // 8) + 1))
    told = {}
    for index, found in many.runs(numpy.array(starts), numpy.array(counts)):
        for i, word in zip(index.tolist(), found.tolist()):
            told.setdefault(i, []).append(word)
    for i, (start, count) in enumerate(zip(starts, counts)):
        if count and start >= words.PAGE and start != 1 << 45:
            wanted = struct.unpack(f"<{count}q", target.read(start, 8 * count))
            assert told.get(i) == list(wanted), (hex(start), count)
    records = numpy.array(counts) // 3
    for pick in (1, 2):
        told = {}
        for index, found in many.runs(numpy.array(starts), records, 3, (pick,)):
            for i, word in zip(index.tolist(), found.tolist()):
                told.setdefault(i, []).append(word)
        for i, (start, count) in enumerate(zip(starts, records.tolist())):
            if count and start >= words.PAGE and start != 1 << 45:
                assert told.get(i) == list(struct.unpack(f"<{3 * count}q", target.read(start, 24 * count))[pick::3])


def test_each_window_is_read_once(target):
    many = words.Vector(target, numpy)
    at = numpy.arange(0x7F0000000000, 0x7F0000000000 + 2 * WINDOW, 64)
    many.record(at, 64)
    before = target.reads
    for _ in range(5):
        many.record(at + 8, 48)
    assert target.reads == before
