"""Which parts of stacks are copied while a process stands still."""

import random
import struct

import pytest

from gdbext.access import ptrace, ranges


def thread(sp):
    """Raw registers of a thread whose stack pointer is `sp`"""
    count = 27  # struct user_regs_struct of x86-64, in words; rsp is the 20th
    words = [0] * count
    words[19] = sp
    raw = struct.pack(f"<{count}Q", *words)
    assert ptrace.decode_registers(raw, "x86-64")[ptrace.STACK_POINTER["x86-64"]] == sp
    return raw


def plainly(sps, ends):
    """The same, by a search through all that is mapped"""
    found = []
    for sp in sps:
        low = sp - ranges.RED_ZONE & -ranges.PAGE
        end = next((e for s, e in ends if s <= sp < e), low + ranges.STACK_BYTES)
        found.append((low, min(end - low, ranges.STACK_BYTES)))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_each_stack_ends_with_its_own_mapping(seed):
    drawn, at, ends = random.Random(seed), 1 << 30, []
    for _ in range(drawn.choice((0, 1, 7, 300))):
        at += drawn.choice((0, 1, 16)) << 12  # some adjoin
        size = drawn.choice((1, 2, 16, 2000)) << 12
        ends.append((at, at + size))
        at += size
    near = [edge + d for edges in ends for edge in edges for d in (-8, 0, 8)]
    sps = drawn.sample(near, min(len(near), 60)) + [1 << 29, at + 4096, 8192]
    assert ranges.stack_ranges(map(thread, sps), "x86-64", ends) == plainly(sps, ends)
