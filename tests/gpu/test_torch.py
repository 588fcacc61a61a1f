"""On real hardware: torch's tensors, allocator, kernels and process groups on a GPU, against what the process says of them."""

import contextlib
import json
import os
import socket
import subprocess
import sys

import pytest
from harness.answers import answer
from harness.gdb_run import ROOT, run_gdb

from gdbext.access.proc import ProcTarget
from gdbext.access.proctable import ProcTable
from gdbext.cpython.runtime import open_runtime
from gdbext.engines import nccl_ras
from gdbext.torch import collectives

OFF = ["set auto-solib-add off"]


@pytest.mark.parametrize("how", ["sync", "rest"])
def test_tensors_print_as_torch_prints_them(cuda_gdb, standing, how):
    """With a kernel that runs and with none; the focus is where cuda-gdb puts it."""
    with standing("cuda_tensors.py", how) as (process, truth):
        commands = [f"pytensor -any -repr {name}" for name in truth["shown"]]
        more = ["pytensor -any -repr big[-1]", "llm-bt -json", "pytensor -any -stats -json bad", "pytensor -any -stats -json big"]
        more += ["pytensors -nan -json", "cuda kernel block thread"]
        said = cuda_gdb([*commands, *more], ["-p", str(process.pid)], before=OFF)
        assert process.poll() is None
    for name, output in zip(truth["shown"], said.outputs):
        assert truth["shown"][name] in output, said.text
    assert said.outputs[len(commands)] == "tensor(7., device='cuda:0')"
    frames = said.json(len(commands) + 1)
    assert [f["function"] for f in frames["threads"][0]["frames"] if f["kind"] == "python"][-2:] == ["wait", "<module>"]
    bad, big, found = (said.json(len(commands) + n) for n in (2, 3, 4))
    assert (bad["stats"]["nan"], bad["stats"]["inf"], bad["stats"]["min"], bad["stats"]["max"]) == (1, 1, -2.5, 1.0)
    assert (big["stats"]["count"], big["stats"]["zeros"], big["stats"]["max"]) == (40 << 20, (40 << 20) - 1, 7.0)
    assert [row["owner"] for row in found["tensors"]] == ["__main__:bad"]
    for one in (bad, big, found):  # all of it was computed before; what a debugger cannot know it says
        assert ["is on the device" in why for why in one["partial"]] == ([True] if how == "sync" else [])
    if how == "sync":
        assert ["spin_kernel" in k["function"] and k["grid"] == [1, 1, 1] for k in frames["kernels"]] == [True]
        assert "kernel 0, block (0,0,0), thread (0,0,0)" in said.outputs[-1]


def test_without_cuda_gdb_a_tensor_is_described_without_values(standing):
    with standing("cuda_tensors.py", "rest") as (process, _):
        words = [sys.executable, "-m", "gdbext", "pytensor", "-on", str(process.pid), "-any", "-repr", "t"]
        done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert "cuda:0" in done.stdout and "cuda-gdb" in done.stdout and "[ 4." not in done.stdout, done.stdout


def test_the_allocators_counters_are_memory_stats(standing):
    with standing("cuda_tensors.py", "rest") as (process, truth):
        (rank,) = answer(f"llm-memory {process.pid} -json")["ranks"]
        (gpu,) = rank["cuda_allocator"]
    stats = truth["stats"]
    names = {"allocations": "allocation", "segments": "segment", "retries": "num_alloc_retries", "ooms": "num_ooms"}
    wanted = {"device": 0}
    for field in set(gpu) - {"device"}:
        name = names.get(field, field.replace("_peak", ""))
        wanted[field] = stats[name] if name in stats else stats[f"{name}.all.{'peak' if 'peak' in field else 'current'}"]
    assert gpu == wanted and len(gpu) == 12 and gpu["allocated_bytes"] > 160 << 20


def test_the_allocators_blocks_are_its_snapshot(standing, tmp_path):
    with standing("cuda_tensors.py", "rest") as (process, truth):
        answer(f"llm-memory {process.pid} -o {tmp_path}/gpu.json -json")
    segments = json.loads((tmp_path / "gpu.json").read_text())["segments"]
    for ours, theirs in zip(segments, sorted(truth["segments"], key=lambda s: s["address"])):
        assert {k: theirs.get(k, v) for k, v in ours.items() if k != "blocks"} == {k: v for k, v in ours.items() if k != "blocks"}
        assert [
            {k: b.get(k, v) for k, v in mine.items() if k != "owner"} for mine, b in zip(ours["blocks"], theirs["blocks"])
        ] == [{k: v for k, v in mine.items() if k != "owner"} for mine in ours["blocks"]]
        assert len(ours["blocks"]) == len(theirs["blocks"])
    assert len(segments) == len(truth["segments"]) > 3
    assert "parameter" in {b["owner"] for s in segments for b in s["blocks"]}


