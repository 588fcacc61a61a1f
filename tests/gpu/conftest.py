"""For tests on real hardware: an NVIDIA GPU with its driver, the cuda-gdb and nvcc of its own toolkit. Where one is missing every
test here is skipped, with what is missing as the reason."""

import contextlib
import functools
import glob
import json
import os
import shutil
import subprocess

import pytest
from harness.gdb_run import fetched, run_gdb
from harness.subjects import spawned


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
    for item in items:  # of the whole session, other folders' too
        if why and os.path.dirname(str(item.fspath)) == os.path.dirname(os.path.abspath(__file__)):
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture
def cuda_gdb():
    """The machine's own cuda-gdb as `gdb` of tests/gdb."""
    return functools.partial(run_gdb, _tool("cuda-gdb"))


SUBJECTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "subjects")
SOURCE = os.path.join(SUBJECTS, "paged.cu")


def build(folder, arch="native"):
    """subjects/paged.cu, compiled for this GPU: {"debug": with device debug information, "shared", "static", "stripped",
    "static-stripped": with none}."""
    nvcc = _tool("nvcc") or fetched("nvcc", "bin", "nvcc")
    home = os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
    libraries = [
        at
        for at in (os.path.join(home, *p) for p in (("lib64",), ("targets", "x86_64-linux", "lib"), ("toolkit", "lib"), ("lib",)))
        if os.path.isdir(at)
    ]
    link = [word for at in libraries for word in (f"-L{at}", "-Xlinker", f"-rpath={at}")]
    made = {name: os.path.join(str(folder), name) for name in ("debug", "shared", "static", "stripped", "static-stripped")}
    for name, options in (
        ("debug", ["-G", "-g", "-cudart", "shared"]),
        ("shared", ["-O2", "-cudart", "shared"]),
        ("static", ["-O2", "-cudart", "static"]),
    ):
        subprocess.run([nvcc, f"-arch={arch}", *options, "-o", made[name], SOURCE, *link], check=True, timeout=300)
    for name in ("shared", "static"):
        subprocess.run(["strip", "-o", made["stripped" if name == "shared" else "static-stripped"], made[name]], check=True)
    return made


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    return build(tmp_path_factory.mktemp("gpu"))


@pytest.fixture(scope="session")
def program(programs):
    """The one with device debug information."""
    return programs["debug"]


@pytest.fixture(scope="session")
def cuda_python(torch_python):
    """An interpreter whose torch uses the GPU."""
    asked = [torch_python, "-c", "import torch; assert torch.cuda.is_available()"]
    if subprocess.run(asked, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("the environment's torch is built without CUDA: set GDBEXT_TEST_TORCH_PYTHON")
    return torch_python


@pytest.fixture
def standing(cuda_python):
    """-> function: a subject's name and arguments -> context of (Popen, its truth) once it has said that"""

    @contextlib.contextmanager
    def start(name, *arguments):
        with spawned([cuda_python, os.path.join(SUBJECTS, name), *arguments], ready="{") as process:
            yield process, json.loads(process.said)

    return start
