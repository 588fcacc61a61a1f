"""For tests with a real gdb: `gdb(commands, …)` runs one and returns what each command said."""

import functools
import os
import shutil

import pytest
from gdbrun import fetched, run_gdb


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
