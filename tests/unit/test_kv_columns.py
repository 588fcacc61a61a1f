"""Columns of objects: words of objects that lie in runs, backwards, alone, or two by chance far from each other."""

import pytest

from gdbext.engines.columns_kv import Columns
from gdbext.errors import FaultError, LayoutError
from gdbext.target.fake import FakeTarget

LOW, HIGH = 0x10000, 0x7FF243B43000  # farther apart than any read that is made at once


def memory():
    words = {}
    for base in (LOW, HIGH):
        words[base] = b"".join((base + at).to_bytes(8, "little") for at in range(0, 0x2000, 8))
    return FakeTarget(memory=words)


@pytest.mark.parametrize(
    "addresses",
    [
        [LOW], [LOW, HIGH], [HIGH, LOW], [LOW + 64 * i for i in range(100)], [LOW + 64 * i for i in range(100)][::-1],
        [LOW, LOW + 64, LOW + 128, HIGH, HIGH + 48, HIGH + 96, LOW + 4096], [HIGH, HIGH, LOW, LOW], [],
    ],
    ids=["one", "two far apart", "two far apart backwards", "a run", "a run backwards", "runs", "the same twice", "none"],
)  # fmt: skip
def test_every_word_is_that_of_its_object(addresses):
    columns = Columns(memory(), addresses, 32)
    for offset in (0, 8, 24):
        assert columns.words(offset) == [a + offset for a in addresses]


def test_what_is_no_object_or_cannot_be_read_is_an_error():
    with pytest.raises(LayoutError, match="no object's address"):
        Columns(memory(), [LOW + 3], 32)
    with pytest.raises(FaultError):
        Columns(memory(), [LOW, 0x500000], 32)
    with pytest.raises(LayoutError, match="no word at"):
        Columns(memory(), [LOW], 32).words(32)
