"""For tests with a real gdb: `gdb(commands, …)` runs one and returns what each command said."""

import atexit
import collections
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile

import pytest
from harness import gpucores
from harness.breakpoints import OFF, started
from harness.gdb_run import fetched, run_gdb
from harness.launches import small_program
from harness.releases import forks
from tools import own_pids
from tools.environments import cache_folder

# Files whose tests need the machine for themselves, and why; a single test is marked `alone`. The others run several at once.
ALONE = {}
if not os.environ.get(own_pids.INSIDE):  # a worker sees what other workers start
    ALONE["test_ranks_live.py"] = "lists the engines of the machine, and other files start what looks like one"
# These take long, most of all first: several at once ends soonest where nobody begins with one when all else is done.
LONG = [
    f"test_{name}.py"
    for name in """
    hang pytensors inject pybreak pycatch foreign_programs situations answer_fields adversary heap unwind_oracle collectives
    editor_launches editors follow collector kills watch torch_headers launch_triton ray presets hostile_text gil_states install
    many_nodes nodes steps_of_ranks terminals kv_releases small_snapshots jobs requests private_content attach cxx_printers
    kv_blockpool snapshots late_comers empty_root sparse rings real_ssh hang_cost torch_trace fuzz heap_weakly wrapper_tensors
    compiled_tasks
    """.split()
]
HOME = "GDBEXT_TEST_HOME"


def _own_home():
    """A run has a home of its own, which its workers inherit: what a user has installed, cached or set decides no test."""
    if os.environ.get(HOME):
        return
    home = os.path.expanduser("~")
    os.environ.setdefault("GDBEXT_CACHE", os.path.dirname(cache_folder()))  # where environments, gdbs and releases are
    os.environ.setdefault("PYENV_ROOT", os.path.join(home, ".pyenv"))
    os.environ.setdefault("UV_PYTHON_INSTALL_DIR", os.path.join(home, ".local", "share", "uv", "python"))
    os.environ.setdefault("PIP_CONFIG_FILE", os.path.join(home, ".config", "pip", "pip.conf"))
    os.environ[HOME] = os.environ["HOME"] = tempfile.mkdtemp(prefix="gdbext-test-home-")
    atexit.register(shutil.rmtree, os.environ[HOME], True)
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        os.environ.pop(name, None)


_own_home()
HERE = set(os.listdir(os.path.dirname(os.path.abspath(__file__))))
assert {*ALONE, *LONG} <= HERE, "ALONE or LONG names a file that is not here"


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by -m
def pytest_collection_modifyitems(config, items):
    for item in items:
        if item.path.name in ALONE:
            item.add_marker(pytest.mark.alone)
    if hasattr(config, "workerinput"):
        count = collections.Counter(item.path.name for item in items)
        rank = {name: number for number, name in enumerate(LONG)}
        items.sort(key=lambda item: (rank.get(item.path.name, len(LONG)), -count[item.path.name], item.path.name))


@pytest.fixture
def gdb(gdb_path):
    return functools.partial(run_gdb, gdb_path)


@pytest.fixture
def plain_gdb(gdb, gdb_path):
    """As `gdb`, where that is no cuda-gdb."""
    if "cuda" in os.path.basename(gdb_path):
        pytest.skip("the gdb of these tests is a cuda-gdb")
    return gdb


@functools.lru_cache(None)
def _rows_read_by(cuda_gdb):
    """The release of `harness.gpucores` whose (fake) cores a cuda-gdb reads: each reads the rows of its own time."""
    said = subprocess.run([cuda_gdb, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return "r400" if re.search(r"\b1[01]\.\d release", said) else "r580"


@pytest.fixture
def cuda_gdb(monkeypatch):
    """As `gdb`, with NVIDIA's cuda-gdb."""
    found = os.environ.get("GDBEXT_TEST_CUDA_GDB") or fetched("cuda-gdb", "bin", "cuda-gdb") or shutil.which("cuda-gdb")
    if not found:
        pytest.skip("no cuda-gdb: run scripts/get-cuda")
    monkeypatch.setattr(gpucores, "read_by_cuda_gdb", _rows_read_by(found))
    return functools.partial(run_gdb, found)


@pytest.fixture
def session(tmp_path, gdb_path):
    """-> function: commands with one subject -> (GdbRun, Subject's tally or None)"""

    def run(commands, python=sys.executable, tally=True):
        with started(python, tmp_path) as subject:
            told = [subject.tell(c[1:]) if c.startswith("@") else c for c in commands]
            said = run_gdb(gdb_path, told, ["-p", str(subject.pid)], timeout=300, before=OFF)
            return said, subject.tally() if tally else None

    return run


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """The path of harness.launches' program."""
    return small_program(tmp_path_factory.mktemp("launches"))


@pytest.fixture(scope="module")
def forked(torch_python):
    """-> `harness.releases.forks`: the subjects of a file that have torch, each in a process of its own."""
    with forks(torch_python) as found:
        yield found
