"""A SIGSEGV just below a thread's stack is an overflow; other accesses that failed are not."""

from types import SimpleNamespace

import pytest

from gdbext.access.model import Mapping, Thread
from gdbext.access.snapshot import CoreFileTarget, Death

LOW, HIGH = 0x7F0000100000, 0x7F0000900000


@pytest.mark.parametrize(
    ("address", "pointer", "expected"),
    [
        (LOW - 8, LOW, True),  # a call at the very end
        (LOW - 0x3000, LOW - 0x3100, True),  # a big frame, of which one end is touched
        (LOW - 0x30, LOW + 0x200, True),
        (0x10, LOW + 0x200, False),  # a null pointer, deep in a stack
        (LOW - 8, HIGH - 0x2000, False),  # a wild pointer: the stack has room
        (LOW - 0x100000, LOW + 8, False),  # far below
        (LOW + 0x10, LOW + 0x10, False),  # in the stack itself
        (HIGH + 8, LOW + 8, False),
    ],
)
@pytest.mark.parametrize("guard", [False, True])
def test_an_overflow_is_told_by_the_stack_pointer(address, pointer, expected, guard):
    mappings = [Mapping(LOW, HIGH, "rw-p"), Mapping(0x400000, 0x500000, "r-xp")]
    mappings += [Mapping(LOW - 0x4000, LOW, "---p")] * guard
    core = SimpleNamespace(
        arch="x86-64",
        threads=lambda: [Thread(6, registers={"rsp": HIGH}), Thread(7, registers={"rsp": pointer})],
        mappings=lambda: mappings,
        mapping_at=lambda at: next((m for m in mappings if m.start <= at < m.end), None),
    )
    assert CoreFileTarget._below_stack(core, 7, address) == expected


def test_the_sentence_says_it():
    assert Death(7, "SIGSEGV", 0x10).text == "SIGSEGV at address 0x10"
    assert Death(7, "SIGSEGV", 0x10, overflow=True).text == "SIGSEGV at address 0x10, just below its stack: an overflow"
