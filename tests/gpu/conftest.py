"""For tests on real hardware: an NVIDIA GPU with its driver, the cuda-gdb and nvcc of its own toolkit. Where one is missing, a
test that needs it is skipped, with what is missing as the reason. Engines come from GDBEXT_TEST_GPU_PYTHON, an interpreter that
has them, or from the kit of scripts/get-gpu-kit."""

import contextlib
import functools
import json
import os
import subprocess

import pytest
from harness.gdb_run import run_gdb
from harness.gpu_engine import engine_at_work
from harness.subjects import spawned
from tools.gpu_kit import needs

SHARED = ("test_engine.py", "test_sglang.py")  # their tests ask one engine


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Of pytest-xdist: each test goes to the next process that is free, those of a `SHARED` module to one."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            path = nodeid.partition("::")[0]
            return path if os.path.basename(path) in SHARED else nodeid

    return Scheduler(config, log)


def pytest_collection_modifyitems(items):
    why = needs.gpu()
    for item in items:  # of the whole session, other folders' too
        if why and os.path.dirname(str(item.fspath)) == os.path.dirname(os.path.abspath(__file__)):
            item.add_marker(pytest.mark.skip(reason=why))


def _tool(name):
    found = needs.tool(name)
    if not found:
        pytest.skip(f"no {name}: {needs.missing().get(name) or 'install the CUDA toolkit'}")
    return found


_IS_WORKER = []  # with pytest-xdist each result reaches the session that started the workers too


def pytest_configure(config):
    if hasattr(config, "workerinput"):
        _IS_WORKER.append(config)


def pytest_runtest_logreport(report):
    """A line of GDBEXT_TEST_RESULTS for each test, as soon as it is known: a run may be cut off."""
    path = os.environ.get("GDBEXT_TEST_RESULTS")
    if path and not _IS_WORKER and (report.when == "call" or report.outcome != "passed"):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr or "")
        row = {"test": report.nodeid, "outcome": report.outcome, "seconds": round(report.duration, 1), "why": why[-4000:]}
        with open(path, "a") as f:
            f.write(json.dumps(row) + "\n")


@pytest.fixture
def cuda_gdb():
    """The machine's own cuda-gdb as `gdb` of tests/gdb."""
    return functools.partial(run_gdb, _tool("cuda-gdb"))


SUBJECTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "subjects")
SOURCE = os.path.join(SUBJECTS, "paged.cu")


def build(folder, arch="native"):
    """subjects/paged.cu, compiled for this GPU: {"debug": with device debug information, "shared", "static", "stripped",
    "static-stripped": with none}."""
    nvcc = _tool("nvcc")
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
    def start(name, *arguments, **more):
        with spawned([cuda_python, os.path.join(SUBJECTS, name), *arguments], ready="{", **more) as process:
            yield process, json.loads(process.said)

    return start


@pytest.fixture(scope="session")
def vllm_on_gpu():
    """-> function: options of serve_gpu.py, `fault`, `env` -> context of a vLLM at work, a `GpuEngine`"""
    return functools.partial(engine_at_work, "vllm")


@pytest.fixture(scope="session")
def sglang_on_gpu():
    """The same of SGLang."""
    return functools.partial(engine_at_work, "sglang")


@pytest.fixture
def two_ranks_on_one_gpu(standing):
    """-> function: how (of two_ranks.py) -> context of [pid of rank 0, of rank 1]"""

    @contextlib.contextmanager
    def start(how):
        with standing("two_ranks.py", how, start_new_session=True) as (_, truth):
            assert all(truth["pids"]), "a rank ended before its third all-reduce"
            yield truth["pids"]

    return start
