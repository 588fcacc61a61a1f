"""CUDA core dumps: what the generator (a fake, tests/gpucores.py) put in comes out; damaged ones end in one line, bounded."""

import json
import random
import struct
import time

import pytest

import gpucores
from gdbext.commands import llm_gpucore
from gdbext.commands.session import Session
from gdbext.errors import GdbextError
from gdbext.kernels import gpucore
from gpucores import Grid

V1 = "_ZN4vllm25paged_attention_v1_kernelIfLi64ELi16EEEvPT_PKS1_fPKib"
V1_NAME = "void vllm::paged_attention_v1_kernel<float, 64, 16>(float*, float const*, float, int const*, bool)"
REDUCE = "_ZN4vllm31paged_attention_v2_reduce_kernelIfLi64EEEvPT_PKS1_"
MODULE = gpucores.cubin({V1: 384, REDUCE: 256})
RELEASES = ("r400", "r525", "newest")


def ask(line):
    """The JSON that the command gives."""
    command = llm_gpucore.LlmGpuCore
    answer = command().answer(Session(), command.parse(line))
    answer.people()
    return json.loads(answer.json(command.name))


@pytest.mark.parametrize("release", RELEASES)
def test_what_the_driver_noted_is_what_is_shown(release, tmp_path):
    path = tmp_path / "gpu.core"
    grids = [Grid(V1, (8, 4, 1), (64, 1, 1), [((0, 0, 0), []), ((5, 1, 0), [(1, 7, 14)])]),
             Grid(REDUCE, (8, 4, 1), (32, 2, 1), [((2, 2, 0), [])], grid_id=7, at=0x40)]  # fmt: skip
    entries = gpucores.write_core(path, MODULE, grids, memory=[(0x7F2000000000, struct.pack("<8f", *range(8)))], release=release)
    said = ask(str(path))
    (reason,) = said["partial"]
    assert said["schema"] == "llm-gpucore/1" and reason.startswith("which address was touched is not known: a CUDA core has no field for it")
    assert said["devices"] == [{"index": 0, "name": "NVIDIA Fake GPU", "architecture": "sm_75", "sms": 2, "exception": 'CUDA_EXCEPTION_14 "Warp Illegal Address"'}]
    first, second = said["kernels"]
    assert (first["name"], first["grid"], first["block"], first["blocks"], first["warps"]) == (V1_NAME, [8, 4, 1], [64, 1, 1], 2, 4)
    assert first["exception"] == 'CUDA_EXCEPTION_14 "Warp Illegal Address"' and first["host_tid"] == 4242
    assert second["exception"] is None and second["id"] == 7
    assert second["places"] == [{"warps": 2, "pc": hex(entries[REDUCE] + 0x40), "function": second["name"], "offset": 0x40}]
    (fault,) = said["faults"]
    assert (fault["kernel"], fault["block"], fault["thread"], fault["device"]) == (V1_NAME, [5, 1, 0], [39, 0, 0], 0)
    assert (fault["sm"], fault["warp"], fault["lane"], fault["threads"], fault["grid"]) == (0, 3, 7, 1, 1)
    assert (fault["pc"], fault["function"], fault["offset"], fault["precise"]) == (hex(entries[V1] + 0x100), V1_NAME, 0x100, True)
    assert fault["address"] is None and fault["exception"] == 'CUDA_EXCEPTION_14 "Warp Illegal Address"'
    assert gpucore.open_core(str(path)).read(0x7F2000000004, 8) == struct.pack("<2f", 1, 2)


def test_an_imprecise_exception_says_where_the_thread_stands_and_that_it_does(tmp_path):
    path = tmp_path / "gpu.core"
    entries = gpucores.write_core(path, MODULE, [Grid(V1, (2, 1, 1), (96, 1, 1), [((1, 0, 0), [(2, 3, 10), (2, 4, 10)])], error=None, at=0x60)])
    (fault,) = ask(str(path))["faults"]
    assert (fault["precise"], fault["pc"], fault["thread"], fault["threads"]) == (False, hex(entries[V1] + 0x60), [67, 0, 0], 2)
    assert "imprecise" in llm_gpucore.LlmGpuCore().run(Session(), llm_gpucore.LlmGpuCore.parse(str(path))).people()


