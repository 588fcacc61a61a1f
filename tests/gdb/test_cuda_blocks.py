"""The segments and blocks of torch's CUDA caching allocator from memory, on a stand-in of libc10_cuda with the layout of each
torch minor; scripts/make-torch-allocator-layouts reads those of the real libraries, and compares them with their own
snapshot()."""

import json
import os
import platform
import subprocess
import sys

import pytest
from harness.gdb_run import ROOT
from harness.subjects import SUBJECTS, running

from gdbext.cpython.runtime import open_runtime
from gdbext.errors import LayoutError
from gdbext.torch import cuda_allocator, cuda_blocks

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the layouts are x86-64's")
NEWEST = max(cuda_allocator.rows(), key=lambda minor: int(minor.split(".")[1]))


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("torch") / "libc10_cuda.so"
    subprocess.run(["g++", "-std=c++17", "-shared", "-fPIC", "-o", path, f"{SUBJECTS}/fake_c10_cuda.cpp"], check=True)
    return str(path)


def subject(library, minor, kind="whole", **more):
    row = cuda_allocator.rows()[minor]
    return running(sys.executable, "cuda_blocks.py", library, json.dumps(row), row["release"], kind, **more)


@pytest.mark.parametrize("minor", sorted(cuda_allocator.rows()))
def test_the_snapshot_is_the_allocators(minor, library):
    with subject(library, minor, env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}) as (target, said):
        found, truth = cuda_blocks.snapshot(target, open_runtime(target)), said["segments"]
    assert json.loads(json.dumps(found["segments"])) == sorted(truth, key=lambda s: s["address"])
    assert {s["device"] for s in truth} == {0, 2} and any(s["is_expandable"] for s in truth)
    assert found["device_traces"] == [[], [], []]
    assert found["allocator_settings"] == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


@pytest.mark.parametrize(
    "kind, message",
    [
        ("torn", "contradict its counters: reserved_bytes [0-9]+, counted [0-9]+"),
        ("circle", "has a gap or a circle"),
        ("gap", "has a gap or a circle"),
        ("lost", "contradict its counters|has [0-9]+ blocks, of which|has a gap"),
    ],
)
def test_what_does_not_add_up_is_refused(library, kind, message):
    with subject(library, NEWEST, kind) as (target, _), pytest.raises(LayoutError, match=message):
        cuda_blocks.snapshot(target, open_runtime(target))


def test_llm_memory_tells_a_gpu_apart_and_writes_what_torch_draws(library, torch_python, tmp_path):
    path = tmp_path / "gpus.json"
    with subject(library, NEWEST) as (target, said):
        truth = said["segments"]
        words = [sys.executable, "-m", "gdbext", "llm-memory", str(target.pid), "-o", str(path)]
        done = subprocess.run([*words, "--json"], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        again = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
        text = subprocess.run(words[:-2], stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout
    (rank,) = json.loads(done.stdout)["ranks"]
    for gpu, counters in zip(rank["gpu_blocks"], rank["cuda_allocator"]):
        sizes = {(p["owner"], tuple(p["pool"] or ())): p["bytes"] for p in gpu["parts"]}
        assert sum(sizes.values()) == gpu["reserved_bytes"] == counters["reserved_bytes"]
        mine = [s for s in truth if s["device"] == gpu["device"]]
        for pool in ((0, 7), (9, 0)):
            assert sizes["private-pool", pool] == sum(s["allocated_size"] for s in mine if tuple(s["segment_pool_id"]) == pool)
        assert sizes["untracked", ()] == sum(s["allocated_size"] for s in mine if s["segment_pool_id"] == [0, 0])
    assert "the file is there already" in again.stdout
    assert "private pool 0,7, free" in text and "no live Python tensor" in text
    draw = (
        "import json, sys, torch.cuda._memory_viz as v; d = json.load(open(sys.argv[1])); print(v.segsum(d)); v.segment_plot(d)"
    )
    drawn = subprocess.run(
        [torch_python, "-c", draw, path], stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert f"segments: {len(truth)}\n" in drawn.stdout
