"""The counters of torch's CUDA caching allocator from memory, on a stand-in of libc10_cuda with the layout of each torch minor
(scripts/make-torch-allocator-layouts measures these on the real libraries)."""

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
from gdbext.observe.log_reader import Logs
from gdbext.torch import cuda_allocator
from gdbext.watch.beside import DEVICE, Beside
from gdbext.watch.ring import Ring

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the layouts are x86-64's")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("torch") / "libc10_cuda.so"
    subprocess.run(["g++", "-std=c++17", "-shared", "-fPIC", "-o", path, f"{SUBJECTS}/fake_c10_cuda.cpp"], check=True)
    return str(path)


def subject(library, minor, kind="native", version=None):
    row = cuda_allocator.rows()[minor]
    return running(sys.executable, "cuda_allocator.py", library, json.dumps(row), version or row["release"], kind)


@pytest.mark.parametrize("minor", sorted(cuda_allocator.rows()))
def test_each_devices_counters_are_those_of_the_allocator(minor, library):
    with subject(library, minor) as (target, truth):
        found = {row["device"]: row for row in cuda_allocator.read(target, open_runtime(target))}
    assert sorted(found) == [0, 2] and sorted(truth) == ["0", "2"]
    for number, row in found.items():
        said = truth[str(number)]
        for field in ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes", "inactive_split_bytes"):
            assert row[field] == said[field][0]
        assert [row["allocated_peak_bytes"], row["reserved_peak_bytes"]] == [
            said[f][1] for f in ("allocated_bytes", "reserved_bytes")
        ]
        assert [row["allocations"], row["segments"]] == [said[f][0] for f in ("allocation", "segment")]
        assert [row["retries"], row["ooms"]] == [said[f] for f in ("num_alloc_retries", "num_ooms")]


def test_what_is_not_known_is_said_and_not_guessed(library):
    newest = max(cuda_allocator.rows(), key=lambda minor: int(minor.split(".")[1]))
    with subject(library, newest, "none") as (target, _):
        assert cuda_allocator.read(target, open_runtime(target)) == []
    for kind, version, message in (
        ("malloc_async", None, "the CUDA allocator in force is c10::cuda::CUDACachingAllocator::CudaMallocAsync::"),
        ("torn", None, "the counters of torch's CUDA allocator for device 0 contradict one another"),
        ("native", "2.99.0", "torch 2.99.0: where its CUDA allocator keeps its counters is not known"),
        ("moved", None, "does not have the layout that the table gives"),
    ):
        with subject(library, newest, kind, version) as (target, _), pytest.raises(LayoutError, match=message):
            cuda_allocator.read(target, open_runtime(target))


def test_llm_memory_shows_them_and_says_why_it_cannot(library):
    newest = max(cuda_allocator.rows(), key=lambda minor: int(minor.split(".")[1]))

    def asked(target, *more):
        words = [sys.executable, "-m", "gdbext", "llm-memory", str(target.pid), *more]
        return subprocess.run(words, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout

    with subject(library, newest) as (target, truth):
        (rank,) = json.loads(asked(target, "--json"))["ranks"]
        assert [g["allocated_bytes"] for g in rank["cuda_allocator"]] == [truth[n]["allocated_bytes"][0] for n in ("0", "2")]
        ring = Ring(1 << 18)
        Beside(target.pid, Logs()).look(0.0, 0.0, ring, open_runtime(target))  # as a watch keeps it
        kept = [values for _, what, values in ring.notes if what == DEVICE]
        assert [one["GPU 2 reserved"] for one in kept] == [truth["2"]["reserved_bytes"][0]] and len(kept[0]) == 4
        assert f"in {truth['2']['segment'][0]} segments; {truth['2']['num_alloc_retries']} retries" in asked(target)
    with subject(library, newest, "malloc_async") as (target, _):
        data = json.loads(asked(target, "--json"))
        assert data["ranks"][0]["cuda_allocator"] == [] and "CudaMallocAsync" in " ".join(data["partial"])


def test_the_counters_lie_where_torchs_own_header_puts_them(torch_python, tmp_path):
    """The environment's torch, without CUDA, has the header of DeviceStats all the same."""
    code = "import torch, os; print(torch.__version__, os.path.dirname(torch.__file__))"
    version, folder = subprocess.run([torch_python, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    row = cuda_allocator.rows().get(".".join(version.split(".")[:2]))
    header = os.path.join(folder, "include", "c10", "core", "CachingDeviceAllocator.h")
    if row is None or not os.path.exists(header):
        pytest.skip(f"torch {version} has no row or no header of its own for the counters")
    fields = [name for name in row["DeviceStats"] if name != "sizeof"]
    prints = "".join(f'printf("%zu ", offsetof(S, {name}));' for name in fields)
    source = (
        "#include <c10/core/CachingDeviceAllocator.h>\n#include <cstdio>\nusing S = c10::CachingDeviceAllocator::DeviceStats;\n"
    )
    (tmp_path / "a.cpp").write_text(f'{source}int main() {{ {prints} printf("%zu", sizeof(S)); }}\n')
    words = ["g++", "-std=c++20", "-w", f"-I{folder}/include", tmp_path / "a.cpp", "-o", tmp_path / "a"]
    subprocess.run([*words, f"{folder}/lib/libc10.so", f"-Wl,-rpath,{folder}/lib"], check=True)
    said = subprocess.run([tmp_path / "a"], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert dict(zip([*fields, "sizeof"], map(int, said.split()))) == row["DeviceStats"]