def test_a_dump_of_a_hang_shows_where_the_warps_stand(tmp_path):
    path = tmp_path / "gpu.core"
    entries = gpucores.write_core(path, MODULE, [Grid(V1, (4, 1, 1), (64, 1, 1), [((i, 0, 0), []) for i in range(4)], at=0x80)])
    said = ask(str(path))
    assert said["faults"] == [] and said["kernels"][0]["places"] == [{"warps": 8, "pc": hex(entries[V1] + 0x80), "function": V1_NAME, "offset": 0x80}]


def test_the_touched_address_comes_from_the_text_of_newer_drivers(tmp_path):
    path = tmp_path / "gpu.core"
    gpucores.write_core(path, MODULE, [Grid(V1, (2, 1, 1), (32, 1, 1), [((0, 0, 0), [(0, 0, 14)])])], release="newest", text="read at address 0x7f20deadbee0.")
    (fault,) = ask(str(path))["faults"]
    assert fault["address"] == "0x7f20deadbee0" and "deadbee0" in fault["text"]


def test_names_in_the_file_cannot_reach_the_terminal(tmp_path):
    path = tmp_path / "gpu.core"
    gpucores.write_core(path, gpucores.cubin({"evil\x1b[31m\u202e": 64}), [Grid("evil\x1b[31m\u202e", (1, 1, 1), (32, 1, 1), [((0, 0, 0), [])])])
    command = llm_gpucore.LlmGpuCore
    answer = command().run(Session(), command.parse(str(path)))
    assert "\x1b" not in answer.people() + answer.json(command.name) and "\u202e" not in answer.people()


@pytest.mark.parametrize("content,word", [
    (b"", "empty"), (b"hello", "not a 64-bit"), (gpucores.cubin({V1: 64}), "no CUDA core dump"),
    (gpucores.Sections(62, 4, 0, 0).bytes(), "core-file"), (gpucores.Sections(190, 4, 0x33, 7).bytes(), "device table"),
    (gpucores.Sections(190, 4, 0x77, 7).bytes(), "ABI 0x77"),
])  # fmt: skip
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
    gpucores.write_core(path, MODULE, [Grid(V1, (2, 1, 1), (64, 1, 1), [((0, 0, 0), [(0, 0, 14)]), ((1, 0, 0), [])])], release="newest")
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


def test_tables_that_repeat_themselves_end(tmp_path):
    out = gpucores.Sections(190, 4, 0x33, 7)
    table = out.add("devtbl", gpucores.DEVICES, bytes(72 * 10), entsize=72)
    for _ in range(5):
        sms = out.add("sm", gpucores.SMS, bytes(8 * 50000), table, 0, 8)
    blocks = bytes(24 * 50000)
    for _ in range(40):
        out.add("cta", gpucores.BLOCKS, blocks, sms, 0, 24)
    path = tmp_path / "gpu.core"
    path.write_bytes(out.bytes())
    said = ask(str(path))
    assert any("rows in block tables" in p for p in said["partial"]) and len(said["partial"]) <= 20


def test_setup_prints_what_a_shell_takes_for_each_release():
    everything = ask("-setup")["setup"]
    for name in ("CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1", "CUDA_COREDUMP_PIPE=", "skip_global_memory", "CUDA 13", "CUDA 12.5", "CUDA 11.4"):
        assert name in everything
    assert "CUDA 13:" not in ask("-setup -cuda 12.8")["setup"] and "deprecated" in ask("-setup -cuda 12.8")["setup"]
    for wrong in ("10.2", "new"):
        with pytest.raises(GdbextError, match=wrong):
            ask(f"-setup -cuda {wrong}")
