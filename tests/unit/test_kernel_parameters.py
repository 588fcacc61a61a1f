"""What a kernel was launched with: FlashInfer's structures as a C compiler lays them out, Triton's arguments as its driver
passes them."""

import ctypes
import struct

import pytest

from gdbext.errors import GdbextError
from gdbext.kernels import parameters
from gdbext.kernels.focus import Question, block_of
from gdbext.kernels.triton import Compiled

C = {"I": ctypes.c_uint32, "i": ctypes.c_int32, "f": ctypes.c_float, "?": ctypes.c_bool, "Q": ctypes.c_uint64}
TABLE, MASK = 0x7F2000000000, 0x7F2000001000
HEADS, KV_HEADS, SIZE = 8, 2, 128


def passed(row, grid, variant=(), paged=112):
    """The bytes of a structure: q, paged_kv (`paged` bytes), o, lse, then a variant's own fields, then those of the row."""
    values = {
        "padded_batch_size": grid[0],
        "num_qo_heads": HEADS,
        "num_kv_heads": KV_HEADS,
        "q_stride_n": HEADS * SIZE,
        "q_stride_h": SIZE,
        "window_left": -1,
        "request_indices": TABLE,
        "kv_tile_indices": TABLE + 64,
        "qo_tile_indices": TABLE + 128,
        "o_indptr": TABLE + 192,
        "kv_chunk_size_ptr": TABLE + 256,
        "block_valid_mask": MASK,
        "partition_kv": True,
        "sm_scale": 0.088,
        "k_stride_n": 256,
        "k_stride_h": 128,
        "v_stride_n": 256,
        "v_stride_h": 128,
        "kv_stride_n": 256,
        "kv_stride_h": 128,
    }
    head = (
        [("q", "Q")]
        + [(f"paged{i}", "I") for i in range(paged // 4)]
        + [("o", "Q"), ("lse", "Q")]
        + [(f"own{i}", kind) for i, kind in enumerate(variant)]
    )
    one = type(
        "Params", (ctypes.Structure,), {"_fields_": [(name, C[kind]) for name, kind in head + [tuple(f) for f in row["fields"]]]}
    )()
    one.q, one.o, one.lse = 0x7F3000000000, 0x7F3000100000, 0x7F3000200000
    for i in range(paged // 4):
        setattr(one, f"paged{i}", (16, KV_HEADS, SIZE, 3)[i % 4])
    for name, _kind in row["fields"]:
        setattr(one, name, values.get(name, 0))
    return bytes(one)


@pytest.mark.parametrize("variant", [(), ("Q", "f", "f", "f", "f"), ("Q", "Q", "Q", "f"), ("f",)])
@pytest.mark.parametrize("rule,grid", [("flashinfer-decode", (5, KV_HEADS, 1)), ("flashinfer-prefill", (5, 1, KV_HEADS))])
def test_every_layout_of_flashinfer_is_found_behind_any_variants_fields(rule, grid, variant):
    for row in parameters.layouts(rule):
        data = passed(row, grid, variant)
        found, known = parameters.flashinfer(rule, data, grid, f"flashinfer::Kernel<true, {row['structure']}>")
        assert known["structure"] == row["structure"] and parameters.flashinfer(rule, data, grid)[0]["request_indices"] == TABLE
        assert (found["num_qo_heads"], found["request_indices"], found["block_valid_mask"]) == (HEADS, TABLE, MASK), (
            row["structure"],
            row["first"],
        )


def test_a_launch_that_no_layout_fits_is_refused_by_name():
    row = parameters.layouts("flashinfer-decode")[0]
    for data, grid in (
        (passed(row, (5, 2, 1)), (6, 2, 1)),
        (passed(row, (5, 2, 1)), (5, 3, 1)),
        (b"", (5, 2, 1)),
        (bytes(4096), (5, 2, 1)),
        (b"\xff" * 4096, (5, 2, 1)),
    ):
        with pytest.raises(
            GdbextError, match="none of the known layouts of FlashInfer's parameters.*give -queries-per-kv N and -table ADDR"
        ):
            parameters.flashinfer("flashinfer-decode", data, grid)


def device(pieces):
    def read(address, size):
        for start, data in pieces.items():
            if start <= address and address + size <= start + len(data):
                return data[address - start : address - start + size]
        raise GdbextError(f"cannot read {size} bytes at {address:#x}")

    return read


def test_flashinfer_needs_no_hint_and_skips_what_a_cuda_graph_padded():
    row = parameters.layouts("flashinfer-decode")[1]
    read = device({TABLE: struct.pack("<5i", 1, 2, 2, 0, 0), MASK: bytes([1, 1, 1, 1, 0])})
    asked = Question(2, 5, 1, (5, KV_HEADS, 1), read=read, launched=lambda: passed(row, (5, KV_HEADS, 1)), name="Kernel<Params>")
    block, lines = block_of("flashinfer-decode", asked)
    assert (
        block == (2, 1, 0)
        and "num_qo_heads = 8, 2 KV heads" in lines[0]
        and "Params of FlashInfer" in lines[0]
        and "proved by the grid" in lines[0]
    )
    assert block_of("flashinfer-decode", Question(0, 0, None, (5, KV_HEADS, 1), read=read, launched=asked.launched))[0] == (
        3,
        0,
        0,
    )
    with pytest.raises(GdbextError, match="cut into 1 parts"):  # the fourth block is padding
        block_of("flashinfer-decode", Question(0, 0, 1, (5, KV_HEADS, 1), read=read, launched=asked.launched))


def test_debug_information_comes_first():
    told = {"params.num_qo_heads": 8, "params.request_indices": TABLE, "params.block_valid_mask": 0}
    asked = Question(
        2, 5, 0, (3, 2, 1), read=device({TABLE: struct.pack("<3i", 0, 2, 1)}), launched=lambda: b"", variable=told.get
    )
    block, lines = block_of("flashinfer-decode", asked)
    assert block == (1, 1, 0) and "debug information" in lines[0]


# Names and order of vLLM 0.32's kernel_unified_attention, the ones that count here.
UNIFIED = [
    ("output_ptr", "bf16*", None),
    ("query_ptr", "bf16*", None),
    ("scale", "float", None),
    ("block_table_stride", "long", None),
    ("softcap", "float", None),
    ("query_start_len_ptr", "int*", None),
    ("num_seqs", "int", None),
]


def launched(start):
    """As the driver lays arguments out: each aligned to its own size."""
    return struct.pack("<QQfxxxxqfxxxxQi", 0x7000, 0x8000, 0.125, 640, 0.0, start, 3)


def test_triton_tells_what_was_compiled_in_and_the_launch_the_rest():
    one = Compiled("kernel_unified_attention", 1, UNIFIED, True, {"BLOCK_Q": 16, "num_queries_per_kv": 4, "num_query_heads": 8})
    assert (
        parameters.of_triton(one, launched(TABLE))["query_start_len_ptr"] == TABLE
        and parameters.of_triton(one, launched(TABLE))["num_seqs"] == 3
    )
    starts = [0, 1, 38, 39]
    facts = parameters.Facts([parameters.of_triton(one, launched(TABLE))])
    asked = Question(1, 5, 1, (5, 2, 1), read=device({TABLE: struct.pack("<4i", *starts)}), facts=lambda: facts)
    block, lines = block_of("unified", asked)
    assert (
        block == (0 + 1 + 1, 1, 0)
        and lines[0].startswith("BLOCK_Q = 16, num_queries_per_kv = 4")
        and "1 / 16 + 1 + 1 = 2" in lines[1]
    )


def test_kernels_of_one_name_count_where_they_agree_or_by_their_grid():
    def compiled(**constants):
        return parameters.of_triton(Compiled("kernel_unified_attention", 1, UNIFIED, True, constants), launched(TABLE))

    read = device({TABLE: struct.pack("<3i", 0, 16, 32)})
    same = parameters.Facts(
        [
            compiled(BLOCK_Q=16, num_queries_per_kv=4, num_query_heads=8),
            compiled(BLOCK_Q=2, num_queries_per_kv=4, num_query_heads=16),
        ]
    )
    assert block_of("unified", Question(1, 5, None, (4, 2, 1), read=read, facts=lambda: same))[0] == (2, 1, 0)
    differ = parameters.Facts([compiled(BLOCK_Q=n, num_queries_per_kv=4, num_query_heads=8) for n in (2, 16)])
    with pytest.raises(GdbextError, match="-block-q N is needed: 2 kernels of this name were compiled, with BLOCK_Q 16, 2"):
        block_of("unified", Question(1, 5, None, (4, 2, 1), read=read, facts=lambda: differ))
    assert block_of("unified", Question(1, 5, None, (4, 2, 1), rows=16, read=read, facts=lambda: differ))[0] == (2, 1, 0)
    with pytest.raises(GdbextError, match="-block-q N is needed: there is no Python"):
        block_of("unified", Question(1, 5, None, (4, 2, 1), read=read, facts=lambda: parameters.Facts(why="there is no Python")))


@pytest.mark.parametrize(
    "constants,grid,head,y",
    [
        (dict(BLOCK_H=16, kv_group_num=4, q_head_num=8), (4, 2, 8), 5, 1),
        (dict(BLOCK_H=16, kv_group_num=128, q_head_num=128), (4, 8, 8), 37, 2),
    ],
)
def test_grouped_stage1_has_as_many_heads_in_a_block_as_triton_compiled(constants, grid, head, y):
    facts = parameters.Facts([constants, dict(BLOCK_H=16, kv_group_num=2, q_head_num=1024)])
    block, lines = block_of("grouped", Question(3, head, 1, grid, facts=lambda: facts))
    assert block == (3, y, 1) and "by Triton" in lines[1]


def test_splits_of_flash_attention_take_the_heads_from_its_parameters():
    data = bytes(96) + struct.pack("<3i", 8, 2, 4) + bytes(64)
    assert block_of("flash-splitkv", Question(1, 2, 3, (1, 4, 16), launched=lambda: data))[0] == (0, 3, 10)
    assert block_of("flash-splitkv", Question(1, 2, None, (1, 2, 8), launched=lambda: data))[0] == (0, 1, 2)  # one split
    with pytest.raises(GdbextError, match="-heads N is needed"):
        block_of("flash-splitkv", Question(1, 2, 3, (1, 4, 16), launched=lambda: bytes(300)))


def test_parameters_are_read_as_far_as_they_go():
    class Device:
        def parameter_bytes(self, offset, size):
            if offset + size > 300:
                raise GdbextError("no more")
            return bytes(i & 255 for i in range(offset, offset + size))

    assert parameters.read(Device()) == bytes(i & 255 for i in range(300))
    with pytest.raises(GdbextError, match="none"):
        parameters.read(
            type("None_", (), {"parameter_bytes": lambda self, offset, size: (_ for _ in ()).throw(GdbextError("none"))})()
        )


def test_arguments_stand_one_after_the_other_each_aligned_to_its_size():
    data = struct.pack("<Qi4xQf", 0x7F2000000000, 3, 5, 0.5) + b"\x01\x02" + bytes(2)
    wanted = [("q", "float*", None), ("n", "int", None), ("stride", "long", None), ("scale", "float", None), ("z", "bf16", 2)]
    found = parameters.arguments(wanted, data)
    assert [(a.name, a.value, a.raw) for a in found] == [
        ("q", 0x7F2000000000, False), ("n", 3, False), ("stride", 5, False), ("scale", 0.5, False), ("z", "0102", True)
    ]  # fmt: skip
    assert found[0].pointer and not found[1].pointer
    assert len(parameters.arguments(wanted, data[:20])) == 2  # where the bytes end
    assert len(parameters.arguments([wanted[0], ("p", "Params", None), wanted[1]], data)) == 1  # and where a size is not known
