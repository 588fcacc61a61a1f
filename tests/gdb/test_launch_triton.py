"""Launches of Triton's kernels: their names, and names and types of their arguments, come from Triton's own objects."""

import os
import struct
import subprocess

import pytest
from harness import gpucores
from harness.subjects import SUBJECTS, spawned


def test_triton_kernels_loaded_before_are_known_by_tritons_own_objects(gdb, small, torch_python):
    """Attached long after the driver handed its functions out: names, and names and types of arguments, come from Triton."""
    if subprocess.run([torch_python, "-c", "import triton"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no triton beside torch")
    libcuda = os.path.join(os.path.dirname(small), "libcuda.so.1")
    with spawned([torch_python, os.path.join(SUBJECTS, "triton_launch.py"), libcuda], ready="ready") as process:
        said = gdb(
            [
                "llm-kernels -json unified",
                "llm-break -host -json paged-attention",
                f"shell echo > /proc/{process.pid}/fd/0",
                "continue",
                "llm-launch -json",
                "llm-bt -json",
                "llm-break -delete",
                "llm-break -host kernel_unified_attention if scale == 0.5",
                f"shell echo > /proc/{process.pid}/fd/0",
                "detach",
            ],
            ["-p", str(process.pid)],
            before=["set auto-solib-add off"],
            timeout=120,
        )
        assert [(k["name"], k["where"], k["module"]) for k in said.json(0)["kernels"]] == [
            ("kernel_unified_attention", "driver", "__main__")
        ]
        assert "cuLaunchKernel" in {b["where"].split()[-1] for b in said.json(1)["breakpoints"]}
        answer = said.json(4)
        assert (answer["kernel"], answer["grid"], answer["block"], answer["shared_bytes"]) == (
            "kernel_unified_attention",
            [6, 2, 1],
            [128, 1, 1],
            777,
        )
        assert [(a["name"], a["type"], a["value"]) for a in answer["args"]] == [
            ("output_ptr", "bf16*", "0x7000"),
            ("query_ptr", "float*", "0x8000"),
            ("scale", "float", 0.125),
            ("num_seqs", "int", -3),
            ("stride", "long", 1 << 40),
            ("query_start_len_ptr", "int*", "0x9000"),
        ]
        assert answer["arguments_counted"] and answer["cost"]["launches_looked_at"] == 2
        frames = said.json(5)["threads"][0]["frames"]
        assert "launch" in [f["function"] for f in frames if f["kind"] == "python"]
        assert process.stdout.readline() == "done\n"


def test_triton_kernels_are_stopped_at_where_the_break_was_set_before_run(gdb, small, torch_python, tmp_path):
    if subprocess.run([torch_python, "-c", "import triton"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no triton beside torch")
    libcuda = os.path.join(os.path.dirname(small), "libcuda.so.1")
    (tmp_path / "in").write_text("\n\n")
    args = f"{os.path.join(SUBJECTS, 'triton_launch.py')} {libcuda} < {tmp_path / 'in'}"
    said = gdb(
        [
            f"file {os.path.realpath(torch_python)}",
            f"set args {args}",
            "llm-break -host paged-attention",
            "run",
            "llm-launch -json",
            "kill",
        ],
        env={"PYTHONPATH": site_packages(torch_python)},
        timeout=300,
    )
    answer = said.json(4)
    assert (answer["kernel"], answer["grid"]) == ("kernel_unified_attention", [6, 2, 1]), said.text


def site_packages(python):
    said = subprocess.run(
        [python, "-c", "import site; print(site.getsitepackages()[0])"], stdout=subprocess.PIPE, text=True, check=True
    )
    return said.stdout.strip()


def test_focus_takes_from_triton_what_was_compiled_in(gdb, cuda_gdb, small, torch_python, tmp_path):
    """cuda-gdb on the core of a process with Triton's own objects and a (fake) GPU core: nothing is given by hand but the
    sequence and the head."""
    if subprocess.run([torch_python, "-c", "import triton"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no triton beside torch")
    libcuda, table = os.path.join(os.path.dirname(small), "libcuda.so.1"), 0x7F2000000000
    with spawned([torch_python, os.path.join(SUBJECTS, "triton_launch.py"), libcuda], ready="ready") as process:
        gdb([f"gcore {tmp_path}/cpu"], ["-p", str(process.pid)], before=["set auto-solib-add off"], load=False)
    passed = struct.pack("<QQfiqQ", 0x7000, 0x8000, 0.125, 3, 640, table)
    grid = gpucores.Grid("kernel_unified_attention", (5, 2, 1), (64, 1, 1), [((0, 0, 0), []), ((2, 1, 0), [])])
    gpucores.write_core(
        tmp_path / "gpu",
        gpucores.cubin({"kernel_unified_attention": 384}),
        [grid],
        memory=[(table, struct.pack("<4i", 0, 1, 38, 39))],
        parameters=passed,
    )
    both = cuda_gdb(
        [f"target core {tmp_path}/cpu {tmp_path}/gpu", "llm-focus -seq 1 -head 5 -part 1 -json", "cuda block"],
        [torch_python],
        before=["set auto-solib-add off"],
    )
    answer = both.json(1)
    assert answer["block"] == [2, 1, 0] and "block (2,1,0)" in both.outputs[2]
    assert (
        answer["arithmetic"][0]
        == f"BLOCK_Q = 16, num_queries_per_kv = 4, query_start_loc at {table:#x} (by Triton's own objects)"
    )
    alone = cuda_gdb(
        [
            f"target cudacore {tmp_path}/gpu",
            "llm-focus -seq 1 -head 5",
            f"llm-focus -seq 1 -head 5 -part 1 -block-q 16 -queries-per-kv 4 -table {table:#x} -json",
        ]
    )
    assert (
        "-block-q N is needed: what was compiled in is in Triton's own objects" in alone.outputs[1]
        and alone.outputs[1].count("\n") == 0
    )
    assert alone.json(2)["block"] == [2, 1, 0]
