"""The device commands in NVIDIA's cuda-gdb on (fake) GPU cores, and refused in one line everywhere else."""

import re
import struct
import sys

from harness import gpucores
from harness.gpucores import Grid
from harness.subjects import spawned

V1 = "_ZN4vllm25paged_attention_v1_kernelIfLi64ELi16EEEvPT_PKS1_fPKib"
V2 = "_ZN4vllm25paged_attention_v2_kernelIfLi512EEEvPT_PKS1_"
DECODE = "_ZN10flashinfer33BatchDecodeWithPagedKVCacheKernelILi2EEEvPf"
PLAIN = "_Z12other_kernelPi"
MODULE = gpucores.cubin({V1: 384, V2: 384, DECODE: 384, PLAIN: 128})
TABLE = 0x7F2000000000


def core(path, function, grid, blocks, faults=(), parameters=b""):
    gpucores.write_core(
        path,
        MODULE,
        [Grid(function, grid, (64, 1, 1), [(b, faults if b == blocks[-1] else []) for b in blocks])],
        parameters=parameters,
        memory=[(TABLE, struct.pack("<4i", 0, 2, 1, 2)), (TABLE + 4096, struct.pack("<8f", *range(8)))],
    )
    return f"target cudacore {path}"


def test_focus_goes_to_the_block_of_a_sequence_and_head(cuda_gdb, tmp_path):
    opened = core(tmp_path / "1", V1, (8, 4, 1), [(0, 0, 0), (5, 3, 0), (3, 1, 0)])
    said = cuda_gdb(
        [
            opened,
            "llm-focus -seq 3 -head 5 -json",
            "cuda block thread",
            "llm-focus -seq 1 -head 3",
            "print blockIdx",
            "llm-focus -seq 2 -head 5",
            "cuda block",
            "llm-focus -seq 4 -head 0",
            "llm-focus -seq 1",
            "llm-focus -seq 0 -head 0 -kernel 7",
        ]
    )
    answer = said.json(1)
    assert (answer["block"], answer["thread"], answer["arithmetic"]) == (
        [5, 3, 0],
        [0, 0, 0],
        ["x = head = 5", "y = sequence = 3"],
    )
    assert said.outputs[2] == "block (5,3,0), thread (0,0,0)"
    assert "y = sequence = 1\nblock (3,1,0) thread (0,0,0)" in said.outputs[3]
    for i, word in {
        5: "not on the device now",
        7: "y goes from 0 to 3",
        8: "give -seq S and -head H",
        9: "no kernel 7; there are 0",
    }.items():
        assert word in said.outputs[i] and said.outputs[i].count("\n") == 0
    assert said.outputs[6] == "block (3,1,0)"  # a refused focus moves nothing


def test_parts_and_tables_of_other_kernels(cuda_gdb, tmp_path):
    said = cuda_gdb([core(tmp_path / "2", V2, (8, 4, 3), [(0, 0, 0), (5, 3, 2)]), "llm-focus -seq 3 -head 5 -part 2 -json"])
    assert said.json(1)["block"] == [5, 3, 2] and "tokens 1024 to 1535" in said.json(1)["arithmetic"][2]
    said = cuda_gdb(
        [
            core(tmp_path / "3", DECODE, (4, 2, 1), [(0, 0, 0), (3, 1, 0)]),
            "llm-focus -seq 2 -head 5 -part 1",
            "llm-focus -seq 2 -head 5 -part 1 -queries-per-kv 4",
            f"llm-focus -seq 2 -head 5 -part 1 -queries-per-kv 4 -table {TABLE:#x} -json",
            f"llm-focus -seq 2 -head 5 -queries-per-kv 4 -table {TABLE + 64:#x}",
        ]
    )
    for i in (1, 2):  # its parameters are zeros here
        assert (
            "none of the known layouts of FlashInfer's parameters" in said.outputs[i]
            and "give -queries-per-kv N and -table ADDR" in said.outputs[i]
        )
    assert said.json(3)["block"] == [3, 1, 0] and said.outputs[4].startswith("llm-focus: cannot read 16 bytes at")
    said = cuda_gdb([core(tmp_path / "4", PLAIN, (4, 2, 1), [(0, 0, 0)]), "llm-focus -seq 0 -head 0"])
    assert "none of the catalogue's kernels (llm-kernels): focus a block by number" in said.outputs[1]


