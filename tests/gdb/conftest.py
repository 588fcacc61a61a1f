"""For tests with a real gdb: `gdb(commands, …)` runs one and returns what each command said."""

import functools
import os
import shutil
import sys

import pytest
from harness.breakpoints import OFF, started
from harness.gdb_run import fetched, run_gdb
from harness.launches import small_program

# Files whose tests look at processes and files of their own alone, and at no clock: scripts/test runs several of them at once.
# What lists the machine's engines, measures a pause or puts a load on the machine is not among them.
AT_ONCE = {
    f"test_{name}.py"
    for name in (
        "commands cuda_allocator cxx_printers frame_filter fuzz gpucore_in_gdb hang_cost heap hostile_names "
        "kernel_releases kernels_wheel kv_blockpool kv_cxx kv_releases launch launch_triton layout_truth outward "
        "private_content pyexc pytasks pytensors python_engine_objects python_expressions python_files python_frames "
        "python_gc python_loops python_objects python_subinterpreters python_trashed rings tensor_expressions "
        "tensor_values tensors tensors_damaged torch_headers unwind_oracle"
    ).split()
}
assert AT_ONCE <= set(os.listdir(os.path.dirname(os.path.abspath(__file__)))), "AT_ONCE names a file that is not here"


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by -m
def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.name in AT_ONCE:
            item.add_marker(pytest.mark.at_once)


@pytest.fixture
def gdb(gdb_path):
    return functools.partial(run_gdb, gdb_path)


@pytest.fixture
def cuda_gdb():
    """As `gdb`, with NVIDIA's cuda-gdb."""
    found = os.environ.get("GDBEXT_TEST_CUDA_GDB") or fetched("cuda-gdb", "bin", "cuda-gdb") or shutil.which("cuda-gdb")
    if not found:
        pytest.skip("no cuda-gdb: run scripts/get-cuda")
    return functools.partial(run_gdb, found)


@pytest.fixture
def session(tmp_path, gdb_path):
    """-> function: commands with one subject -> (GdbRun, Subject's tally or None)"""

    def run(commands, python=sys.executable, tally=True):
        with started(python, tmp_path) as subject:
            told = [subject.tell(c[1:]) if c.startswith("@") else c for c in commands]
            said = run_gdb(gdb_path, told, ["-p", str(subject.pid)], timeout=60, before=OFF)
            return said, subject.tally() if tally else None

    return run


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """The path of harness.launches' program."""
    return small_program(tmp_path_factory.mktemp("launches"))
