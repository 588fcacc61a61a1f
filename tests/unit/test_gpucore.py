"""CUDA core dumps: what the generator (a fake, tests/gpucores.py) put in comes out; damaged ones end in one line, bounded."""

import gzip
import json
import os
import random
import struct
import time
import tracemalloc

import pytest
from harness import gpucores
from harness.cxx_names import doubling
from harness.gpucores import Grid

from gdbext.commands import llm_gpucore
from gdbext.errors import GdbextError
from gdbext.kernels import gpucore
from gdbext.render import names
from gdbext.session.session import Session

V1 = "_ZN4vllm25paged_attention_v1_kernelIfLi64ELi16EEEvPT_PKS1_fPKib"
V1_NAME = "void vllm::paged_attention_v1_kernel<float, 64, 16>(float*, float const*, float, int const*, bool)"
REDUCE = "_ZN4vllm31paged_attention_v2_reduce_kernelIfLi64EEEvPT_PKS1_"
MODULE = gpucores.cubin({V1: 384, REDUCE: 256})
RELEASES = ("r400", "r525", "r580", "newest")


def ask(line):
    """The JSON that the command gives."""
    command = llm_gpucore.LlmGpuCore
    answer = command().answer(Session(), command.parse(line))
    answer.to_text()
    return json.loads(answer.json(command.name))


@pytest.mark.parametrize("release", RELEASES)
def test_what_the_driver_noted_is_what_is_shown(release, tmp_path):
    path = tmp_path / "gpu.core"
    grids = [
        Grid(V1, (8, 4, 1), (64, 1, 1), [((0, 0, 0), []), ((5, 1, 0), [(1, 7, 14)])]),
        Grid(REDUCE, (8, 4, 1), (32, 2, 1), [((2, 2, 0), [])], id=7, at=0x40),
    ]
    entries = gpucores.write_core(path, MODULE, grids, memory=[(0x7F2000000000, struct.pack("<8f", *range(8)))], release=release)
    said = ask(str(path))
    (reason,) = said["partial"]
    assert said["schema"] == "llm-gpucore/1" and reason.startswith(
        "which address was touched is not known: a CUDA core has no field for it"
    )
    assert said["devices"] == [
        {
            "index": 0,
            "name": "NVIDIA Fake GPU",
            "architecture": "sm_75",
            "sms": 2,
            "exception": 'CUDA_EXCEPTION_14 "Warp Illegal Address"',
        }
    ]
    first, second = said["kernels"]
    assert (first["name"], first["grid"], first["block"], first["blocks"], first["warps"]) == (
        V1_NAME,
        [8, 4, 1],
        [64, 1, 1],
        2,
        4,
    )
    assert first["exception"] == 'CUDA_EXCEPTION_14 "Warp Illegal Address"' and first["host_tid"] == 4242
    assert second["exception"] is None and second["id"] == 7
    assert second["places"] == [{"warps": 2, "pc": hex(entries[REDUCE] + 0x40), "function": second["name"], "offset": 0x40}]
    (fault,) = said["faults"]
    assert (fault["kernel"], fault["block"], fault["thread"], fault["device"]) == (V1_NAME, [5, 1, 0], [39, 0, 0], 0)
    assert (fault["sm"], fault["warp"], fault["lane"], fault["threads"], fault["grid"]) == (0, 3, 7, 1, 1)
    assert (fault["pc"], fault["function"], fault["offset"], fault["precise"]) == (hex(entries[V1] + 0x100), V1_NAME, 0x100, True)
    assert fault["address"] is None and fault["exception"] == 'CUDA_EXCEPTION_14 "Warp Illegal Address"'
    assert gpucore.open_core(str(path)).read(0x7F2000000004, 8) == struct.pack("<2f", 1, 2)


def test_an_imprecise_exception_says_that_it_is_and_where_the_thread_is(tmp_path):
    path = tmp_path / "gpu.core"
    entries = gpucores.write_core(
        path, MODULE, [Grid(V1, (2, 1, 1), (96, 1, 1), [((1, 0, 0), [(2, 3, 10), (2, 4, 10)])], error=None, at=0x60)]
    )
    (fault,) = ask(str(path))["faults"]
    assert (fault["precise"], fault["pc"], fault["thread"], fault["threads"]) == (False, hex(entries[V1] + 0x60), [67, 0, 0], 2)
    assert "imprecise" in llm_gpucore.LlmGpuCore().run(Session(), llm_gpucore.LlmGpuCore.parse(str(path))).to_text()