def test_flashinfers_own_parameters_tell_which_block_serves_whom(cuda_gdb, tmp_path):
    """BatchDecodeParams of FlashInfer (include/flashinfer/attention/default_decode_params.cuh), as a compiler lays it out: 8
    query heads, 2 KV heads, 4 blocks."""
    data = struct.pack(
        "<2Q14I9Q5i4f4x5Q?7x",
        0x7F3000000000,
        0,
        *[16] * 14,
        *[0x7F3000000000] * 9,
        4,
        8,
        1024,
        128,
        -1,
        0.0,
        0.09,
        1.0,
        1e-4,
        TABLE,
        TABLE,
        TABLE,
        TABLE,
        0,
        True,
    )
    said = cuda_gdb(
        [
            core(tmp_path / "9", DECODE, (4, 2, 1), [(0, 0, 0), (3, 1, 0), (1, 0, 0)], parameters=data),
            "llm-focus -seq 2 -head 5 -part 1 -json",
            "llm-focus -seq 2 -head 1",
        ]
    )
    answer = said.json(1)
    assert (
        answer["block"] == [3, 1, 0]
        and f"num_qo_heads = 8, 2 KV heads in the grid, request_indices at {TABLE:#x}" in answer["arithmetic"][0]
    )
    assert "x: request_indices[1] = 2, its part 0 of 2" in said.outputs[2] and "block (1,0,0)" in said.outputs[2]


def test_gpucore_moves_the_focus_to_the_fault(cuda_gdb, tmp_path):
    core(tmp_path / "5", V1, (8, 4, 1), [(0, 0, 0), (5, 3, 0)], [(1, 7, 14)])
    said = cuda_gdb([f"llm-gpucore {tmp_path}/5", "llm-focus -seq 0 -head 0", f"llm-gpucore {tmp_path}/5", "cuda block thread"])
    assert said.outputs[0].endswith("\nfocus: kernel 0 block (5,3,0) thread (39,0,0)") and "block (0,0,0)" in said.outputs[1]
    assert said.outputs[3] == "block (5,3,0), thread (39,0,0)"


def test_the_backtrace_lists_the_kernels(cuda_gdb, tmp_path):
    said = cuda_gdb([core(tmp_path / "6", V1, (8, 4, 1), [(0, 0, 0)]), "llm-bt -json", "llm-bt"])
    (kernel,) = said.json(1)["kernels"]
    assert (kernel["kind"], kernel["grid"], kernel["block"], kernel["device"]) == (
        "kernel",
        [8, 4, 1],
        [64, 1, 1],
        0,
    ) and "paged_attention_v1_kernel" in kernel["function"]
    assert "Kernels on the device" in said.outputs[2] and "* kernel 0" in said.outputs[2]


def test_device_memory_is_read_under_a_focus_and_refused_without(cuda_gdb, tmp_path):
    script = tmp_path / "read.py"
    script.write_text(
        "import gdb\nfrom gdbext.control import cudagdb\nfrom gdbext.errors import GdbextError\n"
        "def read(address, size):\n"
        "    try: print('READ', cudagdb.device().read(address, size).hex())\n"
        "    except GdbextError as e: print('REFUSED', e)\n"
    )
    at = TABLE + 4096
    said = cuda_gdb(
        [
            f"source {script}",
            f"python read({at:#x}, 8)",
            core(tmp_path / "7", V1, (8, 4, 1), [(0, 0, 0)]),
            f"python read({at:#x}, 16)",
            f"python read({at + 0x100000:#x}, 16)",
            f"python read({at:#x}, -1)",
        ]
    )
    assert said.outputs[1].startswith("REFUSED device memory is read under a device focus")
    assert said.outputs[3] == "READ " + struct.pack("<4f", *range(4)).hex()
    assert said.outputs[4].startswith("REFUSED cannot read") and said.outputs[5].startswith("REFUSED cannot read")


