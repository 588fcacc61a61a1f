"""On real hardware: a paged kernel stopped at on the host and on the GPU, focused and stepped, a device tensor, a core that the
driver wrote."""

import glob
import json
import os
import re
import signal
import struct
import subprocess
import time

import pytest
from harness.gdb_run import run_gdb

from gdbext.errors import GdbextError
from gdbext.kernels import gpucore

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "subjects", "paged.cu")


def truth(text):
    return json.loads(re.search(r'\{"q".*\}', text).group())


@pytest.mark.parametrize("name", ["debug", "shared", "static", "stripped", "static-stripped"])
def test_the_launch_is_stopped_at_on_the_host(gdb_path, programs, name):
    """With a driver the runtime hands out handles and passes the launch on to the driver: still one stop, with the same
    values."""
    said = run_gdb(gdb_path, ["llm-break paged-attention", "run", "llm-launch -json", "llm-bt", "continue"], [programs[name]])
    answer, told = said.json(2), truth(said.text)
    assert "paged_attention_v1_kernel" in answer["kernel"]
    assert answer["grid"] == [8, 4, 1] and answer["block"] == [32, 1, 1]
    assert [int(a["value"], 16) for a in answer["args"][1:4]] == [told["q"], told["k_cache"], told["block_tables"]]
    assert "about to be launched" in said.outputs[3] and '{"error": 0}' in said.outputs[4]


def test_the_kernel_is_stopped_in_focused_and_stepped(cuda_gdb, program):
    with open(SOURCE) as f:
        line = next(i for i, text in enumerate(f, 1) if "const long physical" in text)  # the first of the loop over KV blocks
    said = cuda_gdb(
        [
            "llm-break paged_attention_v1_kernel",
            "run",
            "llm-bt -json",
            "llm-break -delete",
            "llm-focus -seq 3 -head 5 -json",
            "print blockIdx",
            "llm-step -json",
            "llm-step instruction -json",
            f"tbreak paged.cu:{line} if blockIdx.x == 5 && blockIdx.y == 3 && threadIdx.x == 0",
            "continue",
            "llm-step kv-block -json",
            "llm-step kv-block -json",
            "kill",
        ],
        [program],
    )
    assert any("paged_attention_v1_kernel" in k["function"] and k["grid"] == [8, 4, 1] for k in said.json(2)["kernels"])
    assert said.json(4)["block"] == [5, 3, 0] and "x = 5, y = 3" in said.outputs[5]
    for i in (6, 7, 10, 11):
        step = said.json(i)
        assert (step["sequence"], step["head"], step["active_lanes"]) == (3, 5, 32)
    assert [said.json(i)["kv_block"] for i in (10, 11)] == [1, 2]  # a sequence of 64 tokens has four


def test_a_device_tensor_is_read_under_focus(cuda_gdb, program, tmp_path):
    script = tmp_path / "read.py"
    script.write_text(
        (
            "from gdbext.control import cudagdb\ndef read(address, size):\n    print('READ', "
            "cudagdb.device().read(int(address), size).hex())\n"
        )
    )
    said = cuda_gdb(
        [
            f"source {script}",
            "llm-break paged_attention_v1_kernel",
            "run",
            "llm-focus -seq 0 -head 0",
            "python read(gdb.parse_and_eval('(unsigned long)q'), 32)",
            "kill",
        ],
        [program],
    )
    assert "READ " + struct.pack("<8f", *(i % 7 for i in range(8))).hex() in said.outputs[4]


def environment(command):
    """The variables that llm-gpucore -setup names, set for a process whose cores go to the current folder."""
    text = command(["llm-gpucore -setup"]).outputs[0]
    found = dict(re.findall(r"^export (\w+)=(.*)$", text, re.M))
    return {**os.environ, **found, "CUDA_COREDUMP_FILE": "gpucore.%p", "CUDA_COREDUMP_PIPE": "corepipe.%p"}


def test_a_core_that_the_driver_wrote_reads_the_same_as_in_cuda_gdb(cuda_gdb, program, tmp_path):
    env = environment(cuda_gdb)
    assert subprocess.run([program, "fault"], cwd=tmp_path, env=env, timeout=300).returncode
    (core,) = glob.glob(str(tmp_path / "gpucore.*"))
    said = cuda_gdb(["echo", f"target cudacore {core}", f"llm-gpucore -json {core}", "llm-bt -json", "pytensor t"])
    assert [k["grid"] for k in said.json(3)["kernels"]] == [[8, 4, 1]] and not said.json(3)["threads"]
    assert "a GPU core is open: it has no host side" in said.outputs[4]
    answer = said.json(2)
    assert answer["faults"] and all(f["block"][1] == 2 and "paged_attention_v1_kernel" in f["function"] for f in answer["faults"])
    focus = re.search(r"block \((.*?)\), thread \((.*?)\), device (\d+), sm (\d+), warp (\d+), lane (\d+)", said.outputs[1])
    block, thread = ([int(n) for n in focus.group(i).split(",")] for i in (1, 2))
    assert any(
        f["block"] == block and f["sm"] == int(focus.group(4)) and f["warp"] == int(focus.group(5)) for f in answer["faults"]
    ), (block, thread)


def whole(core):
    """Whether a core is there to its end."""
    try:
        return gpucore.open_core(core).kernels and not gpucore.open_core(core).problems
    except GdbextError:
        return False


def test_a_hung_kernel_is_dumped_on_request(cuda_gdb, program, tmp_path):
    process = subprocess.Popen([program, "hang"], cwd=tmp_path, env=environment(cuda_gdb), stdout=subprocess.PIPE)
    try:
        assert b'"q"' in process.stdout.readline() and b"running" in process.stdout.readline()
        pipe, end = tmp_path / f"corepipe.{process.pid}", time.monotonic() + 300
        assert pipe.exists(), f"the driver made no pipe, but {os.listdir(tmp_path)}"
        with open(pipe, "wb", buffering=0) as f:
            f.write(b"x")
        core = str(tmp_path / f"gpucore.{process.pid}")
        while not whole(core):
            assert time.monotonic() < end, f"the driver wrote no core, but {os.listdir(tmp_path)}"
            time.sleep(0.5)
        answer = cuda_gdb([f"llm-gpucore -json {core}"]).json()
        assert any("paged_attention_v1_kernel" in k["name"] and k["places"] for k in answer["kernels"])
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