def test_a_dump_of_a_hang_shows_where_the_warps_stand(tmp_path):
    path = tmp_path / "gpu.core"
    entries = gpucores.write_core(path, MODULE, [Grid(V1, (4, 1, 1), (64, 1, 1), [((i, 0, 0), []) for i in range(4)], at=0x80)])
    said = ask(str(path))
    assert said["faults"] == [] and said["kernels"][0]["places"] == [
        {"warps": 8, "pc": hex(entries[V1] + 0x80), "function": V1_NAME, "offset": 0x80}
    ]


# Instructions of nvcc 13.0 for sm_90 as nvdisasm 13.2 shows them: (what it says, register, offset, the 16 bytes as two words)
INSTRUCTIONS = [
    ("LDG.E R14, desc[UR6][R18.64+0xc]", 18, 0xC, 0x00000C06120E7981, 0x000EA8000C1E1900),
    ("LDG.E R20, desc[UR6][R2.64+-0x1c]", 2, -0x1C, 0xFFFFE40602147981, 0x000EE2000C1E1900),
    ("STG.E desc[UR6][R2.64+0x14], R27", 2, 0x14, 0x0000141B02007986, 0x000FE2000C101906),
    ("REDG.E.ADD.STRONG.GPU desc[UR6][R22.64], R29", 22, 0, 0x0000001D1600798E, 0x0005E8000C10E186),
]
NOP = (0x0000000000007918, 0x000FC00000000000)


def test_the_touched_address_is_worked_out_from_the_instruction_at_fault(tmp_path):
    for text, register, offset, *words in INSTRUCTIONS:
        code = struct.pack("<2Q", *NOP) * 16 + struct.pack("<2Q", *words) + struct.pack("<2Q", *NOP) * 7
        assert gpucore.touches(code[256:272], 9) == (register, offset), text
        values = list(range(255))
        values[register], values[register + 1] = 0x10, 0x7F20
        for at, wanted in (
            (0x100, 0x7F2000000010 + offset),
            (0x120, 0x7F2000000010 + offset),
            (0xF0, None),
        ):  # where the thread stands now
            path = tmp_path / f"{register}.{at}.core"
            gpucores.write_core(
                path,
                gpucores.cubin({V1: code}),
                [Grid(V1, (2, 1, 1), (32, 1, 1), [((0, 0, 0), [(0, 3, 14)])], at=at)],
                registers={(0, 0, 3): values},
                sm=(9, 0),
            )
            (fault,) = ask(str(path))["faults"]
            assert (fault["address"], fault["address_from"]) == (wanted and hex(wanted), wanted and "instruction")
    assert (
        gpucore.touches(struct.pack("<2Q", 0x00001806FF047981, 0x000EA2000C1EEB00), 7) is None
    )  # LDG.E.64.SYS R4, [UR6+0x18] of sm_75


def test_a_core_that_a_driver_wrote(tmp_path):
    """Of an H100 by driver 580 (CUDA 13.0), but for the modules of the driver's own: tests/gpu/subjects/paged.cu with "fault",
    which gave k_cache and put block 1 << 28 into the table of sequence 2."""
    k_cache, path = 140451803828224, tmp_path / "gpu.core"
    with gzip.open(os.path.join(os.path.dirname(__file__), "cores", "h100_driver_580.gz")) as packed:
        path.write_bytes(packed.read())
    said = ask(str(path))
    assert said["partial"] == [] and said["global_memory"] == 0
    (device,), (kernel,) = said["devices"], said["kernels"]
    assert (device["name"], device["architecture"], device["sms"]) == ("NVIDIA H100 80GB HBM3", "sm_90", 132)
    assert kernel["name"].startswith("vllm::paged_attention_v1_kernel(float*, float const*")
    assert (kernel["grid"], kernel["block"], kernel["blocks"], kernel["warps"]) == ([8, 4, 1], [32, 1, 1], 8, 8)
    assert [p["warps"] for p in kernel["places"]] == [8]
    assert sorted(f["block"] for f in said["faults"]) == [[head, 2, 0] for head in range(8)]
    for fault in said["faults"]:
        at = k_cache + ((1 << 28) * 8 + fault["block"][0]) * 16 * 32 * 4
        assert (fault["address"], fault["address_from"], fault["thread"]) == (hex(at), "instruction", [0, 0, 0])
        assert (fault["exception"], fault["threads"]) == ('CUDA_EXCEPTION_14 "Warp Illegal Address"', 32)
        assert fault["precise"] and int(fault["pc"], 16) - int(kernel["entry"], 16) == fault["offset"] == 0x250


