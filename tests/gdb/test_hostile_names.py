"""A process chooses the paths of its executable and libraries: none of them becomes a command of gdb."""

import os
import shutil
import subprocess
import sys

import pytest
from harness.subjects import spawned

EVERY_GDB = True
PAUSES = "#include <unistd.h>\nvoid hang(void) { for (;;) pause(); }\n"


@pytest.fixture
def folder(tmp_path):
    """A folder whose name is a line of gdb commands; the name's first line is an object file, so that a command with it works."""
    shutil.copy("/bin/true", tmp_path / "A")
    made = tmp_path / "A\nshell touch PWNED\n#"
    made.mkdir()
    return made


def test_an_executables_path_is_no_command(gdb, folder, tmp_path):
    shutil.copy("/bin/sleep", folder / "sleep")
    with spawned([folder / "sleep", "600"]) as subject:
        run = gdb([f"cd {tmp_path}", f"llm-attach -json {subject.pid}", "llm-detach -json"])
        assert run.json(1)["attached"][0]["pid"] == subject.pid and run.json(2)["detached"]
        assert subject.poll() is None
    assert not os.path.exists(tmp_path / "PWNED"), run.text


@pytest.mark.parametrize("which", ["main", "stacks"])
def test_a_librarys_path_is_no_command(gdb, folder, tmp_path, which):
    if not shutil.which("gcc"):
        pytest.skip("no gcc: nothing makes the library")
    library = folder / "hang.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=PAUSES, text=True, check=True)
    code = "import ctypes, sys; one = ctypes.CDLL(sys.argv[1]); print('ready', flush=True); one.hang()"
    with spawned([sys.executable, "-c", code, library], ready="ready") as subject:
        run = gdb([f"cd {tmp_path}", f"llm-attach -json -libraries {which} {subject.pid}", "llm-bt", "llm-detach -json"])
        attached = run.json(1)["attached"][0]
        assert attached["pid"] == subject.pid and str(library) not in attached["libraries"]
        assert run.json(3)["detached"] and subject.poll() is None
    assert not os.path.exists(tmp_path / "PWNED"), run.text
    assert not [line for line in run.text.splitlines() if line.startswith(("#/hang.so", "shell touch"))]
