"""Every command outside gdb, run by the oldest Python that the documents promise and by the newest here: the floor is run, for a
syntax check sees neither `set[int]()` nor a method that came later."""

import gzip
import os
import subprocess
import sys

import pytest
from harness.command_lines import LINES, OK, SUBJECT, words_of
from harness.floor import FLOOR, newest, oldest
from harness.subjects import spawned
from harness.warm import asking

from gdbext.__main__ import SETUP
from gdbext.commands import table

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def test_every_command_that_runs_outside_gdb_has_its_line():
    assert set(LINES) == {c.name for c in table.load_all() if not c.gdb_only} | set(SETUP)


@pytest.fixture(scope="module", params=["oldest", "newest"])
def python(request):
    found = oldest() if request.param == "oldest" else newest()
    if not found:
        pytest.skip("no Python %d.%d is here, the documented floor: pyenv, uv or a package of the system has it" % FLOOR)
    return found


@pytest.fixture(scope="module")
def place(python, tmp_path_factory):
    """-> what the letters of `LINES` stand for"""
    folder = tmp_path_factory.mktemp("floor")
    with gzip.open(os.path.join(ROOT, "tests", "unit", "cores", "h100_driver_580.gz")) as f:
        (folder / "gpu.core").write_bytes(f.read())
    command = [sys.executable, "-c"]
    with spawned([*command, SUBJECT], ready="ready") as process:
        assert ask(python, "llm-snapshot", str(process.pid), "-o", str(folder / "snapshot"))[0] in OK
        yield {"P": str(process.pid), "D": str(folder), "G": str(folder / "gpu.core"), "C": str(folder / "snapshot")}


def ask(python, *words):
    """(exit status, what it says)"""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run([python, "-m", "gdbext", *words], cwd=ROOT, env=clean, text=True, timeout=300, **pipes)
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def warm(python):
    with asking(python) as ask_warm:
        yield ask_warm


@pytest.mark.parametrize("name", LINES)
def test_a_command_answers(warm, place, name):
    for words, expected, said in LINES[name]:
        line = words_of(words, place)
        status, text = warm(name, *line, *(["--json"] if name != "mcp" else []))
        assert "Traceback" not in text, text
        assert status in expected, (line, text)
        assert said in text and text.strip(), (line, text)


SPINS = """
import threading
def spins():
    while True:
        pass
threading.Thread(target=spins, daemon=True).start()
print("ready", flush=True)
spins()
"""


def test_a_process_that_spins_is_answered(python):
    with spawned([sys.executable, "-c", SPINS], ready="ready") as spinning:
        status, text = ask(python, "llm-hang", str(spinning.pid), "--json")
    assert status in OK and '"verdict"' in text and "Traceback" not in text, text


IMPORTS = """
import importlib, pkgutil, sys, types
class Stub(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Exception,), {})
for name in ("gdb", "gdb.FrameDecorator"):
    sys.modules[name] = Stub(name)
sys.path.insert(0, sys.argv[1])
import gdbext
found = [m.name for m in pkgutil.walk_packages(gdbext.__path__, "gdbext.")]
for name in found:
    if name != "gdbext.init":  # acts when it is loaded
        importlib.import_module(name)
print(len(found))
"""


def test_every_module_can_be_imported(python):
    done = subprocess.run([python, "-I", "-c", IMPORTS, ROOT], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    assert int(done.stdout) > 350