def test_a_load_into_its_own_address_tells_nothing():
    """Of the same H100, a kernel built with -G: its registers are those after the load, whose lower word was 0."""
    assert gpucore.touches(struct.pack("<2Q", 0x0000000414147980, 0x00321E000C101900), 9) is None  # LD.E R20, [R20.64]
    assert gpucore.touches(struct.pack("<2Q", 0x0000000414187980, 0x00321E000C101900), 9) == (20, 0)  # LD.E R24, [R20.64]


def test_registers_that_were_written_since_tell_nothing(tmp_path):
    _, register, _, *words = INSTRUCTIONS[2]
    for later, known in (
        (0x0000000000037824, False),
        (0x0000000000007947, False),
        (0x0000000000207824, True),
    ):  # IMAD writes R3; BRA; IMAD writes R32
        code = struct.pack("<2Q", *NOP) * 16 + struct.pack("<4Q", *words, later, 0) + struct.pack("<2Q", *NOP) * 7
        path = tmp_path / f"{later}.core"
        gpucores.write_core(
            path,
            gpucores.cubin({V1: code}),
            [Grid(V1, (2, 1, 1), (32, 1, 1), [((0, 0, 0), [(0, 0, 14)])], at=0x120)],
            registers={(0, 0, 0): [7] * 255},
            sm=(9, 0),
        )
        assert (ask(str(path))["faults"][0]["address"] is not None) == known


def test_the_touched_address_comes_from_the_text_of_newer_drivers(tmp_path):
    path = tmp_path / "gpu.core"
    gpucores.write_core(
        path,
        MODULE,
        [Grid(V1, (2, 1, 1), (32, 1, 1), [((0, 0, 0), [(0, 0, 14)])])],
        release="newest",
        text="read at address 0x7f20deadbee0.",
    )
    (fault,) = ask(str(path))["faults"]
    assert fault["address"] == "0x7f20deadbee0" and fault["address_from"] == "driver" and "deadbee0" in fault["text"]


def test_names_in_the_file_cannot_reach_the_terminal(tmp_path):
    path = tmp_path / "gpu.core"
    gpucores.write_core(
        path, gpucores.cubin({"evil\x1b[31m\u202e": 64}), [Grid("evil\x1b[31m\u202e", (1, 1, 1), (32, 1, 1), [((0, 0, 0), [])])]
    )
    command = llm_gpucore.LlmGpuCore
    answer = command().run(Session(), command.parse(str(path)))
    assert "\x1b" not in answer.to_text() + answer.json(command.name) and "\u202e" not in answer.to_text()


@pytest.mark.parametrize("name", [doubling(22), doubling(14, 3), "_Z1f" + "P" * 50_000 + "i"], ids=["two", "three", "pointers"])
def test_a_kernels_name_that_stands_for_endless_text_stays_as_it_is(tmp_path, name):
    path = tmp_path / "gpu.core"
    grids = [Grid(name, (1, 1, 1), (32, 1, 1), [((0, 0, 0), [])]), Grid(V1, (1, 1, 1), (32, 1, 1), [((0, 0, 0), [])], id=7)]
    gpucores.write_core(path, gpucores.cubin({name: 64, V1: 64}), grids)
    tracemalloc.start()
    try:
        found = ask(str(path))["kernels"]
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    assert [kernel["name"] for kernel in found] == [names.shorten(name, names.MAX_NAME), V1_NAME]


