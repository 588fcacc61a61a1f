"""(sequence, head, part) -> block, rule by rule, against blocks counted as the kernels count them."""

import struct

import pytest

from gdbext.errors import GdbextError
from gdbext.kernels import catalogue, focus
from gdbext.kernels.focus import Question, block_of


def test_every_rule_of_the_catalogue_is_there():
    assert {k.focus for k in catalogue.catalogue().kernels if k.focus} == set(focus.RULES)


@pytest.mark.parametrize(
    "rule,asked,block",
    [
        ("heads-seqs", dict(seq=3, head=5, part=None, grid=(8, 4, 1)), (5, 3, 0)),
        ("heads-seqs-512", dict(seq=3, head=5, part=2, grid=(8, 4, 3)), (5, 3, 2)),
        ("seqs-heads", dict(seq=3, head=5, part=None, grid=(4, 8, 1)), (3, 5, 0)),
        ("stage1", dict(seq=3, head=5, part=1, grid=(4, 8, 2)), (3, 5, 1)),
        ("grouped", dict(seq=3, head=5, part=1, grid=(4, 2, 2), heads=8), (3, 1, 1)),
        ("extend", dict(seq=1, head=2, part=3, grid=(4, 8, 4)), (1, 2, 3)),
        ("flash-fwd", dict(seq=1, head=2, part=3, grid=(4, 2, 8)), (3, 1, 2)),
        ("flash-splitkv", dict(seq=1, head=2, part=None, grid=(1, 2, 8)), (0, 1, 2)),
        ("flash-splitkv", dict(seq=1, head=2, part=3, grid=(1, 4, 16), heads=8), (0, 3, 10)),
        ("token", dict(seq=7, head=0, part=None, grid=(9, 1, 1)), (7, 0, 0)),
    ],
)
def test_rules_without_a_table(rule, asked, block):
    found, lines = block_of(rule, Question(**asked))
    assert found == block and len(lines) >= 1 and all("=" in line for line in lines)


def device(address, numbers):
    blob = struct.pack(f"<{len(numbers)}i", *numbers)

    def read(at, size):
        assert at >= address and at - address + size <= len(blob)
        return blob[at - address : at - address + size]

    return read


def test_unified_attention_counts_blocks_as_the_kernel_resolves_them():
    """kernel_unified_attention finds its sequence by the largest s with query_start_loc[s] / BLOCK_Q + s <= blockIdx.x."""
    starts, rows = [0, 1, 38, 39, 100], 16
    total = starts[-1] // rows + len(starts) - 1
    for block in range(total):
        seq = max(s for s in range(len(starts) - 1) if starts[s] // rows + s <= block)
        row = block - (starts[seq] // rows + seq)
        if row * rows >= starts[seq + 1] - starts[seq]:
            continue  # the kernel returns at once
        asked = Question(seq, 5, row, (total, 2, 1), queries=4, rows=rows, table=0x1000, read=device(0x1000, starts))
        assert block_of("unified", asked)[0] == (block, 1, 0)


def test_flashinfer_is_asked_which_block_serves_whom():
    served = [0, 2, 2, 1, 2]
    for part, block in enumerate([1, 2, 4]):
        asked = Question(2, 7, part, (5, 2, 1), queries=4, table=0x1000, read=device(0x1000, served))
        assert block_of("flashinfer-decode", asked)[0] == (block, 1, 0)
        assert block_of(
            "flashinfer-prefill", Question(2, 7, part, (5, 1, 2), queries=4, table=0x1000, read=device(0x1000, served))
        )[0] == (block, 0, 1)


@pytest.mark.parametrize(
    "rule,asked,word",
    [
        ("heads-seqs", dict(seq=4, head=5, part=None, grid=(8, 4, 1)), "y goes from 0 to 3"),
        ("heads-seqs-512", dict(seq=3, head=5, part=3, grid=(8, 4, 3)), "z goes from 0 to 2"),
        ("flash-splitkv", dict(seq=1, head=2, part=3, grid=(1, 4, 16)), "-heads N is needed"),
        ("unified", dict(seq=1, head=2, part=None, grid=(9, 4, 1)), "-block-q N is needed"),
        (
            "unified",
            dict(seq=1, head=2, part=None, grid=(9, 4, 1), rows=16, queries=2),
            "-table ADDR, the device address of query_start_loc, is needed",
        ),
        (
            "flashinfer-decode",
            dict(seq=9, head=2, part=None, grid=(2, 4, 1), queries=1, table=0x1000, read=device(0x1000, [0, 1])),
            "no block of the grid serves request 9",
        ),
        (
            "flashinfer-decode",
            dict(seq=1, head=2, part=1, grid=(2, 4, 1), queries=1, table=0x1000, read=device(0x1000, [0, 1])),
            "no part 1",
        ),
        ("unified", dict(seq=1, head=2, part=None, grid=(9, 4, 1), rows=16, queries=2, table=0x1000), "0x1000 cannot be read"),
        ("", dict(seq=1, head=2, part=None, grid=(2, 4, 1)), "persistent kernels"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(rule, asked, word):
    with pytest.raises(GdbextError, match=word) as e:
        block_of(rule, Question(**asked))
    assert "\n" not in str(e.value)


def test_a_block_knows_what_it_works_on():
    for rule in ("heads-seqs", "heads-seqs-512", "seqs-heads", "extend", "flash-fwd"):
        block, _ = block_of(rule, Question(1, 2, 0, (9, 9, 9)))
        said = focus.works_on(rule, block)
        assert (said["seq"], said["head"]) == (1, 2)
