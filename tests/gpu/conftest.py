"""For tests on real hardware: an NVIDIA GPU with its driver, the cuda-gdb and nvcc of its own toolkit. Where one is missing every test here is
skipped, with what is missing as the reason."""

import functools
import glob
import os
import shutil
import subprocess

import pytest

from gdbrun import fetched, run_gdb


def _tool(name):
    """A tool of the machine's own toolkit: on the PATH, else the newest under /usr/local."""
    return shutil.which(name) or next(iter(sorted(glob.glob(f"/usr/local/cuda*/bin/{name}"), reverse=True)), None)


def missing():
    """Why nothing can be tested here, '' where everything can."""
    if not glob.glob("/dev/nvidia[0-9]*"):
        return "no NVIDIA GPU: there is no /dev/nvidia0"
    if not glob.glob("/proc/driver/nvidia/version"):
        return "an NVIDIA GPU without its driver"
    if not _tool("cuda-gdb"):
        return "an NVIDIA GPU, but no cuda-gdb: install the CUDA toolkit"
    if not (_tool("nvcc") or fetched("nvcc", "bin", "nvcc")):
        return "an NVIDIA GPU, but no nvcc: run scripts/get-cuda nvcc"
    return ""


def pytest_collection_modifyitems(items):
    why = missing()
    for item in items:
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture
def cuda_gdb():
    """The machine's own cuda-gdb as `gdb` of tests/gdb."""
    return functools.partial(run_gdb, _tool("cuda-gdb"))


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """subjects/paged.cu, compiled for this GPU with device debug information."""
    nvcc = _tool("nvcc") or fetched("nvcc", "bin", "nvcc")
    out = str(tmp_path_factory.mktemp("gpu") / "paged")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "subjects", "paged.cu")
    subprocess.run([nvcc, "-arch=native", "-G", "-g", "-cudart", "shared", "-o", out, source], check=True, timeout=300)
    return out