@pytest.mark.parametrize(
    "content,word",
    [
        (b"", "empty"),
        (b"hello", "not a 64-bit"),
        (gpucores.cubin({V1: 64}), "no CUDA core dump"),
        (gpucores.Sections(62, 4, 0, 0).bytes(), "core-file"),
        (gpucores.Sections(190, 4, 0x33, 7).bytes(), "device table"),
        (gpucores.Sections(190, 4, 0x77, 7).bytes(), "ABI 0x77"),
    ],
)
def test_what_is_no_gpu_core_is_refused_in_one_line(content, word, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(GdbextError, match=word) as e:
        ask(str(path))
    assert "\n" not in str(e.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(GdbextError, match=str(path)):
            ask(str(path))


def test_short_rows_and_grids_that_are_not_there_are_said(tmp_path):
    path = tmp_path / "gpu.core"
    gpucores.write_core(path, MODULE, [Grid(V1, (2, 1, 1), (32, 1, 1), [((0, 0, 0), [])])])
    data = path.read_bytes()
    shoff, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    for i in range(count):
        kind = struct.unpack_from("<I", data, shoff + 64 * i + 4)[0]
        if kind == gpucores.LANES:
            short = bytearray(data)
            struct.pack_into("<Q", short, shoff + 64 * i + 56, 40)
            path.write_bytes(short)
            with pytest.raises(GdbextError, match="rows of 40 bytes in the lane table, at least 48"):
                ask(str(path))
        if kind == gpucores.BLOCKS:
            stray = bytearray(data)
            struct.pack_into("<Q", stray, struct.unpack_from("<Q", data, shoff + 64 * i + 24)[0], 99)
            path.write_bytes(stray)
            assert "no grid of that number" in ask(str(path))["partial"][0]


def test_cut_and_damaged_files_end_in_an_answer_or_one_line(tmp_path):
    path = tmp_path / "gpu.core"
    gpucores.write_core(
        path, MODULE, [Grid(V1, (2, 1, 1), (64, 1, 1), [((0, 0, 0), [(0, 0, 14)]), ((1, 0, 0), [])])], release="newest"
    )
    whole, luck = path.read_bytes(), random.Random(6)
    shoff = struct.unpack_from("<Q", whole, 40)[0]
    refused = answered = 0
    start = time.process_time()
    for attempt in range(300):
        data = bytearray(whole)
        if attempt % 3 == 0:
            data = data[: luck.randrange(len(data))]
        for _ in range(attempt % 3 * 4):
            low, high = [(0, 64), (shoff, len(data)), (64, shoff)][luck.randrange(3)]
            at = luck.randrange(low, high - 8)
            struct.pack_into("<Q", data, at, luck.choice([0, 1, 0xFFFFFFFF, (1 << 64) - 1, luck.getrandbits(64), len(data), 48]))
        path.write_bytes(data)
        try:
            ask(str(path))
            answered += 1
        except GdbextError as e:
            refused += 1
            assert "\n" not in str(e)
    assert refused > 50 and answered > 20
    assert time.process_time() - start < 120


def test_tables_that_repeat_themselves_end(tmp_path, monkeypatch):
    monkeypatch.setattr(gpucore, "MAX_ROWS", 1 << 14)
    out = gpucores.Sections(190, 4, 0x33, 7)
    table = out.add("devtbl", gpucores.DEVICES, bytes(72 * 10), entsize=72)
    for _ in range(5):
        sms = out.add("sm", gpucores.SMS, bytes(8 * 2000), table, 0, 8)
    blocks = bytes(24 * 2000)
    for _ in range(40):
        out.add("cta", gpucores.BLOCKS, blocks, sms, 0, 24)
    path = tmp_path / "gpu.core"
    path.write_bytes(out.bytes())
    said = ask(str(path))
    assert any("more than 16384 rows in block tables" in p for p in said["partial"]) and len(said["partial"]) <= 20


def test_section_names_that_overlap_end(tmp_path):
    """10,000 names of up to 64 KiB, each the tail of the one before: 700 KB of file would be 600 MB of names."""
    count, names = 10000, b"n" * 65000 + b"\0"
    head = bytearray(b"\x7fELF\x02\x01\x01\x33\x07" + bytes(7))
    head += struct.pack("<HHIQQQIHHHHHH", 4, 190, 1, 0, 0, 64 + len(names), 0, 64, 0, 0, 64, count, 1)
    table = struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    table += struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 64, len(names), 0, 0, 0, 0)
    for i in range(count - 2):
        table += struct.pack("<IIQQQQIIQQ", i, 1, 0, 0, 64, 1, 0, 0, 0, 0)
    path = tmp_path / "gpu.core"
    path.write_bytes(bytes(head) + names + table)
    tracemalloc.start()
    try:
        with pytest.raises(GdbextError) as e:
            ask(str(path))
        assert "\n" not in str(e.value) and tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_setup_prints_what_a_shell_takes_for_each_release():
    everything = ask("-setup")["setup"]
    for name in (
        "CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1",
        "CUDA_COREDUMP_PIPE=",
        "skip_global_memory",
        "CUDA 13",
        "CUDA 12.5",
        "CUDA 11.4",
    ):
        assert name in everything
    assert "CUDA 13:" not in ask("-setup -cuda 12.8")["setup"] and "deprecated" in ask("-setup -cuda 12.8")["setup"]
    for wrong in ("10.2", "new"):
        with pytest.raises(GdbextError, match=wrong):
            ask(f"-setup -cuda {wrong}")