VERDICTS = {"sync": "kernel", "item": "kernel", "stream": "kernel", "event": "kernel", "launching": "busy", "rest": "idle"}


@pytest.mark.parametrize("how", sorted(VERDICTS))
def test_llm_hang_tells_a_kernel_that_does_not_end_from_work_and_from_rest(standing, how):
    with standing("cuda_tensors.py", how) as (process, _):
        said = answer(f"llm-hang {process.pid} -json")
        assert process.poll() is None
        assert ProcTable().get(process.pid).gpus == [0]
    assert said["verdict"] == VERDICTS[how], json.dumps(said)
    if VERDICTS[how] == "kernel":
        assert "waits for its device: cu" in said["evidence"][0], said


LAUNCHED = [
    ("output_ptr", "float*"),
    ("query_ptr", "float*"),
    ("scale", "float"),
    ("num_seqs", "int"),
    ("stride", "long"),
    ("query_start_len_ptr", "int*"),
]


def test_a_launch_of_triton_is_stopped_at_on_the_host(gdb_path, standing):
    with standing("triton_attention.py", "warm") as (process, truth):
        go = f"shell echo > /proc/{process.pid}/fd/0"
        commands = ["llm-break paged-attention", go, "continue", "llm-launch -json", "llm-bt -json", "llm-break -delete"]
        said = run_gdb(gdb_path, [*commands, "detach"], ["-p", str(process.pid)], before=OFF, timeout=200)
    launch = said.json(3)
    assert (launch["kernel"], launch["grid"], launch["block"]) == ("kernel_unified_attention", [8, 2, 1], [128, 1, 1]), said.text
    assert launch["arguments_counted"] and [(a["name"], a["type"]) for a in launch["args"]] == LAUNCHED
    values = [a["value"] for a in launch["args"]]
    assert values[2:5] == [0.125, 3, 5000000000]
    assert [int(values[i], 16) for i in (0, 1, 5)] == [truth["output"], truth["query"], truth["starts"]]
    assert [launch["args"][i]["points_to"]["variable"] for i in (0, 1, 5)] == ["output", "query", "starts"]
    frames = said.json(4)["threads"][0]["frames"]
    assert (frames[0]["kind"], frames[0]["function"]) == ("kernel", "kernel_unified_attention")


def test_a_kernel_of_triton_is_stopped_in_on_the_device(cuda_gdb, standing):
    """Which block serves a sequence and a head comes from Triton's objects and the kernel's parameters on the GPU."""
    with standing("triton_attention.py", "warm") as (process, _):
        go = f"shell echo > /proc/{process.pid}/fd/0"
        commands = ["llm-break kernel_unified_attention", go, "continue", "llm-bt -json", "llm-focus -seq 1 -head 3 -json"]
        commands += ["print blockIdx", "llm-step instruction -json", "llm-break -delete", "detach"]
        said = cuda_gdb(commands, ["-p", str(process.pid)], before=OFF, timeout=200)
        assert process.poll() is None
    (kernel,) = said.json(3)["kernels"]
    assert "kernel_unified_attention" in kernel["function"] and kernel["grid"] == [8, 2, 1], said.text
    assert said.json(4)["block"] == [2, 1, 0]  # 4 // 4 + 1, 3 // 2
    assert "x = 2, y = 1" in said.outputs[5] and said.json(6)["block"] == [2, 1, 0]


@contextlib.contextmanager
def alone(standing):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with standing("nccl_alone.py", str(port)) as (process, truth):
        yield process, truth


def test_collectives_are_counted_and_nccls_ras_answers(standing):
    """NCCL itself counts none for a communicator of one rank."""
    with alone(standing) as (process, truth):
        with contextlib.closing(ProcTarget(process.pid)) as target:
            group, communicator = collectives.find(open_runtime(target))
        said = nccl_ras.ask(process.pid)
    assert (group.group, group.rank, group.size, group.begun) == ("nccl group 0 (1 ranks)", 0, 1, {"": truth["begun"]})
    assert communicator.group.startswith("NCCL communicator 0x")
    assert (communicator.rank, communicator.size, communicator.begun) == (0, 1, {})
    assert said == {"port": nccl_ras.PORT, "nccl": truth["nccl"], "communicators": 1, "said": [], "error": None}


def test_nccls_ras_is_asked_where_the_process_may_not_be_read(standing, tmp_path):
    python = "/usr/bin/python3"
    if os.getuid() or not os.path.exists(python):
        pytest.skip("needs root, to run as somebody else")
    with alone(standing) as (process, truth):
        words = [python, "-m", "gdbext", "llm-hang", str(process.pid), "--json"]
        done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, user=65534, group=65534, extra_groups=[], text=True)
    (one,) = json.loads(done.stdout)["untraced"]
    assert one["ras"]["nccl"] == truth["nccl"] and one["ras"]["communicators"] == 1
