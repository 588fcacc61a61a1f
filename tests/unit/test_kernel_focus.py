"""(sequence, head, part) -> block, rule by rule, against blocks counted as the kernels count them."""

import re
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
        ("seqs-kv-heads", dict(seq=3, head=5, part=None, grid=(4, 2, 1), queries=4), (3, 1, 0)),
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
        ("seqs-kv-heads", dict(seq=1, head=2, part=None, grid=(2, 4, 1)), "-queries-per-kv N is needed"),
        ("", dict(seq=1, head=2, part=None, grid=(2, 4, 1)), "there is no rule"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(rule, asked, word):
    with pytest.raises(GdbextError, match=word) as e:
        block_of(rule, Question(**asked))
    assert "\n" not in str(e.value)


FAMILIES = {  # a kernel as cuda-gdb names it: its rule, or what the refusal says
    "vllm::paged_attention_v1_kernel<float, 64, 16>": "heads-seqs",
    "vllm::paged_attention_v2_kernel<float, 64, 16, 128, 512>": "heads-seqs-512",
    "kernel_unified_attention": "unified",
    "kernel_paged_attention_2d": "seqs-kv-heads",
    "_fwd_grouped_kernel_stage1": "grouped",
    "_fwd_kernel_stage1": "stage1",
    "_fwd_kernel": "extend",
    "flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64>, true>": "flash-fwd",
    "flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64>, true>": "flash-splitkv",
    "flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2>": "flashinfer-decode",
    "flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<64>>": "flashinfer-prefill",
    "cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2>, "
    "flash::VarlenDynamicPersistentTileScheduler<128, 176, 256>>>>": r"persistent \(VarlenDynamicPersistentTileScheduler\)",
    "cutlass::device_kernel<flash::enable_sm80_to_sm89<flash::FlashAttnFwdSm80<flash::CollectiveMainloopFwdSm80<2>>>>": "persistent",
    "flashinfer::PersistentKernelTemplate<flashinfer::BlockBatchPagedAttentionPersistent<T1>>": r"work_indptr\[y\]",
    "flashinfer::mla::BatchMLAPagedAttentionKernel<flashinfer::mla::KernelTraits<true, 2>, P>": r"work_indptr\[y\]",
    "flashinfer::mla::hopper::BatchMLAPageAttentionHopperKernel<flashinfer::mla::hopper::KernelTraits<2>, P>": "FlashInfer's plan",
    "sm90::dense::flash_fwd_splitkv_mla_kernel<sm90::Traits<cutlass::bfloat16_t>>": "tile_scheduler_metadata",
    "fmhaSm100aKernel_QkvBfloat16OBfloat16H128PagedKvCausalP32VarSeqQ128Kv128PersistentContext": "machine code without source",
    "_attn_packed": "is not known here",
    "at::native::vectorized_elementwise_kernel<4>": "none of the catalogue's kernels",
}


@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_has_a_rule_or_a_reason(name):
    entry = catalogue.catalogue().entry_of(name)
    if entry is not None and entry.focus:
        assert entry.focus == FAMILIES[name]
    else:
        said = focus.refusal(entry, name)
        assert re.search(FAMILIES[name], said) and said.endswith("cuda block (x,y,z)") and "\n" not in said, said


def test_reasons_are_those_of_the_catalogue():
    attention = [k for k in catalogue.catalogue().kernels if k.role == "attention"]
    assert {k.unfocused for k in attention if k.unfocused} == set(focus.REFUSALS)
    assert not [k.kernel for k in attention if k.unfocused and k.focus]


def test_a_block_knows_what_it_works_on():
    for rule in ("heads-seqs", "heads-seqs-512", "seqs-heads", "extend", "flash-fwd"):
        block, _ = block_of(rule, Question(1, 2, 0, (9, 9, 9)))
        said = focus.works_on(rule, block)
        assert (said["seq"], said["head"]) == (1, 2)
