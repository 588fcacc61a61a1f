"""llm-gpucore inside gdb, and beside NVIDIA's own cuda-gdb on the same (fake) cores: same kernel, block, thread, exception,
pc."""

import gzip
import itertools
import pathlib
import random
import re
import struct

import pytest
from harness import gpucores
from harness.gdb_run import fetched, run_gdb
from harness.gpucores import Grid

from gdbext.kernels import gpucore

V1 = "_ZN4vllm25paged_attention_v1_kernelIfLi64ELi16EEEvPT_PKS1_fPKib"
H100 = pathlib.Path(__file__).parents[1] / "unit/cores/h100_driver_580.gz"
MODULE = gpucores.cubin({V1: 384})
FAULT = [Grid(V1, (8, 4, 1), (64, 1, 1), [((0, 0, 0), []), ((5, 1, 0), [(1, 7, 14)])])]


def write(path, grids=FAULT):
    gpucores.write_core(path, MODULE, grids, memory=[(0x7F2000000000, struct.pack("<8f", *range(8)))])
    return path


@pytest.mark.every_gdb
def test_any_gdb_reads_it_and_says_in_one_line_what_is_none(gdb, tmp_path):
    path = write(tmp_path / "gpu.core")
    (tmp_path / "other").write_text("nothing")
    said = gdb([f"llm-gpucore -json {path}", f"llm-gpucore {tmp_path}/other", "llm-gpucore", "llm-gpucore -setup -cuda 13.0"])
    assert said.json(0)["faults"][0]["block"] == [5, 1, 0]
    assert said.outputs[1].count("\n") == 0 and "not a 64-bit" in said.outputs[1]
    assert said.outputs[2].count("\n") == 0 and "llm-gpucore -setup" in said.outputs[2]
    assert "export CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1" in said.outputs[3] and "CUDA 13" in said.outputs[3]


def test_cuda_gdb_says_the_same(cuda_gdb, tmp_path):
    path = write(tmp_path / "gpu.core")
    said = cuda_gdb(
        [
            "python gdb.pretty_printers.clear()",
            f"target cudacore {path}",
            "echo",
            "print/x $errorpc",
            "info symbol $pc",
            'interpreter-exec mi "-cuda-info-kernels"',
            f"llm-gpucore -json {path}",
        ]
    )
    ours = said.json(6)
    (fault,), (kernel,) = ours["faults"], ours["kernels"]
    focus = re.search(r"block \((.*?)\), thread \((.*?)\), device (\d+), sm (\d+), warp (\d+), lane (\d+)", said.outputs[1])
    numbers = [[int(n) for n in focus.group(i).split(",")] for i in range(1, 7)]
    assert numbers == [fault["block"], fault["thread"], [fault["device"]], [fault["sm"]], [fault["warp"]], [fault["lane"]]]
    assert fault["exception"].endswith('"' + re.search("CUDA Exception: (.*)", said.outputs[1]).group(1) + '"')
    assert said.outputs[3].endswith("= " + fault["pc"]) and fault["precise"]
    assert said.outputs[4].startswith(kernel["name"] + " + ")
    place = kernel["places"][0]
    assert said.outputs[4].startswith(f"{place['function']} + {place['offset']} ")
    row = said.outputs[5]
    assert (
        'gridDim="(8,4,1)"' in row
        and 'blockDim="(64,1,1)"' in row
        and [8, 4, 1] == kernel["grid"]
        and [64, 1, 1] == kernel["block"]
    )


def test_a_core_that_is_too_new_for_this_cuda_gdb_is_shown_and_not_opened(cuda_gdb, tmp_path):
    """cuda-gdb 11.8 refuses a core of a later ABI, and aborts on code of a later one: an H100's core of driver 580."""
    path = write(tmp_path / "gpu.core")
    with open(path, "r+b") as f:
        f.seek(8)
        f.write(b"\x08")
    real = tmp_path / "h100.core"
    real.write_bytes(gzip.decompress(H100.read_bytes()))
    said = cuda_gdb([f"llm-gpucore {path}", f"llm-gpucore {real}", f"llm-gpucore -json {real}", "echo on"])
    for output, why in ((said.outputs[0], "does not open this core"), (said.outputs[1], "does not know the code in this core")):
        assert output.startswith("device 0 ") and "Warp Illegal Address" in output and why in output.splitlines()[-1], output
    assert said.json(2)["faults"] and said.outputs[3] == "on"


@pytest.mark.parametrize("seed", range(8))
def test_cuda_gdb_12_finds_the_same_fault_in_cores_that_are_drawn(tmp_path, monkeypatch, seed):
    """Debian's own, which was built without Python: another reader of the format. It focuses the first fault."""
    found = fetched("cuda-gdb-12", "bin", "cuda-gdb")
    if not found:
        pytest.skip("no cuda-gdb 12: run scripts/get-cuda cuda-gdb-12")
    monkeypatch.setattr(gpucores, "read_by_cuda_gdb", "r580")
    draw = random.Random(seed)
    grid = tuple(draw.randint(1, n) for n in (40, 8, 4))
    everywhere = list(itertools.product(*map(range, grid)))
    blocks = [(b, []) for b in draw.sample(everywhere, min(len(everywhere), 6))]
    warp, lane, exception = draw.randint(0, 1), draw.randint(0, 31), draw.choice([2, 4, 5, 7, 14])
    draw.choice(blocks)[1].append((warp, lane, exception))
    path = write(tmp_path / "gpu.core", [Grid(V1, grid, (64, 1, 1), blocks)])
    commands = [f"target cudacore {path}", 'interpreter-exec mi "-cuda-info-kernels"']
    said = run_gdb(found, commands, load=False)
    core = gpucore.open_core(str(path))
    (fault,), (kernel,) = core.faults, core.kernels
    focus = re.search(r"block \((.*?)\), thread \((.*?)\), device (\d+), sm (\d+), warp (\d+), lane (\d+)", said.outputs[0])
    theirs = [tuple(int(n) for n in focus.group(i).split(",")) for i in range(1, 7)]
    assert theirs == [tuple(fault.block), tuple(fault.thread), (fault.device.index,), (fault.sm,), (fault.warp,), (fault.lane,)]
    assert f'gridDim="({",".join(map(str, kernel.grid))})"' in said.outputs[1] and kernel.grid == grid
    assert re.search("CUDA Exception: (.*)", said.outputs[0]).group(1) in gpucore.exception_name(fault.exception)


def test_cuda_gdb_agrees_that_nothing_faulted(cuda_gdb, tmp_path):
    path = write(tmp_path / "gpu.core", [Grid(V1, (8, 4, 1), (64, 1, 1), [((0, 0, 0), []), ((5, 1, 0), [])])])
    said = cuda_gdb(["echo", f"target cudacore {path}", f"llm-gpucore -json {path}"])
    assert said.json(2)["faults"] == [] and "Exception" not in said.outputs[1] and "kernel 0, grid 1" in said.outputs[1]