def test_what_this_cuda_gdb_cannot_is_one_line(cuda_gdb, tmp_path):
    said = cuda_gdb(
        [
            core(tmp_path / "8", V1, (8, 4, 1), [(0, 0, 0)]),
            "llm-step",
            "llm-step sideways",
            "llm-break paged-attention",
            "llm-launch",
            "llm all",
        ]
    )
    for i, word in {1: "cannot be stepped", 2: "none of line, instruction, kv-block", 3: "", 4: ""}.items():
        assert word in said.outputs[i] and said.outputs[i].count("\n") == 0 and "Traceback" not in said.outputs[i]
    assert "llm-focus" in said.outputs[5]


def test_the_opt_in_settings_are_accepted_or_skipped_by_name(cuda_gdb, root, tmp_path):
    script = f"{root}/gdbinit.d/cuda.gdb"
    show = ["show cuda api_failures", "show cuda kernel_events", "show cuda context_events"]
    said = cuda_gdb([f"source {script}", *show], load=False)
    assert all(line.startswith("gdbext: skipped: set cuda software_preemption auto: ") for line in said.outputs[0].splitlines())
    assert "'stop'" in said.outputs[1] and "'none'" in said.outputs[2] and "off" in said.outputs[3]
    with open(script) as f:
        text = f.read()
    (tmp_path / "newer.gdb").write_text(
        text.replace('"set cuda kernel_events none"', '"set cuda kernel_events_that_are_gone none"')
    )
    said = cuda_gdb([f"source {tmp_path}/newer.gdb", *show], load=False)
    assert said.outputs[0].startswith("gdbext: skipped: set cuda kernel_events_that_are_gone none: ")
    assert "'stop'" in said.outputs[1] and "off" in said.outputs[3]


def test_the_opt_in_settings_do_nothing_elsewhere(plain_gdb, root):
    said = plain_gdb([f"source {root}/gdbinit.d/cuda.gdb", "echo alive"], load=False)
    assert "not cuda-gdb" in said.outputs[0] and said.outputs[0].count("\n") == 0 and said.outputs[1] == "alive"


def test_plain_gdb_refuses_the_device_side_in_one_line(plain_gdb):
    said = plain_gdb(["llm-focus -seq 0 -head 0", "llm-step"])
    assert all("does not see the GPU" in o and o.count("\n") == 0 for o in said.outputs)


def test_what_reads_memory_works_on_a_live_process_too(cuda_gdb, tmp_path):
    script = tmp_path / "subject.py"
    script.write_text(
        "import sys\ndef outer():\n    word = ['a', {'k': 2.5}]\n    print('ready', flush=True)\n    sys.stdin.read()\nouter()\n"
    )
    with spawned([sys.executable, str(script)], ready="ready") as process:
        said = cuda_gdb(
            [
                "pybt -json",
                "pyprint word",
                "llm-kernels",
                "llm-bt",
                "llm-launch",
                "llm-break paged-attention",
                "pycatch KeyError",
                "llm-locks",
                f"llm-inject -unsafe faulthandler {process.pid}",
            ],
            ["-p", str(process.pid)],
            before=["set auto-solib-add off"],
        )
        assert [f["function"] for f in said.json(0)["threads"][0]["frames"]] == ["outer", "<module>"]
        assert said.outputs[1] == "['a', {'k': 2.5}]" and "no attention kernel" in said.outputs[2] and "outer" in said.outputs[3]
        for i in (4, 5):  # these need frames: where this cuda-gdb's are broken it says so, elsewhere they find nothing to do
            assert said.outputs[i].count("\n") == 0 and "Unwinder" not in said.outputs[i]
        if "cannot set hardware breakpoints" in said.outputs[6]:  # gdb 10 and 11; it is no import that could not be waited for
            assert "pybreak a line of the handler" in said.outputs[6] and "import" not in said.outputs[6]
            assert "no thread that could be read waits for a lock" in said.outputs[7]
            assert "no call can be made" in said.outputs[8] and said.outputs[8].count("\n") == 0
        else:
            assert re.match(r"pycatch \d: KeyError", said.outputs[6]), said.outputs[6]
