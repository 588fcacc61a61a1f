"""For tests with a real gdb: `gdb(commands, …)` runs one and returns what each command said."""

import functools
import os
import shutil
import sys

import pytest
from harness.breakpoints import OFF, started
from harness.gdb_run import fetched, run_gdb
from harness.launches import small_program


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
