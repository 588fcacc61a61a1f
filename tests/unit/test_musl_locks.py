"""The owner of a mutex of musl, by its two words; nothing where the C library is another, or the words are no such mutex's."""

import struct

import pytest

from gdbext.access.fake import FakeTarget
from gdbext.access.model import Mapping
from gdbext.stacks.musl_locks import owner

AT, BUSY, WAITERS = 0x1000, 16, 1 << 31
LIBRARIES = ["/lib/ld-musl-x86_64.so.1", "/lib/libc.musl-x86_64.so.1", "/usr/lib/x86_64-linux-musl/libc.so"]


def target(kind, word, library=LIBRARIES[0]):
    code = Mapping(0x400000, 0x401000, "r-xp", 0, library)
    return FakeTarget({AT: struct.pack("<2I", kind, word)}, [code])


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_kind_says_whether_an_owner_is_noted(library):
    assert owner(target(0, BUSY | WAITERS, library), AT + 4) == 0
    for kind in (1, 2, 5):  # recursive, error-checking, robust and recursive
        assert owner(target(kind, 4711 | WAITERS, library), AT + 4) == 4711


@pytest.mark.parametrize("kind, word", [(0, 3 | WAITERS), (0, BUSY), (1, 4711), (0x12345678, 9 | WAITERS), (129, 4711 | WAITERS)])
def test_other_words_are_no_mutex_of_this_process(kind, word):
    """A semaphore's, one without waiters, no kind at all, one that other processes may have."""
    assert owner(target(kind, word), AT + 4) is None


def test_glibc_has_other_mutexes():
    assert owner(target(0, BUSY | WAITERS, "/lib/x86_64-linux-gnu/libc.so.6"), AT + 4) is None
    assert owner(target(1, 7 | WAITERS), AT + 0x2000) is None
