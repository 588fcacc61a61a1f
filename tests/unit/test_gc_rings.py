"""The walk of the collector's rings ends on every damage."""

import struct

import pytest

from gdbext.access.fake import FakeTarget
from gdbext.cpython import gc
from gdbext.errors import FaultError, GdbextError, LayoutError

HEAPS, HEAD = 0x100000, 0x900000


class Ring:
    """A runtime with one interpreter whose first ring holds `count` objects of 32 bytes."""

    def __init__(self, count):
        self.words = [0] * (4 * count)
        for i in range(count):
            self.link(i, HEAPS + 32 * (i + 1) if i + 1 < count else HEAD)
            self.words[4 * i + 3] = 0x777000
        self.heads = [HEAPS if count else HEAD, 0, 0] + [0] * 9
        for i in range(1, 4):
            self.heads[3 * i] = HEAD + 24 * i
        self.layout = Layout()

    def link(self, i, to):
        self.words[4 * i] = to

    def interpreters(self):
        return [HEAD]

    @property
    def target(self):
        memory = {HEAPS: struct.pack(f"<{len(self.words)}Q", *self.words), HEAD: struct.pack("<12Q", *self.heads)}
        return FakeTarget({k: v for k, v in memory.items() if v})


class Layout(dict):
    free_threaded, name = False, "3.99"

    def __init__(self):
        super().__init__(
            {
                "gc.head.__size": 16,
                "gc.head._gc_next": 0,
                "object.ob_type": 8,
                "gcgen.__size": 24,
                "gcgen.head": 0,
                "interp.gc.generations": 0,
                "interp.gc.permanent_generation": 72,
            }
        )


def test_all_objects_of_a_ring_are_given_with_their_types():
    ring = Ring(5000)
    for i in range(0, 5000, 3):
        ring.words[4 * i] |= 1  # the collector's marks
    found = list(gc.tracked(ring))
    assert found == [(HEAPS + 32 * i + 16, 0x777000) for i in range(5000)]
    assert list(gc.tracked(Ring(0))) == []


@pytest.mark.parametrize("count,back", [(10, 0), (1000, 999), (1000, 0), (1000, 500), (100, 98)])
def test_a_ring_that_turns_back_into_itself_ends(count, back):
    ring = Ring(count)
    ring.link(count - 1, HEAPS + 32 * back)
    with pytest.raises(LayoutError, match="does not come back"):
        for i, _ in enumerate(gc.tracked(ring)):
            assert i < 10 * count + 100


@pytest.mark.parametrize("to,error", [(0, LayoutError), (8, LayoutError), (0xDEAD0000, FaultError), ((1 << 64) - 8, FaultError)])
def test_a_link_that_leads_nowhere_is_one_line(to, error):
    ring = Ring(100)
    ring.link(50, to)
    with pytest.raises(error) as e:
        list(gc.tracked(ring))
    assert "\n" not in str(e.value)


def test_a_free_threaded_build_is_refused_by_name():
    ring = Ring(1)
    ring.layout.free_threaded = True
    with pytest.raises(GdbextError, match="free-threaded"):
        list(gc.tracked(ring))
