"""Columns of objects: words of objects that lie in runs, backwards, alone, or two by chance far from each other."""

import array
import ctypes
import mmap
import os
import sys

import pytest

from gdbext.access.fake import FakeTarget
from gdbext.access.proc import ProcTarget
from gdbext.cpython.runtime import open_runtime
from gdbext.engines.columns import FAR, FEW, Columns, Places, lengths, strings
from gdbext.errors import FaultError, LayoutError, NotFoundError

LOW, HIGH = 0x10000, 0x7FF243B43000  # farther apart than any read that is made at once


def memory():
    words = {}
    for base in (LOW, HIGH):
        words[base] = b"".join((base + at).to_bytes(8, "little") for at in range(0, 0x2000, 8))
    return FakeTarget(memory=words)


@pytest.mark.parametrize(
    "addresses",
    [
        [LOW],
        [LOW, HIGH],
        [HIGH, LOW],
        [LOW + 64 * i for i in range(100)],
        [LOW + 64 * i for i in range(100)][::-1],
        [LOW, LOW + 64, LOW + 128, HIGH, HIGH + 48, HIGH + 96, LOW + 4096],
        [HIGH, HIGH, LOW, LOW],
        [],
    ],
    ids=["one", "two far apart", "two far apart backwards", "a run", "a run backwards", "runs", "the same twice", "none"],
)
def test_every_word_is_that_of_its_object(addresses):
    columns = Columns(memory(), addresses, 32)
    for offset in (0, 8, 24):
        assert columns.words(offset) == [a + offset for a in addresses]


def test_objects_far_from_each_other_are_read_in_one_go():
    step, count = 2 * FAR, FEW + 1
    words = array.array("Q", range(step * count // 8))
    base = words.buffer_info()[0]
    columns = Columns(ProcTarget(os.getpid()), [base + step * i for i in range(count)], 32)
    assert columns.words(8) == [step * i // 8 + 1 for i in range(count)] and len(columns.pieces) == 1


def test_what_is_no_object_or_cannot_be_read_is_an_error():
    with pytest.raises(LayoutError, match="no object's address"):
        Columns(memory(), [LOW + 3], 32)
    with pytest.raises(FaultError):
        Columns(memory(), [LOW, 0x500000], 32)
    with pytest.raises(LayoutError, match="no word at"):
        Columns(memory(), [LOW], 32).words(32)


def test_what_lies_behind_the_last_object_need_not_be_there():
    """As seen on 100,000 requests: the last id lay at the end of an arena, 96 bytes were read of each, and none was told."""
    end, seen = LOW + 0x2000, set()
    for count, step, sure in [(c, 8 * s, 8 * k) for c in (1, 3, 40) for s in (2, 4, 5) for k in (0, 1, 2)]:
        for behind in range(-16, 40, 8):  # where the last object's 32 bytes end, beyond the end of memory
            addresses = [end - 32 + behind - step * i for i in range(count)]
            if behind > 32 - sure:
                with pytest.raises(FaultError):
                    Columns(memory(), addresses, 32, sure)
                seen.add("missing")
                continue
            columns = Columns(memory(), addresses, 32, sure)
            for offset in (0, 8, 24):
                assert columns.words(offset) == [a + offset if a + offset < end else 0 for a in addresses]
            seen.add("behind" if behind > 0 else "within")
    assert seen == {"missing", "behind", "within"}


@pytest.mark.skipif(sys.version_info < (3, 9), reason="it reads itself, and CPython 3.9 is the oldest that is read")
def test_a_short_text_at_the_end_of_an_arena_is_read():
    rt, memory, libc = open_runtime(ProcTarget(os.getpid())), mmap.mmap(-1, 2 * mmap.PAGESIZE), ctypes.CDLL(None)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert libc.mprotect(ctypes.c_void_p(start + mmap.PAGESIZE), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    places, texts, at = [], ["r1", "", "a" * 47, "b" * 90, "request-7"], mmap.PAGESIZE
    for text in texts[::-1]:
        raw = ctypes.string_at(id(text), sys.getsizeof(text))
        at -= len(raw) + -len(raw) % 8
        memory[at : at + len(raw)] = raw
        places.append(start + at)
    assert strings(rt, places[::-1], 99) == texts
    assert strings(rt, places[:1], 99) == texts[-1:]
    libc.mprotect(ctypes.c_void_p(start + mmap.PAGESIZE), ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ | mmap.PROT_WRITE)


class Tokens(list):
    pass


@pytest.mark.skipif(sys.version_info < (3, 9), reason="it reads itself, and CPython 3.9 is the oldest that is read")
@pytest.mark.parametrize("other", [{"a": 1}, (n for n in "ab"), object(), 2.5, "text", None], ids=lambda one: type(one).__name__)
def test_what_is_no_list_has_no_length(other):
    """As seen on a vLLM at a load of 25: the word there was an address, and a request had 139,724,211,746,464 tokens."""
    rt, held = open_runtime(ProcTarget(os.getpid())), [[1, 2, 3], (1, 2), [], array.array("q", [7] * 5), Tokens("abcd"), [0] * 9]
    assert lengths(rt, [id(one) for one in held]) == [len(one) for one in held] and lengths(rt, []) == []
    with pytest.raises(NotFoundError, match=f"the {type(other).__name__} at .* is no list"):
        lengths(rt, [id(one) for one in (*held, other)])


def test_halves_and_others_are_those_of_each_object():
    addresses = [LOW + 64 * i for i in range(100)] + [HIGH + 48 * i for i in range(20)][::-1] + [LOW, LOW]
    columns = Columns(memory(), addresses, 32)
    assert columns.halves(4) == [a >> 32 for a in addresses] and columns.halves(8) == [a + 8 & 0xFFFFFFFF for a in addresses]
    assert columns.others(16, LOW + 64 * 7 + 16) == [(i, a + 16) for i, a in enumerate(addresses) if i != 7]
    assert columns.others(0, 5) == list(enumerate(addresses))


@pytest.mark.parametrize("apart,shift", [(48, 4), (40, 0)])
def test_places_of_pointers_and_what_is_no_place(apart, shift):
    addresses = [HIGH + apart * i for i in (5, 0, 3, 3, 9)]
    places = Places(addresses, {0: -1, LOW: -2})
    assert places.shift == shift and places.different == 4
    assert places.of([addresses[4], addresses[1], 0, LOW], -4) == [4, 1, -1, -2]
    assert places.of([addresses[4] + 8, addresses[0] + 1, HIGH + 16, 7], -4) == [-4] * 4 and places.of(
        [addresses[0], addresses[0] + 1], -4
    ) == [0, -4]
    assert places.get(addresses[2], -4) == 3 and places.get(addresses[2] + 1, -4) == -4
