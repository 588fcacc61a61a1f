"""On real hardware: a paged kernel stopped at on the host and on the GPU, focused and stepped, a device tensor, a core that the driver wrote."""

import glob
import json
import os
import re
import signal
import struct
import subprocess
import time

import pytest

from gdbrun import run_gdb


def truth(text):
    return json.loads(re.search(r'\{"q".*\}', text).group())


def test_the_launch_is_stopped_at_on_the_host(gdb_path, program):
    said = run_gdb(gdb_path, ["llm-break paged-attention", "run", "llm-launch -json", "llm-bt", "continue"], [program])
    answer, told = said.json(2), truth(said.text)
    assert answer["grid"] == [8, 4, 1] and answer["block"] == [32, 1, 1]
    assert [int(a["value"], 16) for a in answer["args"][1:4]] == [told["q"], told["k_cache"], told["block_tables"]]
    assert "about to be launched" in said.outputs[3] and '{"error": 0}' in said.outputs[4]


def test_the_kernel_is_stopped_in_focused_and_stepped(cuda_gdb, program):
    said = cuda_gdb(["llm-break paged_attention_v1_kernel", "run", "llm-bt -json", "llm-focus -seq 3 -head 5 -json", "print blockIdx", "llm-step -json",
                     "llm-step instruction -json", "llm-step kv-block -json", "kill"], [program])  # fmt: skip
    assert any("paged_attention_v1_kernel" in k["function"] and k["grid"] == [8, 4, 1] for k in said.json(2)["kernels"])
    assert said.json(3)["block"] == [5, 3, 0] and "x = 5, y = 3" in said.outputs[4]
    for i in (5, 6, 7):
        step = said.json(i)
        assert (step["sequence"], step["head"], step["active_lanes"]) == (3, 5, 32)


def test_a_device_tensor_is_read_under_focus(cuda_gdb, program, tmp_path):
    script = tmp_path / "read.py"
    script.write_text("from gdbext.control import cudagdb\ndef read(address, size):\n    print('READ', cudagdb.device().read(int(address), size).hex())\n")
    said = cuda_gdb([f"source {script}", "llm-break paged_attention_v1_kernel", "run", "llm-focus -seq 0 -head 0",
                     "python read(gdb.parse_and_eval('(unsigned long)q'), 32)", "kill"], [program])  # fmt: skip
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
    said = cuda_gdb(["echo", f"target cudacore {core}", f"llm-gpucore -json {core}"])
    answer = said.json(2)
    assert answer["faults"] and all(f["block"][1] == 2 and "paged_attention_v1_kernel" in f["function"] for f in answer["faults"])
    focus = re.search(r"block \((.*?)\), thread \((.*?)\), device (\d+), sm (\d+), warp (\d+), lane (\d+)", said.outputs[1])
    block, thread = ([int(n) for n in focus.group(i).split(",")] for i in (1, 2))
    assert any(f["block"] == block and f["sm"] == int(focus.group(4)) and f["warp"] == int(focus.group(5)) for f in answer["faults"]), (block, thread)


def test_a_hung_kernel_is_dumped_on_request(cuda_gdb, program, tmp_path):
    process = subprocess.Popen([program, "hang"], cwd=tmp_path, env=environment(cuda_gdb), stdout=subprocess.DEVNULL)
    try:
        pipe, end = tmp_path / f"corepipe.{process.pid}", time.monotonic() + 120
        while not pipe.exists():
            assert time.monotonic() < end and process.poll() is None, "the driver made no pipe"
            time.sleep(0.1)
        time.sleep(2)
        pipe.write_bytes(b"x")
        while not glob.glob(str(tmp_path / "gpucore.*")):
            assert time.monotonic() < end, "the driver wrote no core"
            time.sleep(0.1)
        time.sleep(5)
        (core,) = glob.glob(str(tmp_path / "gpucore.*"))
        answer = cuda_gdb([f"llm-gpucore -json {core}"]).json()
        assert any("paged_attention_v1_kernel" in k["name"] and k["places"] for k in answer["kernels"])
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def test_torch_shows_the_values_of_a_cuda_tensor(cuda_gdb, torch_python, tmp_path):
    code = ("import torch,time\nt = torch.arange(12., device='cuda').reshape(3, 4)\ntorch.cuda.synchronize()\n"
            "@torch.no_grad()\ndef wait():\n    x = t\n    torch.cuda._sleep(1 << 40)\n    torch.cuda.synchronize()\nprint('ready', flush=True)\nwait()\n")
    if subprocess.run([torch_python, "-c", "import torch; assert torch.cuda.is_available()"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("the environment's torch is built without CUDA")
    process = subprocess.Popen([torch_python, "-c", code], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"ready\n"
        time.sleep(2)
        said = cuda_gdb(["cuda kernel 0", "pytensor -json t", "pytensor -repr t"], ["-p", str(process.pid)], before=["set auto-solib-add off"])
        assert said.json(1)["shape"] == [3, 4] and "[ 4.,  5.,  6.,  7.]" in said.outputs[2]
    finally:
        process.kill()
        process.wait()
